//! Two principals, and a third who may take what is nobody's: nobody reads or changes what belongs to another, and OpenCode
//! hears nothing of the attempt.

mod lists;
mod unowned;
mod capabilities;
mod sharing;

use longshore_testkit::fake_opencode::{Fault, Turn};
use longshore_testkit::raw::{RawClient, message};
use longshore_wire::methods::Effect;
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::calls::{
    asked, cal, code, fact, fields, first_message, forbidden, id_of, on_session, row, rows, works,
};
use crate::control::fixture::{Stage, call, notify};

pub(crate) fn answering(stage: &Stage) {
    stage.fake.answering(|text| Turn::new().text(&format!("So you say: {text}"), 1).finish("stop"));
}

#[tokio::test]
async fn every_method_refuses_the_session_of_another_before_opencode_hears_of_it() {
    let stage = Stage::start().await;
    answering(&stage);
    let hers = stage.session_of(&stage.ada, "hers").await;
    let his = stage.session_of(&stage.bob, "his").await;
    let cal = cal(&stage);
    stage.fake.quiet().await;
    let mut seen = 0;
    for (who, caller, session) in
        [("bob", &stage.bob, &hers), ("ada", &stage.ada, &his), ("cal", &cal, &hers), ("cal", &cal, &his)]
    {
        let before = stage.fake.messages(session);
        let first = id_of(&before[0]);
        asked(&stage, &mut seen);
        for method in rows() {
            for line in ProtocolVersion::ALL {
                let about = format!("{who} {} {line:?}", method.name);
                let params = on_session(method, session, first);
                forbidden(&call(caller, line, method, &params).await, line, session, &about);
                notify(caller, line, method, &params).await;
                assert_eq!(asked(&stage, &mut seen), [""; 0], "{about}");
            }
        }
        assert_eq!(stage.fake.messages(session), before, "{who}");
    }
    // It was for whose the session is, and for nothing else: the same parameters are good for the owner.
    let (changes, looks): (Vec<_>, Vec<_>) =
        rows().into_iter().partition(|method| method.effect != Effect::Read);
    for method in looks.into_iter().chain(changes) {
        for line in ProtocolVersion::ALL {
            let params = on_session(method, &hers, id_of(&first_message(&stage, &hers)));
            works(&stage.ada, line, method, &params).await;
        }
    }
    stage.stop().await;
}

