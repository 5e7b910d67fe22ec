//! Requests that change nothing: shapes, pages, filters and refusals.

use serde_json::{Value, json};

use super::shapes::check;
use super::*;

/// A fake with a session of one turn, and the id of the session.
async fn with_a_turn() -> (FakeOpenCode, String) {
    let fake = FakeOpenCode::start();
    let diff = json!({"file": "a.txt", "patch": "+a\n", "additions": 1, "deletions": 0, "status": "added"});
    fake.queue(Turn::new().changing(diff).text("done", 1));
    let session = post(&fake, "/session", json!({"title": "Harbour 100%"})).await.1;
    check("POST /session", &session);
    let id = session["id"].as_str().expect("an id").to_owned();
    let body = json!({"parts": [{"type": "text", "text": "go"}]});
    let answer = post(&fake, &format!("/session/{id}/message"), body).await;
    check("POST /session/{sessionID}/message", &answer.1);
    (fake, id)
}

#[tokio::test]
async fn read_requests_are_answered_as_documented() {
    let (fake, id) = with_a_turn().await;
    let todos = json!([{"content": "paint", "status": "pending", "priority": "low"}]);
    fake.emit("todo.updated", json!({"sessionID": id, "todos": todos})).await;
    post(&fake, "/session", json!({"title": "child", "parentID": id})).await;
    let user = fake.messages(&id)[0]["info"]["id"].as_str().expect("an id").to_owned();
    for (call, path) in [
        ("GET /session/{sessionID}", String::new()),
        ("GET /session/{sessionID}/children", "/children".to_owned()),
        ("GET /session/{sessionID}/todo", "/todo".to_owned()),
        ("GET /session/{sessionID}/diff", format!("/diff?messageID={user}")),
        ("GET /session/{sessionID}/message", "/message?limit=9".to_owned()),
        ("GET /session/{sessionID}/message/{messageID}", format!("/message/{user}")),
    ] {
        let (status, answer) = get(&fake, &format!("/session/{id}{path}")).await;
        assert_eq!(status, 200, "{path}");
        check(call, &answer);
        assert!(answer.as_array().is_none_or(|items| !items.is_empty()), "{path} is empty");
    }
    for path in ["provider", "command", "agent", "project", "project/current", "config/providers"] {
        let answer = get(&fake, &format!("/{path}")).await.1;
        check(&format!("GET /{path}"), &answer);
        assert_eq!(answer.to_string().contains(PROVIDER_KEY), path.contains("provider"), "{path}");
        let has_prompts = ["command", "agent", "project", "project/current"].contains(&path);
        assert_eq!(answer.to_string().contains(PRIVATE_PROMPT), has_prompts, "{path}");
    }
}

#[tokio::test]
async fn unknown_sessions_and_malformed_ids_are_refused_as_in_opencode() {
    let (fake, id) = with_a_turn().await;
    let name = |answer: &Value| answer["name"].as_str().or(answer["_tag"].as_str()).map(str::to_owned);
    for (path, status, expected) in [
        ("/session/ses_no", 404, "NotFoundError"),
        ("/session/ses_no/children", 404, "NotFoundError"),
        ("/session/ses_no/todo", 404, "NotFoundError"),
        ("/session/ses_no/message?limit=1", 404, "NotFoundError"),
        ("/session/ses_no/diff?messageID=msg_x", 500, "UnknownError"),
        ("/session/no", 500, "UnknownError"),
        ("/session/SES/message/msg_no", 404, "NotFoundError"),
        ("/session/SES/message/no", 400, "BadRequest"),
        ("/session/SES/diff?messageID=no", 400, "BadRequest"),
        ("/session/SES/message?limit=-1", 400, "BadRequest"),
        ("/session/SES/message?limit=x", 400, "BadRequest"),
        ("/session/SES/message?before=zzz&limit=1", 400, "BadRequest"),
        ("/session?roots=True", 400, "BadRequest"),
        ("/session?limit=1.5", 500, "UnknownError"),
    ] {
        let (answered, body) = get(&fake, &path.replace("SES", &id)).await;
        assert_eq!((answered, name(&body).as_deref()), (status, Some(expected)), "{path}: {body}");
    }
    assert_eq!(get(&fake, "/session/ses_no/diff").await, (200, json!([])), "without a message it is empty");
    let nowhere = get(&fake, "/session?workspace=wrk_no").await;
    assert_eq!(nowhere, (500, json!("Workspace not found: wrk_no")));
}

