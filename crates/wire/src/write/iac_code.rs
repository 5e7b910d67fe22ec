//! `metadata.iac_code`: details of tool calls, permissions, reasoning and usage, for 1.0 clients that have activated the extensions
//! of `iac-code`. The names are those of `iac-code`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use longshore_model::{
    ArtifactUpdate, AskKind, BlockKind, InterruptNote, InterruptPhase, Part, PartContent, PermissionReply,
    Resolution, StatusUpdate, Task, Usage,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{View, merge};
use crate::extension::Activated;
use crate::json::{ObjectWriter, on_one_line, text_of, write_text};

/// The longest text of a field, in characters. A longer text is cut, as in `iac-code`.
pub(crate) const MAX_CHARS: usize = 4000;

/// The states of a tool call. `iac-code` also has `input_delta`, for arguments that are still being written, but no supported agent
/// reports those.
pub(crate) const TOOL_STATES: [&str; 4] = [STARTED, INPUT_COMPLETE, COMPLETED, FAILED];
const STARTED: &str = "started";
const INPUT_COMPLETE: &str = "input_complete";
const COMPLETED: &str = "completed";
const FAILED: &str = "failed";

/// The deepest nesting inside a long value. Deeper values are replaced by [`OMITTED`], as in `iac-code`.
const MAX_DEPTH: usize = 32;
const OMITTED: &str = "[omitted]";

/// The content of one `metadata.iac_code`, which is usually empty.
#[derive(Default)]
pub(crate) struct Details<'a> {
    tool: Option<ToolDetails<'a>>,
    permission: Option<PermissionDetails>,
    thinking: Option<&'a [Part]>,
    usage: Option<&'a Usage>,
}

struct ToolDetails<'a> {
    status: &'static str,
    call: LoggedCall<'a>,
}

/// A tool call in the form in which the log contains it.
#[derive(Deserialize)]
struct LoggedCall<'a> {
    #[serde(borrow)]
    call_id: Cow<'a, str>,
    #[serde(borrow)]
    tool: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    output: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    error: Option<Cow<'a, str>>,
}

#[derive(Clone, Copy)]
struct PermissionDetails {
    auto_approved: bool,
    pending: bool,
}

impl<'a> Details<'a> {
    /// The details of a status update. A reader without the tool trace sees only a pending permission, which it may have to answer.
    pub(crate) fn of_status(update: &'a StatusUpdate, view: View) -> Self {
        if !view.activated.shows_tool_details() {
            return Self::default();
        }
        let permission = update.notes.interrupt.as_ref().and_then(PermissionDetails::of);
        let permission = permission.filter(|permission| permission.pending || view.exposure.tool_trace);
        Self { permission, usage: update.notes.usage.as_ref(), ..Self::default() }
    }

    pub(crate) fn of_block(update: &'a ArtifactUpdate, activated: Activated) -> Self {
        let parts = &update.artifact.parts;
        match update.artifact.kind {
            BlockKind::ToolCall if activated.shows_tool_details() => {
                Self { tool: parts.last().and_then(ToolDetails::of), ..Self::default() }
            }
            BlockKind::Reasoning if activated.shows_thinking_details() => {
                let has_text = parts.iter().any(|part| part.as_text().is_some_and(|text| !text.is_empty()));
                Self { thinking: has_text.then_some(parts), ..Self::default() }
            }
            _ => Self::default(),
        }
    }

    /// The details of a task: its usage, and its oldest open ask.
    pub(crate) fn of_task(task: &'a Task, activated: Activated) -> Self {
        if !activated.shows_tool_details() {
            return Self::default();
        }
        let permission = task.open_asks.first().and_then(PermissionDetails::of);
        Self { permission, usage: task.usage.as_ref(), ..Self::default() }
    }

    pub(crate) fn has_permission(&self) -> bool {
        self.permission.is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        let Self { tool, permission, thinking, usage } = self;
        tool.is_none() && permission.is_none() && thinking.is_none() && usage.is_none()
    }

