//! Sessions that other clients made, and the asks that an abort leaves open.

use longshore_model::{Answer, Ask, AskKind, AskOptions, Json, Question, RequestId};
use longshore_testkit::fake_opencode::Fault;
use serde_json::json;

use super::*;

fn id(id: &str) -> SessionId {
    SessionId::parse(id).expect("an id")
}

#[tokio::test]
async fn only_a_root_session_in_an_allowed_directory_is_found() {
    let fixture = Fixture::new();
    let (root, worktree) = (fixture.fake.directory().to_owned(), fixture.outside("side"));
    fixture.make_worktree(&worktree);
    make(&fixture.inside("in"));
    make(&fixture.outside("there"));
    fixture.fake.project(|project| project.worktrees.push(worktree.clone()));
    let sessions = [
        ("ses_root", json!({"directory": root}), true),
        ("ses_in", json!({"directory": fixture.inside("in")}), true),
        ("ses_worktree", json!({"directory": worktree}), true),
        ("ses_outside", json!({"directory": fixture.outside("there")}), false),
        ("ses_gone", json!({"directory": fixture.inside("gone")}), false),
        ("ses_nowhere", json!({}), false),
        ("ses_child", json!({"directory": root, "parentID": "ses_root"}), false),
        // Its events do not reach the event stream of its directory.
        ("ses_workspace", json!({"directory": worktree, "workspaceID": "wrk_1"}), false),
    ];
    for (name, mut info, found) in sessions {
        info["id"] = name.into();
        let directory = info["directory"].as_str().unwrap_or_default().to_owned();
        fixture.fake.add_session_info(info);
        let session = fixture.agent.find_session(&id(name)).await.unwrap();
        let expected = found.then(|| Session { id: id(name), directory });
        assert_eq!(session, expected, "{name}");
    }
    assert_eq!(fixture.agent.find_session(&id("ses_unknown")).await.unwrap(), None);
    let before = fixture.fake.log().len();
    for other in ["abc", "msg_1", "ses:../x"] {
        let Ok(id) = SessionId::parse(other) else { continue };
        assert_eq!(fixture.agent.find_session(&id).await.unwrap(), None, "{other}");
    }
    assert!(fixture.fake.log()[before..].iter().all(|request| request.path.starts_with("/session/ses")));
    fixture.fake.kill().await;
    let error = fixture.agent.find_session(&id("ses_root")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AgentUnavailable);
    fixture.stop().await;
}

#[tokio::test]
async fn with_the_override_off_a_session_outside_the_root_is_not_found() {
    let fixture = Fixture::with(false, PromptOptions::default());
    make(&fixture.inside("in"));
    fixture.fake.add_session("ses_in", &fixture.inside("in"));
    fixture.fake.add_session("ses_root", fixture.fake.directory());
    assert_eq!(fixture.agent.find_session(&id("ses_in")).await.unwrap(), None);
    assert!(fixture.agent.find_session(&id("ses_root")).await.unwrap().is_some());
    fixture.stop().await;
}

#[tokio::test]
async fn a_session_is_busy_while_it_is_not_idle() {
    let fixture = Fixture::new();
    make(&fixture.inside("in"));
    fixture.fake.add_session("ses_1", &fixture.inside("in"));
    let session = Session { id: id("ses_1"), directory: fixture.inside("in") };
    for (status, busy) in [("busy", true), ("idle", false), ("retry", true)] {
        fixture.fake.emit("session.status", json!({"sessionID": "ses_1", "status": {"type": status}})).await;
        assert_eq!(fixture.agent.is_busy(&session).await.unwrap(), busy, "{status}");
    }
    fixture.stop().await;
}

