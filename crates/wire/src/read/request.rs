//! Decodes JSON-RPC params and REST bodies.

use longshore_model::{
    CancelTask, ContextId, Error, ErrorKind, GetTask, ListTasks, OutputModes, Result, Role, SendConfig,
    SendMessage, SubscribeToTask, TaskId, Timestamp,
};
use serde_json::value::RawValue;

use super::message::message;
use super::{id, send_options, some_id};
use crate::json::{
    Fault, Object, Read, boolean, carried_metadata, count, int32, is_null, list, some_text, text,
};
use crate::spelling::{Named, Spelling};
use crate::time;

/// The page size if the caller gives none.
pub(super) const DEFAULT_PAGE_SIZE: u32 = 50;
/// The number of messages in each listed task if the caller gives none: no messages, because they may contain whole files.
pub(super) const LISTED_HISTORY: Option<u32> = Some(0);
/// The largest page size, which the specification limits. A larger one is refused, not reduced.
const MAX_PAGE_SIZE: u32 = 100;
/// Limits for the accepted output modes, because every event of the task repeats them.
const MAX_OUTPUT_MODES: usize = 64;
const MAX_OUTPUT_MODE_BYTES: usize = 255;

/// Decodes a send. `names`: the possible names of the message field, the usual one first. `config`: decodes the configuration,
/// which may be absent.
pub(crate) fn send_message(
    json: &str,
    spelling: &Spelling,
    names: &'static [&'static str],
    config: impl FnOnce(Option<&RawValue>) -> Read<SendConfig>,
) -> Result<SendMessage> {
    params(json, &["tenant", "message", "request", "configuration", "metadata"], |params| {
        let is_there = |name: &&&str| params.raw(name).is_some_and(|raw| !is_null(raw));
        let name = names.iter().find(is_there).unwrap_or(&names[0]);
        let message = params.required(name, |raw| {
            let message = message(raw, spelling)?;
            if message.role != Role::User {
                let user = (spelling.role_name)(Role::User);
                return Err(Fault::new(format!("must be {user} in a message to an agent")).under("role"));
            }
            Ok(message)
        })?;
        let config = match params.optional("configuration", Ok)? {
            Some(raw) => config(Some(raw)).map_err(|fault| fault.under("configuration"))?,
            None => config(None)?,
        };
        let metadata = params.optional("metadata", carried_metadata)?;
        let options = send_options::read(metadata.as_ref(), message.metadata.as_ref())?;
        // The edge sets this later, because the decoder does not know whether the caller may claim sessions.
        Ok(SendMessage { message, config, metadata, options, may_claim: false, trace: None })
    })
}

pub fn get_task(json: &str) -> Result<GetTask> {
    params(json, &["tenant", "id", "historyLength"], |params| {
        Ok(GetTask {
            id: params.required("id", task_id)?,
            history_length: params.optional("historyLength", history_length)?,
        })
    })
}

pub fn cancel_task(json: &str) -> Result<CancelTask> {
    params(json, &["tenant", "id"], |params| Ok(CancelTask { id: params.required("id", task_id)? }))
}

pub fn subscribe(json: &str) -> Result<SubscribeToTask> {
    params(json, &["tenant", "id"], |params| Ok(SubscribeToTask { id: params.required("id", task_id)? }))
}

pub(crate) fn list_tasks(json: &str, spelling: &Spelling) -> Result<ListTasks> {
    let known = &[
        "tenant",
        "contextId",
        "status",
        "pageSize",
        "pageToken",
        "historyLength",
        "statusTimestampAfter",
        "includeArtifacts",
    ];
    params(json, known, |params| {
        let page_size = params.optional("pageSize", |raw| page_size(int32(raw)?))?;
        Ok(ListTasks {
            context_id: params.optional("contextId", |raw| some_id(&text(raw)?, ContextId::parse))?.flatten(),
            state: params.optional("status", spelling.state)?.and_then(Named::value),
            status_after: params.optional("statusTimestampAfter", |raw| moment(&text(raw)?))?,
            page_size: page_size.unwrap_or(DEFAULT_PAGE_SIZE),
            page_token: params.optional("pageToken", some_text)?.flatten(),
            history_length: params.optional("historyLength", history_length)?.or(LISTED_HISTORY),
            include_artifacts: params.optional("includeArtifacts", boolean)?.unwrap_or(false),
        })
    })
}

/// Parses a complete text. `known` must contain "tenant": every request may have that field, and a value in it is refused.
pub(crate) fn params<T>(
    json: &str,
    known: &'static [&'static str],
    read: impl FnOnce(&Object<'_>) -> Read<T>,
) -> Result<T> {
    let params = Object::parse(json, known).map_err(|error| {
        if error.is_data() {
            Error::new(ErrorKind::InvalidParams, "The parameters must be a JSON object.")
        } else {
            Error::new(ErrorKind::Parse, format!("The request is not valid JSON: {error}.")).caused_by(error)
        }
    })?;
    let read = || {
        params.optional("tenant", |raw| no_tenant(&text(raw)?))?;
        read(&params)
    };
    read().map_err(Fault::into_params_error)
}

pub(super) fn no_tenant(tenant: &str) -> Read<()> {
    if tenant.is_empty() {
        return Ok(());
    }
    Err(Fault::new("must be empty: this agent has no tenants"))
}

pub(super) fn page_size(number: i32) -> Read<u32> {
    u32::try_from(number)
        .ok()
        .filter(|size| (1..=MAX_PAGE_SIZE).contains(size))
        .ok_or_else(|| Fault::new("must be from 1 to 100"))
}

/// Reads the inclusive lower bound of a filter.
pub(super) fn moment(text: &str) -> Read<Timestamp> {
    let moment = time::parse(text);
    moment
        .map(time::Moment::ceil)
        .ok_or_else(|| Fault::new("must be an RFC 3339 time, such as 2026-01-31T09:30:00Z"))
}

pub(crate) fn output_modes(raw: &RawValue) -> Read<OutputModes> {
    let modes = list(raw, media_range)?;
    if modes.len() > MAX_OUTPUT_MODES {
        return Err(Fault::new("must have at most 64 elements"));
    }
    Ok(OutputModes::new(modes.iter().map(String::as_str)))
}

/// Reads a media type, with or without parameters, or a media range.
fn media_range(raw: &RawValue) -> Read<String> {
    let range = text(raw)?;
    if range.len() > MAX_OUTPUT_MODE_BYTES {
        return Err(Fault::new("must have at most 255 bytes"));
    }
    let is_token = |token: &str| {
        !token.is_empty() && token.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&b))
    };
    let essence = range.split(';').next().unwrap_or_default().trim();
    let is_range = match essence.split_once('/') {
        None => essence == "*",
        Some(("*", subtype)) => subtype == "*",
        Some((kind, subtype)) => is_token(kind) && (subtype == "*" || is_token(subtype)),
    };
    if is_range { Ok(range) } else { Err(Fault::new("must be a media type, such as text/plain, or */*")) }
}

pub(crate) fn history_length(raw: &RawValue) -> Read<u32> {
    count(int32(raw)?)
}

fn task_id(raw: &RawValue) -> Read<TaskId> {
    id(&text(raw)?, TaskId::parse)
}
