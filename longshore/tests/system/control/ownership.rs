//! Several principals: none reads or changes the session of another, and OpenCode receives no request for the attempt.

mod capabilities;
mod lists;
mod sharing;
mod unowned;

use longshore_testkit::fake_opencode::{Fault, Turn};
use longshore_testkit::raw::{RawClient, message};
use longshore_wire::methods::Effect;
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::calls::{
    assert_forbidden, call_ok, client_of_cal, error_code, error_fact, error_fields, first_message,
    message_id, method_named, requests_since, session_methods, session_params,
};
use crate::control::fixture::{Fixture, call, notify};

pub(crate) fn answer_every_prompt(fixture: &Fixture) {
    fixture.fake.answering(|text| Turn::new().text(&format!("So you say: {text}"), 1).finish("stop"));
}

#[tokio::test]
async fn every_method_refuses_the_session_of_another_without_asking_opencode() {
    let fixture = Fixture::start().await;
    answer_every_prompt(&fixture);
    let hers = fixture.session_of(&fixture.ada, "hers").await;
    let his = fixture.session_of(&fixture.bob, "his").await;
    let cal = client_of_cal(&fixture);
    fixture.fake.wait_until_idle().await;
    let mut seen = 0;
    for (who, caller, session) in
        [("bob", &fixture.bob, &hers), ("ada", &fixture.ada, &his), ("cal", &cal, &hers), ("cal", &cal, &his)]
    {
        let before = fixture.fake.messages(session);
        let first = message_id(&before[0]);
        requests_since(&fixture, &mut seen);
        for method in session_methods() {
            for version in ProtocolVersion::ALL {
                let about = format!("{who} {} {version:?}", method.name);
                let params = session_params(method, session, first);
                assert_forbidden(&call(caller, version, method, &params).await, version, session, &about);
                notify(caller, version, method, &params).await;
                assert_eq!(requests_since(&fixture, &mut seen), [""; 0], "{about}");
            }
        }
        assert_eq!(fixture.fake.messages(session), before, "{who}");
    }
    // The owner was the only reason: the same parameters work for the owner.
    let (changes, reads): (Vec<_>, Vec<_>) =
        session_methods().into_iter().partition(|method| method.effect != Effect::Read);
    for method in reads.into_iter().chain(changes) {
        for version in ProtocolVersion::ALL {
            let params = session_params(method, &hers, message_id(&first_message(&fixture, &hers)));
            call_ok(&fixture.ada, version, method, &params).await;
        }
    }
    fixture.stop().await;
}

/// A message in this version that names a session.
async fn bound(
    client: &RawClient,
    version: ProtocolVersion,
    id: &str,
    session: &str,
) -> longshore_testkit::raw::Answer {
    let binding = json!({"shared": {"session": {"id": session}}});
    match version {
        ProtocolVersion::V1 => {
            let mut params = message(id, "Let me in.");
            params["metadata"] = binding;
            let client = client.activating(&["urn:opencode-a2a:extension:session-binding:v1"]);
            client.rpc("SendMessage", params).await
        }
        ProtocolVersion::V03 => {
            let message = json!({
                "kind": "message", "messageId": id, "role": "user", "parts": [{"kind": "text", "text": "Let me in."}],
            });
            let params = json!({"message": message, "metadata": binding});
            client.speaking("0.3").rpc("message/send", params).await
        }
    }
}

#[tokio::test]
async fn a_message_for_the_session_of_another_is_refused() {
    let fixture = Fixture::start().await;
    answer_every_prompt(&fixture);
    let hers = fixture.session_of(&fixture.ada, "hers").await;
    fixture.fake.wait_until_idle().await;
    let (before, mut seen) = (fixture.fake.messages(&hers), 0);
    requests_since(&fixture, &mut seen);
    for (who, caller) in [("bob", &fixture.bob), ("cal", &client_of_cal(&fixture)), ("eve", &fixture.eve)] {
        for version in ProtocolVersion::ALL {
            let refused = bound(caller, version, &format!("m-{who}-{version:?}"), &hers).await;
            assert!(refused.body["result"].is_null(), "{who} {version:?}: {}", refused.body);
            assert_eq!(error_code(&refused), -32602, "{who} {version:?}: {}", refused.body);
            assert_eq!(
                error_fields(&refused),
                ["metadata.shared.session.id"],
                "{who} {version:?}: {}",
                refused.body
            );
        }
        // The context id that contains the session id is refused as well.
        let mut params = message(&format!("m-{who}-context"), "Let me in.");
        params["message"]["contextId"] = format!("ctx:opencode-session:{hers}").into();
        let refused = caller.rpc("SendMessage", params).await;
        assert!(refused.body["result"].is_null(), "{who}: {}", refused.body);
    }
    assert_eq!(requests_since(&fixture, &mut seen), [""; 0]);
    assert_eq!(fixture.fake.messages(&hers), before);
    for version in ProtocolVersion::ALL {
        let taken = bound(&fixture.ada, version, &format!("m-ada-{version:?}"), &hers).await;
        assert!(taken.body["error"].is_null(), "{version:?}: {}", taken.body);
    }
    fixture.stop().await;
}

