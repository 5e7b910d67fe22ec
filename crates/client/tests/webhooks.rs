//! Webhooks of tasks in the formats of both versions and bindings.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

use longshore_client::{Client, ErrorKind, PushAuthentication, PushConfig, Settings};
use longshore_testkit::stub_agent::{Reply, Request, StubAgent};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

/// An agent with one interface.
fn agent(
    binding: &'static str,
    version: &'static str,
    answer: impl Fn(&Request) -> Reply + Send + Sync + 'static,
) -> StubAgent {
    StubAgent::start(move |request, url| {
        if request.target.ends_with("agent-card.json") {
            let mut card = StubAgent::card(url);
            card["supportedInterfaces"] =
                json!([{"url": url, "protocolBinding": binding, "protocolVersion": version}]);
            return Reply::json(&card);
        }
        answer(request)
    })
}

fn webhook() -> PushConfig {
    PushConfig {
        token: Some("t0ken".into()),
        authentication: Some(PushAuthentication {
            scheme: "Bearer".to_owned(),
            credentials: Some("s3cret".into()),
        }),
        ..PushConfig::new("t/1", "https://hook.example/")
    }
}

/// The webhook in the format that an agent returns.
fn stored(version: &str, binding: &str) -> Value {
    let new = json!({"scheme": "Bearer", "credentials": "s3cret"});
    let old = json!({"schemes": ["Bearer"], "credentials": "s3cret"});
    let config = |authentication| json!({"id": "p", "url": "https://hook.example/", "token": "t0ken", "authentication": authentication});
    match (version, binding) {
        ("1.0", _) => {
            let mut config = config(new);
            config["taskId"] = "t/1".into();
            config
        }
        (_, "JSONRPC") => json!({"taskId": "t/1", "pushNotificationConfig": config(old)}),
        _ => {
            let mut config = config(old);
            config.as_object_mut().unwrap().remove("id");
            json!({"name": "tasks/t/1/pushNotificationConfigs/p", "pushNotificationConfig": config})
        }
    }
}

/// The relevant part of a request: the method and the parameters, or the verb, the path and the body.
fn asked(request: &Request) -> String {
    match request.rpc() {
        "" if request.body.is_null() => format!("{} {}", request.method, request.target),
        "" => format!("{} {} {}", request.method, request.target, request.body),
        method => format!("{method} {}", request.body["params"]),
    }
}

