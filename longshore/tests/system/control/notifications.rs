//! JSON-RPC notifications: the answer is always 204 without a body. A notification of a method that changes something
//! makes the change; one that only reads does nothing.

use std::time::Duration;

use longshore_testkit::fake_opencode::Fault;
use longshore_testkit::gateway::until;
use longshore_wire::methods::{Effect, Method};
use longshore_wire::surface::ProtocolVersion;
use serde_json::json;

use crate::control::fixture::{Fixture, Settings, agent_methods, is_about_session, notify};
use crate::control::populated::{Populated, SESSION, path_template, valid_params};

/// No call in these tests takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// The main request of a method in the table.
fn main_request(method: &Method) -> String {
    let upstream = &method.upstream[0];
    format!("{} {}", upstream.verb.as_str(), upstream.path)
}

/// The requests that reached OpenCode since the last time.
fn requests_since(fixture: &Fixture, seen: &mut usize) -> Vec<String> {
    fixture.arrived(seen).iter().map(|entry| path_template(entry)).collect()
}

/// The same, once the change has been requested: slow changes run after the answer.
async fn all_requests(fixture: &Fixture, seen: &mut usize, method: &Method) -> Vec<String> {
    let mut all = Vec::new();
    let main = main_request(method);
    until(PATIENCE, &format!("{} arrives", method.name), || {
        all.extend(requests_since(fixture, seen));
        method.effect == Effect::Read || all.contains(&main)
    })
    .await;
    fixture.fake.wait_until_idle().await;
    all.extend(requests_since(fixture, seen));
    all
}

#[tokio::test]
async fn a_notification_makes_its_change_and_no_other_request() {
    let reads = Populated::with_places(Settings::default()).await;
    for method in agent_methods() {
        for version in ProtocolVersion::ALL {
            let own = Populated::for_change(method, Settings::default()).await;
            let populated = own.as_ref().unwrap_or(&reads);
            let (fixture, session) = (&populated.fixture, populated.session_for(method).await);
            let mut seen = fixture.fake.received_targets().len();
            let what = format!("{} {version:?}", method.name);
            // An invalid notification is ignored.
            notify(&fixture.ada, version, method, &json!({"nonsense": 1})).await;
            if is_about_session(method) {
                notify(&fixture.bob, version, method, &valid_params(method, &session)).await;
            }
            if method.needs().is_some() {
                notify(&fixture.eve, version, method, &valid_params(method, &session)).await;
            }
            assert_eq!(requests_since(fixture, &mut seen), [""; 0], "{what}");
            notify(&fixture.ada, version, method, &valid_params(method, &session)).await;
            let asked = all_requests(fixture, &mut seen, method).await;
            let times = asked.iter().filter(|one| **one == main_request(method)).count();
            match method.effect {
                Effect::Read => assert_eq!(asked, [""; 0], "{what}"),
                Effect::Mutate | Effect::Control => assert_eq!(times, 1, "{what} {asked:?}"),
            }
            if let Some(own) = own {
                own.fixture.stop().await;
            }
        }
    }
    reads.fixture.stop().await;
}

/// OpenCode refuses, is not running, or returns an invalid answer.
#[tokio::test]
async fn a_failed_notification_is_answered_with_204_as_well() {
    let populated = Populated::with_places(Settings::default()).await;
    let fixture = &populated.fixture;
    for method in agent_methods().filter(|method| method.effect != Effect::Read) {
        for (fault, version) in
            [(Fault::Status(418), ProtocolVersion::V1), (Fault::Html, ProtocolVersion::V03)]
        {
            // Each call has its own session: the call before may still use another one.
            let session = populated.session_for(method).await;
            let path = method.upstream[0].path.replace("{id}", "*").leak();
            fixture.fake.fault_always(method.upstream[0].verb.as_str(), path, fault);
            let mut seen = fixture.fake.received_targets().len();
            notify(&fixture.ada, version, method, &valid_params(method, &session)).await;
            let asked = all_requests(fixture, &mut seen, method).await;
            let times = asked.iter().filter(|one| **one == main_request(method)).count();
            assert_eq!(times, 1, "a change is tried once: {} {version:?} {asked:?}", method.name);
            fixture.fake.clear_faults();
        }
    }
    fixture.fake.kill().await;
    for method in agent_methods() {
        for version in ProtocolVersion::ALL {
            notify(&fixture.ada, version, method, &valid_params(method, SESSION)).await;
        }
    }
    populated.fixture.stop().await;
}
