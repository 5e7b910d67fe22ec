//! The configurations of push notifications in every version and binding. No answer and no log line shows a secret.

use std::sync::Arc;

use longshore_edge::PayloadLog;
use longshore_engine::PushRules;
use longshore_engine::port::{PushConfigs, PushLimits, PushQueue};
use longshore_model::{Principal, PushConfigId, PushEvents, PushFormat, PushWord, Seq, TaskState, Timestamp};
use longshore_store::MemoryStore;
use longshore_wire::surface::ProtocolVersion;
use longshore_wire::v1::method::Method;
use longshore_wire::v03::Dialect;
use serde_json::{Value, json};

use crate::support::log_lines::LogLines;
use crate::support::{Answer, BOB, Call, Gateway, ProtocolClient};

const URL: &str = "https://hooks.test/planted-url";

const PUSH: [Method; 4] = [
    Method::CreateTaskPushNotificationConfig,
    Method::GetTaskPushNotificationConfig,
    Method::ListTaskPushNotificationConfigs,
    Method::DeleteTaskPushNotificationConfig,
];

fn store() -> Arc<MemoryStore> {
    Arc::new(longshore_store::memory())
}

fn call(client: ProtocolClient, gateway: &Gateway, method: Method, task: &str) -> Call {
    client.call(gateway, method, task, &client.push_params(method, task, URL))
}

/// The result of a successful response.
fn result_of(answer: &Answer) -> Value {
    let body = answer.json();
    assert_eq!(answer.status.as_u16(), 200, "{body}");
    assert!(!body.to_string().contains("planted-token"), "{body}");
    assert!(!body.to_string().contains("planted-credentials"), "{body}");
    match body.get("jsonrpc") {
        Some(_) => body.get("result").unwrap_or_else(|| panic!("{body}")).clone(),
        None => body,
    }
}

/// The reason of an error about a field.
fn invalid(client: ProtocolClient) -> &'static str {
    match client.version {
        ProtocolVersion::V1 => "INVALID_PARAMS",
        ProtocolVersion::V03 => "INVALID_FIELD",
    }
}

/// The configuration `c` as a client sees it.
fn shown(client: ProtocolClient, task: &str) -> Value {
    let inner = json!({"id": "c", "url": URL, "authentication": {"schemes": ["Bearer"]}});
    match (client.version, client.dialect) {
        (ProtocolVersion::V1, _) => {
            json!({"taskId": task, "id": "c", "url": URL, "authentication": {"scheme": "Bearer"}})
        }
        (_, Dialect::Rpc) => json!({"taskId": task, "pushNotificationConfig": inner}),
        (_, Dialect::Rest) => json!({
            "name": format!("tasks/{task}/pushNotificationConfigs/c"),
            "pushNotificationConfig": inner,
        }),
    }
}

