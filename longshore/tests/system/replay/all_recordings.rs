//! Every recording of the real OpenCode is replayed with a snapshot, or listed here as no turn of the gateway.

use std::collections::BTreeSet;
use std::path::Path;

use longshore_testkit::fake_opencode::Recording;

use crate::replay::recordings::REPLAYED;

/// Recordings whose tests do more than send and answer: see `endings` and `joining`.
const WITH_A_HAND: &[&str] = &[
    "delete_while_busy",
    "error_model_not_found",
    "many_prompts_queue",
    "permission_abort",
    "prompt_during_tool",
    "restart_sigterm",
    "stall",
    "two_prompts_one_session",
];

/// Recordings that were made for this project.
const OF_OUR_OWN: &[&str] = &["overflow_replays_prompt", "stop_then_compact"];

/// Recordings without a turn to replay, and why.
const NO_TURN: &[(&str, &str)] = &[
    ("abort_idle", "an abort of a session that does nothing; no prompt"),
    (
        "auth",
        "passwords; `driver::faults` of the driver has them right and wrong, and the one turn in it is that of `text_async`",
    ),
    ("command", "slash commands, which have an endpoint of their own that no message leads to"),
    ("config_update", "the configuration is changed; no prompt"),
    (
        "directories",
        "which endpoint looks into which directory; `tests/admit` of the driver has what follows from it",
    ),
    ("directory_in_body", "where OpenCode takes the directory of a new session from; no prompt"),
    ("fork", "sessions are forked; its prompts are those of `text` in three sessions"),
    ("heartbeat", "a stream on which nothing happens; no prompt"),
    (
        "many_sessions",
        "six turns at once, whose events do not show their prompt; `restarts::streams` runs many at once",
    ),
    ("permission_unknown", "calls that OpenCode refuses; no turn"),
    ("restart_after", "lists after a restart; the turn before it is `restart_sigterm`"),
    ("restart_after_sigterm", "a list after a restart; no prompt"),
    ("restart_before", "three sessions at once until OpenCode is killed; `restart_sigterm` kills it"),
    (
        "revert_unrevert",
        "messages are taken back and given back; its prompts are those of `tool_write` and `text`",
    ),
    ("session_crud", "sessions are made, changed and deleted; its prompts are those of `text`"),
    ("shell", "shell commands, which have an endpoint of their own that no message leads to"),
    ("structured_output", "a prompt with `format`, which is refused because of what this shows"),
    ("v2_text", "another API of OpenCode, which is not used"),
    ("v2_tool_permission", "another API of OpenCode, which is not used"),
    ("workspace_experimental", "workspaces are made and removed; its turn is that of `tool_bash` elsewhere"),
    ("worktree", "worktrees are made and removed; its turn is that of `tool_write` elsewhere"),
];

/// The names of the recordings in a folder.
fn names_in(folder: &Path) -> BTreeSet<String> {
    let files = std::fs::read_dir(folder).expect("the folder can be read");
    files.filter_map(|file| Some(file.ok()?.path().file_stem()?.to_str()?.to_owned())).collect()
}

/// All recordings that this file mentions.
fn accounted() -> BTreeSet<String> {
    let mut accounted = BTreeSet::new();
    let no_turns = NO_TURN.iter().map(|(name, _)| name);
    for name in REPLAYED.iter().chain(WITH_A_HAND).chain(no_turns) {
        assert!(accounted.insert((*name).to_owned()), "{name} is named twice");
    }
    accounted
}

#[test]
fn every_recording_is_replayed_or_listed_as_no_turn() {
    let kept: BTreeSet<String> = Recording::names().into_iter().collect();
    for name in REPLAYED.iter().chain(WITH_A_HAND) {
        assert!(kept.contains(*name), "the recording {name} does not exist");
    }
    let accounted = accounted();
    let missing: Vec<&String> = kept.difference(&accounted).collect();
    assert!(missing.is_empty(), "these recordings are not listed: {missing:?}");
}

/// The origin of the recordings is beside the checkout, like the seeds. Where it is missing, `make test` leaves all modules
/// with the name `seeds` out, and says so.
mod seeds {
    use std::path::Path;

    #[test]
    fn every_original_recording_is_listed() {
        let origin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/recordings/http");
        let mut accounted = super::accounted();
        accounted.retain(|name| !super::OF_OUR_OWN.contains(&name.as_str()));
        assert_eq!(accounted, super::names_in(&origin));
    }
}

/// Every replayed recording has a snapshot.
#[test]
fn every_replayed_recording_has_a_snapshot() {
    let snapshots = names_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/system/replay/snapshots"));
    for name in REPLAYED.iter().chain(WITH_A_HAND) {
        assert!(snapshots.contains(*name), "{name} has no snapshot");
    }
}
