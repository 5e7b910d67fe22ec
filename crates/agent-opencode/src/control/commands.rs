//! Commands that change sessions: fork, share, summarize, revert, delete, shell.

use longshore_engine::port::Session;
use longshore_model::{
    AgentMessageId, AgentPartId, ControlCommand, ControlResult, Error, ModelName, PromptOptions, Result,
    SessionInfo, SessionQuery, ShellCommand, Timestamp,
};

use super::queries::no_message;
use super::results::MessageStamp;
use super::{ForPurpose as _, Purpose, failure, required, results};
use crate::OpenCode;
use crate::api::control as api;
use crate::catalog::{Fields, Unverified};
use crate::client::CallError;

/// The field that names the message to change.
const MESSAGE: &str = "request.messageID";

/// How many of the newest sessions are searched for a fork that was just made.
const SEARCHED_SESSIONS: u32 = 100;

/// How many sessions with the title of a fork are compared with the original.
const MAX_CANDIDATES: usize = 10;

/// By OpenCode's clock, a fork may be this many milliseconds older than its request, because the clocks differ.
const CLOCKS_DIFFER: i64 = 1000;

impl OpenCode {
    pub(super) async fn execute(
        &self,
        session: Option<&Session>,
        command: &ControlCommand,
    ) -> Result<ControlResult> {
        match command {
            ControlCommand::Fork { before, .. } => self.fork(required(session)?, before.as_ref()).await,
            ControlCommand::Share(_) => self.share(required(session)?).await,
            ControlCommand::Unshare(_) => {
                let session = required(session)?;
                let found = self.for_callers.unshare(&session.directory, session.id.as_str()).await;
                changed_session("unshare the session", session, found).map(ControlResult::Session)
            }
            ControlCommand::Summarize { model, auto, .. } => {
                self.summarize(required(session)?, model.as_ref(), *auto).await
            }
            ControlCommand::Revert { message, part, .. } => {
                self.revert(required(session)?, message, part.as_ref()).await
            }
            ControlCommand::Unrevert(_) => {
                let session = required(session)?;
                let found = self.for_callers.unrevert(&session.directory, session.id.as_str()).await;
                changed_session("undo the revert of the session", session, found).map(ControlResult::Session)
            }
            ControlCommand::Delete(_) => self.delete(required(session)?).await,
            ControlCommand::Shell { order, .. } => self.run_shell(required(session)?, order).await,
            ControlCommand::CreateWorkspace(new) => self.create_workspace(new).await,
            ControlCommand::RemoveWorkspace(id) => self.remove_workspace(id).await,
            ControlCommand::CreateWorktree(new) => self.create_worktree(new).await,
            ControlCommand::RemoveWorktree(worktree) => self.remove_worktree(worktree).await,
            ControlCommand::ResetWorktree(worktree) => self.reset_worktree(worktree).await,
        }
    }

    /// Forks a session. Looks the message up first, because OpenCode would copy the whole session if it does not have the message.
    async fn fork(&self, session: &Session, before: Option<&AgentMessageId>) -> Result<ControlResult> {
        if let Some(before) = before {
            self.named_message(session, before).await?;
        }
        let before = before.map(AgentMessageId::as_str);
        let made = self.for_callers.fork(&session.directory, session.id.as_str(), before).await;
        changed_session("fork the session", session, made).map(ControlResult::Session)
    }

