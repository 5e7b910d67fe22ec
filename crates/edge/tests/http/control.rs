//! The extension methods about the agent: their results, who may use which session, and the refusals.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_edge::{Capability, EdgeConfig};
use longshore_testkit::scripted_control::{Call as Asked, ScriptedControl};
use longshore_wire::extension::Extension;
use longshore_wire::methods::{Effect, Method};
use longshore_wire::opencode;
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::support::{ADA, ADA_ABLE, ADA_CLAIMING, BOB, BOB_ABLE, Call, Gateway, redacted};

/// A text of one caller that no other caller may see.
pub(crate) const WORDS: &str = "hush-hush";

/// Switches on everything.
pub(crate) fn all_on(config: &mut EdgeConfig) {
    config.deployment.session_shell = true;
    config.deployment.workspace_mutations = true;
    config.deployment.session_share = true;
    config.deployment.session_delete = true;
}

/// An agent with an unowned session, `ses_a`, and a worktree, `old`.
pub(crate) fn agent() -> Arc<ScriptedControl> {
    let control = ScriptedControl::new();
    control.add("ses_a");
    control.add_worktree("old", "worktrees/old");
    control.add_workspace("wrk_1", "workspaces/one");
    control
}

/// The methods that are about the agent, not about an ask.
pub(crate) fn of_agent() -> impl Iterator<Item = &'static Method> {
    let of_asks = [Extension::InteractiveInterrupt, Extension::InterruptRecovery];
    opencode::methods().filter(move |method| !of_asks.contains(&method.extension))
}

/// Valid parameters. A method without an entry here fails the tests.
pub(crate) fn good(method: &Method) -> Value {
    let mut params = match method.key {
        "get_session_message" => json!({"message_id": "msg_1"}),
        "prompt_async" => json!({"request": {"parts": [{"type": "text", "text": WORDS}]}}),
        "command" => json!({"request": {"command": "/review", "arguments": WORDS}}),
        "revert" => json!({"request": {"messageID": "msg_1"}}),
        "shell" => json!({"request": {"agent": "build", "command": WORDS}}),
        "create_workspace" => json!({"request": {"type": "worktree", "id": "wrk_new"}}),
        "remove_workspace" => json!({"workspace_id": "wrk_1"}),
        "create_worktree" => json!({"request": {"name": "new"}}),
        "remove_worktree" | "reset_worktree" => json!({"request": {"name": "old"}}),
        _ => json!({}),
    };
    if of_session(method) {
        params["session_id"] = json!("ses_a");
    }
    params
}

pub(crate) fn of_session(method: &Method) -> bool {
    method.params.iter().any(|param| param.name == "session_id")
}

/// A call in a protocol version with this credential, with the extension activated.
pub(crate) fn call(
    gateway: &Gateway,
    version: ProtocolVersion,
    by: &str,
    method: &Method,
    params: &Value,
) -> Call {
    let call = gateway.rpc(method.name, params).header("authorization", by);
    let call = call.header("a2a-version", version.as_str());
    if version == ProtocolVersion::V1 { call.header("a2a-extensions", method.extension.uri()) } else { call }
}

/// The same call without an id.
pub(crate) fn notification(
    gateway: &Gateway,
    version: ProtocolVersion,
    by: &str,
    method: &Method,
    params: &Value,
) -> Call {
    let body = json!({"jsonrpc": "2.0", "method": method.name, "params": params});
    call(gateway, version, by, method, params).json(&body)
}

/// The calls to the agent that others could notice.
fn visible_calls(control: &ScriptedControl) -> Vec<Asked> {
    control.take_calls().into_iter().filter(|asked| !matches!(asked, Asked::Place(_))).collect()
}

/// Claims `ses_a` for ada.
pub(crate) async fn claim(gateway: &Gateway) {
    let unrevert = opencode::method("opencode.sessions.unrevert").unwrap();
    let claimed = call(gateway, ProtocolVersion::V1, ADA_ABLE, unrevert, &good(unrevert)).send().await.json();
    assert!(claimed.get("result").is_some(), "{claimed}");
}

#[tokio::test]
async fn every_method_gives_its_result_in_both_versions() {
    let control = agent();
    let gateway = Gateway::controlled(&control, all_on).await;
    let mut results = BTreeMap::new();
    for method in of_agent() {
        for version in ProtocolVersion::ALL {
            // An earlier call may have deleted it.
            control.add("ses_a");
            let answer = call(&gateway, version, ADA_ABLE, method, &good(method)).send().await;
            assert_eq!(answer.status.as_u16(), 200);
            assert_eq!(answer.header("a2a-version"), version.as_str());
            let named = if version == ProtocolVersion::V1 { method.extension.uri() } else { "" };
            assert_eq!(answer.header("a2a-extensions"), named, "{}", method.name);
            assert_eq!(answer.header("cache-control"), "no-store");
            let answer = answer.json();
            let result = answer.get("result").unwrap_or_else(|| panic!("{} {answer}", method.name));
            results.insert(
                format!("{} {}", method.name, version.as_str()),
                redacted(result.clone()).to_string(),
            );
        }
    }
    let shown: Vec<String> = results.iter().map(|(call, result)| format!("{call}\n  {result}")).collect();
    insta::assert_snapshot!(shown.join("\n"));
    gateway.stop().await;
}

