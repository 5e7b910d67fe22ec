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
use longshore_processes::{MARKER, Process};
use rustix::process::{Pid, Signal};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::health::{self, HealthError};
use super::record::Record;
use super::{ManagedConfig, random_password, unavailable};

/// OpenCode prints this line when it starts to answer requests. It never answers a request that came before that.
const READY: &str = "opencode server listening on ";

/// The detail of the error for a program that cannot be executed.
pub const MISSING_PROGRAM: &str = "missingProgram";

/// How many ports are tried when other programs take the free port first.
const MAX_PORTS: usize = 3;

/// How often the output is read.
const CHECK_EVERY: Duration = Duration::from_millis(25);

/// How many bytes of the output are searched for the line with the port, which is near the beginning.
const MAX_OUTPUT: u64 = 256 * 1024;

/// How many bytes of the output are logged if OpenCode does not start.
const TAIL: usize = 2_000;

/// Starts an OpenCode on a free port, with a new password.
pub(super) async fn start_new(config: &ManagedConfig) -> Result<(Record, Child)> {
    let mut tries = 0;
    loop {
        tries += 1;
        // With port 0, OpenCode would take port 4096, which anybody could guess.
        let port = free_port()?;
        let record = Record::new(port, random_password(), &config.workspace);
        match launch(config, record).await {
            Err(Failure::Exited(..)) if tries < MAX_PORTS && is_taken(port) => {}
            result => return result.map_err(|failure| failure.into_error(config)),
        }
    }
}

/// Starts OpenCode again after it has ended, on the same port and with the same password, unless another program has the port now.
/// That program may have received the password from clients that looked for OpenCode, so the password changes too.
pub(super) async fn restart(config: &ManagedConfig, mut record: Record) -> Result<(Record, Child)> {
    if is_taken(record.port) {
        let taken = record.port;
        record.port = free_port()?;
        record.password = random_password();
        tracing::warn!(
            taken,
            port = record.port,
            "another program took OpenCode's port; OpenCode gets a new one"
        );
    }
    launch(config, record).await.map_err(|failure| failure.into_error(config))
}

enum Failure {
    NoProgram(io::Error),
    NoWorkspace,
    Io(io::Error),
    Exited(ExitStatus, String),
    TimedOut(String),
    Unhealthy(HealthError),
    Record(Error),
}

/// Kills a process on drop, unless the process became ready.
struct KillUnlessReady(Option<Pid>);

async fn launch(config: &ManagedConfig, mut record: Record) -> std::result::Result<(Record, Child), Failure> {
    if !config.workspace.is_dir() {
        return Err(Failure::NoWorkspace);
    }
    let deadline = Instant::now() + config.start_timeout;
    let log = log_file(&config.data_dir);
    let output = new_log_file(&log).map_err(Failure::Io)?;
    record.configured.clone_from(&config.configured);
    // The record is written before OpenCode runs. If the gateway dies now, the marker in the record still identifies the process.
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
    let mut guard = KillUnlessReady(i32::try_from(pid).ok().and_then(Pid::from_raw));
    if let Some(process) = Process::find(pid) {
        record.set_process(process);
        record.write(&config.data_dir).map_err(Failure::Record)?;
    }

    let port = tokio::select! {
        // `biased`, so that the end of the process is noticed first and the start does not wait for an ended process.
        biased;
        status = child.wait() => {
            guard.0 = None;
            return Err(Failure::Exited(status.map_err(Failure::Io)?, tail(&log).await));
        }
        port = wait_for_port(&log) => port,
        () = tokio::time::sleep_until(deadline) => return Err(Failure::TimedOut(tail(&log).await)),
    };
    record.port = port;
    let version = health::version(port, &record.password, || record.running_process().is_some()).await;
    record.version = Some(version.map_err(Failure::Unhealthy)?);
    record.write(&config.data_dir).map_err(Failure::Record)?;
    fail_point::hit("managed.ready");
    guard.0 = None;
    tracing::info!(pid, port, version = record.version, "OpenCode is listening");
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
        // Neither Ctrl-C on the gateway's terminal nor the end of the gateway may reach OpenCode.
        .process_group(0)
        .kill_on_drop(false);
    if config.env_clear {
        command.env_clear();
    } else {
        // OpenCode runs the commands of a model, so it must not see the gateway's own credentials.
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_gateway_variable(&name.to_string_lossy()))
        {
            command.env_remove(name);
        }
    }
    command
        .envs(&config.env)
        // This variable would change the user name that OpenCode expects.
        .env_remove("OPENCODE_SERVER_USERNAME")
        .env("OPENCODE_SERVER_PASSWORD", &record.password)
        .env(MARKER, &record.marker);
    Ok(command)
}

