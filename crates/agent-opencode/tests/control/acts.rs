//! What is done to sessions.

use longshore_engine::port::Input;
use longshore_model::{ModelName, Order, OrderPart, PartRef, ShellOrder, Timestamp};
use longshore_testkit::fake_opencode::{Fault, Gate, Sharing, Shell};
use std::collections::BTreeSet;

use super::*;

fn info(told: ControlResult) -> longshore_model::SessionInfo {
    match told {
        ControlResult::Session(info) => info,
        told => panic!("a session: {told:?}"),
    }
}

/// Every act upon a session, with the call that it is.
fn acts(session: &Session) -> Vec<(ControlCommand, &'static str, &'static str)> {
    let id = || session.id.clone();
    let shell = ShellOrder { agent: "build".to_owned(), command: "ls".to_owned(), model: None };
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

async fn with_a_message(bench: &Bench) -> Session {
    let session = bench.session("ses_a");
    bench.message(&session, "msg_1", json!({}), &[json!({"type": "text", "text": "one"})]).await;
    bench.message(&session, "msg_2", json!({}), &[json!({"type": "text", "text": "two"})]).await;
    session
}

/// OpenCode would copy everything.
#[tokio::test]
async fn a_fork_before_a_message_that_is_not_there_is_refused() {
    let bench = Bench::new();
    let session = with_a_message(&bench).await;
    let other = bench.session("ses_b");
    bench.message(&other, "msg_b", json!({}), &[]).await;
    let fork = |before: Option<&str>| ControlCommand::Fork {
        session: session.id.clone(),
        before: before.map(message_ref),
    };
    for before in ["msg_none", "msg_b"] {
        assert_eq!(refused_field(bench.act(Some(&session), &fork(Some(before))).await), "request.messageID");
    }
    assert_eq!(bench.fake.sessions(), ["ses_a", "ses_b"], "nothing was copied");
    let copy = info(bench.act(Some(&session), &fork(Some("msg_2"))).await.unwrap());
    assert_eq!((copy.title.as_str(), copy.parent), ("ses_a (fork #1)", None));
    assert_eq!(bench.fake.messages(copy.id.as_str()).len(), 1);
    let copy = info(bench.act(Some(&session), &fork(None)).await.unwrap());
    assert_eq!(bench.fake.messages(copy.id.as_str()).len(), 2);
    bench.stop().await;
}

#[tokio::test]
async fn a_session_is_shared_only_when_it_has_an_address() {
    let bench = Bench::new();
    let session = bench.session("ses_a");
    let share = ControlCommand::Share(session.id.clone());
    let shared = info(bench.act(Some(&session), &share).await.unwrap());
    assert!(shared.share_url.is_some_and(|url| url.starts_with("https://")));
    let unshared =
        info(bench.act(Some(&session), &ControlCommand::Unshare(session.id.clone())).await.unwrap());
    assert_eq!(unshared.share_url, None);
    for (sharing, kind, status) in [
        (Sharing::Off, ErrorKind::UpstreamPayloadError, None),
        (Sharing::Forbidden, ErrorKind::UpstreamHttpError, Some("500")),
        (Sharing::Offline, ErrorKind::UpstreamHttpError, Some("500")),
    ] {
        bench.fake.project(|project| project.sharing = sharing);
        let refused = bench.act(Some(&session), &share).await.unwrap_err();
        assert_eq!((refused.kind(), fact(&refused, "upstreamStatus")), (kind, status), "{sharing:?}");
    }
    bench.stop().await;
}

/// O6: OpenCode always wants a model, and leaves a message behind for one that it does not have.
#[tokio::test]
async fn a_summary_is_made_by_the_model_that_is_named_else_by_the_sessions_own() {
    let bench = Bench::new();
    let own = json!({"model": {"providerID": "scripted", "id": "vision"}});
    let gone = json!({"model": {"providerID": "scripted", "id": "gone"}});
    let cases = [
        ("ses_a", json!({}), None, "scripted"),
        ("ses_b", own.clone(), None, "vision"),
        ("ses_c", gone, None, "scripted"),
        ("ses_d", own, ModelName::parse("scripted/vendor/deep"), "vendor/deep"),
    ];
    for (id, more, model, expected) in cases {
        let session = bench.session_like(id, &more);
        let act = ControlCommand::Summarize { session: session.id.clone(), model, auto: false };
        let done = bench.act(Some(&session), &act).await.unwrap();
        assert_eq!(done, ControlResult::Done { session: session.id.clone(), ok: true, begun: None });
        let body = bench.fake.log().last().unwrap().body.clone();
        assert_eq!(body, json!({"providerID": "scripted", "modelID": expected, "auto": false}), "{id}");
    }
    let session = bench.session("ses_e");
    for (model, field) in [("scripted/none", "request.modelID"), ("none/scripted", "request.providerID")] {
        let model = ModelName::parse(model);
        let act = ControlCommand::Summarize { session: session.id.clone(), model, auto: false };
        assert_eq!(refused_field(bench.act(Some(&session), &act).await), field);
    }
    assert_eq!(bench.fake.messages("ses_e"), [] as [Value; 0]);
    bench.stop().await;
}

/// OpenCode says yes, and does nothing.
#[tokio::test]
async fn a_revert_to_what_is_not_there_is_refused() {
    let bench = Bench::new();
    let session = with_a_message(&bench).await;
    let revert = |message: &str, part: Option<&str>| ControlCommand::Revert {
        session: session.id.clone(),
        message: message_ref(message),
        part: part.map(|part| PartRef::parse(part).unwrap()),
    };
    let refused = async |act: ControlCommand| refused_field(bench.act(Some(&session), &act).await);
    assert_eq!(refused(revert("msg_none", None)).await, "request.messageID");
    assert_eq!(refused(revert("msg_1", Some("prt_none"))).await, "request.partID");
    assert_eq!(refused(revert("msg_1", Some("prt_msg_2_0"))).await, "request.partID");
    assert!(!bench.fake.arrived().iter().any(|call| call.contains("/revert")));
    let back = info(bench.act(Some(&session), &revert("msg_2", Some("prt_msg_2_0"))).await.unwrap());
    let to = back.revert.unwrap();
    assert_eq!((to.message.as_str(), to.part.unwrap().as_str()), ("msg_2", "prt_msg_2_0"));
    let forward =
        info(bench.act(Some(&session), &ControlCommand::Unrevert(session.id.clone())).await.unwrap());
    assert_eq!(forward.revert, None);
    bench.stop().await;
}

#[tokio::test]
async fn a_command_is_told_with_what_it_printed() {
    // It may take longer than a short call.
    let bench = Bench::with(|config| config.control_timeout = Duration::from_secs(1));
    let session = bench.session("ses_a");
    let gate = Gate::new();
    bench.fake.shell(Shell { output: "a\nb\n".to_owned(), hold: Some(gate.clone()) });
    let order = |agent: &str, model: Option<&str>| ControlCommand::Shell {
        session: session.id.clone(),
        order: ShellOrder {
            agent: agent.to_owned(),
            command: "ls".to_owned(),
            model: model.and_then(ModelName::parse),
        },
    };
    let act = order("build", Some("scripted/vision"));
    let (told, ()) = tokio::join!(bench.act(Some(&session), &act), async {
        gate.reached().await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        gate.open();
    });
    let ControlResult::Message(message) = told.unwrap() else { panic!("a message") };
    assert_eq!((message.text.as_str(), message.role), ("a\nb\n", longshore_model::Role::Agent));
    let body = bench.fake.log().last().unwrap().body.clone();
    let model = json!({"providerID": "scripted", "modelID": "vision"});
    assert_eq!(body, json!({"agent": "build", "command": "ls", "model": model}));
    let before = bench.fake.messages("ses_a").len();
    assert_eq!(refused_field(bench.act(Some(&session), &order("nobody", None)).await), "request.agent");
    assert_eq!(
        refused_field(bench.act(Some(&session), &order("build", Some("no/one"))).await),
        "request.model"
    );
    assert_eq!(bench.fake.messages("ses_a").len(), before);
    bench.stop().await;
}

#[tokio::test]
async fn each_way_to_fail_has_its_kind_for_every_act_and_nothing_is_tried_twice() {
    let bench = Bench::new();
    let session = with_a_message(&bench).await;
    let not_found = r#"{"name":"NotFoundError","data":{"message":"Session not found: ses_a"}}"#;
    let busy = r#"{"_tag":"SessionBusyError","sessionID":"ses_a","message":"Session is busy: ses_a"}"#;
    for (act, method, path) in acts(&session) {
        let http = ErrorKind::UpstreamHttpError;
        let payload = ErrorKind::UpstreamPayloadError;
        for (fault, expected, perhaps) in [
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
            let said = format!("{act:?} {fault:?}");
            let calls = |bench: &Bench| {
                let call = format!("{method} /session/ses_a{path}?");
                bench.fake.arrived().iter().filter(|line| line.starts_with(&call)).count()
            };
            let before = calls(&bench);
            bench.fake.fault_once(method, path, fault);
            let failed = bench.act(Some(&session), &act).await.expect_err(&said);
            assert_eq!((failed.kind(), fact(&failed, "upstreamStatus")), expected, "{said}: {failed}");
            assert_eq!(failed.message().contains("may have been done"), perhaps, "{said}: {failed}");
            assert_eq!(calls(&bench), before + 1, "{said}");
        }
        bench.fake.quiet().await;
        bench.act(Some(&session), &act).await.unwrap_or_else(|error| panic!("{act:?}: {error}"));
    }
    bench.fake.kill().await;
    for (act, ..) in acts(&session) {
        let failed = bench.act(Some(&session), &act).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::UpstreamUnreachable, "{act:?}: {failed}");
        assert!(!failed.message().contains("may have been done"), "OpenCode did not hear of it: {failed}");
    }
    bench.stop().await;
}

