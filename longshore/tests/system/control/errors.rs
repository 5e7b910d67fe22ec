//! Every error of the method table in both versions: its code, its reason, its details, and whether it suggests a
//! retry.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use longshore_model::ErrorKind;
use longshore_testkit::fake_opencode::{Fault, Gate, Turn};
use longshore_testkit::raw::{Answer, RawClient};
use longshore_wire::methods::{Method, Upstream};
use longshore_wire::opencode;
use longshore_wire::surface::ProtocolVersion;
use longshore_wire::{v1, v03};
use serde_json::{Value, json};

use crate::control::calls::{error_fact, session_methods};
use crate::control::fixture::{
    FAY_TOKEN, Fixture, Settings, agent_methods, call, error_reason, is_about_session,
};
use crate::control::populated::{Populated, SESSION, add_furnished_session, is_mutation, valid_params};

/// The errors that occurred: method, version and kind.
pub(crate) type Seen = BTreeSet<(&'static str, ProtocolVersion, &'static str)>;

/// Details that an error must have.
#[derive(Clone, Copy, Default)]
pub(crate) struct Facts {
    /// The HTTP status of OpenCode's answer.
    pub(crate) status: Option<u16>,
    /// Whether the error suggests a retry.
    pub(crate) again: bool,
}

const UPSTREAM: [ErrorKind; 4] = [
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];

/// Checks an error against the table of its version, and records it.
pub(crate) fn check(
    seen: &mut Seen,
    answer: &Answer,
    version: ProtocolVersion,
    method: &'static Method,
    kind: ErrorKind,
    facts: Facts,
) {
    let what = format!("{} {version:?} {kind:?}: {}", method.name, answer.body);
    let error = &answer.body["error"];
    let (code, data) = match version {
        ProtocolVersion::V1 => (v1::error::row(kind).code, &error["data"][0]["metadata"]),
        ProtocolVersion::V03 => (v03::error::row(kind).code, &error["data"]),
    };
    assert_eq!((answer.status, error["code"].as_i64()), (200, Some(code.into())), "{what}");
    assert_eq!(error_reason(answer, version), kind.label(), "{what}");
    let (status, again) = match version {
        ProtocolVersion::V1 => (data.get("upstreamStatus").cloned(), data.get("retryAfterSeconds").cloned()),
        ProtocolVersion::V03 => {
            (data.get("upstream_status").cloned(), data.get("retry_after_seconds").cloned())
        }
    };
    // In 1.0 every detail is a string.
    let number =
        |number: u16| if version == ProtocolVersion::V1 { json!(number.to_string()) } else { json!(number) };
    assert_eq!(status, facts.status.map(number), "{what}");
    // The wait for a turn is longer than the wait for a call.
    let (seconds, header) = if kind == ErrorKind::TooManyRequests { (5, "5") } else { (1, "1") };
    assert_eq!(again, facts.again.then(|| number(seconds)), "{what}");
    assert_eq!(answer.header("retry-after"), facts.again.then_some(header), "{what}");
    // A client with many calls in flight can tell by the error which call failed.
    if UPSTREAM.contains(&kind) {
        assert_eq!(error_fact(answer, version, "method"), method.name, "{what}");
        assert_eq!(error_fact(answer, version, "sessionId").is_empty(), !is_about_session(method), "{what}");
    }
    if kind == ErrorKind::UpstreamPayloadError {
        assert_ne!(error_fact(answer, version, "detail"), "", "{what}");
    }
    assert!(method.errors.contains(&kind), "the table does not say so: {what}");
    seen.insert((method.name, version, kind.label()));
}

/// Fails unless the error names the session.
fn assert_names_session(answer: &Answer, version: ProtocolVersion, session: &str) {
    assert_eq!(error_fact(answer, version, "sessionId"), session, "{}", answer.body);
}

/// A session id for one method and version.
pub(crate) fn own_session(method: &Method, version: ProtocolVersion) -> String {
    format!("ses_{}{}", method.key.replace('_', ""), version.as_str().replace('.', ""))
}

/// The request that checks whether a session is idle.
const IDLE: &str = "/session/status";

