//! What callers may do only once they activated an extension: its JSON-RPC methods, and its fields of a message's metadata.

use bytes::Bytes;
use longshore_model::{
    Answer, AskKind, Error, ErrorKind, Interrupt, PermissionReply, RequestId, Result, SendMessage, Timestamp,
};
use serde_json::value::RawValue;

use crate::extension::{Activated, Extension, HEADER, listed, naming};
use crate::json::{Fault, Object, ObjectWriter, Read, list, text, text_of_list, unknown_key, write_number};
use crate::read::wishes::gated_fields;

#[cfg(test)]
mod tests;

/// A method of an extension.
#[derive(Debug)]
pub struct Method {
    pub name: &'static str,
    /// What the card calls it.
    pub key: &'static str,
    pub extension: Extension,
    params: &'static [&'static str],
    action: Action,
}

#[derive(Debug)]
enum Action {
    /// Answers the ask that `request_id` names; this reads the answer.
    Answer(fn(&Object<'_>) -> Read<Answer>),
    List(AskKind),
}

/// What a caller asks for by one of these methods.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    Answer {
        request: RequestId,
        answer: Answer,
    },
    /// The asks of this kind that are open.
    List(AskKind),
}

pub const METHODS: [Method; 5] = [
    Method {
        name: "a2a.interrupt.permission.reply",
        key: "reply_permission",
        extension: Extension::InteractiveInterrupt,
        params: &["request_id", "metadata", "reply", "message"],
        action: Action::Answer(permission),
    },
    Method {
        name: "a2a.interrupt.question.reply",
        key: "reply_question",
        extension: Extension::InteractiveInterrupt,
        params: &["request_id", "metadata", "answers"],
        action: Action::Answer(question),
    },
    Method {
        name: "a2a.interrupt.question.reject",
        key: "reject_question",
        extension: Extension::InteractiveInterrupt,
        params: &["request_id", "metadata"],
        action: Action::Answer(|_| Ok(Answer::RejectQuestion)),
    },
    Method {
        name: "opencode.permissions.list",
        key: "list_permissions",
        extension: Extension::InterruptRecovery,
        params: &[],
        action: Action::List(AskKind::Permission),
    },
    Method {
        name: "opencode.questions.list",
        key: "list_questions",
        extension: Extension::InterruptRecovery,
        params: &[],
        action: Action::List(AskKind::Question),
    },
];

impl Method {
    /// `None`: no extension has such a method.
    pub fn find(name: &str) -> Option<&'static Self> {
        METHODS.iter().find(|method| method.name == name)
    }

    /// The names of its parameters.
    pub(crate) fn params(&self) -> &'static [&'static str] {
        self.params
    }

    /// The call of these parameters. In order: the extension must be activated, the ask be named, every parameter be
    /// known, and its value be good.
    pub fn read(&self, params: &str, activated: Activated) -> Result<Call> {
        if !activated.contains(self.extension) {
            return Err(self.not_activated(activated));
        }
        let object = Object::parse(params, self.params).map_err(|error| {
            Error::new(ErrorKind::InvalidParams, "The parameters must be a JSON object.").caused_by(error)
        })?;
        let read = match self.action {
            Action::Answer(read) => read,
            Action::List(kind) => return self.check_names(params).map(|()| Call::List(kind)),
        };
        let request = named_ask(&object).map_err(Fault::into_params_error)?;
        self.check_names(params)?;
        let answer = read(&object).map_err(Fault::into_params_error)?;
        Ok(Call::Answer { request, answer })
    }

    fn check_names(&self, params: &str) -> Result<()> {
        let Some(key) = unknown_key(params, self.params) else { return Ok(()) };
        let known = if self.params.is_empty() { "none".to_owned() } else { self.params.join(", ") };
        Err(Error::invalid(key, format!("is no parameter of {}, which takes {known}", self.name)))
    }

    fn not_activated(&self, activated: Activated) -> Error {
        let uri = self.extension.uri();
        let text = format!("{} belongs to an extension; send {HEADER}: {uri} with the request.", self.name);
        let error = Error::new(ErrorKind::ExtensionNotActivated, text).detail("method", self.name);
        naming(error, &[self.extension], activated)
    }
}

