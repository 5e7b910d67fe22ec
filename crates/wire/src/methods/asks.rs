//! The methods about asks of the agent: listing the open asks, answering them, and managing the approvals that the gateway keeps.

use longshore_model::{Answer as AskAnswer, AskKind, ErrorKind};

use super::build;
use super::call::Call;
use super::param::{IdKind, Kind, MAX_LINES, Param};
use super::row::{Answer, Effect, Item, Method, Stability, Upstream};
use crate::extension::Extension;

const REQUEST_ID: Param = Param::required(
    "request_id",
    Kind::Id(IdKind::Request),
    "The id of the ask, from `metadata.shared.interrupt`.",
);

const METADATA: Param = Param::optional(
    "metadata",
    Kind::Metadata { routed: false },
    "Checked but ignored: the ask determines the directory.",
);

/// The errors of an answer. The limit on calls to OpenCode is not among them: an answer never waits for that limit, because the
/// calls that hold the slots may wait for the answer.
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
        summary: "Allows a permission request of the agent once or always, rejects it, or chooses one of its options.",
        params: &[
            REQUEST_ID,
            METADATA,
            Param::required(
                "reply",
                Kind::Reply,
                "once, always or reject, or the id or the name of one of the agent's options.",
            ),
            Param::optional("message", Kind::Text { max: MAX_LINES }, "A message to the agent."),
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
            Param::required("answers", Kind::Answers, "The chosen labels of each question."),
        ],
        upstream: &[Upstream::post("/question/{id}/reply")],
        build: |args| build::answer(args, build::question(args)),
        ..ANSWER
    },
    Method {
        name: "a2a.interrupt.question.reject",
        key: "reject_question",
        summary: "Rejects questions of the agent.",
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

pub(super) static RECOVERY: [Method; 4] = [
    Method {
        name: "opencode.permissions.list",
        key: "list_permissions",
        summary: "Lists the open permission requests of the caller's tasks.",
        ..LIST
    },
    Method {
        name: "opencode.questions.list",
        key: "list_questions",
        summary: "Lists the open questions of the caller's tasks.",
        build: |_| Call::OpenAsks(AskKind::Question),
        ..LIST
    },
    Method {
        name: "opencode.permissions.approvals.list",
        key: "list_approvals",
        summary: "Lists the caller's answers always that the gateway keeps, the newest first.",
        result: Answer::Items(Item::Approval),
        build: |_| Call::Approvals,
        ..LIST
    },
    Method {
        name: "opencode.permissions.approvals.revoke",
        key: "revoke_approval",
        summary: "Revokes an answer always: the agent asks again.",
        params: &[Param::required(
            "request_id",
            Kind::Id(IdKind::Request),
            "The id of the ask that was answered with always.",
        )],
        result: Answer::Answered,
        effect: Effect::Mutate,
        errors: &[ErrorKind::InterruptNotFound],
        build: |args| Call::RevokeApproval(build::request(args)),
        ..LIST
    },
];
