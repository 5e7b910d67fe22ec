//! The agent of a turn and its sub-agents at any depth. Tracks their sessions and which agent called which, and passes each event
//! to its member.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_model::{Outcome, SessionId};
use tokio::time::Instant;

use super::invalid_responses::InvalidResponses;
use super::member::Member;
use crate::api::EventKind;
use crate::reader::{ChildSession, MAX_CHILDREN};
use crate::reconcile::ChildReading;
use crate::skim::Event;
use crate::translate::{CallState, Translator};

/// Maximum number of events that wait for the tool call that names their session, which OpenCode normally sends first. Beyond the
/// limit the events are dropped, and the messages are read instead.
const MAX_HELD: usize = 256;
const MAX_HELD_BYTES: usize = 1024 * 1024;

#[derive(Debug)]
pub(super) struct SessionTree {
    session: SessionId,
    pub(super) root: Member,
    /// The sub-agents, in the order in which they became known.
    pub(super) children: Vec<Child>,
    /// The tool calls of sub-agents, by the sub-agent's session and the call id. The value says whether the sub-agent has its own
    /// turn for the call.
    calls: HashMap<(SessionId, String), bool>,
    /// Whether at least one sub-agent was stopped. The rest of the turn may have continued.
    pub(super) has_stopped_child: bool,
}

/// A sub-agent's session.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) session: SessionId,
    /// The registration with the reader. `None`: another turn receives the events of this session.
    pub(super) registered: Option<Arc<ChildSession>>,
    pub(super) state: ChildState,
    pub(super) invalid_responses: InvalidResponses,
    /// Whether OpenCode has hidden the messages of this sub-agent for longer than the driver waits, and still hides them.
    pub(super) is_hidden: bool,
}

#[derive(Debug)]
pub(super) enum ChildState {
    /// No tool call has named the sub-agent yet.
    Unnamed(HeldEvents),
    Live(Box<LiveChild>),
    /// The sub-agent has ended. Nothing more is reported about it unless it is called again.
    Over,
}

/// Events of a session that no tool call has named yet.
#[derive(Debug)]
pub(super) struct HeldEvents {
    pub(super) events: Vec<Event>,
    bytes: usize,
    /// Whether no event of the session is missing.
    pub(super) is_complete: bool,
    /// Whether the tool calls were read since the session became known. None of them named it.
    pub(super) was_searched_for: bool,
}

/// A running sub-agent.
#[derive(Debug)]
pub(super) struct LiveChild {
    pub(super) member: Member,
    pub(super) caller: SessionId,
    pub(super) call: Option<String>,
    /// Whether the sub-agent's prompt was reported.
    pub(super) prompt_reported: bool,
    /// Whether the sub-agent's messages must be read before its end can be judged.
    pub(super) must_read: bool,
    /// How the tool call of the sub-agent ended. `None`: it is not over.
    pub(super) returned: Option<ReturnedCall>,
    /// The outcome to report if the watchdog stopped the sub-agent.
    pub(super) given_up: Option<Outcome>,
    /// Whether the sub-agent was resumed after a restart of the gateway.
    pub(super) is_resumed: bool,
}

/// How the call of a sub-agent ended.
#[derive(Debug)]
pub(super) struct ReturnedCall {
    pub(super) error: Option<String>,
    /// Whether the sub-agent's messages were requested after the call had ended.
    pub(super) read_requested: bool,
}

impl ReturnedCall {
    fn with(error: Option<String>) -> Self {
        Self { error, read_requested: false }
    }
}

impl LiveChild {
    pub(super) fn new(translator: Translator, caller: SessionId, call: Option<String>) -> Self {
        Self {
            member: Member::new(translator, false),
            caller,
            call,
            prompt_reported: false,
            must_read: false,
            returned: None,
            given_up: None,
            is_resumed: false,
        }
    }
}

impl HeldEvents {
    pub(super) fn new(is_complete: bool) -> Self {
        Self { events: Vec::new(), bytes: 0, is_complete, was_searched_for: false }
    }

    fn push(&mut self, event: Event) {
        if self.events.len() >= MAX_HELD || self.bytes + event.len() > MAX_HELD_BYTES {
            self.discard();
        } else if self.is_complete {
            self.bytes += event.len();
            self.events.push(event);
        }
    }

    /// Drops all events, because they are useless if one is missing.
    fn discard(&mut self) {
        *self = Self { was_searched_for: self.was_searched_for, ..Self::new(false) };
    }
}

impl Child {
    pub(super) fn live(&self) -> Option<&LiveChild> {
        match &self.state {
            ChildState::Live(live) => Some(live),
            _ => None,
        }
    }

