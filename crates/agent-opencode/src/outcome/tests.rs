use super::*;

fn fault(name: &str, message: &str, status: Option<u16>) -> Fault {
    let mut fault = Fault { name: name.to_owned(), ..Fault::default() };
    fault.data.message = Some(message.to_owned());
    fault.data.status_code = status.map(f64::from);
    fault
}

fn short(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed { remark: None } => "completed".to_owned(),
        Outcome::Completed { remark: Some(remark) } => format!("completed: {remark}"),
        Outcome::Canceled { reason } => format!("canceled: {reason}"),
        Outcome::Failed(failure) => format!("failed: {}", failure.message),
        Outcome::AuthRequired(failure) => format!("auth required: {}", failure.message),
        Outcome::Incomplete(outcome) => format!("lacking, {}", short(outcome)),
    }
}

#[test]
fn finish_reasons() {
    let ending =
        |finish| Ending { newest: Some(Newest { finish, ..Newest::default() }), ..Ending::default() };
    let aborted = |finish| Ending { aborted_by_gateway: true, ..ending(finish) };
    let superseded = |finish| Ending { superseded: true, ..ending(finish) };
    let failed_tool =
        Some(FailedTool { call: "c", tool: "bash", error: "The user rejected permission to use /bin/rm." });
    let rejected = Newest { finish: Some("tool-calls"), failed_tool, ..Newest::default() };
    let summary = Newest { finish: Some("stop"), summary: true, ..Newest::default() };
    let cases = [
        (ending(Some("stop")), "completed"),
        (ending(Some("length")), "completed: The reply was cut at the model's length limit."),
        (
            ending(Some("content-filter")),
            "failed: The model's provider blocked the reply with its content filter.",
        ),
        (ending(Some("other")), "completed: The model ended its reply for the reason 'other'."),
        (
            ending(Some("unknown")),
            "failed: The model's reply ended without a finish reason, so it may not be whole.",
        ),
        (ending(Some("tool-calls")), "failed: OpenCode ended the turn after a tool call, without a reply."),
        (
            Ending { newest: Some(rejected), ..Ending::default() },
            "failed: OpenCode ended the turn after the tool call 'bash' failed: The user rejected permission to \
             use <redacted-path>.",
        ),
        (
            Ending { newest: Some(summary), ..Ending::default() },
            "completed: OpenCode shortened the conversation to fit the model and did not go on.",
        ),
        (
            superseded(Some("tool-calls")),
            "failed: Another prompt in the same session made OpenCode drop the rest of this turn.",
        ),
        (superseded(Some("stop")), "completed"),
        (
            Ending { superseded: true, ..Ending::default() },
            "failed: OpenCode answered another prompt in this session instead of this one.",
        ),
        (ending(None), "canceled: The turn was stopped at OpenCode itself."),
        (aborted(None), "canceled: The turn was stopped."),
        (aborted(Some("tool-calls")), "canceled: The turn was stopped."),
        // The reply was complete before the abort came.
        (aborted(Some("stop")), "completed"),
    ];
    for (ending, expected) in cases {
        assert_eq!(short(&from_ending(&ending)), expected, "{ending:?}");
    }
}

#[test]
fn provider_errors_by_status() {
    let cases = [
        (400, "UPSTREAM_BAD_REQUEST"),
        (401, "UPSTREAM_UNAUTHORIZED"),
        (403, "UPSTREAM_PERMISSION_DENIED"),
        (404, "UPSTREAM_RESOURCE_NOT_FOUND"),
        (429, "UPSTREAM_QUOTA_EXCEEDED"),
        (422, "UPSTREAM_CLIENT_ERROR"),
        (500, "UPSTREAM_SERVER_ERROR"),
        (503, "UPSTREAM_SERVER_ERROR"),
        (302, "UPSTREAM_HTTP_ERROR"),
    ];
    for (status, class) in cases {
        let fault = fault("APIError", "no luck at https://provider.example/v1", Some(status));
        let newest = Newest { fault: Some(&fault), ..Newest::default() };
        let ending = Ending { newest: Some(newest), ..Ending::default() };
        let (failure, advice) = match from_ending(&ending) {
            Outcome::Failed(failure) if status != 401 => (failure, ""),
            Outcome::AuthRequired(failure) if status == 401 => (
                failure,
                ". Give OpenCode the credentials for it, then send a message on this task to try again.",
            ),
            other => panic!("status {status}: {other:?}"),
        };
        let end = format!(" (status {status}): no luck at <redacted-url>{advice}");
        assert!(failure.message.ends_with(&end), "{}", failure.message);
        let metadata = failure.metadata.unwrap();
        let expected =
            format!("{{\"opencode\":{{\"error\":{{\"type\":\"{class}\",\"upstream_status\":{status}}}}}}}");
        assert_eq!(metadata.get(), expected);
    }
}

