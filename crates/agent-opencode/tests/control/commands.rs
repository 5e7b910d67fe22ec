//! Commands that change sessions.

use longshore_agent_opencode::Pin;
use longshore_engine::port::Input;
use longshore_model::{AgentPartId, ModelName, NativePrompt, NativePromptPart, ShellCommand, Timestamp};
use longshore_testkit::fake_opencode::{Fault, Gate, Sharing, Shell};
use std::collections::BTreeSet;

use super::*;

fn info(result: ControlResult) -> longshore_model::SessionInfo {
    match result {
        ControlResult::Session(info) => info,
        result => panic!("a session: {result:?}"),
    }
}

/// Every command about a session, with its call.
fn commands(session: &Session) -> Vec<(ControlCommand, &'static str, &'static str)> {
    let id = || session.id.clone();
    let shell = ShellCommand { agent: "build".to_owned(), command: "ls".to_owned(), model: None };
    vec![
        (ControlCommand::Fork { session: id(), before: None }, "POST", "/fork"),
        (ControlCommand::Share(id()), "POST", "/share"),
        (ControlCommand::Unshare(id()), "DELETE", "/share"),
        (
            ControlCommand::Summarize {
                session: id(),
                model: ModelName::parse("scripted/vision"),
                auto: false,
            },
            "POST",
            "/summarize",
        ),
        (
            ControlCommand::Revert { session: id(), message: message_ref("msg_1"), part: None },
            "POST",
            "/revert",
        ),
        (ControlCommand::Unrevert(id()), "POST", "/unrevert"),
        (ControlCommand::Shell { session: id(), order: shell }, "POST", "/shell"),
    ]
}

async fn with_messages(fixture: &Fixture) -> Session {
    let session = fixture.session("ses_a");
    fixture.message(&session, "msg_1", json!({}), &[json!({"type": "text", "text": "one"})]).await;
    fixture.message(&session, "msg_2", json!({}), &[json!({"type": "text", "text": "two"})]).await;
    session
}

/// OpenCode would copy the whole session.
#[tokio::test]
async fn a_fork_before_an_unknown_message_is_refused() {
    let fixture = Fixture::new();
    let session = with_messages(&fixture).await;
    let other = fixture.session("ses_b");
    fixture.message(&other, "msg_b", json!({}), &[]).await;
    let fork = |before: Option<&str>| ControlCommand::Fork {
        session: session.id.clone(),
        before: before.map(message_ref),
    };
    for before in ["msg_none", "msg_b"] {
        assert_eq!(
            refused_field(fixture.run(Some(&session), &fork(Some(before))).await),
            "request.messageID"
        );
    }
    assert_eq!(fixture.fake.sessions(), ["ses_a", "ses_b"], "nothing was copied");
    let copy = info(fixture.run(Some(&session), &fork(Some("msg_2"))).await.unwrap());
    assert_eq!((copy.title.as_str(), copy.parent), ("ses_a (fork #1)", None));
    assert_eq!(fixture.fake.messages(copy.id.as_str()).len(), 1);
    let copy = info(fixture.run(Some(&session), &fork(None)).await.unwrap());
    assert_eq!(fixture.fake.messages(copy.id.as_str()).len(), 2);
    fixture.stop().await;
}

#[tokio::test]
async fn sharing_fails_when_opencode_gives_no_address() {
    let fixture = Fixture::new();
    let session = fixture.session("ses_a");
    let share = ControlCommand::Share(session.id.clone());
    let shared = info(fixture.run(Some(&session), &share).await.unwrap());
    assert!(shared.share_url.is_some_and(|url| url.starts_with("https://")));
    let unshared =
        info(fixture.run(Some(&session), &ControlCommand::Unshare(session.id.clone())).await.unwrap());
    assert_eq!(unshared.share_url, None);
    for (sharing, kind, status) in [
        (Sharing::Off, ErrorKind::UpstreamPayloadError, None),
        (Sharing::Forbidden, ErrorKind::UpstreamHttpError, Some("500")),
        (Sharing::Offline, ErrorKind::UpstreamHttpError, Some("500")),
    ] {
        fixture.fake.project(|project| project.sharing = sharing);
        let refused = fixture.run(Some(&session), &share).await.unwrap_err();
        assert_eq!((refused.kind(), fact(&refused, "upstreamStatus")), (kind, status), "{sharing:?}");
    }
    fixture.stop().await;
}

