//! Reads responses of both versions. Missing and unknown fields are accepted as long as the rest makes sense.

use longshore_model::TaskState;
use serde_json::{Map, Value};

use crate::request::Dialect;
use crate::value::{
    Artifact, ArtifactUpdate, Content, Event, Message, Metadata, Part, Role, Status, StatusUpdate, Task,
};
use crate::{Error, Result};

/// Reads the event in one message of a stream, or in the response to a sent message.
pub(crate) fn event(json: &Value, dialect: Dialect) -> Result<Event> {
    let wrapped = |name: &str| json.get(name).filter(|value| value.is_object());
    if let Some(task) = wrapped("task") {
        return self::task(task, dialect).map(Event::Task);
    }
    if let Some(message) = wrapped("message").filter(|message| message.get("role").is_some()) {
        return self::message(message, dialect).map(Event::Message);
    }
    if let Some(update) = wrapped("statusUpdate") {
        return status_update(update, dialect);
    }
    if let Some(update) = wrapped("artifactUpdate") {
        return artifact_update(update, dialect);
    }
    match json["kind"].as_str() {
        Some("task") => task(json, dialect).map(Event::Task),
        Some("message") => message(json, dialect).map(Event::Message),
        Some("status-update") => status_update(json, dialect),
        Some("artifact-update") => artifact_update(json, dialect),
        _ => Err(malformed("it is no task, message or update")),
    }
}

pub(crate) fn task(json: &Value, dialect: Dialect) -> Result<Task> {
    Ok(Task {
        id: required(json, "id")?,
        context_id: text(json, "contextId").unwrap_or_default(),
        status: status(json.get("status").ok_or_else(|| malformed("a task has no status"))?, dialect)?,
        artifacts: each(json, "artifacts", |artifact| self::artifact(artifact, dialect))?,
        history: each(json, "history", |message| self::message(message, dialect))?,
        metadata: metadata(json),
    })
}

pub(crate) fn message(json: &Value, dialect: Dialect) -> Result<Message> {
    let parts = if json["parts"].is_array() { "parts" } else { "content" };
    Ok(Message {
        message_id: text(json, "messageId").unwrap_or_default(),
        context_id: text(json, "contextId").unwrap_or_default(),
        task_id: text(json, "taskId").unwrap_or_default(),
        role: match json["role"].as_str() {
            Some("user" | "ROLE_USER") => Role::User,
            _ => Role::Agent,
        },
        parts: each(json, parts, |part| Ok(self::part(part, dialect)))?,
        metadata: metadata(json),
    })
}

fn status(json: &Value, dialect: Dialect) -> Result<Status> {
    let message = json.get("message").filter(|message| message.is_object());
    Ok(Status {
        state: json["state"].as_str().and_then(state),
        message: message.map(|message| self::message(message, dialect)).transpose()?,
        timestamp: text(json, "timestamp"),
    })
}

/// Reads a task state in the spelling of any version. `None`: A2A has no such state.
fn state(word: &str) -> Option<TaskState> {
    let word = word.strip_prefix("TASK_STATE_").unwrap_or(word).to_ascii_lowercase().replace('-', "_");
    TaskState::parse(if word == "cancelled" { "canceled" } else { &word })
}

fn status_update(json: &Value, dialect: Dialect) -> Result<Event> {
    let status = json.get("status").ok_or_else(|| malformed("a status update has no status"))?;
    Ok(Event::StatusUpdate(StatusUpdate {
        task_id: required(json, "taskId")?,
        context_id: text(json, "contextId").unwrap_or_default(),
        status: self::status(status, dialect)?,
        metadata: metadata(json),
    }))
}

fn artifact_update(json: &Value, dialect: Dialect) -> Result<Event> {
    let artifact = json.get("artifact").ok_or_else(|| malformed("an artifact update has no artifact"))?;
    Ok(Event::ArtifactUpdate(ArtifactUpdate {
        task_id: required(json, "taskId")?,
        context_id: text(json, "contextId").unwrap_or_default(),
        artifact: self::artifact(artifact, dialect)?,
        append: json["append"] == true,
        last_chunk: json["lastChunk"] == true,
        metadata: metadata(json),
    }))
}

fn artifact(json: &Value, dialect: Dialect) -> Result<Artifact> {
    Ok(Artifact {
        artifact_id: required(json, "artifactId")?,
        name: text(json, "name"),
        description: text(json, "description"),
        parts: each(json, "parts", |part| Ok(self::part(part, dialect)))?,
        metadata: metadata(json),
    })
}

