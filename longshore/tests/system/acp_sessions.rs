//! The methods `a2a.sessions.*` on a whole gateway in front of the scripted ACP agent: who may use which session.

use std::collections::BTreeMap;
use std::path::Path;

use longshore_testkit::fake_acp::{Action, FakeAcp, Options};
use longshore_testkit::gateway::{Gateway, Setup};
use longshore_testkit::raw::{Answer, RawClient, message};
use serde_json::json;

const LONGSHORE: &str = env!("CARGO_BIN_EXE_longshore");

const ADA: &str = "the-token-of-ada-for-tests-only";
const BOB: &str = "the-token-of-bob-for-tests-only";

/// Every extension that a caller of these methods activates.
const EXTENSIONS: [&str; 2] =
    ["urn:opencode-a2a:extension:session-management:v1", "urn:opencode-a2a:extension:session-binding:v1"];

/// A session that a person began, and that no caller owns.
const LOOSE: &str = "loose";

struct World {
    fake: FakeAcp,
    _gateway: Gateway,
    /// May delete and claim sessions.
    ada: RawClient,
    /// Has no capabilities.
    bob: RawClient,
}

impl World {
    async fn start(flags: &[&str]) -> Self {
        let fake = FakeAcp::start();
        fake.add_session(LOOSE);
        let options = Options { load: true, keeps: true, ..Options::default() };
        let binary = Path::new(LONGSHORE).with_file_name("fake-acp");
        assert!(binary.exists(), "the agent is not built: use --workspace");
        let variables =
            fake.environment(&options).into_iter().map(|(name, value)| format!("'{name}={value}'"));
        let words: Vec<String> = variables.chain([binary.display().to_string()]).collect();
        let callers = json!([
            {"scheme": "bearer", "token": ADA, "principal": "ada", "capabilities": ["session_delete", "session_claim"]},
            {"scheme": "bearer", "token": BOB, "principal": "bob"},
        ]);
        let setup = Setup::acp(LONGSHORE, &format!("env {}", words.join(" ")), BTreeMap::new())
            .env("A2A_STATIC_AUTH_CREDENTIALS", callers.to_string());
        let gateway = Gateway::start(flags.iter().fold(setup, |setup, flag| setup.flag(*flag))).await;
        let ada = RawClient::new(gateway.url(), ADA).activating(&EXTENSIONS);
        let bob = ada.with_token(BOB);
        Self { fake, _gateway: gateway, ada, bob }
    }

    /// Sends a message, in this session if one is named.
    async fn send(&self, client: &RawClient, id: &str, session: Option<&str>) -> Answer {
        self.fake.queue(vec![Action::Text("done".to_owned())]);
        let mut params = message(id, id);
        if let Some(session) = session {
            params["metadata"] = json!({"shared": {"session": {"id": session}}});
        }
        client.rpc("SendMessage", params).await
    }

    /// Begins a new session.
    async fn session_of(&self, client: &RawClient, id: &str) -> String {
        let sent = self.send(client, id, None).await;
        self.session(&sent, id)
    }

    /// The session in which the agent got a message.
    fn session(&self, sent: &Answer, id: &str) -> String {
        let task = &sent.result()["task"];
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
        let reports = self.fake.reports();
        let prompt = reports.iter().map(|report| &report["prompt"]).find(|prompt| prompt["text"] == id);
        prompt.expect("the agent got the message")["session"].as_str().expect("a session").to_owned()
    }
}

async fn call(client: &RawClient, method: &str, session: &str) -> Answer {
    client.rpc(&format!("a2a.sessions.{method}"), json!({"session_id": session})).await
}

async fn ids(client: &RawClient) -> Vec<String> {
    let listed = client.rpc("a2a.sessions.list", json!({})).await;
    let items = listed.result()["items"].as_array().expect("a list").iter();
    items.map(|item| item["id"].as_str().expect("an id").to_owned()).collect()
}

/// The reason of an error. Empty: the call succeeded.
fn reason(answer: &Answer) -> &str {
    let mut details = answer.body["error"]["data"].as_array().into_iter().flatten();
    let reason = details.find_map(|detail| detail["reason"].as_str());
    reason.unwrap_or(if answer.body["error"].is_null() { "" } else { "an error without a reason" })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_an_acp_agent_is_for_its_owner() {
    let world = World::start(&["--session-delete"]).await;
    let (ada, bob) = (&world.ada, &world.bob);
    let (hers, his) = (world.session_of(ada, "hers").await, world.session_of(bob, "his").await);
    let forked = call(ada, "fork", &hers).await;
    let copy = forked.result()["item"]["id"].as_str().expect("the copy has an id");
    let (forbidden, missing, invalid) = ("SESSION_FORBIDDEN", "SESSION_NOT_FOUND", "INVALID_PARAMS");

    // Without a reason, the call succeeds.
    for (client, method, session, expected) in [
        (ada, "get", hers.as_str(), ""),
        (bob, "get", &hers, forbidden),
        (ada, "get", copy, ""),
        (bob, "get", copy, forbidden),
        (ada, "get", "nowhere", missing),
        (bob, "fork", &hers, forbidden),
        (bob, "fork", copy, forbidden),
        (bob, "get", LOOSE, forbidden),
        (bob, "fork", LOOSE, forbidden),
        (bob, "delete", &hers, "AUTHORIZATION_FORBIDDEN"),
        (bob, "delete", &his, "AUTHORIZATION_FORBIDDEN"),
        (ada, "delete", &his, forbidden),
    ] {
        let answer = call(client, method, session).await;
        assert_eq!(reason(&answer), expected, "{method} {session}: {}", answer.body);
    }
    for (client, named, expected) in [
        (ada, hers.as_str(), ""),
        (ada, copy, ""),
        (bob, &his, ""),
        (bob, &hers, invalid),
        (bob, copy, invalid),
        (bob, LOOSE, invalid),
    ] {
        let id = format!("continue-{named}-{expected}");
        let sent = world.send(client, &id, Some(named)).await;
        assert_eq!(reason(&sent), expected, "{named}: {}", sent.body);
        if expected.is_empty() {
            assert_eq!(world.session(&sent, &id), named);
        } else {
            assert!(sent.body.to_string().contains("metadata.shared.session.id"), "{}", sent.body);
        }
    }
    let mut seen = ids(ada).await;
    seen.sort();
    let mut all = vec![hers.clone(), copy.to_owned(), LOOSE.to_owned()];
    all.sort();
    assert_eq!((seen, ids(bob).await), (all, vec![his.clone()]));

    // The first who continues it owns it from then on.
    let sent = world.send(ada, "claim", Some(LOOSE)).await;
    assert_eq!(world.session(&sent, "claim"), LOOSE);
    for session in [copy, LOOSE] {
        assert_eq!(reason(&call(ada, "delete", session).await), "");
        assert_eq!(reason(&call(ada, "get", session).await), missing);
        assert_eq!(reason(&call(bob, "get", session).await), forbidden);
    }
    assert_eq!(ids(ada).await, [hers]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_an_acp_agent_are_deleted_only_if_the_operator_allows_it() {
    let world = World::start(&[]).await;
    let hers = world.session_of(&world.ada, "hers").await;
    let refused = call(&world.ada, "delete", &hers).await;
    assert_eq!(reason(&refused), "METHOD_DISABLED", "{}", refused.body);
    let deletions = world.fake.reports().iter().filter(|report| report["called"] == "session/delete").count();
    assert_eq!((deletions, ids(&world.ada).await.contains(&hers)), (0, true));
}
