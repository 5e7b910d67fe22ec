//! The methods about asks of the agent: listing the open asks, answering them, and managing the approvals that the gateway keeps.

use longshore_model::{Answer as AskAnswer, AskKind, ErrorKind, RequestId};

use super::args::{Arg, Args, CHECKED};
use super::call::Call;
use super::item::{APPROVAL, INTERRUPT};
use super::param::{IdKind, Kind, MAX_LINES, Param};
use super::row::{Answer, Effect, Method, Stability, Upstream};
use crate::extension::Extension;
use crate::names;

const REQUEST_ID: Param = Param::required(
    "request_id",
    Kind::Id(IdKind::REQUEST),
    "The id of the ask, from `metadata.shared.interrupt`.",
);

const METADATA: Param = Param::optional(
    "metadata",
    Kind::Metadata { routed: None },
    "Checked but ignored: the ask determines the directory.",
);

/// The errors of an answer. The limit on calls to the agent is not among them: an answer never waits for a slot, because the calls
/// that hold the slots may be waiting for the answer.
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
    build: |args| answer(args, AskAnswer::RejectQuestion),
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
        build: |args| answer(args, permission(args)),
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
        build: |args| answer(args, question(args)),
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
    result: Answer::Items(INTERRUPT),
    effect: Effect::Read,
    errors: &[],
    build: |_| Call::OpenAsks(AskKind::Permission),
    ..ANSWER
};

pub(super) static RECOVERY: [Method; 4] = [
    Method {
        name: names::LIST_PERMISSIONS,
        key: "list_permissions",
        summary: "Lists the open permission requests of the caller's tasks.",
        ..LIST
    },
    Method {
        name: names::LIST_QUESTIONS,
        key: "list_questions",
        summary: "Lists the open questions of the caller's tasks.",
        build: |_| Call::OpenAsks(AskKind::Question),
        ..LIST
    },
    Method {
        name: names::LIST_APPROVALS,
        key: "list_approvals",
        summary: "Lists the caller's answers always that the gateway keeps, the newest first.",
        result: Answer::Items(APPROVAL),
        build: |_| Call::Approvals,
        ..LIST
    },
    Method {
        name: names::REVOKE_APPROVAL,
        key: "revoke_approval",
        summary: "Revokes an answer always: the agent asks again.",
        params: &[Param::required(
            "request_id",
            Kind::Id(IdKind::REQUEST),
            "The id of the ask that was answered with always.",
        )],
        result: Answer::Answered,
        effect: Effect::Mutate,
        errors: &[ErrorKind::InterruptNotFound],
        build: |args| Call::RevokeApproval(request(args)),
        ..LIST
    },
];

fn answer(args: &Args, answer: AskAnswer) -> Call {
    Call::Answer { request: request(args), answer }
}

fn request(args: &Args) -> RequestId {
    args.text("request_id").and_then(|id| RequestId::parse(id).ok()).expect(CHECKED)
}

fn permission(args: &Args) -> AskAnswer {
    let message = args.text("message").filter(|message| !message.trim().is_empty());
    AskAnswer::permission(args.text("reply").expect(CHECKED), message.map(str::to_owned))
}

fn question(args: &Args) -> AskAnswer {
    let Some(Arg::Answers(answers)) = args.get("answers") else { unreachable!("{CHECKED}") };
    AskAnswer::Question { answers: answers.clone() }
}
