//! The trace position of the request for which the agent is called.
//!
//! A call can be deep below the request that it is made for. The trace has nothing to do with what the call does, so it
//! is not among its arguments. A background task (a turn, an actor) is given the trace explicitly, and sets it again.

use longshore_model::TraceContext;
use tokio::task_local;

task_local! {
    static TRACE: Option<TraceContext>;
}

/// Runs `work` for a request with this position in its caller's trace. `None`: `work` belongs to no request.
pub fn with_caller_trace<F: Future>(trace: Option<TraceContext>, work: F) -> impl Future<Output = F::Output> {
    TRACE.scope(trace, work)
}

/// The trace position of the request for which the current code runs.
pub fn caller_trace() -> Option<TraceContext> {
    TRACE.try_with(Clone::clone).ok().flatten()
}
