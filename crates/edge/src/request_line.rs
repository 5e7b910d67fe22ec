//! Writes one log line for each request: the method, the caller, the task, the outcome and the duration.
//!
//! The line contains only names and numbers, never text of the caller. The line of a stream is written when the stream ends. A line
//! without a status means that the caller disconnected before the response began.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_model::{ErrorKind, TaskId, TaskState};
use tokio::time::Instant;
use tracing::{Level, Span};

use crate::auth::Caller;
use crate::count;
use crate::reply::Response;

/// The target of these log lines.
const TARGET: &str = "longshore::request";

/// The line of one request. It is written when its last copy is dropped.
#[derive(Clone, Default, Debug)]
pub(crate) struct RequestLine(Option<Arc<Open>>);

#[derive(Debug)]
struct Open {
    /// The span of the request, to which the line belongs.
    span: Span,
    begun: Instant,
    facts: Mutex<Facts>,
}

#[derive(Debug)]
struct Facts {
    method: &'static str,
    caller: Option<Arc<Caller>>,
    task: Option<TaskId>,
    state: Option<TaskState>,
    status: Option<u16>,
    /// The kind of the error in the response.
    error: Option<&'static str>,
}

impl RequestLine {
    /// `method`: the name in the line. `None`: the request is a probe, for which no line is written.
    pub(crate) fn begin(method: Option<&'static str>, span: &Span) -> Self {
        let method = method.filter(|_| tracing::enabled!(target: TARGET, Level::INFO));
        Self(method.map(|method| {
            let facts = Facts { method, caller: None, task: None, state: None, status: None, error: None };
            Arc::new(Open { span: span.clone(), begun: Instant::now(), facts: Mutex::new(facts) })
        }))
    }

    /// Replaces the name once the method is known from the body.
    pub(crate) fn set_method(&self, method: &'static str) {
        self.note(|facts| facts.method = method);
    }

    pub(crate) fn set_caller(&self, caller: &Arc<Caller>) {
        self.note(|facts| facts.caller = Some(Arc::clone(caller)));
    }

    pub(crate) fn set_task(&self, task: &TaskId) {
        self.note(|facts| facts.task = Some(task.clone()));
    }

    pub(crate) fn set_state(&self, state: TaskState) {
        self.note(|facts| facts.state = Some(state));
    }

    pub(crate) fn set_response(&self, response: &Response) {
        self.note(|facts| {
            facts.status = Some(response.status().as_u16());
            facts.error = count::error_of(response).map(ErrorKind::label);
        });
    }

    fn note(&self, note: impl FnOnce(&mut Facts)) {
        if let Some(open) = &self.0 {
            note(&mut open.facts());
        }
    }
}

impl Open {
    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _request = self.span.enter();
        let facts = self.facts();
        tracing::info!(
            target: TARGET,
            method = facts.method,
            principal = facts.caller.as_ref().map(|caller| display(&caller.principal)),
            task = facts.task.as_ref().map(display),
            state = facts.state.map(TaskState::as_str),
            status = facts.status,
            error = facts.error,
            ms = milliseconds(self.begun.elapsed()),
            "request"
        );
    }
}

/// The duration in milliseconds with one decimal, because most responses take less than one millisecond.
fn milliseconds(elapsed: std::time::Duration) -> f64 {
    f64::from(u32::try_from(elapsed.as_micros() / 100).unwrap_or(u32::MAX)) / 10.0
}
