//! Decodes messages.

use longshore_model::{ContextId, Message, MessageId, Role, TaskId};
use serde_json::value::RawValue;

use super::{id, some_id};
use crate::json::{Fault, Object, Read, carried_metadata, is_null, text};
use crate::spelling::Spelling;

/// Reads a message of any role. The caller checks which role is allowed.
pub(crate) fn message(raw: &RawValue, spelling: &Spelling) -> Read<Message> {
    let known = &[
        "messageId",
        "contextId",
        "taskId",
        "role",
        "parts",
        "content",
        "metadata",
        "extensions",
        "referenceTaskIds",
    ];
    let message = Object::read(raw, known)?;
    let is_there = |name: &&&str| message.raw(name).is_some_and(|raw| !is_null(raw));
    let parts = spelling.parts.iter().find(is_there).unwrap_or(&spelling.parts[0]);
    Ok(Message {
        id: message.required("messageId", |raw| id(&text(raw)?, MessageId::parse))?,
        role: message
            .required("role", |raw| (spelling.role)(raw)?.value().ok_or_else(|| unknown_role(spelling)))?,
        parts: message.filled_list(parts, spelling.read_part)?,
        context_id: message.optional("contextId", |raw| some_id(&text(raw)?, ContextId::parse))?.flatten(),
        task_id: message.optional("taskId", |raw| some_id(&text(raw)?, TaskId::parse))?.flatten(),
        reference_task_ids: message.list("referenceTaskIds", |raw| id(&text(raw)?, TaskId::parse))?,
        extensions: message.list("extensions", text)?,
        metadata: message.optional("metadata", carried_metadata)?,
    })
}

fn unknown_role(spelling: &Spelling) -> Fault {
    let [user, agent] = [Role::User, Role::Agent].map(spelling.role_name);
    Fault::new(format!("must be {user} or {agent}"))
}
