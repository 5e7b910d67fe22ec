//! Asks of peers: shown on the calling task, answered there or by the model.

use std::time::Duration;

use longshore_model::{AskKind, Message, MessageId, Part, Role, TaskState};
use longshore_peers::{AnswerRequest, CallHandle, CallKey, CallRequest, CallState, Tools as _};
use longshore_testkit::scripted_agent::StartedTurn;
use longshore_testkit::stub_agent::{Reply, Request};
use serde_json::{Value, json};

use crate::fixture::{
    Gateway, LONG, alice, answer, caller, config, message, peer, progress, remote, requests, start, status,
    stream, stub, words,
};

/// A peer that sends an ask with this metadata, and completes after the answer.
fn asking(metadata: Value) -> impl Fn(&Request, usize) -> Reply {
    move |_, count| match count {
        0 => stream(&[json!({"task": remote("WORKING", "")}), status("INPUT_REQUIRED", "May I?", &metadata)]),
        _ => answer("Thanks."),
    }
}

pub(crate) fn permission() -> Value {
    json!({"shared": {"interrupt": {"request_id": "per_9", "type": "permission", "phase": "asked", "details": {}}}})
}

pub(crate) async fn answer_on_task(a: &Gateway, task: &longshore_model::TaskId, id: &str, text: &str) {
    let mut command = message(id);
    let id = MessageId::parse(id).unwrap();
    command.message = Message::new(id, Role::User, vec![Part::text(text)]);
    command.message.task_id = Some(task.clone());
    a.engine.send(&alice(), command).await.unwrap();
}

#[tokio::test]
async fn a_permission_of_a_peer_is_asked_on_the_calling_task_and_only_its_user_answers() {
    let b = stub(asking(permission()));
    let mut a = start(config(vec![peer(&b)]));
    let (sent, turn) = a.turn().await;
    let report = a.call_for(&turn, "k", "Do it.", Duration::ZERO).await.unwrap();
    let task = a.reaches(&sent.task, TaskState::InputRequired).await;
    assert_eq!(task.open_asks[0].kind, AskKind::Permission);
    let now = a.calls.status(&caller(&turn), &report.handle, Duration::ZERO, progress().0).await.unwrap();
    assert_eq!(now.state, CallState::AsksUser { question: "May I?".to_owned() });
    let refusal = a.answer(&turn, "k-answer", &report.handle, words("once")).await.unwrap_err();
    assert!(refusal.0.contains("Only the user"), "{refusal:?}");
    answer_on_task(&a, &sent.task, "answer", "once").await;
    let report = a.calls.status(&caller(&turn), &report.handle, LONG, progress().0).await.unwrap();
    assert_eq!((report.state, report.text.as_str()), (CallState::Completed, "Thanks."));
    let sends = requests(&b, "SendStreamingMessage");
    let part = &sends[1].body["params"]["message"]["parts"][0]["data"];
    assert_eq!(*part, json!({"reply": "once", "request_id": "per_9"}));
    assert_eq!(sends[1].body["params"]["message"]["taskId"], "t-1");
    assert!(a.agent.log().replied.is_empty());
    turn.complete().await;
    a.reaches(&sent.task, TaskState::Completed).await;
}

#[tokio::test]
async fn a_question_of_a_peer_may_be_answered_by_the_model() {
    let b = stub(asking(json!({})));
    let mut a = start(config(vec![peer(&b)]));
    let (sent, turn) = a.turn().await;
    let report = a.call(&turn, "k", "Do it.").await.unwrap();
    let task = a.reaches(&sent.task, TaskState::InputRequired).await;
    let asks = vec![task.open_asks[0].request_id.to_string()];
    assert_eq!(report.state, CallState::Asks { asks, question: "May I?".to_owned() });
    let answered = a.answer(&turn, "k-answer", &report.handle, words("Yes.")).await.unwrap();
    assert_eq!(answered.state, CallState::Completed);
    let sends = requests(&b, "SendStreamingMessage");
    assert_eq!(sends[1].body["params"]["message"]["parts"][0]["text"], "Yes.");
    turn.complete().await;
    let task = a.reaches(&sent.task, TaskState::Completed).await;
    assert!(task.open_asks.is_empty());
}