/// Also in a session that another client gave another model.
#[tokio::test]
async fn a_summary_uses_the_model_that_the_operator_pinned() {
    let fixture = Fixture::with(|config| {
        config.rules.defaults.model = ModelName::parse("scripted/vendor/deep");
        config.rules.pinned = vec![Pin::Model];
    });
    let vision = json!({"model": {"providerID": "scripted", "id": "vision"}});
    let session = fixture.session_like("ses_a", &vision);
    let command = ControlCommand::Summarize { session: session.id.clone(), model: None, auto: false };
    fixture.run(Some(&session), &command).await.unwrap();
    assert_eq!(fixture.fake.log().last().unwrap().body["modelID"], "vendor/deep");
    fixture.stop().await;
}

/// O6: OpenCode requires a model, and leaves a message behind for a model that it does not have.
#[tokio::test]
async fn a_summary_uses_the_named_model_or_else_the_sessions_own() {
    let fixture = Fixture::new();
    let own = json!({"model": {"providerID": "scripted", "id": "vision"}});
    let gone = json!({"model": {"providerID": "scripted", "id": "gone"}});
    let cases = [
        ("ses_a", json!({}), None, "scripted"),
        ("ses_b", own.clone(), None, "vision"),
        ("ses_c", gone, None, "scripted"),
        ("ses_d", own, ModelName::parse("scripted/vendor/deep"), "vendor/deep"),
    ];
    for (id, more, model, expected) in cases {
        let session = fixture.session_like(id, &more);
        let command = ControlCommand::Summarize { session: session.id.clone(), model, auto: false };
        let done = fixture.run(Some(&session), &command).await.unwrap();
        assert_eq!(done, ControlResult::Done { session: session.id.clone(), ok: true, begun: None });
        let body = fixture.fake.log().last().unwrap().body.clone();
        assert_eq!(body, json!({"providerID": "scripted", "modelID": expected, "auto": false}), "{id}");
    }
    let session = fixture.session("ses_e");
    for (model, field) in [("scripted/none", "request.modelID"), ("none/scripted", "request.providerID")] {
        let model = ModelName::parse(model);
        let command = ControlCommand::Summarize { session: session.id.clone(), model, auto: false };
        assert_eq!(refused_field(fixture.run(Some(&session), &command).await), field);
    }
    assert_eq!(fixture.fake.messages("ses_e"), [] as [Value; 0]);
    fixture.stop().await;
}

/// OpenCode would report success, and do nothing.
#[tokio::test]
async fn a_revert_to_an_unknown_message_or_part_is_refused() {
    let fixture = Fixture::new();
    let session = with_messages(&fixture).await;
    let revert = |message: &str, part: Option<&str>| ControlCommand::Revert {
        session: session.id.clone(),
        message: message_ref(message),
        part: part.map(|part| AgentPartId::parse(part).unwrap()),
    };
    let refused = async |command: ControlCommand| refused_field(fixture.run(Some(&session), &command).await);
    assert_eq!(refused(revert("msg_none", None)).await, "request.messageID");
    assert_eq!(refused(revert("msg_1", Some("prt_none"))).await, "request.partID");
    assert_eq!(refused(revert("msg_1", Some("prt_msg_2_0"))).await, "request.partID");
    assert!(!fixture.fake.received_targets().iter().any(|call| call.contains("/revert")));
    let back = info(fixture.run(Some(&session), &revert("msg_2", Some("prt_msg_2_0"))).await.unwrap());
    let to = back.revert.unwrap();
    assert_eq!((to.message.as_str(), to.part.unwrap().as_str()), ("msg_2", "prt_msg_2_0"));
    let forward =
        info(fixture.run(Some(&session), &ControlCommand::Unrevert(session.id.clone())).await.unwrap());
    assert_eq!(forward.revert, None);
    fixture.stop().await;
}

