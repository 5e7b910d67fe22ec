//! The progress of a turn: the title of its session, its steps, retries, compactions and todos. Only changes are reported.

use std::collections::HashSet;

use longshore_model::{AgentEvent, Json, Progress, ProgressKind, SessionId, SessionNote};
use serde_json::json;

use crate::api::{Part, Status, Todo};
use crate::redact;

/// The beginning of OpenCode's placeholder for a session title. A timestamp follows.
const NAMELESS: &str = "New session - ";

#[derive(Debug, Default)]
pub(super) struct ReportedProgress {
    title: Option<String>,
    /// The part ids of the reported starts and ends of steps.
    steps: HashSet<String>,
    retry: Option<Json>,
    todos: Option<Json>,
}

impl ReportedProgress {
    pub(super) fn title(&mut self, session: &str, title: Option<&str>) -> Option<AgentEvent> {
        let title = title.filter(|title| !title.is_empty() && !is_placeholder(title))?;
        if self.title.as_deref() == Some(title) {
            return None;
        }
        self.title = Some(title.to_owned());
        let id = SessionId::parse(session).ok()?;
        Some(AgentEvent::Session(SessionNote { id, title: self.title.clone() }))
    }

    /// The event for the start or the end of a step. `None`: the part is neither.
    pub(super) fn step(&mut self, part: &Part) -> Option<AgentEvent> {
        let kind = match part.kind.as_str() {
            "step-start" => ProgressKind::StepStarted,
            "step-finish" => ProgressKind::StepFinished,
            _ => return None,
        };
        let mut details = json!({"type": part.kind, "part_id": part.id});
        if let Some(reason) = &part.reason {
            details["reason"] = reason.as_str().into();
        }
        self.steps.insert(part.id.clone()).then(|| progress(kind, Json::from_value(&details)))
    }

    pub(super) fn retry(&mut self, status: &Status) -> Option<AgentEvent> {
        let mut details = json!({"type": "retry"});
        if let Some(attempt) = &status.attempt {
            details["attempt"] = attempt.clone().into();
        }
        if let Some(message) = &status.message {
            details["message"] = redact::public(message).into();
        }
        if let Some(next) = &status.next {
            details["next"] = next.clone().into();
        }
        changed(&mut self.retry, ProgressKind::Retry, Json::from_value(&details))
    }

    pub(super) fn todos(&mut self, todos: &[Todo]) -> Option<AgentEvent> {
        let details = Json::from_value(&json!({"type": "todo", "todos": todos}));
        changed(&mut self.todos, ProgressKind::Todos, details)
    }
}

pub(super) fn compaction() -> AgentEvent {
    progress(ProgressKind::Compaction, Json::from_value(&json!({"type": "compaction"})))
}

fn changed(last: &mut Option<Json>, kind: ProgressKind, details: Json) -> Option<AgentEvent> {
    if last.as_ref() == Some(&details) {
        return None;
    }
    *last = Some(details.clone());
    Some(progress(kind, details))
}

fn progress(kind: ProgressKind, details: Json) -> AgentEvent {
    AgentEvent::Progress(Progress { kind, details: Some(details) })
}

/// Whether a title is OpenCode's placeholder. The timestamp is checked too, because a user may call a session "New session -
/// plans".
fn is_placeholder(title: &str) -> bool {
    title.strip_prefix(NAMELESS).is_some_and(|time| {
        time.ends_with('Z') && time.bytes().all(|byte| byte.is_ascii_digit() || b"-:.TZ".contains(&byte))
    })
}