/// Reads a part. A part of an unknown kind becomes data.
fn part(json: &Value, dialect: Dialect) -> Part {
    let file = json.get("file").filter(|file| file.is_object());
    let (content, filename, media_type) = if let Some(file) = file {
        let bytes = text(file, "bytes").or_else(|| text(file, "fileWithBytes")).map(Content::Raw);
        let url = || text(file, "uri").or_else(|| text(file, "fileWithUri")).map(Content::Url);
        (bytes.or_else(url), text(file, "name"), text(file, "mimeType"))
    } else {
        let data = json.get("data").map(|data| match (dialect, data.get("data")) {
            // In ProtoJSON of 0.3, another object encloses the data.
            (Dialect::V03Rest, Some(inner)) => inner.clone(),
            _ => data.clone(),
        });
        let content = text(json, "text").map(Content::Text);
        let content = content.or_else(|| text(json, "raw").map(Content::Raw));
        let content = content.or_else(|| text(json, "url").map(Content::Url));
        (content.or_else(|| data.map(Content::Data)), text(json, "filename"), text(json, "mediaType"))
    };
    let content = content.unwrap_or_else(|| Content::Data(json.clone()));
    Part { content, filename, media_type, metadata: metadata(json) }
}

fn each<T>(json: &Value, name: &str, read: impl FnMut(&Value) -> Result<T>) -> Result<Vec<T>> {
    json[name].as_array().into_iter().flatten().map(read).collect()
}

fn text(json: &Value, name: &str) -> Option<String> {
    json[name].as_str().filter(|text| !text.is_empty() || name == "text").map(str::to_owned)
}

fn required(json: &Value, name: &str) -> Result<String> {
    text(json, name).ok_or_else(|| malformed(&format!("the field {name} is missing")))
}

fn metadata(json: &Value) -> Metadata {
    json["metadata"].as_object().cloned().unwrap_or_else(Map::new)
}

pub(crate) fn malformed(what: &str) -> Error {
    Error::invalid_response(format!("The response of the agent cannot be read: {what}."))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The same task in the three formats of the two versions.
    #[test]
    fn every_format_of_a_task_reads_the_same() {
        let of_1_0 = json!({"task": {"id": "a/b", "contextId": "c d", "status": {"state": "TASK_STATE_CANCELED",
            "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Stopped."}]}},
            "artifacts": [{"artifactId": "x", "parts": [{"text": "hi"}, {"raw": "aGk=", "mediaType": "text/plain", "filename": "f"},
                {"data": {"n": 1}}]}]}});
        let of_rpc = json!({"kind": "task", "id": "a/b", "contextId": "c d", "status": {"state": "canceled",
            "message": {"kind": "message", "messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "Stopped."}]}},
            "artifacts": [{"artifactId": "x", "parts": [{"kind": "text", "text": "hi"},
                {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "text/plain", "name": "f"}}, {"kind": "data", "data": {"n": 1}}]}]});
        let of_rest = json!({"task": {"id": "a/b", "contextId": "c d", "status": {"state": "TASK_STATE_CANCELLED",
            "message": {"messageId": "m", "role": "ROLE_AGENT", "content": [{"text": "Stopped."}]}},
            "artifacts": [{"artifactId": "x", "parts": [{"text": "hi"},
                {"file": {"fileWithBytes": "aGk=", "mimeType": "text/plain", "name": "f"}}, {"data": {"data": {"n": 1}}}]}]}});
        let read = event(&of_1_0, Dialect::V1).unwrap();
        assert_eq!(event(&of_rpc, Dialect::V03Rpc).unwrap(), read);
        assert_eq!(event(&of_rest, Dialect::V03Rest).unwrap(), read);
        assert_eq!(serde_json::to_value(&read).unwrap(), of_1_0, "a task is written in the format of 1.0");
    }

    #[test]
    fn what_agents_leave_out_is_no_error_and_what_has_no_meaning_is() {
        let bare = json!({"task": {"id": "t", "status": {"state": "unknown"}}});
        let Event::Task(task) = event(&bare, Dialect::V1).unwrap() else { panic!("a task") };
        assert_eq!((task.status.state, task.context_id.as_str()), (None, ""));
        for json in [
            json!({}),
            json!({"task": {"id": "t"}}),
            json!({"kind": "x"}),
            json!("text"),
            json!({"task": {"status": {}}}),
        ] {
            let error = event(&json, Dialect::V1).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidResponse, "{json}");
        }
    }
}
