//! Checks and executes the calls of extension methods.
//!
//! The checks, in order: the required extensions, the extension of the method, whether the method is enabled, whether the
//! credential may call it, the names of the parameters, and their values. The engine makes the remaining checks: the owner of the
//! session, the directory, whether the session is free, and whether the agent can accept one more call.

use std::sync::{Arc, OnceLock};

use longshore_engine::port::{caller_trace, with_caller_trace};
use longshore_engine::{ControlCaller, is_long_running};
use longshore_model::{
    Approval, ControlResult, Error, ErrorKind, Interrupt, RequestId, Result, SessionId, TaskId,
};
use longshore_wire::contract;
use longshore_wire::methods::{Call, Effect, Method, Need, Switch};

use super::Operations;
use crate::audit::CallRecord;
use crate::auth::{Caller, Capability};
use crate::command::{MethodCall, RequestOptions};
use crate::reply;

/// How many slow calls of notifications may run in the background. Beyond that, the response to a notification waits until its call
/// has ended.
pub(crate) const MAX_BACKGROUND_CALLS: usize = 256;

/// The result of an extension method.
#[derive(Debug)]
pub(crate) enum MethodReply {
    Asks(Vec<Interrupt>),
    Approvals(Vec<Approval>),
    /// The ask that was answered, or whose approval was revoked.
    Answered(RequestId),
    Control(&'static Method, Box<ControlResult>),
}

impl Operations {
    /// Executes a call and returns its result.
    pub(super) async fn call(
        &self,
        caller: &Caller,
        call: MethodCall,
        options: &RequestOptions,
    ) -> Result<MethodReply> {
        let method = call.method;
        let (call, record) = self.admit_call(caller, call, options)?;
        self.execute(caller, method, call, record).await
    }

    /// Handles a notification: executes a command, and ignores a query. A slow command runs in the background and is recorded when
    /// it ends.
    pub(super) async fn notify_call(
        &self,
        caller: &Caller,
        call: MethodCall,
        options: &RequestOptions,
    ) -> Result<()> {
        let method = call.method;
        let (call, record) = self.admit_call(caller, call, options)?;
        match call {
            _ if method.effect == Effect::Read => Ok(()),
            Call::Control(request) if is_long_running(&request.control) => {
                let Ok(slot) = Arc::clone(&self.background_slots).try_acquire_owned() else {
                    return self.execute(caller, method, Call::Control(request), record).await.map(drop);
                };
                let span = options.span.clone();
                self.engine.control_detached(&self.control_caller(caller), request, move |result| {
                    record.ended_with(result);
                    if let Err(error) = result {
                        let _request = span.enter();
                        reply::log(error, "notification");
                    }
                    drop(slot);
                });
                Ok(())
            }
            call => self.execute(caller, method, call, record).await.map(drop),
        }
    }

    fn control_caller(&self, caller: &Caller) -> ControlCaller {
        let may_claim = caller.may(Capability::SessionClaim);
        ControlCaller { principal: caller.principal.clone(), may_claim, may_run: self.may_run(caller) }
    }

    /// Whether the caller may run commands in a shell.
    pub(super) fn may_run(&self, caller: &Caller) -> bool {
        let shell = Switch::SessionShell;
        shell.is_on(&self.deployment) && caller.may(shell.capability())
    }

    /// Checks a call. Executes nothing.
    fn admit_call(
        &self,
        caller: &Caller,
        call: MethodCall,
        options: &RequestOptions,
    ) -> Result<(Call, CallRecord)> {
        let mut record = CallRecord::begin(call.method, caller, &self.metrics, &options.span);
        // The record of a refused call also names the target, if the parameters can be decoded.
        if let Ok((call, _)) = &call.call {
            record.set_target(call);
        }
        match self.check_call(caller, call, options) {
            Ok(call) => Ok((call, record)),
            Err(error) => {
                record.failed(&error);
                Err(error)
            }
        }
    }

    fn check_call(&self, caller: &Caller, call: MethodCall, options: &RequestOptions) -> Result<Call> {
        let MethodCall { method, call } = call;
        self.check_required(options.activated)?;
        method.check_activated(options.activated)?;
        if !method.is_on(&self.deployment) {
            return Err(contract::disabled_method(options.version, method, &self.deployment));
        }
        check_capability(caller, method, method.needs())?;
        let (call, need) = call?;
        if let Some(Need { field, switch }) = need {
            if !switch.is_on(&self.deployment) {
                return Err(switched_off(&field, switch));
            }
            check_capability(caller, method, Some(switch.capability()))?;
        }
        Ok(call)
    }