/// A session that OpenCode never had, and one that the gateway knows and OpenCode has deleted.
async fn sessions_that_are_not_there(seen: &mut Seen) {
    let fixture = Fixture::start().await;
    for method in session_methods() {
        for version in ProtocolVersion::ALL {
            let gone = own_session(method, version);
            add_furnished_session(&fixture, &gone).await;
            fixture.fake.forget_session(&gone);
            for session in ["ses_never", &gone] {
                let answer = call(&fixture.ada, version, method, &valid_params(method, session)).await;
                check(seen, &answer, version, method, ErrorKind::SessionNotFound, Facts::default());
                assert_names_session(&answer, version, session);
            }
        }
    }
    fixture.stop().await;
}

/// OpenCode receives no request about the session of another caller.
async fn sessions_of_others(seen: &mut Seen) {
    let fixture = Fixture::start().await;
    add_furnished_session(&fixture, SESSION).await;
    fixture.session("ses_nobodys");
    let mut before = 0;
    fixture.arrived(&mut before);
    for method in session_methods() {
        for version in ProtocolVersion::ALL {
            let answer = call(&fixture.bob, version, method, &valid_params(method, SESSION)).await;
            check(seen, &answer, version, method, ErrorKind::SessionForbidden, Facts::default());
            assert_names_session(&answer, version, SESSION);
            assert_eq!(fixture.arrived(&mut before), [""; 0], "{}", method.name);
            let answer = call(&fixture.bob, version, method, &valid_params(method, "ses_nobodys")).await;
            check(seen, &answer, version, method, ErrorKind::SessionForbidden, Facts::default());
            assert_names_session(&answer, version, "ses_nobodys");
            assert_eq!(fixture.requests_since(&mut before), ["GET /session/ses_nobodys"], "{}", method.name);
        }
    }
    fixture.stop().await;
}

/// OpenCode deletes the sessions of a workspace with it. A workspace with the session of another caller is not removed.
async fn workspaces_of_others(seen: &mut Seen) {
    let populated = Populated::with_places(Settings::default()).await;
    let fixture = &populated.fixture;
    let method = opencode::method("opencode.workspaces.remove").expect("a row of the table");
    fixture.session_like("ses_inside", &json!({"workspaceID": "wrk_old"}));
    for whose in ["unowned", "of Ada"] {
        for version in ProtocolVersion::ALL {
            let answer = call(&fixture.bob, version, method, &valid_params(method, SESSION)).await;
            check(seen, &answer, version, method, ErrorKind::SessionForbidden, Facts::default());
            assert!(!answer.body.to_string().contains("ses_inside"), "{whose}: {}", answer.body);
        }
        assert!(fixture.fake.sessions().contains(&"ses_inside".to_owned()), "{whose}");
        fixture.claim("ses_inside").await;
    }
    assert_eq!(fixture.fake.removed_directories(), [""; 0]);
    let reported = call(&fixture.ada, ProtocolVersion::V1, method, &valid_params(method, SESSION)).await;
    assert_eq!(reported.result()["item"]["id"], "wrk_old", "{}", reported.body);
    assert!(!fixture.fake.sessions().contains(&"ses_inside".to_owned()));
    populated.fixture.stop().await;
}

/// Fails unless the error names the method, the missing capability and the credential.
fn assert_lacks_capability(answer: &Answer, version: ProtocolVersion, method: &Method, capability: &str) {
    assert_eq!(error_fact(answer, version, "method"), method.name, "{}", answer.body);
    assert_eq!(error_fact(answer, version, "capability"), capability, "{}", answer.body);
    let whose = error_fact(answer, version, "credentialId");
    assert!(["eve-credential", "fay-credential"].contains(&whose.as_str()), "{}", answer.body);
}

/// A missing capability is refused before anything else is checked.
async fn callers_without_capabilities(seen: &mut Seen) {
    let fixture = Fixture::start().await;
    let mut before = 0;
    for method in agent_methods().filter(|method| method.needs().is_some()) {
        for version in ProtocolVersion::ALL {
            let answer = call(&fixture.eve, version, method, &json!({"nonsense": 1})).await;
            check(seen, &answer, version, method, ErrorKind::AuthorizationForbidden, Facts::default());
            let needed = method.needs().map_or("", longshore_edge::Capability::as_str);
            assert_lacks_capability(&answer, version, method, needed);
        }
    }
    // Capabilities that only some parameters need are checked after all parameters are parsed.
    for method in agent_methods() {
        for (path, switch) in method.param_switches() {
            for version in ProtocolVersion::ALL {
                let mut params = valid_params(method, SESSION);
                let field = path.strip_prefix("request.").expect("all of them are of requests");
                params["request"][field] = "see !`id`".into();
                // A caller that may call the method itself.
                let caller = match method.needs() {
                    Some(_) => RawClient::new(fixture.url.clone(), FAY_TOKEN),
                    None => fixture.eve.clone(),
                };
                let answer = call(&caller, version, method, &params).await;
                check(seen, &answer, version, method, ErrorKind::AuthorizationForbidden, Facts::default());
                assert_lacks_capability(&answer, version, method, switch.capability().as_str());
            }
        }
    }
    assert_eq!(fixture.arrived(&mut before), [""; 0]);
    fixture.stop().await;
}