    /// Adds these details to the metadata.
    pub(crate) fn added_to<'m>(&self, metadata: Option<Cow<'m, str>>) -> Option<Cow<'m, str>> {
        if self.is_empty() {
            return metadata;
        }
        let mut out = Vec::new();
        merge::write(&mut out, metadata.as_deref(), "iac_code", |object| self.write(object));
        Some(Cow::Owned(String::from_utf8(out).expect("JSON is UTF-8")))
    }

    fn write(&self, object: &mut ObjectWriter<'_>) {
        if let Some(tool) = &self.tool {
            object.object("tool", |object| tool.write(object));
        }
        if let Some(permission) = self.permission {
            object.object("permission", |object| {
                object.boolean("autoApproved", permission.auto_approved);
                if permission.pending {
                    object.boolean("pending", true);
                }
            });
        }
        if let Some(parts) = self.thinking {
            let text: String = parts.iter().filter_map(Part::as_text).collect();
            object.object("thinking", |object| {
                object.text("type", "raw_thinking");
                object.text("text", cut(&text));
            });
        }
        if let Some(usage) = self.usage {
            object.object("usage", |object| {
                object.number("inputTokens", usage.input);
                object.number("outputTokens", usage.output);
                object.number("totalTokens", usage.total);
            });
        }
    }
}

impl<'a> ToolDetails<'a> {
    /// The state of a call. `None`: `iac-code` has no name for it, as for the output of a running tool.
    fn of(part: &'a Part) -> Option<Self> {
        let PartContent::Data(data) = &part.content else { return None };
        let call: LoggedCall<'a> = serde_json::from_str(data.get()).ok()?;
        let status = match &*call.status {
            "pending" => STARTED,
            "running" if call.output.is_none() => INPUT_COMPLETE,
            "completed" => COMPLETED,
            "error" => FAILED,
            _ => return None,
        };
        Some(Self { status, call })
    }

    fn write(&self, object: &mut ObjectWriter<'_>) {
        let LoggedCall { call_id, tool, input, output, error, .. } = &self.call;
        object.text("status", self.status);
        object.text("toolUseId", call_id);
        object.text("name", tool);
        match (self.status, input) {
            (INPUT_COMPLETE, Some(input)) => write_cut(object.key("input"), input.get(), MAX_DEPTH),
            (COMPLETED, _) => object.some_text("result", output.as_deref().map(cut)),
            (FAILED, _) => object.some_text("result", error.as_deref().map(cut)),
            _ => {}
        }
    }
}

impl PermissionDetails {
    /// The permission of an ask. `None`: the ask is no permission request, or a person granted it. An `iac-code` client takes
    /// `autoApproved: false` without `pending` for a rejection.
    fn of(note: &InterruptNote) -> Option<Self> {
        if note.kind != AskKind::Permission {
            return None;
        }
        let is_granted = || note.expired.as_ref().is_some_and(|it| it.answer != PermissionReply::Reject);
        let (auto_approved, pending) = match note.phase {
            InterruptPhase::Asked => (false, true),
            InterruptPhase::Resolved(Resolution::Approved) => (true, false),
            InterruptPhase::Resolved(Resolution::Expired) => (is_granted(), false),
            InterruptPhase::Resolved(
                Resolution::Rejected | Resolution::RejectedElsewhere | Resolution::Dropped,
            ) => (false, false),
            InterruptPhase::Resolved(Resolution::Replied | Resolution::Elsewhere) => return None,
        };
        Some(Self { auto_approved, pending })
    }
}

/// The beginning of a text.
fn cut(text: &str) -> &str {
    text.char_indices().nth(MAX_CHARS).map_or(text, |(end, _)| &text[..end])
}

/// Writes a JSON value in which each long text is cut.
fn write_cut(out: &mut Vec<u8>, json: &str, depth: usize) {
    // A value without long texts is copied. A text never has more characters than its JSON has bytes.
    if json.len() <= MAX_CHARS {
        return out.extend_from_slice(on_one_line(json).as_bytes());
    }
    match json.as_bytes().first() {
        Some(b'{' | b'[') if depth == 0 => write_text(out, OMITTED),
        Some(b'{') => {
            let fields: BTreeMap<String, &RawValue> = serde_json::from_str(json).unwrap_or_default();
            let mut object = ObjectWriter::begin(out);
            for (key, value) in fields {
                write_cut(object.foreign_key(&key), value.get(), depth - 1);
            }
            object.end();
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(json).unwrap_or_default();
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_cut(out, item.get(), depth - 1);
            }
            out.push(b']');
        }
        Some(b'"') => write_text(out, text_of(json).as_deref().map_or(OMITTED, cut)),
        _ => out.extend_from_slice(json.as_bytes()),
    }
}
