//! Decodes the options for the gateway from the metadata of a send. All other metadata is passed on without being read.
//!
//! Options in the request's metadata override those in the message's metadata, field by field. Blank text counts as absent. Both
//! objects are checked: an error in one of them is reported even if the other one overrides the field.

use std::collections::BTreeMap;

use longshore_model::{
    Delivery, Hop, Hops, MAX_HOPS, Metadata, ModelName, PromptOptions, PushEvents, PushWord, SendOptions,
    SessionId,
};
use serde_json::value::RawValue;

use super::id;
use crate::agent_options;
use crate::extension::Extension;
use crate::json::{Fault, Object, Read, is_null, list, members, text};
use crate::names::{AGENT_OBJECT, DIRECTORY, WORKSPACE};

#[cfg(test)]
mod tests;

/// The longest text of a field. A longer one is refused, because the gateway stores the text for as long as the task.
const MAX_BYTES: usize = 1024;
/// How many options of the agent a message may choose.
const MAX_CONFIG: usize = 32;
/// The longest system prompt.
const MAX_SYSTEM_BYTES: usize = 64 * 1024;

pub(super) fn read(request: Option<&Metadata>, message: Option<&Metadata>) -> Read<SendOptions> {
    let [first, second] = both(request, message)?;
    let options = SendOptions {
        session: first.session.or(second.session),
        session_title: first.session_title.or(second.session_title),
        directory: first.directory.or(first.cwd).or(second.directory).or(second.cwd),
        workspace: first.workspace.or(second.workspace),
        delivery: first.delivery.or(second.delivery).unwrap_or_default(),
        prompt: first.prompt.or(&second.prompt),
        push_events: first.push_events.or(second.push_events),
    };
    // A turn has the chain of gateways of the message that started it. A message that joins would hide its own chain.
    if options.delivery == Delivery::Steer && !options.prompt.hops.is_empty() {
        let fault = Fault::new("must not be steer: a message of another gateway's agent cannot join a turn");
        return Err(fault.under("delivery").under("shared").under("metadata"));
    }
    Ok(options)
}

/// The paths of the option fields in use that belong to extensions. The metadata must be valid.
pub(crate) fn gated_fields(
    request: Option<&Metadata>,
    message: Option<&Metadata>,
) -> Vec<(String, Extension)> {
    let Ok(sources) = both(request, message) else { return Vec::new() };
    let mut fields = Vec::new();
    for (options, path) in sources.iter().zip(["metadata", "message.metadata"]) {
        let model = options.prompt.model.as_ref();
        let is_plain = model.is_some_and(|model| model.provider.is_empty());
        let has_both = model.is_some() && !is_plain;
        // The alias `cwd` of the directory is not listed, because the clients that use it do not know these extensions.
        for (is_used, field, extension) in [
            (options.session.is_some(), "shared.session.id", Extension::SessionBinding),
            (options.directory.is_some(), DIRECTORY, Extension::SessionBinding),
            (options.workspace.is_some(), WORKSPACE, Extension::SessionBinding),
            (is_plain, "shared.model", Extension::ModelSelection),
            (has_both, "shared.model.providerID", Extension::ModelSelection),
            (has_both, "shared.model.modelID", Extension::ModelSelection),
        ] {
            if is_used {
                fields.push((format!("{path}.{field}"), extension));
            }
        }
    }
    fields
}

/// The options in one of the two metadata objects.
#[derive(Default)]
pub(crate) struct MetadataOptions {
    session: Option<SessionId>,
    session_title: Option<String>,
    pub(crate) directory: Option<String>,
    /// Another name for the directory.
    cwd: Option<String>,
    pub(crate) workspace: Option<String>,
    delivery: Option<Delivery>,
    pub(crate) prompt: PromptOptions,
    push_events: Option<PushEvents>,
}

fn both(request: Option<&Metadata>, message: Option<&Metadata>) -> Read<[MetadataOptions; 2]> {
    Ok([
        MetadataOptions::read(request).map_err(|fault| fault.under("metadata"))?,
        MetadataOptions::read(message).map_err(|fault| fault.under("metadata").under("message"))?,
    ])
}

impl MetadataOptions {
    fn read(metadata: Option<&Metadata>) -> Read<Self> {
        let mut options = Self::default();
        let Some(metadata) = metadata else { return Ok(options) };
        let metadata = Object::read(metadata.json().raw(), &["shared", AGENT_OBJECT, "iac_code"])?;
        metadata.optional("shared", |raw| options.read_shared(raw))?;
        metadata.optional(AGENT_OBJECT, |raw| agent_options::read(raw, &mut options))?;
        metadata.optional("iac_code", |raw| {
            let object = Object::read(raw, &["cwd"])?;
            options.cwd = field(&object, "cwd", line)?;
            let differs =
                options.cwd.is_some() && options.directory.is_some() && options.cwd != options.directory;
            if differs {
                return Err(
                    Fault::new(format!("is not the same as {DIRECTORY}; leave one of them out")).under("cwd")
                );
            }
            Ok(())
        })?;
        Ok(options)
    }

