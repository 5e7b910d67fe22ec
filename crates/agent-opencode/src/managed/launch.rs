//! Starts `opencode serve` and waits until it listens.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use longshore_engine::fail_point;
use longshore_model::{Error, Result};
use rustix::process::{Pid, Signal};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::health::{self, Unwell};
use super::process::{MARKER, Process};
use super::record::Record;
use super::{ManagedConfig, random_password, unavailable};

/// What OpenCode prints when it answers requests. One that comes earlier is never answered.
const READY: &str = "opencode server listening on ";

/// Ports that are tried when others are quicker to take the one that was just free.
const PORTS: usize = 3;

/// How often its output is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// The line that says that it listens stands at the beginning of the output; more than this is not searched for it.
const MAX_OUTPUT: u64 = 256 * 1024;

/// How much of the output goes to our log when it does not start.
const TAIL: usize = 2_000;

/// Starts one on a free port, with a password of its own.
pub(super) async fn somewhere(config: &ManagedConfig) -> Result<(Record, Child)> {
    let mut tries = 0;
    loop {
        tries += 1;
        // OpenCode takes port 4096 when it is given 0, and everybody would guess that.
        let port = a_free_port()?;
        let record = Record::new(port, random_password(), &config.workspace);
        match launch(config, record).await {
            Err(Failure::Exited(..)) if tries < PORTS && is_taken(port) => {}
            result => return result.map_err(|failure| failure.into_error(config)),
        }
    }
}

/// Starts one in the place of another that has ended: on the same port with the same password, unless somebody has the port
/// now. Whoever that is may have heard the password since, from those who looked for OpenCode there, so it is no good any more.
pub(super) async fn again(config: &ManagedConfig, mut record: Record) -> Result<(Record, Child)> {
    if is_taken(record.port) {
        let taken = record.port;
        record.port = a_free_port()?;
        record.password = random_password();
        tracing::warn!(taken, port = record.port, "somebody else has OpenCode's port now; it gets another");
    }
    launch(config, record).await.map_err(|failure| failure.into_error(config))
}

enum Failure {
    NoProgram(io::Error),
    NoWorkspace,
    Io(io::Error),
    Exited(ExitStatus, String),
    TimedOut(String),
    Unwell(Unwell),
    Record(Error),
}

/// A process that is killed unless it gets ready.
struct Unready(Option<Pid>);

async fn launch(config: &ManagedConfig, mut record: Record) -> std::result::Result<(Record, Child), Failure> {
    if !config.workspace.is_dir() {
        return Err(Failure::NoWorkspace);
    }
    let deadline = Instant::now() + config.start_timeout;
    let log = log_file(&config.data_dir);
    let output = fresh(&log).map_err(Failure::Io)?;
    // Before it runs: whatever happens next, the marker leads to it.
    record.write(&config.data_dir).map_err(Failure::Record)?;
    fail_point::hit("managed.recorded");
    let mut child = command(config, &record, output).map_err(Failure::Io)?.spawn().map_err(|error| {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Failure::NoProgram(error),
            _ => Failure::Io(error),
        }
    })?;
    fail_point::hit("managed.spawned");
    let pid = child.id().ok_or_else(|| Failure::Io(io::ErrorKind::NotFound.into()))?;
    let mut guard = Unready(i32::try_from(pid).ok().and_then(Pid::from_raw));
    if let Some(process) = Process::find(pid) {
        record.started(process);
        record.write(&config.data_dir).map_err(Failure::Record)?;
    }

    let port = tokio::select! {
        // First, so that one that ended is not waited for.
        biased;
        status = child.wait() => {
            guard.0 = None;
            return Err(Failure::Exited(status.map_err(Failure::Io)?, tail(&log).await));
        }
        port = listening(&log) => port,
        () = tokio::time::sleep_until(deadline) => return Err(Failure::TimedOut(tail(&log).await)),
    };
    record.port = port;
    let version = health::version(port, &record.password, || record.living().is_some()).await;
    record.version = Some(version.map_err(Failure::Unwell)?);
    record.write(&config.data_dir).map_err(Failure::Record)?;
    fail_point::hit("managed.ready");
    guard.0 = None;
    tracing::info!(pid, port, version = record.version, "OpenCode listens");
    Ok((record, child))
}

fn command(config: &ManagedConfig, record: &Record, output: File) -> io::Result<Command> {
    let mut command = Command::new(&config.program);
    command
        .args(["serve", "--hostname", "127.0.0.1", "--port", &record.port.to_string()])
        .current_dir(&config.workspace)
        .stdin(Stdio::null())
        .stderr(output.try_clone()?)
        .stdout(output)
        // Neither Ctrl-C on our terminal nor our end shall reach it.
        .process_group(0)
        .kill_on_drop(false);
    if config.env_clear {
        command.env_clear();
    } else {
        // The gateway's own credentials are nothing for a program that runs a model's commands.
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(&name.to_string_lossy())) {
            command.env_remove(name);
        }
    }
    command
        .envs(&config.env)
        // It would change the name that we log in with.
        .env_remove("OPENCODE_SERVER_USERNAME")
        .env("OPENCODE_SERVER_PASSWORD", &record.password)
        .env(MARKER, &record.marker);
    Ok(command)
}

