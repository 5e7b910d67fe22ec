//! Child processes of the bench. Each is stopped by its id when its owner is dropped, on every path.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use tokio::time::{Instant, sleep};

/// How long a process may take to shut down.
const ORDERLY: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A process that ends when this is dropped.
#[derive(Debug)]
pub struct Owned {
    child: Child,
}

impl Owned {
    pub fn start(command: &mut Command) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("cannot start {program}"))?;
        Ok(Self { child })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Reads standard output, which must be piped, up to the line for which `find` returns a value. A thread reads the rest, so
    /// that the process is never blocked by its output.
    pub fn first<T: Send + 'static>(&mut self, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        let stdout = self.child.stdout.take().context("its standard output is not piped")?;
        let mut lines = BufReader::new(stdout).lines();
        let mut printed = Vec::new();
        while let Some(line) = lines.next() {
            let line = line?;
            if let Some(found) = find(&line) {
                std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
                return Ok(found);
            }
            printed.push(line);
        }
        bail!("the process ended without the expected line; it printed: {}", printed.join(" | "))
    }

    /// The exit status, if the process has ended by itself.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Asks the process to end, and kills it if it does not.
    pub async fn stop(mut self) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // The process may have ended already.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + ORDERLY;
        while self.ended().is_none() && Instant::now() < deadline {
            sleep(LOOK_AGAIN).await;
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// A command whose environment has only a PATH and a HOME.
pub fn clean(program: &std::path::Path, home: &std::path::Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .current_dir(home)
        .stdin(Stdio::null());
    command
}

/// Raises the limit of open files to the maximum, for this process and its children: every stream needs one.
pub fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, a phase that needs more files fails with an error of its own.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// A port that was free a moment ago.
pub fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("no port is free")?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(pid: u32) -> bool {
        std::path::Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_process_ends_with_its_owner() {
        let mut owned = Owned::start(Command::new("sleep").arg("600").stdin(Stdio::null())).unwrap();
        let pid = owned.pid();
        assert!(owned.ended().is_none() && runs(pid));
        drop(owned);
        assert!(!runs(pid));
    }

    #[tokio::test]
    async fn a_process_that_obeys_sigterm_is_not_killed_and_its_first_lines_are_read() {
        let script = "trap 'exit 0' TERM; echo hello; echo port 17; while :; do sleep 0.01; done";
        let mut owned =
            Owned::start(Command::new("sh").args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()))
                .unwrap();
        let pid = owned.pid();
        let port: u16 = owned.first(|line| line.strip_prefix("port ")?.parse().ok()).unwrap();
        assert_eq!(port, 17);
        owned.stop().await;
        assert!(!runs(pid));
    }

    #[test]
    fn a_process_without_the_expected_line_is_an_error() {
        let mut owned = Owned::start(Command::new("echo").arg("no").stdout(Stdio::piped())).unwrap();
        let error = owned.first(|line| line.strip_prefix("port ").map(str::to_owned)).unwrap_err();
        assert!(error.to_string().contains("it printed: no"), "{error}");
    }
}
