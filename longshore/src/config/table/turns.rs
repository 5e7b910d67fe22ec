//! How long things may take, and what happens then.

use super::super::setting::Fallback::Value;
use super::super::setting::{Group, Kind, Setting};

pub const TIMEOUT: Setting = Setting {
    key: "turns.control_timeout",
    flag: Some("control-timeout"),
    env: Some("OPENCODE_TIMEOUT"),
    group: Group::Turns,
    kind: Kind::Seconds,
    fallback: Value("120"),
    help: "How long one call to OpenCode may take, other than the turn itself.",
};

pub const TURN_TIMEOUT: Setting = Setting {
    key: "turns.timeout",
    flag: Some("turn-timeout"),
    env: Some("OPENCODE_TIMEOUT_STREAM"),
    group: Group::Turns,
    kind: Kind::SecondsOrOff,
    fallback: Value("900"),
    help: "How long a turn may take. A longer one is aborted, and its task fails.",
};

pub const SILENCE: Setting = Setting {
    key: "turns.silence",
    flag: Some("turn-silence"),
    env: Some("LONGSHORE_TURN_SILENCE"),
    group: Group::Turns,
    kind: Kind::SecondsOrOff,
    fallback: Value("300"),
    help: "How long a model may be silent before its turn is aborted and its task fails. Open asks, running tools and the pauses \
           before OpenCode tries again do not count.",
};

pub const MAX_STEPS: Setting = Setting {
    key: "turns.max_steps",
    flag: Some("turn-max-steps"),
    env: Some("LONGSHORE_TURN_MAX_STEPS"),
    group: Group::Turns,
    kind: Kind::Count,
    fallback: Value("250"),
    help: "How many replies of the model one turn may have. A turn that goes on after them is aborted, and its task fails.",
};

pub const WAIT_FOR_OTHERS: Setting = Setting {
    key: "turns.wait_for_others",
    flag: Some("turn-wait-for-others"),
    env: Some("LONGSHORE_TURN_WAIT_FOR_OTHERS"),
    group: Group::Turns,
    kind: Kind::SecondsOrOff,
    fallback: Value("120"),
    help: "How long a turn waits while somebody else has its session at OpenCode itself, for something that is no turn (a shell, a \
           summary). After that its task fails, and nothing was sent for it. In a directory that is not watched (control.watch_directories) \
           it waits for turns.control_timeout at least.",
};

pub const CANCEL_TIMEOUT: Setting = Setting {
    key: "turns.cancel_abort_timeout",
    flag: Some("cancel-abort-timeout"),
    env: Some("A2A_CANCEL_ABORT_TIMEOUT_SECONDS"),
    group: Group::Turns,
    kind: Kind::SecondsOrNone,
    fallback: Value("2"),
    help: "How long a cancel waits for OpenCode to abort. The task is canceled in any case.",
};

pub const IDEMPOTENCY: Setting = Setting {
    key: "turns.idempotency_window",
    flag: Some("idempotency-window"),
    env: Some("LONGSHORE_IDEMPOTENCY_WINDOW"),
    group: Group::Turns,
    kind: Kind::SecondsOrNone,
    fallback: Value("600"),
    help: "How long a message that is sent again leads to the task that it made the first time.",
};

pub const ASK_TTL: Setting = Setting {
    key: "turns.ask_ttl",
    flag: Some("ask-ttl"),
    env: Some("A2A_INTERRUPT_REQUEST_TTL_SECONDS"),
    group: Group::Turns,
    kind: Kind::SecondsOrOff,
    fallback: Value("10800"),
    help: "How long a permission or question of the agent can be answered. The time does not count for the turn's limit.",
};

pub const ASK_TOMBSTONE: Setting = Setting {
    key: "turns.ask_tombstone",
    flag: Some("ask-tombstone"),
    env: Some("A2A_INTERRUPT_REQUEST_TOMBSTONE_TTL_SECONDS"),
    group: Group::Turns,
    kind: Kind::SecondsOrNone,
    fallback: Value("600"),
    help: "How long an answer that comes too late is told that it is late.",
};

pub const ASK_DEADLINE: Setting = Setting {
    key: "turns.ask_deadline",
    flag: Some("ask-deadline"),
    env: Some("LONGSHORE_ASK_DEADLINE"),
    group: Group::Turns,
    kind: Kind::Choice(&["reject", "once", "keep"]),
    fallback: Value("reject"),
    help: "What happens to an ask that nobody answered in time: it is rejected, a permission is given once, or it is kept \
           open for as long as its turn runs.",
};
