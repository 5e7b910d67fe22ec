//! The context of the request for which the agent is called: its trace context and its caller.
//!
//! An agent call can be many functions below the request. Trace and caller do not affect what the call does, so they are task
//! locals and not arguments. A background task (a turn, an actor) gets both explicitly and sets them again.

use longshore_model::{Principal, TraceContext};
use tokio::task_local;

task_local! {
    static TRACE: Option<TraceContext>;
    static CALLER: Principal;
}

/// Runs `work` for this caller. The agent counts its resource usage for this caller.
pub fn with_caller<F: Future>(caller: Principal, work: F) -> impl Future<Output = F::Output> {
    CALLER.scope(caller, work)
}

/// The caller for which the current code runs. `None`: the code runs for the gateway itself.
pub fn caller() -> Option<Principal> {
    CALLER.try_with(Clone::clone).ok()
}

/// Runs `work` for a request with this trace context. `None`: `work` belongs to no request, or the request has no trace.
pub fn with_caller_trace<F: Future>(trace: Option<TraceContext>, work: F) -> impl Future<Output = F::Output> {
    TRACE.scope(trace, work)
}

/// The trace context of the request for which the current code runs.
pub fn caller_trace() -> Option<TraceContext> {
    TRACE.try_with(Clone::clone).ok().flatten()
}
