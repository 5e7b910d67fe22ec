//! Reports the sub-agents of a turn, from their call to their end.
//!
//! For each sub-agent the engine receives the start, the prompt, the reports, and one end, in this order. The start must come
//! before the tool call that names the sub-agent, so the code that reports tool calls also reports the start.

use longshore_model::{
    AgentEvent, ChildEvent, ChildStart, Outcome, PromptId, SessionId, ToolCall, ToolStatus,
};
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use super::tree::{ChildState, LiveChild};
use super::{Closed, Driver, STOP_TIMEOUT};
use crate::api::{ModelRef, StoredMessage};
use crate::outcome;
use crate::reader::MAX_CHILDREN;
use crate::reconcile::Found;
use crate::translate::{Evidence, Translator};

/// The tool call that started a sub-agent, and the model of the sub-agent.
struct CalledAs<'a> {
    call: &'a ToolCall,
    model: Option<String>,
}

impl Driver {
    /// Sends an event of a member to the engine. `member`: `None` for the root.
    pub(super) async fn report(&mut self, member: Option<usize>, event: AgentEvent) -> Result<(), Closed> {
        let event = match event {
            AgentEvent::Tool { .. } | AgentEvent::ToolOutput { .. } => event,
            AgentEvent::File { block, file } => {
                let event = self.unless_protected(member, block, file).await;
                return self.send(member, event).await;
            }
            event => return self.send(member, event).await,
        };
        // Boxed, because this may report the end of a sub-agent with tool calls of its own, so that the future would contain
        // itself.
        Box::pin(self.report_call(member, event)).await
    }

    /// Sends a text event of the root at once if the queue has room. Otherwise returns the event.
    pub(super) fn try_report_text(&self, event: AgentEvent) -> Result<Option<AgentEvent>, Closed> {
        if !matches!(event, AgentEvent::Text { .. }) {
            return Ok(Some(event));
        }
        match self.events.try_send(event) {
            Ok(()) => Ok(None),
            Err(TrySendError::Full(event)) => Ok(Some(event)),
            Err(TrySendError::Closed(_)) => Err(Closed),
        }
    }

    /// Reports the new events of a sub-agent, once the sub-agent's prompt is known.
    pub(super) async fn flush_child(&mut self, at: usize) -> Result<(), Closed> {
        let Some(live) = self.tree.children[at].live_mut() else { return Ok(()) };
        if !live.prompt_reported {
            let Some(prompt) = live.member.translator.prompt() else { return Ok(()) };
            live.prompt_reported = true;
            if let Ok(prompt) = PromptId::parse(prompt) {
                self.send_child(at, ChildEvent::Working(prompt)).await?;
            }
        }
        let Some(live) = self.tree.children[at].live_mut() else { return Ok(()) };
        for event in live.member.translator.take() {
            // Asks of sub-agents belong to the root, whose translator reports them.
            if !matches!(event, AgentEvent::Asked(_) | AgentEvent::AskClosed { .. }) {
                self.report(Some(at), event).await?;
            }
        }
        Ok(())
    }

    /// Ends the sub-agents that are done, and stops those that reached a limit.
    pub(super) async fn check_children(&mut self) -> Result<(), Closed> {
        for at in 0..self.tree.children.len() {
            let aborted_by_gateway = self.is_aborted(at);
            let Some(live) = self.tree.children[at].live_mut() else { continue };
            if live.member.is_gone {
                self.finish(at).await?;
                continue;
            }
            if let Some(outcome) = live.member.check_end(aborted_by_gateway) {
                let outcome = child_outcome(live, outcome);
                self.end_child(at, outcome).await?;
            } else if live.given_up.is_none()
                && let Some(outcome) = self.limits.reached(&live.member)
            {
                // Only the sub-agent is aborted. The agent that called it decides whether to continue without it.
                live.given_up = Some(outcome);
                self.abort(Some(at), Instant::now() + STOP_TIMEOUT).await;
            } else if let Some(returned) = live.returned.as_mut().filter(|returned| !returned.read_requested)
            {
                returned.read_requested = true;
                live.must_read = true;
            }
        }
        Ok(())
    }