/// In any case, as the configuration reads them.
fn is_ours(variable: &str) -> bool {
    let capitals = variable.to_ascii_uppercase();
    capitals.starts_with("A2A_")
        || matches!(
            capitals.as_str(),
            "OPENCODE_AUTH_USERNAME" | "OPENCODE_AUTH_PASSWORD" | "OTEL_EXPORTER_OTLP_HEADERS"
        )
}

/// Waits for the line that says that it listens, and reads the port from it.
async fn listening(log: &Path) -> u16 {
    loop {
        let output = read(log).await;
        let complete = output.rsplit_once('\n').map_or("", |(complete, _)| complete);
        let port = complete
            .lines()
            .find_map(|line| line.split_once(READY))
            .and_then(|(_, url)| url.trim().trim_end_matches('/').rsplit(':').next()?.parse().ok());
        if let Some(port) = port {
            return port;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn read(log: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = tokio::fs::File::open(log).await
        && let Err(error) = file.take(MAX_OUTPUT).read_to_end(&mut bytes).await
    {
        tracing::debug!(%error, "the output of OpenCode cannot be read");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn tail(log: &Path) -> String {
    let output = read(log).await;
    let start = output.len().saturating_sub(TAIL);
    let start = (start..=output.len()).find(|at| output.is_char_boundary(*at)).unwrap_or(output.len());
    output[start..].trim().to_owned()
}

/// An empty file for its output, for the owner's eyes only. The output of the start before is kept once.
fn fresh(log: &Path) -> io::Result<File> {
    match std::fs::rename(log, log.with_extension("log.1")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().create_new(true).append(true).mode(0o600).open(log)
}

fn log_file(data_dir: &Path) -> PathBuf {
    data_dir.join("opencode.log")
}

fn a_free_port() -> Result<u16> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    free.map(|address| address.port())
        .map_err(|source| unavailable("There is no free port for OpenCode.").caused_by(source))
}

fn is_taken(port: u16) -> bool {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_err()
}

impl Drop for Unready {
    fn drop(&mut self) {
        if let Some(pid) = self.0
            && let Err(error) = rustix::process::kill_process_group(pid, Signal::KILL)
        {
            tracing::debug!(%error, "an OpenCode that did not get ready was gone already");
        }
    }
}

impl Failure {
    fn into_error(self, config: &ManagedConfig) -> Error {
        match self {
            Self::NoProgram(source) => {
                // The name is what the user gave; where it lies is nobody's business.
                let name = config.program.file_name().unwrap_or(config.program.as_os_str()).to_string_lossy();
                unavailable(format!(
                    "OpenCode cannot be started: there is no program `{name}` that can be run. Install it with `npm \
                     install -g opencode-ai`, or say with --opencode where it is, or set OPENCODE_BASE_URL to use one \
                     that runs already."
                ))
                .caused_by(source)
            }
            Self::NoWorkspace => {
                unavailable("OpenCode cannot be started: the workspace is no directory. Choose one that is.")
            }
            Self::Io(source) => unavailable("OpenCode cannot be started.").caused_by(source),
            Self::Exited(status, output) => unavailable(format!(
                "OpenCode ended while it started ({status}). Its output is in opencode.log in the data directory."
            ))
            .caused_by(format!("it said: {output}")),
            Self::TimedOut(output) => unavailable(format!(
                "OpenCode did not listen within {} s. Its output is in opencode.log in the data directory.",
                config.start_timeout.as_secs()
            ))
            .caused_by(format!("it said: {output}")),
            Self::Unwell(source) => unavailable(format!("OpenCode started, but is not well: {source}.")).caused_by(source),
            Self::Record(error) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_port_is_read_from_a_whole_line_only() {
        let dir = tempfile::tempdir().unwrap();
        let log = log_file(dir.path());
        let check = async |text: &str, expected: Option<u16>| {
            std::fs::write(&log, text).unwrap();
            // A port is there at the first look; that there is none shows only by waiting for it.
            let patience = if expected.is_some() { Duration::from_secs(30) } else { LOOK_EVERY * 4 };
            let port = tokio::time::timeout(patience, listening(&log)).await.ok();
            assert_eq!(port, expected, "{text:?}");
        };
        check("", None).await;
        check("opencode server listening on http://127.0.0.1:40", None).await;
        check("opencode server listening on http://127.0.0.1:4096\n", Some(4096)).await;
        check("warning\nopencode server listening on http://127.0.0.1:4096/\nmore", Some(4096)).await;
        check("opencode server listening on nothing\n", None).await;
    }

    #[test]
    fn the_gateways_own_credentials_are_told_from_opencodes_variables() {
        for (name, expected) in [
            ("A2A_BEARER_TOKEN", true),
            ("A2A_STATIC_AUTH_CREDENTIALS", true),
            ("OPENCODE_AUTH_PASSWORD", true),
            ("a2a_bearer_token", true),
            ("A2a_Static_Auth_Credentials", true),
            ("opencode_auth_password", true),
            ("opencode_Auth_Username", true),
            ("OTEL_EXPORTER_OTLP_HEADERS", true),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", false),
            ("OPENCODE_CONFIG", false),
            ("opencode_config", false),
            ("PATH", false),
        ] {
            assert_eq!(is_ours(name), expected, "{name}");
        }
    }
}