#[tokio::test]
async fn an_answer_that_is_sent_again_or_names_a_closed_ask_does_not_answer_the_next_ask() {
    let b = stub(|_, count| match count {
        0..2 => stream(&[
            json!({"task": remote("WORKING", "")}),
            status("INPUT_REQUIRED", &format!("Question {count}?"), &json!({})),
        ]),
        _ => answer("Thanks."),
    });
    let mut a = start(config(vec![peer(&b)]));
    let (_, turn) = a.turn().await;
    let first = a.call(&turn, "k", "Do it.").await.unwrap();
    let CallState::Asks { asks, .. } = &first.state else { panic!("{first:?}") };
    let of_first = AnswerRequest { ask: asks.first().cloned(), ..words("Yes.") };
    let second = a.answer(&turn, "k-1", &first.handle, of_first.clone()).await.unwrap();
    assert!(
        matches!(&second.state, CallState::Asks { question, .. } if question == "Question 1?"),
        "{second:?}"
    );
    for answer in [words("Yes."), of_first.clone()] {
        assert_eq!(a.answer(&turn, "k-1", &first.handle, answer).await.unwrap(), second);
    }
    let refusal = a.answer(&turn, "k-2", &first.handle, of_first).await.unwrap_err();
    assert!(refusal.0.contains("does not wait for an answer to this ask"), "{refusal:?}");
    assert_eq!(requests(&b, "SendStreamingMessage").len(), 2);
    let third = a.answer(&turn, "k-3", &first.handle, words("Yes.")).await.unwrap();
    assert_eq!(third.state, CallState::Completed);
    // The repeated answer also has no effect after the end of the call.
    assert_eq!(a.answer(&turn, "k-3", &first.handle, words("Yes.")).await.unwrap(), third);
}

#[tokio::test]
async fn a_question_of_a_peer_may_be_answered_on_the_task() {
    let b = stub(asking(json!({})));
    let mut a = start(config(vec![peer(&b)]));
    let (sent, turn) = a.turn().await;
    let report = a.call(&turn, "k", "Do it.").await.unwrap();
    a.reaches(&sent.task, TaskState::InputRequired).await;
    answer_on_task(&a, &sent.task, "answer", "The second.").await;
    let report = a.calls.status(&caller(&turn), &report.handle, LONG, progress().0).await.unwrap();
    assert_eq!(report.state, CallState::Completed);
    let sends = requests(&b, "SendStreamingMessage");
    assert_eq!(sends[1].body["params"]["message"]["parts"][0]["text"], "The second.");
}

#[tokio::test]
async fn a_peer_that_asks_for_ever_is_canceled() {
    let b = stub(|request, count| match request.rpc() {
        "CancelTask" => Reply::result(&remote("CANCELED", "")),
        _ => stream(&[
            json!({"task": remote("WORKING", "")}),
            status("INPUT_REQUIRED", &format!("Question {count}?"), &json!({})),
        ]),
    });
    let mut b_peer = peer(&b);
    b_peer.limits.asks = 2;
    let mut a = start(config(vec![b_peer]));
    let (_, turn) = a.turn().await;
    let mut report = a.call(&turn, "k", "Do it.").await.unwrap();
    for number in 0..2 {
        assert!(matches!(report.state, CallState::Asks { .. }), "{report:?}");
        report = a.answer(&turn, &format!("k-{number}"), &report.handle, words("Yes.")).await.unwrap();
    }
    let CallState::Failed { reason } = report.state else { panic!("{report:?}") };
    assert!(reason.contains("more often than the 2 times"), "{reason}");
    assert_eq!(requests(&b, "CancelTask").len(), 1);
}

fn named(id: &str, phase: &str) -> Value {
    json!({"shared": {"interrupt": {"request_id": id, "type": "permission", "phase": phase, "details": {}}}})
}

/// Two events: a status without the ask, and the artifact `last`, which the tests wait for.
fn notes(text: &str) -> [Value; 2] {
    let artifact = json!({"artifactId": "last", "parts": [{"data": {"tool": "last"}}]});
    [
        status("INPUT_REQUIRED", text, &json!({"shared": {"stream": {"sequence": 3}}})),
        json!({"artifactUpdate": {"taskId": "t-1", "contextId": "c-1", "artifact": artifact}}),
    ]
}