/// Otherwise OpenCode keeps them forever, and a rejection during a later turn would end that turn.
#[tokio::test]
async fn an_abort_rejects_the_asks_of_the_session_and_its_sub_agents_and_no_others() {
    let fixture = Fixture::new();
    let directory = fixture.fake.directory().to_owned();
    let sessions = [
        ("ses_1", None),
        ("ses_2", Some("ses_1")),
        ("ses_3", Some("ses_2")),
        ("ses_9", None),
        ("ses_8", Some("ses_9")),
    ];
    for (name, parent) in sessions {
        fixture.fake.add_session_info(json!({"id": name, "directory": directory, "parentID": parent}));
    }
    for (ask, session) in [
        ("per_1", "ses_1"),
        ("per_2", "ses_3"),
        ("per_8", "ses_8"),
        ("per_9", "ses_9"),
        ("per_7", "ses_gone"),
    ] {
        fixture
            .fake
            .emit("permission.asked", json!({"id": ask, "sessionID": session, "permission": "bash"}))
            .await;
    }
    for (ask, session) in [("que_1", "ses_2"), ("que_9", "ses_9")] {
        fixture.fake.emit("question.asked", json!({"id": ask, "sessionID": session, "questions": []})).await;
    }
    fixture.agent.cancel(&Session { id: id("ses_1"), directory }).await.unwrap();
    assert_eq!(fixture.fake.open_asks(), ["per_8", "per_9", "per_7", "que_9"]);
    let rejected: Vec<(String, serde_json::Value)> = fixture
        .fake
        .log()
        .into_iter()
        .filter(|request| request.method == "POST")
        .map(|request| (request.path, request.body))
        .collect();
    let expected = [
        ("/session/ses_1/abort", json!({})),
        ("/permission/per_1/reply", json!({"reply": "reject"})),
        ("/permission/per_2/reply", json!({"reply": "reject"})),
        ("/question/que_1/reject", json!({})),
    ];
    assert_eq!(rejected, expected.map(|(path, body)| (path.to_owned(), body)));
    fixture.stop().await;
}

#[tokio::test]
async fn an_abort_succeeds_even_if_the_asks_cannot_be_read() {
    let fixture = Fixture::new();
    let session = Session { id: id("ses_1"), directory: fixture.fake.directory().to_owned() };
    fixture.fake.add_session("ses_1", fixture.fake.directory());
    fixture.fake.fault_always("GET", "/permission", Fault::Status(500));
    fixture.agent.cancel(&session).await.unwrap();
    fixture.stop().await;
}

fn question(name: &str, custom: [bool; 2]) -> Ask {
    let question = |custom| Question {
        text: "Which colour?".to_owned(),
        options: vec!["Red".to_owned(), "Green".to_owned()],
        multiple: true,
        custom,
    };
    Ask {
        request_id: RequestId::parse(name).expect("an id"),
        kind: AskKind::Question,
        session: id("ses_1"),
        summary: String::new(),
        details: Json::parse("{}").expect("JSON"),
        questions: custom.map(question).into(),
        call: None,
        permission: None,
        options: AskOptions::default(),
    }
}

#[tokio::test]
async fn answers_are_checked_against_their_questions_before_opencode_gets_them() {
    let fixture = Fixture::new();
    let session = Session { id: id("ses_1"), directory: fixture.fake.directory().to_owned() };
    fixture.fake.add_session("ses_1", fixture.fake.directory());
    let cases = [
        (vec![vec!["Red"], vec!["Green", "Red"]], Ok(json!([["Red"], ["Green", "Red"]]))),
        (vec![vec!["Red"], vec![]], Ok(json!([["Red"], []]))),
        (vec![vec!["Red"]], Ok(json!([["Red"], []]))),
        (vec![], Ok(json!([[], []]))),
        (vec![vec!["Blue, please"], vec!["Red"]], Ok(json!([["Blue, please"], ["Red"]]))),
        (vec![vec!["Red"], vec!["Blue"]], Err(("answers[1]", "This question takes only: Red, Green."))),
        (
            vec![vec!["Red"], vec![], vec![]],
            Err(("answers", "There are 3 answers for 2 questions; give one list of answers for each.")),
        ),
    ];
    for (number, (answers, expected)) in cases.into_iter().enumerate() {
        let name = format!("que_{number}");
        fixture.fake.emit("question.asked", json!({"id": name, "sessionID": "ses_1", "questions": []})).await;
        let before = fixture.fake.log().len();
        let answers =
            answers.into_iter().map(|words| words.into_iter().map(str::to_owned).collect()).collect();
        let answer = Answer::Question { answers };
        let replied = fixture.agent.reply(&session, &question(&name, [true, false]), &answer).await;
        let sent: Vec<_> =
            fixture.fake.log()[before..].iter().map(|request| request.body["answers"].clone()).collect();
        match expected {
            Ok(expected) => assert_eq!((replied.is_ok(), sent), (true, vec![expected])),
            Err((field, text)) => {
                let error = replied.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidParams);
                let violation = &error.violations()[0];
                assert_eq!((violation.field.as_str(), violation.description.as_str()), (field, text));
                assert_eq!(sent, <[serde_json::Value; 0]>::default());
            }
        }
    }
    fixture.stop().await;
}
