//! The examples of the two seeds that describe a server, played as written.
//!
//! One table has a row for every example, in the order of the text: its check, or why it is not played. An example
//! without a row, and a row without an example, are failures. A second table has the statements of the seeds that are
//! only in prose, by heading.

mod control;
mod document;
mod guide;
mod reference;
mod shell;
mod start;

use longshore_testkit::gateway::Setup;
use serde_json::{Value, json};

use self::document::{Example, Seed, examples};
use self::shell::SeedGateway;
use crate::harness::Harness;

/// What happens with an example.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    /// The example is played, and this function checks it.
    Played(fn(&mut SeedGateway, &Example)),
    /// The example is about the start, which `start` plays.
    Start,
    /// The example is not played, and why.
    Not(&'static str),
}

use Seed::{Guide, Reference};
use Verdict::{Not, Played, Start};

/// Seed, heading, the call of the example, what happens with it.
const TABLE: &[(Seed, &str, &str, Verdict)] = &[
    (Guide, "Client Initialization Facade (Preview)", "opencode", Start),
    (
        Guide,
        "Client Initialization Facade (Preview)",
        "$schema",
        Not("OpenCode's own file; every example runs with it"),
    ),
    (Guide, "Client Initialization Facade (Preview)", "OPENCODE_BASE_URL", Start),
    (Guide, "Client Initialization Facade (Preview)", "OPENCODE_BASE_URL", Start),
    (Guide, "Client Initialization Facade (Preview)", "A2A_TASK_STORE_BACKEND", Start),
    (Guide, "Wire Contract", "GET /v1/tasks", Played(guide::tasks_are_listed)),
    (Guide, "Multipart Input Example", "message/send", Played(guide::a_file_is_sent)),
    (Guide, "Shared Session Binding Contract", "/v1/message:send", Played(guide::a_session_goes_on)),
    (Guide, "Shared Model Selection Contract", "/v1/message:send", Played(guide::a_model_is_chosen)),
    (
        Guide,
        "Session Status (opencode.sessions.status)",
        "opencode.sessions.status",
        Played(control::the_busy_are_told),
    ),
    (
        Guide,
        "Session List (opencode.sessions.list)",
        "opencode.sessions.list",
        Played(control::sessions_are_listed),
    ),
    (
        Guide,
        "Session Messages (opencode.sessions.messages.list)",
        "opencode.sessions.messages.list",
        Played(control::messages_are_listed),
    ),
    (
        Guide,
        "Session Get / Children / Todo / Diff / Message Get",
        "opencode.sessions.messages.get",
        Played(control::a_message_is_read),
    ),
    (
        Guide,
        "Session Prompt Async (opencode.sessions.prompt_async)",
        "opencode.sessions.prompt_async",
        Played(control::a_prompt_is_taken),
    ),
    (
        Guide,
        "Session Prompt Async (opencode.sessions.prompt_async)",
        "opencode.sessions.prompt_async",
        Played(control::a_prompt_is_taken),
    ),
    (
        Guide,
        "Session Command (opencode.sessions.command)",
        "opencode.sessions.command",
        Played(control::a_command_is_run),
    ),
    (Guide, "Session Fork / Share / Unshare", "opencode.sessions.fork", Played(control::a_session_is_forked)),
    (
        Guide,
        "Session Summarize / Revert / Unrevert",
        "opencode.sessions.summarize",
        Played(control::a_session_is_summarized),
    ),
    (
        Guide,
        "Session Summarize / Revert / Unrevert",
        "opencode.sessions.revert",
        Played(control::a_session_is_reverted),
    ),
    (
        Guide,
        "Session Summarize / Revert / Unrevert",
        "opencode.sessions.share",
        Played(control::sharing_is_refused_offline),
    ),
    (
        Guide,
        "Session Shell (opencode.sessions.shell)",
        "opencode.sessions.shell",
        Played(control::a_shell_is_used),
    ),
    (
        Guide,
        "Provider List (opencode.providers.list)",
        "opencode.providers.list",
        Played(control::providers_are_listed),
    ),
    (Guide, "Model List (opencode.models.list)", "opencode.models.list", Played(control::models_are_listed)),
    (
        Guide,
        "Project Discovery (opencode.projects.list, opencode.projects.current)",
        "opencode.projects.current",
        Played(control::the_project_is_told),
    ),
    (
        Guide,
        "Workspace Discovery and Mutation",
        "opencode.workspaces.create",
        Played(control::a_workspace_of_git_is_refused),
    ),
    (
        Guide,
        "Worktree Discovery and Mutation",
        "opencode.worktrees.reset",
        Played(control::a_worktree_is_reset),
    ),
    (
        Guide,
        "Shared Interrupt Callback (A2A Extension)",
        "a2a.interrupt.permission.reply",
        Played(guide::a_permission_is_given),
    ),
    (Guide, "Authentication Example (curl)", "/v1/message:send", Played(guide::a_token_opens)),
    (Guide, "JSON-RPC Send Example (curl)", "message/send", Played(guide::a_send_waits)),
    (
        Guide,
        "Streaming Re-Subscription (subscribe)",
        "GET /v1/tasks/{task_id}:subscribe",
        Played(guide::a_task_is_followed_again),
    ),
    (
        Guide,
        "Cancellation Semantics (tasks/cancel)",
        "POST /session/{sessionID}/abort",
        Not("a request of the gateway to OpenCode, not of a client"),
    ),
    (Reference, "Lifecycle Overview", "GET Agent", Not("a picture of the examples that follow")),
    (Reference, "Agent Card", "GET /.well-known/agent-card.json", Played(reference::the_card_is_found)),
    (
        Reference,
        "Phase 1 Client and Transport Notes",
        "GET /.well-known/agent-card.json",
        Not("the request of the row above, as what a client does first"),
    ),
    (
        Reference,
        "Push Notification Delivery Backends",
        "push-notifications",
        Not("settings in the file of iac-code; docs/compatibility.md says what corresponds to them"),
    ),
    (Reference, "SendMessage", "SendMessage", Played(reference::a_message_is_sent)),
    (Reference, "SendStreamingMessage", "SendStreamingMessage", Played(reference::a_message_is_streamed)),
    (Reference, "GetTask", "GetTask", Played(reference::a_task_is_read)),
    (Reference, "ListTasks", "ListTasks", Played(reference::tasks_are_listed)),
    (Reference, "CancelTask", "CancelTask", Played(reference::a_task_is_canceled)),
    (Reference, "SubscribeToTask", "SubscribeToTask", Played(reference::a_task_is_subscribed_to)),
    (
        Reference,
        "Push Notification Config Methods",
        "CreateTaskPushNotificationConfig",
        Played(reference::push_is_registered),
    ),
    (
        Reference,
        "GetExtendedAgentCard",
        "GetExtendedAgentCard",
        Played(reference::the_extended_card_is_given),
    ),
    (Reference, "Streaming Updates", "statusUpdate", Played(reference::updates_have_the_shape)),
    (
        Reference,
        "Extensions",
        "urn:iac-code:a2a:artifact-metadata:v1",
        Played(reference::the_card_has_the_extension),
    ),
    (
        Reference,
        "Extensions",
        "urn:iac-code:a2a:thinking-exposure:v1",
        Played(reference::the_card_has_the_extension),
    ),
];

