//! Writes sessions, and their messages, statuses, todos and changes.

use longshore_model::{
    AgentMessageId, AgentPartId, FileDiff, Part, SessionId, SessionInfo, SessionStatus, StoredMessage,
    TaskState, Timestamp, Todo,
};

use super::spelling;
use crate::json::{ObjectWriter, write_number};
use crate::names::CONTEXT_PREFIX;
use crate::spelling::PartView;
use crate::surface::ProtocolVersion;
use crate::time;
use crate::write::write_kind;

/// Writes the statuses sorted by session id.
pub(super) fn write_statuses(object: &mut ObjectWriter<'_>, statuses: &[SessionStatus]) {
    let mut statuses: Vec<&SessionStatus> = statuses.iter().collect();
    statuses.sort_by(|one, other| one.session.cmp(&other.session));
    object.array("items", statuses, |out, info| {
        let SessionStatus { session, kind, attempt, message, next } = info;
        let mut item = ObjectWriter::begin(out);
        item.text("session_id", session.as_str());
        item.text("type", kind);
        if let Some(attempt) = attempt {
            item.number("attempt", *attempt);
        }
        item.some_text("message", message.as_deref());
        write_millis(&mut item, "next", *next);
        item.end();
    });
}

/// Writes a session as a completed task. Its current activity is visible in the session status and in the tasks of its turns.
pub(super) fn write_task(out: &mut Vec<u8>, info: &SessionInfo, version: ProtocolVersion) {
    let spelling = spelling(version);
    let mut task = ObjectWriter::begin(out);
    write_kind(&mut task, "task", spelling);
    task.text("id", info.id.as_str());
    write_context(&mut task, info.id.as_str());
    task.object("status", |status| {
        status.text("state", (spelling.state_name)(TaskState::Completed));
        if let Some(at) = info.updated.or(info.created) {
            let out = status.key("timestamp");
            out.push(b'"');
            time::write(out, at);
            out.push(b'"');
        }
    });
    task.object("metadata", |metadata| write_session(metadata, info.id.as_str(), Some(&info.title)));
    task.end();
}

pub(super) fn write_message(out: &mut Vec<u8>, info: &StoredMessage, version: ProtocolVersion) {
    let spelling = spelling(version);
    let StoredMessage { id, session, role, text, created: _, error } = info;
    let mut message = ObjectWriter::begin(out);
    write_kind(&mut message, "message", spelling);
    message.text("messageId", id.as_str());
    write_context(&mut message, session.as_str());
    message.text("role", (spelling.role_name)(*role));
    // An empty text is written too, because a message needs at least one part.
    let part = Part::text(text.as_str());
    message.array("parts", [&part], |out, part| {
        (spelling.write_part)(out, PartView { part, as_text: false, block: None });
    });
    message.object("metadata", |metadata| {
        write_session(metadata, session.as_str(), None);
        if let Some(error) = error {
            metadata.object("opencode", |opencode| opencode.text("error", error));
        }
    });
    message.end();
}

fn write_context(object: &mut ObjectWriter<'_>, session: &str) {
    // Ids contain no character that needs escaping.
    write_number(object.key("contextId"), format_args!("\"{CONTEXT_PREFIX}{session}\""));
}

fn write_session(metadata: &mut ObjectWriter<'_>, id: &str, title: Option<&str>) {
    metadata.object("shared", |shared| {
        shared.object("session", |session| {
            session.text("id", id);
            session.some_text("title", title);
        });
    });
}

pub(super) fn write_summary(out: &mut Vec<u8>, info: &SessionInfo) {
    let mut item = ObjectWriter::begin(out);
    item.text("id", info.id.as_str());
    item.text("title", &info.title);
    item.some_text("project_id", info.project.as_deref());
    item.some_text("directory", info.directory.as_deref());
    item.some_text("parent_id", info.parent.as_ref().map(SessionId::as_str));
    item.some_text("version", info.version.as_deref());
    item.some_text("share_url", info.share_url.as_deref());
    if let Some(revert) = &info.revert {
        item.object("revert", |object| {
            object.text("message_id", revert.message.as_str());
            object.some_text("part_id", revert.part.as_ref().map(AgentPartId::as_str));
            object.some_text("snapshot", revert.snapshot.as_deref());
            object.some_text("diff", revert.diff.as_deref());
        });
    }
    item.end();
}

/// Writes todos. Clients expect ids, which OpenCode's todos do not have, so their positions serve as ids.
pub(super) fn write_todos(object: &mut ObjectWriter<'_>, todos: &[Todo]) {
    object.array("items", (1_usize..).zip(todos), |out, (position, todo)| {
        let mut item = ObjectWriter::begin(out);
        item.text("id", &position.to_string());
        item.text("content", &todo.content);
        item.text("status", &todo.status);
        item.text("priority", &todo.priority);
        item.end();
    });
}

pub(super) fn write_diff(out: &mut Vec<u8>, info: &FileDiff) {
    let FileDiff { file, patch, status, additions, deletions, message } = info;
    let mut item = ObjectWriter::begin(out);
    item.text("file", file);
    item.some_text("patch", patch.as_deref());
    item.some_text("status", status.as_deref());
    item.number("additions", *additions);
    item.number("deletions", *deletions);
    item.some_text("message_id", message.as_ref().map(AgentMessageId::as_str));
    item.end();
}

/// Writes a time in milliseconds since 1970, which is OpenCode's format.
pub(super) fn write_millis(object: &mut ObjectWriter<'_>, key: &str, at: Option<Timestamp>) {
    if let Some(Timestamp(millis)) = at {
        object.number(key, millis);
    }
}
