//! The agent of a turn and its sub-agents, at any depth: who there is, who called whom, and who hears what.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_model::{Outcome, SessionId};
use tokio::time::Instant;

use super::member::Member;
use super::invalid_responses::InvalidResponses;
use crate::api::EventKind;
use crate::reader::{ChildSession, MAX_CHILDREN};
use crate::reconcile::ChildReading;
use crate::skim::Event;
use crate::translate::Translator;

/// Events that may wait for the tool call that names their session. OpenCode sends that call first; what does not fit is
/// dropped, and the messages are read instead.
const MAX_HELD: usize = 256;
const MAX_HELD_BYTES: usize = 1024 * 1024;

#[derive(Debug)]
pub(super) struct SessionTree {
    session: SessionId,
    pub(super) root: Member,
    /// In the order in which they became known.
    pub(super) children: Vec<Child>,
    /// The tool calls of sub-agents, each with the sub-agent's session, and whether it has a turn of its own for that call.
    calls: HashMap<(SessionId, String), bool>,
    /// One of them was stopped, perhaps that one alone.
    pub(super) has_stopped_child: bool,
}

/// A sub-agent's session.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) session: SessionId,
    /// `None`: its events go to somebody else.
    pub(super) child_session: Option<Arc<ChildSession>>,
    pub(super) state: ChildState,
    pub(super) strange: InvalidResponses,
    /// OpenCode did not show its messages for too long, and has not since.
    pub(super) is_hidden: bool,
}

#[derive(Debug)]
pub(super) enum ChildState {
    /// No tool call has named it yet.
    Unnamed(HeldEvents),
    LiveChild(Box<LiveChild>),
    /// Nothing more is told of it, unless it is called again.
    Over,
}

/// What came of a session that nobody has named yet.
#[derive(Debug)]
pub(super) struct HeldEvents {
    pub(super) events: Vec<Event>,
    bytes: usize,
    /// Nothing is missing.
    pub(super) is_whole: bool,
    /// The calls were read once since it became known, and none named it.
    pub(super) was_searched_for: bool,
}

/// A sub-agent at work.
#[derive(Debug)]
pub(super) struct LiveChild {
    pub(super) member: Member,
    pub(super) caller: SessionId,
    pub(super) call: Option<String>,
    /// Its prompt was told.
    pub(super) is_working: bool,
    /// Its messages are to be read before anything is said about its end.
    pub(super) must_read: bool,
    /// The call that it works for is over.
    pub(super) returned: Option<ReturnedCall>,
    /// A watchdog stopped it: what it ended as.
    pub(super) given_up: Option<Outcome>,
    /// It was taken up again after a restart of the gateway.
    pub(super) is_resumed: bool,
}

/// How the call of a sub-agent ended.
#[derive(Debug)]
pub(super) struct ReturnedCall {
    pub(super) error: Option<String>,
    /// The sub-agent's messages are read, or about to be, since then.
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
            is_working: false,
            must_read: false,
            returned: None,
            given_up: None,
            is_resumed: false,
        }
    }
}

impl HeldEvents {
    pub(super) fn new(is_whole: bool) -> Self {
        Self { events: Vec::new(), bytes: 0, is_whole, was_searched_for: false }
    }

    fn push(&mut self, event: Event) {
        if self.events.len() >= MAX_HELD || self.bytes + event.len() > MAX_HELD_BYTES {
            self.lose();
        } else if self.is_whole {
            self.bytes += event.len();
            self.events.push(event);
        }
    }