/// Failures of the request that a method makes, and the error that the caller gets.
fn faults(method: &Method) -> Vec<(Fault, ErrorKind, Facts)> {
    let status = |status, again| Facts { status: Some(status), again };
    // After a change the caller has to check the result first, so the error suggests no retry.
    let cut = Facts { status: None, again: !is_mutation(method) };
    let strange = |fault| (fault, ErrorKind::UpstreamPayloadError, Facts::default());
    vec![
        (Fault::CutBefore, ErrorKind::UpstreamUnreachable, cut),
        (Fault::Status(418), ErrorKind::UpstreamHttpError, status(418, false)),
        (Fault::Status(409), ErrorKind::UpstreamHttpError, status(409, true)),
        (Fault::Status(429), ErrorKind::UpstreamHttpError, status(429, true)),
        (Fault::Status(503), ErrorKind::UpstreamHttpError, status(503, true)),
        strange(Fault::Html),
        strange(Fault::Body("null")),
        strange(Fault::Body("7")),
        strange(Fault::Body("{}")),
    ]
}

/// Answers that are errors for all other methods and valid for this one.
fn is_meant(method: &Method, fault: &Fault) -> Option<Value> {
    match (method.key, fault) {
        // No session is busy.
        ("status", Fault::Body("{}")) => Some(json!({"items": []})),
        // The workspace did not exist.
        ("remove_workspace", Fault::Body("null")) => Some(json!({"item": null})),
        _ => None,
    }
}

/// The parameters that make a method send this request.
pub(crate) fn asking(method: &Method, upstream: &Upstream, session: &str) -> Value {
    match (method.key, upstream.path) {
        ("get_session_diff", "/session/{id}/message") => json!({"session_id": session}),
        _ => valid_params(method, session),
    }
}

/// The path as a pattern of the fake.
pub(crate) fn path_end(upstream: &Upstream) -> &'static str {
    upstream.path.replace("{id}", "*").replace("{message}", "*").leak()
}

/// The request of the method fails in every way. Both versions call at the same time.
async fn requests_that_go_wrong(method: &'static Method) -> Seen {
    let mut seen = Seen::new();
    let populated = Populated::for_method(method, Settings::default()).await;
    let fixture = &populated.fixture;
    for version in ProtocolVersion::ALL.into_iter().filter(|_| is_about_session(method)) {
        add_furnished_session(fixture, &own_session(method, version)).await;
    }
    for upstream in method.upstream {
        for (fault, kind, facts) in faults(method) {
            fixture.fake.fault_always(upstream.verb.as_str(), path_end(upstream), fault.clone());
            let calls = ProtocolVersion::ALL.map(|version| async move {
                let params = asking(method, upstream, &own_session(method, version));
                (version, call(&fixture.ada, version, method, &params).await)
            });
            for (version, answer) in join_all(calls).await {
                if let Some(result) = is_meant(method, &fault) {
                    assert_eq!(*answer.result(), result, "{} {version:?}", method.name);
                    continue;
                }
                check(&mut seen, &answer, version, method, kind, facts);
                if is_about_session(method) {
                    assert_names_session(&answer, version, &own_session(method, version));
                }
                let says_perhaps =
                    answer.body["error"]["message"].as_str().is_some_and(|text| text.contains("may have"));
                let may_have = match fault {
                    Fault::Status(status) => status >= 502,
                    _ => true,
                };
                assert_eq!(says_perhaps, is_mutation(method) && may_have, "{fault:?} {}", answer.body);
            }
            fixture.fake.clear_faults();
        }
    }
    populated.fixture.stop().await;
    seen
}

