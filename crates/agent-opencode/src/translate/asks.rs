//! The asks of a turn and of its sub-agents: each is told once, and its end is.

use std::collections::HashSet;

use longshore_model::{AgentEvent, Ask, RequestId, Resolution};

#[derive(Debug, Default)]
pub(super) struct Asks {
    /// All that were told, in this life of the gateway or before.
    reported: HashSet<String>,
    /// Those that wait for an answer, in the order in which they were told.
    open: Vec<Open>,
    /// A sub-agent stopped while it asked: only OpenCode's lists tell whether it still does.
    must_read_lists: bool,
}

#[derive(Debug)]
struct Open {
    id: RequestId,
    /// The session that asks. `None`: it was told before the gateway was restarted.
    session: Option<String>,
}

/// What OpenCode says about its asks when it is asked.
pub(super) struct ListedAsks<'a> {
    /// The asks in its lists, each with its session. Those of turns that were aborted stay in them for good.
    pub(super) asks: Vec<(&'a str, &'a str)>,
    /// The session and those of its sub-agents that are busy. Others wait for no answer.
    pub(super) at_work: &'a HashSet<String>,
    /// The turn came to an end of its own, so an ask that is in no list any more was answered.
    pub(super) finished: bool,
}

impl Asks {
    /// The log says that these are open.
    pub(super) fn resume(open: &[RequestId]) -> Self {
        Self {
            reported: open.iter().map(|id| id.as_str().to_owned()).collect(),
            open: open.iter().map(|id| Open { id: id.clone(), session: None }).collect(),
            must_read_lists: false,
        }
    }

    pub(super) fn any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// A sub-agent is idle.
    pub(super) fn stopped(&mut self, session: &str) {
        self.must_read_lists |= self.open.iter().any(|open| open.session.as_deref() == Some(session));
    }

    pub(super) fn take_must_read_lists(&mut self) -> bool {
        std::mem::take(&mut self.must_read_lists)
    }

    pub(super) fn asked(&mut self, ask: Ask) -> Option<AgentEvent> {
        self.reported.insert(ask.request_id.as_str().to_owned()).then(|| {
            let session = Some(ask.session.as_str().to_owned());
            self.open.push(Open { id: ask.request_id.clone(), session });
            AgentEvent::Asked(ask)
        })
    }

    /// Somebody answered, perhaps through the gateway: the engine knows what it did itself.
    pub(super) fn answered(&mut self, id: &str, rejected: bool) -> Option<AgentEvent> {
        let at = self.open.iter().position(|open| open.id.as_str() == id)?;
        let id = self.open.remove(at).id;
        let resolution = if rejected { Resolution::RejectedElsewhere } else { Resolution::Elsewhere };
        Some(AgentEvent::AskClosed { request_id: id, resolution })
    }

    /// Closes what is no longer open by OpenCode's lists.
    pub(super) fn compare(&mut self, listed: &ListedAsks<'_>) -> Vec<AgentEvent> {
        self.close_where(|open| {
            let found = listed.asks.iter().find(|(id, _)| *id == open.id.as_str());
            match found {
                Some((_, session)) if listed.at_work.contains(*session) => {
                    open.session = Some((*session).to_owned());
                    None
                }
                None if listed.finished || !listed.at_work.is_empty() => Some(Resolution::Elsewhere),
                // An abort left it in the list, or OpenCode itself was stopped and forgot it.
                _ => Some(Resolution::Dropped),
            }
        })
    }

    /// The turn is over.
    pub(super) fn drop_all(&mut self) -> Vec<AgentEvent> {
        self.close_where(|_| Some(Resolution::Dropped))
    }

    fn close_where(&mut self, fate: impl Fn(&mut Open) -> Option<Resolution>) -> Vec<AgentEvent> {
        let mut closed = Vec::new();
        self.open.retain_mut(|open| match fate(open) {
            Some(resolution) => {
                closed.push(AgentEvent::AskClosed { request_id: open.id.clone(), resolution });
                false
            }
            None => true,
        });
        closed
    }
}
