//! `terminal/*`: the commands that the gateway runs for the agent. Each ends with the turn in which it was started, or before.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_processes::MARKER;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::command::{CommandLine, RunningCommand, exit_status};
use super::output::{MAX_KEPT, Output};
use super::request::NewTerminal;
use super::{AUDIT, ClientConfig, Refusal};

/// How many unreleased terminals one session may have, and all sessions together. Further terminals are refused.
const MAX_OF_SESSION: usize = 16;
const MAX_OF_AGENT: usize = 64;

/// The largest size of a command with its arguments and variables, in bytes.
const MAX_COMMAND: usize = 128 * 1024;

/// How often the output of a running command is shown to callers.
const SHOW_EVERY: Duration = Duration::from_millis(500);

/// How long the output is read after the command has ended, because a process that left its group may still hold the pipe.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// The pause after each [`MAX_KEPT`] bytes of output. It slows down a command that writes very much, whose older output is dropped.
const PAUSE: Duration = Duration::from_millis(10);

const READ_BYTES: usize = 64 * 1024;

const NO_TERMINAL: Refusal =
    Refusal::invalid("There is no such terminal in this session, or it was released.");

/// The terminals of one agent process.
#[derive(Debug, Default)]
pub(crate) struct Terminals(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: u64,
    all: HashMap<String, Terminal>,
}

/// A terminal of a session. Dropping it kills the command.
#[derive(Debug)]
struct Terminal {
    session: String,
    output: Arc<Mutex<Output>>,
    /// Set to true when the command must be killed.
    stop: watch::Sender<bool>,
    ended: Ended,
}

/// The exit of a command. `None`: the command still runs.
type Ended = watch::Receiver<Option<Exit>>;

/// How a command ended. `None`: this is not known.
#[derive(Clone, Copy, Debug)]
struct Exit(Option<ExitStatus>);

/// A report of a command's output to callers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub terminal: String,
    /// The whole output that callers see, and not only the new part.
    pub output: String,
    /// Whether the command has ended.
    pub is_last: bool,
}

/// A terminal whose command is not started yet. If the terminal is stopped before the start, the command is never started.
#[derive(Debug)]
pub(crate) struct Reserved {
    terminal: String,
    output: Arc<Mutex<Output>>,
    stop: watch::Receiver<bool>,
    ended: watch::Sender<Option<Exit>>,
}

/// A command that was started. [`Follower::run`] must be called for it.
#[derive(Debug)]
pub(crate) struct Follower {
    terminal: String,
    command: RunningCommand,
    pipe: pipe::Receiver,
    output: Arc<Mutex<Output>>,
    stop: watch::Receiver<bool>,
    ended: watch::Sender<Option<Exit>>,
}

impl Terminals {
    /// Reserves a terminal for a command that is about to be started.
    pub(crate) fn reserve(&self, session: &str, new: &NewTerminal) -> Result<Reserved, Refusal> {
        let mut state = self.lock();
        let of_session = state.all.values().filter(|terminal| terminal.session == session).count();
        if of_session >= MAX_OF_SESSION || state.all.len() >= MAX_OF_AGENT {
            return Err(Refusal::failed(
                "There are too many terminals. Release those that are not needed any more.",
            ));
        }
        state.last += 1;
        let id = format!("terminal-{}", state.last);
        let output = Arc::new(Mutex::new(Output::new(new.output_byte_limit)));
        let (stop, stopped) = watch::channel(false);
        let (ended, end) = watch::channel(None);
        let terminal =
            Terminal { session: session.to_owned(), output: Arc::clone(&output), stop, ended: end };
        state.all.insert(id.clone(), terminal);
        Ok(Reserved { terminal: id, output, stop: stopped, ended })
    }

    /// Starts a command in its reserved terminal. Returns the id of the terminal.
    pub(crate) async fn create(
        &self,
        config: &ClientConfig,
        session: &str,
        directory: &Path,
        new: NewTerminal,
        reserved: Reserved,
    ) -> Result<(String, Follower), Refusal> {
        let program = program_of(&new.command).map(str::to_owned);
        let id = reserved.terminal.clone();
        let started = start(config, directory, new, reserved).await;
        if started.is_err() {
            self.lock().all.remove(&id);
        }
        let terminal = started.is_ok().then_some(id.as_str());
        let outcome = if terminal.is_some() { "success" } else { "refused" };
        tracing::info!(target: AUDIT, session, terminal, program, outcome, "the agent ran a command");
        started.map(|follower| (id, follower))
    }

