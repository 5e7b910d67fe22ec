//! Writes the result of an extension method, in the format of the method table and of the caller's protocol version.
//!
//! A session is written as a completed task, and a message of a session as an A2A message, so that A2A clients can show both. All
//! other results are summaries with the field names of the Python gateway `opencode-a2a`, except that projects and workspaces have
//! OpenCode's field names in 0.3.

mod catalog;
mod session;
#[cfg(test)]
mod tests;
mod workspace;

#[cfg(test)]
pub(crate) use tests::sample as samples;

use bytes::Bytes;
use longshore_model::{ControlResult, Error, Result, StartedTask};

use super::items;
use crate::json::ObjectWriter;
use crate::methods::{Answer, Method};
use crate::sessions;
use crate::spelling::Spelling;
use crate::surface::ProtocolVersion;
use crate::v1;
use crate::v03::Dialect;

impl Method {
    /// Writes the result of a call. Fails only if the result is not of the kind that this method returns.
    pub fn answer(&self, result: &ControlResult, version: ProtocolVersion) -> Result<Bytes> {
        let mut out = Vec::with_capacity(256);
        let mut object = ObjectWriter::begin(&mut out);
        match (self.result, result) {
            (Answer::Items(items::SESSION_STATUS), ControlResult::Statuses(statuses)) => {
                session::write_statuses(&mut object, statuses);
            }
            (Answer::Items(items::TASK), ControlResult::Sessions(sessions)) => {
                object.array("items", sessions, |out, info| session::write_task(out, info, version));
            }
            (Answer::Item(items::TASK), ControlResult::Session(info)) => {
                session::write_task(object.key("item"), info, version);
            }
            (Answer::Item(items::SESSION_SUMMARY), ControlResult::Session(info)) => {
                session::write_summary(object.key("item"), info);
            }
            (Answer::Items(sessions::SESSION), ControlResult::Sessions(listed)) => {
                object.array("items", listed, sessions::write);
            }
            (Answer::Item(sessions::SESSION), ControlResult::Session(info)) => {
                sessions::write(object.key("item"), info);
            }
            (Answer::Items(items::PLANNED), ControlResult::Todos(todos)) => {
                session::write_todos(&mut object, todos);
            }
            (Answer::Items(items::FILE_DIFF), ControlResult::Diffs(diffs)) => {
                object.array("items", diffs, session::write_diff);
            }
            (Answer::Page(items::MESSAGE), ControlResult::Messages { items, next }) => {
                object.array("items", items, |out, info| session::write_message(out, info, version));
                match next {
                    Some(next) => object.text("next_cursor", next),
                    None => object.null("next_cursor"),
                }
            }
            (Answer::Item(items::MESSAGE), ControlResult::Message(info)) => {
                session::write_message(object.key("item"), info, version);
            }
            (Answer::ItemOfTask(items::MESSAGE), ControlResult::Answered { message, begun }) => {
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
            (Answer::Catalog(items::PROVIDER), ControlResult::Providers(catalog)) => {
                catalog::write(&mut object, catalog, catalog::write_provider);
            }
            (Answer::Catalog(items::MODEL), ControlResult::Models(catalog)) => {
                catalog::write(&mut object, catalog, catalog::write_model);
            }
            (Answer::Items(items::PROJECT), ControlResult::Projects(projects)) => {
                object.array("items", projects, |out, info| workspace::write_project(out, info, version));
            }
            (Answer::Item(items::PROJECT), ControlResult::Project(info)) => {
                workspace::write_project(object.key("item"), info, version);
            }
            (Answer::Items(items::WORKSPACE), ControlResult::Workspaces(workspaces)) => {
                object.array("items", workspaces, |out, info| workspace::write_workspace(out, info, version));
            }
            (
                Answer::Item(items::WORKSPACE) | Answer::ItemOrNull(items::WORKSPACE),
                ControlResult::Workspace(Some(info)),
            ) => {
                workspace::write_workspace(object.key("item"), info, version);
            }
            (Answer::ItemOrNull(items::WORKSPACE), ControlResult::Workspace(None)) => object.null("item"),
            (Answer::Items(items::WORKTREE), ControlResult::Worktrees(worktrees)) => {
                object.array("items", worktrees, |out, info| {
                    workspace::write_listed_worktree(out, info, version);
                });
            }
            (Answer::Item(items::WORKTREE), ControlResult::Worktree(info)) => {
                workspace::write_worktree(object.key("item"), info, version);
            }
            // The error does not contain the result, which may contain text of the caller.
            _ => return Err(Error::internal(format!("{} has a result of another method", self.name))),
        }
        object.end();
        Ok(out.into())
    }
}

fn write_begun(object: &mut ObjectWriter<'_>, begun: &StartedTask) {
    object.text("task_id", begun.task.as_str());
    object.text("context_id", begun.context.as_str());
}

/// The spelling of states, roles and parts in JSON-RPC of this version. REST is not needed, because it has no extension methods.
fn spelling(version: ProtocolVersion) -> &'static Spelling {
    match version {
        ProtocolVersion::V1 => &v1::SPELLING,
        ProtocolVersion::V03 => Dialect::Rpc.spelling(),
    }
}
