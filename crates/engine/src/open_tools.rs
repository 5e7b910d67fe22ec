//! The tool calls of a task that have begun and not ended. A task that ends closes them, because otherwise they would seem to
//! run for ever.

use longshore_model::{
    Artifact, ArtifactId, ArtifactUpdate, BlockKind, Json, Part, PartContent, Task, TaskEvent, TaskState,
    ToolLocation, ToolStatus,
};
use serde::{Deserialize, Serialize};

/// A tool call as it is stored in a task: the keys of `lifecycle::ToolData`.
#[derive(Serialize, Deserialize)]
struct ShownCall {
    call_id: String,
    tool: String,
    status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subtitle: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    locations: Vec<ToolLocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    child_task_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    meta: Option<Json>,
}

/// The ids of the open calls.
pub(crate) fn ids(task: &Task) -> Vec<ArtifactId> {
    open(task).map(|(artifact, _)| artifact.id.clone()).collect()
}

/// One event for each call that is still open when the task enters its last state.
pub(crate) fn closed(task: &Task, end: TaskState) -> Vec<TaskEvent> {
    let why = match end {
        TaskState::Canceled => {
            "The task was canceled before this call ended. What it had done by then is done."
        }
        _ => {
            "The turn ended, and the agent did not report the end of this call. What it had done by then is done."
        }
    };
    open(task)
        .map(|(artifact, mut call)| {
            // If the output was reported in pieces, the pieces are separate parts of the artifact and are kept.
            let append = artifact.parts.len() > 1;
            call.output = call.output.filter(|_| !append);
            ToolStatus::Error.as_str().clone_into(&mut call.status);
            call.error = Some(why.to_owned());
            let parts = vec![Part::data(Json::from_value(&call))];
            let artifact = Artifact { parts, ..without_parts(artifact) };
            TaskEvent::Artifact(ArtifactUpdate { artifact, append, last_chunk: true, metadata: None })
        })
        .collect()
}

fn open(task: &Task) -> impl Iterator<Item = (&Artifact, ShownCall)> {
    let ends = [ToolStatus::Completed, ToolStatus::Error].map(ToolStatus::as_str);
    let calls = task.artifacts.iter().filter(|artifact| artifact.kind == BlockKind::ToolCall);
    calls.filter_map(move |artifact| match &artifact.parts.last()?.content {
        PartContent::Data(data) => {
            let call: ShownCall = serde_json::from_str(data.get()).ok()?;
            (!ends.contains(&call.status.as_str())).then_some((artifact, call))
        }
        _ => None,
    })
}

fn without_parts(artifact: &Artifact) -> Artifact {
    Artifact {
        id: artifact.id.clone(),
        kind: artifact.kind,
        source_message: artifact.source_message.clone(),
        name: artifact.name.clone(),
        description: artifact.description.clone(),
        parts: Vec::new(),
        extensions: artifact.extensions.clone(),
        metadata: artifact.metadata.clone(),
    }
}
