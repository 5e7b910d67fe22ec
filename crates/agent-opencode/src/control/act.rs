//! Acts upon sessions.

use longshore_engine::port::Session;
use longshore_model::{
    ControlCommand, ControlResult, Error, MessageRef, ModelName, PartRef, PromptOptions, Result, SessionInfo,
    SessionQuery, ShellOrder, Timestamp,
};

use super::look::no_message;
use super::told::Said;
use super::{Doing, failure, given, told};
use crate::OpenCode;
use crate::api::control as api;
use crate::catalog::Fields;
use crate::client::CallError;

/// Where a message is named that something is done to.
const MESSAGE: &str = "request.messageID";

/// So many of the newest sessions are looked through for a copy that was just made.
const COPIES: u32 = 100;

/// So many of those that have the title of a copy are compared with the original.
const MAX_ALIKE: usize = 10;

/// So much earlier than it was asked for may a copy have been made by OpenCode's clock, in milliseconds.
const CLOCKS_DIFFER: i64 = 1000;

impl OpenCode {
    pub(super) async fn acted(
        &self,
        session: Option<&Session>,
        act: &ControlCommand,
    ) -> Result<ControlResult> {
        match act {
            ControlCommand::Fork { before, .. } => self.forked(given(session)?, before.as_ref()).await,
            ControlCommand::Share(_) => self.shared(given(session)?).await,
            ControlCommand::Unshare(_) => {
                let session = given(session)?;
                let found = self.for_callers.unshare(&session.directory, session.id.as_str()).await;
                as_it_is("unshare the session", session, found).map(ControlResult::Session)
            }
            ControlCommand::Summarize { model, auto, .. } => {
                self.summarized(given(session)?, model.as_ref(), *auto).await
            }
            ControlCommand::Revert { message, part, .. } => {
                self.reverted(given(session)?, message, part.as_ref()).await
            }
            ControlCommand::Unrevert(_) => {
                let session = given(session)?;
                let found = self.for_callers.unrevert(&session.directory, session.id.as_str()).await;
                as_it_is("take the session forward again", session, found).map(ControlResult::Session)
            }
            ControlCommand::Shell { order, .. } => self.ran(given(session)?, order).await,
            ControlCommand::CreateWorkspace(new) => self.created_workspace(new).await,
            ControlCommand::RemoveWorkspace(id) => self.removed_workspace(id).await,
            ControlCommand::CreateWorktree(new) => self.created_worktree(new).await,
            ControlCommand::RemoveWorktree(worktree) => self.removed_worktree(worktree).await,
            ControlCommand::ResetWorktree(worktree) => self.reset_worktree(worktree).await,
        }
    }

    /// OpenCode would copy everything for a message that it does not have there.
    async fn forked(&self, session: &Session, before: Option<&MessageRef>) -> Result<ControlResult> {
        if let Some(before) = before {
            self.message_of(session, before).await?;
        }
        let before = before.map(MessageRef::as_str);
        let made = self.for_callers.fork(&session.directory, session.id.as_str(), before).await;
        as_it_is("fork the session", session, made).map(ControlResult::Session)
    }

