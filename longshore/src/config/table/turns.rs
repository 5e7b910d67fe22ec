//! Timeouts and limits of turns.

use super::super::setting::Fallback::Value;
use super::super::setting::{Kind, Setting};

pub const TIMEOUT: Setting = Setting {
    key: "turns.control_timeout",
    flag: Some("control-timeout"),
    env: Some("OPENCODE_TIMEOUT"),
    kind: Kind::Seconds,
    fallback: Value("120"),
    help: "The timeout of a call to OpenCode other than the turn itself.",
};

pub const TURN_TIMEOUT: Setting = Setting {
    key: "turns.timeout",
    flag: Some("turn-timeout"),
    env: Some("OPENCODE_TIMEOUT_STREAM"),
    kind: Kind::SecondsOrOff,
    fallback: Value("900"),
    help: "The maximum duration of a turn. A longer turn is aborted, and its task fails.",
};

pub const SILENCE: Setting = Setting {
    key: "turns.silence",
    flag: Some("turn-silence"),
    env: Some("LONGSHORE_TURN_SILENCE"),
    kind: Kind::SecondsOrOff,
    fallback: Value("300"),
    help: "How long a model may be silent before its turn is aborted and its task fails. The time does not count while \
           an ask is open, a tool runs, or OpenCode pauses before a retry. An agent that is served over ACP does not tell \
           of such a pause.",
};

pub const MAX_STEPS: Setting = Setting {
    key: "turns.max_steps",
    flag: Some("turn-max-steps"),
    env: Some("LONGSHORE_TURN_MAX_STEPS"),
    kind: Kind::Count,
    fallback: Value("250"),
    help: "How many replies of the model one turn may have. A turn with more is aborted, and its task \
           fails. Only for OpenCode over HTTP.",
};

pub const WAIT_FOR_OTHERS: Setting = Setting {
    key: "turns.wait_for_others",
    flag: Some("turn-wait-for-others"),
    env: Some("LONGSHORE_TURN_WAIT_FOR_OTHERS"),
    kind: Kind::SecondsOrOff,
    fallback: Value("120"),
    help: "How long a turn waits while another client of OpenCode uses its session for something other than a turn (a \
           shell command, a summary). After that the task fails, and no prompt was sent. In a directory that is not \
           watched (control.watch_directories) the turn waits for at least turns.control_timeout.",
};

pub const CANCEL_TIMEOUT: Setting = Setting {
    key: "turns.cancel_abort_timeout",
    flag: Some("cancel-abort-timeout"),
    env: Some("A2A_CANCEL_ABORT_TIMEOUT_SECONDS"),
    kind: Kind::SecondsOrNone,
    fallback: Value("2"),
    help: "How long a cancel request waits for OpenCode to abort the turn. The task is canceled in any case.",
};

pub const IDEMPOTENCY: Setting = Setting {
    key: "turns.idempotency_window",
    flag: Some("idempotency-window"),
    env: Some("LONGSHORE_IDEMPOTENCY_WINDOW"),
    kind: Kind::SecondsOrNone,
    fallback: Value("600"),
    help: "For how long after a message was sent the same message, sent again, returns the task of the first send. \
           After that time it starts a new task, and the agent is prompted again. 0: every send starts a new task.",
};

pub const ASK_TTL: Setting = Setting {
    key: "turns.ask_ttl",
    flag: Some("ask-ttl"),
    env: Some("A2A_INTERRUPT_REQUEST_TTL_SECONDS"),
    kind: Kind::SecondsOrOff,
    fallback: Value("10800"),
    help: "How long a permission request or a question of the agent can be answered. This time does not count for \
           turns.timeout.",
};

pub const ASK_TOMBSTONE: Setting = Setting {
    key: "turns.ask_tombstone",
    flag: Some("ask-tombstone"),
    env: Some("A2A_INTERRUPT_REQUEST_TOMBSTONE_TTL_SECONDS"),
    kind: Kind::SecondsOrNone,
    fallback: Value("600"),
    help: "How long an ask is remembered after its end, so that a late answer is reported as late.",
};

pub const ASK_DEADLINE: Setting = Setting {
    key: "turns.ask_deadline",
    flag: Some("ask-deadline"),
    env: Some("LONGSHORE_ASK_DEADLINE"),
    kind: Kind::Choice(&["reject", "once", "keep"]),
    fallback: Value("reject"),
    help: "What happens to an ask that was not answered in time: it is rejected (`reject`), a permission is granted \
           once (`once`), or it stays open while its turn runs (`keep`).",
};