#[tokio::test]
async fn every_method_refuses_the_session_of_another_owner() {
    let control = agent();
    let gateway = Gateway::controlled(&control, all_on).await;
    claim(&gateway).await;
    control.take_calls();
    let about_sessions: Vec<&Method> = of_agent().filter(|method| of_session(method)).collect();
    assert_eq!(about_sessions.len(), 16);
    for method in about_sessions {
        for version in ProtocolVersion::ALL {
            // With every capability, so that only the session can be the reason.
            let refused = call(&gateway, version, BOB_ABLE, method, &good(method)).send().await;
            assert_eq!(refused.status.as_u16(), 200, "the binding's own status is for others");
            let error = refused.json()["error"].clone();
            assert_eq!(error["code"], -32006, "{} {error}", method.name);
            assert!(error.to_string().contains("SESSION_FORBIDDEN"), "{error}");
            let silent = notification(&gateway, version, BOB_ABLE, method, &good(method)).send().await;
            assert_eq!((silent.status.as_u16(), silent.body.len()), (204, 0));
            assert_eq!(control.take_calls(), [], "{}", method.name);
        }
    }
    for name in ["opencode.sessions.list", "opencode.sessions.status"] {
        control.make_busy(&longshore_testkit::scripted_control::session("ses_a").id);
        let method = opencode::method(name).unwrap();
        for (by, sees) in [(ADA, true), (BOB, false), (BOB_ABLE, false)] {
            let listed = call(&gateway, ProtocolVersion::V1, by, method, &json!({})).send().await.json();
            let listed = listed["result"].to_string();
            assert_eq!(listed.contains("ses_a"), sees, "{name} {by} {listed}");
        }
    }
    gateway.stop().await;
}

