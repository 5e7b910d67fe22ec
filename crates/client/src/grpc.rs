//! Calls an agent over gRPC. The messages have the same JSON as over REST.

use std::fmt;
use std::time::Duration;

use futures_util::StreamExt as _;
use longshore_grpc::client::{Caller, Events, Package};
use longshore_grpc::refusal::{Cause, Refusal};
use longshore_wire::surface::{Operation, ProtocolVersion};
use longshore_wire::v1::method::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use crate::card::Interface;
use crate::client::Call;
use crate::error::{Error, ErrorKind};
use crate::{Result, http, refusal};

/// The gRPC service of an agent.
#[derive(Debug)]
pub(crate) struct Service {
    caller: Caller,
    interface: Interface,
}

/// The messages of a stream.
pub(crate) struct Stream {
    events: Events,
    place: String,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Service {
    /// `limit`: the most bytes of one message.
    pub(crate) fn new(interface: &Interface, limit: usize) -> Result<Self> {
        let package = match interface.version {
            ProtocolVersion::V1 => Package::V1,
            ProtocolVersion::V03 => Package::V03,
        };
        let origin = interface.url.origin().ascii_serialization();
        let caller = Caller::new(&origin, package, http::CONNECT_TIMEOUT, limit)
            .map_err(|error| Error::new(ErrorKind::Input, format!("Cannot set up gRPC: {error}.")))?;
        Ok(Self { caller, interface: interface.clone() })
    }

    pub(crate) async fn call(&self, call: Call<'_>, headers: &HeaderMap, timeout: Duration) -> Result<Value> {
        let name = self.name(call.method)?;
        let answer = self.caller.call(name, headers, self.params(call));
        let answer = tokio::time::timeout(timeout, answer).await.map_err(|_| http::timed_out(timeout))?;
        answer.ok_or_else(lacks)?.map_err(|refusal| self.refused(refusal))
    }

    pub(crate) async fn stream(
        &self,
        call: Call<'_>,
        headers: &HeaderMap,
        timeout: Duration,
    ) -> Result<Stream> {
        let name = self.name(call.method)?;
        let answer = self.caller.stream(name, headers, self.params(call));
        let answer = tokio::time::timeout(timeout, answer).await.map_err(|_| http::timed_out(timeout))?;
        let events = answer.ok_or_else(lacks)?.map_err(|refusal| self.refused(refusal))?;
        Ok(Stream { events, place: self.place() })
    }

    fn name(&self, method: Method) -> Result<&'static str> {
        Operation::of(method).grpc(self.interface.version).ok_or_else(lacks)
    }

    /// The request message of a call, as JSON.
    fn params(&self, call: Call<'_>) -> Value {
        let mut params = call.params;
        if self.interface.version == ProtocolVersion::V1 {
            if !self.interface.tenant.is_empty() {
                params["tenant"] = self.interface.tenant.as_str().into();
            }
            return params;
        }
        // 0.3 names resources by paths.
        let task = format!("tasks/{}", call.task);
        let push = format!("{task}/pushNotificationConfigs/{}", call.push);
        match call.method {
            Method::GetTask | Method::CancelTask | Method::SubscribeToTask => json!({"name": task}),
            Method::CreateTaskPushNotificationConfig => {
                json!({"parent": task, "configId": call.push, "config": params})
            }
            Method::GetTaskPushNotificationConfig | Method::DeleteTaskPushNotificationConfig => {
                json!({"name": push})
            }
            Method::ListTaskPushNotificationConfigs => json!({"parent": task}),
            _ => params,
        }
    }

    fn place(&self) -> String {
        http::place(&self.interface.url)
    }

    fn refused(&self, refusal: Refusal) -> Error {
        error_of(refusal, &self.place())
    }
}

impl Stream {
    /// The next message. `None`: the agent has closed the stream.
    pub(crate) async fn next(&mut self) -> Option<Result<Value>> {
        Some(self.events.next().await?.map_err(|refusal| error_of(refusal, &self.place)))
    }
}

/// The cursor of an event, which corresponds to the event id of an SSE stream.
pub(crate) fn cursor(event: &Value) -> Option<String> {
    let inner = event.as_object()?.values().next()?;
    inner["metadata"]["longshore"]["cursor"].as_str().map(str::to_owned)
}

fn error_of(refused: Refusal, place: &str) -> Error {
    let why = http::plain(&refused.message);
    match refused.cause {
        Cause::Connect => Error::new(ErrorKind::Unreachable, format!("Cannot connect to {place}: {why}.")),
        Cause::Transport => Error::new(ErrorKind::Lost, format!("The connection to {place} broke: {why}.")),
        Cause::Input => {
            Error::new(ErrorKind::Input, format!("The message has no form for gRPC: {}.", refused.message))
        }
        Cause::Agent => refusal::of_grpc(
            refused.code,
            &refused.message,
            refused.reason,
            refused.retry_after_seconds.map(Duration::from_secs),
        ),
    }
}

fn lacks() -> Error {
    Error::new(ErrorKind::Unsupported, "A2A 0.3 over gRPC lacks the operation.")
}
