//! Detects HTTP/2 clients that do not read.
//!
//! The socket of such a client need not be full: if the client grants no flow-control window, its bytes wait in hyper. Therefore
//! each piece of a response is counted until the client takes it. If a client takes no byte of a response for too long, that
//! request is reset. If it takes no byte on the whole connection, the connection is closed.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use longshore_engine::Tasks;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::CancellationToken;

use super::AnswerBody;
use super::socket::SlowClients;
use crate::reply;

/// How many checks are made within the write timeout, which is the time for which a client may take no byte.
const CHECKS: u32 = 4;

/// A connection is closed when this many checks in a row find that bytes wait for the client and that it has taken none since the
/// last check. One more than `CHECKS`, because the first check may come just after the bytes began to wait.
const CONNECTION_CHECKS: u32 = CHECKS + 1;

/// A request is reset when this many checks in a row find that its bytes wait for the client and that the client has taken none of
/// them since the last check. More than for a connection, so that a request is reset only if other requests of its connection make
/// progress.
const REQUEST_CHECKS: u32 = CONNECTION_CHECKS + 2;

tokio::task_local! {
    /// The byte counts of the request that the current tokio task serves.
    static FLOW: Arc<RequestFlow>;
}

/// Counts the bytes that wait for a client and the bytes that the client took. Relaxed ordering is enough, because no other memory
/// access depends on these counters.
#[derive(Default, Debug)]
pub(super) struct Flow {
    waiting: AtomicUsize,
    taken: AtomicUsize,
}

/// The byte counts of one request, and of its connection.
#[derive(Debug)]
pub(super) struct RequestFlow {
    own: Flow,
    connection: Arc<Flow>,
    /// The time at which the request is reset if bytes still wait for its client.
    deadline: OnceLock<Instant>,
}

/// The result of the last checks.
#[derive(Default, Debug)]
struct Checks {
    taken: usize,
    quiet: u32,
}

impl Flow {
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Returns when bytes have waited for the whole write timeout and the client took none of them.
    pub(super) async fn wait_until_stuck(&self, clients: &SlowClients) {
        let mut checks = Checks::default();
        loop {
            tokio::time::sleep(clients.timeout / CHECKS).await;
            if checks.count(self) >= CONNECTION_CHECKS {
                return;
            }
        }
    }
}

impl Checks {
    /// The number of checks in a row, including this one, that found waiting bytes and none taken.
    fn count(&mut self, flow: &Flow) -> u32 {
        let taken = flow.taken.load(Ordering::Relaxed);
        if !flow.is_waiting() || taken != self.taken {
            *self = Self { taken, quiet: 0 };
        } else {
            self.quiet += 1;
        }
        self.quiet
    }
}

impl RequestFlow {
    fn flows(&self) -> [&Flow; 2] {
        [&self.own, &*self.connection]
    }
}

/// The body of a response. Its request stays open until the body is dropped.
pub(super) struct FlowBody {
    body: AnswerBody,
    flow: Arc<RequestFlow>,
}

/// A piece of a response. Its bytes count as waiting until the client takes them.
#[derive(Debug)]
pub(super) struct Piece {
    bytes: Bytes,
    flow: Arc<RequestFlow>,
}

impl FlowBody {
    /// The body of the response to the request that the current task serves.
    pub(super) fn new(body: AnswerBody, clients: &SlowClients) -> Self {
        let flow = FLOW.with(Arc::clone);
        if let (reply::Body::Events(_) | reply::Body::Grpc(_), Some(deadline)) =
            (&body.body, clients.stream_deadline())
        {
            let _ = flow.deadline.set(deadline);
        }
        Self { body, flow }
    }
}

impl Body for FlowBody {
    type Data = Piece;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Piece>>>> {
        let Self { body, flow } = self.get_mut();
        let frame = ready!(Pin::new(body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|bytes| Piece::new(bytes, flow)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Piece {
    fn new(bytes: Bytes, flow: &Arc<RequestFlow>) -> Self {
        for flow in flow.flows() {
            flow.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        }
        Self { bytes, flow: Arc::clone(flow) }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        for flow in self.flow.flows() {
            flow.waiting.fetch_sub(count, Ordering::Relaxed);
            flow.taken.fetch_add(count, Ordering::Relaxed);
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        for flow in self.flow.flows() {
            flow.waiting.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        }
    }
}

/// Spawns the tasks that hyper needs for an HTTP/2 connection: one for each request. They end with the connection.
#[derive(Clone, Debug)]
pub(super) struct RequestExecutor {
    pub(super) tasks: Tasks,
    pub(super) cut: CancellationToken,
    pub(super) clients: Arc<SlowClients>,
    pub(super) connection: Arc<Flow>,
}

impl<F> Executor<F> for RequestExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        let flow = Arc::new(RequestFlow {
            own: Flow::default(),
            connection: Arc::clone(&self.connection),
            deadline: OnceLock::new(),
        });
        let serving = serve(future, flow, Arc::clone(&self.clients));
        self.tasks.spawn("http2 request", self.cut.clone().run_until_cancelled_owned(serving));
    }
}

/// Serves a request until it has ended, or until its client has taken no byte for too long. Dropping the request resets it.
async fn serve<F: Future>(future: F, flow: Arc<RequestFlow>, clients: Arc<SlowClients>) {
    let mut future = pin!(FLOW.scope(Arc::clone(&flow), future));
    let mut checks = Checks::default();
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        if future.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        // No timer is started while nothing waits, because the connection usually takes new bytes a moment later. A timer that
        // was started runs until it fires, because resetting it for each event would cost more than the event.
        if timer.is_none() && !flow.own.is_waiting() {
            return Poll::Pending;
        }
        let deadline = flow.deadline.get().copied();
        let next = || {
            let due = Instant::now() + clients.timeout / CHECKS;
            tokio::time::sleep_until(deadline.filter(|at| *at > Instant::now()).map_or(due, |at| at.min(due)))
        };
        loop {
            ready!(timer.get_or_insert_with(|| Box::pin(next())).as_mut().poll(cx));
            timer = None;
            if checks.count(&flow.own) >= REQUEST_CHECKS {
                clients.note_slow();
                return Poll::Ready(());
            }
            if !flow.own.is_waiting() {
                return Poll::Pending;
            }
            if deadline.is_some_and(|at| at <= Instant::now()) {
                clients.note_deadline();
                return Poll::Ready(());
            }
        }
    })
    .await;
}
