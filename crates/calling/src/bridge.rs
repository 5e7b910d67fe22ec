//! `longshore mcp` as an MCP server of a coding agent: passes messages between the agent and the gateway.
//!
//! The bridge lives as long as the agent, but the gateway may restart meanwhile. Then the bridge connects again, repeats the MCP
//! handshake in the name of the agent, and sends again every request that has no answer yet. A repeated tool call keeps its key, by
//! which the gateway recognizes it.

mod waiting;

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use self::waiting::{Received, Waiting, id_of};
use crate::lines::Lines;
use crate::socket::connect;

/// The longest message of the agent, in bytes. A longer one ends the bridge, because the gateway would not read it.
const LONGEST_MESSAGE: usize = 4 * 1024 * 1024;

/// The longest message of the gateway, in bytes. A request with a longer answer gets an error and is not repeated, because the
/// gateway would send the same answer again.
const LONGEST_ANSWER: usize = 16 * 1024 * 1024;

/// The first and the longest pause before the bridge connects again. Each pause is twice the one before. After the agent has got a
/// message over a connection, the pauses start again with the first.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long the gateway may take to accept the bridge. It accepts bridges only after it has resumed its tasks.
const GREETING_PATIENCE: Duration = Duration::from_mins(2);

/// How long one write to the gateway may take. Then the connection counts as lost.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// How often the bridge reports to the agent that the gateway is away. OpenCode cancels a call that makes no progress for 60 s.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// How long the gateway may be away. Then the bridge answers the waiting calls with an error.
const GIVE_UP_AFTER: Duration = Duration::from_mins(10);

/// Why the bridge ended before the agent did.
#[derive(Debug)]
pub enum BridgeError {
    /// The gateway does not accept the token. The text is its reason.
    Refused(String),
    Io(io::Error),
}

/// Runs the bridge until the input from the agent ends.
pub async fn bridge(
    socket: &Path,
    token: &str,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
) -> Result<(), BridgeError> {
    let mut agent = Lines::new(input, LONGEST_MESSAGE);
    let mut bridge = Bridge {
        output,
        waiting: Waiting::default(),
        link: Link::down(socket, token, Duration::ZERO),
        pause: FIRST_PAUSE,
    };
    let mut reports = interval(REPORT_EVERY);
    reports.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let lost = tokio::select! {
            line = agent.next() => match line? {
                Some(line) => bridge.take_from_agent(&line).await?,
                None => return Ok(()),
            },
            event = bridge.link.next() => match event {
                Event::Connected(connection) => {
                    bridge.link = Link::Up(connection);
                    let resent = bridge.waiting.resend();
                    bridge.send_all(&resent).await
                }
                Event::Refused(why) => return Err(BridgeError::Refused(why)),
                Event::Message(line) => {
                    bridge.take_from_gateway(&line).await?;
                    false
                }
                Event::TooLong(id) => {
                    bridge.answer_too_long(id.as_ref()).await?;
                    true
                }
                Event::Lost => true,
            },
            _ = reports.tick() => {
                bridge.report().await?;
                false
            }
        };
        if lost {
            bridge.link = Link::down(socket, token, bridge.pause);
            bridge.pause = (bridge.pause * 2).min(LONGEST_PAUSE);
        }
    }
}

struct Bridge<W> {
    output: W,
    waiting: Waiting,
    link: Link,
    /// The pause before the bridge connects again after this connection is lost.
    pause: Duration,
}

/// The connection with the gateway.
enum Link {
    Down { connecting: Pin<Box<dyn Future<Output = Result<Connection, String>> + Send>>, since: Instant },
    Up(Connection),
}

struct Connection {
    lines: Lines<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

enum Event {
    Connected(Connection),
    Refused(String),
    Message(String),
    /// The gateway sends a message that is too long. The value is the message's id, if its beginning holds one.
    TooLong(Option<Value>),
    Lost,
}

impl Link {
    fn down(socket: &Path, token: &str, pause: Duration) -> Self {
        let (socket, token) = (socket.to_owned(), token.to_owned());
        let connecting = Box::pin(async move {
            sleep(pause).await;
            connect_again(&socket, &token).await
        });
        Self::Down { connecting, since: Instant::now() }
    }

