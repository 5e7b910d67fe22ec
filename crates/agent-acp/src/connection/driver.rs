//! Reads the agent's output and writes its input.

use std::io;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_engine::queue;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{Connection, Outgoing};
use crate::frame::{Line, LineReader};
use crate::process::LAST_WORDS;

/// Why a connection is over whose agent has ended. The process knows the details.
pub(crate) const OUTPUT_ENDED: &str = "The agent ended, or closed its output.";

/// How many bytes of the output are read after the agent's end. A pipe holds no more, so further output is that of another process.
const MAX_LAST_BYTES: u64 = 1024 * 1024;

/// Runs a connection. The caller spawns [`Self::run`].
#[derive(Debug)]
pub struct Driver<R, W> {
    connection: Connection,
    lines: LineReader<R>,
    input: W,
    outbox: queue::Receiver<Outgoing>,
}

impl<R, W> Driver<R, W>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    pub(super) fn new(
        connection: Connection,
        output: R,
        input: W,
        outbox: queue::Receiver<Outgoing>,
    ) -> Self {
        let lines = LineReader::new(output, connection.0.limits.line_bytes);
        Self { connection, lines, input, outbox }
    }

    /// Runs until the agent closes its output or exceeds a limit, and returns the reason. All waiting requests then fail, and the
    /// events of all turns end.
    pub async fn run(self) -> String {
        let Self { connection, lines, input, outbox } = self;
        let why = {
            let mut reading = pin!(read(&connection, lines));
            tokio::select! {
                why = &mut reading => why,
                written = write(&connection, input, outbox) => match written {
                    // The gateway closed the input on purpose: the agent ends by itself, or is killed.
                    Ok(()) => reading.await,
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => format!(
                        "The agent was ended, because it took no byte of its input for {} s while a message waited for it.",
                        connection.0.limits.write.as_secs()
                    ),
                    Err(error) => {
                        tracing::debug!(%error, "the agent's input cannot be written");
                        match timeout(LAST_WORDS, reading.as_mut()).await {
                            Ok(why) => why,
                            // The agent has ended, which closes both pipes, and its remaining output is still being read.
                            Err(_) if !connection.is_open() => reading.await,
                            Err(_) => "The agent closed its input.".to_owned(),
                        }
                    }
                },
            }
        };
        connection.close(why.clone());
        why
    }
}

async fn read<R: AsyncRead + Unpin>(connection: &Connection, mut lines: LineReader<R>) -> String {
    let mut exited = connection.0.exited.subscribe();
    let mut last = None;
    loop {
        let line = tokio::select! {
            biased;
            line = lines.next() => line,
            () = silence_after(&mut exited) => return OUTPUT_ENDED.to_owned(),
        };
        if *exited.borrow() && lines.bytes_read() > *last.get_or_insert(lines.bytes_read() + MAX_LAST_BYTES) {
            return OUTPUT_ENDED.to_owned();
        }
        let taken = match line {
            Ok(Some(Line::Whole(line))) => connection.take_line(&line).await,
            Ok(Some(Line::TooLong { head, bytes })) => connection.take_overlong(&head, bytes).await,
            Ok(None) => return OUTPUT_ENDED.to_owned(),
            Err(error) => {
                tracing::debug!(%error, "the agent's output cannot be read");
                return "The agent's output cannot be read.".to_owned();
            }
        };
        if let Err(why) = taken {
            return why;
        }
    }
}

/// Waits until the agent has ended and its output has then been silent for a while.
async fn silence_after(exited: &mut watch::Receiver<bool>) {
    // An error means that the connection was dropped.
    let _ = exited.wait_for(|has_exited| *has_exited).await;
    sleep(LAST_WORDS).await;
}

/// Writes the lines. Fails with `TimedOut` if the agent does not read.
async fn write<W: AsyncWrite + Unpin>(
    connection: &Connection,
    mut input: W,
    mut outbox: queue::Receiver<Outgoing>,
) -> io::Result<()> {
    let limit = connection.0.limits.write;
    while let Some(outgoing) = outbox.recv().await {
        let mut left = &outgoing.line[..];
        while !left.is_empty() {
            connection.0.was_held_back.store(false, Ordering::Relaxed);
            let written = tokio::select! {
                biased;
                written = input.write(left) => written?,
                () = refused_for(limit, connection) => return Err(io::ErrorKind::TimedOut.into()),
            };
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            left = &left[written..];
        }
        input.flush().await?;
    }
    input.shutdown().await
}

/// Waits until the agent has had this much time to read. Time in which the gateway itself did not read the agent's output does not
/// count.
async fn refused_for(limit: Duration, connection: &Connection) {
    loop {
        sleep(limit).await;
        if !connection.0.was_held_back.swap(false, Ordering::Relaxed) {
            return;
        }
    }
}