/// Refuses a message that uses fields of extensions which its sender has not activated.
pub fn check_wishes(command: &SendMessage, activated: Activated) -> Result<()> {
    let wishes = &command.wishes;
    let may_use_any = wishes.session.is_some()
        || wishes.directory.is_some()
        || wishes.workspace.is_some()
        || wishes.prompt.model.is_some();
    let has_all =
        activated.contains(Extension::SessionBinding) && activated.contains(Extension::ModelSelection);
    if !may_use_any || has_all {
        return Ok(());
    }
    let mut refused = gated_fields(command.metadata.as_ref(), command.message.metadata.as_ref());
    refused.retain(|(_, extension)| !activated.contains(*extension));
    if refused.is_empty() {
        return Ok(());
    }
    let (fields, mut missing): (Vec<String>, Vec<Extension>) = refused.into_iter().unzip();
    missing.sort_unstable_by_key(|extension| *extension as u8);
    missing.dedup();
    let text = format!("To use {}, send {HEADER}: {} with the request.", fields.join(", "), listed(&missing));
    let error = Error::new(ErrorKind::ExtensionNotActivated, text).detail("fields", text_of_list(&fields));
    Err(naming(error, &missing, activated))
}

/// The answer to an answer.
pub fn answered(request: &RequestId) -> Bytes {
    let mut out = Vec::with_capacity(64);
    let mut object = ObjectWriter::begin(&mut out);
    object.boolean("ok", true);
    object.text("request_id", request.as_str());
    object.end();
    out.into()
}

/// The asks of a list.
pub fn asks(interrupts: &[Interrupt]) -> Bytes {
    let mut out = Vec::with_capacity(64 + interrupts.len() * 320);
    let mut object = ObjectWriter::begin(&mut out);
    object.array("items", interrupts, |out, interrupt| {
        let mut item = ObjectWriter::begin(out);
        item.text("request_id", interrupt.ask.request_id.as_str());
        item.text("session_id", interrupt.ask.session.as_str());
        item.text("interrupt_type", interrupt.ask.kind.as_str());
        item.text("task_id", interrupt.task.as_str());
        item.text("context_id", interrupt.context.as_str());
        item.json("details", &interrupt.ask.details);
        match interrupt.expires_at {
            Some(at) => write_seconds(item.key("expires_at"), at),
            None => item.key("expires_at").extend_from_slice(b"null"),
        }
        item.end();
    });
    object.end();
    out.into()
}

/// Unix time in seconds, with a fraction where there is one.
fn write_seconds(out: &mut Vec<u8>, Timestamp(millis): Timestamp) {
    // Whoever expires before 1970 is not told by how much.
    let millis = millis.max(0);
    match millis % 1000 {
        0 => write_number(out, millis / 1000),
        rest => write_number(out, format_args!("{}.{rest:03}", millis / 1000)),
    }
}

fn named_ask(params: &Object<'_>) -> Read<RequestId> {
    let request = params.required("request_id", |raw| {
        RequestId::parse(text(raw)?.trim()).map_err(|error| Fault::new(error.to_string()))
    })?;
    // Where the agent works is known from its session, so nothing that stands in here is needed.
    params.optional("metadata", |raw| {
        const KNOWN: &[&str] = &["opencode", "shared"];
        let metadata = Object::read(raw, KNOWN)?;
        for name in KNOWN {
            metadata.optional(name, |raw| Object::read(raw, &[]))?;
        }
        match unknown_key(raw.get(), KNOWN) {
            Some(key) => Err(Fault::new("is not known here; opencode and shared are").under(&key)),
            None => Ok(()),
        }
    })?;
    Ok(request)
}

fn permission(params: &Object<'_>) -> Read<Answer> {
    Ok(Answer::Permission {
        reply: params.required("reply", |raw| {
            let reply = PermissionReply::parse(&text(raw)?);
            reply.ok_or_else(|| Fault::new("must be once, always or reject"))
        })?,
        message: params.optional("message", text)?.filter(|message| !message.trim().is_empty()),
    })
}

fn question(params: &Object<'_>) -> Read<Answer> {
    let chosen = |raw: &RawValue| {
        let mut labels = list(raw, text)?;
        labels.retain(|label| !label.trim().is_empty());
        Ok(labels)
    };
    Ok(Answer::Question { answers: params.required("answers", |raw| list(raw, chosen))? })
}