    pub(super) fn live_mut(&mut self) -> Option<&mut LiveChild> {
        match &mut self.state {
            ChildState::Live(live) => Some(live),
            _ => None,
        }
    }

    /// The session that called the sub-agent, or for which its session was created.
    fn parent_session(&self) -> Option<&str> {
        match &self.state {
            ChildState::Live(live) => Some(live.caller.as_str()),
            _ => self.registered.as_ref().map(|child_session| child_session.parent.as_str()),
        }
    }
}

impl SessionTree {
    pub(super) fn new(session: SessionId, root: Member) -> Self {
        Self { session, root, children: Vec::new(), calls: HashMap::new(), has_stopped_child: false }
    }

    pub(super) fn find(&self, session: &str) -> Option<usize> {
        self.children.iter().position(|child| child.session.as_str() == session)
    }

    /// Records a call of a sub-agent.
    pub(super) fn note_call(&mut self, child: &SessionId, call: &str, has_turn: bool) {
        self.calls.insert((child.clone(), call.to_owned()), has_turn);
    }

    /// Whether the sub-agent has a turn of its own for a call. `None`: the call is new.
    pub(super) fn has_turn(&self, child: &SessionId, call: &str) -> Option<bool> {
        self.calls.get(&(child.clone(), call.to_owned())).copied()
    }

    /// The sessions of the running sub-agents.
    pub(super) fn live_sessions(&self) -> Vec<String> {
        let live = self.children.iter().filter(|child| child.live().is_some());
        live.map(|child| child.session.as_str().to_owned()).collect()
    }

    /// The session of a member. `member`: `None` for the root.
    pub(super) fn session_of(&self, member: Option<usize>) -> &SessionId {
        member.map_or(&self.session, |at| &self.children[at].session)
    }

    pub(super) fn translator_of(&self, member: Option<usize>) -> Option<&Translator> {
        match member {
            None => Some(&self.root.translator),
            Some(at) => self.children[at].live().map(|live| &live.member.translator),
        }
    }

    /// Whether `session` is the member's own session or that of an ancestor. A sub-agent that calls such a session does not start a
    /// sub-agent, but writes to a session that is waiting for it.
    pub(super) fn is_self_or_ancestor(&self, member: Option<usize>, session: &SessionId) -> bool {
        *session == self.session || self.lineage(member).any(|at| self.children[at].session == *session)
    }

    /// The member, if it is a sub-agent, and then its ancestors up to the root.
    fn lineage(&self, member: Option<usize>) -> impl Iterator<Item = usize> {
        let next = |at: &usize| self.find(self.children[*at].parent_session()?);
        std::iter::successors(member, next).take(MAX_CHILDREN)
    }

    /// Handles an event of a sub-agent.
    pub(super) fn handle_event(
        &mut self,
        child_session: &Arc<ChildSession>,
        event: &Event,
    ) -> serde_json::Result<()> {
        let kind = event.kind;
        if kind.concerns_whole_tree() {
            self.root.translator.handle(event)?;
        }
        if kind.is_about_ask() {
            return Ok(());
        }
        let at = self.find(child_session.session.as_str()).unwrap_or_else(|| {
            self.add(child_session.session.clone(), Some(Arc::clone(child_session)), true);
            self.children.len() - 1
        });
        if kind == EventKind::MessageUpdated {
            let ancestors: Vec<usize> = self.lineage(Some(at)).skip(1).collect();
            for at in ancestors {
                if let Some(live) = self.children[at].live_mut() {
                    live.member.translator.handle(event)?;
                }
            }
        }
        match &mut self.children[at].state {
            ChildState::Unnamed(held) => held.push(event.clone()),
            ChildState::Live(live) => {
                live.member.translator.handle(event)?;
                live.must_read |= live.member.translator.must_reread();
            }
            // These are late events of a finished turn. If the sub-agent is called again, its messages are read.
            ChildState::Over => {}
        }
        Ok(())
    }

    pub(super) fn add(
        &mut self,
        session: SessionId,
        child_session: Option<Arc<ChildSession>>,
        is_complete: bool,
    ) {
        self.children.push(Child {
            session,
            registered: child_session,
            state: ChildState::Unnamed(HeldEvents::new(is_complete)),
            invalid_responses: InvalidResponses::default(),
            is_hidden: false,
        });
    }

    /// Passes on to all members that events were lost.
    pub(super) fn gap(&mut self) {
        self.root.translator.gap();
        for child in &mut self.children {
            match &mut child.state {
                ChildState::Unnamed(held) => held.discard(),
                ChildState::Live(live) => live.member.translator.gap(),
                ChildState::Over => {}
            }
        }
    }

