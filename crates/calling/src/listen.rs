//! The gateway's end of the socket.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_meter::Metrics;
use longshore_peers::Tools;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::identify::Identify;
use crate::lines::Lines;
use crate::{Secret, Tickets, Token, socket};

/// The most bridges that are connected at once. A further one waits until another ends. OpenCode has one bridge for each directory,
/// another agent one for each session.
const MAX_CONNECTIONS: usize = 1_000;

/// How long a connection may take to send its token.
const GREETING_PATIENCE: Duration = Duration::from_secs(10);

const LONGEST_GREETING: usize = 4_096;

/// The pause after an `accept` that failed. The process may have no free file descriptor.
const PAUSE: Duration = Duration::from_millis(500);

/// The bound socket. Bridges that connect wait until [`Self::serve`] runs.
#[derive(Debug)]
pub struct Listener(UnixListener);

/// The state that every connection needs.
#[derive(Clone, Debug)]
pub struct Connections {
    pub secret: Secret,
    pub tickets: Arc<Tickets>,
    pub tools: Arc<dyn Tools>,
    pub metrics: Arc<Metrics>,
    pub tasks: Tasks,
}

impl Listener {
    /// Binds the socket. Only the gateway that has locked the data directory may call this.
    pub fn bind(data_dir: &Path) -> io::Result<Self> {
        socket::bind(data_dir).map(Self)
    }

    /// Serves bridges until the gateway stops.
    pub async fn serve(self, connections: Connections) {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let stopping = connections.tasks.stopping().clone();
        let accepting = async {
            loop {
                let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
                match self.0.accept().await {
                    Ok((stream, _)) => {
                        let serving = connections.clone().serve(stream);
                        connections.tasks.spawn("mcp connection", async {
                            serving.await;
                            drop(slot);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection of an MCP bridge could not be accepted");
                        sleep(PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            () = stopping.cancelled() => {}
        }
    }
}

impl Connections {
    async fn serve(self, stream: UnixStream) {
        let (reader, mut writer) = stream.into_split();
        let greeted = timeout(GREETING_PATIENCE, self.greet(reader, &mut writer)).await;
        let (reader, token) = match greeted {
            Ok(Ok(greeted)) => greeted,
            Ok(Err(error)) => return tracing::warn!(%error, "an MCP bridge was refused"),
            Err(_) => return tracing::warn!("an MCP bridge did not say who it is"),
        };
        let callers = Identify { token, secret: self.secret, tickets: self.tickets, metrics: self.metrics };
        let stop = self.tasks.stopping().clone();
        if let Err(error) = longshore_mcp::serve(reader, writer, self.tools, Arc::new(callers), stop).await {
            tracing::debug!(%error, "the connection of an MCP bridge failed");
        }
    }

    /// Reads the token from the first line, and answers whether the token is valid.
    async fn greet<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &self,
        reader: R,
        writer: &mut W,
    ) -> io::Result<(R, Token)> {
        let mut lines = Lines::new(reader, LONGEST_GREETING);
        let line = lines.next().await?.unwrap_or_default();
        let greeting: Value = serde_json::from_str(&line).unwrap_or_default();
        let token = greeting["token"].as_str().and_then(|text| Token::read(text, &self.secret));
        let answer = match token {
            Some(_) => json!({"ok": true}),
            None => json!({"error": "the token is not one of this gateway"}),
        };
        writer.write_all(format!("{answer}\n").as_bytes()).await?;
        let token = token.ok_or_else(|| io::Error::other("its token is not one of this gateway"))?;
        Ok((lines.into_reader()?, token))
    }
}
