//! Serves one client on the standard input and output: JSON-RPC, one message per line in both directions.
//!
//! The client started this process, so it needs no credential. At the end of the input the gateway shuts down as after a signal:
//! streams end, other requests get a grace period, and tasks stay in the store and continue at the next start.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use longshore_meter::label::Binding;
use longshore_model::{Error, ErrorKind};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, BufWriter};
use tokio_util::sync::CancellationToken;

use crate::Edge;
use crate::auth::Caller;
use crate::dispatch::Dispatcher;
use crate::guard::Bound;
use crate::multiplexer::{MessageHead, Multiplexer};

/// The address under which the client is counted, because a pipe has no address and the client runs on this machine.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Serves until the end of the input, or until `shutdown` is canceled.
pub(crate) async fn serve(
    edge: Edge,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
    caller: Caller,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let Edge { engine, config, tasks } = edge;
    let (grace, max_bytes) = (config.shutdown_grace, config.max_body_bytes);
    let bound = Bound { address: None, has_tls: false };
    let dispatcher = Dispatcher::new(engine, config, bound, shutdown.clone(), tasks);
    let head = MessageHead::new(ADDRESS, Arc::new(caller), Binding::Stdio, None, None);
    let mut requests = Multiplexer::new(Arc::new(dispatcher), Arc::new(head));
    let mut lines = Lines::new(input, if max_bytes == 0 { usize::MAX } else { max_bytes });
    let mut output = BufWriter::new(output);
    let serving = async {
        loop {
            let is_closing = shutdown.is_cancelled();
            if is_closing && requests.is_idle() {
                return io::Result::Ok(());
            }
            tokio::select! {
                message = requests.next() => {
                    let Some(message) = message else { continue };
                    let written = async {
                        output.write_all(&message).await?;
                        output.write_all(b"\n").await?;
                        output.flush().await
                    };
                    // Requests proceed meanwhile, but no event is read.
                    tokio::select! {
                        biased;
                        written = written => written?,
                        never = requests.work() => match never {},
                    }
                }
                line = lines.next(), if !is_closing && requests.has_room() => match line? {
                    Some(Line::Whole(line)) => requests.receive(line),
                    Some(Line::TooLong) => requests.refuse(too_long(max_bytes)),
                    None => shutdown.cancel(),
                },
                () = shutdown.cancelled(), if !is_closing => {}
            }
        }
    };
    let late = async {
        shutdown.cancelled().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        served = serving => match served {
            // The client has closed its end of the output.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            served => served,
        },
        () = late => {
            tracing::info!("the client did not read its last responses within the shutdown grace period");
            Ok(())
        }
    }
}

fn too_long(max: usize) -> Error {
    let text =
        format!("A line is longer than {max} bytes (serve.max_request_body_bytes); send shorter ones.");
    Error::new(ErrorKind::BodyTooLarge, text).detail("maxBytes", max.to_string())
}

#[derive(PartialEq, Eq, Debug)]
enum Line {
    Whole(Bytes),
    /// The line was too long and was skipped.
    TooLong,
}

/// Reads lines of limited length, and skips empty lines.
struct Lines<R> {
    input: BufReader<R>,
    max: usize,
    /// The bytes of the incomplete line.
    begun: Vec<u8>,
    is_too_long: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(input: R, max: usize) -> Self {
        Self { input: BufReader::new(input), max, begun: Vec::new(), is_too_long: false }
    }

    /// The next line. `None`: the input has ended. Dropping the future loses no bytes.
    async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let read = self.input.fill_buf().await?;
            let (part, used, is_end) = match memchr::memchr(b'\n', read) {
                Some(at) => (&read[..at], at + 1, true),
                // A last line without a line break counts as a line.
                None => (read, read.len(), read.is_empty()),
            };
            let is_over = used == 0 && self.begun.is_empty() && !self.is_too_long;
            if self.begun.len() + part.len() > self.max {
                self.begun = Vec::new();
                self.is_too_long = true;
            }
            if !self.is_too_long {
                self.begun.extend_from_slice(part);
            }
            self.input.consume(used);
            if is_over {
                return Ok(None);
            }
            if !is_end {
                continue;
            }
            let line = std::mem::take(&mut self.begun);
            if std::mem::take(&mut self.is_too_long) {
                return Ok(Some(Line::TooLong));
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(Line::Whole(line.into())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_read_up_to_their_bound() {
        let cases: [(&str, &[&str]); 7] = [
            ("", &[]),
            ("\n \r\n\n", &[]),
            ("a\nb\n", &["a", "b"]),
            ("a\r\nlast", &["a\r", "last"]),
            ("12345678\n", &["12345678"]),
            ("123456789\nb\n", &["!", "b"]),
            ("a\n123456789012345678901234567890", &["a", "!"]),
        ];
        for (input, expected) in cases {
            let mut lines = Lines::new(input.as_bytes(), 8);
            let mut found = Vec::new();
            while let Some(line) = lines.next().await.unwrap() {
                found.push(match line {
                    Line::Whole(line) => String::from_utf8(line.into()).unwrap(),
                    Line::TooLong => "!".to_owned(),
                });
            }
            assert_eq!(found, expected, "{input:?}");
        }
    }
}