fn prompt(parts: Vec<OrderPart>, withheld: &[&str]) -> Order {
    Order::Prompt { parts, withheld: withheld.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>() }
}

#[tokio::test]
async fn a_note_is_said_under_a_name_of_our_own_and_nobody_answers() {
    let bench = Bench::new();
    let session = bench.session("ses_a");
    let order = prompt(vec![OrderPart::Agent("plan".to_owned()), OrderPart::Content], &["bash"]);
    let input = [Input::Text("remember".to_owned())];
    let options = PromptOptions { model: ModelName::parse("scripted/vision"), ..PromptOptions::default() };
    bench.agent.note(&session, &order, &input, &options).await.unwrap();
    bench.fake.quiet().await;
    let mut body = bench.fake.prompts().last().unwrap().body.clone();
    let name = body["messageID"].take();
    assert!(name.as_str().is_some_and(|name| name.starts_with("msg_") && name.len() > 20), "{name}");
    let expected = json!({
        "messageID": null, "model": {"providerID": "scripted", "modelID": "vision"}, "noReply": true,
        "tools": {"bash": false},
        "parts": [{"type": "agent", "name": "plan"}, {"type": "text", "text": "remember"}],
    });
    assert_eq!(body, expected);
    assert!(bench.fake.messages("ses_a").iter().all(|message| message["info"]["role"] == "user"));

    // It would be the session's model from then on, and every later prompt would fail.
    let unknown = PromptOptions { model: ModelName::parse("no/model"), ..PromptOptions::default() };
    let said = bench.fake.prompts().len();
    assert_eq!(refused_field(bench.agent.note(&session, &order, &input, &unknown).await), "request.model");
    assert_eq!(bench.fake.prompts().len(), said);
    for (fault, kind) in [
        (Fault::Html, ErrorKind::UpstreamPayloadError),
        (Fault::Body("true"), ErrorKind::UpstreamPayloadError),
        (Fault::Status(400), ErrorKind::UpstreamHttpError),
        (Fault::CutAfter, ErrorKind::UpstreamUnreachable),
    ] {
        bench.fake.fault_once("POST", "/prompt_async", fault);
        let failed = bench.agent.note(&session, &order, &input, &options).await.unwrap_err();
        assert_eq!(failed.kind(), kind, "{failed}");
    }
    bench.fake.forget_session("ses_a");
    let gone = bench.agent.note(&session, &order, &input, &options).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::SessionNotFound);
    bench.stop().await;
}