    /// Registers a sub-agent that was found by reading OpenCode's sessions.
    pub(super) fn note_found(&mut self, found: &Found) {
        let Ok(session) = SessionId::parse(&found.session) else { return };
        let child_session = self.lease.add_child(&found.session, &found.parent);
        let child_session = child_session.or_else(|| self.lease.child_session(&found.session));
        let Some(at) = self.tree.find(&found.session) else {
            if self.tree.children.len() < MAX_CHILDREN {
                self.tree.add(session, child_session, false);
            }
            return;
        };
        let parent = SessionId::parse(&found.parent).ok();
        let child = &mut self.tree.children[at];
        child.registered = child_session.or(child.registered.take());
        match &mut child.state {
            ChildState::Unnamed(_) | ChildState::Over => {}
            ChildState::Live(live) => {
                live.must_read = true;
                live.member.translator.title(found.title.as_deref());
                // The log does not contain the caller of a resumed sub-agent, so the caller is taken from OpenCode's session.
                if let Some(parent) = parent.filter(|_| live.is_resumed) {
                    live.caller = parent;
                }
            }
        }
    }

    /// Starts the sub-agents that no tool call names, after all tool calls that OpenCode shows were read.
    pub(super) async fn start_unnamed(&mut self, is_last_chance: bool) -> Result<(), Closed> {
        for at in 0..self.tree.children.len() {
            let child = &mut self.tree.children[at];
            let ChildState::Unnamed(held) = &mut child.state else { continue };
            // The call may have been made after the tool calls were read, so the sub-agent is started only after a second read.
            if !std::mem::replace(&mut held.was_searched_for, true) && !is_last_chance {
                continue;
            }
            let session = child.session.clone();
            let Some(since) = self.tree.root.translator.prompt_created() else { continue };
            let Some(reading) = self.fetch_child(&session).await else { continue };
            let Some(first) = reading.messages.iter().find(|message| message.info.role == "user") else {
                continue;
            };
            let (prompt, kind) = (own_text(first), first.info.agent.clone());
            let model = first.info.model.as_ref().map(ModelRef::name);
            let child_session = self.tree.children[at].registered.as_ref();
            let caller = child_session.and_then(|child_session| SessionId::parse(&child_session.parent).ok());
            let caller = caller.unwrap_or_else(|| self.tree.session_of(None).clone());
            let live =
                LiveChild::new(Translator::for_sub_agent(session.as_str(), since), caller.clone(), None);
            self.tree.children[at].state = ChildState::Live(Box::new(live));
            let start = ChildStart { caller, call: None, prompt, title: None, kind, model };
            self.send_child(at, ChildEvent::Started(start)).await?;
            self.tree.merge_reading(at, reading);
            self.flush_child(at).await?;
        }
        Ok(())
    }

    /// Ends all sub-agents that are still live.
    pub(super) async fn finish_children(&mut self) -> Result<(), Closed> {
        self.start_unnamed(true).await?;
        while let Some(at) = self.tree.live_leaf(None) {
            self.finish(at).await?;
        }
        Ok(())
    }

    async fn report_call(&mut self, member: Option<usize>, mut event: AgentEvent) -> Result<(), Closed> {
        let (AgentEvent::Tool { call, .. } | AgentEvent::ToolOutput { call, .. }) = &mut event else {
            return Ok(());
        };
        if let Some(child) = call.child.clone()
            && !self.ensure_child_started(member, &child, call).await?
        {
            call.child = None;
        }
        let over = match (&call.child, call.status) {
            (Some(child), ToolStatus::Completed | ToolStatus::Error) => {
                Some((child.clone(), call.call_id.clone(), call.error.clone()))
            }
            _ => None,
        };
        self.send(member, event).await?;
        if let Some((child, call, error)) = over {
            self.tree.call_returned(&child, &call, error.as_deref());
        }
        Ok(())
    }