/// Whether this is a variable of the gateway. Ignores case, as the gateway's configuration does.
fn is_gateway_variable(variable: &str) -> bool {
    let capitals = variable.to_ascii_uppercase();
    capitals.starts_with("A2A_")
        || capitals.starts_with("IACCODE_A2A_")
        || matches!(
            capitals.as_str(),
            "OPENCODE_AUTH_USERNAME" | "OPENCODE_AUTH_PASSWORD" | "OTEL_EXPORTER_OTLP_HEADERS"
        )
}

/// Waits for OpenCode's ready line, and reads the port from it.
async fn wait_for_port(log: &Path) -> u16 {
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
        tokio::time::sleep(CHECK_EVERY).await;
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

/// Creates an empty file for the output, readable only by the owner. The output of the previous start is kept in another file.
fn new_log_file(log: &Path) -> io::Result<File> {
    match std::fs::rename(log, log.with_extension("log.1")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::options().create_new(true).append(true).mode(0o600).open(log)
}

fn log_file(data_dir: &Path) -> PathBuf {
    data_dir.join("opencode.log")
}

fn free_port() -> Result<u16> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    free.map(|address| address.port())
        .map_err(|source| unavailable("There is no free port for OpenCode.").caused_by(source))
}

fn is_taken(port: u16) -> bool {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_err()
}

impl Drop for KillUnlessReady {
    fn drop(&mut self) {
        if let Some(pid) = self.0
            && let Err(error) = rustix::process::kill_process_group(pid, Signal::KILL)
        {
            tracing::debug!(%error, "an OpenCode that did not become ready was already gone");
        }
    }
}

impl Failure {
    fn into_error(self, config: &ManagedConfig) -> Error {
        match self {
            Self::NoProgram(source) => {
                // The name comes from the user's configuration. The directory of the program is not shown.
                let name = config.program.file_name().unwrap_or(config.program.as_os_str());
                let name = name.to_string_lossy().into_owned();
                // The caller of this function adds how to install the program, because it knows the tested version.
                unavailable(format!("OpenCode cannot be started: there is no executable program `{name}`."))
                    .detail(MISSING_PROGRAM, name)
                    .caused_by(source)
            }
            Self::NoWorkspace => {
                unavailable("OpenCode cannot be started: the workspace is not a directory. Choose a directory.")
            }
            Self::Io(source) => unavailable("OpenCode cannot be started.").caused_by(source),
            Self::Exited(status, output) => unavailable(format!(
                "OpenCode ended during its start ({status}). Its output is in opencode.log in the data directory."
            ))
            .caused_by(format!("its output: {output}")),
            Self::TimedOut(output) => unavailable(format!(
                "OpenCode did not listen within {} s. Its output is in opencode.log in the data directory.",
                config.start_timeout.as_secs()
            ))
            .caused_by(format!("its output: {output}")),
            Self::Unhealthy(source) => unavailable(format!("OpenCode started, but is not healthy: {source}.")).caused_by(source),
            Self::Record(error) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_port_is_read_from_a_complete_line_only() {
        let dir = tempfile::tempdir().unwrap();
        let log = log_file(dir.path());
        let check = async |text: &str, expected: Option<u16>| {
            std::fs::write(&log, text).unwrap();
            // A port is found at once. That there is no port is shown only by a timeout.
            let patience = if expected.is_some() { Duration::from_secs(30) } else { CHECK_EVERY * 4 };
            let port = tokio::time::timeout(patience, wait_for_port(&log)).await.ok();
            assert_eq!(port, expected, "{text:?}");
        };
        check("", None).await;
        check("opencode server listening on http://127.0.0.1:40", None).await;
        check("opencode server listening on http://127.0.0.1:4096\n", Some(4096)).await;
        check("warning\nopencode server listening on http://127.0.0.1:4096/\nmore", Some(4096)).await;
        check("opencode server listening on nothing\n", None).await;
    }

    #[test]
    fn the_gateways_own_variables_are_distinguished_from_opencodes() {
        for (name, expected) in [
            ("A2A_BEARER_TOKEN", true),
            ("A2A_STATIC_AUTH_CREDENTIALS", true),
            ("IACCODE_A2A_HTTP_TOKEN", true),
            ("iaccode_a2a_api_key", true),
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
            assert_eq!(is_gateway_variable(name), expected, "{name}");
        }
    }
}
