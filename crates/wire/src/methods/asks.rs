//! Asks of the agent: listing the open ones, and answering them.

use longshore_model::{Answer as AskAnswer, AskKind, ErrorKind};

use super::build;
use super::call::Call;
use super::param::{IdKind, Kind, MAX_LINES, Param};
use super::row::{Answer, Effect, Item, Method, Stability, Upstream};
use crate::extension::Extension;

const REQUEST_ID: Param = Param::required(
    "request_id",
    Kind::Id(IdKind::Request),
    "The ask, as `metadata.shared.interrupt` names it.",
);

const METADATA: Param = Param::optional(
    "metadata",
    Kind::Metadata { routed: false },
    "Checked only: where the agent works is known from the ask.",
);

/// An answer is never delayed by the limit on calls to OpenCode, because the ask that it answers delays other calls.
const ERRORS: &[ErrorKind] = &[
    ErrorKind::InterruptNotFound,
    ErrorKind::InterruptExpired,
    ErrorKind::InterruptTypeMismatch,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
];

const ANSWER: Method = Method {
    name: "",
    key: "",
    extension: Extension::InteractiveInterrupt,
    summary: "",
    params: &[],
    first: 2,
    paged: false,
    result: Answer::Answered,
    effect: Effect::Control,
    switch: None,
    upstream: &[],
    errors: ERRORS,
    stability: Stability::Stable,
    build: |args| build::answer(args, AskAnswer::RejectQuestion),
};

pub(super) static ANSWERS: [Method; 3] = [
    Method {
        name: "a2a.interrupt.permission.reply",
        key: "reply_permission",
        summary: "Allows once, allows always, or rejects what the agent asked permission for.",
        params: &[
            REQUEST_ID,
            METADATA,
            Param::required("reply", Kind::Reply, "once, always or reject."),
            Param::optional("message", Kind::Text { max: MAX_LINES }, "What the agent is told with it."),
        ],
        upstream: &[Upstream::post("/permission/{id}/reply")],
        build: |args| build::answer(args, build::permission(args)),
        ..ANSWER
    },
    Method {
        name: "a2a.interrupt.question.reply",
        key: "reply_question",
        summary: "Answers the questions that the agent asked.",
        params: &[
            REQUEST_ID,
            METADATA,
            Param::required("answers", Kind::Answers, "For each question the labels that were chosen."),
        ],
        upstream: &[Upstream::post("/question/{id}/reply")],
        build: |args| build::answer(args, build::question(args)),
        ..ANSWER
    },
    Method {
        name: "a2a.interrupt.question.reject",
        key: "reject_question",
        summary: "Tells the agent that its questions will not be answered.",
        params: &[REQUEST_ID, METADATA],
        upstream: &[Upstream::post("/question/{id}/reject")],
        ..ANSWER
    },
];

const LIST: Method = Method {
    extension: Extension::InterruptRecovery,
    first: 0,
    result: Answer::Items(Item::Interrupt),
    effect: Effect::Read,
    errors: &[],
    build: |_| Call::OpenAsks(AskKind::Permission),
    ..ANSWER
};

pub(super) static RECOVERY: [Method; 2] = [
    Method {
        name: "opencode.permissions.list",
        key: "list_permissions",
        summary: "The caller's permissions that the agent waits for.",
        ..LIST
    },
    Method {
        name: "opencode.questions.list",
        key: "list_questions",
        summary: "The caller's questions that the agent waits for.",
        build: |_| Call::OpenAsks(AskKind::Question),
        ..LIST
    },
];
