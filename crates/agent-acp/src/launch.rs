//! Starts an agent: the process, its connection, and the handshake.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_meter::Metrics;
use longshore_model::{Error, ErrorKind, Result, redact};
use longshore_processes::MARKER;
use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

use crate::client::ClientConfig;
use crate::connection::{CallError, Connection, Limits};
use crate::process::{Ending, Group, Process, ProcessConfig};
use crate::schema::InitializeAnswer;

/// The reason why a running agent can no longer be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failed {
    /// The connection is over. This also happens soon after the process has ended.
    Closed,
    /// The agent uses more memory than its limit, which is this number of bytes.
    OverMemory(u64),
}

/// An agent that has responded to the handshake.
#[derive(Debug)]
pub struct Running {
    pub connection: Connection,
    /// The agent's description of itself.
    pub about: InitializeAnswer,
    /// The task of the connection's driver. Its result is the reason for the end of the connection.
    driver: JoinHandle<String>,
    /// The agent's process. `None`: a test plays the agent.
    process: Option<Process>,
}

impl Running {
    /// Waits until the connection is over or the agent uses too much memory. Must not be called again after it has returned. Cancel
    /// safe.
    pub async fn failed(&mut self) -> Failed {
        let process = self.process.as_ref();
        let over_memory = async {
            match process {
                Some(process) => process.over_memory().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // An error means that the driver panicked or was stopped. Then the connection is over too.
            _ = &mut self.driver => Failed::Closed,
            most = over_memory => Failed::OverMemory(most),
        }
    }

    /// Ends an agent that may not continue, without waiting for it to end by itself.
    pub async fn cut_off(self) -> io::Result<Ending> {
        self.connection.shut();
        match self.process {
            Some(process) => Ok(process.end_within(Duration::ZERO).await?.0),
            None => Ok(Ending::ByItself),
        }
    }

    /// Closes the agent's input and waits until the agent and its whole process group have ended.
    pub async fn end(self) -> io::Result<Ending> {
        self.connection.shut();
        match self.process {
            Some(process) => Ok(process.end().await?.0),
            None => Ok(Ending::ByItself),
        }
    }

    /// Ends an agent whose connection is over, and returns a sentence about how the agent ended.
    pub async fn bury(self) -> String {
        let Some(process) = self.process else { return "The agent ended.".to_owned() };
        match process.end_within(LAST_MOMENTS).await {
            Ok((Ending::ByItself, status)) => format!("The agent ended ({status})."),
            Ok(_) => "The agent closed its output.".to_owned(),
            Err(error) => {
                tracing::warn!(%error, "it is not known how an agent ended");
                "The agent ended.".to_owned()
            }
        }
    }

    /// The end of the agent's error output, for the gateway's own log.
    pub fn log(&self) -> String {
        self.process.as_ref().map(|process| process.log().text()).unwrap_or_default()
    }
}

/// How long an agent whose connection is over may take to end by itself.
const LAST_MOMENTS: Duration = Duration::from_secs(1);

/// Starts an agent. If the handshake fails, the process is ended, and the error contains the text that the agent printed instead.
pub async fn launch(config: &ProcessConfig, limits: Limits, tasks: &Tasks) -> Result<Running> {
    launch_offering(config, limits, ClientConfig::default(), Arc::default(), tasks).await
}

/// Like [`launch`], for an agent that may request files and commands from the gateway.
pub async fn launch_offering(
    config: &ProcessConfig,
    limits: Limits,
    mut client: ClientConfig,
    metrics: Arc<Metrics>,
    tasks: &Tasks,
) -> Result<Running> {
    let name = std::path::Path::new(&config.program).file_name().unwrap_or(&config.program);
    let name = name.to_string_lossy();
    let (process, pipes) = Process::start(config).map_err(|source| not_started(&name, source))?;
    let (log, group) = (process.log().clone(), process.group());
    tasks.spawn("acp error output", log.clone().fill(pipes.errors, group.clone()));
    let (connection, driver) = connect(pipes.output, pipes.input, limits, metrics, tasks);
    // With the marker, the commands that the gateway runs for the agent end with the agent, like the agent's own tools.
    client.environment.insert(MARKER.into(), process.marker().into());
    connection.offer(client, tasks);
    tasks.spawn("acp process", end_with_agent(group, connection.clone()));
    let why = match connection.initialize().await {
        Ok(about) => {
            return Ok(Running { connection, about, driver, process: Some(process) });
        }
        Err(why) => why,
    };
    connection.shut();
    let ended = process.end().await;
    let status = ended.map_or_else(|error| error.to_string(), |(_, status)| status.to_string());
    tracing::warn!(agent = %name, status, log = log.text(), "an agent did not start");
    Err(failed(&name, why, &status, &connection.noise()))
}

/// Like [`launch`], for an agent that a test plays.
#[cfg(test)]
pub(crate) async fn launch_played(
    pipe: tokio::io::DuplexStream,
    limits: Limits,
    metrics: Arc<Metrics>,
    tasks: &Tasks,
) -> Result<Running> {
    let (output, input) = tokio::io::split(pipe);
    let (connection, driver) = connect(output, input, limits, metrics, tasks);
    let about = connection.initialize().await.map_err(|why| failed("played", why, "played", ""))?;
    Ok(Running { connection, about, driver, process: None })
}

/// Ends the connection when the agent itself has ended. Otherwise a process that the agent started could hold its output and keep
/// the connection open for ever.
async fn end_with_agent(group: Group, connection: Connection) {
    group.exited().await;
    group.signal(Signal::KILL);
    connection.note_exit();
}

fn connect<R, W>(
    output: R,
    input: W,
    limits: Limits,
    metrics: Arc<Metrics>,
    tasks: &Tasks,
) -> (Connection, JoinHandle<String>)
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (connection, driver) = Connection::new(output, input, limits, metrics);
    (connection, tasks.spawn("acp connection", driver.run()))
}

fn not_started(name: &str, source: io::Error) -> Error {
    let text = match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => format!(
            "The agent cannot be started: there is no executable program `{name}`, or its directory does not exist. Install it, \
             or correct its command line."
        ),
        _ => format!("The agent `{name}` cannot be started."),
    };
    Error::new(ErrorKind::AgentUnavailable, text).caused_by(source)
}

fn failed(name: &str, why: CallError, status: &str, noise: &str) -> Error {
    let is_over = matches!(why, CallError::Closed(_));
    let error = why.into_error("start");
    let mut text = if is_over {
        format!("The agent `{name}` ended before it answered ({status}).")
    } else {
        error.message().to_owned()
    };
    if let Some(line) = noise.lines().find(|line| !line.trim().is_empty()) {
        text = format!("{text} It printed: {}", redact::public(line));
    }
    let kept = Error::new(error.kind(), text);
    let kept = if error.needs_credentials() { kept.mark_needs_credentials() } else { kept };
    if error.is_permanent() { kept.permanent() } else { kept }
}
