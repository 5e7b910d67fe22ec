//! Methods that read sessions, compared with what OpenCode itself reports.

use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use super::other_directories;
use crate::client::{PATIENCE, message};
use crate::control::caller::Kind;
use crate::control::fixture::{Fixture, OwnedSession};

pub(super) const CHILDREN: &str = "opencode.sessions.children";
const DIFF: &str = "opencode.sessions.diff";
pub(super) const GET: &str = "opencode.sessions.get";
pub(super) const LIST: &str = "opencode.sessions.list";
const MESSAGE: &str = "opencode.sessions.messages.get";
pub(super) const MESSAGES: &str = "opencode.sessions.messages.list";
pub(super) const STATUS: &str = "opencode.sessions.status";
pub(super) const PLANNED: &str = "opencode.sessions.todo";

/// No session of these tests has more pages.
const MAX_PAGES: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_reported_as_opencode_has_them() {
    read_sessions(ProtocolVersion::V1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_sessions_are_reported_as_opencode_has_them_over_0_3() {
    read_sessions(ProtocolVersion::V03).await;
}

async fn read_sessions(version: ProtocolVersion) {
    let fixture = Fixture::start(&[version], &[]).await;
    the_shell_is_off(&fixture).await;
    let talk = pages_lead_from_the_end_to_the_beginning(&fixture).await;
    o04_todos_have_an_id(&fixture, &talk).await;
    o05_a_diff_has_its_patch_and_status(&fixture, &talk).await;
    let child = child_sessions_belong_to_the_owner_of_their_root(&fixture).await;
    let below = other_directories::o08_a_session_is_read_in_its_own_directory(&fixture).await;
    o02_lists_are_limited_and_filtered_as_in_opencode(&fixture, &[&talk.session, &child], &below).await;
    running_turns_are_shown_to_their_owner(&fixture, &talk).await;
    s11_only_a_change_claims_an_unowned_session(&fixture).await;
}

pub(super) fn of(session: &str) -> Value {
    json!({ "session_id": session })
}

pub(super) fn items(result: &Value) -> &[Value] {
    result["items"].as_array().unwrap_or_else(|| panic!("no list: {result:#}"))
}

/// The ids of sessions, in their order.
fn ids(sessions: &[Value]) -> Vec<&str> {
    sessions.iter().filter_map(|session| session["id"].as_str()).collect()
}

async fn the_shell_is_off(fixture: &Fixture) {
    let params = json!({"session_id": "ses_any", "request": {"agent": "build", "command": "true"}});
    for ada in fixture.ada() {
        let refused = ada.refused("opencode.sessions.shell", params.clone(), Kind::DISABLED).await;
        assert_eq!(refused.detail("toggle"), "A2A_ENABLE_SESSION_SHELL", "{:#}", refused.body);
        assert_eq!(refused.detail("method"), "opencode.sessions.shell", "{:#}", refused.body);
        assert!(!ada.served("opencode.sessions.").await.iter().any(|name| name.ends_with("shell")));
    }
}

async fn pages_lead_from_the_end_to_the_beginning(fixture: &Fixture) -> OwnedSession {
    let talk = fixture.session("scn:text text=\"  One,\\nwith a tab\\t\" (the first)").await;
    fixture.say(&talk, "scn:reason rn=2 n=2 text=\"Two.\" (the second)").await;
    fixture
        .say(&talk, "scn:bash cmd=\"echo ahoy\" pre=\"Before.\" scn:text text=\"Three.\" (the third)")
        .await;
    let other = fixture.session("scn:text n=1 (somewhere else)").await;
    let (foreign, _) = fixture.last_messages(&other.session).await;
    let upstream = fixture.harness.opencode.messages(&talk.session).await;
    assert_eq!(upstream.len(), 7, "three prompts, one of them with two answers: {upstream:#?}");
    for ada in fixture.ada() {
        for (limit, size) in [(json!(1), 1), (json!(2), 2), (json!("3"), 3), (json!(7), 7), (json!(100), 7)] {
            let (mut found, mut cursor, mut pages) = (Vec::new(), Value::Null, 0);
            loop {
                let mut params = json!({"session_id": talk.session, "limit": limit});
                if !cursor.is_null() {
                    params["before"] = cursor;
                }
                let page = ada.result(MESSAGES, params).await;
                assert!(items(&page).len() <= size, "a page of {limit}: {page:#}");
                found.splice(0..0, items(&page).iter().cloned());
                cursor = page["next_cursor"].clone();
                pages += 1;
                assert!(pages <= MAX_PAGES, "pages of {limit} have no end");
                if cursor.is_null() {
                    break;
                }
            }
            assert!(pages >= 7_usize.div_ceil(size), "pages of {limit}");
            assert_eq!(found.len(), upstream.len(), "pages of {limit}: {found:#?}");
            for (reported, upstream) in found.iter().zip(&upstream) {
                ada.assert_is_message(reported, upstream);
            }
        }
        for upstream in &upstream {
            let params = json!({"session_id": talk.session, "message_id": upstream["info"]["id"]});
            ada.assert_is_message(&ada.result(MESSAGE, params).await["item"], upstream);
        }
        for bad in ["zzz", "eyJpZCI6MX0"] {
            let params = json!({"session_id": talk.session, "before": bad});
            ada.invalid(MESSAGES, params, "before").await;
        }
        for unknown in ["msg_000000000000000000000000", foreign.as_str()] {
            let params = json!({"session_id": talk.session, "message_id": unknown});
            ada.invalid(MESSAGE, params, "message_id").await;
        }
        ada.assert_is_session(
            &ada.result(GET, of(&talk.session)).await["item"],
            &fixture.upstream(&talk.session).await,
        );
    }
    talk
}

/// OpenCode has no ids for todos any more, so the gateway numbers them.
async fn o04_todos_have_an_id(fixture: &Fixture, talk: &OwnedSession) {
    let own =
        fixture.session("scn:todo items=\"Cast off|Set sail|Make port\" done=1 scn:text n=1 (o04)").await;
    let upstream = fixture.harness.opencode.get(&format!("/session/{}/todo", own.session)).await;
    let mut expected = upstream.as_array().expect("a list").clone();
    assert_eq!(expected.len(), 3, "{upstream:#}");
    for (position, todo) in (1..).zip(&mut expected) {
        assert!(todo.get("id").is_none(), "OpenCode has ids again: {todo:#}");
        todo["id"] = position.to_string().into();
    }
    for ada in fixture.ada() {
        let reported = ada.result(PLANNED, of(&own.session)).await;
        assert_eq!(reported, json!({ "items": expected }), "o04 {}", ada.version.as_str());
        assert_eq!(items(&reported)[1]["status"], "in_progress", "{reported:#}");
        assert_eq!(ada.result(PLANNED, of(&talk.session)).await, json!({"items": []}));
    }
}

/// OpenCode reports patches, and no longer the text before and after.
async fn o05_a_diff_has_its_patch_and_status(fixture: &Fixture, talk: &OwnedSession) {
    let own = fixture.session("scn:write path=hold.txt content=\"rope\\ntar\\n\" scn:text n=1 (o05)").await;
    let (first, _) = fixture.last_messages(&own.session).await;
    fixture.say(&own, "scn:edit path=hold.txt old=tar new=sail scn:text n=1 (o05, again)").await;
    let (second, answer) = fixture.last_messages(&own.session).await;
    let mut of_all = Vec::new();
    for (user, status) in [(&first, "added"), (&second, "modified")] {
        let upstream = changes(fixture, &own, user).await;
        assert_eq!(upstream.len(), 1, "{upstream:#?}");
        assert_eq!((&upstream[0]["file"], &upstream[0]["status"]), (&json!("hold.txt"), &json!(status)));
        for ada in fixture.ada() {
            let reported = ada.result(DIFF, json!({"session_id": own.session, "message_id": user})).await;
            assert_eq!(reported, json!({ "items": upstream }), "o05 {status} {}", ada.version.as_str());
            assert!(
                items(&reported)[0]["patch"].as_str().is_some_and(|patch| patch.contains("@@")),
                "{reported:#}"
            );
        }
        of_all.extend(upstream.into_iter().map(|mut change| {
            change["message_id"] = user.as_str().into();
            change
        }));
    }
    for ada in fixture.ada() {
        // OpenCode itself returns nothing without a message id.
        assert_eq!(ada.result(DIFF, of(&own.session)).await, json!({ "items": of_all }), "o05 all");
        assert_eq!(ada.result(DIFF, of(&talk.session)).await, json!({"items": []}), "o05 nothing");
        for without in [answer.as_str(), "msg_000000000000000000000000"] {
            let reported = ada.result(DIFF, json!({"session_id": own.session, "message_id": without})).await;
            assert_eq!(reported, json!({"items": []}), "o05 {without}");
        }
    }
}

/// The changes of a prompt that OpenCode reports, once it has computed them.
async fn changes(fixture: &Fixture, own: &OwnedSession, user: &str) -> Vec<Value> {
    let path = format!("/session/{}/diff?messageID={user}", own.session);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let found = fixture.harness.opencode.get(&path).await;
        let of_message = format!("/session/{}/message/{user}", own.session);
        let kept = fixture.harness.opencode.get(&of_message).await;
        let is_kept = kept.pointer("/info/summary/diffs/0").is_some();
        match found.as_array() {
            Some(found) if !found.is_empty() && is_kept => return found.clone(),
            _ => assert!(tokio::time::Instant::now() < deadline, "no diff of {user}: {found:#} {kept:#}"),
        }
    }
}

async fn child_sessions_belong_to_the_owner_of_their_root(fixture: &Fixture) -> String {
    let script = "scn:task desc=\"an errand\" prompt=\"scn:text text=\\\"Rope.\\\"\" scn:text n=1 (children)";
    let own = fixture.session(script).await;
    let upstream = fixture.harness.opencode.get(&format!("/session/{}/children", own.session)).await;
    let [child] = upstream.as_array().expect("a list").as_slice() else { panic!("one child: {upstream:#}") };
    let id = child["id"].as_str().expect("a session has an id");
    for ada in fixture.ada() {
        let reported = ada.result(CHILDREN, of(&own.session)).await;
        assert_eq!(items(&reported).len(), 1, "{reported:#}");
        ada.assert_is_session(&items(&reported)[0], child);
        ada.assert_is_session(&ada.result(GET, of(id)).await["item"], child);
        assert_eq!(ada.result(CHILDREN, of(id)).await, json!({"items": []}));
        let said = ada.result(MESSAGES, of(id)).await;
        for (reported, upstream) in items(&said).iter().zip(fixture.harness.opencode.messages(id).await) {
            ada.assert_is_message(reported, &upstream);
        }
        // A session of a sub-agent cannot be prompted.
        let request = json!({"parts": [{"type": "text", "text": "scn:text n=1"}]});
        let params = json!({"session_id": id, "request": request});
        ada.invalid("opencode.sessions.prompt_async", params, "session_id").await;
    }
    for bob in fixture.bob() {
        for method in [GET, CHILDREN, MESSAGES, PLANNED, DIFF] {
            bob.refused(method, of(id), Kind::FORBIDDEN).await;
        }
    }
    id.to_owned()
}

/// OpenCode understands `true` only. (The Python peer sends `True`.)
async fn o02_lists_are_limited_and_filtered_as_in_opencode(
    fixture: &Fixture,
    known: &[&str],
    below: &OwnedSession,
) {
    let bobs = fixture.session_of_bob("scn:text n=1 (of bob)").await;
    let opencode = &fixture.harness.opencode;
    let root = fixture.harness.gateway.workspace().canonicalize().expect("the workspace exists");
    let here = format!("/session?directory={}&limit=100", root.display());
    let without_bobs = |found: Value| {
        let mut found = found.as_array().cloned().unwrap_or_default();
        found.retain(|session| session["id"] != bobs.session.as_str());
        found
    };
    let all = without_bobs(opencode.get(&here).await);
    let middle = &all[all.len() / 2];
    let title = middle["title"].as_str().expect("a title");
    let word = title.split(['%', '_', ' ']).max_by_key(|word| word.len()).expect("a title has words");
    let filters = [
        (json!({}), String::new(), true),
        (json!({"roots": true}), "&roots=true".to_owned(), false),
        (json!({"roots": "yes"}), "&roots=true".to_owned(), false),
        (json!({"roots": false}), "&roots=false".to_owned(), true),
        (json!({"start": middle["time"]["updated"]}), format!("&start={}", middle["time"]["updated"]), true),
        (json!({ "search": word }), format!("&search={word}"), true),
        (json!({"search": "no title has this"}), "&search=no%20title%20has%20this".to_owned(), true),
    ];
    let ships = fixture.upstream(&below.session).await["directory"].as_str().expect("a directory").to_owned();
    for ada in fixture.ada() {
        for (params, query, has_children) in &filters {
            let name = format!("o02 {params} {}", ada.version.as_str());
            let mut wanted = params.clone();
            wanted["limit"] = 100.into();
            // OpenCode may still update a session after its turn, and so change the order.
            let deadline = tokio::time::Instant::now() + PATIENCE;
            let (upstream, reported) = loop {
                let before = without_bobs(opencode.get(&format!("{here}{query}")).await);
                let reported = ada.result(LIST, wanted.clone()).await;
                let after = without_bobs(opencode.get(&format!("{here}{query}")).await);
                if before == after {
                    break (after, reported);
                }
                assert!(tokio::time::Instant::now() < deadline, "{name}: OpenCode never rests");
            };
            assert_eq!(ids(items(&reported)), ids(&upstream), "{name}");
            for (reported, upstream) in items(&reported).iter().zip(&upstream) {
                ada.assert_is_session(reported, upstream);
            }
            if params.get("roots").is_some() || params.as_object().is_some_and(serde_json::Map::is_empty) {
                let found = upstream.iter().any(|session| session.get("parentID").is_some());
                assert_eq!(found, *has_children, "{name}: {upstream:#?}");
            }
            // The limit applies to the caller's own sessions.
            let mut wanted = params.clone();
            wanted["limit"] = 2.into();
            let reported = ada.result(LIST, wanted).await;
            assert_eq!(ids(items(&reported)), ids(&upstream[..upstream.len().min(2)]), "{name}");
        }
        let reported = ada.result(LIST, json!({})).await;
        for known in known {
            assert!(ids(items(&reported)).contains(known), "{known} is not in {reported:#}");
        }
        for position in
            [json!({ "directory": ships }), json!({"metadata": {"opencode": {"directory": ships}}})]
        {
            let reported = ada.result(LIST, position).await;
            assert_eq!(ids(items(&reported)), [below.session.as_str()], "o02: those of another directory");
        }
    }
    for bob in fixture.bob() {
        let reported = bob.result(LIST, json!({})).await;
        assert_eq!(ids(items(&reported)), [bobs.session.as_str()], "bob sees {reported:#}");
    }
}

/// Idle sessions are not listed, as in OpenCode.
async fn running_turns_are_shown_to_their_owner(fixture: &Fixture, talk: &OwnedSession) {
    fixture.idle().await;
    for ada in fixture.ada() {
        assert_eq!(ada.result(STATUS, json!({})).await, json!({"items": []}));
    }
    let running = fixture.running(talk).await;
    for (ada, bob) in fixture.ada().into_iter().zip(fixture.bob()) {
        let reported = ada.result(STATUS, json!({})).await;
        assert_eq!(reported, json!({"items": [{"session_id": talk.session, "type": "busy"}]}));
        assert_eq!(bob.result(STATUS, json!({})).await, json!({"items": []}), "bob sees what ada does");
        // S1: an id that contains a path is refused.
        for trick in ["/abort?", "/abort#", "/../../session", "%2fabort", "?x="] {
            let session = format!("{}{trick}", talk.session);
            for method in [GET, MESSAGES, CHILDREN, PLANNED, DIFF, "opencode.sessions.unrevert"] {
                ada.invalid(method, of(&session), "session_id").await;
            }
        }
    }
    assert_eq!(fixture.harness.opencode.busy().await, [talk.session.as_str()], "a trick has ended the turn");
    fixture.harness.client.cancel(&running).await.unwrap_or_else(|error| panic!("{}", error.body));
    fixture.idle().await;

    // A turn that waits to retry its provider.
    let prompt = message("scn:http status=503 times=1 retry_after_ms=4000 (status)");
    let submitted = fixture.harness.client.submit(&prompt).await;
    let waiting = submitted["id"].as_str().expect("a task has an id");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let ada = fixture.ada().remove(0);
    let waits = loop {
        let reported = ada.result(STATUS, json!({})).await;
        if items(&reported).first().is_some_and(|reported| reported["type"] == "retry") {
            break reported;
        }
        assert!(tokio::time::Instant::now() < deadline, "it never waits: {reported:#}");
    };
    let upstream = fixture.harness.opencode.get("/session/status").await;
    let (id, status) = upstream.as_object().and_then(|all| all.iter().next()).expect("one waits");
    let mut expected = status.clone();
    expected["session_id"] = id.as_str().into();
    assert_eq!(waits, json!({"items": [expected]}), "a provider is to be asked again");
    fixture.harness.client.resume(waiting, 0).await.rest().await;
    fixture.idle().await;
    assert_eq!(ada.result(STATUS, json!({})).await, json!({"items": []}));
}

/// Reading an unowned session does not claim it. (The Python peer gives it to the first caller.)
async fn s11_only_a_change_claims_an_unowned_session(fixture: &Fixture) {
    for ((ada, bob), eve) in fixture.ada().into_iter().zip(fixture.bob()).zip(fixture.eve()) {
        let name = format!("s11 {}", ada.version.as_str());
        let typed = fixture.harness.opencode.post_json("/session", &json!({ "title": name })).await;
        let id = typed["id"].as_str().expect("a session has an id");
        let search = json!({ "search": name });
        for who in [&ada, &bob, &ada] {
            who.assert_is_session(&who.result(GET, of(id)).await["item"], &typed);
            assert_eq!(ids(items(&who.result(LIST, search.clone()).await)), [id], "{name}");
        }
        for method in [GET, MESSAGES, "opencode.sessions.unshare"] {
            eve.refused(method, of(id), Kind::FORBIDDEN).await.assert_says("session_claim");
        }
        assert_eq!(eve.result(LIST, search.clone()).await, json!({"items": []}), "{name}");
        bob.result("opencode.sessions.unshare", of(id)).await;
        assert_eq!(ids(items(&bob.result(LIST, search.clone()).await)), [id], "{name}");
        ada.refused(GET, of(id), Kind::FORBIDDEN).await;
        assert_eq!(ada.result(LIST, search).await, json!({"items": []}), "{name}");
    }
}