    /// Finds the forks of a session, or of its messages before `before`, that were made since `since`. OpenCode does not record the
    /// origin of a fork. The title selects the candidates, but any session may have the same title. Messages keep their creation
    /// times in a fork. So a candidate counts as a fork only if it has all messages of the original with the same times, and no
    /// other messages.
    pub(super) async fn find_forks(
        &self,
        session: &Session,
        before: Option<&AgentMessageId>,
        since: Timestamp,
    ) -> Result<Vec<Session>> {
        let purpose = Purpose::query("look for the fork").in_session(&session.id);
        let (at, id) = (session.directory.as_str(), session.id.as_str());
        let since = Timestamp(self.server_clock.at(since).saturating_sub(CLOCKS_DIFFER));
        let original = self.for_callers.session(at, id).await.for_purpose(purpose)?;
        let title = forked_title(original.title.as_deref().unwrap_or_default());
        let query =
            SessionQuery { limit: SEARCHED_SESSIONS, roots: Some(true), start: Some(since), search: None };
        let found = self.for_callers.sessions(at, &query).await.for_purpose(purpose)?;
        let is_fork = |found: &SessionInfo| {
            found.title == title
                && found.created.is_some_and(|created| created >= since)
                && found.id != session.id
        };
        let candidates: Vec<SessionInfo> =
            results::sessions(found).into_iter().filter(is_fork).take(MAX_CANDIDATES).collect();
        if candidates.is_empty() {
            return Ok(Vec::new());
        }
        let infos = self.for_callers.message_infos(at, id).await.for_purpose(purpose)?;
        let end = match before {
            Some(before) => infos.iter().position(|info| info.id == before.as_str()),
            None => Some(infos.len()),
        };
        let wanted = results::stamps(&infos[..end.unwrap_or_default()]);
        let (mut forks, mut failure_cause) = (Vec::new(), None);
        for candidate in candidates {
            match self.for_callers.message_infos(at, candidate.id.as_str()).await {
                Ok(infos) if is_complete_fork(&results::stamps(&infos), &wanted, candidate.created) => {
                    forks.push(Session { id: candidate.id, directory: at.to_owned() });
                }
                Ok(_) => {}
                Err(cause) => {
                    // A similar session that cannot be read must not prevent the real fork from being found.
                    let concerns_this_session = matches!(
                        cause,
                        CallError::NotFound
                            | CallError::NoMessage
                            | CallError::Refused { .. }
                            | CallError::Garbled(_)
                            | CallError::TooLong
                    );
                    failure_cause = Some(cause);
                    if !concerns_this_session {
                        break;
                    }
                }
            }
        }
        match failure_cause {
            Some(cause) if forks.is_empty() => Err(cause.into_control_error(purpose)),
            _ => Ok(forks),
        }
    }

    async fn share(&self, session: &Session) -> Result<ControlResult> {
        let found = self.for_callers.share(&session.directory, session.id.as_str()).await;
        let shared = changed_session("share the session", session, found)?;
        if shared.share_url.is_none() {
            return Err(failure::unexpected(
                "OpenCode gave the session no address to share it by: sharing is switched off. Its operator must allow it.",
            ));
        }
        Ok(ControlResult::Session(shared))
    }

    /// Summarizes a session. Checks the model first: OpenCode requires one, and if it does not have that model, it leaves a message
    /// behind in the session.
    async fn summarize(
        &self,
        session: &Session,
        model: Option<&ModelName>,
        auto: bool,
    ) -> Result<ControlResult> {
        let (at, id) = (session.directory.as_str(), session.id.as_str());
        let model = if let Some(model) = model {
            let fields = Fields {
                model: "request.modelID",
                provider: "request.providerID",
                ..Fields::OF_NATIVE_PROMPT
            };
            let requested = PromptOptions { model: Some(model.clone()), ..PromptOptions::default() };
            self.access.rules.check(&requested, fields)?;
            self.access
                .catalog
                .check(at, &requested, &PromptOptions::default(), fields, Unverified::Refuse)
                .await?;
            model.clone()
        } else if let Some(pinned) = self.access.rules.pinned_model() {
            pinned.clone()
        } else {
            self.session_model(session).await?
        };
        let done = self.for_callers.summarize(at, id, &model, auto, self.long_timeout).await;
        let purpose = Purpose::change("summarize the session").in_session(&session.id);
        let ok = done.for_purpose(purpose)?;
        Ok(ControlResult::Done { session: session.id.clone(), ok, begun: None })
    }

    async fn session_model(&self, session: &Session) -> Result<ModelName> {
        let found = self.for_callers.whole_session(&session.directory, session.id.as_str()).await;
        let purpose = Purpose::query("look up the session").in_session(&session.id);
        let found = found.for_purpose(purpose)?;
        let model = self.access.catalog.model_of(session, found.model.as_ref()).await?;
        model.ok_or_else(|| {
            Error::invalid(
                "request",
                "The session has no model yet, and OpenCode no default; name providerID and modelID.",
            )
        })
    }

    /// Reverts changes. Looks the names up first, because OpenCode does nothing and reports success if it does not have them.
    async fn revert(
        &self,
        session: &Session,
        message: &AgentMessageId,
        part: Option<&AgentPartId>,
    ) -> Result<ControlResult> {
        let found = self.named_message(session, message).await?;
        let has = |part: &AgentPartId| found.parts.iter().any(|found| found.id == part.as_str());
        if part.is_some_and(|part| !has(part)) {
            return Err(Error::invalid("request.partID", "The message has no part with this id."));
        }
        let (at, id) = (session.directory.as_str(), session.id.as_str());
        let part = part.map(AgentPartId::as_str);
        let found = self.for_callers.revert(at, id, message.as_str(), part).await;
        changed_session("revert the session", session, found).map(ControlResult::Session)
    }

