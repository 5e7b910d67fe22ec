//! The asks of a turn and of its sub-agents. Each ask is reported once, and its end is reported once.

use std::collections::HashSet;

use longshore_model::{AgentEvent, Ask, RequestId, Resolution};

#[derive(Debug, Default)]
pub(super) struct Asks {
    /// All asks that were reported, including those before a restart of the gateway.
    reported: HashSet<String>,
    /// The asks that wait for an answer, in the order in which they were reported.
    open: Vec<Open>,
    /// Whether a sub-agent became idle while it had an open ask. Then only OpenCode's lists show whether the ask is still open.
    must_read_lists: bool,
}

#[derive(Debug)]
struct Open {
    id: RequestId,
    /// The session that asks. `None`: the ask was reported before a restart of the gateway.
    session: Option<String>,
}

/// The open asks, as OpenCode lists them.
pub(super) struct ListedAsks<'a> {
    /// The listed asks, each with its session. The asks of aborted turns stay in the lists for ever.
    pub(super) asks: Vec<(&'a str, &'a str)>,
    /// The busy sessions among the turn's session and its sub-agents. An idle session waits for no answer.
    pub(super) busy: &'a HashSet<String>,
    /// Whether the newest step (assistant message) of the turn completed without an abort. If so, an ask that is missing in
    /// OpenCode's lists was answered, not lost.
    pub(super) finished: bool,
}

impl Asks {
    /// Restores the asks that are open according to the log.
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

    /// Called when a sub-agent became idle.
    pub(super) fn session_idle(&mut self, session: &str) {
        self.must_read_lists |= self.open.iter().any(|open| open.session.as_deref() == Some(session));
    }

    pub(super) fn take_must_read_lists(&mut self) -> bool {
        std::mem::take(&mut self.must_read_lists)
    }

    pub(super) fn open(&mut self, ask: Ask) -> Option<AgentEvent> {
        self.reported.insert(ask.request_id.as_str().to_owned()).then(|| {
            let session = Some(ask.session.as_str().to_owned());
            self.open.push(Open { id: ask.request_id.clone(), session });
            AgentEvent::Asked(Box::new(ask))
        })
    }

    /// Closes an ask that some client answered. The answer may have come through the gateway; the engine knows which answers it has
    /// sent.
    pub(super) fn close_answered(&mut self, id: &str, rejected: bool) -> Option<AgentEvent> {
        let at = self.open.iter().position(|open| open.id.as_str() == id)?;
        let id = self.open.remove(at).id;
        let resolution = if rejected { Resolution::RejectedElsewhere } else { Resolution::Elsewhere };
        Some(AgentEvent::AskClosed { request_id: id, resolution })
    }

    /// Closes the asks that are no longer open according to OpenCode's lists.
    pub(super) fn close_unlisted(&mut self, listed: &ListedAsks<'_>) -> Vec<AgentEvent> {
        self.close_where(|open| {
            let found = listed.asks.iter().find(|(id, _)| *id == open.id.as_str());
            match found {
                Some((_, session)) if listed.busy.contains(*session) => {
                    open.session = Some((*session).to_owned());
                    None
                }
                None if listed.finished || !listed.busy.is_empty() => Some(Resolution::Elsewhere),
                // The ask is still listed although its session is idle, so an abort left it there. Or OpenCode was stopped and lost
                // the ask.
                _ => Some(Resolution::Dropped),
            }
        })
    }

    /// Closes all asks, because the turn is over.
    pub(super) fn drop_all(&mut self) -> Vec<AgentEvent> {
        self.close_where(|_| Some(Resolution::Dropped))
    }

    fn close_where(&mut self, resolve: impl Fn(&mut Open) -> Option<Resolution>) -> Vec<AgentEvent> {
        let mut closed = Vec::new();
        self.open.retain_mut(|open| match resolve(open) {
            Some(resolution) => {
                closed.push(AgentEvent::AskClosed { request_id: open.id.clone(), resolution });
                false
            }
            None => true,
        });
        closed
    }
}