/// A send in the words of its line that says which session it is for.
async fn bound(
    client: &RawClient,
    line: ProtocolVersion,
    id: &str,
    session: &str,
) -> longshore_testkit::raw::Answer {
    let binding = json!({"shared": {"session": {"id": session}}});
    match line {
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
    let stage = Stage::start().await;
    answering(&stage);
    let hers = stage.session_of(&stage.ada, "hers").await;
    stage.fake.quiet().await;
    let (before, mut seen) = (stage.fake.messages(&hers), 0);
    asked(&stage, &mut seen);
    for (who, caller) in [("bob", &stage.bob), ("cal", &cal(&stage)), ("eve", &stage.eve)] {
        for line in ProtocolVersion::ALL {
            let refused = bound(caller, line, &format!("m-{who}-{line:?}"), &hers).await;
            assert!(refused.body["result"].is_null(), "{who} {line:?}: {}", refused.body);
            assert_eq!(code(&refused), -32602, "{who} {line:?}: {}", refused.body);
            assert_eq!(fields(&refused), ["metadata.shared.session.id"], "{who} {line:?}: {}", refused.body);
        }
        // The name of a context that tells of her session opens nothing either.
        let mut params = message(&format!("m-{who}-context"), "Let me in.");
        params["message"]["contextId"] = format!("ctx:opencode-session:{hers}").into();
        let refused = caller.rpc("SendMessage", params).await;
        assert!(refused.body["result"].is_null(), "{who}: {}", refused.body);
    }
    assert_eq!(asked(&stage, &mut seen), [""; 0]);
    assert_eq!(stage.fake.messages(&hers), before);
    for line in ProtocolVersion::ALL {
        let taken = bound(&stage.ada, line, &format!("m-ada-{line:?}"), &hers).await;
        assert!(taken.body["error"].is_null(), "{line:?}: {}", taken.body);
    }
    stage.stop().await;
}

/// Waits until no turn of the caller's runs, in OpenCode and in the gateway.
async fn settled(stage: &Stage, client: &RawClient, session: &str) {
    stage.fake.quiet().await;
    let unrevert = row("opencode.sessions.unrevert");
    works(client, ProtocolVersion::V1, unrevert, &json!({"session_id": session})).await;
}

/// OpenCode writes into whichever session a message or a part of that name is in.
#[tokio::test]
async fn the_names_of_anothers_messages_reach_nothing() {
    let stage = Stage::start().await;
    answering(&stage);
    let hers = stage.session_of(&stage.ada, "hers").await;
    let his = stage.session_of(&stage.bob, "his").await;
    stage.fake.quiet().await;
    let before = stage.fake.messages(&hers);
    let names: Vec<String> = before.iter().map(|message| id_of(message).to_owned()).collect();
    let part = before[0]["parts"][0]["id"].as_str().expect("a part has a name").to_owned();
    let own = id_of(&first_message(&stage, &his)).to_owned();
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let on_his = |mut params: Value| {
        params["session_id"] = his.as_str().into();
        params
    };
    for line in ProtocolVersion::ALL {
        for theirs in &names {
            let about = format!("{line:?} {theirs}");
            // As the name of a message that is to come it is the caller's own business, and OpenCode is not told it.
            for request in [
                json!({"messageID": theirs, "parts": text(&format!("mine now {line:?}"))}),
                json!({"messageID": theirs, "parts": text("a note"), "noReply": true}),
            ] {
                let prompt = row("opencode.sessions.prompt_async");
                works(&stage.bob, line, prompt, &on_his(json!({"request": request}))).await;
                settled(&stage, &stage.bob, &his).await;
            }
            let request = json!({"command": "review", "arguments": format!("{line:?}"), "messageID": theirs});
            let command = row("opencode.sessions.command");
            works(&stage.bob, line, command, &on_his(json!({"request": request}))).await;
            settled(&stage, &stage.bob, &his).await;
            for (name, params, field) in [
                ("fork", json!({"request": {"messageID": theirs}}), "request.messageID"),
                ("revert", json!({"request": {"messageID": theirs}}), "request.messageID"),
                ("revert", json!({"request": {"messageID": own, "partID": part}}), "request.partID"),
                ("messages.get", json!({"message_id": theirs}), "message_id"),
            ] {
                let method = row(&format!("opencode.sessions.{name}"));
                let refused = call(&stage.bob, line, method, &on_his(params)).await;
                assert_eq!(code(&refused), -32602, "{about} {name}: {}", refused.body);
                assert_eq!(fields(&refused), [field], "{about} {name}: {}", refused.body);
            }
            let diff = row("opencode.sessions.diff");
            let nothing = works(&stage.bob, line, diff, &on_his(json!({"message_id": theirs}))).await;
            assert_eq!(nothing.result()["items"], json!([]), "{about}");
        }
        let request = json!({"parts": [{"type": "text", "text": "mine now", "id": part}]});
        let prompt = row("opencode.sessions.prompt_async");
        let refused = call(&stage.bob, line, prompt, &on_his(json!({"request": request}))).await;
        assert_eq!(fields(&refused), ["request.parts[0].id"], "{line:?}: {}", refused.body);
    }
    assert_eq!(stage.fake.messages(&hers), before);
    let told: Vec<String> = stage
        .fake
        .log()
        .iter()
        .filter(|request| request.path.starts_with(&format!("/session/{his}/")))
        .map(|request| request.body.to_string())
        .collect();
    assert!(!told.is_empty());
    for name in names.iter().chain([&part]) {
        assert!(told.iter().all(|body| !body.contains(name.as_str())), "{name} in {told:?}");
    }
    // It was all said in his own session.
    let said: String = stage.fake.messages(&his).iter().map(Value::to_string).collect();
    for line in ProtocolVersion::ALL {
        assert!(said.contains(&format!("mine now {line:?}")), "{said}");
    }
    stage.stop().await;
}

/// OpenCode made it, and its answer was lost on the way.
#[tokio::test]
async fn a_fork_whose_answer_is_lost_is_not_left_to_others() {
    let stage = Stage::start().await;
    let hers = stage.session_of(&stage.ada, "hers").await;
    let his = stage.session_of(&stage.bob, "his").await;
    stage.fake.quiet().await;
    // It looks like hers from outside, and OpenCode does not tell what is in it.
    let alike = stage.fake.typist(&his).forks().await;
    let inside = format!("/session/{alike}/message").leak();
    stage.fake.fault_always("GET", inside, Fault::Status(500));
    let fork = row("opencode.sessions.fork");
    for line in ProtocolVersion::ALL {
        let before = stage.fake.sessions();
        stage.fake.fault_once("POST", "/fork", Fault::CutAfter);
        let lost = call(&stage.ada, line, fork, &json!({"session_id": hers})).await;
        assert_eq!(code(&lost), -32002, "{line:?}: {}", lost.body);
        let mut made = stage.fake.sessions();
        made.retain(|session| !before.contains(session));
        let [made] = made.as_slice() else { panic!("one fork: {made:?}") };
        assert_eq!(fact(&lost, line, "forkedSessionId"), made.as_str(), "{}", lost.body);
        let get = row("opencode.sessions.get");
        let params = json!({"session_id": made});
        for (who, caller) in [("bob", &stage.bob), ("cal", &cal(&stage))] {
            forbidden(&call(caller, line, get, &params).await, line, made, who);
        }
        works(&stage.ada, line, get, &params).await;
    }
    stage.stop().await;
}

/// Its title is that of the one that was lost, and it was made at the same time.
#[tokio::test]
async fn a_fork_of_another_session_is_not_taken_for_one_whose_answer_is_lost() {
    let stage = Stage::start().await;
    let hers = stage.session_of(&stage.ada, "hers").await;
    let his = stage.session_of(&stage.bob, "his").await;
    stage.fake.quiet().await;
    for line in ProtocolVersion::ALL {
        let made = stage.fake.typist(&his).forks().await;
        stage.fake.fault_once("POST", "/fork", Fault::CutBefore);
        let lost = call(&stage.ada, line, row("opencode.sessions.fork"), &json!({"session_id": hers})).await;
        assert_eq!(code(&lost), -32002, "{line:?}: {}", lost.body);
        let text = lost.body.to_string();
        assert!(text.contains("may have") && !text.contains(&made), "{line:?}: {text}");
        let (get, params) = (row("opencode.sessions.get"), json!({"session_id": made}));
        // It is nobody's, as before.
        works(&cal(&stage), line, get, &params).await;
    }
    stage.stop().await;
}

#[tokio::test]
async fn a_fork_is_its_makers_at_once() {
    let stage = Stage::start().await;
    let hers = stage.session_of(&stage.ada, "hers").await;
    stage.fake.quiet().await;
    let mut seen = 0;
    for line in ProtocolVersion::ALL {
        let fork = row("opencode.sessions.fork");
        let made = works(&stage.ada, line, fork, &json!({"session_id": hers})).await;
        let made = made.result()["item"]["id"].as_str().expect("a fork has a name").to_owned();
        assert_ne!(made, hers);
        let first = first_message(&stage, &made);
        asked(&stage, &mut seen);
        for (who, caller) in [("bob", &stage.bob), ("cal", &cal(&stage))] {
            for method in rows() {
                let about = format!("{who} {} {line:?}", method.name);
                let params = on_session(method, &made, id_of(&first));
                forbidden(&call(caller, line, method, &params).await, line, &made, &about);
                assert_eq!(asked(&stage, &mut seen), [""; 0], "{about}");
            }
        }
        let get = row("opencode.sessions.get");
        let got = works(&stage.ada, line, get, &json!({"session_id": made})).await;
        assert_eq!(got.result()["item"]["id"], made.as_str(), "{}", got.body);
    }
    stage.stop().await;
}
