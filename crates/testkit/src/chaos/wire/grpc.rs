//! Calls over gRPC.

#[cfg(feature = "grpc")]
pub(in crate::chaos) use with_stubs::Frames;
#[cfg(feature = "grpc")]
pub(super) use with_stubs::{call, stream};
#[cfg(not(feature = "grpc"))]
pub(in crate::chaos) use without_stubs::Frames;
#[cfg(not(feature = "grpc"))]
pub(super) use without_stubs::{call, stream};

#[cfg(feature = "grpc")]
mod with_stubs {
    use std::fmt;

    use futures_util::StreamExt as _;
    use http::{HeaderMap, HeaderName, HeaderValue};
    use longshore_grpc::client::{Caller, Events, Package};
    use longshore_grpc::refusal::{Cause, Refusal};
    use longshore_wire::surface::ProtocolVersion;
    use serde_json::Value;

    use super::super::{CallError, Next, PATIENCE, Wire, error};
    use crate::chaos::record::Frame;
    use crate::chaos::speaker::ClientRequest;

    /// The longest message that a client takes.
    const LONGEST: usize = 16 * 1024 * 1024;

    /// The number of the status UNAVAILABLE, which needs no reason.
    const UNAVAILABLE: i32 = 14;

    pub(in super::super) async fn call(wire: &Wire, spelled: &ClientRequest) -> Result<Value, CallError> {
        let (caller, headers) = (caller(wire)?, headers(wire, None)?);
        let answer = caller.call(name(spelled), &headers, params(spelled)).await;
        answer.ok_or_else(|| no_such_call(spelled))?.map_err(of_refusal)
    }

    pub(in super::super) async fn stream(
        wire: &Wire,
        spelled: &ClientRequest,
        cursor: Option<&str>,
    ) -> Result<Frames, CallError> {
        let (caller, headers) = (caller(wire)?, headers(wire, cursor)?);
        let answer = caller.stream(name(spelled), &headers, params(spelled)).await;
        let events = answer.ok_or_else(|| no_such_call(spelled))?.map_err(of_refusal)?;
        Ok(Frames { events })
    }

    /// With a connection of its own.
    fn caller(wire: &Wire) -> Result<Caller, CallError> {
        let package = match wire.speaker.version {
            ProtocolVersion::V1 => Package::V1,
            ProtocolVersion::V03 => Package::V03,
        };
        Caller::new(&wire.base, package, PATIENCE, LONGEST)
            .map_err(|error| CallError::Malformed(error.to_string()))
    }

    fn headers(wire: &Wire, cursor: Option<&str>) -> Result<HeaderMap, CallError> {
        let header = |(name, value): (&'static str, String)| {
            let value = HeaderValue::try_from(value);
            let value = value.map_err(|error| CallError::Malformed(error.to_string()))?;
            Ok((HeaderName::from_static(name), value))
        };
        wire.headers(cursor).into_iter().map(header).collect()
    }

    fn name(spelled: &ClientRequest) -> &str {
        spelled.path.rsplit('/').next().unwrap_or_default()
    }

    fn params(spelled: &ClientRequest) -> Value {
        spelled.body.clone().unwrap_or_default()
    }

    fn no_such_call(spelled: &ClientRequest) -> CallError {
        CallError::Malformed(format!("the package has no call {}", spelled.path))
    }

    fn of_refusal(refusal: Refusal) -> CallError {
        match (refusal.cause, refusal.reason) {
            (Cause::Connect | Cause::Transport, _) => CallError::Temporary,
            (_, Some(reason)) => error(reason, &refusal.message),
            (_, None) if refusal.code == UNAVAILABLE => CallError::Temporary,
            (_, None) => {
                CallError::Malformed(format!("status {} without a reason: {}", refusal.code, refusal.message))
            }
        }
    }

    /// The messages of a call.
    pub(in crate::chaos) struct Frames {
        events: Events,
    }

    impl fmt::Debug for Frames {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Frames").finish_non_exhaustive()
        }
    }

    impl Frames {
        pub(in super::super) async fn next(&mut self) -> Next {
            match self.events.next().await {
                Some(Ok(json)) => Next::Frame(Frame { id: cursor(&json), json }),
                Some(Err(refusal)) => Next::Failed(of_refusal(refusal)),
                None => Next::End { may_return: false },
            }
        }
    }

    /// The cursor of an event, in the metadata of the task or of the update.
    fn cursor(event: &Value) -> Option<String> {
        let inner = event.as_object()?.values().next()?;
        inner["metadata"]["longshore"]["cursor"].as_str().map(str::to_owned)
    }
}

#[cfg(not(feature = "grpc"))]
#[expect(clippy::unused_async, reason = "the signatures are those of the stubs")]
mod without_stubs {
    use serde_json::Value;

    use super::super::{CallError, Next, Wire};
    use crate::chaos::speaker::ClientRequest;

    /// No stream can be opened.
    #[derive(Debug)]
    pub(in crate::chaos) enum Frames {}

    impl Frames {
        pub(in super::super) async fn next(&mut self) -> Next {
            match *self {}
        }
    }

    pub(in super::super) async fn call(_: &Wire, _: &ClientRequest) -> Result<Value, CallError> {
        Err(missing())
    }

    pub(in super::super) async fn stream(
        _: &Wire,
        _: &ClientRequest,
        _: Option<&str>,
    ) -> Result<Frames, CallError> {
        Err(missing())
    }

    fn missing() -> CallError {
        CallError::Malformed("the test kit was built without its feature `grpc`".to_owned())
    }
}
