//! Writes events as server-sent events, or as messages of a connection that carries several requests.
//!
//! The body is pulled: while the socket is full, nothing is read from the log, so a stalled reader costs one batch and hyper's own
//! buffer. All readers share the bytes of an event. Only short events, and the JSON-RPC envelope with the caller's id, are copied
//! for each reader.

mod batch;
mod budget;
mod frame;

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use longshore_meter::Metrics;
use longshore_model::{Error, EventId, Result, TaskId, TaskState};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::Span;

use crate::limits::Slot;
use crate::request_line::RequestLine;
use batch::EventBatch;
use budget::Exceeded;

pub(crate) use budget::Budget;
pub(crate) use frame::Envelope;

/// The size at which a batch is full. Further events wait for the next pull.
const BATCH_BYTES: usize = 8 * 1024;

/// One event that is ready to be framed.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// The id of the event. `None`: the frame is not an event of the log, and a client that resumes gets it again.
    pub(crate) id: Option<EventId>,
    /// The encoded event. JSON is on a single line, because a line break would end the `data:` field. `None`: the event is hidden
    /// from this reader, and nothing is written.
    pub(crate) body: Option<Bytes>,
    /// The new state of the task, if this is a status event.
    pub(crate) state: Option<TaskState>,
}

/// A source of events. Its futures can be dropped and called again, because an event is consumed only when `event` returns it.
pub(crate) trait Source: Send + 'static {
    /// Waits for further events after all earlier ones were consumed. False: there will be no more.
    fn wait(&mut self) -> impl Future<Output = Result<bool>> + Send;

    /// The next available event, hidden or not. Does not wait for new events.
    fn event(&mut self) -> impl Future<Output = Result<Option<Event>>> + Send;

    /// Whether every stored event was consumed, including hidden ones.
    fn is_at_head(&mut self) -> impl Future<Output = Result<bool>> + Send;

    /// Whether a long time without events is normal for the task.
    fn may_be_silent(&self) -> bool;

    /// When the gateway received the newest events. Each call returns the time of new events only once. `None`: they are not new.
    fn queued_since(&mut self) -> Option<std::time::Instant>;
}

/// The condition under which a stream closes by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// At the end of the task.
    Terminal,
    /// At the end of the task, or when the task has an open ask, because the sender of the message then has to answer.
    Settled,
}

/// An opened stream. Its first events are already loaded, so that nothing can fail before they are sent.
#[derive(Debug)]
pub(crate) struct OpenStream<S> {
    pub(crate) task: TaskId,
    pub(crate) first: Vec<Event>,
    pub(crate) source: S,
    pub(crate) until: Until,
    /// The slot that the stream holds while it is open.
    pub(crate) slot: Option<Slot>,
    /// The log line of the request, which is written when the stream ends.
    pub(crate) line: RequestLine,
}

/// The settings that all streams of a gateway share.
#[derive(Debug)]
pub(crate) struct StreamSettings {
    /// How long a stream may be without an event before a comment is sent.
    pub(crate) keep_alive: Duration,
    pub(crate) budget: Budget,
    /// Canceled when the gateway shuts down. Streams then end, and their clients reconnect to the next gateway process.
    pub(crate) closing: CancellationToken,
    pub(crate) metrics: Arc<Metrics>,
}

/// The available events of a source, as many as fit into one write. Waits if there are none.
pub(crate) async fn first<S: Source>(source: &mut S) -> Result<Vec<Event>> {
    let (mut events, mut bytes) = (Vec::new(), 0);
    if !source.wait().await? {
        return Ok(events);
    }
    while bytes < BATCH_BYTES
        && let Some(event) = source.event().await?
    {
        bytes += event.body.as_ref().map_or(0, Bytes::len);
        events.push(event);
    }
    // These events may have been stored long before this reader connected, so their delay is not measured.
    source.queued_since();
    Ok(events)
}

/// A stream that fails to start. The error is its only event.
pub(crate) fn refused(envelope: &Envelope, error: &Error) -> BoxStream<'static, Bytes> {
    stream::iter([envelope.failure(error)]).boxed()
}

