use longshore_model::{Epoch, Seq};
use serde_json::{Value as Json, json};

use super::*;

const BOTH: [ProtocolVersion; 2] = ProtocolVersion::ALL;

fn params(version: ProtocolVersion, operation: Method, message: &impl Message) -> Json {
    let json = Messages.request(version, operation, &message.encode_to_vec()).unwrap();
    serde_json::from_str(&json).unwrap()
}

/// Encodes the JSON of an event as a message. Returns the JSON that our types and the official types read back from it.
fn events(json: &Json) -> [Json; 2] {
    let text = json.to_string();
    let cursor = EventId::new(Seq(17), Epoch(3));
    let bytes = Messages.event(ProtocolVersion::V1, Some(cursor), text.as_bytes()).unwrap();
    let own = v1::StreamResponse::decode(bytes.as_slice()).unwrap();
    let theirs = a2a_pb::proto::StreamResponse::decode(bytes.as_slice()).unwrap();
    assert_eq!(theirs.encode_to_vec().len(), bytes.len(), "the official types know every field");
    let plain = Messages.event(ProtocolVersion::V1, None, text.as_bytes()).unwrap();
    let plain = v1::StreamResponse::decode(plain.as_slice()).unwrap();
    [serde_json::to_value(own).unwrap(), serde_json::to_value(plain).unwrap()]
}

#[test]
fn an_event_keeps_everything_and_gets_its_cursor() {
    let status = json!({"state": "TASK_STATE_WORKING", "timestamp": "2026-11-19T15:30:00.125Z"});
    let metadata = json!({"a": 1, "b": [1.5, null, "x"], "longshore": {"gap": {"first": 3}}});
    let message =
        json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"data": {"n": 42}, "mediaType": "a/b"}]});
    let artifact = json!({"artifactId": "a", "parts": [{"text": "hi"}, {"raw": "AAEC", "filename": "f"}, {"url": "u:x"}]});
    let ids = json!({"taskId": "t", "contextId": "c"});
    let with = |mut base: Json, more: Json| {
        base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        base
    };
    let cases = [
        (
            "task",
            json!({"id": "t", "contextId": "c", "status": status, "artifacts": [artifact], "history": [message]}),
        ),
        (
            "statusUpdate",
            with(ids.clone(), json!({"status": with(status.clone(), json!({"message": message}))})),
        ),
        ("artifactUpdate", with(ids, json!({"artifact": artifact, "append": true, "lastChunk": true}))),
    ];
    for (name, body) in cases {
        let body = with(body, json!({"metadata": metadata}));
        let event = json!({name: body});
        let [marked, plain] = events(&event);
        assert_eq!(plain, event);
        let mut expected = event.clone();
        expected[name]["metadata"]["longshore"]["cursor"] = json!("17.3");
        assert_eq!(marked, expected);
    }
    // An event without metadata gets some. A foreign value under our name is replaced.
    for (metadata, expected) in [(json!({}), json!({})), (json!({"longshore": 1}), json!({}))] {
        let [marked, _] = events(&json!({"statusUpdate": {"taskId": "t", "metadata": metadata}}));
        let mut expected = expected;
        expected["longshore"] = json!({"cursor": "17.3"});
        assert_eq!(marked["statusUpdate"]["metadata"], expected);
    }
}

