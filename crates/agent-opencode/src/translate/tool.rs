//! One tool call: its states, and the output of a running call.

use longshore_model::{
    AgentEvent, Artifact, BlockRef, CALLER_ARGUMENT, Json, PartContent, SessionId, ToolCall, ToolStatus,
};
use serde::Deserialize;

use crate::api::{ModelRef, Part};
use crate::outcome::FailedTool;

#[derive(Debug)]
pub(super) struct ToolBlock {
    block: BlockRef,
    /// The call as it was last reported, with all its output while it runs. For a finished call see `kept_state`.
    call: ToolCall,
    /// The time at which the call started.
    started: Option<f64>,
    /// The model of the sub-agent that the call started.
    model: Option<String>,
}

/// The state of a tool call.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct CallState {
    pub(crate) started: Option<f64>,
    pub(crate) is_over: bool,
    pub(crate) error: Option<String>,
    /// The model of the sub-agent that the call started.
    pub(crate) model: Option<String>,
}

impl ToolBlock {
    pub(super) fn opened(block: BlockRef, call: ToolCall, out: &mut Vec<AgentEvent>) -> Self {
        let kept = kept_state(&call);
        out.push(AgentEvent::Tool { block: block.clone(), call: Box::new(call) });
        Self { block, call: kept, started: None, model: None }
    }

    /// Restores a block from the log: the last complete state, and the output that was appended to it. `None`: the artifact
    /// contains no tool call.
    pub(super) fn resumed(block: BlockRef, artifact: &Artifact) -> Option<Self> {
        let mut calls = artifact.parts.iter().filter_map(|part| match &part.content {
            PartContent::Data(data) => serde_json::from_str::<LoggedCall>(data.get()).ok()?.call(),
            _ => None,
        });
        let mut call = calls.next()?;
        for more in calls {
            call.output.get_or_insert_default().push_str(more.output.as_deref().unwrap_or_default());
        }
        Some(Self { block, call: kept_state(&call), started: None, model: None })
    }

    /// Sets the sub-agent's session of a call that was restored from the log. The logged call does not contain it.
    pub(super) fn set_child(&mut self, call: &str, child: &SessionId) {
        if self.call.call_id == call {
            self.call.child = Some(child.clone());
        }
    }

    pub(super) fn note_start(&mut self, part: &Part) {
        let Some(state) = &part.state else { return };
        self.started = self.started.or(state.time.as_ref().and_then(|time| time.start));
        if self.model.is_none() && child_of(part).is_some() {
            let model = state.metadata.as_ref().and_then(|metadata| metadata.model.as_ref());
            self.model = model.map(ModelRef::name);
        }
    }

    /// The state of the call, if it has this id.
    pub(super) fn state_of(&self, call: &str) -> Option<CallState> {
        (self.call.call_id == call).then(|| CallState {
            started: self.started,
            is_over: rank(self.call.status) == 2,
            error: self.call.error.clone(),
            model: self.model.clone(),
        })
    }

    /// The message of an unfinished call. A call of a sub-agent does not count, because the sub-agent's own calls are checked
    /// instead.
    pub(super) fn unfinished_message(&self) -> Option<&str> {
        let works = rank(self.call.status) < 2 && self.call.child.is_none();
        let message = self.block.message.as_ref().filter(|_| works);
        message.map(longshore_model::MessageId::as_str)
    }

    pub(super) fn update(&mut self, call: ToolCall, out: &mut Vec<AgentEvent>) {
        // A finished call never changes, and a repeated or older state changes nothing.
        if rank(self.call.status) == 2 || rank(call.status) < rank(self.call.status) || call == self.call {
            return;
        }
        let before = std::mem::replace(&mut self.call, kept_state(&call));
        let block = self.block.clone();
        out.push(match added_output(&before, &call) {
            Some(added) => {
                let output = Some(added.to_owned());
                // Title, subtitle and input were reported before and have not changed.
                let call = ToolCall { output, title: None, subtitle: None, input: None, ..call };
                AgentEvent::ToolOutput { block, call: Box::new(call) }
            }
            None => AgentEvent::Tool { block, call: Box::new(call) },
        });
    }