#[tokio::test]
async fn a_cursor_needs_a_limit_and_names_the_page_before() {
    let (fake, id) = with_a_turn().await;
    let url = format!("{}/session/{id}/message?limit=1", fake.url());
    let response = client().get(&url).send().await.expect("the fake answers");
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let cursor = header("x-next-cursor").expect("there is an older message");
    assert_eq!(header("link"), Some(format!("<{url}&before={cursor}>; rel=\"next\"")));
    let older = get(&fake, &format!("/session/{id}/message?limit=1&before={cursor}")).await.1;
    assert_eq!(older, json!([fake.messages(&id)[0]]));
    assert_eq!(get(&fake, &format!("/session/{id}/message?before={cursor}")).await.0, 400);
    let all = get(&fake, &format!("/session/{id}/message?limit=0")).await.1;
    assert_eq!(all, json!(fake.messages(&id)));
}

#[tokio::test]
async fn sessions_are_listed_by_directory_title_and_time() {
    let fake = FakeOpenCode::start();
    std::fs::create_dir(fake.workspace().join("sub")).expect("a directory can be made");
    let (root, sub) = (fake.directory().to_owned(), format!("{}/sub", fake.directory()));
    let session = |id: &str, directory: &str, title: &str, updated: u64, parent: Value| {
        json!({
            "id": id, "slug": "s", "projectID": "9b4c0d", "directory": directory, "title": title, "version": "1",
            "path": if directory == sub { "sub" } else { "" }, "parentID": parent,
            "time": {"created": 1, "updated": updated},
        })
    };
    for info in [
        session("ses_a", &root, "Paint 100%", 30, Value::Null),
        session("ses_b", &sub, "row_boat", 20, Value::Null),
        session("ses_c", &root, "child", 10, json!("ses_a")),
    ] {
        fake.add_session_info(info);
    }
    fake.add_session("ses_other", "/somewhere/else");
    for (query, expected) in [
        ("", "a b c"),
        ("?directory=ROOT", "a c"),
        ("?directory=ROOT&scope=project", "a b c"),
        ("?directory=SUB", "b"),
        ("?path=sub", "b"),
        ("?roots=true", "a b"),
        ("?roots=false", "a b c"),
        ("?limit=1", "a"),
        ("?limit=0", ""),
        ("?limit=-1", "a b c"),
        ("?limit=x", "a b c"),
        ("?start=20", "a b"),
        ("?start=x", "a b c"),
        ("?search=PAINT", "a"),
        ("?search=a%25t", "a b"),
        ("?search=c_i", "c"),
        ("?search=nothing", ""),
    ] {
        let path = format!("/session{}", query.replace("ROOT", &root).replace("SUB", &sub));
        let listed = get(&fake, &path).await.1;
        let ids = listed.as_array().expect("a list").iter();
        let ids: Vec<&str> = ids.filter_map(|info| info["id"].as_str()?.strip_prefix("ses_")).collect();
        assert_eq!(ids.join(" "), expected, "{query}");
    }
}

#[tokio::test]
async fn deleting_a_session_deletes_its_children() {
    let fake = FakeOpenCode::start();
    let id = post(&fake, "/session", json!({})).await.1["id"].as_str().expect("an id").to_owned();
    let child = post(&fake, "/session", json!({"parentID": id})).await.1["id"].as_str().map(str::to_owned);
    let child = child.expect("an id");
    let gone = client().delete(format!("{}/session/{id}", fake.url())).send().await.expect("an answer");
    assert_eq!(gone.status(), 200);
    assert_eq!(get(&fake, &format!("/session/{child}")).await.0, 404);
}