#[tokio::test]
async fn webhooks_are_created_read_listed_and_removed_in_every_format() {
    let one = r#""url":"https://hook.example/","token":"t0ken","authentication":"#;
    let new = format!(r#"{{{one}{{"scheme":"Bearer","credentials":"s3cret"}},"taskId":"t/1"}}"#);
    let old = format!(r#"{{{one}{{"schemes":["Bearer"],"credentials":"s3cret"}}}}"#);
    let rest_of_old = old.split_once(',').unwrap().1;
    let [rpc, rest] = ["JSONRPC", "HTTP+JSON"];
    let cases: [(&str, &'static str, [String; 4]); 4] = [
        (
            rpc,
            "1.0",
            [
                format!("CreateTaskPushNotificationConfig {new}"),
                r#"GetTaskPushNotificationConfig {"taskId":"t/1","id":"p"}"#.to_owned(),
                r#"ListTaskPushNotificationConfigs {"taskId":"t/1"}"#.to_owned(),
                r#"DeleteTaskPushNotificationConfig {"taskId":"t/1","id":"p"}"#.to_owned(),
            ],
        ),
        (
            rest,
            "1.0",
            [
                format!("POST /tasks/t%2F1/pushNotificationConfigs {new}"),
                "GET /tasks/t%2F1/pushNotificationConfigs/p".to_owned(),
                "GET /tasks/t%2F1/pushNotificationConfigs".to_owned(),
                "DELETE /tasks/t%2F1/pushNotificationConfigs/p".to_owned(),
            ],
        ),
        (
            rpc,
            "0.3",
            [
                format!(
                    r#"tasks/pushNotificationConfig/set {{"taskId":"t/1","pushNotificationConfig":{old}}}"#
                ),
                r#"tasks/pushNotificationConfig/get {"id":"t/1","pushNotificationConfigId":"p"}"#.to_owned(),
                r#"tasks/pushNotificationConfig/list {"id":"t/1"}"#.to_owned(),
                r#"tasks/pushNotificationConfig/delete {"id":"t/1","pushNotificationConfigId":"p"}"#
                    .to_owned(),
            ],
        ),
        (
            rest,
            "0.3",
            [
                format!(
                    r#"POST /v1/tasks/t%2F1/pushNotificationConfigs {{"name":"tasks/t/1/pushNotificationConfigs/ID","pushNotificationConfig":{{"url":"https://hook.example/","id":"ID",{rest_of_old}}}"#
                ),
                "GET /v1/tasks/t%2F1/pushNotificationConfigs/p".to_owned(),
                "GET /v1/tasks/t%2F1/pushNotificationConfigs".to_owned(),
                "DELETE /v1/tasks/t%2F1/pushNotificationConfigs/p".to_owned(),
            ],
        ),
    ];
    for (binding, version, expected) in cases {
        let binding = if binding == rpc { "JSONRPC" } else { "HTTP+JSON" };
        let stub = agent(binding, version, move |request| {
            let config = stored(version, binding);
            let wrap =
                |value: &Value| if binding == "JSONRPC" { Reply::result(value) } else { Reply::json(value) };
            let asked = asked(request).to_ascii_lowercase();
            if asked.contains("delete") {
                return if binding == "JSONRPC" {
                    wrap(&Value::Null)
                } else {
                    Reply::new(204, "text/plain", "")
                };
            }
            let is_list = asked.contains("list") || asked.ends_with("configs");
            match (is_list, version, binding) {
                (false, ..) => wrap(&config),
                (true, "0.3", "JSONRPC") => wrap(&json!([config])),
                (true, ..) => wrap(&json!({"configs": [config]})),
            }
        });
        let client = Client::connect(&stub.url(), Settings::default()).await.unwrap();
        let created = client.create_push(&webhook()).await.unwrap();
        let read = client.push("t/1", "p").await.unwrap();
        let listed = client.pushes("t/1").await.unwrap();
        client.delete_push("t/1", "p").await.unwrap();
        for config in [&created, &read, &listed[0]] {
            assert_eq!((config.task_id.as_str(), config.id.as_str()), ("t/1", "p"), "{binding} {version}");
            assert_eq!(config.url, "https://hook.example/");
            assert_eq!(config.token.as_ref().unwrap().expose_secret(), "t0ken");
            let PushAuthentication { scheme, credentials } = config.authentication.as_ref().unwrap();
            assert_eq!(
                (scheme.as_str(), credentials.as_ref().unwrap().expose_secret()),
                ("Bearer", "s3cret")
            );
            assert!(!format!("{config:?}").contains("s3cret"), "{config:?}");
        }
        let requests = stub.requests();
        // If the client chose the id, it is random, so replace it.
        let chosen = requests[1].body["pushNotificationConfig"]["id"].as_str().unwrap_or("ID");
        let found: Vec<_> =
            requests[1..].iter().map(|request| asked(request).replace(chosen, "ID")).collect();
        assert_eq!(found, expected, "{binding} {version}");
    }
}

/// The Python SDK of 0.3 accepts only its own format, and the JavaScript SDK only that of the specification.
#[tokio::test]
async fn a_webhook_that_is_refused_over_rest_of_0_3_is_sent_in_the_other_form() {
    let stub = agent("HTTP+JSON", "0.3", |request| {
        if request.body["config"].is_object() {
            Reply::json(&stored("0.3", "HTTP+JSON"))
        } else {
            Reply::new(400, "application/json", r#"{"message": "no field named name"}"#)
        }
    });
    let client = Client::connect(&stub.url(), Settings::default()).await.unwrap();
    assert_eq!(client.create_push(&webhook()).await.unwrap().id, "p");
}

#[tokio::test]
async fn an_agent_without_webhooks_says_so() {
    let stub = agent("JSONRPC", "1.0", |_| Reply::error(-32003, "Push notifications are not supported."));
    let client = Client::connect(&stub.url(), Settings::default()).await.unwrap();
    assert_eq!(client.pushes("t").await.unwrap_err().kind(), ErrorKind::Unsupported);
}
