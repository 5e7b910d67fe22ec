//! One connection of a stream: reads its events, and reports how it ends.

use std::collections::VecDeque;

use reqwest::Response;
use serde_json::Value;

use crate::card::Binding;
use crate::client::{Client, result_of_rpc};
use crate::error::{Error, ErrorKind};
use crate::grpc;
use crate::sse::{Broken, Decoder, Frame};
use crate::value::Event;
use crate::{Result, read, refusal};

/// An open connection of a stream.
#[derive(Debug)]
pub(crate) struct Connection {
    source: Source,
    pub(crate) begin: Begin,
    /// Whether no event has been read yet.
    pub(crate) is_first: bool,
    /// Whether events may be older than the known state: the stream was joined without an event id, and did not begin with the
    /// task.
    pub(crate) is_inexact: bool,
}

/// An open stream in the form of its binding.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each stream, and it is moved once")]
pub(crate) enum Source {
    Sse { response: Response, decoder: Decoder, frames: VecDeque<Frame> },
    Grpc(grpc::Stream),
}

/// The point at which a connection begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Begin {
    Message,
    /// The current state of the task.
    Present,
    /// After the event with the id that the client sent.
    Cursor,
}

/// How a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// The agent closed the stream.
    Closed,
    Broken,
    /// No bytes came within the timeout.
    Silent,
}

/// An event, or the error that the agent sent instead of one.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) event: Result<Event>,
    /// The event's id, with which a client can resume after this event.
    pub(crate) id: Option<String>,
}

impl Source {
    pub(crate) fn of_sse(response: Response, limit: usize) -> Self {
        Self::Sse { response, decoder: Decoder::new(limit), frames: VecDeque::new() }
    }
}

impl Connection {
    pub(crate) fn new(source: Source, begin: Begin) -> Self {
        Self { source, begin, is_first: true, is_inexact: false }
    }

    /// The next event, or how the connection ended.
    pub(crate) async fn next(&mut self, client: &Client) -> Result<Result<Received, Ended>> {
        let timeout = client.settings().timeout;
        match &mut self.source {
            Source::Grpc(stream) => Ok(match tokio::time::timeout(timeout, stream.next()).await {
                Ok(Some(Ok(json))) => {
                    let id = grpc::cursor(&json);
                    Ok(Received { event: read::event(&json, client.dialect()), id })
                }
                Ok(Some(Err(error))) if error.kind() == ErrorKind::Lost => Err(Ended::Broken),
                Ok(Some(Err(error))) => Ok(Received { event: Err(error), id: None }),
                Ok(None) => Err(Ended::Closed),
                Err(_) => Err(Ended::Silent),
            }),
            Source::Sse { response, decoder, frames } => loop {
                if let Some(frame) = frames.pop_front() {
                    return Ok(Ok(Received { event: event(&frame, client), id: frame.id }));
                }
                let chunk = match tokio::time::timeout(timeout, response.chunk()).await {
                    Ok(Ok(Some(chunk))) => chunk,
                    Ok(Ok(None)) => return Ok(Err(Ended::Closed)),
                    Ok(Err(_)) => return Ok(Err(Ended::Broken)),
                    Err(_) => return Ok(Err(Ended::Silent)),
                };
                match decoder.push(&chunk, frames) {
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
            },
        }
    }
}

fn event(frame: &Frame, client: &Client) -> Result<Event> {
    let json: Value = serde_json::from_str(&frame.data)
        .map_err(|_| Error::invalid_response("An event of the agent's stream is no JSON."))?;
    let json = match client.interface().binding {
        Binding::JsonRpc => result_of_rpc(json)?,
        Binding::Rest | Binding::Grpc => match refusal::of_body(200, &json) {
            Some(error) if json["error"].is_object() || json["code"].is_i64() => return Err(error),
            _ => json,
        },
    };
    read::event(&json, client.dialect())
}
