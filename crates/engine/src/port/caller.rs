//! For whose request the agent is called.
//!
//! A call can be deep below the request that it is made for: that it is found again in the caller's trace is no matter of what
//! it does, so it is not in its arguments. What runs apart (a turn, the owner of a task) is told by hand, and says it anew.

use longshore_model::TraceContext;
use tokio::task_local;

task_local! {
    static TRACE: Option<TraceContext>;
}

/// Does this for a request that stands there in its caller's trace. `None`: for nobody's.
pub fn on_behalf_of<F: Future>(trace: Option<TraceContext>, work: F) -> impl Future<Output = F::Output> {
    TRACE.scope(trace, work)
}

/// Where the request for which this is done stands in its caller's trace.
pub fn trace_of_caller() -> Option<TraceContext> {
    TRACE.try_with(Clone::clone).ok().flatten()
}