/// A native prompt is a task as soon as OpenCode may have received it. Failures before that, and refusals of OpenCode,
/// are returned at once.
async fn orders_that_go_wrong(method: &'static Method) -> Seen {
    let mut seen = Seen::new();
    let populated = Populated::for_method(method, Settings::default()).await;
    let fixture = &populated.fixture;
    let own = |version| own_session(method, version);
    for version in ProtocolVersion::ALL {
        add_furnished_session(fixture, &own(version)).await;
    }
    let order = path_end(&method.upstream[0]);
    let http = |status, again| (ErrorKind::UpstreamHttpError, Facts { status: Some(status), again });
    let payload = (ErrorKind::UpstreamPayloadError, Facts::default());
    let away = (ErrorKind::UpstreamUnreachable, Facts { status: None, again: true });
    let cases = [
        // The lookup of the session.
        ("GET", "/session/*", Fault::CutBefore, away),
        ("GET", "/session/*", Fault::Status(418), http(418, false)),
        ("GET", "/session/*", Fault::Status(503), http(503, true)),
        ("GET", "/session/*", Fault::Html, payload),
        ("GET", "/session/*", Fault::Body("null"), payload),
        ("GET", "/session/*", Fault::Body("7"), payload),
        ("GET", "/session/*", Fault::Body("{}"), payload),
        // The check at the start of the turn.
        ("GET", IDLE, Fault::Status(401), http(401, false)),
        ("GET", IDLE, Fault::Status(404), http(404, false)),
        ("GET", IDLE, Fault::Status(418), http(418, false)),
        ("GET", IDLE, Fault::Status(500), http(500, true)),
        ("GET", IDLE, Fault::Status(503), http(503, true)),
        ("GET", IDLE, Fault::Html, payload),
        ("GET", IDLE, Fault::Body("7"), payload),
        // The prompt itself.
        ("POST", order, Fault::Status(401), http(401, false)),
        ("POST", order, Fault::Status(404), http(404, false)),
        ("POST", order, Fault::Status(418), http(418, false)),
        ("POST", order, Fault::Status(409), http(409, true)),
        ("POST", order, Fault::Status(429), http(429, true)),
        // The message list shows that OpenCode did not accept the prompt.
        ("POST", order, Fault::Status(500), http(500, true)),
        ("POST", order, Fault::Html, payload),
        ("POST", order, Fault::Body("null"), payload),
        ("POST", order, Fault::Body("7"), payload),
        ("POST", order, Fault::Body("{}"), payload),
        ("POST", order, Fault::Answer(202, "true"), payload),
    ];
    for (verb, path, fault, (kind, facts)) in cases {
        fixture.fake.fault_always(verb, path, fault.clone());
        for version in ProtocolVersion::ALL {
            let answer = call(&fixture.ada, version, method, &valid_params(method, &own(version))).await;
            check(&mut seen, &answer, version, method, kind, facts);
            assert_names_session(&answer, version, &own(version));
            // The error names the task, if one was created.
            let data = answer.body["error"]["data"].to_string();
            assert_eq!(
                data.contains("askId") || data.contains("task_id"),
                verb == "POST" || path == IDLE,
                "{fault:?} {data}"
            );
            // The message names no file and no address.
            let text = answer.body["error"]["message"].as_str().unwrap_or_default();
            assert!(!text.is_empty() && !text.contains("127.0.0.1"), "{fault:?} {text}");
        }
        fixture.fake.clear_faults();
    }
    populated.fixture.stop().await;
    seen
}

/// A prompt without reply is no task. It fails like the other methods.
async fn notes_that_go_wrong(method: &'static Method) -> Seen {
    let mut seen = Seen::new();
    let populated = Populated::for_method(method, Settings::default()).await;
    let mut params = valid_params(method, SESSION);
    params["request"]["noReply"] = true.into();
    for (fault, kind, facts) in faults(method) {
        populated.fixture.fake.fault_always("POST", "/prompt_async", fault);
        for version in ProtocolVersion::ALL {
            let answer = call(&populated.fixture.ada, version, method, &params).await;
            check(&mut seen, &answer, version, method, kind, facts);
        }
        populated.fixture.fake.clear_faults();
    }
    populated.fixture.stop().await;
    seen
}