    fn read_shared(&mut self, raw: &RawValue) -> Read<()> {
        let shared = Object::read(raw, &["session", "model", "mode", "config", "delivery", "push", "hops"])?;
        shared.optional("session", |raw| self.read_session(raw))?;
        self.prompt.model = field(&shared, "model", model)?;
        self.prompt.mode = field(&shared, "mode", line)?;
        self.prompt.config = shared.optional("config", config)?.unwrap_or_default();
        self.prompt.hops = shared.optional("hops", hops)?.unwrap_or_default();
        self.push_events = field(&shared, "push", |raw| {
            field(&Object::read(raw, &["events"])?, "events", |raw| push_events(raw).map(Some))
        })?;
        self.delivery = field(&shared, "delivery", |raw| line(raw)?.map(|word| delivery(&word)).transpose())?;
        Ok(())
    }

    /// Reads the session. Does not read a title next to an id: the session exists and has a title, and clients may send the object
    /// back as the gateway wrote it.
    fn read_session(&mut self, raw: &RawValue) -> Read<()> {
        let session = Object::read(raw, &["id", "title"])?;
        self.session =
            field(&session, "id", |raw| line(raw)?.map(|text| id(&text, SessionId::parse)).transpose())?;
        if self.session.is_none() {
            self.session_title = field(&session, "title", title)?;
        }
        Ok(())
    }
}

/// Reads a field that may be absent, `null` or blank.
pub(crate) fn field<T>(
    object: &Object<'_>,
    name: &str,
    read: impl Fn(&RawValue) -> Read<Option<T>>,
) -> Read<Option<T>> {
    Ok(object.optional(name, read)?.flatten())
}

/// Reads the model: its id, or an object with the id and perhaps the provider. The agent decides whether an id alone is enough.
/// Provider and model must be in the same object, so that parts of two requests are never combined.
fn model(raw: &RawValue) -> Read<Option<ModelName>> {
    if raw.get().starts_with('"') {
        return Ok(line(raw)?.map(ModelName::plain));
    }
    let object = Object::read(raw, &["providerID", "modelID"])?;
    match (field(&object, "providerID", line)?, field(&object, "modelID", line)?) {
        (Some(provider), Some(model)) => Ok(Some(ModelName { provider, model })),
        (None, model) => Ok(model.map(ModelName::plain)),
        (Some(_), None) => {
            Err(Fault::new("is required together with providerID: a model is named by both").under("modelID"))
        }
    }
}

/// Reads an object with the ids of options and their values.
fn config(raw: &RawValue) -> Read<BTreeMap<String, String>> {
    let members = members(raw.get())?;
    if members.len() > MAX_CONFIG {
        return Err(Fault::new("must have at most 32 members"));
    }
    let mut config = BTreeMap::new();
    for (id, value) in members {
        if id.len() > MAX_BYTES || id.contains(char::is_control) {
            return Err(Fault::new("must have names of at most 1024 bytes without control characters"));
        }
        let value = if is_null(value) { None } else { line(value).map_err(|fault| fault.under(&id))? };
        config.extend(value.map(|value| (id, value)));
    }
    Ok(config)
}

/// Reads the chain of gateways through which the message came. Only the gateways in the chain can verify their entries.
fn hops(raw: &RawValue) -> Read<Hops> {
    let hops = list(raw, |raw| {
        let hop = Object::read(raw, &["gateway", "signature"])?;
        let required = |name| field(&hop, name, line)?.ok_or_else(|| Fault::new("is required").under(name));
        Ok(Hop { gateway: required("gateway")?, signature: required("signature")? })
    })?;
    if hops.len() > MAX_HOPS {
        return Err(Fault::new(format!("has {} entries, and at most {MAX_HOPS} are read", hops.len())));
    }
    Ok(Hops(hops))
}

fn delivery(word: &str) -> Read<Delivery> {
    Delivery::parse(word).ok_or_else(|| {
        let words = Delivery::ALL.map(Delivery::as_str);
        Fault::new(format!("must be one of {}", words.join(", ")))
    })
}

/// Reads `all`, or a list of states (in the spelling of any version) and `artifact`.
fn push_events(raw: &RawValue) -> Read<PushEvents> {
    if !raw.get().starts_with('[') {
        return match text(raw)?.as_str() {
            "all" => Ok(PushEvents::ALL),
            _ => Err(Fault::new("must be all, or a list of states and artifact")),
        };
    }
    let words = list(raw, |raw| {
        let word = text(raw)?;
        let plain = word.strip_prefix("TASK_STATE_").map(str::to_ascii_lowercase);
        let plain = plain.unwrap_or(word).replace('-', "_");
        let known = if plain == "cancelled" { "canceled" } else { &plain };
        PushWord::parse(known)
            .ok_or_else(|| Fault::new("must be a state of a task, such as completed, or artifact"))
    })?;
    if words.is_empty() {
        return Err(Fault::new("must have at least one element"));
    }
    Ok(words.into_iter().collect())
}

/// Reads a text of one line.
pub(crate) fn line(raw: &RawValue) -> Read<Option<String>> {
    checked(raw, MAX_BYTES, "must have at most 1024 bytes", |_| false)
}

/// Reads a title. Its lines are joined into one, because agents and clients show titles in lists.
fn title(raw: &RawValue) -> Read<Option<String>> {
    let text = checked(raw, MAX_BYTES, "must have at most 1024 bytes", |c| matches!(c, '\n' | '\r' | '\t'))?;
    let lines = |text: &String| {
        let lines = text.split(['\n', '\r', '\t']).map(str::trim).filter(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join(" ")
    };
    Ok(text.as_ref().map(lines))
}

/// Reads a text of any number of lines.
pub(crate) fn lines(raw: &RawValue) -> Read<Option<String>> {
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