/// Waits until no turn of the caller runs in OpenCode and in the gateway.
async fn settled(fixture: &Fixture, client: &RawClient, session: &str) {
    fixture.fake.wait_until_idle().await;
    let unrevert = method_named("opencode.sessions.unrevert");
    call_ok(client, ProtocolVersion::V1, unrevert, &json!({"session_id": session})).await;
}

/// OpenCode itself would write to the message or part of that id in any session.
#[tokio::test]
async fn message_ids_of_another_caller_have_no_effect() {
    let fixture = Fixture::start().await;
    answer_every_prompt(&fixture);
    let hers = fixture.session_of(&fixture.ada, "hers").await;
    let his = fixture.session_of(&fixture.bob, "his").await;
    fixture.fake.wait_until_idle().await;
    let before = fixture.fake.messages(&hers);
    let names: Vec<String> = before.iter().map(|message| message_id(message).to_owned()).collect();
    let part = before[0]["parts"][0]["id"].as_str().expect("a part has a name").to_owned();
    let own = message_id(&first_message(&fixture, &his)).to_owned();
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let on_his = |mut params: Value| {
        params["session_id"] = his.as_str().into();
        params
    };
    for version in ProtocolVersion::ALL {
        for theirs in &names {
            let about = format!("{version:?} {theirs}");
            // As the id of a new message it is only a key of the caller, and OpenCode does not receive it.
            for request in [
                json!({"messageID": theirs, "parts": text(&format!("mine now {version:?}"))}),
                json!({"messageID": theirs, "parts": text("a note"), "noReply": true}),
            ] {
                let prompt = method_named("opencode.sessions.prompt_async");
                call_ok(&fixture.bob, version, prompt, &on_his(json!({"request": request}))).await;
                settled(&fixture, &fixture.bob, &his).await;
            }
            let request =
                json!({"command": "review", "arguments": format!("{version:?}"), "messageID": theirs});
            let command = method_named("opencode.sessions.command");
            call_ok(&fixture.bob, version, command, &on_his(json!({"request": request}))).await;
            settled(&fixture, &fixture.bob, &his).await;
            for (name, params, field) in [
                ("fork", json!({"request": {"messageID": theirs}}), "request.messageID"),
                ("revert", json!({"request": {"messageID": theirs}}), "request.messageID"),
                ("revert", json!({"request": {"messageID": own, "partID": part}}), "request.partID"),
                ("messages.get", json!({"message_id": theirs}), "message_id"),
            ] {
                let method = method_named(&format!("opencode.sessions.{name}"));
                let refused = call(&fixture.bob, version, method, &on_his(params)).await;
                assert_eq!(error_code(&refused), -32602, "{about} {name}: {}", refused.body);
                assert_eq!(error_fields(&refused), [field], "{about} {name}: {}", refused.body);
            }
            let diff = method_named("opencode.sessions.diff");
            let nothing = call_ok(&fixture.bob, version, diff, &on_his(json!({"message_id": theirs}))).await;
            assert_eq!(nothing.result()["items"], json!([]), "{about}");
        }
        let request = json!({"parts": [{"type": "text", "text": "mine now", "id": part}]});
        let prompt = method_named("opencode.sessions.prompt_async");
        let refused = call(&fixture.bob, version, prompt, &on_his(json!({"request": request}))).await;
        assert_eq!(error_fields(&refused), ["request.parts[0].id"], "{version:?}: {}", refused.body);
    }
    assert_eq!(fixture.fake.messages(&hers), before);
    let reported: Vec<String> = fixture
        .fake
        .log()
        .iter()
        .filter(|request| request.path.starts_with(&format!("/session/{his}/")))
        .map(|request| request.body.to_string())
        .collect();
    assert!(!reported.is_empty());
    for name in names.iter().chain([&part]) {
        assert!(reported.iter().all(|body| !body.contains(name.as_str())), "{name} in {reported:?}");
    }
    // All prompts went to his own session.
    let said: String = fixture.fake.messages(&his).iter().map(Value::to_string).collect();
    for version in ProtocolVersion::ALL {
        assert!(said.contains(&format!("mine now {version:?}")), "{said}");
    }
    fixture.stop().await;
}

