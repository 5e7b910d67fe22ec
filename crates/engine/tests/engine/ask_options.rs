//! Permission requests of an agent that has options of its own.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::{AlwaysScope, AskConfig, DeadlinePolicy, EngineConfig};
use longshore_model::{
    Action, AgentEvent, Answer, Ask, AskKind, AskOption, AskOptions, ErrorKind, Json, OptionKind, Part,
    PermissionReply, PermissionRequest, RequestId, Resolution, Result, TaskId, TaskState,
};
use longshore_testkit::scripted_agent::{StartedTurn, permission};

use crate::approvals::{is_asked, replies, turn_of};
use crate::asks::{on, request};
use crate::harness::{Harness, alice, reason_of, start_plain, start_with};

fn options(offered: &[(&str, &str, OptionKind)]) -> AskOptions {
    AskOptions::new(offered.iter().map(|(id, name, kind)| AskOption {
        id: (*id).to_owned(),
        name: (*name).to_owned(),
        kind: *kind,
    }))
}

/// The options of Qwen Code for a shell command.
fn qwen() -> AskOptions {
    options(&[
        ("proceed_always_project", "Always Allow in project: touch *", OptionKind::AllowAlways),
        ("proceed_always_user", "Always Allow for user: touch *", OptionKind::AllowAlways),
        ("proceed_once", "Allow", OptionKind::AllowOnce),
        ("cancel", "Reject", OptionKind::RejectOnce),
    ])
}

async fn ask(turn: &StartedTurn, name: &str, options: AskOptions) {
    let command = || vec!["touch a".to_owned()];
    let wanted = PermissionRequest {
        permission: "bash".to_owned(),
        patterns: command(),
        always: command(),
        action: Action::default(),
    };
    let asked =
        Ask { permission: Some(Box::new(wanted)), options, ..permission(&turn.request.session.id, name) };
    turn.report(AgentEvent::Asked(Box::new(asked))).await;
}

/// A turn in which the agent asks with these options.
async fn asking(asks: AskConfig, options: AskOptions) -> (Harness, TaskId, StartedTurn) {
    let config = EngineConfig { asks, ..EngineConfig::default() };
    let mut h = start_with(Arc::new(longshore_store::memory()), config);
    let (task, turn) = turn_of(&mut h, &alice(), "c", "m1").await;
    ask(&turn, "per_1", options).await;
    (h, task, turn)
}

fn kept_by(always: AlwaysScope) -> AskConfig {
    AskConfig { always, ..AskConfig::default() }
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Words,
    Data,
    Method,
}

/// Answers `per_1`.
async fn answer(h: &Harness, task: &TaskId, way: Way, text: &str) -> Result<()> {
    let data = Json::from_value(&serde_json::json!({"request_id": "per_1", "option": text}));
    let part = match way {
        Way::Words => Part::text(text),
        Way::Data => Part::data(data),
        Way::Method => {
            return h.engine.answer(&alice(), &request("per_1"), Answer::permission(text, None)).await;
        }
    };
    h.engine.send(&alice(), on(task, "answer", part)).await.map(drop)
}

fn word(reply: PermissionReply) -> Answer {
    Answer::Permission { reply, message: None }
}

fn option(id: &str) -> Answer {
    Answer::PermissionOption { option: id.to_owned(), message: None }
}

/// The option that the agent takes for the answers that it got.
fn taken(h: &Harness) -> Vec<(RequestId, String)> {
    let options = qwen();
    let chosen = |answer: &Answer| match answer {
        Answer::Permission { reply, .. } => {
            options.choose(*reply).ok().flatten().expect("it is offered").id.clone()
        }
        Answer::PermissionOption { option, .. } => options.named(option).expect("it is offered").id.clone(),
        other => panic!("{other:?}"),
    };
    h.agent.log().replied.iter().map(|(ask, answer)| (ask.clone(), chosen(answer))).collect()
}

#[tokio::test]
async fn words_ids_and_names_reach_the_agent_as_its_own_option() {
    use AlwaysScope::{Agent, Session};
    for (scope, text, sent, taken_option, resolution) in [
        (Session, "once", word(PermissionReply::Once), "proceed_once", Resolution::Replied),
        (Session, "reject", word(PermissionReply::Reject), "cancel", Resolution::Rejected),
        (Session, "always", word(PermissionReply::Once), "proceed_once", Resolution::Replied),
        (Session, "allow", option("proceed_once"), "proceed_once", Resolution::Replied),
        (Session, "cancel", option("cancel"), "cancel", Resolution::Rejected),
        (
            Agent,
            "proceed_always_user",
            option("proceed_always_user"),
            "proceed_always_user",
            Resolution::Replied,
        ),
        (
            Agent,
            "Always Allow in project: touch *",
            option("proceed_always_project"),
            "proceed_always_project",
            Resolution::Replied,
        ),
    ] {
        for way in [Way::Words, Way::Data, Way::Method] {
            let (h, task, _turn) = asking(kept_by(scope), qwen()).await;
            is_asked(&h, &alice(), "per_1").await;
            answer(&h, &task, way, text).await.expect(text);
            assert_eq!(h.agent.log().replied, [(request("per_1"), sent.clone())], "{text} {way:?}");
            assert_eq!(taken(&h), [(request("per_1"), taken_option.to_owned())], "{text} {way:?}");
            let closed =
                h.store.interrupt(&alice(), &request("per_1")).await.unwrap().unwrap().closed.unwrap();
            assert_eq!(closed.resolution, resolution, "{text} {way:?}");
            // The gateway keeps the word only. The agent keeps its own options.
            let kept = usize::from(text == "always");
            assert_eq!(h.engine.approvals(&alice()).await.unwrap().len(), kept, "{text} {way:?}");
        }
    }
}

