//! Events as server-sent events.
//!
//! The body is pulled: while the socket is full nothing is read from the log, so a stalled reader costs one batch
//! and hyper's own buffer. The bytes of an event are shared by all readers; only the JSON-RPC envelope, which holds
//! the caller's id, and what is short are written for each.

mod budget;
mod frame;
mod taken;

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
use budget::Spent;
use taken::Taken;

pub(crate) use budget::Budget;
pub(crate) use frame::Envelope;

/// A batch is closed when it has grown to this. More waits for the next pull.
const BATCH_BYTES: usize = 8 * 1024;

/// What a stream that ends because the gateway stops tells the client: come back after this long.
const COME_BACK: &[u8] = b"retry: 1000\n\n";

const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// One event, ready to be framed.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) id: EventId,
    /// One line: a line break would end the `data:` field. The wire writes nothing else. `None`: nothing is written for
    /// this event, which is not for this reader.
    pub(crate) json: Option<Bytes>,
    /// What the event says about the state of the task. Most say nothing.
    pub(crate) standing: Option<Standing>,
}

/// How it stands with a task, as far as a stream has to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    Working,
    /// Waits for an answer of the caller.
    Asking,
    Over,
}

impl Standing {
    pub(crate) fn of(state: TaskState) -> Self {
        if state.is_terminal() {
            Self::Over
        } else if state.is_settled() {
            Self::Asking
        } else {
            Self::Working
        }
    }
}

/// Where events come from. Its futures can be given up: an event counts as given only when `event` returns it.
pub(crate) trait Source: Send + 'static {
    /// Waits for events, when all were given. False: there will be no more.
    fn wait(&mut self) -> impl Future<Output = Result<bool>> + Send;

    /// The next of those that are there, shown or not. Waits for no new ones.
    fn event(&mut self) -> impl Future<Output = Result<Option<Event>>> + Send;

    /// Whether every event that there is by now was given, also those that are not shown.
    fn is_at_head(&mut self) -> impl Future<Output = Result<bool>> + Send;

    /// Whether there is a reason for which nothing may come for long.
    fn is_excused(&self) -> bool;

    /// Since when the events that came last have been under way, told once. `None`: they are not new.
    fn under_way_since(&mut self) -> Option<std::time::Instant>;
}

/// When a stream closes by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Until {
    /// At the end of the task.
    Terminal,
    /// Also when the task asks something: whoever sent the message has to answer now.
    Settled,
}

/// Events that have been opened: the first ones are there, so nothing can fail before them.
#[derive(Debug)]
pub(crate) struct Opened<S> {
    pub(crate) task: TaskId,
    pub(crate) first: Vec<Event>,
    pub(crate) source: S,
    pub(crate) until: Until,
    /// The place that the stream takes as long as it is open.
    pub(crate) slot: Option<Slot>,
}

/// What all streams of a gateway have in common.
#[derive(Debug)]
pub(crate) struct StreamSettings {
    /// A comment is sent after this long without an event.
    pub(crate) keep_alive: Duration,
    pub(crate) budget: Budget,
    /// The gateway stops: streams end, and their clients come back to its successor.
    pub(crate) closing: CancellationToken,
    pub(crate) metrics: Arc<Metrics>,
}

/// The events that a source has now, as many as one write holds. Waits if there are none.
pub(crate) async fn first<S: Source>(source: &mut S) -> Result<Vec<Event>> {
    let (mut events, mut bytes) = (Vec::new(), 0);
    if !source.wait().await? {
        return Ok(events);
    }
    while bytes < BATCH_BYTES
        && let Some(event) = source.event().await?
    {
        bytes += event.json.as_ref().map_or(0, Bytes::len);
        events.push(event);
    }
    // They may have been there for long before somebody came to read them.
    source.under_way_since();
    Ok(events)
}

/// A stream that cannot begin.
pub(crate) fn refused(envelope: &Envelope, error: &Error) -> BoxStream<'static, Bytes> {
    stream::iter([envelope.failure(error)]).boxed()
}

/// The bytes of a stream. Refuses where not even the first event is within the budget.
pub(crate) fn frames<S: Source>(
    opened: Opened<S>,
    envelope: Envelope,
    settings: &Arc<StreamSettings>,
    span: Span,
) -> Result<BoxStream<'static, Bytes>> {
    let mut taken = Taken::new(settings.budget.bytes);
    let first_shown = opened.first.iter().find(|event| event.json.is_some()).map(|event| event.id);
    opened.first.into_iter().for_each(|event| taken.push(event, &envelope));
    if let (true, true, Some(first)) = (taken.is_over_budget, taken.shown.is_empty(), first_shown) {
        return Err(settings.spent_at_first(&opened.task, first));
    }
    let now = Instant::now();
    let closing = settings.closing.child_token();
    let streaming = Box::new(Streaming {
        source: opened.source,
        until: opened.until,
        taken,
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
    });
    let frames = stream::unfold(Some(streaming), |state| async {
        let mut streaming = state?;
        let (bytes, more) = streaming.next().await?;
        Some((bytes, more.then_some(streaming)))
    });
    Ok(frames.boxed())
}