    /// The tool's name and error, if this call belongs to the message and failed.
    pub(super) fn failure_in(&self, message: &str) -> Option<FailedTool<'_>> {
        let mine = self.block.message.as_ref().is_some_and(|mine| mine.as_str() == message);
        let failed = self.call.status == ToolStatus::Error && mine;
        failed.then(|| FailedTool {
            call: &self.call.call_id,
            tool: &self.call.tool,
            error: self.call.error.as_deref().unwrap_or_default(),
        })
    }
}

/// The fields of a call that are kept for comparison with its next state. A finished call has no next state, so its output, which
/// may be large, is dropped.
fn kept_state(call: &ToolCall) -> ToolCall {
    if rank(call.status) < 2 {
        return call.clone();
    }
    let ToolCall { call_id, tool, status, error, child, .. } = call;
    ToolCall { error: error.clone(), child: child.clone(), ..ToolCall::new(call_id, tool, *status) }
}

/// A tool call as it is logged.
#[derive(Deserialize)]
struct LoggedCall {
    call_id: String,
    tool: String,
    status: String,
    title: Option<String>,
    subtitle: Option<String>,
    input: Option<Json>,
    output: Option<String>,
    error: Option<String>,
}

impl LoggedCall {
    fn call(self) -> Option<ToolCall> {
        let Self { call_id, tool, status, title, subtitle, input, output, error } = self;
        let status = status_of(&status)?;
        Some(ToolCall { title, subtitle, input, output, error, ..ToolCall::new(call_id, tool, status) })
    }
}

/// The call in a tool part. `None`: the part is incomplete.
pub(super) fn call_from(part: &Part) -> Option<ToolCall> {
    let state = part.state.as_ref()?;
    let status = status_of(&state.status)?;
    let output = match status {
        ToolStatus::Running => state.metadata.as_ref().and_then(|metadata| metadata.output.clone()),
        _ => state.output.clone(),
    };
    // An empty object means that the model is still writing the arguments.
    let input = state.input.as_deref().map(Json::from_raw).filter(|input| input.get() != "{}");
    let input = input.map(|input| input.without(CALLER_ARGUMENT));
    let (id, tool) = (part.call.as_ref().unwrap_or(&part.id), part.tool.clone().unwrap_or_default());
    Some(ToolCall {
        title: state.title.clone().filter(|title| !title.is_empty()),
        subtitle: state.subtitle.clone().filter(|subtitle| !subtitle.is_empty()),
        input,
        output: output.filter(|output| !output.is_empty()),
        error: state.error.clone(),
        child: child_of(part),
        ..ToolCall::new(id, tool, status)
    })
}

/// The session of the sub-agent that a call started. Only the tool `task` starts one: the metadata of other tools may also name a
/// session.
fn child_of(part: &Part) -> Option<SessionId> {
    let metadata = part.state.as_ref()?.metadata.as_ref()?;
    let session = metadata.session.as_deref().filter(|_| part.tool.as_deref() == Some("task"))?;
    SessionId::parse(session).ok()
}

/// The text that was added to the output of a running call. `None`: anything else has changed.
fn added_output<'a>(before: &ToolCall, after: &'a ToolCall) -> Option<&'a str> {
    let same = before.status == ToolStatus::Running
        && after.status == ToolStatus::Running
        && before.title == after.title
        && before.subtitle == after.subtitle
        && before.input == after.input
        && before.error == after.error
        && before.child == after.child;
    let before = before.output.as_deref().unwrap_or_default();
    after.output.as_deref().filter(|_| same)?.strip_prefix(before)
}

fn status_of(name: &str) -> Option<ToolStatus> {
    Some(match name {
        "pending" => ToolStatus::Pending,
        "running" => ToolStatus::Running,
        "completed" => ToolStatus::Completed,
        "error" => ToolStatus::Error,
        _ => return None,
    })
}

fn rank(status: ToolStatus) -> u8 {
    match status {
        ToolStatus::Pending => 0,
        ToolStatus::Running => 1,
        ToolStatus::Completed | ToolStatus::Error => 2,
    }
}