/// Makes a call, and returns when the gateway has read the last event of [`notes`].
async fn call_until_last(a: &Gateway, turn: &StartedTurn) -> CallHandle {
    let request =
        CallRequest { peer: "b".to_owned(), text: "Do it.".to_owned(), continues: None, wait: LONG };
    let (lines, mut shown) = progress();
    let (caller, key) = (caller(turn), CallKey("k".to_owned()));
    let last = async { while shown.recv().await.unwrap() != "b: uses last" {} };
    tokio::select! {
        report = a.calls.call(&caller, &key, request.clone(), lines) => panic!("{report:?}"),
        () = last => {}
    }
    let now = CallRequest { wait: Duration::ZERO, ..request };
    a.calls.call(&caller, &key, now, progress().0).await.unwrap().handle
}

async fn peer_asks(a: &Gateway, task: &longshore_model::TaskId, id: &str) {
    let names = |ask: &longshore_model::InterruptNote| {
        let details = ask.details.as_ref().map(longshore_model::Json::to_value);
        ask.kind == AskKind::Permission && details.is_some_and(|details| details["peer_request_id"] == id)
    };
    let task = a.until(task, |task| task.open_asks.iter().any(names)).await;
    assert_eq!(task.open_asks.len(), 1);
}

#[tokio::test]
async fn a_permission_stays_one_when_the_peer_reports_something_else_meanwhile() {
    let b = stub(|_, count| match count {
        0 => {
            let [note, last] = notes("May I?");
            stream(&[
                json!({"task": remote("WORKING", "")}),
                status("INPUT_REQUIRED", "May I?", &permission()),
                note,
                last,
            ])
        }
        _ => answer("Thanks."),
    });
    let mut a = start(config(vec![peer(&b)]));
    let (sent, turn) = a.turn().await;
    let handle = call_until_last(&a, &turn).await;
    peer_asks(&a, &sent.task, "per_9").await;
    let once = a.answer(&turn, "k-answer", &handle, words("once")).await;
    assert!(once.unwrap_err().0.contains("Only the user"));
    assert_eq!((requests(&b, "GetTask").len(), requests(&b, "SendStreamingMessage").len()), (0, 1));
}

/// The peer's status message shows its newest ask, but the metadata of its task names the oldest.
#[tokio::test]
async fn two_permissions_of_a_peer_are_asked_one_after_the_other() {
    let b = stub(|request, count| {
        let waiting = |id: &str| {
            let mut task = remote("INPUT_REQUIRED", "");
            task["metadata"] = named(id, "asked");
            Reply::result(&task)
        };
        match (request.rpc(), count) {
            ("GetTask", 0) => waiting("per_1"),
            ("GetTask", _) => waiting("per_2"),
            (_, 0) => {
                let [note, last] = notes("May I write?");
                stream(&[
                    json!({"task": remote("WORKING", "")}),
                    status("INPUT_REQUIRED", "May I read?", &named("per_1", "asked")),
                    status("INPUT_REQUIRED", "May I write?", &named("per_2", "asked")),
                    note,
                    last,
                ])
            }
            (_, 1) => stream(&[status("INPUT_REQUIRED", "May I read?", &named("per_1", "resolved"))]),
            _ => answer("Thanks."),
        }
    });
    let mut a = start(config(vec![peer(&b)]));
    let (sent, turn) = a.turn().await;
    let handle = call_until_last(&a, &turn).await;
    for (number, id) in ["per_1", "per_2"].into_iter().enumerate() {
        peer_asks(&a, &sent.task, id).await;
        answer_on_task(&a, &sent.task, &format!("answer{number}"), "once").await;
    }
    let report = a.calls.status(&caller(&turn), &handle, LONG, progress().0).await.unwrap();
    assert_eq!(report.state, CallState::Completed);
    let answers = requests(&b, "SendStreamingMessage").split_off(1);
    let ids: Vec<_> = answers
        .iter()
        .map(|request| request.body["params"]["message"]["parts"][0]["data"]["request_id"].clone())
        .collect();
    assert_eq!(ids, ["per_1", "per_2"]);
}