/// The bytes of a stream. Fails if the first event alone exceeds the byte budget.
pub(crate) fn frames<S: Source>(
    opened: OpenStream<S>,
    envelope: Envelope,
    settings: &Arc<StreamSettings>,
    span: Span,
) -> Result<BoxStream<'static, Bytes>> {
    let streaming = EventStream::begin(opened, envelope, settings, span)?;
    let frames = stream::unfold(Left::Events(streaming), |left| async {
        let mut streaming = match left {
            Left::Events(streaming) => streaming,
            Left::Last(last) => return Some((last?, Left::Last(None))),
        };
        match streaming.next().await {
            Next::More(bytes) => Some((bytes, Left::Events(streaming))),
            Next::Last(bytes) => Some((bytes, Left::Last(streaming.envelope.complete()))),
            Next::End(ending) => {
                let last = match ending {
                    Ending::Complete => streaming.envelope.complete(),
                    Ending::Failed(error) => {
                        Some(streaming.span.in_scope(|| streaming.envelope.failure(&error)))
                    }
                    Ending::Closing => streaming.envelope.closing(),
                };
                Some((last?, Left::Last(None)))
            }
        }
    });
    Ok(frames.boxed())
}

/// The remaining part of a stream.
enum Left<S> {
    Events(Box<EventStream<S>>),
    /// Bytes after the last event.
    Last(Option<Bytes>),
}

/// The next part of a stream.
#[derive(Debug)]
pub(crate) enum Next {
    More(Bytes),
    /// The stream is complete after these bytes.
    Last(Bytes),
    End(Ending),
}

/// The reason for the end of a stream.
#[derive(Debug)]
pub(crate) enum Ending {
    Complete,
    Failed(Error),
    /// The gateway shuts down. The client reconnects to the next gateway process.
    Closing,
}

/// An open stream whose events are written in the format of a binding.
pub(crate) struct EventStream<S> {
    source: S,
    until: Until,
    /// The events to write next. Clients do not see the boundaries between batches.
    batch: EventBatch,
    /// The error of the source. It is reported after the batch.
    failed: Option<Error>,
    /// The remaining pieces of a write that consists of several.
    pieces: VecDeque<Bytes>,
    envelope: Envelope,
    settings: Arc<StreamSettings>,
    opened: Instant,
    /// The time of the last event, hidden or not.
    last_event: Instant,
    /// The time of the last written bytes. Hidden events write nothing, so a client may need a comment despite new events.
    last_write: Instant,
    /// The only timer. When it fires, it is set to the next time at which the stream may have to act. Events never reset it,
    /// because they can only postpone that time.
    alarm: Pin<Box<Sleep>>,
    /// A child token for this stream alone, so that it shares no lock with other streams.
    closing: CancellationToken,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The span of the request, so that log lines long after the start of the response still belong to its trace.
    pub(crate) span: Span,
    _slot: Option<Slot>,
    line: RequestLine,
}

impl<S> Drop for EventStream<S> {
    fn drop(&mut self) {
        if let Some(state) = self.batch.state {
            self.line.set_state(state);
        }
    }
}

impl<S: Source> EventStream<S> {
    /// Starts a stream. Fails if the first event alone exceeds the byte budget.
    pub(crate) fn begin(
        opened: OpenStream<S>,
        envelope: Envelope,
        settings: &Arc<StreamSettings>,
        span: Span,
    ) -> Result<Box<Self>> {
        let mut batch = EventBatch::new(settings.budget.bytes);
        let first_shown = opened.first.iter().find(|event| event.body.is_some()).and_then(|event| event.id);
        opened.first.into_iter().try_for_each(|event| batch.push(event, &envelope))?;
        if let (true, true, Some(first)) = (batch.is_over_budget, batch.shown.is_empty(), first_shown) {
            return Err(settings.exceeded_at_first(&opened.task, first));
        }
        let now = Instant::now();
        let closing = settings.closing.child_token();
        Ok(Box::new(Self {
            source: opened.source,
            until: opened.until,
            batch,
            failed: None,
            pieces: VecDeque::new(),
            envelope,
            opened: now,
            last_event: now,
            last_write: now,
            alarm: Box::pin(tokio::time::sleep_until(settings.alarm(now, now, now))),
            closed: Box::pin(closing.clone().cancelled_owned()),
            closing,
            settings: Arc::clone(settings),
            span,
            _slot: opened.slot,
            line: opened.line,
        }))
    }