#[tokio::test]
async fn a_shell_command_returns_its_output() {
    // The command may take longer than the timeout of a short call.
    let fixture = Fixture::with(|config| config.control_timeout = Duration::from_secs(1));
    let session = fixture.session("ses_a");
    let gate = Gate::new();
    fixture.fake.shell(Shell { output: "a\nb\n".to_owned(), hold: Some(gate.clone()) });
    let order = |agent: &str, model: Option<&str>| ControlCommand::Shell {
        session: session.id.clone(),
        order: ShellCommand {
            agent: agent.to_owned(),
            command: "ls".to_owned(),
            model: model.and_then(ModelName::parse),
        },
    };
    let command = order("build", Some("scripted/vision"));
    let (result, ()) = tokio::join!(fixture.run(Some(&session), &command), async {
        gate.reached().await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        gate.open();
    });
    let ControlResult::Message(message) = result.unwrap() else { panic!("a message") };
    assert_eq!((message.text.as_str(), message.role), ("a\nb\n", longshore_model::Role::Agent));
    let body = fixture.fake.log().last().unwrap().body.clone();
    let model = json!({"providerID": "scripted", "modelID": "vision"});
    assert_eq!(body, json!({"agent": "build", "command": "ls", "model": model}));
    let before = fixture.fake.messages("ses_a").len();
    assert_eq!(refused_field(fixture.run(Some(&session), &order("nobody", None)).await), "request.agent");
    assert_eq!(
        refused_field(fixture.run(Some(&session), &order("build", Some("no/one"))).await),
        "request.model"
    );
    assert_eq!(fixture.fake.messages("ses_a").len(), before);
    fixture.stop().await;
}

#[tokio::test]
async fn each_failure_of_a_command_has_its_kind_and_no_command_is_repeated() {
    let fixture = Fixture::new();
    let session = with_messages(&fixture).await;
    let not_found = r#"{"name":"NotFoundError","data":{"message":"Session not found: ses_a"}}"#;
    let busy = r#"{"_tag":"SessionBusyError","sessionID":"ses_a","message":"Session is busy: ses_a"}"#;
    for (command, method, path) in commands(&session) {
        let http = ErrorKind::UpstreamHttpError;
        let payload = ErrorKind::UpstreamPayloadError;
        for (fault, expected, maybe_done) in [
            (Fault::Status(500), (http, Some("500")), false),
            (Fault::Status(504), (http, Some("504")), true),
            (Fault::Answer(409, busy), (http, Some("409")), false),
            (Fault::Answer(404, not_found), (ErrorKind::SessionNotFound, None), false),
            (Fault::Html, (payload, None), true),
            (Fault::Body("null"), (payload, None), true),
            (Fault::Body("7"), (payload, None), true),
            (Fault::CutBefore, (ErrorKind::UpstreamUnreachable, None), true),
            (Fault::CutAfter, (ErrorKind::UpstreamUnreachable, None), true),
        ] {
            let case = format!("{command:?} {fault:?}");
            let calls = |fixture: &Fixture| {
                let call = format!("{method} /session/ses_a{path}?");
                fixture.fake.received_targets().iter().filter(|line| line.starts_with(&call)).count()
            };
            let before = calls(&fixture);
            fixture.fake.fault_once(method, path, fault);
            let failed = fixture.run(Some(&session), &command).await.expect_err(&case);
            assert_eq!((failed.kind(), fact(&failed, "upstreamStatus")), expected, "{case}: {failed}");
            assert_eq!(failed.message().contains("may have been done"), maybe_done, "{case}: {failed}");
            assert_eq!(calls(&fixture), before + 1, "{case}");
        }
        fixture.fake.wait_until_idle().await;
        fixture.run(Some(&session), &command).await.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    }
    fixture.fake.kill().await;
    for (command, ..) in commands(&session) {
        let failed = fixture.run(Some(&session), &command).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::UpstreamUnreachable, "{command:?}: {failed}");
        assert!(!failed.message().contains("may have been done"), "OpenCode got no request: {failed}");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn a_session_is_deleted_once() {
    let fixture = Fixture::new();
    let delete = |session: &Session| ControlCommand::Delete(session.id.clone());
    let (session, other) = (with_messages(&fixture).await, fixture.session("ses_b"));
    let done = fixture.run(Some(&session), &delete(&session)).await.unwrap();
    assert_eq!(done, ControlResult::Done { session: session.id.clone(), ok: true, begun: None });
    assert_eq!(fixture.fake.sessions(), ["ses_b"]);
    let again = fixture.run(Some(&session), &delete(&session)).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::SessionNotFound);
    for (fault, kind, is_maybe_applied) in [
        (Fault::Status(500), ErrorKind::UpstreamHttpError, false),
        (Fault::Body("{}"), ErrorKind::UpstreamPayloadError, true),
        (Fault::CutAfter, ErrorKind::UpstreamUnreachable, true),
    ] {
        fixture.fake.fault_once("DELETE", "/session/ses_b", fault);
        let failed = fixture.run(Some(&other), &delete(&other)).await.unwrap_err();
        assert_eq!((failed.kind(), failed.is_maybe_applied()), (kind, is_maybe_applied), "{failed}");
    }
    fixture.stop().await;
}