    /// Makes sure that the engine knows a sub-agent before it receives the tool call that names the sub-agent. Returns whether the
    /// sub-agent has its own turn for that call.
    async fn ensure_child_started(
        &mut self,
        caller: Option<usize>,
        child: &SessionId,
        call: &ToolCall,
    ) -> Result<bool, Closed> {
        if self.tree.is_self_or_ancestor(caller, child) {
            return Ok(false);
        }
        if let Some(has_turn) = self.tree.has_turn(child, &call.call_id) {
            return Ok(has_turn);
        }
        let translator = self.tree.translator_of(caller);
        let facts = translator.and_then(|translator| translator.call(&call.call_id));
        let began = translator.and_then(Translator::prompt_created);
        let (started, model) = facts.map_or((None, None), |facts| (facts.started, facts.model));
        let since = started.or(began).unwrap_or(f64::MIN);
        if let Some(at) = self.tree.find(child.as_str()) {
            if let Some(live) = self.tree.children[at].live_mut() {
                if live.returned.is_none() {
                    // Two calls of one sub-agent run at the same time. The sub-agent works for both, in the turn of the first call.
                    self.tree.note_call(child, &call.call_id, false);
                    return Ok(false);
                }
                live.member.translator.set_next_call_at(since);
                self.finish(at).await?;
            }
        } else if self.tree.children.len() >= MAX_CHILDREN {
            return Ok(false);
        }
        let caller = self.tree.session_of(caller).clone();
        self.start(child, caller, CalledAs { call, model }, since).await?;
        Ok(true)
    }

