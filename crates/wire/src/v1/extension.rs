//! Checks that the extensions of all metadata fields in use are activated, and encodes the responses of the methods about asks.

use bytes::Bytes;
use longshore_model::{
    Action, Approval, Error, ErrorKind, Interrupt, RequestId, Result, SendMessage, redact,
};

use crate::extension::{Activated, Extension, HEADER, listed, naming};
use crate::json::{ObjectWriter, text_of_list, write_text};
use crate::read::send_options::gated_fields;
use crate::time::write_seconds;
use crate::write::shared::write_options;

#[cfg(test)]
mod tests;

/// Fails if a message uses fields of extensions that its sender has not activated.
pub fn check_send_options(command: &SendMessage, activated: Activated) -> Result<()> {
    let options = &command.options;
    let may_use_any = options.session.is_some()
        || options.directory.is_some()
        || options.workspace.is_some()
        || options.prompt.model.is_some();
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

/// Encodes the response to the answer of an ask.
pub fn answered(request: &RequestId) -> Bytes {
    let mut out = Vec::with_capacity(64);
    let mut object = ObjectWriter::begin(&mut out);
    object.boolean("ok", true);
    object.text("request_id", request.as_str());
    object.end();
    out.into()
}

/// The longest command in a list of approvals, in characters. A longer one is cut; the ask showed more of it.
const MAX_COMMAND_CHARS: usize = 1024;

/// Encodes a list of approvals.
pub fn approvals(approvals: &[Approval]) -> Bytes {
    let mut out = Vec::with_capacity(64 + approvals.len() * 256);
    let mut object = ObjectWriter::begin(&mut out);
    object.array("items", approvals, |out, approval| {
        let mut item = ObjectWriter::begin(out);
        item.text("request_id", approval.request_id.as_str());
        item.text("session_id", approval.session.as_str());
        item.text("context_id", approval.context.as_str());
        item.text("permission", &approval.permission);
        item.array("patterns", &approval.patterns, |out, pattern| write_text(out, pattern));
        let Action { tool, kind, command, paths } = &approval.action;
        let command = command.as_deref().map(|command| redact::cut_at(command, MAX_COMMAND_CHARS));
        for (name, fact) in [("tool", tool), ("kind", kind), ("command", &command)] {
            if let Some(fact) = fact {
                item.text(name, fact);
            }
        }
        if !paths.is_empty() {
            item.array("paths", paths, |out, path| write_text(out, path));
        }
        item.number("approved_at", approval.at.0);
        item.end();
    });
    object.end();
    out.into()
}

/// Encodes a list of open asks.
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
            None => item.null("expires_at"),
        }
        write_options(&mut item, &interrupt.ask.options.shown());
        item.end();
    });
    object.end();
    out.into()
}