    /// Waits for the next bytes, or for the end of the stream.
    pub(crate) async fn next(&mut self) -> Next {
        loop {
            // Events that were read are written even during the shutdown, because a client learns the id of its task from the first
            // event. The connection of a client that does not read is closed at the end of the grace period.
            if let Some(bytes) = self.pieces.pop_front() {
                let is_last = self.batch.has_ended() && self.pieces.is_empty();
                if self.pieces.is_empty() {
                    self.pieces = VecDeque::new();
                }
                return if is_last { Next::Last(bytes) } else { Next::More(bytes) };
            }
            let now = Instant::now();
            if std::mem::take(&mut self.batch.has_new_events) {
                self.last_event = now;
            }
            if !self.batch.shown.is_empty() {
                self.batch.write(&self.envelope, &mut self.pieces);
                self.last_write = now;
                if let Some(since) = self.source.queued_since() {
                    self.settings.metrics.event_delay.observe(since.elapsed());
                }
                continue;
            }
            match self.is_done().await {
                Ok(false) => {}
                Ok(true) => return Next::End(Ending::Complete),
                Err(error) => return Next::End(Ending::Failed(error)),
            }
            if let Some(error) = self.failed.take() {
                return Next::End(Ending::Failed(error));
            }
            if let Some(exceeded) = self.exceeded(now) {
                return Next::End(Ending::Failed(self.settings.exceeded(exceeded)));
            }
            if self.closing.is_cancelled() {
                return Next::End(Ending::Closing);
            }
            // Gives up control now and then, because an endless series of hidden events would starve all other tasks of the thread.
            tokio::task::coop::consume_budget().await;
            if self.last_write + self.settings.keep_alive <= now {
                self.last_write = now;
                if let Some(bytes) = self.envelope.keep_alive() {
                    return Next::More(bytes);
                }
            }
            if self.alarm.is_elapsed() {
                let next = self.settings.alarm(self.opened, self.last_event, self.last_write);
                self.alarm.as_mut().reset(next);
            }
            tokio::select! {
                biased;
                filled = self.batch.fill(&mut self.source, &self.envelope) => match filled {
                    Ok(true) => {}
                    Ok(false) => return Next::End(Ending::Complete),
                    Err(error) => self.failed = Some(error),
                },
                () = self.closed.as_mut() => {}
                () = self.alarm.as_mut() => {
                    if let Some(error) = self.check_idle().await {
                        return Next::End(Ending::Failed(error));
                    }
                }
            }
        }
    }

    fn exceeded(&self, now: Instant) -> Option<Exceeded> {
        if self.batch.is_over_budget {
            return Some(Exceeded::Bytes);
        }
        let most = self.settings.budget.duration?;
        (self.opened + most <= now).then_some(Exceeded::Duration)
    }

    /// Fails if the task was silent for too long. The stream itself is not silent while the client has not read its events, or
    /// while events are being loaded from the store.
    async fn check_idle(&mut self) -> Option<Error> {
        let now = Instant::now();
        if self.batch.has_new_events || self.last_event + self.settings.budget.idle? > now {
            return None;
        }
        // An expected silence ends with an event, which restarts the idle time anyway.
        if !self.source.may_be_silent() {
            match self.source.is_at_head().await {
                Ok(true) => return Some(self.settings.exceeded(Exceeded::Idle)),
                Ok(false) => {}
                Err(error) => return Some(error),
            }
        }
        self.last_event = now;
        None
    }

    /// Whether the stream closes now. Called when all events that were read have been written.
    async fn is_done(&mut self) -> Result<bool> {
        if self.batch.has_ended() {
            return Ok(true);
        }
        let is_settled = self.batch.state.is_some_and(TaskState::is_settled);
        // An ask in the middle of the log may have been answered long ago.
        Ok(is_settled && self.until == Until::Settled && self.source.is_at_head().await?)
    }
}

#[cfg(test)]
mod tests;