/// OpenCode created the fork, and its answer was lost.
#[tokio::test]
async fn a_fork_whose_answer_is_lost_belongs_to_its_caller() {
    let fixture = Fixture::start().await;
    let hers = fixture.session_of(&fixture.ada, "hers").await;
    let his = fixture.session_of(&fixture.bob, "his").await;
    fixture.fake.wait_until_idle().await;
    // Another fork looks like hers from outside, and its messages cannot be read.
    let alike = fixture.fake.other_client(&his).forks().await;
    let inside = format!("/session/{alike}/message").leak();
    fixture.fake.fault_always("GET", inside, Fault::Status(500));
    let fork = method_named("opencode.sessions.fork");
    for version in ProtocolVersion::ALL {
        let before = fixture.fake.sessions();
        fixture.fake.fault_once("POST", "/fork", Fault::CutAfter);
        let lost = call(&fixture.ada, version, fork, &json!({"session_id": hers})).await;
        assert_eq!(error_code(&lost), -32002, "{version:?}: {}", lost.body);
        let mut made = fixture.fake.sessions();
        made.retain(|session| !before.contains(session));
        let [made] = made.as_slice() else { panic!("one fork: {made:?}") };
        assert_eq!(error_fact(&lost, version, "forkedSessionId"), made.as_str(), "{}", lost.body);
        let get = method_named("opencode.sessions.get");
        let params = json!({"session_id": made});
        for (who, caller) in [("bob", &fixture.bob), ("cal", &client_of_cal(&fixture))] {
            assert_forbidden(&call(caller, version, get, &params).await, version, made, who);
        }
        call_ok(&fixture.ada, version, get, &params).await;
    }
    fixture.stop().await;
}

/// A fork of another session has the same title and the same time.
#[tokio::test]
async fn a_fork_of_another_session_is_not_mistaken_for_a_lost_fork() {
    let fixture = Fixture::start().await;
    let hers = fixture.session_of(&fixture.ada, "hers").await;
    let his = fixture.session_of(&fixture.bob, "his").await;
    fixture.fake.wait_until_idle().await;
    for version in ProtocolVersion::ALL {
        let made = fixture.fake.other_client(&his).forks().await;
        fixture.fake.fault_once("POST", "/fork", Fault::CutBefore);
        let lost =
            call(&fixture.ada, version, method_named("opencode.sessions.fork"), &json!({"session_id": hers}))
                .await;
        assert_eq!(error_code(&lost), -32002, "{version:?}: {}", lost.body);
        let text = lost.body.to_string();
        assert!(text.contains("may have") && !text.contains(&made), "{version:?}: {text}");
        let (get, params) = (method_named("opencode.sessions.get"), json!({"session_id": made}));
        // The other fork is unowned, as before.
        call_ok(&client_of_cal(&fixture), version, get, &params).await;
    }
    fixture.stop().await;
}

#[tokio::test]
async fn a_fork_belongs_to_its_caller_at_once() {
    let fixture = Fixture::start().await;
    let hers = fixture.session_of(&fixture.ada, "hers").await;
    fixture.fake.wait_until_idle().await;
    let mut seen = 0;
    for version in ProtocolVersion::ALL {
        let fork = method_named("opencode.sessions.fork");
        let made = call_ok(&fixture.ada, version, fork, &json!({"session_id": hers})).await;
        let made = made.result()["item"]["id"].as_str().expect("a fork has a name").to_owned();
        assert_ne!(made, hers);
        let first = first_message(&fixture, &made);
        requests_since(&fixture, &mut seen);
        for (who, caller) in [("bob", &fixture.bob), ("cal", &client_of_cal(&fixture))] {
            for method in session_methods() {
                let about = format!("{who} {} {version:?}", method.name);
                let params = session_params(method, &made, message_id(&first));
                assert_forbidden(&call(caller, version, method, &params).await, version, &made, &about);
                assert_eq!(requests_since(&fixture, &mut seen), [""; 0], "{about}");
            }
        }
        let get = method_named("opencode.sessions.get");
        let got = call_ok(&fixture.ada, version, get, &json!({"session_id": made})).await;
        assert_eq!(got.result()["item"]["id"], made.as_str(), "{}", got.body);
    }
    fixture.stop().await;
}
