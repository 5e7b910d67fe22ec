//! Records each call of an extension method: counts the call, and if it could change something, writes one log line with the
//! caller, the method, the target and the outcome.
//!
//! The line is written when the work is done, even if the caller has disconnected. The line contains only names, never
//! parameters or the text of a message.

use std::sync::Arc;

use longshore_engine::Outcome;
use longshore_meter::label::CallOutcome;
use longshore_meter::{Label, Metrics};
use longshore_model::{
    Control, ControlCommand, ControlResult, Error, NewWorkspace, NewWorktree, Principal, Result, StartedTask,
    WorktreeRef,
};
use longshore_wire::methods::{Call, Effect, Method};
use tracing::Span;

use crate::auth::Caller;

/// The log target of the audit lines. They are written at every configured log level.
const TARGET: &str = "longshore::audit";

/// The record of one call, created when the call arrives and written by `failed`, `ended` or `ended_with`. If the record is
/// dropped before that, nothing is written: this happens for a query that came as a notification and is never executed.
#[derive(Debug)]
pub(crate) struct CallRecord {
    method: &'static Method,
    principal: Principal,
    credential: Option<String>,
    target: Option<String>,
    metrics: Arc<Metrics>,
    /// The span of the request, to which the line belongs.
    request: Span,
}

impl CallRecord {
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

    /// Takes the target from the decoded parameters.
    pub(crate) fn set_target(&mut self, call: &Call) {
        self.target = target(call);
    }

    /// Records that the call was refused or failed.
    pub(crate) fn failed(self, error: &Error) {
        self.write(Err(error), &Created::default());
    }

    /// Records the end of a call that cannot create anything.
    pub(crate) fn ended<T>(self, result: &Result<T>) {
        self.write(result.as_ref().map(drop), &Created::default());
    }

    /// Records the end of a call that may have created a task or another object, which the log line names.
    pub(crate) fn ended_with(self, result: &Result<ControlResult>) {
        match result {
            Ok(result) => self.write(Ok(()), &Created::by(self.method, result)),
            Err(error) => self.write(Err(error), &Created::default()),
        }
    }

    fn write(&self, result: std::result::Result<(), &Error>, created: &Created<'_>) {
        let error = result.err();
        let outcome = error.map_or(Outcome::Success, Outcome::of_error);
        if let Some(calls) = self.metrics.control_calls.of(self.method.name) {
            calls.of(label(outcome)).increment();
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
            task = created.task.or_else(|| error.and_then(|error| detail(error, "taskId"))),
            made = created.name.or_else(|| error.and_then(|error| detail(error, "forkedSessionId"))),
            "a call that changes something"
        );
    }
}

/// The task or object that a call created.
#[derive(Debug, Default)]
struct Created<'a> {
    task: Option<&'a str>,
    name: Option<&'a str>,
}

impl<'a> Created<'a> {
    fn by(method: &Method, result: &'a ControlResult) -> Self {
        let of_task = |begun: &'a StartedTask| Self { task: Some(begun.task.as_str()), name: None };
        match result {
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

/// The name of the object that a call is about.
fn target(call: &Call) -> Option<String> {
    let control = match call {
        Call::Answer { request, .. } | Call::RevokeApproval(request) => return Some(request.to_string()),
        Call::OpenAsks(_) | Call::Approvals => return None,
        Call::Control(request) => &request.control,
    };
    if let Some(session) = control.session() {
        return Some(session.to_string());
    }
    let Control::Command(command) = control else { return None };
    match command {
        ControlCommand::RemoveWorkspace(id) => Some(id.to_string()),
        ControlCommand::CreateWorkspace(NewWorkspace { id, .. }) => id.as_ref().map(ToString::to_string),
        ControlCommand::CreateWorktree(NewWorktree { name, .. }) => name.clone(),
        ControlCommand::RemoveWorktree(worktree) | ControlCommand::ResetWorktree(worktree) => {
            let (WorktreeRef::Directory(name) | WorktreeRef::Name(name)) = worktree;
            Some(name.clone())
        }
        // All these commands are about a session, which is returned above.
        ControlCommand::Fork { .. }
        | ControlCommand::Share(_)
        | ControlCommand::Unshare(_)
        | ControlCommand::Summarize { .. }
        | ControlCommand::Revert { .. }
        | ControlCommand::Unrevert(_)
        | ControlCommand::Delete(_)
        | ControlCommand::Shell { .. } => None,
    }
}

fn detail<'a>(error: &'a Error, name: &str) -> Option<&'a str> {
    error.details().iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}

/// The label of the outcome in the metrics. A test checks that every outcome has a label.
fn label(outcome: Outcome) -> CallOutcome {
    CallOutcome::parse(outcome.as_str()).unwrap_or(CallOutcome::InternalError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_own_label() {
        for outcome in Outcome::ALL {
            assert_eq!(CallOutcome::VALUES[label(outcome).index()], outcome.as_str());
        }
        assert_eq!(CallOutcome::VALUES.len(), Outcome::ALL.len());
    }
}
