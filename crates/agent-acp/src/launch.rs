//! Starts an agent: the process, its connection, and the handshake.

use std::io;

use longshore_engine::Tasks;
use longshore_model::{Error, ErrorKind, Result, redact};

use crate::connection::{CallError, Connection, Limits};
use crate::process::{Ending, Process, ProcessConfig};
use crate::schema::InitializeAnswer;

/// An agent that has answered the handshake.
#[derive(Debug)]
pub struct Running {
    pub connection: Connection,
    /// What the agent says about itself.
    pub about: InitializeAnswer,
    process: Process,
}

impl Running {
    /// Closes the agent's input and waits until the agent and its whole process group have ended.
    pub async fn end(self) -> io::Result<Ending> {
        self.connection.shut();
        Ok(self.process.end().await?.0)
    }

    /// The end of the agent's error output, for the gateway's own log.
    pub fn log(&self) -> String {
        self.process.log().text()
    }
}

/// Starts an agent. If the handshake fails, the process is ended, and the error holds what the agent printed instead.
pub async fn launch(config: &ProcessConfig, limits: Limits, tasks: &Tasks) -> Result<Running> {
    let name = std::path::Path::new(&config.program).file_name().unwrap_or(&config.program);
    let name = name.to_string_lossy();
    let (process, pipes) = Process::start(config).map_err(|source| not_started(&name, source))?;
    let (connection, driver) = Connection::new(pipes.output, pipes.input, limits);
    tasks.spawn("acp connection", driver.run());
    tasks.spawn("acp error output", process.log().clone().fill(pipes.errors));
    let why = match connection.initialize().await {
        Ok(about) => return Ok(Running { connection, about, process }),
        Err(why) => why,
    };
    connection.shut();
    let log = process.log().clone();
    let ended = process.end().await;
    let status = ended.map_or_else(|error| error.to_string(), |(_, status)| status.to_string());
    tracing::warn!(agent = %name, status, log = log.text(), "an agent did not start");
    Err(failed(&name, why, &status, &connection.noise()))
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
    if error.is_permanent() { kept.permanent() } else { kept }
}