fn prompt(parts: Vec<NativePromptPart>, withheld: &[&str]) -> NativePrompt {
    NativePrompt::Prompt {
        parts,
        withheld: withheld.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(),
    }
}

#[tokio::test]
async fn a_note_gets_an_id_of_the_gateway_and_no_response() {
    let fixture = Fixture::new();
    let session = fixture.session("ses_a");
    let order =
        prompt(vec![NativePromptPart::Agent("plan".to_owned()), NativePromptPart::Content], &["bash"]);
    let input = [Input::Text("remember".to_owned())];
    let options = PromptOptions { model: ModelName::parse("scripted/vision"), ..PromptOptions::default() };
    fixture.agent.note(&session, &order, &input, &options).await.unwrap();
    fixture.fake.wait_until_idle().await;
    let mut body = fixture.fake.prompts().last().unwrap().body.clone();
    let name = body["messageID"].take();
    assert!(name.as_str().is_some_and(|name| name.starts_with("msg_") && name.len() > 20), "{name}");
    let expected = json!({
        "messageID": null, "model": {"providerID": "scripted", "modelID": "vision"}, "noReply": true,
        "tools": {"bash": false},
        "parts": [{"type": "agent", "name": "plan"}, {"type": "text", "text": "remember"}],
    });
    assert_eq!(body, expected);
    assert!(fixture.fake.messages("ses_a").iter().all(|message| message["info"]["role"] == "user"));

    // The session would keep the model, and every later prompt would fail.
    let unknown = PromptOptions { model: ModelName::parse("no/model"), ..PromptOptions::default() };
    let case = fixture.fake.prompts().len();
    assert_eq!(refused_field(fixture.agent.note(&session, &order, &input, &unknown).await), "request.model");
    assert_eq!(fixture.fake.prompts().len(), case);
    for (fault, kind) in [
        (Fault::Html, ErrorKind::UpstreamPayloadError),
        (Fault::Body("true"), ErrorKind::UpstreamPayloadError),
        (Fault::Status(400), ErrorKind::UpstreamHttpError),
        (Fault::CutAfter, ErrorKind::UpstreamUnreachable),
    ] {
        fixture.fake.fault_once("POST", "/prompt_async", fault);
        let failed = fixture.agent.note(&session, &order, &input, &options).await.unwrap_err();
        assert_eq!(failed.kind(), kind, "{failed}");
    }
    fixture.fake.forget_session("ses_a");
    let gone = fixture.agent.note(&session, &order, &input, &options).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::SessionNotFound);
    fixture.stop().await;
}