    async fn next(&mut self) -> Event {
        match self {
            Self::Down { connecting, .. } => match connecting.as_mut().await {
                Ok(connection) => Event::Connected(connection),
                Err(why) => Event::Refused(why),
            },
            Self::Up(connection) => match connection.lines.next().await {
                Ok(Some(line)) => Event::Message(line),
                Err(_) if connection.lines.is_too_long() => {
                    Event::TooLong(id_of(connection.lines.beginning()))
                }
                Ok(None) | Err(_) => Event::Lost,
            },
        }
    }
}

impl<W: AsyncWrite + Unpin> Bridge<W> {
    /// Handles a message of the agent. Returns whether the connection to the gateway was lost.
    async fn take_from_agent(&mut self, line: &str) -> io::Result<bool> {
        match self.waiting.take_from_agent(line) {
            Received::Nothing => Ok(false),
            Received::Answer(answer) => self.answer(&answer).await.map(|()| false),
            Received::Forward(message) => Ok(self.send_all(&[message]).await),
        }
    }

    async fn take_from_gateway(&mut self, line: &str) -> io::Result<()> {
        if !self.waiting.take_from_gateway(line) {
            return Ok(());
        }
        self.pause = FIRST_PAUSE;
        self.write(line).await
    }

    async fn answer_too_long(&mut self, id: Option<&Value>) -> io::Result<()> {
        match id.and_then(|id| self.waiting.too_long(id)) {
            Some(answer) => self.answer(&answer).await,
            None => Ok(()),
        }
    }

    /// Sends messages to the gateway. Returns whether the connection was lost. While there is none, requests wait in `waiting`.
    async fn send_all(&mut self, messages: &[Value]) -> bool {
        let Link::Up(connection) = &mut self.link else { return false };
        for message in messages {
            let line = format!("{message}\n");
            let sent = timeout(WRITE_PATIENCE, connection.writer.write_all(line.as_bytes())).await;
            if !matches!(sent, Ok(Ok(()))) {
                return true;
            }
        }
        false
    }

    /// While the gateway is away, sends progress for the waiting calls, or gives the calls up.
    async fn report(&mut self) -> io::Result<()> {
        let Link::Down { since, .. } = &self.link else { return Ok(()) };
        let away = since.elapsed();
        let messages =
            if away < GIVE_UP_AFTER { self.waiting.progress(away) } else { self.waiting.give_up() };
        for message in messages {
            self.answer(&message).await?;
        }
        Ok(())
    }

    async fn answer(&mut self, message: &Value) -> io::Result<()> {
        self.write(&message.to_string()).await
    }

    async fn write(&mut self, line: &str) -> io::Result<()> {
        self.output.write_all(line.as_bytes()).await?;
        self.output.write_all(b"\n").await?;
        self.output.flush().await
    }
}

/// Tries to connect until the gateway accepts the bridge. Fails if the gateway refuses the token.
async fn connect_again(socket: &Path, token: &str) -> Result<Connection, String> {
    let mut pause = FIRST_PAUSE;
    loop {
        if let Ok(Ok(connected)) = timeout(GREETING_PATIENCE, greet(socket, token)).await {
            return connected;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn greet(socket: &Path, token: &str) -> io::Result<Result<Connection, String>> {
    let (reader, mut writer) = connect(socket).await?.into_split();
    let mut lines = Lines::new(reader, LONGEST_ANSWER);
    writer.write_all(format!("{}\n", json!({"token": token})).as_bytes()).await?;
    let Some(answer) = lines.next().await? else { return Err(io::ErrorKind::UnexpectedEof.into()) };
    let answer: Value = serde_json::from_str(&answer)?;
    Ok(match answer["error"].as_str() {
        Some(error) => Err(error.to_owned()),
        None => Ok(Connection { lines, writer }),
    })
}

impl From<io::Error> for BridgeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl std::fmt::Display for BridgeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "the gateway refused the bridge: {why}"),
            Self::Io(error) => write!(f, "the connection with the agent failed: {error}"),
        }
    }
}

impl std::error::Error for BridgeError {}

#[cfg(test)]
mod tests;