/// A native prompt has the limits of messages and of tasks.
async fn orders_that_are_not_taken(seen: &mut Seen) {
    let fixture = Fixture::start_with(Settings { unfinished: 1, ..Settings::default() }).await;
    for session in [SESSION, "ses_first"] {
        add_furnished_session(&fixture, session).await;
    }
    let orders = || agent_methods().filter(|method| ["prompt_async", "command"].contains(&method.key));
    let mut before = 0;
    for method in orders() {
        let mut params = valid_params(method, SESSION);
        let file =
            json!({"type": "file", "mime": "application/zip", "url": "data:application/zip;base64,UEs="});
        params["request"]["parts"] = json!([file]);
        for version in ProtocolVersion::ALL {
            fixture.arrived(&mut before);
            let answer = call(&fixture.ada, version, method, &params).await;
            check(seen, &answer, version, method, ErrorKind::ContentTypeNotSupported, Facts::default());
            let asked = fixture.requests_since(&mut before);
            assert!(asked.iter().all(|request| request.starts_with("GET ")), "{asked:?}");
        }
    }
    let gate = Gate::new();
    fixture.fake.queue(Turn::new().hold(&gate).text("done", 1).finish("stop"));
    let prompt = opencode::method("opencode.sessions.prompt_async").expect("a row of the table");
    call(&fixture.ada, ProtocolVersion::V1, prompt, &valid_params(prompt, "ses_first")).await.result();
    gate.reached().await;
    for method in orders() {
        for version in ProtocolVersion::ALL {
            let answer = call(&fixture.ada, version, method, &valid_params(method, SESSION)).await;
            let facts = Facts { status: None, again: true };
            check(seen, &answer, version, method, ErrorKind::TooManyRequests, facts);
        }
    }
    gate.open();
    fixture.fake.wait_until_idle().await;
    fixture.stop().await;
}

/// Only one call may be in flight, and one is: all others are refused, and OpenCode receives none of them.
async fn calls_beyond_the_limit(seen: &mut Seen) {
    let fixture = Fixture::start_with(Settings { upstream_calls: 1, ..Settings::default() }).await;
    let all: Vec<(&Method, ProtocolVersion)> =
        agent_methods().flat_map(|method| ProtocolVersion::ALL.map(|version| (method, version))).collect();
    for (method, version) in &all {
        if is_about_session(method) {
            add_furnished_session(&fixture, &own_session(method, *version)).await;
        }
    }
    let (gate, ada) = (Gate::new(), &fixture.ada);
    fixture.fake.fault_once("GET", "/provider", Fault::Hold(gate.clone()));
    let (providers, nothing) =
        (opencode::method("opencode.providers.list").expect("a row of the table"), json!({}));
    let (held, answers) = tokio::join!(call(ada, ProtocolVersion::V1, providers, &nothing), async {
        gate.reached().await;
        let mut before = 0;
        fixture.arrived(&mut before);
        let calls = all.iter().map(|(method, version)| async move {
            let params = valid_params(method, &own_session(method, *version));
            call(ada, *version, method, &params).await
        });
        let answers = join_all(calls).await;
        assert_eq!(fixture.arrived(&mut before), [""; 0], "it was refused before OpenCode was asked");
        gate.open();
        answers
    });
    held.result();
    for ((method, version), answer) in all.into_iter().zip(answers) {
        let facts = Facts { status: None, again: true };
        check(seen, &answer, version, method, ErrorKind::UpstreamBackpressure, facts);
    }
    fixture.stop().await;
}

/// Methods that need an idle session, or that remove its directory, are refused while a turn runs there.
async fn sessions_that_are_busy(seen: &mut Seen) {
    let populated = Populated::with_places(Settings::default()).await;
    let fixture = &populated.fixture;
    let data = populated.data.as_deref().expect("there is a repository");
    let directory = format!("{data}/worktree/9b4c0d/old");
    let workspaces = RawClient::new(fixture.fake.url(), "an unused token");
    let workspaces = workspaces.rest("GET", "/experimental/workspace", None).await.body;
    for (session, directory) in [("ses_old", &json!(directory)), ("ses_there", &workspaces[0]["directory"])] {
        fixture.session_like(session, &json!({"directory": directory}));
        fixture.claim(session).await;
    }
    let prompt = opencode::method("opencode.sessions.prompt_async").expect("a row of the table");
    let gate = Gate::new();
    for session in [SESSION, "ses_old", "ses_there"] {
        fixture.fake.queue(Turn::new().hold(&gate).text("done", 1).finish("stop"));
        call(&fixture.ada, ProtocolVersion::V1, prompt, &valid_params(prompt, session)).await.result();
        fixture.fake.wait_for_request("POST", &format!("/session/{session}/prompt_async"), 1).await;
    }
    // A command waits for its turn instead.
    let needs_it =
        |method: &&Method| method.errors.contains(&ErrorKind::SessionBusy) && method.key != "command";
    for method in agent_methods().filter(needs_it) {
        let mut params = valid_params(method, SESSION);
        if method.key == "prompt_async" {
            params["request"]["noReply"] = true.into();
        }
        for version in ProtocolVersion::ALL {
            let answer = call(&fixture.ada, version, method, &params).await;
            let facts = Facts { status: None, again: true };
            check(seen, &answer, version, method, ErrorKind::SessionBusy, facts);
            // The error does not reveal which session uses a directory.
            assert_names_session(&answer, version, if is_about_session(method) { SESSION } else { "" });
        }
    }
    assert_eq!(fixture.fake.removed_directories(), [""; 0]);
    gate.open();
    fixture.fake.wait_until_idle().await;
    populated.fixture.stop().await;
}