/// For a fork whose response was lost.
#[tokio::test]
async fn a_fork_is_found_by_its_title_its_time_and_its_messages() {
    let fixture = Fixture::new();
    let session = fixture.session("ses_a");
    for (name, created) in [("msg_a1", 5), ("msg_a2", 6), ("msg_a3", 7)] {
        fixture.message(&session, name, json!({"time": {"created": created}}), &[]).await;
    }
    let before = AgentMessageId::parse("msg_a3").unwrap();
    let fork = |before| ControlCommand::Fork { session: session.id.clone(), before };
    let forks = async |before, since| fixture.agent.forks(&session, before, Timestamp(since)).await.unwrap();
    assert_eq!(forks(None, 0).await, []);
    fixture.fake.fault_once("POST", "/fork", Fault::CutAfter);
    let lost = fixture.run(Some(&session), &fork(None)).await.unwrap_err();
    assert!(lost.is_maybe_applied(), "{lost:?}");
    let copy = |more: Value| {
        let mut info = json!({"title": "ses_a (fork #1)"});
        for (name, value) in more.as_object().expect("an object") {
            info[name] = value.clone();
        }
        info
    };
    // Sessions with another time, directory, title or parent.
    fixture.session_like("ses_old", &copy(json!({})));
    fixture.session_like("ses_else", &copy(json!({"directory": format!("{}/sub", fixture.root())})));
    fixture.session_like("ses_named", &json!({"title": "About something else"}));
    fixture.session_like("ses_below", &copy(json!({"parentID": "ses_a"})));
    let found = forks(None, 1_000_000).await;
    let [found] = found.as_slice() else { panic!("one: {found:?}") };
    assert!(!["ses_a", "ses_old", "ses_else", "ses_named", "ses_below"].contains(&found.id.as_str()));
    assert_eq!(found.directory, session.directory);
    assert_eq!(forks(None, i64::MAX / 2).await, []);
    // The fork has more messages than those before the last one.
    assert_eq!(forks(Some(&before), 1_000_000).await, []);
    fixture.fake.fault_once("POST", "/fork", Fault::CutAfter);
    fixture.run(Some(&session), &fork(Some(before.clone()))).await.unwrap_err();
    let shorter = forks(Some(&before), 1_000_000).await;
    assert_eq!(shorter.len(), 1, "{shorter:?}");
    assert_ne!(shorter[0].id, found.id);
    assert_eq!(forks(None, 1_000_000).await, std::slice::from_ref(found));
    fixture.stop().await;
}

/// Another user may fork a session with the same title at the same time.
#[tokio::test]
async fn a_fork_of_another_session_with_the_same_title_is_not_found() {
    let fixture = Fixture::new();
    let session = fixture.session("ses_a");
    fixture.message(&session, "msg_a1", json!({"time": {"created": 5}}), &[]).await;
    let theirs = fixture.session_like("ses_b", &json!({"title": "ses_a"}));
    let empty = fixture.session_like("ses_c", &json!({"title": "ses_a"}));
    fixture.message(&theirs, "msg_b1", json!({"time": {"created": 6}}), &[]).await;
    for other in [&theirs, &empty] {
        let fork = ControlCommand::Fork { session: other.id.clone(), before: None };
        let ControlResult::Session(made) = fixture.run(Some(other), &fork).await.unwrap() else {
            panic!("no session")
        };
        assert_eq!(made.title, "ses_a (fork #1)");
        assert_eq!(fixture.agent.forks(&session, None, Timestamp(0)).await.unwrap(), []);
    }
    fixture.stop().await;
}
