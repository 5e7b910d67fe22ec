//! Ids of things that the engine creates on behalf of an agent.
//!
//! Each id is derived from what it identifies, so that the same thing has the same id after a restart. So the id of a
//! sub-agent's task is known before the task is created, and storing the same file again changes nothing.

use longshore_model::{ArtifactId, ContextId, FileId, PromptId, SessionId, TaskId};
use sha2::{Digest, Sha256};

use crate::config::WireNames;
use crate::port::TurnRecord;

/// The task of a sub-agent of `root`.
pub(crate) fn child_task(root: &TaskId, session: &SessionId, call: Option<&str>) -> TaskId {
    let name = name("sub-agent", &[root.as_str(), session.as_str(), call.unwrap_or_default()]);
    TaskId::parse(&name).expect("a UUID is an id")
}

/// The task of a turn that another client of the agent started.
pub(crate) fn adopted_task(session: &SessionId, prompt: &PromptId) -> TaskId {
    let name = name("adopted", &[session.as_str(), prompt.as_str()]);
    TaskId::parse(&name).expect("a UUID is an id")
}

/// Whether another client of the agent started this turn of the task. A turn that a later message of a caller starts does not
/// count.
pub(crate) fn is_adopted(task: &TaskId, turn: &TurnRecord) -> bool {
    *task == adopted_task(&turn.session.id, &turn.prompt)
}

/// The context for a session that no caller has bound to a context.
pub(crate) fn session_context(names: WireNames, session: &SessionId) -> ContextId {
    ContextId::parse(&format!("{}{session}", names.session_context_prefix)).unwrap_or_else(|_| {
        let name = name("context", &[session.as_str()]);
        ContextId::parse(&name).expect("a UUID is an id")
    })
}

/// The session in an id that [`session_context`] made. `None` for the id of any other context.
pub(crate) fn session_of_context(names: WireNames, context: &ContextId) -> Option<SessionId> {
    SessionId::parse(context.as_str().strip_prefix(names.session_context_prefix)?).ok()
}

/// The file of an artifact. A file with other content has another id.
pub(crate) fn file(task: &TaskId, artifact: &ArtifactId, sha256: &[u8; 32]) -> FileId {
    FileId::parse(&name("file", &[task.as_str(), artifact.as_str(), &hex(sha256)])).expect("a UUID is an id")
}

/// Bytes as lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}

fn name(kind: &str, about: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for word in [kind].iter().chain(about) {
        hasher.update((word.len() as u64).to_le_bytes());
        hasher.update(word.as_bytes());
    }
    let digest: [u8; 32] = hasher.finalize().into();
    let (head, _) = digest.split_at(16);
    let head = head.try_into().expect("the digest is split at 16 bytes");
    uuid::Builder::from_custom_bytes(head).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_things_have_different_ids_and_the_same_thing_the_same() {
        let task = |id: &str| TaskId::parse(id).unwrap();
        let session = |id: &str| SessionId::parse(id).unwrap();
        let first = child_task(&task("t"), &session("ses_1"), Some("call_1"));
        assert_eq!(first, child_task(&task("t"), &session("ses_1"), Some("call_1")));
        let others = [
            child_task(&task("u"), &session("ses_1"), Some("call_1")),
            child_task(&task("t"), &session("ses_2"), Some("call_1")),
            child_task(&task("t"), &session("ses_1"), Some("call_2")),
            child_task(&task("t"), &session("ses_1"), None),
            child_task(&task("t"), &session("ses_1call_1"), None),
        ];
        assert!(!others.contains(&first));
        assert_eq!(others.iter().collect::<std::collections::HashSet<_>>().len(), others.len());
    }
}
