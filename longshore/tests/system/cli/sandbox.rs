//! Runs the program in its own directory, home and environment, and calls it over plain HTTP.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long a program may print nothing. Generous, because tests share the machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

const LONGSHORE: &str = env!("CARGO_BIN_EXE_longshore");

/// A directory, a home and an environment for one test.
pub(crate) struct Sandbox {
    root: TempDir,
    environment: BTreeMap<&'static str, &'static str>,
}

/// A program that has exited.
pub(crate) struct FinishedRun {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("workspace")).unwrap();
        Self { root, environment: BTreeMap::new() }
    }

    pub(crate) fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.insert(name, value);
        self
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.workspace().join(name), text).unwrap();
    }

    /// The working directory of the commands.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.root.path().join("workspace")
    }

    /// The parent of the data directories of this home.
    pub(crate) fn data(&self) -> PathBuf {
        self.root.path().join("data/longshore")
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> FinishedRun {
        ended(&mut self.command(arguments))
    }

    /// Runs a command to its end that may write no file of more than this many blocks of 512 bytes.
    pub(crate) fn run_limited(&self, blocks: u32, arguments: &[&str]) -> FinishedRun {
        let limited = format!("ulimit -f {blocks} && exec \"$0\" \"$@\"");
        let mut command = self.in_sandbox(Command::new("sh"));
        ended(command.args(["-c", &limited, LONGSHORE]).args(arguments))
    }

    /// Starts a server that may open this many files.
    pub(crate) fn start_with_files(&self, files: u32, arguments: &[&str]) -> Running {
        let limited = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        let mut command = self.in_sandbox(Command::new("sh"));
        command.args(["-c", &limited, LONGSHORE]).args(arguments);
        ready(command)
    }

    /// Starts a command and does not wait for it.
    pub(crate) fn begin(&self, arguments: &[&str]) -> Running {
        let child = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Running { child: Some(child), said: String::new(), lines: None }
    }

    /// Starts a server, and waits until it has printed its banner.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        ready(self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.in_sandbox(Command::new(LONGSHORE));
        command.args(arguments);
        command
    }

    fn in_sandbox(&self, mut command: Command) -> Command {
        command
            .current_dir(self.workspace())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.root.path())
            .env("XDG_DATA_HOME", self.root.path().join("data"))
            .envs(&self.environment)
            .stdin(Stdio::null());
        command
    }
}

/// Starts the command, and waits until it has printed its banner.
fn ready(mut command: Command) -> Running {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut running = Running { child: Some(child), said: String::new(), lines: None };
    running.lines = Some(lines(running.child.as_mut().and_then(|child| child.stdout.take()).unwrap()));
    running.read_until(Running::has_printed_banner)
}

fn ended(command: &mut Command) -> FinishedRun {
    let output = command.output().unwrap();
    FinishedRun {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A running program. Dropping it kills it.
pub(crate) struct Running {
    child: Option<Child>,
    said: String,
    /// What it prints next.
    lines: Option<mpsc::Receiver<String>>,
}

impl Running {
    /// Waits until it has printed that it is ready: on a busy machine, after a banner that says what it waits for.
    pub(crate) fn until_ready(self) -> Self {
        self.read_until(|running| running.said.lines().any(|line| line.ends_with(" is ready.")))
    }

    fn read_until(mut self, is_enough: impl Fn(&Self) -> bool) -> Self {
        while !is_enough(&self) {
            let Ok(line) = self.lines.as_ref().unwrap().recv_timeout(PATIENCE) else {
                let said = self.said.clone();
                panic!(
                    "the program did not get ready; it said:\n{said}\nand:\n{}",
                    self.end(Signal::KILL).stderr
                );
            };
            self.said.push_str(&line);
        }
        self
    }

    /// Whether the last line of the banner was printed.
    fn has_printed_banner(&self) -> bool {
        let last = self.said.lines().last().unwrap_or_default();
        last.starts_with("curl ") || last.starts_with("The demo model listens on ")
    }

    pub(crate) fn stdout(&self) -> String {
        self.said.clone()
    }

    /// A value of the banner, by its name.
    pub(crate) fn value(&self, name: &str) -> String {
        let line = self.said.lines().find(|line| line.trim_start().starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)).expect("the banner has this line").to_owned()
    }

    /// The generated token, from the command that the banner names.
    pub(crate) fn token(&self) -> String {
        let command = self.said.lines().find_map(|line| line.trim_start().strip_prefix("token ")).unwrap();
        let command =
            command.trim_start().strip_prefix("printed by ").expect("the token itself is not printed");
        let printed = Command::new("sh").arg("-c").arg(command).env_clear().output().unwrap();
        assert!(printed.status.success(), "{command}: {printed:?}");
        String::from_utf8(printed.stdout).unwrap().trim().to_owned()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Sends a signal and waits for the exit.
    pub(crate) fn end(mut self, signal: Signal) -> FinishedRun {
        // A program that prints more than the test has read does not block any more.
        self.lines = None;
        let mut child = self.child.take().unwrap();
        let pid = Pid::from_child(&child);
        kill_process(pid, signal).unwrap();
        let stderr = rest(child.stderr.take().unwrap());
        FinishedRun { code: child.wait().unwrap().code(), stdout: self.said.clone(), stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
    head: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// One GET on a new connection.
pub(crate) fn get(url: &str, token: Option<&str>) -> Answer {
    let host = url.strip_prefix("http://").unwrap().split('/').next().unwrap();
    get_with_headers(url, &[("Host", host)], token)
}

/// The same, with these headers.
pub(crate) fn get_with_headers(url: &str, headers: &[(&str, &str)], token: Option<&str>) -> Answer {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let credential = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    write!(stream, "GET /{path} HTTP/1.1\r\n").unwrap();
    for (name, value) in headers {
        write!(stream, "{name}: {value}\r\n").unwrap();
    }
    write!(stream, "{credential}Connection: close\r\n\r\n").unwrap();
    let answer = rest(stream);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    Answer { status, body: body.to_owned(), head: head.to_owned() }
}

/// Every path below a directory that its group or others may open.
pub(crate) fn readable_by_others(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.metadata().unwrap().permissions().mode() & 0o077 != 0 {
            found.push(path.clone());
        }
        if path.is_dir() {
            found.extend(readable_by_others(&path));
        }
    }
    found
}

/// The lines of a pipe. A thread reads them, so that waiting for a line has a time limit.
fn lines(pipe: impl std::io::Read + Send + 'static) -> mpsc::Receiver<String> {
    // A banner has a dozen lines. A program that prints more blocks until the test reads.
    let (sender, receiver) = mpsc::sync_channel(64);
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        loop {
            let mut line = String::new();
            if pipe.read_line(&mut line).unwrap_or(0) == 0 || sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn rest(mut pipe: impl std::io::Read) -> String {
    let mut text = String::new();
    pipe.read_to_string(&mut text).unwrap();
    text
}
