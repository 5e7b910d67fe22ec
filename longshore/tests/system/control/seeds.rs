//! The two examples of seed 000 that the real OpenCode refuses in tests (it has no network and no such adapter). They
//! are sent as written, to a fake OpenCode that supports them.

#[path = "../../e2e/seeds/document.rs"]
#[expect(dead_code, reason = "most of what is read there is for the examples that the real OpenCode plays")]
mod document;

use longshore_testkit::raw::RawClient;
use longshore_wire::methods::Method;
use longshore_wire::opencode;
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::fixture::{ADA_TOKEN, Fixture, call, notify};

/// The body of the only example that calls this method.
fn example(method: &str) -> String {
    let mut found = document::examples(&document::Seed::Guide.lines());
    found.retain(|example| example.calls == method);
    let [example] = found.as_slice() else { panic!("one example of {method}: {found:#?}") };
    example.json().to_owned()
}

/// Sends the body as the `curl` of the example does, without a version or an extension.
async fn curl(fixture: &Fixture, body: &str) -> Value {
    let http = reqwest::Client::builder().no_proxy().build().expect("a client without options");
    let request = http.post(format!("{}/", fixture.url)).header("content-type", "application/json");
    let request = request.header("Authorization", format!("Bearer {ADA_TOKEN}")).body(body.to_owned());
    let answer = request.send().await.expect("the gateway answers");
    assert_eq!(answer.status().as_u16(), 200);
    serde_json::from_str(&answer.text().await.expect("an answer arrives whole")).expect("an answer is JSON")
}

fn parts(body: &str) -> (&'static Method, Value) {
    let body: Value = serde_json::from_str(body).expect("the example is JSON");
    let method = opencode::method(body["method"].as_str().unwrap_or_default()).expect("a row of the table");
    (method, body["params"].clone())
}

fn message_id(body: &str) -> Value {
    serde_json::from_str::<Value>(body).expect("the example is JSON")["id"].take()
}

#[tokio::test]
async fn a_session_is_shared_as_in_the_guide() {
    let fixture = Fixture::start().await;
    fixture.session("ses_a");
    let body = example("opencode.sessions.share").replace("<session_id>", "ses_a");
    let item = json!({
        "id": "ses_a", "title": "About ses_a", "project_id": "9b4c0d", "directory": fixture.root(), "version": "1.18.33",
        "share_url": "https://opncd.ai/share/a_ses",
    });
    let answer = curl(&fixture, &body).await;
    assert_eq!(answer, json!({"jsonrpc": "2.0", "id": message_id(&body), "result": {"item": item}}));
    let (method, params) = parts(&body);
    for version in ProtocolVersion::ALL {
        assert_eq!(
            *call(&fixture.ada, version, method, &params).await.result(),
            json!({"item": item}),
            "{version:?}"
        );
        notify(&fixture.ada, version, method, &params).await;
    }
    fixture.stop().await;
}

#[tokio::test]
async fn a_git_workspace_is_created_as_in_the_guide() {
    let body = example("opencode.workspaces.create");
    let opencode = |fixture: &Fixture| RawClient::new(fixture.fake.url(), "an unused token");
    for (is_curl, version) in
        [(true, ProtocolVersion::V03), (false, ProtocolVersion::V1), (false, ProtocolVersion::V03)]
    {
        let fixture = Fixture::start().await;
        fixture.fake.make_repository().await;
        let (method, params) = parts(&body);
        // The real OpenCode answers like this.
        let refused = call(&fixture.ada, version, method, &params).await;
        assert_eq!(refused.body["error"]["code"], -32003, "{}", refused.body);
        assert!(
            refused.body["error"].to_string().contains("Unknown workspace adapter: git"),
            "{}",
            refused.body
        );
        fixture.fake.project(|project| project.adapters.push("git"));
        let result = if is_curl {
            let answer = curl(&fixture, &body).await;
            assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &message_id(&body)), "{answer}");
            answer["result"].clone()
        } else {
            call(&fixture.ada, version, method, &params).await.result().clone()
        };
        let listed = opencode(&fixture).rest("GET", "/experimental/workspace", None).await.body;
        let made = &listed[0];
        assert_eq!(
            (&made["id"], &made["type"], &made["branch"]),
            (&json!("wrk-api"), &json!("git"), &json!("main"))
        );
        let mut item = json!({"id": "wrk-api", "type": "git", "name": made["name"], "branch": "main"});
        if version == ProtocolVersion::V03 {
            item["directory"] = made["directory"].clone();
            item["projectID"] = "9b4c0d".into();
            item["timeUsed"] = made["timeUsed"].clone();
        }
        assert_eq!(result, json!({"item": item}), "{version:?}");
        let posted = fixture.fake.log().into_iter().rfind(|request| request.method == "POST");
        let posted = posted.expect("OpenCode received a request").body;
        assert_eq!(posted, json!({"type": "git", "id": "wrk-api", "branch": "main", "extra": null}));
        fixture.stop().await;
    }
}