type Check = fn(&mut SeedGateway);

/// Statements in prose, by heading.
const SAID: &[(Seed, &str, Check)] = &[
    (Guide, "Transport Contracts", guide::cards_are_where_they_should_be),
    (Guide, "Streaming Contract", guide::a_stream_has_chunks_and_an_end),
    (Guide, "Auth, Limits, and Failure Contract", guide::only_cards_are_public),
    (Guide, "OpenCode Session Query A2A Extension", control::notifications_and_limits),
    (Guide, "Protocol Version Negotiation", guide::versions_are_negotiated),
    (Guide, "Compatibility Profile", guide::health_has_the_profile),
    (Guide, "Cancellation Semantics (tasks/cancel)", guide::canceling_again_gives_the_task),
    (Reference, "Routes", reference::health_is_served),
    (Reference, "Task and Context Behavior", reference::a_context_keeps_its_conversation),
    (Reference, "Error Handling", reference::what_is_wrong_is_refused),
];

/// Outcomes that differ from the seed: heading, difference, reason.
const OTHERWISE: &[(Seed, &str, &str, &str)] = &[
    (
        Guide,
        "Session Summarize / Revert / Unrevert",
        "sharing is refused",
        "the OpenCode of the tests is kept from calling out",
    ),
    (
        Guide,
        "Workspace Discovery and Mutation",
        "a workspace of the type git is refused",
        "the OpenCode of today has no such type",
    ),
    (
        Reference,
        "Agent Card",
        "a card may be kept for 300 s, has our name, skills and URL without a slash, and names JSON as output too",
        "as the guide's server has it; tool calls are JSON",
    ),
    (Reference, "Routes", "health says `ok`", "as the guide's server answers"),
    (
        Reference,
        "Task States",
        "a turn that is over is COMPLETED",
        "INPUT_REQUIRED means that something is asked",
    ),
    (
        Reference,
        "SubscribeToTask",
        "subscribing to a task that is over is an unsupported operation",
        "the specification of 1.0",
    ),
    (
        Reference,
        "Streaming Updates",
        "text comes as artifacts, not as messages of a status",
        "the specification has results in artifacts, and the guide has them there",
    ),
    (
        Reference,
        "Error Handling",
        "a bad message is refused and makes no failed task; 401 has the error of the line",
        "nothing is kept of what is refused, and clients read one shape of errors",
    ),
];