#[test]
fn the_calls_of_0_3_name_tasks() {
    let version = ProtocolVersion::V03;
    let name = "tasks/t-1".to_owned();
    let cancel = v03::CancelTaskRequest { name: name.clone() };
    assert_eq!(params(version, Method::CancelTask, &cancel), json!({"id": "t-1"}));
    for (history_length, expected) in
        [(0, json!({"id": "t-1"})), (2, json!({"id": "t-1", "historyLength": 2}))]
    {
        let get = v03::GetTaskRequest { name: name.clone(), history_length };
        assert_eq!(params(version, Method::GetTask, &get), expected);
    }
    let push = "tasks/t-1/pushNotificationConfigs/p".to_owned();
    let get = v03::GetTaskPushNotificationConfigRequest { name: push.clone() };
    let ids = json!({"id": "t-1", "pushNotificationConfigId": "p"});
    assert_eq!(params(version, Method::GetTaskPushNotificationConfig, &get), ids);
    let config = v03::PushNotificationConfig { url: "https://a.b".to_owned(), ..Default::default() };
    let create = v03::CreateTaskPushNotificationConfigRequest {
        parent: name,
        config_id: "p".to_owned(),
        config: Some(v03::TaskPushNotificationConfig { name: push, push_notification_config: Some(config) }),
    };
    let expected = json!({"taskId": "t-1", "pushNotificationConfig": {"id": "p", "url": "https://a.b"}});
    assert_eq!(params(version, Method::CreateTaskPushNotificationConfig, &create), expected);
    for bad in ["", "t-1", "tasks/", "task/t-1"] {
        let cancel = v03::CancelTaskRequest { name: bad.to_owned() }.encode_to_vec();
        let refused = Messages.request(version, Method::CancelTask, &cancel).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidParams, "{bad}");
    }
}

#[test]
fn bad_messages_are_refused() {
    for version in BOTH {
        let refused = Messages.request(version, Method::SendMessage, &[0xff; 7]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Parse);
    }
    let message = v1::Message { role: 99, ..v1::Message::default() };
    let call = v1::SendMessageRequest { message: Some(message), ..Default::default() }.encode_to_vec();
    let refused = Messages.request(ProtocolVersion::V1, Method::SendMessage, &call).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidParams);
}

#[test]
fn a_card_of_0_3_keeps_its_requirements() {
    let card = json!({"name": "n", "security": [{"bearerAuth": ["a"]}], "unknown": 1});
    let bytes = Messages
        .reply(ProtocolVersion::V03, Method::GetExtendedAgentCard, card.to_string().as_bytes())
        .unwrap();
    let card = v03::AgentCard::decode(bytes.as_slice()).unwrap();
    assert_eq!(card.security[0].schemes["bearerAuth"].list, ["a"]);
}

#[test]
fn details_beyond_the_limit_are_cut_to_the_reason() {
    let error = Error::invalid("message", "x".repeat(10_000));
    let bytes = Messages.status(3, &error);
    assert!(bytes.len() < MAX_DETAILS);
    let status = Status::decode(bytes.as_slice()).unwrap();
    assert_eq!(status.detail::<ErrorInfo>().unwrap().reason, "INVALID_PARAMS");
    let short = Status::decode(Messages.status(3, &Error::invalid("a", "b")).as_slice()).unwrap();
    assert_eq!(short.detail::<BadRequest>().unwrap().field_violations[0].field, "a");
}

#[test]
fn what_the_agent_wrote_is_never_lost() {
    let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    for (data, shown) in
        [(r#""\ud83d""#, json!("\u{fffd}")), ("1e400", json!("1e400")), (deep.as_str(), Json::Null)]
    {
        let part = format!(r#"{{"artifactId":"a","parts":[{{"data":{{"x":{data}}}}}]}}"#);
        let event = format!(r#"{{"artifactUpdate":{{"taskId":"t","contextId":"c","artifact":{part}}}}}"#);
        let bytes = Messages.event(ProtocolVersion::V1, None, event.as_bytes()).unwrap();
        // The official types decode the message too: they have the usual limit of 100 levels.
        a2a_pb::proto::StreamResponse::decode(bytes.as_slice()).unwrap();
        let read = v1::StreamResponse::decode(bytes.as_slice()).unwrap();
        let read = serde_json::to_value(read).unwrap();
        let x = &read["artifactUpdate"]["artifact"]["parts"][0]["data"]["x"];
        assert!(if shown.is_null() { x.is_object() } else { *x == shown }, "{read}");
        let task = format!(r#"{{"id":"t","contextId":"c","artifacts":[{part}]}}"#);
        for version in BOTH {
            Messages.reply(version, Method::GetTask, task.as_bytes()).unwrap();
        }
    }
}
