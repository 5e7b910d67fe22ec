//! OpenCode accepts a request and never answers: no call waits for ever, and the error of a change says that it may
//! have been made.

use std::time::Duration;

use futures_util::future::join_all;
use longshore_model::ErrorKind;
use longshore_testkit::fake_opencode::Fault;
use longshore_wire::methods::Method;
use longshore_wire::surface::ProtocolVersion;
use serde_json::Value;

use crate::control::calls::method_named;
use crate::control::errors::{Facts, Seen, asking, check, own_session, path_end};
use crate::control::fixture::{Fixture, Settings, agent_methods, call, is_about_session};
use crate::control::populated::{Populated, SESSION, add_furnished_session, is_mutation, valid_params};

/// How long a call to OpenCode may take. Calls that do not hang are much faster.
const LIMIT: Duration = Duration::from_secs(3);

fn impatient() -> Settings {
    Settings { control_timeout: LIMIT, long_timeout: Some(LIMIT), ..Settings::default() }
}

fn is_order(method: &Method) -> bool {
    ["prompt_async", "command"].contains(&method.key)
}

/// Both versions call while OpenCode hangs at this request. The error says so, and whether the change may have been
/// made.
async fn hangs(
    fixture: &Fixture,
    method: &'static Method,
    at: (&'static str, &'static str),
    params: impl Fn(ProtocolVersion) -> Value,
    is_maybe_applied: bool,
) {
    fixture.fake.fault_always(at.0, at.1, Fault::Hang);
    let before = fixture.fake.received_targets().len();
    let calls = ProtocolVersion::ALL.map(|version| {
        let params = params(version);
        async move { (version, call(&fixture.ada, version, method, &params).await) }
    });
    for (version, answer) in join_all(calls).await {
        // After a change the caller has to check the result first, so the error suggests no retry.
        let facts = Facts { status: None, again: !is_maybe_applied };
        check(&mut Seen::new(), &answer, version, method, ErrorKind::UpstreamUnreachable, facts);
        let says =
            answer.body["error"]["message"].as_str().is_some_and(|text| text.contains("may have been"));
        assert_eq!(says, is_maybe_applied, "{} {version:?} {}", method.name, answer.body);
    }
    let made = fixture.fake.received_targets().split_off(before);
    let changes = made.iter().filter(|request| !request.starts_with("GET ")).count();
    assert_eq!(
        changes,
        if is_maybe_applied { ProtocolVersion::ALL.len() } else { 0 },
        "{} {made:?}",
        method.name
    );
    fixture.fake.clear_faults();
}

#[tokio::test]
async fn long_every_method_times_out_when_opencode_hangs() {
    let tried = agent_methods().filter(|method| !is_order(method)).map(|method| async move {
        let populated = Populated::for_method(method, impatient()).await;
        for version in ProtocolVersion::ALL.into_iter().filter(|_| is_about_session(method)) {
            add_furnished_session(&populated.fixture, &own_session(method, version)).await;
        }
        for upstream in method.upstream {
            let at = (upstream.verb.as_str(), path_end(upstream));
            let params = |version| asking(method, upstream, &own_session(method, version));
            hangs(&populated.fixture, method, at, params, is_mutation(method)).await;
        }
        populated.fixture.stop().await;
    });
    join_all(tried).await;
}

/// A native prompt that hangs before it is sent has done nothing. A prompt without reply may have been received.
#[tokio::test]
async fn long_native_prompts_time_out_when_opencode_hangs() {
    let populated = Populated::of_sessions(impatient()).await;
    for method in agent_methods().filter(|method| is_order(method)) {
        hangs(&populated.fixture, method, ("GET", "/session/*"), |_| valid_params(method, SESSION), false)
            .await;
    }
    let prompt = method_named("opencode.sessions.prompt_async");
    for version in ProtocolVersion::ALL {
        add_furnished_session(&populated.fixture, &own_session(prompt, version)).await;
    }
    let note = |version| {
        let mut params = valid_params(prompt, &own_session(prompt, version));
        params["request"]["noReply"] = true.into();
        params
    };
    hangs(&populated.fixture, prompt, ("POST", "/prompt_async"), note, true).await;
    populated.fixture.stop().await;
}