/// Settings that the guide switches on for some examples, in the gateway and in OpenCode.
const SWITCHES: &[(&str, &str)] = &[
    ("A2A_ENABLE_SESSION_SHELL", "true"),
    ("A2A_ENABLE_WORKSPACE_MUTATIONS", "true"),
    ("LONGSHORE_SESSION_SHARE", "true"),
    ("OPENCODE_EXPERIMENTAL_WORKSPACES", "1"),
];

#[test]
fn every_example_of_the_seeds_has_a_row() {
    for seed in [Guide, Reference] {
        let lines = seed.lines();
        let rows = || TABLE.iter().filter(|row| row.0 == seed);
        let headings: Vec<&str> = rows().map(|row| row.1).collect();
        let found = examples(&lines);
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|example| (example.heading(&lines, &headings), example.calls.as_str()))
            .collect();
        let expected: Vec<(&str, &str)> = rows().map(|row| (row.1, row.2)).collect();
        assert_eq!(found, expected, "{seed:?}");
        for (_, heading, _, verdict) in rows() {
            assert!(!matches!(verdict, Not("")), "{heading}: why is it not played?");
        }
        let said = SAID.iter().filter(|row| row.0 == seed).map(|row| row.1);
        let otherwise = OTHERWISE.iter().filter(|row| row.0 == seed);
        let otherwise =
            otherwise.inspect(|row| assert!(!row.2.is_empty() && !row.3.is_empty())).map(|row| row.1);
        for heading in said.chain(otherwise) {
            assert!(lines.iter().any(|line| line == heading), "{seed:?} has no heading {heading}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_of_the_seeds_work() {
    let (guide, reference) = (Guide.lines(), Reference.lines());
    let found: Vec<Example> = examples(&guide).into_iter().chain(examples(&reference)).collect();
    assert_eq!(found.len(), TABLE.len(), "an example has no row");
    let own_file = found.iter().find(|example| example.calls == "$schema").expect("OpenCode's own file");
    let switch_on = |setup: Setup| SWITCHES.iter().fold(setup, |setup, (name, value)| setup.env(name, value));
    let (harness, model) = Harness::configured_with(switch_on, |configuration| {
        use_models_of_the_guide(configuration, &own_file.body());
        use_names_of_the_guide(configuration);
    })
    .await;
    let workspace = harness.gateway.workspace().canonicalize().expect("the workspace exists");
    std::fs::write(workspace.join("report.pdf"), "%PDF-1.4\n%%EOF\n").expect("a file can be written");
    let mut gateway = SeedGateway::new(harness.gateway.url(), workspace, model, harness.opencode.clone());
    for ((_, _, _, verdict), example) in TABLE.iter().zip(&found) {
        match verdict {
            Played(check) => check(&mut gateway, example),
            Start | Not(_) => {}
        }
    }
    for (_, _, check) in SAID {
        check(&mut gateway);
    }
}

/// Configures the models that the guide names; the demo model answers for them.
fn use_models_of_the_guide(configuration: &mut Value, own_file: &Value) {
    let mut provider = configuration["provider"]["demo"].clone();
    let mut model = provider["models"]["demo"].clone();
    model["modalities"] = json!({"input": ["text", "pdf"], "output": ["text"]});
    provider["models"] = json!({"gemini-3-pro": model, "gemini-2.5-flash": model});
    let mut other = provider.clone();
    other["models"] = json!({"gpt-5": model});
    configuration["provider"]["google"] = provider;
    configuration["provider"]["openai"] = other;
    configuration["enabled_providers"] = json!(["demo", "google", "openai"]);
    let own_file = own_file.as_object().expect("a configuration is an object");
    configuration.as_object_mut().expect("a configuration is an object").extend(own_file.clone());
}

/// Configures the command and the agent that the guide names.
fn use_names_of_the_guide(configuration: &mut Value) {
    configuration["command"] = json!({"review": {"template": "Review this harbour: $ARGUMENTS"}});
    configuration["agent"] =
        json!({"code-reviewer": {"description": "Reads what others wrote.", "mode": "all"}});
}
