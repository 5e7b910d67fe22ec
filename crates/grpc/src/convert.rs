//! Converts messages of the gateway's gRPC binding from and to JSON, with the generated types.

mod names;
mod repair;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use longshore_edge::Protobuf;
use longshore_model::{Error, ErrorKind, EventId, Result};
use longshore_wire::surface::ProtocolVersion;
use longshore_wire::v1::error::{DOMAIN, row};
use longshore_wire::v1::method::Method;
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::rpc::{Any, BadRequest, Delay, ErrorInfo, FieldViolation, RetryInfo, Status};
use crate::well_known::{Empty, Kind, Struct, Value};
use crate::{v1, v03};

/// Converts the messages of both packages.
#[derive(Clone, Copy, Debug)]
pub struct Messages;

/// The most bytes of an error's details. In base64 they grow by a third, and clients refuse trailers of more than 8 KiB, which must
/// also hold the text and other metadata.
const MAX_DETAILS: usize = 4 * 1024;

/// The longest error text, in characters, if the details are too long and must be shortened.
const MAX_TEXT: usize = 512;

/// The field of an event's metadata that holds its cursor: `longshore.cursor`.
const OWN: &str = "longshore";
const CURSOR: &str = "cursor";

impl Protobuf for Messages {
    fn request(&self, version: ProtocolVersion, operation: Method, message: &[u8]) -> Result<String> {
        match version {
            ProtocolVersion::V1 => match operation {
                Method::SendMessage | Method::SendStreamingMessage => {
                    json_of::<v1::SendMessageRequest>(message)
                }
                Method::GetTask => json_of::<v1::GetTaskRequest>(message),
                Method::ListTasks => json_of::<v1::ListTasksRequest>(message),
                Method::CancelTask => json_of::<v1::CancelTaskRequest>(message),
                Method::SubscribeToTask => json_of::<v1::SubscribeToTaskRequest>(message),
                Method::CreateTaskPushNotificationConfig => {
                    json_of::<v1::TaskPushNotificationConfig>(message)
                }
                Method::GetTaskPushNotificationConfig => {
                    json_of::<v1::GetTaskPushNotificationConfigRequest>(message)
                }
                Method::ListTaskPushNotificationConfigs => {
                    json_of::<v1::ListTaskPushNotificationConfigsRequest>(message)
                }
                Method::DeleteTaskPushNotificationConfig => {
                    json_of::<v1::DeleteTaskPushNotificationConfigRequest>(message)
                }
                Method::GetExtendedAgentCard => json_of::<v1::GetExtendedAgentCardRequest>(message),
            },
            ProtocolVersion::V03 => match operation {
                Method::SendMessage | Method::SendStreamingMessage => {
                    json_of::<v03::SendMessageRequest>(message)
                }
                Method::GetTask => names::get_task(&decoded(message)?),
                Method::CancelTask => names::cancel_task(&decoded(message)?),
                Method::SubscribeToTask => names::subscribe(&decoded(message)?),
                Method::CreateTaskPushNotificationConfig => names::create_push(&decoded(message)?),
                Method::GetTaskPushNotificationConfig => names::get_push(&decoded(message)?),
                Method::ListTaskPushNotificationConfigs => names::list_push(&decoded(message)?),
                Method::DeleteTaskPushNotificationConfig => names::delete_push(&decoded(message)?),
                Method::GetExtendedAgentCard => json_of::<v03::GetAgentCardRequest>(message),
                Method::ListTasks => Err(Error::internal("0.3 has no list over gRPC")),
            },
        }
    }

    fn reply(&self, version: ProtocolVersion, operation: Method, json: &[u8]) -> Result<Vec<u8>> {
        match version {
            ProtocolVersion::V1 => match operation {
                Method::SendMessage => message_of::<v1::SendMessageResponse>(json),
                Method::SendStreamingMessage | Method::SubscribeToTask => {
                    message_of::<v1::StreamResponse>(json)
                }
                Method::GetTask | Method::CancelTask => message_of::<v1::Task>(json),
                Method::ListTasks => message_of::<v1::ListTasksResponse>(json),
                Method::CreateTaskPushNotificationConfig | Method::GetTaskPushNotificationConfig => {
                    message_of::<v1::TaskPushNotificationConfig>(json)
                }
                Method::ListTaskPushNotificationConfigs => {
                    message_of::<v1::ListTaskPushNotificationConfigsResponse>(json)
                }
                Method::DeleteTaskPushNotificationConfig => Ok(Empty {}.encode_to_vec()),
                Method::GetExtendedAgentCard => message_of::<v1::AgentCard>(json),
            },
            ProtocolVersion::V03 => match operation {
                Method::SendMessage => message_of::<v03::SendMessageResponse>(json),
                Method::SendStreamingMessage | Method::SubscribeToTask => {
                    message_of::<v03::StreamResponse>(json)
                }
                Method::GetTask | Method::CancelTask => message_of::<v03::Task>(json),
                Method::CreateTaskPushNotificationConfig | Method::GetTaskPushNotificationConfig => {
                    message_of::<v03::TaskPushNotificationConfig>(json)
                }
                Method::ListTaskPushNotificationConfigs => {
                    message_of::<v03::ListTaskPushNotificationConfigResponse>(json)
                }
                Method::DeleteTaskPushNotificationConfig => Ok(Empty {}.encode_to_vec()),
                Method::GetExtendedAgentCard => card_of_v03(json),
                Method::ListTasks => Err(Error::internal("0.3 has no list over gRPC")),
            },
        }
    }