    /// Copies of a session, or of what came before a message, that were made since then. OpenCode says nowhere of what a session is a
    /// copy. Its title is told first, and anybody's may be the same; but messages keep the moments at which they were said, so that
    /// one is taken for a copy only when it has all messages of the original, as they were said there, and no other.
    pub(super) async fn copies(
        &self,
        session: &Session,
        before: Option<&MessageRef>,
        since: Timestamp,
    ) -> Result<Vec<Session>> {
        let doing = Doing::looking("look for the fork").of(&session.id);
        let (at, id) = (session.directory.as_str(), session.id.as_str());
        let since = Timestamp(self.server_clock.at(since).saturating_sub(CLOCKS_DIFFER));
        let original = self.for_callers.session(at, id).await.map_err(|cause| cause.told(&doing))?;
        let title = forked_title(original.title.as_deref().unwrap_or_default());
        let query = SessionQuery { limit: COPIES, roots: Some(true), start: Some(since), search: None };
        let found = self.for_callers.sessions(at, &query).await.map_err(|cause| cause.told(&doing))?;
        let is_copy = |found: &SessionInfo| {
            found.title == title
                && found.created.is_some_and(|created| created >= since)
                && found.id != session.id
        };
        let alike: Vec<SessionInfo> =
            told::sessions(found).into_iter().filter(is_copy).take(MAX_ALIKE).collect();
        if alike.is_empty() {
            return Ok(Vec::new());
        }
        let said = self.for_callers.said(at, id).await.map_err(|cause| cause.told(&doing))?;
        let end = match before {
            Some(before) => said.iter().position(|said| said.id == before.as_str()),
            None => Some(said.len()),
        };
        let wanted = told::said(&said[..end.unwrap_or_default()]);
        let (mut copies, mut trouble) = (Vec::new(), None);
        for copy in alike {
            match self.for_callers.said(at, copy.id.as_str()).await {
                Ok(said) if is_whole_copy(&told::said(&said), &wanted, copy.created) => {
                    copies.push(Session { id: copy.id, directory: at.to_owned() });
                }
                Ok(_) => {}
                Err(cause) => {
                    // One that is alike, and that nobody can read, does not hide the one that was made.
                    let is_of_one = matches!(
                        cause,
                        CallError::NotFound
                            | CallError::NoMessage
                            | CallError::Refused { .. }
                            | CallError::Garbled(_)
                            | CallError::TooLong
                    );
                    trouble = Some(cause);
                    if !is_of_one {
                        break;
                    }
                }
            }
        }
        match trouble {
            Some(cause) if copies.is_empty() => Err(cause.told(&doing)),
            _ => Ok(copies),
        }
    }

    async fn shared(&self, session: &Session) -> Result<ControlResult> {
        let found = self.for_callers.share(&session.directory, session.id.as_str()).await;
        let shared = as_it_is("share the session", session, found)?;
        if shared.share_url.is_none() {
            return Err(failure::unexpected(
                "OpenCode gave the session no address to share it by: it shares nothing here. Its operator must allow it.",
            ));
        }
        Ok(ControlResult::Session(shared))
    }

    /// OpenCode always wants to be told the model, and leaves a message behind when it does not have it.
    async fn summarized(
        &self,
        session: &Session,
        model: Option<&ModelName>,
        auto: bool,
    ) -> Result<ControlResult> {
        let (at, id) = (session.directory.as_str(), session.id.as_str());
        let model = if let Some(model) = model {
            let fields =
                Fields { model: "request.modelID", provider: "request.providerID", ..Fields::OF_ORDER };
            let wished = PromptOptions { model: Some(model.clone()), ..PromptOptions::default() };
            self.gate.catalog.check_surely(at, &wished, &PromptOptions::default(), fields).await?;
            model.clone()
        } else {
            self.own_model(session).await?
        };
        let done = self.for_callers.summarize(at, id, &model, auto, self.long_timeout).await;
        let doing = Doing::changing("summarize the session").of(&session.id);
        let ok = done.map_err(|cause| cause.told(&doing))?;
        Ok(ControlResult::Done { session: session.id.clone(), ok, begun: None })
    }

    async fn own_model(&self, session: &Session) -> Result<ModelName> {
        let found = self.for_callers.whole_session(&session.directory, session.id.as_str()).await;
        let doing = Doing::looking("look up the session").of(&session.id);
        let found = found.map_err(|cause| cause.told(&doing))?;
        let model = self.gate.catalog.model_of(session, found.model.as_ref()).await?;
        model.ok_or_else(|| {
            Error::invalid(
                "request",
                "The session has no model yet, and OpenCode no default; name providerID and modelID.",
            )
        })
    }

    /// OpenCode says yes, and does nothing, for names that it does not have there.
    async fn reverted(
        &self,
        session: &Session,
        message: &MessageRef,
        part: Option<&PartRef>,
    ) -> Result<ControlResult> {
        let found = self.message_of(session, message).await?;
        let has = |part: &PartRef| found.parts.iter().any(|found| found.id == part.as_str());
        if part.is_some_and(|part| !has(part)) {
            return Err(Error::invalid("request.partID", "The message has no part of this name."));
        }
        let (at, id) = (session.directory.as_str(), session.id.as_str());
        let part = part.map(PartRef::as_str);
        let found = self.for_callers.revert(at, id, message.as_str(), part).await;
        as_it_is("take the session back", session, found).map(ControlResult::Session)
    }