/// A command does not wait for ever for a session that another client of OpenCode keeps busy.
async fn sessions_that_others_keep(seen: &mut Seen) {
    // The gateway learns from the watched directory that the session is busy.
    let settings =
        Settings { wait_for_others: Some(Duration::ZERO), watch_directories: 1, ..Settings::default() };
    let fixture = Fixture::start_with(settings).await;
    let method = opencode::method("opencode.sessions.command").expect("a row of the table");
    for version in ProtocolVersion::ALL {
        let session = own_session(method, version);
        add_furnished_session(&fixture, &session).await;
        let busy = json!({"sessionID": session, "status": {"type": "busy"}});
        fixture.fake.emit("session.status", busy).await;
    }
    let mut before = 0;
    fixture.arrived(&mut before);
    let ada = &fixture.ada;
    let calls = ProtocolVersion::ALL.map(|version| async move {
        let session = own_session(method, version);
        (version, call(ada, version, method, &valid_params(method, &session)).await, session)
    });
    for (version, answer, session) in join_all(calls).await {
        check(seen, &answer, version, method, ErrorKind::SessionBusy, Facts { status: None, again: true });
        assert_names_session(&answer, version, &session);
        assert_ne!(error_fact(&answer, version, "taskId"), "", "{}", answer.body);
    }
    let asked = fixture.requests_since(&mut before);
    assert!(asked.iter().all(|request| request.starts_with("GET ")), "{asked:?}");
    fixture.stop().await;
}

#[tokio::test]
async fn long_every_error_of_the_table_has_the_format_of_its_version() {
    let mut seen = Seen::new();
    sessions_that_are_not_there(&mut seen).await;
    sessions_of_others(&mut seen).await;
    workspaces_of_others(&mut seen).await;
    callers_without_capabilities(&mut seen).await;
    let is_order = |method: &Method| ["prompt_async", "command"].contains(&method.key);
    let (orders, others): (Vec<_>, Vec<_>) = agent_methods().partition(|method| is_order(method));
    seen.extend(join_all(others.into_iter().map(requests_that_go_wrong)).await.into_iter().flatten());
    seen.extend(join_all(orders.into_iter().map(orders_that_go_wrong)).await.into_iter().flatten());
    let prompt = opencode::method("opencode.sessions.prompt_async").expect("a row of the table");
    seen.extend(notes_that_go_wrong(prompt).await);
    orders_that_are_not_taken(&mut seen).await;
    calls_beyond_the_limit(&mut seen).await;
    sessions_that_are_busy(&mut seen).await;
    sessions_that_others_keep(&mut seen).await;
    let of_version = |version| {
        let of_method = move |method: &'static Method| {
            method.errors.iter().map(move |kind| (method.name, version, kind.label()))
        };
        agent_methods().flat_map(of_method)
    };
    let table: Seen = ProtocolVersion::ALL.into_iter().flat_map(of_version).collect();
    let missing: Vec<_> = table.difference(&seen).collect();
    assert!(missing.is_empty(), "the table has errors that were not seen: {missing:#?}");
}

/// OpenCode is not running: every call can be retried, because nothing was done.
#[tokio::test]
async fn every_method_suggests_a_retry_when_opencode_is_down() {
    let populated = Populated::with_places(Settings::default()).await;
    populated.fixture.fake.kill().await;
    let mut seen = Seen::new();
    for method in agent_methods() {
        for version in ProtocolVersion::ALL {
            let answer = call(&populated.fixture.ada, version, method, &valid_params(method, SESSION)).await;
            let facts = Facts { status: None, again: true };
            check(&mut seen, &answer, version, method, ErrorKind::UpstreamUnreachable, facts);
            assert!(!answer.body.to_string().contains("may have"), "{}", answer.body);
        }
    }
    populated.fixture.stop().await;
}
