//! Holds tasks back after the store was restored from a backup: the original gateway may have prompted them since the
//! backup.

use longshore_model::{Epoch, Error, ErrorKind, Json, Message, Metadata, Role, Task, TaskState};
use serde_json::json;

use crate::port::StoredTask;

/// The whole text of a message that releases a held task. It is also the name of a flag of `longshore serve`.
const RELEASE: &str = "resume-restored";

pub(crate) const WHY: &str = "This task comes from a backup, and the gateway that made the backup may have sent it to the agent since then. So it was \
     not sent again, and waits. To have it sent, send the message `resume-restored` on this task, or let the operator start \
     the gateway with --resume-restored. To drop it, cancel it.";

/// Whether a task from a backup waits for a decision or has been released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// The task waits until a message or the operator releases it.
    Held,
    /// The operator released the task (`--resume-restored`), but its status does not show that yet.
    Released,
}

/// Decides whether a task without a running turn is held. `restored`: the last epoch before the backup; `None`: the store was
/// not restored.
pub(crate) fn decide(stored: &StoredTask, restored: Option<Epoch>, resume: bool) -> Option<Hold> {
    let is_new = restored.is_some_and(|last| stored.epoch <= last);
    match (is_held(&stored.task), stored.task.status.state) {
        (false, TaskState::Submitted) if is_new && !resume => Some(Hold::Held),
        (true, _) => Some(if resume { Hold::Released } else { Hold::Held }),
        _ => None,
    }
}

/// Whether the status of the task says that it is held.
pub(crate) fn is_held(task: &Task) -> bool {
    let metadata = task.status.message.as_ref().and_then(|message| message.metadata.as_ref());
    task.status.state == TaskState::Submitted
        && metadata.is_some_and(|metadata| metadata.json().to_value().pointer("/longshore/held").is_some())
}

/// Metadata by which programs recognize a held task.
pub(crate) fn metadata() -> Option<Metadata> {
    Metadata::try_from(Json::from_value(&json!({"longshore": {"held": "restored"}}))).ok()
}

/// Whether the message only releases a held task, and is no text for the agent.
pub(crate) fn is_release(message: &Message) -> bool {
    let [part] = message.parts.as_slice() else { return false };
    message.role == Role::User && part.as_text().is_some_and(|text| text.trim() == RELEASE)
}

/// The error for a message to a held task that does not release it.
pub(crate) fn refusal(task: &Task) -> Error {
    Error::new(ErrorKind::UnsupportedOperation, WHY)
        .detail("taskId", task.id.as_str())
        .detail("state", task.status.state.as_str())
}