#[tokio::test]
async fn a_refused_option_leaves_the_ask_open() {
    use AlwaysScope::{Agent, Session};
    for (scope, text, words) in [
        (Session, "proceed_always_user", "control.always_scope"),
        (Session, "Always Allow for user: touch *", "proceed_once (Allow), cancel (Reject)"),
        (Session, "perhaps", "proceed_always_user (Always Allow for user: touch *), proceed_once (Allow)"),
        (Agent, "perhaps", "proceed_always_user (Always Allow for user: touch *), proceed_once (Allow)"),
        // Two options of the agent would fit.
        (Agent, "always", "proceed_always_user (Always Allow for user: touch *), proceed_once (Allow)"),
    ] {
        for way in [Way::Words, Way::Data, Way::Method] {
            let (h, task, _turn) = asking(kept_by(scope), qwen()).await;
            is_asked(&h, &alice(), "per_1").await;
            let error = answer(&h, &task, way, text).await.expect_err(text);
            assert_eq!(error.kind(), ErrorKind::InvalidParams, "{text} {way:?}");
            assert!(error.message().contains(words), "{text} {way:?}: {error}");
            assert_eq!(h.agent.log().replied, [], "{text} {way:?}");
            assert_eq!(h.task(&task).await.status.state, TaskState::InputRequired);
            h.engine.answer(&alice(), &request("per_1"), option("proceed_once")).await.expect("it is open");
        }
    }
}

#[tokio::test]
async fn the_name_of_an_option_that_comes_too_late_is_told_so() {
    let mut h = start_plain(Arc::new(longshore_store::memory()), EngineConfig::default());
    let (task, turn) = turn_of(&mut h, &alice(), "c", "m1").await;
    let send = async |id: &str, text: &str| {
        h.engine.send(&alice(), on(&task, id, Part::text(text))).await.expect_err(text).kind()
    };
    // Before the first ask it is text like any other, for which this agent has no time.
    assert_eq!(send("m2", "Allow").await, ErrorKind::UnsupportedOperation);
    ask(&turn, "per_1", qwen()).await;
    is_asked(&h, &alice(), "per_1").await;
    h.engine.answer(&alice(), &request("per_1"), option("cancel")).await.unwrap();
    for (id, text, kind) in [
        ("m3", "Allow", ErrorKind::InterruptNotFound),
        ("m4", " proceed_once", ErrorKind::InterruptNotFound),
        ("m5", "Allow the other one", ErrorKind::UnsupportedOperation),
    ] {
        assert_eq!(send(id, text).await, kind, "{text}");
    }
}

#[tokio::test]
async fn always_answers_the_next_same_ask_with_the_option_that_allows_once() {
    let (h, task, turn) = asking(AskConfig::default(), qwen()).await;
    is_asked(&h, &alice(), "per_1").await;
    answer(&h, &task, Way::Words, "always").await.unwrap();
    ask(&turn, "per_2", qwen()).await;
    replies(&h, 2).await;
    let once = |name| (request(name), "proceed_once".to_owned());
    assert_eq!(taken(&h), [once("per_1"), once("per_2")]);
    // An agent that offers nothing that allows once cannot be answered so: its owner is asked.
    ask(&turn, "per_3", options(&[("yes", "Yes", OptionKind::AllowAlways)])).await;
    is_asked(&h, &alice(), "per_3").await;
    assert_eq!(h.agent.log().replied.len(), 2);
}

#[tokio::test]
async fn the_ask_shows_the_options_that_may_be_named() {
    let all = "proceed_always_project (Always Allow in project: touch *), \
               proceed_always_user (Always Allow for user: touch *), proceed_once (Allow), cancel (Reject)";
    for (scope, how) in [
        (
            AlwaysScope::Session,
            "once, always, reject, or name an option: proceed_once (Allow), cancel (Reject). always:",
        ),
        (AlwaysScope::Agent, &format!("once, reject, or name an option: {all}. The agent keeps")),
    ] {
        let (h, task, _turn) = asking(kept_by(scope), qwen()).await;
        is_asked(&h, &alice(), "per_1").await;
        let waiting = h.task(&task).await;
        assert!(reason_of(&waiting).contains(how), "{}", reason_of(&waiting));
        assert_eq!(waiting.open_asks[0].options, qwen());
        let listed = h.engine.open_asks(&alice(), AskKind::Permission).await.unwrap();
        assert_eq!(listed[0].ask.options, qwen());
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_rejects_if_the_agent_offers_nothing_that_allows_once() {
    let only_always =
        options(&[("yes", "Yes", OptionKind::AllowAlways), ("no", "No", OptionKind::RejectOnce)]);
    for (options, expected) in [(qwen(), PermissionReply::Once), (only_always, PermissionReply::Reject)] {
        let asks = AskConfig {
            time_to_live: Some(Duration::from_secs(1)),
            at_deadline: DeadlinePolicy::Once,
            ..AskConfig::default()
        };
        let (h, _task, _turn) = asking(asks, options).await;
        replies(&h, 1).await;
        assert_eq!(h.agent.log().replied, [(request("per_1"), word(expected))]);
    }
}