    /// Requires a read of all sub-agents' messages.
    pub(super) fn must_read_all(&mut self) {
        for live in self.children.iter_mut().filter_map(Child::live_mut) {
            live.must_read = true;
        }
    }

    /// Merges the state of a sub-agent that was read from OpenCode.
    pub(super) fn merge_reading(&mut self, at: usize, reading: ChildReading) {
        let ChildReading { status, messages } = reading;
        let ancestors: Vec<usize> = self.lineage(Some(at)).skip(1).collect();
        self.root.translator.merge_child_messages(messages.iter().map(|message| &message.info));
        for at in ancestors {
            if let Some(live) = self.children[at].live_mut() {
                live.member.translator.merge_child_messages(messages.iter().map(|message| &message.info));
            }
        }
        if let Some(live) = self.children[at].live_mut() {
            live.member.translator.merge_messages(messages);
            live.member.translator.confirm_status(status.as_ref());
            live.must_read = false;
        }
    }

    /// Records that the tool call for which a sub-agent works is over.
    pub(super) fn call_returned(&mut self, child: &SessionId, call: &str, error: Option<&str>) {
        let Some(at) = self.find(child.as_str()) else { return };
        if let Some(live) = self.children[at].live_mut()
            && live.call.as_deref() == Some(call)
        {
            live.returned.get_or_insert_with(|| ReturnedCall::with(error.map(str::to_owned)));
        }
    }

    /// Called after a read: records which calls of sub-agents are over. If the stream reports the end of a call, `call_returned`
    /// records it.
    pub(super) fn note_returned_calls(&mut self) {
        for at in 0..self.children.len() {
            let Some(live) = self.children[at].live() else { continue };
            let Some(call) = live.call.clone().filter(|_| live.returned.is_none()) else { continue };
            let state = self.call(&call);
            if let (Some(state), Some(live)) = (state, self.children[at].live_mut()) {
                live.returned = state.is_over.then(|| ReturnedCall::with(state.error));
            }
        }
    }

    /// The state of a call of any member.
    pub(super) fn call(&self, call: &str) -> Option<CallState> {
        let children = self.children.iter().filter_map(Child::live).map(|live| &live.member.translator);
        std::iter::once(&self.root.translator).chain(children).find_map(|translator| translator.call(call))
    }

    /// A live sub-agent that has no live sub-agents itself. `ancestor`: only search below this member.
    pub(super) fn live_leaf(&self, ancestor: Option<usize>) -> Option<usize> {
        let called_by = |session: &SessionId| {
            let called = |child: &Child| child.live().is_some_and(|live| live.caller == *session);
            self.children.iter().position(called)
        };
        let first = match ancestor {
            Some(at) => called_by(&self.children[at].session),
            None => self.children.iter().position(|child| child.live().is_some()),
        };
        std::iter::successors(first, |at| called_by(&self.children[*at].session)).take(MAX_CHILDREN).last()
    }

    /// A live sub-agent whose messages must be read.
    pub(super) fn next_to_read(&self) -> Option<usize> {
        self.children.iter().position(|child| child.live().is_some_and(|live| live.must_read))
    }

    /// The next time at which the messages of some member must be read again.
    pub(super) fn due(&self) -> Option<Instant> {
        let children = self.children.iter().filter_map(Child::live).filter_map(|live| live.member.due());
        children.chain(self.root.due()).min()
    }

    /// Marks the sub-agents that are due for a read. Returns whether the root is due.
    pub(super) fn mark_due(&mut self) -> bool {
        let now = Instant::now();
        for live in self.children.iter_mut().filter_map(Child::live_mut) {
            if live.member.due().is_some_and(|due| due <= now) {
                live.must_read = true;
                live.member.was_read();
            }
        }
        let root = self.root.due().is_some_and(|due| due <= now);
        if root {
            self.root.was_read();
        }
        root
    }

    /// Called when the OpenCode process that worked on the turn has ended.
    pub(super) fn note_opencode_ended(&mut self) {
        self.root.translator.note_opencode_ended();
        for live in self.children.iter_mut().filter_map(Child::live_mut) {
            live.member.translator.note_opencode_ended();
        }
    }

    /// Whether silence is expected of some member: it has an open ask, a running tool, or a pending retry.
    pub(super) fn may_be_silent(&self) -> bool {
        self.root.translator.has_open_asks()
            || self.root.translator.may_be_silent()
            || self.children.iter().filter_map(Child::live).any(|live| live.member.translator.may_be_silent())
    }
}