    /// Something is missing, so that the rest is of no use.
    fn lose(&mut self) {
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

    /// The session that called it, or that it was made for.
    fn above(&self) -> Option<&str> {
        match &self.state {
            ChildState::Live(live) => Some(live.caller.as_str()),
            _ => self.child_session.as_ref().map(|child_session| child_session.parent.as_str()),
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

    /// Notes a call of a sub-agent.
    pub(super) fn note_call(&mut self, child: &SessionId, call: &str, has_turn: bool) {
        self.calls.insert((child.clone(), call.to_owned()), has_turn);
    }

    /// Whether a call is one for which the sub-agent has a turn of its own. `None`: it is new.
    pub(super) fn has_turn(&self, child: &SessionId, call: &str) -> Option<bool> {
        self.calls.get(&(child.clone(), call.to_owned())).copied()
    }

    /// The sessions of the sub-agents at work.
    pub(super) fn live_sessions(&self) -> Vec<String> {
        let live = self.children.iter().filter(|child| child.live().is_some());
        live.map(|child| child.session.as_str().to_owned()).collect()
    }

    /// The session of a member; the root's for `None`.
    pub(super) fn session_of(&self, member: Option<usize>) -> &SessionId {
        member.map_or(&self.session, |at| &self.children[at].session)
    }

    pub(super) fn translator_of(&self, member: Option<usize>) -> Option<&Translator> {
        match member {
            None => Some(&self.root.translator),
            Some(at) => self.children[at].live().map(|live| &live.member.translator),
        }
    }

    /// Whether `session` is that of the member itself, or of one above it. A sub-agent that calls such a one is no caller of
    /// a sub-agent: it writes to somebody who waits for it.
    pub(super) fn is_self_or_ancestor(&self, member: Option<usize>, session: &SessionId) -> bool {
        *session == self.session || self.line(member).any(|at| self.children[at].session == *session)
    }

    /// The member if it is a sub-agent, then those above it up to the root.
    fn line(&self, member: Option<usize>) -> impl Iterator<Item = usize> {
        let next = |at: &usize| self.find(self.children[*at].above()?);
        std::iter::successors(member, next).take(MAX_CHILDREN)
    }

    /// Takes in an event of a sub-agent.
    pub(super) fn event(&mut self, child_session: &Arc<ChildSession>, event: &Event) -> serde_json::Result<()> {
        let kind = event.kind;
        if kind.crosses_the_tree() {
            self.root.translator.handle(event)?;
        }
        if kind.is_of_an_ask() {
            return Ok(());
        }
        let at = self.find(child_session.session.as_str()).unwrap_or_else(|| {
            self.add(child_session.session.clone(), Some(Arc::clone(child_session)), true);
            self.children.len() - 1
        });
        if kind == EventKind::MessageUpdated {
            let above: Vec<usize> = self.line(Some(at)).skip(1).collect();
            for at in above {
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
            // The last words of what is over. When it is called again, its messages are read.
            ChildState::Over => {}
        }
        Ok(())
    }

    pub(super) fn add(&mut self, session: SessionId, child_session: Option<Arc<ChildSession>>, is_whole: bool) {
        self.children.push(Child {
            session,
            child_session,
            state: ChildState::Unnamed(HeldEvents::new(is_whole)),
            strange: InvalidResponses::default(),
            is_hidden: false,
        });
    }

    /// Events were lost.
    pub(super) fn gap(&mut self) {
        self.root.translator.gap();
        for child in &mut self.children {
            match &mut child.state {
                ChildState::Unnamed(held) => held.lose(),
                ChildState::Live(live) => live.member.translator.gap(),
                ChildState::Over => {}
            }
        }
    }

    /// Sees to it that all sub-agents' messages are read.
    pub(super) fn must_read_all(&mut self) {
        for live in self.children.iter_mut().filter_map(Child::live_mut) {
            live.must_read = true;
        }
    }

    /// Takes in how a sub-agent stands.
    pub(super) fn list(&mut self, at: usize, reading: ChildReading) {
        let ChildReading { status, messages } = reading;
        let above: Vec<usize> = self.line(Some(at)).skip(1).collect();
        self.root.translator.merge_child_messages(messages.iter().map(|message| &message.info));
        for at in above {
            if let Some(live) = self.children[at].live_mut() {
                live.member.translator.merge_child_messages(messages.iter().map(|message| &message.info));
            }
        }
        if let Some(live) = self.children[at].live_mut() {
            live.member.translator.list(messages);
            live.member.translator.confirm_status(status.as_ref());
            live.must_read = false;
        }
    }

    /// A tool call of a sub-agent's caller is over.
    pub(super) fn returned(&mut self, child: &SessionId, call: &str, error: Option<&str>) {
        let Some(at) = self.find(child.as_str()) else { return };
        if let Some(live) = self.children[at].live_mut()
            && live.call.as_deref() == Some(call)
        {
            live.returned.get_or_insert_with(|| ReturnedCall::with(error.map(str::to_owned)));
        }
    }

    /// Looks whether the calls of the sub-agents are over. The stream says so itself; this is for after a reading.
    pub(super) fn note_returned_calls(&mut self) {
        for at in 0..self.children.len() {
            let Some(live) = self.children[at].live() else { continue };
            let Some(call) = live.call.clone().filter(|_| live.returned.is_none()) else { continue };
            let facts = self.call(&call);
            if let (Some(facts), Some(live)) = (facts, self.children[at].live_mut()) {
                live.returned = facts.is_over.then(|| ReturnedCall::with(facts.error));
            }
        }
    }

    /// How far a call is, whoever made it.
    pub(super) fn call(&self, call: &str) -> Option<crate::translate::CallState> {
        let below = self.children.iter().filter_map(Child::live).map(|live| &live.member.translator);
        std::iter::once(&self.root.translator).chain(below).find_map(|translator| translator.call(call))
    }

    /// A live sub-agent that has none itself, below this one or anywhere.
    pub(super) fn live_leaf(&self, below: Option<usize>) -> Option<usize> {
        let of = |session: &SessionId| {
            let called = |child: &Child| child.live().is_some_and(|live| live.caller == *session);
            self.children.iter().position(called)
        };
        let first = match below {
            Some(at) => of(&self.children[at].session),
            None => self.children.iter().position(|child| child.live().is_some()),
        };
        std::iter::successors(first, |at| of(&self.children[*at].session)).take(MAX_CHILDREN).last()
    }

    /// A live sub-agent whose messages are to be read.
    pub(super) fn next_to_read(&self) -> Option<usize> {
        self.children.iter().position(|child| child.live().is_some_and(|live| live.must_read))
    }

    /// When somebody's messages are to be read again.
    pub(super) fn due(&self) -> Option<Instant> {
        let below = self.children.iter().filter_map(Child::live).filter_map(|live| live.member.due());
        below.chain(self.root.due()).min()
    }

    /// Sees to it that those who are due are read. Says whether the root is.
    pub(super) fn read_due(&mut self) -> bool {
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

    /// Whether somebody has a reason to be silent.
    pub(super) fn may_be_silent(&self) -> bool {
        let below = self.children.iter().filter_map(Child::live);
        self.root.translator.has_open_asks()
            || self.root.translator.may_be_silent()
            || below.into_iter().any(|live| live.member.translator.may_be_silent())
    }
}
