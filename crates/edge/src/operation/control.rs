//! Calls of the methods that extensions add: who may make them, and what is done.
//!
//! In order: the extensions that every caller must know, that of the method, whether the method is switched on, whether the
//! credential may call it, the names of the parameters, their values. What follows is the engine's: whose the session is, the
//! place, whether the session is free, and whether the agent has room for one more call.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use longshore_engine::port::{on_behalf_of, trace_of_caller};
use longshore_engine::{ControlCaller, takes_long};
use longshore_model::{ControlResult, Error, ErrorKind, Result, SessionId, TaskId};
use longshore_wire::contract;
use longshore_wire::extension::{self as extensions, Activated};
use longshore_wire::methods::{Call, Effect, Method, Need, Switch};
use longshore_wire::surface::ProtocolVersion;
use longshore_wire::v1::extension;
use tracing::Span;

use super::Operations;
use crate::audit::Record;
use crate::auth::{Caller, Capability};
use crate::reply;

/// So many notifications may have work under way that takes long. One more is answered when its own work is over.
pub(crate) const MAX_LEFT: usize = 256;

/// A call as it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'static Method,
    pub(crate) line: ProtocolVersion,
    /// A JSON object, unless the caller is mistaken.
    pub(crate) params: &'a str,
    pub(crate) activated: Activated,
    /// In which every line of the log about it is.
    pub(crate) span: &'a Span,
}

impl Operations {
    /// The result of a call.
    pub(crate) async fn call(&self, caller: &Caller, asked: Asked<'_>) -> Result<Bytes> {
        let (call, record) = self.admitted_call(caller, asked)?;
        self.carry_out(caller, asked, call, record).await
    }

    /// For a caller that wants no answer: what changes something is done, and what only asks is not. What takes long is not waited
    /// for, and noted when it is over all the same.
    pub(crate) async fn notify_call(&self, caller: &Caller, asked: Asked<'_>) -> Result<()> {
        let (call, record) = self.admitted_call(caller, asked)?;
        match call {
            _ if asked.method.effect == Effect::Read => Ok(()),
            Call::Control(request) if takes_long(&request.control) => {
                let Ok(place) = Arc::clone(&self.left).try_acquire_owned() else {
                    return self.carry_out(caller, asked, Call::Control(request), record).await.map(drop);
                };
                let span = asked.span.clone();
                self.engine.leave_control(&self.controlling(caller), request, move |told| {
                    record.told(told);
                    if let Err(error) = told {
                        let _request = span.enter();
                        reply::log(error, "notification");
                    }
                    drop(place);
                });
                Ok(())
            }
            call => self.carry_out(caller, asked, call, record).await.map(drop),
        }
    }

    fn controlling(&self, caller: &Caller) -> ControlCaller {
        let may_claim = caller.may(Capability::SessionClaim);
        let shell = Switch::SessionShell;
        let may_run = shell.is_on(&self.deployment) && caller.may(shell.capability());
        ControlCaller { principal: caller.principal.clone(), may_claim, may_run }
    }

    /// What is asked for, if the caller may. Nothing has happened yet.
    fn admitted_call(&self, caller: &Caller, asked: Asked<'_>) -> Result<(Call, Record)> {
        let mut record = Record::begin(asked.method, caller, &self.metrics, asked.span);
        match self.check_call(caller, asked) {
            Ok(call) => {
                record.of(&call);
                Ok((call, record))
            }
            Err(error) => {
                // Who tried something is worth little without where.
                if let Ok(call) = asked.method.read(asked.line, asked.params, Activated::ALL) {
                    record.of(&call);
                }
                record.failed(&error);
                Err(error)
            }
        }
    }

    fn check_call(&self, caller: &Caller, asked: Asked<'_>) -> Result<Call> {
        let Asked { method, line, params, activated, .. } = asked;
        extensions::check_required(activated, &self.deployment.required_extensions)?;
        method.check_activated(activated)?;
        if !method.is_on(&self.deployment) {
            return Err(contract::disabled_method(line, method, &self.deployment));
        }
        check_capability(caller, method, method.needs())?;
        let (call, need) = method.read_with_need(line, params, activated)?;
        if let Some(Need { field, switch }) = need {
            if !switch.is_on(&self.deployment) {
                return Err(switched_off(&field, switch));
            }
            check_capability(caller, method, Some(switch.capability()))?;
        }
        Ok(call)
    }

    /// Whatever changes something is done also when the caller hangs up.
    async fn carry_out(
        &self,
        caller: &Caller,
        asked: Asked<'_>,
        call: Call,
        record: Record,
    ) -> Result<Bytes> {
        let (engine, principal) = (&self.engine, &caller.principal);
        match call {
            Call::OpenAsks(kind) => {
                let open = engine.open_asks(principal, kind).await;
                record.ended(&open);
                Ok(extension::asks(&open?))
            }
            Call::Answer { request, answer } => {
                let (engine, principal, id) = (engine.clone(), principal.clone(), request.clone());
                let work = on_behalf_of(trace_of_caller(), async move {
                    let answered = engine.answer(&principal, &id, answer).await;
                    record.ended(&answered);
                    answered
                });
                let answered = self.tasks.spawn("answer", work).await.map_err(Error::internal)?;
                answered
                    .map_err(|error| about(error, asked.method, ("requestId", Some(request.as_str()))))?;
                Ok(extension::answered(&request))
            }
            Call::Control(request) => {
                let session = request.control.session().cloned();
                let who = self.controlling(caller);
                let told = if asked.method.effect == Effect::Read {
                    let told = Box::pin(engine.control(&who, request, |_| ())).await;
                    record.told(&told);
                    told
                } else {
                    let done = move |told: &Result<ControlResult>| record.told(told);
                    let begun = Arc::new(OnceLock::new());
                    let told = engine.control_noting(&who, request, Arc::clone(&begun), done);
                    self.unless_closing(Box::pin(told), || goes_on(begun.get())).await
                };
                let told = told.map_err(|error| {
                    about(error, asked.method, ("sessionId", session.as_ref().map(SessionId::as_str)))
                })?;
                asked.method.answer(&told, asked.line)
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

/// Whoever has many calls under way can tell by the error which one it is of.
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

/// `task`: the one that was made of it.
fn goes_on(task: Option<&TaskId>) -> Error {
    let text = "The gateway is shutting down. What you asked for may be done all the same; look again later.";
    let error = Error::new(ErrorKind::Unavailable, text);
    match task {
        Some(task) => error.detail("taskId", task.as_str()),
        None => error,
    }
}
