//! Sorts the events of a turn by its sub-agents.

use longshore_model::{ChildEvent, ChildStart, ToolCall};

use super::*;

/// One turn of a sub-agent.
#[derive(Debug)]
pub(crate) struct ChildTurn {
    pub(crate) session: String,
    /// `None`: the sub-agent started before the gateway.
    pub(crate) start: Option<ChildStart>,
    pub(crate) prompt: Option<String>,
    /// The reports, with the end as the last.
    pub(crate) reports: Vec<AgentEvent>,
}

impl ChildTurn {
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.reports.last(), Some(AgentEvent::Ended(_)))
    }
}

/// The turns of sub-agents in the order in which they began.
pub(crate) fn turns(events: &[AgentEvent], resumed: &[&str]) -> Vec<ChildTurn> {
    let turn = |session: &str, start| ChildTurn {
        session: session.to_owned(),
        start,
        prompt: None,
        reports: Vec::new(),
    };
    let mut turns: Vec<ChildTurn> = resumed.iter().map(|session| turn(session, None)).collect();
    for event in events {
        let AgentEvent::Child { session, event } = event else { continue };
        let open = turns.iter_mut().find(|turn| turn.session == session.as_str() && !turn.is_over());
        match (&**event, open) {
            (ChildEvent::Started(start), None) => turns.push(turn(session.as_str(), Some(start.clone()))),
            (ChildEvent::Working(prompt), Some(turn)) if turn.prompt.is_none() && turn.reports.is_empty() => {
                turn.prompt = Some(prompt.as_str().to_owned());
            }
            (ChildEvent::Report(report), Some(turn)) => {
                let belongs_to_root = matches!(
                    report,
                    AgentEvent::Child { .. } | AgentEvent::Asked(_) | AgentEvent::AskClosed { .. }
                );
                assert!(!belongs_to_root, "{report:?}");
                turn.reports.push(report.clone());
            }
            (event, _) => panic!("{event:?} of {session} is out of order in {events:#?}"),
        }
    }
    turns
}

/// The only turn of a sub-agent.
pub(crate) fn only(events: &[AgentEvent]) -> ChildTurn {
    let mut turns = turns(events, &[]);
    assert_eq!(turns.len(), 1, "{turns:#?}");
    turns.remove(0)
}

/// The same as [`check`] for the rest of a turn whose first events were taken before.
pub(crate) fn check_rest(events: &[AgentEvent]) {
    let mut starts: Vec<&str> = Vec::new();
    let mut earlier: Vec<&str> = Vec::new();
    for event in events {
        let AgentEvent::Child { session, event } = event else { continue };
        let is_start = matches!(**event, ChildEvent::Started(_));
        let known = starts.contains(&session.as_str()) || earlier.contains(&session.as_str());
        match (known, is_start) {
            (false, true) => starts.push(session.as_str()),
            (false, false) => earlier.push(session.as_str()),
            (true, _) => {}
        }
    }
    let calls = events.iter().filter_map(call_of).filter_map(|call| call.child.as_ref());
    let named = calls.map(longshore_model::SessionId::as_str).filter(|child| !starts.contains(child));
    let over: Vec<&str> = named.filter(|child| !earlier.contains(child)).collect();
    for turn in turns(events, &earlier) {
        assert!(turn.is_over(), "{} has no end in {events:#?}", turn.session);
    }
    earlier.extend(over);
    check_names(events, earlier);
}

/// Checks that a sub-agent starts before the call that names it, and ends once, before the turn does.
pub(crate) fn check(events: &[AgentEvent], resumed: &[&str]) {
    for turn in turns(events, resumed) {
        assert!(turn.is_over(), "{} has no end in {events:#?}", turn.session);
    }
    check_names(events, resumed.to_vec());
}

fn check_names<'a>(events: &'a [AgentEvent], mut started: Vec<&'a str>) {
    for event in events {
        let report = match event {
            AgentEvent::Child { session, event } => match &**event {
                ChildEvent::Started(_) => {
                    started.push(session.as_str());
                    continue;
                }
                ChildEvent::Report(report) => report,
                ChildEvent::Working(_) | ChildEvent::Model(_) => continue,
            },
            event => event,
        };
        if let Some(child) = call_of(report).and_then(|call| call.child.as_ref()) {
            assert!(started.contains(&child.as_str()), "{child} was named before its start in {events:#?}");
        }
    }
}

fn call_of(event: &AgentEvent) -> Option<&ToolCall> {
    match event {
        AgentEvent::Tool { call, .. } | AgentEvent::ToolOutput { call, .. } => Some(call),
        _ => None,
    }
}

/// The artifacts that a log holds after these events.
pub(crate) fn logged<'a>(events: impl IntoIterator<Item = &'a AgentEvent>) -> Vec<longshore_model::Artifact> {
    use longshore_model::{Artifact, Json, Part};
    let mut artifacts: Vec<Artifact> = Vec::new();
    for event in events {
        let (block, part, append) = match event {
            AgentEvent::Text { block, text } => (block, Part::text(text), true),
            AgentEvent::TextReplaced { block, text } => (block, Part::text(text), false),
            AgentEvent::Tool { block, call } => {
                let data = serde_json::json!({"call_id": call.call_id, "tool": call.tool,
                    "status": call.status.as_str(), "title": call.title, "output": call.output,
                    "input": call.input.as_ref().map(Json::to_value), "child_task_id": "some"});
                (block, Part::data(Json::from_value(&data)), false)
            }
            _ => continue,
        };
        match artifacts.iter_mut().find(|artifact| artifact.id == block.id) {
            Some(artifact) if append => artifact.parts.push(part),
            Some(artifact) => artifact.parts = vec![part],
            None => artifacts.push(Artifact {
                id: block.id.clone(),
                kind: block.kind,
                source_message: block.message.clone(),
                name: None,
                description: None,
                parts: vec![part],
                extensions: Vec::new(),
                metadata: None,
            }),
        }
    }
    artifacts
}
