//! Several principals: none reads or changes the session of another, and OpenCode receives no request for the attempt.

mod capabilities;

use longshore_testkit::fake_opencode::Turn;
use longshore_testkit::raw::RawClient;
use longshore_wire::methods::Effect;
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::calls::{
    assert_forbidden, call_ok, client_of_cal, error_code, error_fields, first_message, message_id,
    method_named, requests_since, session_methods, session_params,
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
    let delete = method_named("opencode.sessions.delete");
    let (changes, reads): (Vec<_>, Vec<_>) = session_methods()
        .into_iter()
        .filter(|method| method.name != delete.name)
        .partition(|method| method.effect != Effect::Read);
    for method in reads.into_iter().chain(changes) {
        for version in ProtocolVersion::ALL {
            let params = session_params(method, &hers, message_id(&first_message(&fixture, &hers)));
            call_ok(&fixture.ada, version, method, &params).await;
        }
    }
    settled(&fixture, &fixture.ada, &hers).await;
    call_ok(&fixture.ada, ProtocolVersion::V1, delete, &json!({"session_id": hers})).await;
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
