//! What a caller asks of the gateway in metadata. Everything else in there is carried, not read.
//!
//! The request's metadata counts before the message's, field by field, and blank text is no text. Both are checked: what
//! is wrong in one is told even where the other has the last word.

use longshore_model::id::check_id;
use longshore_model::{Delivery, Metadata, ModelName, PromptOptions, SendOptions, SessionId};
use serde_json::value::RawValue;

use super::id;
use crate::extension::Extension;
use crate::json::{Fault, Object, Read, text};

#[cfg(test)]
mod tests;

/// The longest text of a field. What the gateway keeps, it keeps for as long as the task; so a longer one is refused.
const MAX_BYTES: usize = 1024;
/// The same for instructions to the agent.
const MAX_SYSTEM_BYTES: usize = 64 * 1024;

pub(super) fn wishes(request: Option<&Metadata>, message: Option<&Metadata>) -> Read<SendOptions> {
    let [first, second] = both(request, message)?;
    Ok(SendOptions {
        session: first.session.or(second.session),
        directory: first.directory.or(first.cwd).or(second.directory).or(second.cwd),
        workspace: first.workspace.or(second.workspace),
        delivery: first.delivery.or(second.delivery).unwrap_or_default(),
        prompt: first.prompt.or(&second.prompt),
    })
}

/// The fields in use that belong to extensions, by their paths. Metadata that cannot be read has been refused before.
pub(crate) fn gated_fields(
    request: Option<&Metadata>,
    message: Option<&Metadata>,
) -> Vec<(String, Extension)> {
    let Ok(sources) = both(request, message) else { return Vec::new() };
    let mut fields = Vec::new();
    for (said, place) in sources.iter().zip(["metadata", "message.metadata"]) {
        let has_model = said.prompt.model.is_some();
        // Not the alias of the directory: those who use it know nothing of these extensions.
        for (is_used, field, extension) in [
            (said.session.is_some(), "shared.session.id", Extension::SessionBinding),
            (said.directory.is_some(), "opencode.directory", Extension::SessionBinding),
            (said.workspace.is_some(), "opencode.workspace.id", Extension::SessionBinding),
            (has_model, "shared.model.providerID", Extension::ModelSelection),
            (has_model, "shared.model.modelID", Extension::ModelSelection),
        ] {
            if is_used {
                fields.push((format!("{place}.{field}"), extension));
            }
        }
    }
    fields
}

/// What one metadata object says.
#[derive(Default)]
struct Said {
    session: Option<SessionId>,
    directory: Option<String>,
    /// Another name for the directory.
    cwd: Option<String>,
    workspace: Option<String>,
    delivery: Option<Delivery>,
    prompt: PromptOptions,
}

fn both(request: Option<&Metadata>, message: Option<&Metadata>) -> Read<[Said; 2]> {
    Ok([
        said(request).map_err(|fault| fault.under("metadata"))?,
        said(message).map_err(|fault| fault.under("metadata").under("message"))?,
    ])
}

fn said(metadata: Option<&Metadata>) -> Read<Said> {
    let mut said = Said::default();
    let Some(metadata) = metadata else { return Ok(said) };
    let metadata = Object::read(metadata.json().raw(), &["shared", "opencode", "iac_code"])?;
    metadata.optional("shared", |raw| said.read_shared(raw))?;
    metadata.optional("opencode", |raw| said.read_opencode(raw))?;
    metadata.optional("iac_code", |raw| {
        let object = Object::read(raw, &["cwd"])?;
        said.cwd = field(&object, "cwd", line)?;
        let is_other = said.cwd.is_some() && said.directory.is_some() && said.cwd != said.directory;
        if is_other {
            return Err(
                Fault::new("is not the same as opencode.directory; leave one of them out").under("cwd")
            );
        }
        Ok(())
    })?;
    Ok(said)
}