    async fn ran(&self, session: &Session, order: &ShellOrder) -> Result<ControlResult> {
        let (at, id) = (session.directory.as_str(), session.id.as_str());
        let named = PromptOptions {
            agent: Some(order.agent.clone()),
            model: order.model.clone(),
            ..PromptOptions::default()
        };
        let none = PromptOptions::default();
        self.gate.catalog.check_surely(at, &named, &none, Fields::OF_ORDER).await?;
        let limit = self.long_timeout;
        let (agent, model) = (&order.agent, order.model.as_ref());
        let ran = self.for_callers.shell(at, id, agent, &order.command, model, limit).await;
        let ran = ran.and_then(|found| told::printed(&session.id, &found));
        let doing = Doing::changing("run the command").of(&session.id);
        Ok(ControlResult::Message(ran.map_err(|cause| cause.told(&doing))?))
    }

    /// A message that something is to be done to.
    async fn message_of(&self, session: &Session, message: &MessageRef) -> Result<api::Message> {
        self.message_in(session, message).await.map_err(|cause| match cause {
            CallError::NoMessage => no_message(MESSAGE),
            cause => cause.told(&Doing::looking("look up the message").of(&session.id)),
        })
    }
}

/// Whether a session that was made then has what was to be copied. Without a message nothing shows that it is a copy, or that it is not
/// still being made. What was said after it was made need not be in it.
fn is_whole_copy(copy: &[Said<'_>], original: &[Said<'_>], made: Option<Timestamp>) -> bool {
    let was_there = original.iter().take_while(|said| said.at < made).count();
    let is_known = copy.iter().all(|said| said.at.is_some());
    !copy.is_empty() && is_known && copy.len() >= was_there && original.starts_with(copy)
}

/// What OpenCode calls a copy of a session with this title.
fn forked_title(title: &str) -> String {
    let counted = title.strip_suffix(')').and_then(|title| title.rsplit_once(" (fork #"));
    let counted = counted.and_then(|(title, count)| Some((title, count.parse::<u64>().ok()?)));
    match counted.filter(|(title, _)| !title.is_empty()) {
        Some((title, count)) => format!("{title} (fork #{})", count.saturating_add(1)),
        None => format!("{title} (fork #1)"),
    }
}

/// The session as it is after a change.
fn as_it_is(
    what: &'static str,
    session: &Session,
    found: Result<api::Session, CallError>,
) -> Result<SessionInfo> {
    let doing = Doing::changing(what).of(&session.id);
    found.and_then(told::session).map_err(|cause| cause.told(&doing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_counted_in_their_titles() {
        for (title, expected) in [
            ("original", "original (fork #1)"),
            ("original (fork #1)", "original (fork #2)"),
            ("a (fork #9) b", "a (fork #9) b (fork #1)"),
            (" (fork #1)", " (fork #1) (fork #1)"),
            ("x (fork #y)", "x (fork #y) (fork #1)"),
            ("", " (fork #1)"),
        ] {
            assert_eq!(forked_title(title), expected);
        }
    }

    #[test]
    fn a_copy_has_all_that_was_said_in_the_original_and_nothing_else() {
        let said = |at: &[i64]| -> Vec<Said<'_>> {
            at.iter().map(|at| Said { role: "user", at: Some(Timestamp(*at)) }).collect()
        };
        let is_copy =
            |copy: &[i64], original: &[i64]| is_whole_copy(&said(copy), &said(original), Some(Timestamp(10)));
        assert!(is_copy(&[1, 2, 3], &[1, 2, 3]));
        // More was said in the original since.
        assert!(is_copy(&[1, 2, 3], &[1, 2, 3, 10, 11]));
        assert!(is_copy(&[1, 2, 3, 10], &[1, 2, 3, 10, 11]));
        // Nothing shows what it is, it is not whole yet, somebody said more in it, or it is a copy of another.
        for copy in [&[][..], &[1], &[1, 2], &[1, 2, 3, 12], &[1, 2, 4], &[5, 6, 7], &[2, 3]] {
            assert!(!is_copy(copy, &[1, 2, 3]), "{copy:?}");
        }
        assert!(!is_copy(&[], &[]));
        let other = Said { role: "assistant", at: Some(Timestamp(1)) };
        let unknown = Said { role: "user", at: None };
        assert!(!is_whole_copy(&[other], &said(&[1]), Some(Timestamp(10))));
        assert!(!is_whole_copy(&[unknown], &[unknown], Some(Timestamp(10))));
    }
}
