//! The request for which the agent is called: its position in its caller's trace, and its caller.
//!
//! A call can be deep below the request that it is made for. Neither has anything to do with what the call does, so they
//! are not among its arguments. A background task (a turn, an actor) is given them explicitly, and sets them again.

use longshore_model::{Principal, TraceContext};
use tokio::task_local;

task_local! {
    static TRACE: Option<TraceContext>;
    static CALLER: Principal;
}

/// Runs `work` for this caller. The agent counts what it uses for it.
pub fn with_caller<F: Future>(caller: Principal, work: F) -> impl Future<Output = F::Output> {
    CALLER.scope(caller, work)
}

/// The caller for which the current code runs. `None`: it runs for the gateway itself.
pub fn caller() -> Option<Principal> {
    CALLER.try_with(Clone::clone).ok()
}

/// Runs `work` for a request with this position in its caller's trace. `None`: `work` belongs to no request.
pub fn with_caller_trace<F: Future>(trace: Option<TraceContext>, work: F) -> impl Future<Output = F::Output> {
    TRACE.scope(trace, work)
}

/// The trace position of the request for which the current code runs.
pub fn caller_trace() -> Option<TraceContext> {
    TRACE.try_with(Clone::clone).ok().flatten()
}