impl Said {
    fn read_shared(&mut self, raw: &RawValue) -> Read<()> {
        let shared = Object::read(raw, &["session", "model", "delivery"])?;
        self.session = field(&shared, "session", |raw| {
            let session = |raw: &RawValue| line(raw)?.map(|text| id(&text, SessionId::parse)).transpose();
            field(&Object::read(raw, &["id"])?, "id", session)
        })?;
        self.prompt.model = field(&shared, "model", model)?;
        self.delivery = field(&shared, "delivery", |raw| line(raw)?.map(|word| delivery(&word)).transpose())?;
        Ok(())
    }

    fn read_opencode(&mut self, raw: &RawValue) -> Read<()> {
        let known = &["directory", "workspace", "agent", "variant", "system", "format"];
        let opencode = Object::read(raw, known)?;
        self.directory = field(&opencode, "directory", line)?;
        self.workspace = field(&opencode, "workspace", |raw| {
            let workspace = |raw: &RawValue| line(raw)?.map(workspace_id).transpose();
            field(&Object::read(raw, &["id"])?, "id", workspace)
        })?;
        self.prompt.agent = field(&opencode, "agent", line)?;
        self.prompt.variant = field(&opencode, "variant", line)?;
        self.prompt.system = field(&opencode, "system", lines)?;
        field(&opencode, "format", |raw| format(raw).map(Some))?;
        Ok(())
    }
}

/// A field that may be absent, be `null`, or say nothing.
fn field<T>(object: &Object<'_>, name: &str, read: impl Fn(&RawValue) -> Read<Option<T>>) -> Read<Option<T>> {
    Ok(object.optional(name, read)?.flatten())
}

/// Both halves come from one object: halves of two different models make no third.
fn model(raw: &RawValue) -> Read<Option<ModelName>> {
    let object = Object::read(raw, &["providerID", "modelID"])?;
    let missing = |half: &str, other: &str| {
        Err(Fault::new(format!("is required beside {other}: a model is named by both")).under(half))
    };
    match (field(&object, "providerID", line)?, field(&object, "modelID", line)?) {
        (Some(provider), Some(model)) => Ok(Some(ModelName { provider, model })),
        (None, None) => Ok(None),
        (None, Some(_)) => missing("providerID", "modelID"),
        (Some(_), None) => missing("modelID", "providerID"),
    }
}

fn delivery(word: &str) -> Read<Delivery> {
    Delivery::parse(word).ok_or_else(|| {
        let words = Delivery::ALL.map(Delivery::as_str);
        Fault::new(format!("must be one of {}", words.join(", ")))
    })
}

fn workspace_id(text: String) -> Read<String> {
    check_id(&text).map_err(|error| Fault::new(error.to_string()))?;
    if text.starts_with("wrk") {
        Ok(text)
    } else {
        Err(Fault::new("must begin with wrk, as OpenCode's ids do"))
    }
}

/// OpenCode takes a schema and then cannot list the messages of its session any more.
fn format(raw: &RawValue) -> Read<()> {
    Object::read(raw, &["type"])?.required("type", |raw| match text(raw)?.as_str() {
        "text" => Ok(()),
        "json_schema" => Err(Fault::new(
            "json_schema is not taken: OpenCode cannot read such a session back; ask for JSON in the message's text",
        )),
        _ => Err(Fault::new("must be text")),
    })
}

fn line(raw: &RawValue) -> Read<Option<String>> {
    checked(raw, MAX_BYTES, "must have at most 1024 bytes", |_| false)
}

/// Text of many lines.
fn lines(raw: &RawValue) -> Read<Option<String>> {
    checked(raw, MAX_SYSTEM_BYTES, "must have at most 65536 bytes", |c| matches!(c, '\n' | '\r' | '\t'))
}

fn checked(
    raw: &RawValue,
    max: usize,
    too_long: &'static str,
    is_layout: impl Fn(char) -> bool,
) -> Read<Option<String>> {
    let text = text(raw)?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    if text.len() > max {
        return Err(Fault::new(too_long));
    }
    if text.contains(|c: char| c.is_control() && !is_layout(c)) {
        return Err(Fault::new("must not hold control characters"));
    }
    Ok(Some(text))
}
