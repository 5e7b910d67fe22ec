//! What is told of a call, as its row says and in the spelling of the caller's line.
//!
//! Sessions are told as tasks that are completed, and messages of sessions as messages, so that clients of A2A can show them.
//! All else is a summary under the names of `opencode-a2a`. On 0.3 places are told as OpenCode tells them.

mod catalog;
mod place;
mod session;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use tests::sample as samples;

use bytes::Bytes;
use longshore_model::{Begun, ControlResult, Error, Result, spelled};

use super::row::{Answer, Item, Method};
use crate::json::ObjectWriter;
use crate::spelling::Spelling;
use crate::surface::ProtocolVersion;
use crate::v1;
use crate::v03::Dialect;

/// What the context of a session is called that was not begun by a message.
pub const CONTEXT_PREFIX: &str = spelled::CONTEXT_OF_SESSION;

impl Method {
    /// The result of a call. Fails only for what this method never tells.
    pub fn answer(&self, told: &ControlResult, version: ProtocolVersion) -> Result<Bytes> {
        let mut out = Vec::with_capacity(256);
        let mut object = ObjectWriter::begin(&mut out);
        match (self.result, told) {
            (Answer::Items(Item::SessionStatus), ControlResult::Statuses(statuses)) => {
                session::write_statuses(&mut object, statuses);
            }
            (Answer::Items(Item::Task), ControlResult::Sessions(sessions)) => {
                object.array("items", sessions, |out, told| session::write_task(out, told, version));
            }
            (Answer::Item(Item::Task), ControlResult::Session(told)) => {
                session::write_task(object.key("item"), told, version);
            }
            (Answer::Item(Item::SessionSummary), ControlResult::Session(told)) => {
                session::write_summary(object.key("item"), told);
            }
            (Answer::Items(Item::Todo), ControlResult::Todos(todos)) => {
                session::write_todos(&mut object, todos)
            }
            (Answer::Items(Item::FileDiff), ControlResult::Diffs(diffs)) => {
                object.array("items", diffs, session::write_diff);
            }
            (Answer::Page(Item::Message), ControlResult::Messages { items, next }) => {
                object.array("items", items, |out, told| session::write_message(out, told, version));
                match next {
                    Some(next) => object.text("next_cursor", next),
                    None => object.null("next_cursor"),
                }
            }
            (Answer::Item(Item::Message), ControlResult::Message(told)) => {
                session::write_message(object.key("item"), told, version);
            }
            (Answer::ItemOfTask(Item::Message), ControlResult::Answered { message, begun }) => {
                session::write_message(object.key("item"), message, version);
                write_begun(&mut object, begun);
            }
            (Answer::Done | Answer::Begun, ControlResult::Done { session, ok, begun }) => {
                object.boolean("ok", *ok);
                object.text("session_id", session.as_str());
                if let Some(begun) = begun.as_ref().filter(|_| self.result == Answer::Begun) {
                    write_begun(&mut object, begun);
                }
            }
            (Answer::Flag, ControlResult::Ok(ok)) => object.boolean("ok", *ok),
            (Answer::Catalog(Item::Provider), ControlResult::Providers(catalog)) => {
                catalog::write(&mut object, catalog, catalog::write_provider);
            }
            (Answer::Catalog(Item::Model), ControlResult::Models(catalog)) => {
                catalog::write(&mut object, catalog, catalog::write_model);
            }
            (Answer::Items(Item::Project), ControlResult::Projects(projects)) => {
                object.array("items", projects, |out, told| place::write_project(out, told, version));
            }
            (Answer::Item(Item::Project), ControlResult::Project(told)) => {
                place::write_project(object.key("item"), told, version);
            }
            (Answer::Items(Item::Workspace), ControlResult::Workspaces(workspaces)) => {
                object.array("items", workspaces, |out, told| place::write_workspace(out, told, version));
            }
            (
                Answer::Item(Item::Workspace) | Answer::ItemOrNull(Item::Workspace),
                ControlResult::Workspace(Some(told)),
            ) => {
                place::write_workspace(object.key("item"), told, version);
            }
            (Answer::ItemOrNull(Item::Workspace), ControlResult::Workspace(None)) => object.null("item"),
            (Answer::Items(Item::Worktree), ControlResult::Worktrees(worktrees)) => {
                object.array("items", worktrees, |out, told| place::write_listed_worktree(out, told, version));
            }
            (Answer::Item(Item::Worktree), ControlResult::Worktree(told)) => {
                place::write_worktree(object.key("item"), told, version);
            }
            // Not what it was: that may be the caller's words.
            _ => return Err(Error::internal(format!("{} was told what is not its result", self.name))),
        }
        object.end();
        Ok(out.into())
    }
}

fn write_begun(object: &mut ObjectWriter<'_>, begun: &Begun) {
    object.text("task_id", begun.task.as_str());
    object.text("context_id", begun.context.as_str());
}

/// The methods are of JSON-RPC only.
fn spelling(version: ProtocolVersion) -> &'static Spelling {
    match version {
        ProtocolVersion::V1 => &v1::SPELLING,
        ProtocolVersion::V03 => Dialect::Rpc.spelling(),
    }
}