    /// The response to `terminal/output`.
    pub(crate) fn output(&self, session: &str, id: &str) -> Result<Value, Refusal> {
        self.find(session, id, |terminal| {
            let ended = *terminal.ended.borrow();
            let (output, truncated) = lock(&terminal.output).text();
            let mut answer = json!({"output": output, "truncated": truncated});
            if let Some(Exit(status)) = ended {
                answer["exitStatus"] = exit_status(status);
            }
            answer
        })
    }

    /// Waits until the command has ended. Returns the response to `terminal/wait_for_exit`.
    pub(crate) async fn wait_for_exit(&self, session: &str, id: &str) -> Result<Value, Refusal> {
        let mut ended = self.find(session, id, |terminal| terminal.ended.clone())?;
        // An error means that the follower was stopped because the gateway stops.
        let exit = ended.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
        Ok(exit_status(exit.and_then(|Exit(status)| status)))
    }

    /// Kills the command, and waits until it has ended.
    pub(crate) async fn kill(&self, session: &str, id: &str) -> Result<(), Refusal> {
        let mut ended = self.find(session, id, |terminal| {
            terminal.stop.send_replace(true);
            terminal.ended.clone()
        })?;
        let _ = ended.wait_for(Option::is_some).await;
        Ok(())
    }

    /// Kills the command, waits until it has ended, and removes the terminal.
    pub(crate) async fn release(&self, session: &str, id: &str) -> Result<(), Refusal> {
        self.kill(session, id).await?;
        self.lock().all.remove(id);
        Ok(())
    }

    /// Whether a command runs in the session.
    pub(crate) fn runs_in(&self, session: &str) -> bool {
        let runs = |terminal: &Terminal| terminal.session == session && terminal.ended.borrow().is_none();
        self.lock().all.values().any(runs)
    }

    /// Kills the commands of a session and removes its terminals.
    pub(crate) fn end_session(&self, session: &str) {
        self.lock().all.retain(|_, terminal| terminal.session != session);
    }

    pub(crate) fn end_all(&self) {
        self.lock().all.clear();
    }

