//! A command as a process: its process group, its output, and its end.
//!
//! The first process of the group is a watcher, whose input is a pipe from the gateway. When the gateway ends for any reason, the
//! pipe closes and the watcher kills the group. While the watcher exists, no other process group can get the group's number.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The watcher's script. It reports that it is ready, and then waits for the end of its input. From then on it ignores signals to
/// the whole group, except SIGKILL.
const WATCHER: &str = "trap '' HUP INT QUIT TERM USR1 USR2; echo; exec >&-; read -r _; kill -KILL 0";

/// How long the watcher of a command may take to become ready. After that the command is not started. The limit is generous: even
/// on a busy machine the watcher needs less.
const WATCHER_START: Duration = Duration::from_secs(10);

/// The command to run.
#[derive(Debug)]
pub(super) struct CommandLine {
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
    pub(super) directory: PathBuf,
    pub(super) environment: BTreeMap<OsString, OsString>,
}

/// A running command. Dropping it kills the whole process group.
#[derive(Debug)]
pub(super) struct RunningCommand {
    command: Child,
    watcher: Child,
    group: Pid,
}

impl RunningCommand {
    /// Starts the command when its watcher is ready, because a command that signals its group at once must not end the watcher. The
    /// output and the error output come in order through one pipe.
    pub(super) async fn start(line: &CommandLine) -> io::Result<(Self, pipe::Receiver)> {
        let (watcher, group) = start_watcher().await?;
        let (output, writer) = io::pipe()?;
        let output = pipe::Receiver::from_owned_fd(OwnedFd::from(output))?;
        let command = Command::new(&line.program)
            .args(&line.arguments)
            .current_dir(&line.directory)
            .env_clear()
            .envs(&line.environment)
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(group.as_raw_nonzero().get())
            .spawn()?;
        Ok((Self { command, watcher, group }, output))
    }

    /// Waits until the command itself has ended. Cancel safe.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.command.wait().await
    }

    /// Kills the command and all processes that are left in its group.
    pub(super) fn kill(&self) {
        if let Err(error) = kill_process_group(self.group, Signal::KILL) {
            tracing::debug!(%error, "the group of a command could not be killed");
        }
    }

    /// Kills all processes that are left in the group, and waits for the watcher.
    pub(super) async fn bury(mut self) {
        self.kill();
        if let Err(error) = self.watcher.wait().await {
            tracing::debug!(%error, "the watcher of a command could not be waited for");
        }
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        // After the wait for the watcher, its number may belong to another group.
        if self.watcher.id().is_some() {
            self.kill();
        }
    }
}

/// Starts the first process of a group. Also returns the number of the group.
async fn start_watcher() -> io::Result<(Child, Pid)> {
    let mut watcher = Command::new("/bin/sh")
        .args(["-c", WATCHER])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()?;
    let id = watcher.id().and_then(|id| i32::try_from(id).ok());
    let group = id.and_then(Pid::from_raw).ok_or_else(|| io::Error::other("the watcher has no number"))?;
    let mut ready = watcher.stdout.take().ok_or_else(|| io::Error::other("the watcher has no output"))?;
    timeout(WATCHER_START, ready.read_u8()).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok((watcher, group))
}

/// The exit status of a command in the form that ACP defines.
pub(super) fn exit_status(status: Option<ExitStatus>) -> Value {
    let code = status.and_then(|status| status.code());
    let signal = status.and_then(|status| status.signal()).map(|signal| match signal {
        1 => "SIGHUP".to_owned(),
        2 => "SIGINT".to_owned(),
        3 => "SIGQUIT".to_owned(),
        6 => "SIGABRT".to_owned(),
        9 => "SIGKILL".to_owned(),
        11 => "SIGSEGV".to_owned(),
        13 => "SIGPIPE".to_owned(),
        15 => "SIGTERM".to_owned(),
        other => format!("signal {other}"),
    });
    json!({"exitCode": code, "signal": signal})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_group_ends_when_the_gateway_is_gone() {
        let line = CommandLine {
            program: "sh".to_owned(),
            arguments: vec![
                "-c".to_owned(),
                "trap '' HUP TERM; kill -TERM 0; sleep 1000 & echo; wait".to_owned(),
            ],
            directory: std::env::temp_dir(),
            environment: BTreeMap::from([("PATH".into(), std::env::var_os("PATH").unwrap())]),
        };
        let (mut running, mut output) = RunningCommand::start(&line).await.unwrap();
        // The command and its child run, and the watcher has survived the signal.
        output.read_u8().await.unwrap();
        // The same happens to this pipe when the gateway is killed.
        drop(running.watcher.stdin.take());
        let patience = Duration::from_secs(30);
        let status = timeout(patience, running.ended()).await.expect("the command is killed").unwrap();
        assert_eq!(exit_status(Some(status)), json!({"exitCode": null, "signal": "SIGKILL"}));
        // The end of the output shows that the child has ended too, because it also held the pipe.
        let mut rest = Vec::new();
        timeout(patience, output.read_to_end(&mut rest)).await.expect("the child is killed").unwrap();
        running.bury().await;
    }
}
