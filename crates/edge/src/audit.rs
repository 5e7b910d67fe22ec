//! What is noted of each call of a method that an extension adds: it is counted, and if it could change something, one line in
//! the log says who called what, about what, and what became of it.
//!
//! The line is written when the work is done, also when its caller has hung up. It holds names only: never parameters, and
//! nothing that was said.

use std::sync::Arc;

use longshore_engine::Outcome;
use longshore_meter::Metrics;
use longshore_meter::label::{CallOutcome, Method as MethodLabel};
use longshore_model::{
    Begun, Control, ControlCommand, ControlResult, Error, NewWorkspace, NewWorktree, Principal, Result,
    WorktreeRef,
};
use longshore_wire::methods::{Call, Effect, Method};
use tracing::Span;

use crate::auth::Caller;

/// By which the log and its readers know these lines. They are written whatever else the log is to hold.
const TARGET: &str = "longshore::audit";

/// A call, from its beginning. One that is dropped without an end was not made: a notification that asks for something.
#[derive(Debug)]
pub(crate) struct Record {
    method: &'static Method,
    principal: Principal,
    credential: Option<String>,
    target: Option<String>,
    metrics: Arc<Metrics>,
    /// That of the request, in which the line stands.
    request: Span,
}

impl Record {
    /// `request`: the span of its request.
    pub(crate) fn begin(
        method: &'static Method,
        caller: &Caller,
        metrics: &Arc<Metrics>,
        request: &Span,
    ) -> Self {
        Self {
            method,
            principal: caller.principal.clone(),
            credential: caller.rights.credential_id.clone(),
            target: None,
            metrics: Arc::clone(metrics),
            request: request.clone(),
        }
    }

    /// The parameters are good, and this is what they ask for.
    pub(crate) fn of(&mut self, call: &Call) {
        self.target = target(call);
    }

    /// It was refused, or failed.
    pub(crate) fn failed(self, error: &Error) {
        self.write(Err(error), &Made::default());
    }

    /// What became of it.
    pub(crate) fn ended<T>(self, result: &Result<T>) {
        self.write(result.as_ref().map(drop), &Made::default());
    }

    /// The same, with what came of it.
    pub(crate) fn told(self, result: &Result<ControlResult>) {
        match result {
            Ok(told) => self.write(Ok(()), &Made::of(self.method, told)),
            Err(error) => self.write(Err(error), &Made::default()),
        }
    }

    fn write(&self, result: std::result::Result<(), &Error>, made: &Made<'_>) {
        let error = result.err();
        let outcome = error.map_or(Outcome::Success, Outcome::of_error);
        // Every method has its label: a test says so.
        if let Some(method) = MethodLabel::named(self.method.name) {
            self.metrics.control_calls.of(method).of(label(outcome)).increment();
        }
        if self.method.effect == Effect::Read {
            return;
        }
        let _request = self.request.enter();
        tracing::info!(
            target: TARGET,
            method = self.method.name,
            principal = %self.principal,
            credential = self.credential.as_deref(),
            target = self.target.as_deref(),
            outcome = outcome.as_str(),
            status = error.and_then(|error| detail(error, "upstreamStatus")),
            task = made.task.or_else(|| error.and_then(|error| detail(error, "taskId"))),
            made = made.name.or_else(|| error.and_then(|error| detail(error, "forkedSessionId"))),
            "a call that changes something"
        );
    }
}

/// What there is afterwards that was not there before.
#[derive(Debug, Default)]
struct Made<'a> {
    task: Option<&'a str>,
    name: Option<&'a str>,
}

impl<'a> Made<'a> {
    fn of(method: &Method, told: &'a ControlResult) -> Self {
        let of_task = |begun: &'a Begun| Self { task: Some(begun.task.as_str()), name: None };
        match told {
            ControlResult::Done { begun: Some(begun), .. } | ControlResult::Answered { begun, .. } => {
                of_task(begun)
            }
            ControlResult::Session(session) if method.key == "fork" => Self::named(session.id.as_str()),
            ControlResult::Workspace(Some(workspace)) if method.key == "create_workspace" => {
                Self::named(workspace.id.as_str())
            }
            ControlResult::Worktree(worktree) => Self::named(&worktree.directory),
            _ => Self::default(),
        }
    }

    fn named(name: &'a str) -> Self {
        Self { task: None, name: Some(name) }
    }
}

/// What a call is about, by its name.
fn target(call: &Call) -> Option<String> {
    let control = match call {
        Call::Answer { request, .. } => return Some(request.to_string()),
        Call::OpenAsks(_) => return None,
        Call::Control(request) => &request.control,
    };
    if let Some(session) = control.session() {
        return Some(session.to_string());
    }
    let Control::Command(act) = control else { return None };
    match act {
        ControlCommand::RemoveWorkspace(id) => Some(id.to_string()),
        ControlCommand::CreateWorkspace(NewWorkspace { id, .. }) => id.as_ref().map(ToString::to_string),
        ControlCommand::CreateWorktree(NewWorktree { name, .. }) => name.clone(),
        ControlCommand::RemoveWorktree(worktree) | ControlCommand::ResetWorktree(worktree) => {
            let (WorktreeRef::Directory(name) | WorktreeRef::Name(name)) = worktree;
            Some(name.clone())
        }
        // These are about a session.
        ControlCommand::Fork { .. }
        | ControlCommand::Share(_)
        | ControlCommand::Unshare(_)
        | ControlCommand::Summarize { .. }
        | ControlCommand::Revert { .. }
        | ControlCommand::Unrevert(_)
        | ControlCommand::Shell { .. } => None,
    }
}

fn detail<'a>(error: &'a Error, name: &str) -> Option<&'a str> {
    error.details().iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}

fn label(outcome: Outcome) -> CallOutcome {
    match outcome {
        Outcome::Success => CallOutcome::Success,
        Outcome::InvalidParams => CallOutcome::InvalidParams,
        Outcome::Disabled => CallOutcome::Disabled,
        Outcome::AuthorizationForbidden => CallOutcome::AuthorizationForbidden,
        Outcome::Forbidden => CallOutcome::Forbidden,
        Outcome::Busy => CallOutcome::Busy,
        Outcome::NotFound => CallOutcome::NotFound,
        Outcome::UpstreamHttpError => CallOutcome::UpstreamHttpError,
        Outcome::UpstreamUnreachable => CallOutcome::UpstreamUnreachable,
        Outcome::UpstreamBackpressure => CallOutcome::UpstreamBackpressure,
        Outcome::UpstreamPayloadError => CallOutcome::UpstreamPayloadError,
        Outcome::InternalError => CallOutcome::InternalError,
    }
}

#[cfg(test)]
mod tests {
    use longshore_meter::Label;
    use longshore_wire::methods;

    use super::*;

    #[test]
    fn every_method_of_the_table_and_every_outcome_is_counted_under_its_own_word() {
        let names: Vec<&str> = methods::all().map(|method| method.name).collect();
        assert_eq!(names, MethodLabel::VALUES);
        for outcome in Outcome::ALL {
            assert_eq!(CallOutcome::VALUES[label(outcome).index()], outcome.as_str());
        }
        assert_eq!(CallOutcome::VALUES.len(), Outcome::ALL.len());
    }
}
