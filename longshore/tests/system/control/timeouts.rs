//! An OpenCode that takes a request and says nothing: nobody waits for ever, and who changed something is told that it may be done.

use std::time::Duration;

use futures_util::future::join_all;
use longshore_model::ErrorKind;
use longshore_testkit::fake_opencode::Fault;
use longshore_wire::methods::Method;
use longshore_wire::surface::ProtocolVersion;
use serde_json::Value;

use crate::control::calls::row;
use crate::control::errors::{Facts, Seen, asking, check, own_session, path_end};
use crate::control::populated::{SESSION, Scene, changes, furnish, good};
use crate::control::fixture::{Rules, Stage, call, of_agent, of_session};

/// How long a call to OpenCode may take here. What does not hang is far from it.
const LIMIT: Duration = Duration::from_secs(3);

fn impatient() -> Rules {
    Rules { control_timeout: LIMIT, long_timeout: Some(LIMIT), ..Rules::default() }
}

fn is_order(method: &Method) -> bool {
    ["prompt_async", "command"].contains(&method.key)
}

/// Both lines call while OpenCode hangs at this. Each is told so, and whether it may have been done.
async fn hangs(
    stage: &Stage,
    method: &'static Method,
    at: (&'static str, &'static str),
    params: impl Fn(ProtocolVersion) -> Value,
    may_be_done: bool,
) {
    stage.fake.fault_always(at.0, at.1, Fault::Hang);
    let before = stage.fake.arrived().len();
    let calls = ProtocolVersion::ALL.map(|line| {
        let params = params(line);
        async move { (line, call(&stage.ada, line, method, &params).await) }
    });
    for (line, answer) in join_all(calls).await {
        // Whoever changed something is to look first, and is not told to come again.
        let facts = Facts { status: None, again: !may_be_done };
        check(&mut Seen::new(), &answer, line, method, ErrorKind::UpstreamUnreachable, facts);
        let says =
            answer.body["error"]["message"].as_str().is_some_and(|text| text.contains("may have been"));
        assert_eq!(says, may_be_done, "{} {line:?} {}", method.name, answer.body);
    }
    let made = stage.fake.arrived().split_off(before);
    let changes = made.iter().filter(|request| !request.starts_with("GET ")).count();
    assert_eq!(changes, if may_be_done { ProtocolVersion::ALL.len() } else { 0 }, "{} {made:?}", method.name);
    stage.fake.clear_faults();
}

#[tokio::test]
async fn every_method_gives_up_on_an_opencode_that_hangs() {
    let tried = of_agent().filter(|method| !is_order(method)).map(|method| async move {
        let scene = Scene::for_method(method, impatient()).await;
        for line in ProtocolVersion::ALL.into_iter().filter(|_| of_session(method)) {
            furnish(&scene.stage, &own_session(method, line)).await;
        }
        for upstream in method.upstream {
            let at = (upstream.verb.as_str(), path_end(upstream));
            let params = |line| asking(method, upstream, &own_session(method, line));
            hangs(&scene.stage, method, at, params, changes(method)).await;
        }
        scene.stage.stop().await;
    });
    join_all(tried).await;
}

/// What hangs on the way has done nothing. A note is only said, and may have been heard.
#[tokio::test]
async fn orders_give_up_before_they_are_given_and_notes_when_they_are() {
    let scene = Scene::of_sessions(impatient()).await;
    for method in of_agent().filter(|method| is_order(method)) {
        hangs(&scene.stage, method, ("GET", "/session/*"), |_| good(method, SESSION), false).await;
    }
    let prompt = row("opencode.sessions.prompt_async");
    for line in ProtocolVersion::ALL {
        furnish(&scene.stage, &own_session(prompt, line)).await;
    }
    let note = |line| {
        let mut params = good(prompt, &own_session(prompt, line));
        params["request"]["noReply"] = true.into();
        params
    };
    hangs(&scene.stage, prompt, ("POST", "/prompt_async"), note, true).await;
    scene.stage.stop().await;
}