#[tokio::test]
async fn a_configuration_is_created_read_listed_and_deleted_by_its_owner() {
    let mut gateway = Gateway::pushing(store(), PushRules::default(), |_| {}).await;
    let (task, turn) = gateway.working_task("m0").await;
    for client in ProtocolClient::ALL {
        let on = |method| call(client, &gateway, method, &task);
        let [create, get, list, delete] = PUSH;
        // A task of somebody else does not exist, whatever is requested about it.
        for method in PUSH {
            let answer = on(method).header("authorization", BOB).send().await;
            assert_eq!(client.reason(&answer), "TASK_NOT_FOUND", "{method:?} {}", client.name());
        }
        let expected = shown(client, &task);
        // The second time it is replaced.
        for _ in 0..2 {
            assert_eq!(result_of(&on(create).send().await), expected, "{}", client.name());
        }
        assert_eq!(result_of(&on(get).send().await), expected);
        let is_list = (client.version, client.dialect) == (ProtocolVersion::V03, Dialect::Rpc);
        let page = |configs: Value| if is_list { configs } else { json!({"configs": configs}) };
        assert_eq!(result_of(&on(list).send().await), page(json!([expected])));
        let gone = if is_list { Value::Null } else { json!({}) };
        // Deleting it again is no error.
        for _ in 0..2 {
            assert_eq!(result_of(&on(delete).send().await), gone, "{}", client.name());
        }
        assert_eq!(client.reason(&on(get).send().await), "TASK_NOT_FOUND");
        assert_eq!(result_of(&on(list).send().await), page(json!([])));
    }
    turn.complete().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_list_has_pages_and_a_configuration_without_an_id_gets_that_of_its_task() {
    let mut gateway = Gateway::pushing(store(), PushRules::default(), |_| {}).await;
    let (task, turn) = gateway.working_task("m0").await;
    for id in ["b", "a", "", "c"] {
        let params = json!({"taskId": task, "id": id, "url": "https://hooks.test/"});
        result_of(&gateway.rpc("CreateTaskPushNotificationConfig", &params).send().await);
    }
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let path = format!("/tasks/{task}/pushNotificationConfigs?pageSize=3&pageToken={token}");
        let page = result_of(&gateway.call("GET", &path).send().await);
        let ids = page["configs"].as_array().unwrap().iter().map(|config| config["id"].clone());
        seen.extend(ids.map(|id| id.as_str().unwrap().to_owned()));
        match page.get("nextPageToken") {
            Some(next) => next.as_str().unwrap().clone_into(&mut token),
            None => break,
        }
    }
    let mut expected = vec!["a".to_owned(), "b".to_owned(), "c".to_owned(), task.clone()];
    expected.sort();
    assert_eq!(seen, expected);
    // 0.3 may ask for the one without an id.
    let unnamed = gateway.rpc("tasks/pushNotificationConfig/get", &json!({"id": task})).send().await;
    assert_eq!(result_of(&unnamed)["pushNotificationConfig"]["id"], json!(task));
    let bad = gateway.call("GET", &format!("/tasks/{task}/pushNotificationConfigs?pageToken=a%2Fb"));
    let bad = bad.send().await.json();
    assert_eq!(bad["error"]["details"][1]["fieldViolations"][0]["field"], "pageToken", "{bad}");
    turn.complete().await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_send_registers_its_configuration_together_with_its_task() {
    let store = store();
    let mut gateway = Gateway::pushing(Arc::clone(&store), PushRules::default(), |_| {}).await;
    let ada = Principal::new("ada");
    for client in ProtocolClient::ALL {
        let field = match (client.version, client.dialect) {
            (ProtocolVersion::V1, _) => "taskPushNotificationConfig",
            (_, Dialect::Rpc) => "pushNotificationConfig",
            (_, Dialect::Rest) => "pushNotification",
        };
        let id = format!("m{:?}{:?}", client.version, client.dialect);
        let mut body = client.send_body(&client.message(&id, "go"), false);
        body["configuration"][field] = client.push_config(URL);
        body["metadata"] = json!({"shared": {"push": {"events": ["completed", "artifact"]}}});
        let sent = client.sent(&client.call(&gateway, Method::SendMessage, "", &body).send().await);
        let stored = store.get(&ada, &sent.id, &PushConfigId::parse("c").unwrap()).await.unwrap().unwrap();
        assert_eq!(stored.url, URL);
        assert_eq!(stored.token.unwrap().expose(), "planted-token");
        let words = [PushWord::State(TaskState::Completed), PushWord::Artifact];
        assert_eq!(stored.events, words.into_iter().collect::<PushEvents>(), "{}", client.name());
        let format = match client.version {
            ProtocolVersion::V1 => PushFormat::V1,
            ProtocolVersion::V03 => PushFormat::V03,
        };
        assert_eq!(stored.format, format);
        assert!(stored.view.tool_trace && !stored.view.extensions.is_empty());
        // From the first event on.
        let due = store.due(Timestamp(i64::MAX - 1), 10, Timestamp(i64::MAX)).await.unwrap();
        let cursors: Vec<_> = due.iter().map(|leased| (&leased.config.task, leased.cursor)).collect();
        assert!(cursors.contains(&(&sent.id, Seq::START)), "{cursors:?}");

        body["configuration"][field]["url"] = json!("https://inside.test/");
        let refused = client.call(&gateway, Method::SendMessage, "", &body).send().await;
        assert_eq!(client.reason(&refused), invalid(client));
        let text = refused.json().to_string();
        assert!(text.contains(&format!("configuration.{field}.url")), "{text}");
        gateway.turns.recv().await.unwrap().complete().await;
    }
    // What was refused started no turn.
    assert_eq!(gateway.agent.log().prompted.len(), ProtocolClient::ALL.len());
    gateway.stop().await;
}

#[tokio::test]
async fn a_refused_configuration_is_named_by_its_field_or_its_limit() {
    let limits = PushLimits { per_task: 1, per_principal: 2, in_all: 0 };
    let rules = PushRules { limits, max_secret_bytes: 20, ..PushRules::default() };
    let mut gateway = Gateway::pushing(store(), rules, |_| {}).await;
    let create = Method::CreateTaskPushNotificationConfig;
    let (task, turn) = gateway.working_task("m0").await;
    let (second, other_turn) = gateway.working_task("m1").await;
    let (third, last_turn) = gateway.working_task("m2").await;
    for client in ProtocolClient::ALL {
        let refused = |change: &dyn Fn(&mut Value)| {
            let mut params = client.push_params(create, &task, URL);
            let place = match (client.version, client.dialect) {
                (ProtocolVersion::V1, _) => "",
                (_, Dialect::Rpc) => "/pushNotificationConfig",
                (_, Dialect::Rest) => "/config/pushNotificationConfig",
            };
            change(params.pointer_mut(place).unwrap());
            (client.call(&gateway, create, &task, &params), place[..].replace('/', ".").replacen('.', "", 1))
        };
        for (field, value) in [
            ("url", json!("https://inside.test/")),
            ("token", json!("planted-token-too-long-for-this-gateway")),
            ("token", json!("planted\ntoken")),
            ("id", json!("a b")),
        ] {
            let (call, place) = refused(&|config| config[field] = value.clone());
            let answer = call.send().await;
            assert_eq!(client.reason(&answer), invalid(client), "{field} {}", client.name());
            let text = answer.json().to_string();
            let path = if place.is_empty() { field.to_owned() } else { format!("{place}.{field}") };
            assert!(text.contains(&format!("{path:?}")), "{path}: {text}");
            assert!(!text.contains("planted"), "{text}");
        }
    }
    let create_as = |task: &str, id: &str| {
        let params = json!({"taskId": task, "id": id, "url": "https://hooks.test/"});
        gateway.rpc("CreateTaskPushNotificationConfig", &params)
    };
    result_of(&create_as(&task, "one").send().await);
    result_of(&create_as(&task, "one").send().await);
    let limit = |answer: Answer| {
        let body = answer.json();
        let metadata = &body["error"]["data"][0]["metadata"];
        metadata["limit"].as_str().map_or_else(|| panic!("{body}"), str::to_owned)
    };
    assert_eq!(limit(create_as(&task, "two").send().await), "push_configs_per_task");
    result_of(&create_as(&second, "one").send().await);
    assert_eq!(limit(create_as(&third, "one").send().await), "push_configs_per_principal");
    let configuration = json!({"taskPushNotificationConfig": {"url": "https://hooks.test/"}});
    let message = crate::support::message("m3", "go");
    let send = json!({"message": message, "configuration": configuration});
    assert_eq!(limit(gateway.rpc("SendMessage", &send).send().await), "push_configs_per_principal");
    for turn in [turn, other_turn, last_turn] {
        turn.complete().await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn no_log_line_shows_a_secret_or_a_url() {
    let payloads = |config: &mut longshore_edge::EdgeConfig| {
        config.payload_log = PayloadLog { enabled: true, body_limit: 0 };
    };
    let mut gateway = Gateway::pushing(store(), PushRules::default(), payloads).await;
    let (task, turn) = gateway.working_task("m0").await;
    let lines = LogLines::begin();
    for client in ProtocolClient::ALL {
        for method in PUSH {
            call(client, &gateway, method, &task).send().await;
        }
        let create = Method::CreateTaskPushNotificationConfig;
        let refused = client.push_params(create, &task, "https://inside.test/planted");
        client.call(&gateway, create, &task, &refused).send().await;
    }
    let lines = lines.take();
    assert!(lines.iter().any(|line| line.contains("longshore_edge::payload")), "{lines:#?}");
    let shown: Vec<_> = lines.iter().filter(|line| line.contains("planted")).collect();
    assert!(shown.is_empty(), "{shown:#?}");
    turn.complete().await;
    gateway.stop().await;
}

#[tokio::test]
async fn the_card_says_whether_there_are_push_notifications() {
    let on = Gateway::pushing(store(), PushRules::default(), |_| {}).await;
    let off = Gateway::manual().await;
    for (gateway, expected) in [(&on, true), (&off, false)] {
        let card = gateway.call("GET", "/.well-known/agent-card.json").send().await.json();
        assert_eq!(card["capabilities"]["pushNotifications"], json!(expected));
    }
    for client in ProtocolClient::ALL {
        for method in PUSH {
            let answer = client.call(&off, method, "t", &json!({})).send().await;
            assert_eq!(client.reason(&answer), "PUSH_NOTIFICATION_NOT_SUPPORTED", "{method:?}");
        }
    }
    on.stop().await;
    off.stop().await;
}
