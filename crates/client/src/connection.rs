//! One connection of a stream: its events, and how it ends.

use std::collections::VecDeque;

use reqwest::Response;

use crate::Result;
use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::sse::{Broken, Decoder, Frame};

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    response: Response,
    decoder: Decoder,
    frames: VecDeque<Frame>,
    pub(crate) begin: Begin,
    /// No event was read yet.
    pub(crate) is_first: bool,
    /// The stream was joined in the middle without an id, and no task came first: its events may be older than what is known.
    pub(crate) is_inexact: bool,
}

/// Where a connection begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begin {
    Message,
    /// At the present state of the task.
    Present,
    /// After the last event.
    Cursor,
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// As the agent wanted.
    Closed,
    Broken,
    /// Nothing came for the time of the timeout.
    Silent,
}

impl Connection {
    pub(crate) fn new(response: Response, client: &Client, begin: Begin) -> Self {
        let decoder = Decoder::new(client.settings().limits.event);
        Self { response, decoder, frames: VecDeque::new(), begin, is_first: true, is_inexact: false }
    }

    /// The next event, or how the stream ended.
    pub(crate) async fn next(&mut self, client: &Client) -> Result<Result<Frame, Ended>> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Ok(Ok(frame));
            }
            let chunk = match tokio::time::timeout(client.settings().timeout, self.response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => return Ok(Err(Ended::Closed)),
                Ok(Err(_)) => return Ok(Err(Ended::Broken)),
                Err(_) => return Ok(Err(Ended::Silent)),
            };
            match self.decoder.push(&chunk, &mut self.frames) {
                Ok(()) => {}
                Err(Broken::TooLong) => {
                    let limit = client.settings().limits.event;
                    let text = format!("An event of the agent's stream is longer than {limit} bytes.");
                    return Err(Error::new(ErrorKind::TooLarge, text));
                }
                Err(Broken::NotText) => {
                    return Err(Error::invalid_response("The agent's stream is not UTF-8 text."));
                }
            }
        }
    }
}
