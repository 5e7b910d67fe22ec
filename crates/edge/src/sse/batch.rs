//! Events that were taken from a source and are waiting to be written.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use longshore_model::{EventId, Result, TaskState};

use super::{BATCH_BYTES, Envelope, Event, Source};
use crate::grpc;

/// The size from which an encoded event is written as a piece of its own, from the bytes that all its readers share. Copying a
/// shorter event is cheaper than handling one more piece.
const SHARED_BYTES: usize = 2 * 1024;

/// One batch of events.
#[derive(Debug)]
pub(super) struct EventBatch {
    pub(super) shown: Vec<(Option<EventId>, Bytes)>,
    /// The total length of the events with their frames.
    bytes: usize,
    /// The number of bytes that the stream may still send. `None`: no limit.
    left: Option<u64>,
    /// Whether the next event would exceed the byte budget. It was not taken, so the client gets it when it reconnects.
    pub(super) is_over_budget: bool,
    /// The state of the task after the newest status event. `None`: there was no status event.
    pub(super) state: Option<TaskState>,
    /// Whether events arrived, hidden or not.
    pub(super) has_new_events: bool,
}

impl EventBatch {
    pub(super) fn new(left: Option<u64>) -> Self {
        Self { shown: Vec::new(), bytes: 0, left, is_over_budget: false, state: None, has_new_events: false }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.is_some_and(TaskState::is_terminal)
    }

    /// Takes the available events, as many as fit into one write. Waits only for the first. False: the source has no more events.
    pub(super) async fn fill(&mut self, source: &mut impl Source, envelope: &Envelope) -> Result<bool> {
        while !self.is_over_budget && self.bytes < BATCH_BYTES {
            match source.event().await? {
                Some(event) => self.push(event, envelope)?,
                None if self.has_new_events => return Ok(true),
                None => {
                    if !source.wait().await? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    pub(super) fn push(&mut self, event: Event, envelope: &Envelope) -> Result<()> {
        if self.is_over_budget {
            return Ok(());
        }
        if let Some(body) = event.body {
            grpc::check_written(event.id, &body)?;
            let length = envelope.overhead(event.id) + body.len();
            // A frame without an id does not count. Otherwise a client whose budget covers only this frame would make no progress
            // when it reconnects.
            if let (Some(left), Some(_)) = (&mut self.left, event.id) {
                let Some(rest) = left.checked_sub(length as u64) else {
                    self.is_over_budget = true;
                    return Ok(());
                };
                *left = rest;
            }
            self.bytes += length;
            self.shown.push((event.id, body));
        }
        self.state = event.state.or(self.state);
        self.has_new_events = true;
        Ok(())
    }

    /// Frames all events. Short events share one piece, unless each event is a message.
    pub(super) fn write(&mut self, envelope: &Envelope, pieces: &mut VecDeque<Bytes>) {
        let shared: usize = self.shown.iter().map(|(_, body)| body.len()).filter(|n| is_shared(*n)).sum();
        let mut buffer = BytesMut::with_capacity(self.bytes - shared);
        // The vector's memory is freed too, because a stream usually has nothing to write.
        for (id, body) in std::mem::take(&mut self.shown) {
            envelope.begin(&mut buffer, id, &body);
            if envelope.is_message() {
                buffer.put_slice(&body);
                envelope.end(&mut buffer, id);
                pieces.push_back(buffer.split().freeze());
                continue;
            }
            if is_shared(body.len()) {
                pieces.push_back(buffer.split().freeze());
                pieces.push_back(body);
            } else {
                buffer.put_slice(&body);
            }
            envelope.end(&mut buffer, id);
        }
        if !buffer.is_empty() {
            pieces.push_back(buffer.freeze());
        }
        self.bytes = 0;
    }
}

fn is_shared(length: usize) -> bool {
    length >= SHARED_BYTES
}