    fn event(&self, version: ProtocolVersion, cursor: Option<EventId>, json: &[u8]) -> Result<Vec<u8>> {
        match version {
            ProtocolVersion::V1 => {
                use v1::stream_response::Payload;
                let mut event: v1::StreamResponse = read(json)?;
                let metadata = event.payload.as_mut().map(|payload| match payload {
                    Payload::Task(task) => &mut task.metadata,
                    Payload::Message(message) => &mut message.metadata,
                    Payload::StatusUpdate(update) => &mut update.metadata,
                    Payload::ArtifactUpdate(update) => &mut update.metadata,
                });
                mark(metadata, cursor);
                Ok(event.encode_to_vec())
            }
            ProtocolVersion::V03 => {
                use v03::stream_response::Payload;
                let mut event: v03::StreamResponse = read(json)?;
                let metadata = event.payload.as_mut().map(|payload| match payload {
                    Payload::Task(task) => &mut task.metadata,
                    Payload::Msg(message) => &mut message.metadata,
                    Payload::StatusUpdate(update) => &mut update.metadata,
                    Payload::ArtifactUpdate(update) => &mut update.metadata,
                });
                mark(metadata, cursor);
                Ok(event.encode_to_vec())
            }
        }
    }

    fn status(&self, code: i32, error: &Error) -> Vec<u8> {
        let whole = status(code, error, true).encode_to_vec();
        if whole.len() <= MAX_DETAILS { whole } else { status(code, error, false).encode_to_vec() }
    }
}

/// `is_whole`: include all details of the error about the request. Otherwise include only its reason and the start of its text.
fn status(code: i32, error: &Error, is_whole: bool) -> Status {
    let metadata = if is_whole { error.details().iter().cloned().collect() } else { BTreeMap::new() };
    let info = ErrorInfo { reason: row(error.kind()).reason.to_owned(), domain: DOMAIN.to_owned(), metadata };
    let mut details = vec![Any::of(&info)];
    if is_whole && !error.violations().is_empty() {
        let field_violations = error.violations().iter().map(|violation| FieldViolation {
            field: violation.field.clone(),
            description: violation.description.clone(),
        });
        details.push(Any::of(&BadRequest { field_violations: field_violations.collect() }));
    }
    if let Some(seconds) = error.retry_after_seconds() {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        details.push(Any::of(&RetryInfo { retry_delay: Some(Delay { seconds, nanos: 0 }) }));
    }
    let most = if is_whole { usize::MAX } else { MAX_TEXT };
    let message = error.message().chars().take(most).collect();
    Status { code, message, details }
}

/// Adds the cursor of an event to its metadata. Other metadata stay unchanged.
fn mark(metadata: Option<&mut Option<Struct>>, cursor: Option<EventId>) {
    let (Some(metadata), Some(cursor)) = (metadata, cursor) else { return };
    let fields = &mut metadata.get_or_insert_default().fields;
    let own = fields.entry(OWN.to_owned()).or_default();
    if !matches!(own.kind, Some(Kind::Struct(_))) {
        *own = Kind::Struct(Struct::default()).into();
    }
    if let Some(Kind::Struct(own)) = &mut own.kind {
        own.fields.insert(CURSOR.to_owned(), Value::from(Kind::String(cursor.to_string())));
    }
}

/// The message of a 0.3 card. In JSON a security requirement is an object whose keys are names of schemes; in the message, a field
/// of the requirement holds that map.
fn card_of_v03(json: &[u8]) -> Result<Vec<u8>> {
    let mut card: serde_json::Value = serde_json::from_slice(json).map_err(Error::internal)?;
    for requirement in
        card.get_mut("security").and_then(|security| security.as_array_mut()).into_iter().flatten()
    {
        let Some(schemes) = requirement.as_object_mut() else { continue };
        for scopes in schemes.values_mut() {
            *scopes = serde_json::json!({"list": scopes.take()});
        }
        *requirement = serde_json::json!({"schemes": requirement.take()});
    }
    let card: v03::AgentCard = serde_json::from_value(card).map_err(Error::internal)?;
    Ok(card.encode_to_vec())
}

/// Decodes the request message of a call to JSON.
fn json_of<M: Message + Default + Serialize>(message: &[u8]) -> Result<String> {
    written(&decoded::<M>(message)?)
}

fn decoded<M: Message + Default>(message: &[u8]) -> Result<M> {
    M::decode(message).map_err(|error| {
        Error::new(
            ErrorKind::Parse,
            "The message of the call cannot be decoded; send the message that the service declares.",
        )
        .caused_by(error)
    })
}

fn written(message: &impl Serialize) -> Result<String> {
    serde_json::to_string(message).map_err(|error| {
        let text = "The message of the call holds an unknown enum value, a number that is not finite, or a time out of range.";
        Error::new(ErrorKind::InvalidParams, text).caused_by(error)
    })
}

/// Encodes JSON that the gateway wrote as a message.
fn message_of<M: Message + DeserializeOwned>(json: &[u8]) -> Result<Vec<u8>> {
    read::<M>(json).map(|message| message.encode_to_vec())
}

fn read<M: DeserializeOwned>(json: &[u8]) -> Result<M> {
    let json = repair::flattened(json);
    serde_json::from_slice(&json)
        .or_else(|_| serde_json::from_slice(&repair::repaired(&json)))
        .map_err(Error::internal)
}