struct Streaming<S> {
    source: S,
    until: Until,
    /// What is to be written. The end of a batch means nothing.
    taken: Taken,
    /// What the source failed with behind that.
    failed: Option<Error>,
    /// The rest of a write whose bytes are not in one piece.
    pieces: VecDeque<Bytes>,
    envelope: Envelope,
    settings: Arc<StreamSettings>,
    opened: Instant,
    /// Shown or not.
    last_event: Instant,
    /// Events that are not shown are silence to the client.
    last_write: Instant,
    /// The only timer: it is set when it has gone off, to the first moment at which something may be due. What happens until
    /// then only makes that later.
    alarm: Pin<Box<Sleep>>,
    /// Of this stream alone, so that it shares no lock with the others.
    closing: CancellationToken,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The request's: what is written to the log long after its answer began is still of its trace.
    span: Span,
    _slot: Option<Slot>,
}

impl<S: Source> Streaming<S> {
    /// The next bytes, and whether there may be more. `None` at the end.
    async fn next(&mut self) -> Option<(Bytes, bool)> {
        loop {
            // What was read is written, also when the gateway stops: the first event is all that a client knows its task
            // by. A client that does not take it is cut at the end of the grace.
            if let Some(bytes) = self.pieces.pop_front() {
                let is_last = self.taken.standing == Standing::Over && self.pieces.is_empty();
                if self.pieces.is_empty() {
                    self.pieces = VecDeque::new();
                }
                return Some((bytes, !is_last));
            }
            let now = Instant::now();
            if std::mem::take(&mut self.taken.has_news) {
                self.last_event = now;
            }
            if !self.taken.shown.is_empty() {
                self.taken.write(&self.envelope, &mut self.pieces);
                self.last_write = now;
                if let Some(since) = self.source.under_way_since() {
                    self.settings.metrics.event_delay.observe(since.elapsed());
                }
                continue;
            }
            match self.is_done().await {
                Ok(false) => {}
                Ok(true) => return None,
                Err(error) => return Some(self.fail(&error)),
            }
            if let Some(error) = self.failed.take() {
                return Some(self.fail(&error));
            }
            if let Some(spent) = self.spent(now) {
                let error = self.settings.spent(spent);
                return Some(self.fail(&error));
            }
            if self.closing.is_cancelled() {
                return Some((Bytes::from_static(COME_BACK), false));
            }
            // Without end, events that are not shown would keep everything else from its turn.
            tokio::task::coop::consume_budget().await;
            if self.last_write + self.settings.keep_alive <= now {
                self.last_write = now;
                return Some((Bytes::from_static(KEEP_ALIVE), true));
            }
            if self.alarm.is_elapsed() {
                let next = self.settings.alarm(self.opened, self.last_event, self.last_write);
                self.alarm.as_mut().reset(next);
            }
            tokio::select! {
                biased;
                filled = self.taken.fill(&mut self.source, &self.envelope) => match filled {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(error) => self.failed = Some(error),
                },
                () = self.closed.as_mut() => {}
                () = self.alarm.as_mut() => {
                    if let Some(error) = self.idle_for_too_long().await {
                        return Some(self.fail(&error));
                    }
                }
            }
        }
    }

    fn fail(&self, error: &Error) -> (Bytes, bool) {
        (self.span.in_scope(|| self.envelope.failure(error)), false)
    }

    fn spent(&self, now: Instant) -> Option<Spent> {
        if self.taken.is_over_budget {
            return Some(Spent::Bytes);
        }
        let most = self.settings.budget.duration?;
        (self.opened + most <= now).then_some(Spent::Duration)
    }

    /// Events that nobody took for a while are no silence of the task, also while they are still waited for, as from the store.
    async fn idle_for_too_long(&mut self) -> Option<Error> {
        let now = Instant::now();
        if self.taken.has_news || self.last_event + self.settings.budget.idle? > now {
            return None;
        }
        // An excuse ends with an event, and then the time begins anew.
        if !self.source.is_excused() {
            match self.source.is_at_head().await {
                Ok(true) => return Some(self.settings.spent(Spent::Idle)),
                Ok(false) => {}
                Err(error) => return Some(error),
            }
        }
        self.last_event = now;
        None
    }

    /// Whether the stream closes here, with everything written that was read.
    async fn is_done(&mut self) -> Result<bool> {
        match self.taken.standing {
            Standing::Over => Ok(true),
            // What was asked in the middle of a log may have been answered long ago.
            Standing::Asking if self.until == Until::Settled => self.source.is_at_head().await,
            Standing::Asking | Standing::Working => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests;