    async fn start(
        &mut self,
        child: &SessionId,
        caller: SessionId,
        CalledAs { call, model }: CalledAs<'_>,
        since: f64,
    ) -> Result<(), Closed> {
        self.tree.note_call(child, &call.call_id, true);
        let added = self.lease.add_child(child.as_str(), caller.as_str());
        let is_new = added.is_some();
        let child_session = added.or_else(|| self.lease.child_session(child.as_str()));
        if let Some(child_session) = &child_session {
            child_session.called();
        }
        let at = self.tree.find(child.as_str()).unwrap_or_else(|| {
            self.tree.add(child.clone(), None, true);
            self.tree.children.len() - 1
        });
        let mut translator = Translator::for_sub_agent(child.as_str(), since);
        let known = &mut self.tree.children[at];
        known.registered = child_session;
        let is_complete = match &mut known.state {
            ChildState::Unnamed(held) => {
                for event in held.events.drain(..) {
                    if let Err(cause) = translator.handle(&event) {
                        super::warn_skipped(child, event.kind, &cause);
                        translator.gap();
                        held.is_complete = false;
                    }
                }
                held.is_complete && known.registered.is_some()
            }
            ChildState::Live(_) | ChildState::Over => false,
        };
        let mut live = LiveChild::new(translator, caller.clone(), Some(call.call_id.clone()));
        live.must_read = is_new || !is_complete;
        known.state = ChildState::Live(Box::new(live));
        let input = call.input.as_ref().map(longshore_model::Json::to_value).unwrap_or_default();
        let text = |key: &str| input[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let start = ChildStart {
            caller,
            call: Some(call.call_id.clone()),
            prompt: text("prompt").unwrap_or_default(),
            title: call.title.clone().or_else(|| text("description")),
            kind: text("subagent_type"),
            model,
        };
        self.send_child(at, ChildEvent::Started(start)).await
    }

    /// Ends a sub-agent. First reads its messages once more, to find out how it ended.
    async fn finish(&mut self, at: usize) -> Result<(), Closed> {
        let aborted_by_gateway = self.is_aborted(at);
        self.read_child(at).await;
        self.flush_child(at).await?;
        let Some(live) = self.tree.children[at].live_mut() else { return Ok(()) };
        let outcome = live.member.check_end(aborted_by_gateway).unwrap_or_else(|| {
            if live.member.translator.is_busy() && !aborted_by_gateway {
                outcome::child_left_running()
            } else {
                live.member.forced_outcome(aborted_by_gateway)
            }
        });
        let outcome = child_outcome(live, outcome);
        Box::pin(self.end_child(at, outcome)).await
    }

    async fn end_child(&mut self, at: usize, outcome: Outcome) -> Result<(), Closed> {
        // Its own sub-agents end before it.
        while let Some(leaf) = self.tree.live_leaf(Some(at)) {
            Box::pin(self.finish(leaf)).await?;
        }
        self.tree.has_stopped_child |= matches!(outcome, Outcome::Canceled { .. });
        let Some(live) = self.tree.children[at].live_mut() else { return Ok(()) };
        let translator = &mut live.member.translator;
        let is_lacking = translator.evidence() != Evidence::None && translator.may_lack_text();
        let outcome = if is_lacking { outcome::lacking_text(outcome) } else { outcome };
        translator.close();
        let written = translator.take_written();
        self.flush_child(at).await?;
        self.report_written_files(Some(at), written).await?;
        let ended = AgentEvent::Ended(outcome);
        self.send_child(at, ChildEvent::Report(ended)).await?;
        self.tree.children[at].state = ChildState::Over;
        Ok(())
    }

    /// Sets the call time of a resumed sub-agent whose prompt is not in the log. Its prompt is the first message after the call.
    pub(super) fn set_call_time(&mut self, at: usize) {
        let Some(live) = self.tree.children[at].live() else { return };
        if live.member.translator.prompt().is_some() || !live.is_resumed {
            return;
        }
        let call = live.call.as_deref().and_then(|call| self.tree.call(call));
        let began = self.tree.root.translator.prompt_created();
        if let Some(since) = call.and_then(|call| call.started).or(began)
            && let Some(live) = self.tree.children[at].live_mut()
        {
            live.member.translator.set_called_at(since);
        }
    }

    fn is_aborted(&self, at: usize) -> bool {
        let child_session = self.tree.children[at].registered.as_ref();
        self.is_stopped() || child_session.is_some_and(|child_session| child_session.aborted_by_gateway())
    }

    async fn send_child(&mut self, at: usize, event: ChildEvent) -> Result<(), Closed> {
        let session = self.tree.children[at].session.clone();
        self.send(None, AgentEvent::Child { session, event: Box::new(event) }).await
    }

    pub(super) async fn send(&mut self, member: Option<usize>, event: AgentEvent) -> Result<(), Closed> {
        if matches!(event, AgentEvent::File { .. }) {
            self.wait_for_file_slot().await?;
        }
        let event = match member {
            None => event,
            Some(at) => AgentEvent::Child {
                session: self.tree.children[at].session.clone(),
                event: Box::new(ChildEvent::Report(event)),
            },
        };
        self.events.send(event).await.map_err(|_| Closed)
    }
}

/// The final outcome of a sub-agent. An outcome of the watchdog takes precedence. If the call failed before the sub-agent did
/// anything, the outcome says so.
fn child_outcome(live: &mut LiveChild, outcome: Outcome) -> Outcome {
    if let Some(given_up) = live.given_up.take() {
        return given_up;
    }
    let began = live.member.translator.evidence() != Evidence::None;
    let error = live.returned.as_ref().and_then(|returned| returned.error.as_deref());
    match (&outcome, error) {
        (Outcome::Failed(_), Some(error)) if !began => outcome::never_began(error),
        _ => outcome::for_sub_agent(outcome),
    }
}

/// The text of a message to a sub-agent, without the parts that OpenCode added.
fn own_text(message: &StoredMessage) -> String {
    let texts = message.parts.iter().filter(|part| part.kind == "text" && !part.synthetic);
    texts.filter_map(|part| part.text.as_deref()).collect()
}