    /// Executes a call. A command is completed even if the caller disconnects.
    async fn execute(
        &self,
        caller: &Caller,
        method: &'static Method,
        call: Call,
        record: CallRecord,
    ) -> Result<MethodReply> {
        let (engine, principal) = (&self.engine, &caller.principal);
        match call {
            Call::OpenAsks(kind) => {
                let open = engine.open_asks(principal, kind).await;
                record.ended(&open);
                Ok(MethodReply::Asks(open?))
            }
            Call::Approvals => {
                let kept = engine.approvals(principal).await;
                record.ended(&kept);
                Ok(MethodReply::Approvals(kept?))
            }
            Call::RevokeApproval(request) => {
                let (engine, principal, id) = (engine.clone(), principal.clone(), request.clone());
                let work = async move {
                    let revoked = engine.revoke_approval(&principal, &id).await;
                    record.ended(&revoked);
                    revoked
                };
                self.tasks.spawn("revoke", work).await.map_err(Error::internal)??;
                Ok(MethodReply::Answered(request))
            }
            Call::Answer { request, answer } => {
                let (engine, principal, id) = (engine.clone(), principal.clone(), request.clone());
                let work = with_caller_trace(caller_trace(), async move {
                    let answered = engine.answer(&principal, &id, answer).await;
                    record.ended(&answered);
                    answered
                });
                let answered = self.tasks.spawn("answer", work).await.map_err(Error::internal)?;
                answered.map_err(|error| about(error, method, ("requestId", Some(request.as_str()))))?;
                Ok(MethodReply::Answered(request))
            }
            Call::Control(request) => {
                let session = request.control.session().cloned();
                let who = self.control_caller(caller);
                let result = if method.effect == Effect::Read {
                    let result = Box::pin(engine.control(&who, request, |_| ())).await;
                    record.ended_with(&result);
                    result
                } else {
                    let done = move |result: &Result<ControlResult>| record.ended_with(result);
                    let begun = Arc::new(OnceLock::new());
                    let result = engine.control_with_task(&who, request, Arc::clone(&begun), done);
                    self.unless_closing(Box::pin(result), || may_still_happen(begun.get())).await
                };
                let result = result.map_err(|error| {
                    about(error, method, ("sessionId", session.as_ref().map(SessionId::as_str)))
                })?;
                Ok(MethodReply::Control(method, Box::new(result)))
            }
        }
    }
}

fn check_capability(caller: &Caller, method: &Method, needed: Option<Capability>) -> Result<()> {
    let Some(needed) = needed.filter(|needed| !caller.may(*needed)) else { return Ok(()) };
    let word = needed.as_str();
    let text = format!("This needs the capability {word}, which your credential does not have.");
    let error = Error::new(ErrorKind::AuthorizationForbidden, text)
        .detail("method", method.name)
        .detail("capability", word);
    Err(match &caller.rights.credential_id {
        Some(id) => error.detail("credentialId", id),
        None => error,
    })
}

/// Adds the method and target to an upstream error, so that a caller with many concurrent calls can tell which one failed.
fn about(error: Error, method: &Method, target: (&str, Option<&str>)) -> Error {
    use ErrorKind::{UpstreamBackpressure, UpstreamHttpError, UpstreamPayloadError, UpstreamUnreachable};
    let kinds = [UpstreamUnreachable, UpstreamHttpError, UpstreamPayloadError, UpstreamBackpressure];
    if !kinds.contains(&error.kind()) {
        return error;
    }
    let detail = (error.kind() == UpstreamPayloadError).then_some("not what was asked for");
    let facts = [("method", Some(method.name)), target, ("detail", detail)];
    facts.into_iter().fold(error, |error, (name, value)| match value {
        Some(value) if !error.details().iter().any(|(known, _)| known == name) => error.detail(name, value),
        _ => error,
    })
}

fn switched_off(field: &str, switch: Switch) -> Error {
    Error::invalid(field, format!("is taken only where {} is on", switch.toggle()))
}

/// The error for a call whose outcome is unknown because the gateway shuts down. `task`: the task that the call created, if any.
fn may_still_happen(task: Option<&TaskId>) -> Error {
    let text = "The gateway is shutting down. The requested change may still happen; check again later.";
    let error = Error::new(ErrorKind::Unavailable, text);
    match task {
        Some(task) => error.detail("taskId", task.as_str()),
        None => error,
    }
}