    fn find<T>(&self, session: &str, id: &str, take: impl FnOnce(&Terminal) -> T) -> Result<T, Refusal> {
        let state = self.lock();
        let terminal = state.all.get(id).filter(|terminal| terminal.session == session);
        terminal.map(take).ok_or(NO_TERMINAL)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl Follower {
    /// Reads the output until the command has ended, and passes it to `show`. The agent learns of the end only after `show` has got
    /// the last report.
    pub(crate) async fn run<F: Future<Output = ()>>(self, show: impl Fn(Report) -> F) {
        let Self { terminal, mut command, mut pipe, output, mut stop, ended } = self;
        let report = |output: String, is_last| Report { terminal: terminal.clone(), output, is_last };
        let mut buffer = vec![0; READ_BYTES];
        let (mut is_open, mut is_stopped, mut unpaused) = (true, false, 0);
        let mut show_at = Instant::now() + SHOW_EVERY;
        let status = loop {
            tokio::select! {
                biased;
                status = command.ended() => break status.ok(),
                () = until_stopped(&mut stop), if !is_stopped => {
                    is_stopped = true;
                    command.kill();
                }
                () = sleep_until(show_at) => {
                    show_at = Instant::now() + SHOW_EVERY;
                    let live = lock(&output).live();
                    if let Some(text) = live {
                        show(report(text, false)).await;
                    }
                }
                read = pipe.read(&mut buffer), if is_open => match read {
                    Ok(read) if read > 0 => {
                        lock(&output).push(&buffer[..read]);
                        unpaused += read;
                    }
                    _ => is_open = false,
                },
            }
            if unpaused >= MAX_KEPT && !is_stopped {
                unpaused = 0;
                sleep(PAUSE).await;
            }
        };
        command.bury().await;
        let rest = async {
            let mut left = MAX_KEPT;
            while let Ok(read) = pipe.read(&mut buffer).await
                && read > 0
                && left > 0
            {
                lock(&output).push(&buffer[..read]);
                left = left.saturating_sub(read);
            }
        };
        let _ = timeout(LAST_OUTPUT, rest).await;
        let last = lock(&output).shown();
        show(report(last, true)).await;
        ended.send_replace(Some(Exit(status)));
    }
}

async fn start(
    config: &ClientConfig,
    directory: &Path,
    new: NewTerminal,
    reserved: Reserved,
) -> Result<Follower, Refusal> {
    let Reserved { terminal, output, mut stop, ended } = reserved;
    let line = command_line(config, directory, new)?;
    let started = tokio::select! {
        // `biased` in this order, so that no command is started after the end of its turn.
        biased;
        () = until_stopped(&mut stop) => return Err(Refusal::NO_TURN),
        started = RunningCommand::start(&line) => started,
    };
    let (command, pipe) = started.map_err(|error| {
        tracing::debug!(%error, "a command could not be started");
        Refusal::failed("The command could not be started. Check that there is such a program.")
    })?;
    Ok(Follower { terminal, command, pipe, output, stop, ended })
}

/// Waits until the command must be killed. Cancel safe.
async fn until_stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the terminal was released.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// The name of the program, for the log. `None`: the shell's command line begins with something else, which may be secret, such as
/// a part of a variable's value.
fn program_of(command: &str) -> Option<&str> {
    let is_plain =
        |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./+-".contains(&byte));
    let is_variable = |word: &&str| word.split_once('=').is_some_and(|(_, value)| is_plain(value));
    let program = command.split_whitespace().find(|word| !is_variable(word)).filter(|word| is_plain(word))?;
    Path::new(program).file_name()?.to_str()
}

fn command_line(config: &ClientConfig, directory: &Path, new: NewTerminal) -> Result<CommandLine, Refusal> {
    let NewTerminal { command, args, env, cwd, .. } = new;
    let variables = env.iter().map(|variable| variable.name.len() + variable.value.len());
    let length = command.len() + args.iter().map(String::len).chain(variables).sum::<usize>();
    if command.trim().is_empty() || length > MAX_COMMAND {
        return Err(Refusal::invalid(
            "The command must not be empty, nor longer than 128 KiB with all its arguments.",
        ));
    }
    let is_name = |name: &str| !name.is_empty() && !name.contains(['=', '\0']);
    if !env.iter().all(|variable| is_name(&variable.name)) {
        return Err(Refusal::invalid("The name of a variable must not be empty, nor contain `=`."));
    }
    let directory = place(config, directory, cwd.as_deref())?;
    let mut environment = config.environment.clone();
    environment.extend(env.into_iter().map(|variable| (variable.name.into(), variable.value.into())));
    // The agent must not be able to remove the marker by which the gateway finds the agent's processes.
    let mark = config.environment.get_key_value(OsStr::new(MARKER));
    environment.extend(mark.map(|(name, value)| (name.clone(), value.clone())));
    let (program, arguments) = if args.is_empty() {
        ("/bin/sh".to_owned(), vec!["-c".to_owned(), command])
    } else {
        (command, args)
    };
    Ok(CommandLine { program, arguments, directory, environment })
}

/// The directory in which a command starts: the directory of the session, or one below it.
fn place(config: &ClientConfig, directory: &Path, requested: Option<&str>) -> Result<PathBuf, Refusal> {
    const OUTSIDE: Refusal =
        Refusal::invalid("A command starts in the directory of the session, or in a directory below.");
    let found = directory.join(requested.unwrap_or_default()).canonicalize().map_err(|_| OUTSIDE)?;
    let is_allowed = found.starts_with(directory) && found.is_dir();
    let is_protected = found != directory && config.protected.deny(&found);
    if is_allowed && !is_protected { Ok(found) } else { Err(OUTSIDE) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_whose_turn_is_over_before_it_starts_is_not_run() {
        let holder = tempfile::tempdir().unwrap();
        let directory = holder.path().canonicalize().unwrap();
        let path = ("PATH".into(), std::env::var_os("PATH").unwrap());
        let config = ClientConfig { environment: [path].into(), ..ClientConfig::default() };
        let terminals = Terminals::default();
        let new = NewTerminal {
            command: "touch ran".to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: None,
            output_byte_limit: None,
        };
        let reserved = terminals.reserve("s", &new).unwrap();
        terminals.end_session("s");
        let refused = terminals.create(&config, "s", &directory, new, reserved).await.unwrap_err();
        assert_eq!(refused, Refusal::NO_TURN);
        assert!(!directory.join("ran").exists());
    }

    #[test]
    fn the_audit_log_names_programs_and_no_secrets_of_shell_lines() {
        let cases = [
            ("git", Some("git")),
            ("/usr/bin/g++-14 -O2 a.cc", Some("g++-14")),
            ("  npm test\nrm -r build", Some("npm")),
            ("CI=1 RUST_LOG=info cargo test", Some("cargo")),
            ("GITHUB_TOKEN=ghp_secret gh pr list", Some("gh")),
            ("GITHUB_TOKEN=ghp_secret", None),
            ("TOKEN='a secret b' gh pr list", None),
            ("TOKEN=\"a secret\" gh pr list", None),
            ("TOKEN=a\\ secret gh pr list", None),
            ("TOKEN=$(echo secret) gh pr list", None),
            ("TOKEN=secret;gh pr list", None),
            ("https://user:secret@example.org/x", None),
            ("<<<secret cat", None),
            ("a\u{1b}[2J", None),
            ("/", None),
            ("", None),
        ];
        for (command, expected) in cases {
            assert_eq!(program_of(command), expected, "{command}");
        }
    }
}
