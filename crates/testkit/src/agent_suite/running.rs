//! A turn as its reader sees it.

use longshore_engine::port::{Session, Turn};
use longshore_model::{AgentEvent, Ask, BlockKind, Outcome, PromptId, RequestId, ToolCall, ToolStatus};

use super::port::soon;

/// A turn that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) turn: Turn,
    pub(super) session: Session,
    pub(super) prompt: PromptId,
    /// The events so far.
    pub(super) seen: Vec<AgentEvent>,
}

impl Running {
    pub(super) fn new(turn: Turn, session: Session, prompt: PromptId) -> Self {
        Self { turn, session, prompt, seen: Vec::new() }
    }

    /// Reads one event. `None`: the turn has no more.
    async fn next(&mut self) -> Option<&AgentEvent> {
        let event = soon("the next event of a turn", self.turn.events.recv()).await?;
        self.seen.push(event);
        self.seen.last()
    }

    async fn until(&mut self, what: &str, found: impl Fn(&Self) -> bool) {
        while !found(self) {
            let is_over = self.next().await.is_none();
            assert!(!is_over, "the turn ended before {what}: {:?}", self.seen);
        }
    }

    /// Reads until this is the text so far.
    pub(super) async fn until_text(&mut self, text: &str) {
        self.until(text, |running| text_of(&running.seen, is_reply) == text).await;
    }

    /// Reads until a tool call runs.
    pub(super) async fn until_tool_runs(&mut self) {
        let runs =
            |running: &Self| tools_of(&running.seen).iter().any(|call| call.status == ToolStatus::Running);
        self.until("a tool ran", runs).await;
    }

    /// Reads until the next ask.
    pub(super) async fn asked(&mut self) -> Ask {
        let known = asks_of(&self.seen).len();
        self.until("an ask", |running| asks_of(&running.seen).len() > known).await;
        asks_of(&self.seen).swap_remove(known)
    }

    /// Reads until the ask is closed.
    pub(super) async fn until_closed(&mut self, ask: &Ask) {
        self.until("the ask was closed", |running| closed_in(&running.seen).contains(&ask.request_id)).await;
    }

    /// Reads so many events, or all if the turn has fewer.
    pub(super) async fn read_some(&mut self, events: usize) {
        for _ in 0..events {
            if self.is_over() || self.next().await.is_none() {
                return;
            }
        }
    }

    pub(super) async fn until_end(&mut self) {
        self.until("its end", Self::is_over).await;
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.seen.last(), Some(AgentEvent::Ended(_)))
    }

    /// Reads all the rest. Checks that the turn ends exactly once, and last.
    pub(super) async fn rest(mut self) -> Finished {
        while self.next().await.is_some() {}
        let events = self.seen;
        let ends = events.iter().filter(|event| matches!(event, AgentEvent::Ended(_))).count();
        assert_eq!(ends, 1, "ends of the turn: {events:?}");
        let Some(AgentEvent::Ended(outcome)) = events.last() else {
            panic!("something follows the end: {events:?}");
        };
        let closed = closed_in(&events);
        for ask in asks_of(&events) {
            let times = closed.iter().filter(|closed| **closed == ask.request_id).count();
            assert_eq!(times, 1, "an ask is closed once: {events:?}");
        }
        Finished { end: End::of(outcome), events }
    }
}

/// A turn that is over.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) events: Vec<AgentEvent>,
    pub(super) end: End,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    Completed,
    Canceled,
    /// With its reason.
    Failed(String),
}

impl End {
    fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Completed { .. } => Self::Completed,
            Outcome::Canceled { .. } => Self::Canceled,
            Outcome::Failed(failure) | Outcome::AuthRequired(failure) => {
                Self::Failed(failure.message.clone())
            }
            Outcome::Incomplete(outcome) => Self::of(outcome),
        }
    }
}

impl Finished {
    /// The reply, without thoughts.
    pub(super) fn text(&self) -> String {
        text_of(&self.events, is_reply)
    }

    pub(super) fn thoughts(&self) -> String {
        text_of(&self.events, |kind| !is_reply(kind))
    }

    /// The last state of each tool call.
    pub(super) fn tools(&self) -> Vec<ToolCall> {
        tools_of(&self.events)
    }

    /// No tool call runs after the end.
    pub(super) fn closed_tools(&self) {
        let open = self.tools().into_iter().find(|call| is_open(call.status));
        assert!(open.is_none(), "a tool call is still open at the end: {open:?}");
    }

    pub(super) fn completed(&self, text: &str) {
        self.closed_tools();
        assert_eq!((&self.end, self.text().as_str()), (&End::Completed, text), "{:?}", self.events);
    }

    pub(super) fn canceled(&self, text: &str) {
        self.closed_tools();
        assert_eq!((&self.end, self.text().as_str()), (&End::Canceled, text), "{:?}", self.events);
    }

    /// The turn failed with a reason that may be shown.
    pub(super) fn failed(&self, text: &str) -> &str {
        let End::Failed(reason) = &self.end else { panic!("the turn did not fail: {:?}", self.events) };
        assert!(reason.len() > 10, "no reason: {reason:?}");
        assert!(!reason.contains("/home/"), "a path in the reason: {reason}");
        assert_eq!(self.text(), text, "{:?}", self.events);
        reason
    }
}

fn is_reply(kind: BlockKind) -> bool {
    kind == BlockKind::Text
}

fn is_open(status: ToolStatus) -> bool {
    matches!(status, ToolStatus::Pending | ToolStatus::Running)
}

/// The text of the chosen blocks after the events were applied.
fn text_of(events: &[AgentEvent], is_chosen: impl Fn(BlockKind) -> bool) -> String {
    let mut blocks: Vec<(&str, String)> = Vec::new();
    for event in events {
        let (block, text, is_more) = match event {
            AgentEvent::Text { block, text } => (block, text, true),
            AgentEvent::TextReplaced { block, text } => (block, text, false),
            _ => continue,
        };
        if !is_chosen(block.kind) {
            continue;
        }
        match blocks.iter_mut().find(|(id, _)| *id == block.id.as_str()) {
            Some((_, known)) if is_more => known.push_str(text),
            Some((_, known)) => known.clone_from(text),
            None => blocks.push((block.id.as_str(), text.clone())),
        }
    }
    blocks.into_iter().map(|(_, text)| text).collect()
}

fn tools_of(events: &[AgentEvent]) -> Vec<ToolCall> {
    let mut calls: Vec<ToolCall> = Vec::new();
    for event in events {
        let AgentEvent::Tool { call, .. } = event else { continue };
        match calls.iter_mut().find(|known| known.call_id == call.call_id) {
            Some(known) => known.clone_from(call),
            None => calls.push(call.as_ref().clone()),
        }
    }
    calls
}

fn asks_of(events: &[AgentEvent]) -> Vec<Ask> {
    let ask = |event: &AgentEvent| match event {
        AgentEvent::Asked(ask) => Some(ask.as_ref().clone()),
        _ => None,
    };
    events.iter().filter_map(ask).collect()
}

fn closed_in(events: &[AgentEvent]) -> Vec<RequestId> {
    let closed = |event: &AgentEvent| match event {
        AgentEvent::AskClosed { request_id, .. } => Some(request_id.clone()),
        _ => None,
    };
    events.iter().filter_map(closed).collect()
}
