//! The names of things that the engine makes on behalf of an agent.
//!
//! They follow from what they are about, so that the same thing has the same name after a restart: a sub-agent's task
//! can be named before it is made, and a file that is kept twice is kept once.

use longshore_model::spelled::CONTEXT_OF_SESSION;
use longshore_model::{ArtifactId, ContextId, FileId, PromptId, SessionId, TaskId};
use sha2::{Digest, Sha256};

use crate::port::TurnRecord;

/// The task of a sub-agent below `root`.
pub(crate) fn of_child(root: &TaskId, session: &SessionId, call: Option<&str>) -> TaskId {
    let name = name("sub-agent", &[root.as_str(), session.as_str(), call.unwrap_or_default()]);
    TaskId::parse(&name).expect("a UUID is an id")
}

/// The task of a turn that somebody else began.
pub(crate) fn of_adopted(session: &SessionId, prompt: &PromptId) -> TaskId {
    let name = name("adopted", &[session.as_str(), prompt.as_str()]);
    TaskId::parse(&name).expect("a UUID is an id")
}

/// Whether the turn of a task is one that somebody else began. What a caller says to the task when that is over is not.
pub(crate) fn is_adopted(task: &TaskId, turn: &TurnRecord) -> bool {
    *task == of_adopted(&turn.session.id, &turn.prompt)
}

/// The context of a session that has none of a caller's making.
pub(crate) fn of_session(session: &SessionId) -> ContextId {
    ContextId::parse(&format!("{CONTEXT_OF_SESSION}{session}")).unwrap_or_else(|_| {
        let name = name("context", &[session.as_str()]);
        ContextId::parse(&name).expect("a UUID is an id")
    })
}

/// The session that the name of a context stands for, if it is such a name.
pub(crate) fn session_of(context: &ContextId) -> Option<SessionId> {
    SessionId::parse(context.as_str().strip_prefix(CONTEXT_OF_SESSION)?).ok()
}

/// The file behind an artifact. With another content it is another file.
pub(crate) fn of_file(task: &TaskId, artifact: &ArtifactId, sha256: &[u8; 32]) -> FileId {
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
    let head = head.try_into().expect("it is split at 16 bytes");
    uuid::Builder::from_custom_bytes(head).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_things_have_different_names_and_the_same_thing_the_same() {
        let task = |id: &str| TaskId::parse(id).unwrap();
        let session = |id: &str| SessionId::parse(id).unwrap();
        let first = of_child(&task("t"), &session("ses_1"), Some("call_1"));
        assert_eq!(first, of_child(&task("t"), &session("ses_1"), Some("call_1")));
        let others = [
            of_child(&task("u"), &session("ses_1"), Some("call_1")),
            of_child(&task("t"), &session("ses_2"), Some("call_1")),
            of_child(&task("t"), &session("ses_1"), Some("call_2")),
            of_child(&task("t"), &session("ses_1"), None),
            of_child(&task("t"), &session("ses_1call_1"), None),
        ];
        assert!(!others.contains(&first));
        assert_eq!(others.iter().collect::<std::collections::HashSet<_>>().len(), others.len());
    }
}
