//! Calls without an id: answered with 204 and nothing else, whatever comes of them. What changes something is done, and what
//! only asks is not.

use std::time::Duration;

use longshore_testkit::fake_opencode::Fault;
use longshore_testkit::gateway::until;
use longshore_wire::methods::{Effect, Method};
use longshore_wire::surface::ProtocolVersion;
use serde_json::json;

use crate::control::populated::{SESSION, Scene, good, template};
use crate::control::fixture::{Rules, Stage, notify, of_agent, of_session};

/// Nothing in these tests takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the table says that OpenCode is asked first.
fn main_request(method: &Method) -> String {
    let upstream = &method.upstream[0];
    format!("{} {}", upstream.verb.as_str(), upstream.path)
}

/// What arrived at OpenCode since the last time.
fn asked(stage: &Stage, seen: &mut usize) -> Vec<String> {
    stage.arrived(seen).iter().map(|line| template(line)).collect()
}

/// The same once a change has been asked for: what takes long is done behind the answer. Nobody else is at it then.
async fn asked_in_the_end(stage: &Stage, seen: &mut usize, method: &Method) -> Vec<String> {
    let mut all = Vec::new();
    let main = main_request(method);
    until(PATIENCE, &format!("{} arrives", method.name), || {
        all.extend(asked(stage, seen));
        method.effect == Effect::Read || all.contains(&main)
    })
    .await;
    stage.fake.quiet().await;
    all.extend(asked(stage, seen));
    all
}

#[tokio::test]
async fn a_notification_changes_what_it_says_and_asks_for_nothing_else() {
    let looks = Scene::with_places(Rules::default()).await;
    for method in of_agent() {
        for line in ProtocolVersion::ALL {
            let own = Scene::for_change(method, Rules::default()).await;
            let scene = own.as_ref().unwrap_or(&looks);
            let (stage, session) = (&scene.stage, scene.session_for(method).await);
            let mut seen = stage.fake.arrived().len();
            let what = format!("{} {line:?}", method.name);
            // What is wrong with one is told nobody, and nothing comes of it.
            notify(&stage.ada, line, method, &json!({"nonsense": 1})).await;
            if of_session(method) {
                notify(&stage.bob, line, method, &good(method, &session)).await;
            }
            if method.needs().is_some() {
                notify(&stage.eve, line, method, &good(method, &session)).await;
            }
            assert_eq!(asked(stage, &mut seen), [""; 0], "{what}");
            notify(&stage.ada, line, method, &good(method, &session)).await;
            let asked = asked_in_the_end(stage, &mut seen, method).await;
            let times = asked.iter().filter(|one| **one == main_request(method)).count();
            match method.effect {
                Effect::Read => assert_eq!(asked, [""; 0], "{what}"),
                Effect::Mutate | Effect::Control => assert_eq!(times, 1, "{what} {asked:?}"),
            }
            if let Some(own) = own {
                own.stage.stop().await;
            }
        }
    }
    looks.stage.stop().await;
}

/// OpenCode refuses, is not there, or answers nonsense.
#[tokio::test]
async fn a_notification_that_fails_is_answered_with_nothing_as_well() {
    let scene = Scene::with_places(Rules::default()).await;
    let stage = &scene.stage;
    for method in of_agent().filter(|method| method.effect != Effect::Read) {
        for (fault, line) in [(Fault::Status(418), ProtocolVersion::V1), (Fault::Html, ProtocolVersion::V03)]
        {
            // Of its own: what was left behind by the one before may still have its session.
            let session = scene.session_for(method).await;
            let path = method.upstream[0].path.replace("{id}", "*").leak();
            stage.fake.fault_always(method.upstream[0].verb.as_str(), path, fault);
            let mut seen = stage.fake.arrived().len();
            notify(&stage.ada, line, method, &good(method, &session)).await;
            let asked = asked_in_the_end(stage, &mut seen, method).await;
            let times = asked.iter().filter(|one| **one == main_request(method)).count();
            assert_eq!(times, 1, "a change is tried once: {} {line:?} {asked:?}", method.name);
            stage.fake.clear_faults();
        }
    }
    stage.fake.kill().await;
    for method in of_agent() {
        for line in ProtocolVersion::ALL {
            notify(&stage.ada, line, method, &good(method, SESSION)).await;
        }
    }
    scene.stage.stop().await;
}