/// For one whose answer was lost.
#[tokio::test]
async fn a_fork_is_found_by_its_title_its_time_and_its_messages() {
    let bench = Bench::new();
    let session = bench.session("ses_a");
    for (name, created) in [("msg_a1", 5), ("msg_a2", 6), ("msg_a3", 7)] {
        bench.message(&session, name, json!({"time": {"created": created}}), &[]).await;
    }
    let before = MessageRef::parse("msg_a3").unwrap();
    let fork = |before| ControlCommand::Fork { session: session.id.clone(), before };
    let forks = async |before, since| bench.agent.forks(&session, before, Timestamp(since)).await.unwrap();
    assert_eq!(forks(None, 0).await, []);
    bench.fake.fault_once("POST", "/fork", Fault::CutAfter);
    let lost = bench.act(Some(&session), &fork(None)).await.unwrap_err();
    assert!(lost.may_be_done(), "{lost:?}");
    let copy = |more: Value| {
        let mut info = json!({"title": "ses_a (fork #1)"});
        for (name, value) in more.as_object().expect("an object") {
            info[name] = value.clone();
        }
        info
    };
    // Of another time, place, title or session.
    bench.session_like("ses_old", &copy(json!({})));
    bench.session_like("ses_else", &copy(json!({"directory": format!("{}/sub", bench.root())})));
    bench.session_like("ses_named", &json!({"title": "About something else"}));
    bench.session_like("ses_below", &copy(json!({"parentID": "ses_a"})));
    let found = forks(None, 1_000_000).await;
    let [found] = found.as_slice() else { panic!("one: {found:?}") };
    assert!(!["ses_a", "ses_old", "ses_else", "ses_named", "ses_below"].contains(&found.id.as_str()));
    assert_eq!(found.directory, session.directory);
    assert_eq!(forks(None, i64::MAX / 2).await, []);
    // It has more than what came before the last message.
    assert_eq!(forks(Some(&before), 1_000_000).await, []);
    bench.fake.fault_once("POST", "/fork", Fault::CutAfter);
    bench.act(Some(&session), &fork(Some(before.clone()))).await.unwrap_err();
    let shorter = forks(Some(&before), 1_000_000).await;
    assert_eq!(shorter.len(), 1, "{shorter:?}");
    assert_ne!(shorter[0].id, found.id);
    assert_eq!(forks(None, 1_000_000).await, std::slice::from_ref(found));
    bench.stop().await;
}

/// Whoever else has a session of the same title may fork it at the same moment.
#[tokio::test]
async fn a_fork_of_another_session_with_the_same_title_is_none() {
    let bench = Bench::new();
    let session = bench.session("ses_a");
    bench.message(&session, "msg_a1", json!({"time": {"created": 5}}), &[]).await;
    let theirs = bench.session_like("ses_b", &json!({"title": "ses_a"}));
    let empty = bench.session_like("ses_c", &json!({"title": "ses_a"}));
    bench.message(&theirs, "msg_b1", json!({"time": {"created": 6}}), &[]).await;
    for other in [&theirs, &empty] {
        let fork = ControlCommand::Fork { session: other.id.clone(), before: None };
        let ControlResult::Session(made) = bench.act(Some(other), &fork).await.unwrap() else {
            panic!("no session")
        };
        assert_eq!(made.title, "ses_a (fork #1)");
        assert_eq!(bench.agent.forks(&session, None, Timestamp(0)).await.unwrap(), []);
    }
    bench.stop().await;
}
