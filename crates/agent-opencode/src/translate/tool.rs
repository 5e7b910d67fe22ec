//! One tool call: its states, and the output of a running one.

use longshore_model::{AgentEvent, Artifact, BlockRef, Json, PartContent, ToolCall, ToolStatus};
use serde::Deserialize;

use crate::api::Part;

#[derive(Debug)]
pub(super) struct ToolBlock {
    block: BlockRef,
    /// As it was last reported, with all its output.
    call: ToolCall,
}

impl ToolBlock {
    pub(super) fn opened(block: BlockRef, call: ToolCall, out: &mut Vec<AgentEvent>) -> Self {
        out.push(AgentEvent::Tool { block: block.clone(), call: call.clone() });
        Self { block, call }
    }

    /// A block as the log has it: the last whole state, and the output that was added to it part by part. `None` when
    /// it is no tool call of this gateway.
    pub(super) fn resumed(block: BlockRef, artifact: &Artifact) -> Option<Self> {
        let mut calls = artifact.parts.iter().filter_map(|part| match &part.content {
            PartContent::Data(data) => serde_json::from_str::<Logged>(data.get()).ok()?.call(),
            _ => None,
        });
        let mut call = calls.next()?;
        for more in calls {
            call.output.get_or_insert_default().push_str(more.output.as_deref().unwrap_or_default());
        }
        Some(Self { block, call })
    }

    pub(super) fn update(&mut self, call: ToolCall, out: &mut Vec<AgentEvent>) {
        // A finished call stays as it is, and a repeated or older state is no news.
        if rank(self.call.status) == 2 || rank(call.status) < rank(self.call.status) || call == self.call {
            return;
        }
        let before = std::mem::replace(&mut self.call, call.clone());
        let block = self.block.clone();
        out.push(match added_output(&before, &call) {
            Some(added) => {
                let output = Some(added.to_owned());
                // The rest was said before and is as it was.
                AgentEvent::ToolOutput { block, call: ToolCall { output, title: None, input: None, ..call } }
            }
            None => AgentEvent::Tool { block, call },
        });
    }

    /// The tool's name and error, if it failed in this message.
    pub(super) fn failure_in(&self, message: &str) -> Option<(&str, &str)> {
        let mine = self.block.message.as_ref().is_some_and(|mine| mine.as_str() == message);
        let failed = self.call.status == ToolStatus::Error && mine;
        failed.then(|| (self.call.tool.as_str(), self.call.error.as_deref().unwrap_or_default()))
    }
}

/// A tool call in the log.
#[derive(Deserialize)]
struct Logged {
    call_id: String,
    tool: String,
    status: String,
    title: Option<String>,
    input: Option<Json>,
    output: Option<String>,
    error: Option<String>,
}

impl Logged {
    fn call(self) -> Option<ToolCall> {
        let Self { call_id, tool, status, title, input, output, error } = self;
        Some(ToolCall { call_id, tool, status: status_of(&status)?, title, input, output, error })
    }
}

/// The call that a tool part shows. `None` when the part is not whole.
pub(super) fn call_of(part: &Part) -> Option<ToolCall> {
    let state = part.state.as_ref()?;
    let status = status_of(&state.status)?;
    let output = match status {
        ToolStatus::Running => state.metadata.as_ref().and_then(|metadata| metadata.output.clone()),
        _ => state.output.clone(),
    };
    // While the model still writes the arguments, OpenCode shows none.
    let input = state.input.as_deref().map(Json::from_raw).filter(|input| input.get() != "{}");
    Some(ToolCall {
        call_id: part.call.clone().unwrap_or_else(|| part.id.clone()),
        tool: part.tool.clone().unwrap_or_default(),
        status,
        title: state.title.clone().filter(|title| !title.is_empty()),
        input,
        output: output.filter(|output| !output.is_empty()),
        error: state.error.clone(),
    })
}

/// What a running call wrote since, when that is all that changed.
fn added_output<'a>(before: &ToolCall, after: &'a ToolCall) -> Option<&'a str> {
    let same = before.status == ToolStatus::Running
        && after.status == ToolStatus::Running
        && before.title == after.title
        && before.input == after.input
        && before.error == after.error;
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