#[test]
fn other_errors() {
    let cases = [
        (fault("MessageAbortedError", "Aborted", None), "canceled: The turn was stopped at OpenCode itself."),
        (
            fault("UnknownError", "Model not found: a/b.", None),
            "failed: OpenCode could not complete the turn: Model not found: a/b.",
        ),
        (
            fault("ProviderAuthError", "no key", None),
            "auth required: The model's provider refused OpenCode's credentials: no key. Give OpenCode the \
             credentials for it, then send a message on this task to try again.",
        ),
        (
            fault("ProviderAuthError", "The key is missing.", Some(401)),
            "auth required: The model's provider refused OpenCode's credentials (status 401): The key is missing. \
             Give OpenCode the credentials for it, then send a message on this task to try again.",
        ),
        (
            fault("ContextOverflowError", "9000 tokens", None),
            "failed: The conversation is too long for the model: 9000 tokens",
        ),
        (Fault::default(), "failed: OpenCode could not complete the turn."),
    ];
    for (fault, expected) in cases {
        let newest = Newest { fault: Some(&fault), ..Newest::default() };
        let ending = Ending { newest: Some(newest), ..Ending::default() };
        assert_eq!(short(&from_ending(&ending)), expected);
        let ending = Ending { session_fault: Some(&fault), ..Ending::default() };
        assert_eq!(short(&unknown_outcome(&ending, PromptTrace::Stored)), expected);
    }
}

/// A task waits for credentials only if the model's provider refused them. A client cannot change the gateway's password.
#[test]
fn opencodes_own_401_and_the_watchdogs_are_failures() {
    let cases = [
        (refused(401, "no"), "failed: OpenCode refused the prompt (status 401): no"),
        (
            silent(Duration::from_mins(2)),
            "failed: Nothing came from the model for 120 s, so the turn was stopped.",
        ),
        (
            endless(50),
            "failed: The model did not come to an end within the 50 steps that this gateway allows for a turn, so \
             the turn was stopped.",
        ),
    ];
    for (outcome, expected) in cases {
        let outcome = short(&outcome);
        assert!(outcome.starts_with(expected), "{outcome}");
    }
}

#[test]
fn unknown_fates() {
    let aborted = Ending { aborted_by_gateway: true, ..Ending::default() };
    let newest = Newest { finish: Some("tool-calls"), ..Newest::default() };
    let began = Ending { newest: Some(newest), ..Ending::default() };
    let cases = [
        (aborted, PromptTrace::Stored, "canceled: The turn was stopped."),
        (aborted, PromptTrace::Unavailable, "canceled: The turn was stopped."),
        (began, PromptTrace::Stored, "failed: OpenCode stopped in the middle of the turn"),
        (began, PromptTrace::Unavailable, "failed: OpenCode does not show the messages"),
        (Ending::default(), PromptTrace::Stored, "failed: OpenCode has the prompt but never began"),
        (
            Ending::default(),
            PromptTrace::Accepted,
            "failed: OpenCode took the prompt and shows no sign of it.",
        ),
        (Ending::default(), PromptTrace::None, "failed: It is not known whether OpenCode took the prompt"),
    ];
    for (ending, trace, expected) in cases {
        let outcome = short(&unknown_outcome(&ending, trace));
        assert!(outcome.starts_with(expected), "{outcome}");
    }
}

#[test]
fn lost_text_is_mentioned_in_every_outcome() {
    let lost =
        "Text that OpenCode wrote and did not keep, while the gateway could not hear it, may be missing.";
    let cases = [
        (Outcome::Completed { remark: None }, format!("lacking, completed: {lost}")),
        (completed("Cut."), format!("lacking, completed: Cut. {lost}")),
        (failed("No."), format!("lacking, failed: No. {lost}")),
        (stopped(true), format!("lacking, canceled: The turn was stopped. {lost}")),
        // The task continues.
        (Outcome::AuthRequired(Failure::new("No key.")), "auth required: No key.".to_owned()),
    ];
    for (outcome, expected) in cases {
        let lacking = lacking_text(outcome);
        assert_eq!(short(&lacking), expected);
        assert_eq!(lacking_text(lacking.clone()), lacking, "mentioned once");
    }
}

#[test]
fn an_unread_message_is_mentioned_in_every_outcome() {
    let refusal = fault("UnknownError", "no picture at /tmp/x", None);
    let joined = "A message that joined this turn may not have been read; look at the session before you send it again.";
    let refused = "A message that joined this turn was not read, because OpenCode refused it: no picture at <redacted-path>";
    let first = "OpenCode refused the message that began this turn, and answered only what joined it: no picture at <redacted-path>";
    let completed = |remark: Option<&str>| Outcome::Completed { remark: remark.map(str::to_owned) };
    let cases = [
        (completed(None), Unread::Joined, None, format!("completed: {joined}")),
        (completed(Some("Cut.")), Unread::Joined, None, format!("completed: Cut. {joined}")),
        (completed(None), Unread::Joined, Some(&refusal), format!("completed: {refused}")),
        (completed(None), Unread::First, Some(&refusal), format!("failed: {first}")),
        (failed("No."), Unread::First, Some(&refusal), format!("failed: No. {first}")),
        (stopped(true), Unread::Joined, None, format!("canceled: The turn was stopped. {joined}")),
        (
            Outcome::AuthRequired(Failure::new("No key.")),
            Unread::Joined,
            None,
            format!("auth required: No key. {joined}"),
        ),
    ];
    for (outcome, which, refusal, expected) in cases {
        assert_eq!(short(&with_unread(outcome, which, refusal)), expected);
    }
    let silent = short(&with_unread(completed(None), Unread::First, None));
    assert!(
        silent.starts_with("failed: OpenCode shows no sign of the message that began this turn"),
        "{silent}"
    );
}