    async fn delete(&self, session: &Session) -> Result<ControlResult> {
        let done = self.for_callers.delete_session(&session.directory, session.id.as_str()).await;
        let ok = done.for_purpose(Purpose::change("delete the session").in_session(&session.id))?;
        Ok(ControlResult::Done { session: session.id.clone(), ok, begun: None })
    }

    async fn run_shell(&self, session: &Session, order: &ShellCommand) -> Result<ControlResult> {
        let (at, id) = (session.directory.as_str(), session.id.as_str());
        let named = PromptOptions {
            agent: Some(order.agent.clone()),
            model: order.model.clone(),
            ..PromptOptions::default()
        };
        let none = PromptOptions::default();
        self.access.rules.check(&named, Fields::OF_NATIVE_PROMPT)?;
        self.access.catalog.check(at, &named, &none, Fields::OF_NATIVE_PROMPT, Unverified::Refuse).await?;
        let limit = self.long_timeout;
        let (agent, model) = (&order.agent, order.model.as_ref());
        let ran = self.for_callers.shell(at, id, agent, &order.command, model, limit).await;
        let ran = ran.and_then(|found| results::printed(&session.id, &found));
        let purpose = Purpose::change("run the command").in_session(&session.id);
        Ok(ControlResult::Message(ran.for_purpose(purpose)?))
    }

    /// Looks up the message that a command names.
    async fn named_message(&self, session: &Session, message: &AgentMessageId) -> Result<api::Message> {
        self.find_message(session, message).await.map_err(|cause| match cause {
            CallError::NoMessage => no_message(MESSAGE),
            cause => cause.into_control_error(Purpose::query("look up the message").in_session(&session.id)),
        })
    }
}

/// Whether a session that was created at `made` is a complete copy of the original. A session without messages does not count,
/// because nothing would prove that it is a complete copy, or a copy at all. The copy may lack messages of the original that are
/// newer than the copy.
fn is_complete_fork(
    copy: &[MessageStamp<'_>],
    original: &[MessageStamp<'_>],
    made: Option<Timestamp>,
) -> bool {
    let was_there = original.iter().take_while(|message| message.at < made).count();
    let is_known = copy.iter().all(|message| message.at.is_some());
    !copy.is_empty() && is_known && copy.len() >= was_there && original.starts_with(copy)
}

/// The title that OpenCode gives to a fork of a session with this title.
fn forked_title(title: &str) -> String {
    let counted = title.strip_suffix(')').and_then(|title| title.rsplit_once(" (fork #"));
    let counted = counted.and_then(|(title, count)| Some((title, count.parse::<u64>().ok()?)));
    match counted.filter(|(title, _)| !title.is_empty()) {
        Some((title, count)) => format!("{title} (fork #{})", count.saturating_add(1)),
        None => format!("{title} (fork #1)"),
    }
}

/// The session after a change.
fn changed_session(
    what: &'static str,
    session: &Session,
    found: Result<api::Session, CallError>,
) -> Result<SessionInfo> {
    let purpose = Purpose::change(what).in_session(&session.id);
    found.and_then(results::session).for_purpose(purpose)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_title_of_a_fork_counts_the_forks() {
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
    fn a_fork_has_all_messages_of_the_original_and_no_others() {
        let stamps = |at: &[i64]| -> Vec<MessageStamp<'_>> {
            at.iter().map(|at| MessageStamp { role: "user", at: Some(Timestamp(*at)) }).collect()
        };
        let is_fork = |copy: &[i64], original: &[i64]| {
            is_complete_fork(&stamps(copy), &stamps(original), Some(Timestamp(10)))
        };
        assert!(is_fork(&[1, 2, 3], &[1, 2, 3]));
        // The original got further messages after the copy was made.
        assert!(is_fork(&[1, 2, 3], &[1, 2, 3, 10, 11]));
        assert!(is_fork(&[1, 2, 3, 10], &[1, 2, 3, 10, 11]));
        // Copies that are empty, incomplete, or have other messages, and a copy of another session.
        for copy in [&[][..], &[1], &[1, 2], &[1, 2, 3, 12], &[1, 2, 4], &[5, 6, 7], &[2, 3]] {
            assert!(!is_fork(copy, &[1, 2, 3]), "{copy:?}");
        }
        assert!(!is_fork(&[], &[]));
        let other = MessageStamp { role: "assistant", at: Some(Timestamp(1)) };
        let unknown = MessageStamp { role: "user", at: None };
        assert!(!is_complete_fork(&[other], &stamps(&[1]), Some(Timestamp(10))));
        assert!(!is_complete_fork(&[unknown], &[unknown], Some(Timestamp(10))));
    }
}