#[tokio::test]
async fn an_unowned_session_is_for_callers_who_may_claim_it() {
    for method in of_agent().filter(|method| of_session(method)) {
        let control = agent();
        let gateway = Gateway::controlled(&control, all_on).await;
        // A caller who may not claim is refused, also with the capability of the method.
        let has =
            ![Some(Capability::SessionShare), Some(Capability::SessionDelete)].contains(&method.needs());
        for (by, able) in [(BOB, method.needs().is_none()), ("Basic Y2FybDpwdw==", has)] {
            let refused = call(&gateway, ProtocolVersion::V1, by, method, &good(method)).send().await.json();
            let code = if able { -32006 } else { -32007 };
            assert_eq!(refused["error"]["code"], code, "{} {refused}", method.name);
        }
        if method.needs().is_none() {
            let taken =
                call(&gateway, ProtocolVersion::V1, ADA_CLAIMING, method, &good(method)).send().await.json();
            assert!(taken.get("result").is_some(), "{} {taken}", method.name);
            // The caller who changed the session owns it from then on, with any of its credentials.
            let get = opencode::method("opencode.sessions.get").unwrap();
            let got = call(&gateway, ProtocolVersion::V1, ADA, get, &good(get)).send().await.json();
            assert_eq!(got.get("result").is_some(), method.effect != Effect::Read, "{} {got}", method.name);
        }
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_notification_executes_commands_and_no_queries() {
    for version in ProtocolVersion::ALL {
        for method in of_agent() {
            let control = agent();
            let gateway = Gateway::controlled(&control, all_on).await;
            let silent = notification(&gateway, version, ADA_ABLE, method, &good(method)).send().await;
            assert_eq!((silent.status.as_u16(), silent.body.len()), (204, 0), "{}", method.name);
            let mut asked = visible_calls(&control);
            let acts = |asked: &[Asked]| {
                asked.iter().filter(|asked| matches!(asked, Asked::ControlCommand(..))).count()
            };
            let prompts = || gateway.agent.log().prompted.len();
            // Slow calls are executed after the response.
            while method.effect != Effect::Read && acts(&asked) + prompts() == 0 {
                tokio::task::yield_now().await;
                asked.extend(visible_calls(&control));
            }
            let (acts, prompts) = (acts(&asked), prompts());
            match method.effect {
                Effect::Read => assert_eq!((asked, prompts), (Vec::new(), 0), "{}", method.name),
                Effect::Mutate => assert_eq!((acts, prompts), (1, 0), "{}", method.name),
                Effect::Control => assert_eq!(acts + prompts, 1, "{}", method.name),
            }
            // An error of a notification is not reported either.
            let wrong = json!({"nonsense": 1});
            let silent = notification(&gateway, version, ADA_ABLE, method, &wrong).send().await;
            assert_eq!((silent.status.as_u16(), silent.body.len()), (204, 0), "{}", method.name);
            assert_eq!(control.take_calls(), []);
            gateway.stop().await;
        }
    }
}

/// The first field that an error of either version names.
fn first_field(error: &Value) -> &str {
    let data = &error["data"];
    let of_v1 = data.as_array().and_then(|details| details.iter().find_map(|it| it.get("fieldViolations")));
    let field = of_v1.map(|violations| &violations[0]["field"]).or_else(|| data.get("field"));
    field.or_else(|| data.get("fields")?.get(0)).and_then(Value::as_str).unwrap_or_default()
}

/// The wire crate tests the whole table; here is one mistake of each kind, over HTTP.
#[tokio::test]
async fn a_wrong_parameter_is_named_before_the_agent_is_called() {
    let control = agent();
    let gateway = Gateway::controlled(&control, all_on).await;
    let long = "a".repeat(129);
    let cases: Vec<(&str, Value, &str)> = vec![
        ("opencode.sessions.get", json!({}), "session_id"),
        ("opencode.sessions.get", json!([]), "params"),
        ("opencode.sessions.get", json!({"session_id": 7}), "session_id"),
        ("opencode.sessions.get", json!({"session_id": "abc"}), "session_id"),
        ("opencode.sessions.get", json!({"session_id": "ses_x/../../config"}), "session_id"),
        ("opencode.sessions.get", json!({"session_id": "ses_x?a=b"}), "session_id"),
        ("opencode.sessions.get", json!({"session_id": "ses_x%2fabort"}), "session_id"),
        ("opencode.sessions.get", json!({"session_id": format!("ses_{long}")}), "session_id"),
        ("opencode.sessions.get", json!({"session_id": "ses_a", "sessionId": "ses_a"}), "sessionId"),
        (
            "opencode.sessions.get",
            json!({"session_id": "ses_a", "metadata": {"other": {}}}),
            "metadata.other",
        ),
        (
            "opencode.sessions.get",
            json!({"session_id": "ses_a", "metadata": {"opencode": {"workspace": {"id": "x"}}}}),
            "metadata.opencode.workspace.id",
        ),
        ("opencode.sessions.list", json!({"limit": 0}), "limit"),
        ("opencode.sessions.list", json!({"limit": 101}), "limit"),
        ("opencode.sessions.list", json!({"limit": true}), "limit"),
        ("opencode.sessions.list", json!({"roots": "perhaps"}), "roots"),
        ("opencode.sessions.list", json!({"cursor": "x"}), "cursor"),
        ("opencode.sessions.messages.list", json!({"session_id": "ses_a", "before": "a b"}), "before"),
        ("opencode.sessions.prompt_async", json!({"session_id": "ses_a"}), "request"),
        ("opencode.sessions.prompt_async", json!({"session_id": "ses_a", "request": {}}), "request.parts"),
        (
            "opencode.sessions.prompt_async",
            json!({"session_id": "ses_a", "request": {"parts": [{"type": "text", "text": "a", "id": "prt_1"}]}}),
            "request.parts[0].id",
        ),
        (
            "opencode.sessions.prompt_async",
            json!({"session_id": "ses_a", "request": {"parts": [{"type": "text", "text": "a"}],
                "tools": {"bash": true}}}),
            "request.tools.bash",
        ),
        ("opencode.worktrees.remove", json!({"request": {}}), "request.directory"),
        ("opencode.worktrees.remove", json!({"request": {"directory": "a", "name": "b"}}), "request.name"),
        ("opencode.worktrees.create", json!({"request": {"name": "-f"}}), "request.name"),
    ];
    for (name, params, field) in cases {
        let method = opencode::method(name).unwrap();
        for version in ProtocolVersion::ALL {
            let answer = call(&gateway, version, ADA_ABLE, method, &params).send().await.json();
            let error = &answer["error"];
            assert_eq!(error["code"], -32602, "{name} {params} {error}");
            assert_eq!(first_field(error), field, "{name} {params} {error}");
            assert_eq!(control.take_calls(), [], "{name} {params}");
        }
    }
    gateway.stop().await;
}

/// Each call is refused for one reason although all later checks would fail, too.
#[tokio::test]
async fn checks_are_made_in_one_order() {
    let gateway = Gateway::controlled(&agent(), |_| {}).await;
    let shell = opencode::method("opencode.sessions.shell").unwrap();
    let wrong = json!({"nonsense": 1});
    let unknown =
        call(&gateway, ProtocolVersion::V1, ADA, shell, &wrong).header("a2a-extensions", "").send().await;
    assert_eq!(unknown.json()["error"]["code"], -32004, "{}", unknown.json());
    let disabled = call(&gateway, ProtocolVersion::V1, ADA, shell, &wrong).send().await.json();
    assert_eq!(disabled["error"]["code"], -32601, "{disabled}");
    gateway.stop().await;

    let gateway = Gateway::controlled(&agent(), all_on).await;
    for version in ProtocolVersion::ALL {
        let lacking = call(&gateway, version, ADA, shell, &wrong).send().await.json();
        assert_eq!(lacking["error"]["code"], -32007, "{lacking}");
        for fact in ["AUTHORIZATION_FORBIDDEN", "session_shell", "opencode.sessions.shell"] {
            assert!(lacking.to_string().contains(fact), "{fact} {lacking}");
        }
        let named = call(&gateway, version, ADA_ABLE, shell, &wrong).send().await.json();
        assert_eq!(named["error"]["code"], -32602, "{named}");
    }
    gateway.stop().await;
}
