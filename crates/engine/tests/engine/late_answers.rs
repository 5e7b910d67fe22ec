//! Late and repeated answers: one message answers one ask, and is never used as a prompt.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::{AskConfig, EngineConfig};
use longshore_model::{
    AgentEvent, AskKind, Error, ErrorKind, Failure, Json, ListTasks, Outcome, Part, Principal, Resolution,
    SendMessage, SessionId, TaskId, TaskState,
};
use longshore_testkit::scripted_agent::{StartedTurn, permission};

use crate::asks::{asking, on, once, refused, reject, request};
use crate::harness::{Harness, alice, all_tasks, start, start_with};

#[tokio::test]
async fn an_answer_to_a_closed_ask_is_refused_and_not_a_prompt() {
    let mut h = start();
    let (task, mut turn) = asking(&mut h).await;
    h.agent.refuse_next(Error::new(ErrorKind::InterruptNotFound, "unknown"));
    assert_eq!(refused(&h, "alice", "per_1", once()).await, ErrorKind::InterruptNotFound);
    let named = Json::from_value(&serde_json::json!({"request_id": "per_1", "reply": "once"}));
    let late = [Part::text(" Once "), Part::text("reject"), Part::data(named)];
    for (part, id) in late.into_iter().zip(["late-1", "late-2", "late-3"]) {
        let refused = h.engine.send(&alice(), on(&task, id, part)).await.expect_err("it is too late");
        assert_eq!(refused.kind(), ErrorKind::InterruptNotFound, "{id}: {refused:?}");
    }
    // A message that says more than an answer joins the turn, as the first message that the agent gets.
    let more = on(&task, "more", Part::text("once more, with feeling"));
    let caller = alice();
    let (sent, (_, heard)) = tokio::join!(h.engine.send(&caller, more), turn.joined());
    sent.expect("it joins");
    assert!(format!("{heard:?}").contains("with feeling"), "{heard:?}");
}

#[tokio::test]
async fn a_repeated_answer_is_attached_and_not_given_twice() {
    let mut h = start();
    let (task, turn) = asking(&mut h).await;
    let answer = on(&task, "answer", Part::text("once"));
    h.engine.send(&alice(), answer.clone()).await.unwrap();
    let again = h.engine.send(&alice(), answer.clone()).await.unwrap();
    turn.complete().await;
    h.engine.settled(&alice(), again.reader).await.unwrap();
    h.engine.send(&alice(), answer).await.unwrap();
    assert_eq!(h.agent.log().replied.len(), 1);
}

/// A gateway that died when the agent had the answer to `per_1` and the log did not, and the next gateway on the same store.
async fn killed_at_answer(answer: fn(&TaskId) -> SendMessage) -> (Harness, TaskId, StartedTurn) {
    let mut h = start();
    let (task, _turn) = asking(&mut h).await;
    let (h, turn) = kill_at(h, answer(&task)).await;
    (h, task, turn)
}

/// The same for any answer.
async fn kill_at(h: Harness, answer: SendMessage) -> (Harness, StartedTurn) {
    kill_with(h, answer, EngineConfig::default()).await
}

async fn kill_with(h: Harness, answer: SendMessage, config: EngineConfig) -> (Harness, StartedTurn) {
    h.agent.replies.hold();
    let engine = h.engine.clone();
    let giving = h.tasks.spawn("giving", async move { engine.send(&alice(), answer).await.map(drop) });
    while h.agent.log().replied.is_empty() {
        tokio::task::yield_now().await;
    }
    let store = h.stop().await;
    giving.abort();
    let mut h = start_with(store, config);
    h.engine.recover().await.expect("unfinished tasks are taken up");
    let turn = h.turn().await;
    (h, turn)
}

#[tokio::test]
async fn an_answer_that_arrived_before_the_gateway_died_is_not_a_prompt_when_repeated() {
    let answer = |task: &TaskId| on(task, "answer", Part::text("once"));
    let (h, task, turn) = killed_at_answer(answer).await;
    turn.report(AgentEvent::AskClosed { request_id: request("per_1"), resolution: Resolution::Elsewhere })
        .await;
    while h.task(&task).await.status.state != TaskState::Working {
        tokio::task::yield_now().await;
    }
    let again = h.engine.send(&alice(), answer(&task)).await.unwrap();
    turn.complete().await;
    let done = h.engine.settled(&alice(), again.reader).await.unwrap();
    assert_eq!(done.task.status.state, TaskState::Completed);
    assert_eq!(done.task.history.len(), 1, "the answer joined as a prompt");
    assert_eq!(h.agent.log().replied.len(), 0);
}

#[tokio::test]
async fn a_repeated_answer_answers_only_its_original_ask() {
    let answer = |task: &TaskId| on(task, "answer", Part::text("once"));
    let (h, task, turn) = killed_at_answer(answer).await;
    turn.report(AgentEvent::AskClosed { request_id: request("per_1"), resolution: Resolution::Elsewhere })
        .await;
    turn.ask("per_2").await;
    while h.engine.open_asks(&alice(), AskKind::Permission).await.unwrap()[0].ask.request_id
        != request("per_2")
    {
        tokio::task::yield_now().await;
    }
    h.engine.send(&alice(), answer(&task)).await.unwrap();
    assert_eq!(h.agent.log().replied.len(), 0);
    // An answer that the agent never got is given again, even beside another open ask.
    let (h, task, turn) = killed_at_answer(answer).await;
    turn.ask("per_2").await;
    while h.engine.open_asks(&alice(), AskKind::Permission).await.unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    h.engine.send(&alice(), answer(&task)).await.unwrap();
    assert_eq!(h.agent.log().replied, [(request("per_1"), once())]);
}

/// The task of the sub-agent that asks `per_1`.
async fn sub_agent_asking(h: &mut Harness) -> (TaskId, StartedTurn) {
    h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.call_child("ses_child", "call_1", "x").await;
    sub_agent_asks(&turn, "per_1").await;
    let query = ListTasks { state: Some(TaskState::InputRequired), ..all_tasks(Some("c")) };
    loop {
        let listed = h.engine.list(&alice(), query.clone()).await.expect("a list").tasks;
        if let Some(child) = listed.into_iter().find(|task| task.parent.is_some()) {
            return (child.id, turn);
        }
        tokio::task::yield_now().await;
    }
}

async fn sub_agent_asks(turn: &StartedTurn, name: &str) {
    turn.report(AgentEvent::Asked(Box::new(permission(
        &SessionId::parse("ses_child").expect("an id"),
        name,
    ))))
    .await;
}

async fn closed_elsewhere(turn: &StartedTurn, name: &str) {
    let (request_id, resolution) = (request(name), Resolution::Elsewhere);
    turn.report(AgentEvent::AskClosed { request_id, resolution }).await;
}

/// Waits until the task has exactly these open asks.
async fn asks(h: &Harness, task: &TaskId, names: &[&str]) {
    let open = async || {
        let open = h.task(task).await.open_asks;
        open.iter().map(|open| open.request_id.as_str().to_owned()).collect::<Vec<_>>()
    };
    while open().await != names {
        tokio::task::yield_now().await;
    }
}

async fn refusal(h: &Harness, command: SendMessage) -> ErrorKind {
    let (caller, time) = (alice(), Duration::from_secs(10));
    let sent = tokio::time::timeout(time, h.engine.send(&caller, command)).await.expect("an answer in time");
    sent.expect_err("a refusal").kind()
}

#[tokio::test]
async fn a_repeated_answer_to_a_sub_agent_answers_only_its_original_ask() {
    let mut h = start();
    let (child, turn) = sub_agent_asking(&mut h).await;
    let answer = on(&child, "answer", Part::text("once"));
    h.engine.send(&alice(), answer.clone()).await.unwrap();
    asks(&h, &child, &[]).await;
    let again = h.engine.send(&alice(), answer.clone()).await.expect("it was taken");
    assert_eq!(again.task, child);
    sub_agent_asks(&turn, "per_2").await;
    asks(&h, &child, &["per_2"]).await;
    h.engine.send(&alice(), answer.clone()).await.expect("it was taken");
    assert_eq!(h.agent.log().replied, [(request("per_1"), once())], "the other ask got no answer");
    turn.complete().await;
    h.reaches(&child, TaskState::Failed).await;
    h.engine.send(&alice(), answer).await.expect("it was taken");
}

#[tokio::test]
async fn an_answer_to_a_sub_agent_in_flight_at_the_gateways_death_is_recognized() {
    let mut h = start();
    let (child, _turn) = sub_agent_asking(&mut h).await;
    let answer = on(&child, "answer", Part::text("once"));
    let (mut h, turn) = kill_at(h, answer.clone()).await;
    closed_elsewhere(&turn, "per_1").await;
    sub_agent_asks(&turn, "per_2").await;
    asks(&h, &child, &["per_2"]).await;
    h.engine.send(&alice(), answer.clone()).await.expect("it may have been taken");
    assert!(h.agent.log().replied.is_empty());
    // An answer that the agent never got is given again.
    h = start();
    let (child, _turn) = sub_agent_asking(&mut h).await;
    let answer = on(&child, "answer", Part::text("once"));
    let (h, turn) = kill_at(h, answer.clone()).await;
    sub_agent_asks(&turn, "per_2").await;
    asks(&h, &child, &["per_1", "per_2"]).await;
    h.engine.send(&alice(), answer).await.expect("it is taken");
    assert_eq!(h.agent.log().replied, [(request("per_1"), once())]);
}

#[tokio::test]
async fn a_refused_answer_is_refused_again_and_answers_nothing_else() {
    for below in [false, true] {
        let mut h = start();
        let (task, turn) = if below { sub_agent_asking(&mut h).await } else { asking(&mut h).await };
        let answer = on(&task, "answer", Part::text("once"));
        h.agent.refuse_next(Error::new(ErrorKind::InterruptNotFound, "unknown"));
        assert_eq!(refusal(&h, answer.clone()).await, ErrorKind::InterruptNotFound);
        asks(&h, &task, &[]).await;
        assert_eq!(
            refusal(&h, answer.clone()).await,
            ErrorKind::InterruptNotFound,
            "the answer is still refused"
        );
        if below {
            sub_agent_asks(&turn, "per_2").await;
        } else {
            turn.ask("per_2").await;
        }
        asks(&h, &task, &["per_2"]).await;
        assert_eq!(refusal(&h, answer.clone()).await, ErrorKind::InterruptNotFound);
        assert_eq!(h.agent.log().replied.len(), 1, "the other ask got no answer");
        turn.complete().await;
        while !h.task(&task).await.status.state.is_terminal() {
            tokio::task::yield_now().await;
        }
        assert_eq!(refusal(&h, answer).await, ErrorKind::InterruptNotFound);
    }
}

#[tokio::test]
async fn refused_words_do_not_answer_a_later_ask() {
    let mut h = start();
    let (task, turn) = asking(&mut h).await;
    turn.ask("per_2").await;
    asks(&h, &task, &["per_1", "per_2"]).await;
    let vague = on(&task, "vague", Part::text("once"));
    assert_eq!(refusal(&h, vague.clone()).await, ErrorKind::InvalidParams);
    assert_eq!(refusal(&h, vague.clone()).await, ErrorKind::InvalidParams, "the same for the same");
    closed_elsewhere(&turn, "per_1").await;
    asks(&h, &task, &["per_2"]).await;
    assert_eq!(refusal(&h, vague).await, ErrorKind::InterruptNotFound);
    closed_elsewhere(&turn, "per_2").await;
    asks(&h, &task, &[]).await;
    let late = on(&task, "late", Part::text("once"));
    assert_eq!(refusal(&h, late.clone()).await, ErrorKind::InterruptNotFound);
    turn.ask("per_3").await;
    asks(&h, &task, &["per_3"]).await;
    assert_eq!(refusal(&h, late).await, ErrorKind::InterruptNotFound);
    assert!(h.agent.log().replied.is_empty(), "no ask got an answer");
    h.engine.send(&alice(), on(&task, "now", Part::text("once"))).await.expect("it is taken");
    assert_eq!(h.agent.log().replied, [(request("per_3"), once())]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_lost_the_race_is_not_accepted() {
    for expires in [false, true] {
        let time_to_live = Some(Duration::from_mins(if expires { 1 } else { 60 }));
        let config = || EngineConfig {
            asks: AskConfig { time_to_live, ..AskConfig::default() },
            ..EngineConfig::default()
        };
        let mut h = start_with(Arc::new(longshore_store::memory()), config());
        let (task, _turn) = asking(&mut h).await;
        let answer = on(&task, "answer", Part::text("once"));
        let (h, _turn) = kill_with(h, answer.clone(), config()).await;
        let expected = if expires {
            while h.task(&task).await.status.state != TaskState::Working {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            ErrorKind::InterruptExpired
        } else {
            h.engine.answer(&alice(), &request("per_1"), reject()).await.unwrap();
            ErrorKind::InterruptNotFound
        };
        assert_eq!(refusal(&h, answer).await, expected);
    }
}

#[tokio::test]
async fn the_same_answer_twice_at_once_is_one() {
    let mut h = start();
    let (task, _turn) = asking(&mut h).await;
    h.agent.replies.hold();
    let answer = on(&task, "answer", Part::text("once"));
    let give = || {
        let (engine, answer) = (h.engine.clone(), answer.clone());
        h.tasks.spawn("answer", async move { engine.send(&alice(), answer).await.map(drop) })
    };
    let first = give();
    while h.agent.log().replied.is_empty() {
        tokio::task::yield_now().await;
    }
    let second = give();
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    h.agent.replies.release(1);
    first.await.unwrap().expect("it is taken");
    second.await.unwrap().expect("it is the same");
    assert_eq!(h.agent.log().replied.len(), 1);
}

#[tokio::test]
async fn a_late_message_that_reads_as_an_answer_never_reaches_the_agent() {
    let mut h = start();
    let (task, turn) = asking(&mut h).await;
    closed_elsewhere(&turn, "per_1").await;
    asks(&h, &task, &[]).await;
    let named = || Part::data(Json::from_value(&serde_json::json!({"request_id": "per_1", "reply": "once"})));
    let late = [
        vec![Part::text("approved"), named()],
        vec![named(), Part::text("approved")],
        vec![Part::text("reject: use the other file")],
        vec![Part::text("reject"), Part::text("use the other file")],
        vec![Part::text("Once")],
    ];
    for (number, parts) in late.iter().enumerate() {
        let mut command = on(&task, &format!("late-{number}"), Part::text(""));
        command.message.parts.clone_from(parts);
        assert_eq!(refusal(&h, command).await, ErrorKind::InterruptNotFound, "{parts:?}");
    }
    // A task that waits for credentials is not retried by an answer.
    turn.report(AgentEvent::Ended(Outcome::AuthRequired(Failure::new("No key.")))).await;
    h.reaches(&task, TaskState::AuthRequired).await;
    let command = on(&task, "late-auth", Part::text("once"));
    assert_eq!(refusal(&h, command).await, ErrorKind::InterruptNotFound);
    assert_eq!(h.agent.log().prompted.len(), 1);
}

#[tokio::test]
async fn in_a_task_that_never_asked_an_answer_is_an_ordinary_message() {
    for word in ["once", "reject", "reject the offer"] {
        let mut h = start();
        let sent = h.send("c", "m1").await;
        let mut turn = h.turn().await;
        let (caller, command) = (alice(), on(&sent.task, "word", Part::text(word)));
        let joining = async { h.engine.send(&caller, command).await.expect("it joins") };
        let both = async { tokio::join!(joining, turn.joined()) };
        let (_, (_, heard)) = tokio::time::timeout(Duration::from_mins(1), both).await.expect("it is heard");
        assert!(format!("{heard:?}").contains(word), "{heard:?}");
    }
}

/// Closes the ask `per_1` of a task in one of the ways in which an answer can lose the race for it.
async fn lose_to(h: &Harness, task: &TaskId, turn: &StartedTurn, winner: &str) {
    let closed = |resolution| AgentEvent::AskClosed { request_id: request("per_1"), resolution };
    match winner {
        "principal" => h.engine.answer(&alice(), &request("per_1"), reject()).await.expect("it is taken"),
        "agent_client" => turn.report(closed(Resolution::Elsewhere)).await,
        "agent" => drop(h.engine.cancel(&alice(), task).await.expect("it is canceled")),
        "deadline" => tokio::time::sleep(Duration::from_mins(61)).await,
        other => panic!("{other}"),
    }
    asks(h, task, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_lost_the_race_learns_who_answered_and_how() {
    for (winner, words, kind, answer) in [
        ("principal", "already answered by you", ErrorKind::InterruptNotFound, Some("reject")),
        ("agent_client", "already answered at the agent", ErrorKind::InterruptNotFound, None),
        ("agent", "closed by the agent", ErrorKind::InterruptNotFound, None),
        ("deadline", "was not answered in time", ErrorKind::InterruptExpired, Some("reject")),
    ] {
        let asks = AskConfig { time_to_live: Some(Duration::from_hours(1)), ..AskConfig::default() };
        let config = EngineConfig { asks, ..EngineConfig::default() };
        let mut h = start_with(Arc::new(longshore_store::memory()), config);
        let (task, turn) = asking(&mut h).await;
        lose_to(&h, &task, &turn, winner).await;
        let named =
            || Part::data(Json::from_value(&serde_json::json!({"request_id": "per_1", "reply": "once"})));
        let mut late =
            vec![h.engine.answer(&alice(), &request("per_1"), once()).await.expect_err("it is too late")];
        // A task that is over takes no message at all.
        if winner != "agent" {
            for (id, part) in [("late-1", named()), ("late-2", Part::text("once"))] {
                late.push(h.engine.send(&alice(), on(&task, id, part)).await.expect_err("it is too late"));
            }
            turn.ask("per_2").await;
            self::asks(&h, &task, &["per_2"]).await;
            let sent = h.engine.send(&alice(), on(&task, "late-3", named())).await;
            late.push(sent.expect_err("another ask is open"));
        }
        for error in late {
            assert_eq!(error.kind(), kind, "{winner}: {error}");
            assert!(
                error.message().contains("per_1") && error.message().contains(words),
                "{winner}: {error}"
            );
            assert_eq!(error.find_detail("answeredBy"), Some(winner), "{error}");
            assert_eq!(error.find_detail("answer"), answer, "{winner}: {error}");
            assert!(error.find_detail("answeredAt").is_some(), "{winner}: {error}");
        }
        let other = h.engine.answer(&Principal::new("bob"), &request("per_1"), once()).await;
        let other = other.expect_err("it is not bob's");
        assert_eq!(other.find_detail("answeredBy"), None, "{winner}: bob may not know: {other}");
    }
}

#[tokio::test]
async fn answers_that_lose_while_they_are_on_their_way_learn_it_too() {
    let mut h = start();
    let (task, turn) = asking(&mut h).await;
    h.agent.replies.hold();
    let engine = h.engine.clone();
    let first =
        h.tasks.spawn("first", async move { engine.answer(&alice(), &request("per_1"), reject()).await });
    while h.agent.log().replied.is_empty() {
        tokio::task::yield_now().await;
    }
    let second = h.engine.answer(&alice(), &request("per_1"), once()).await.expect_err("one at a time");
    assert!(second.message().contains("is being answered already by you"), "{second}");
    assert_eq!(second.find_detail("answer"), Some("reject"));
    h.agent.replies.release(1);
    first.await.unwrap().expect("it is taken");
    // Another client of the agent is faster, and the agent refuses the answer.
    turn.ask("per_2").await;
    asks(&h, &task, &["per_2"]).await;
    h.agent.refuse_next(Error::new(ErrorKind::InterruptNotFound, "unknown"));
    h.agent.replies.release(1);
    let third = h.engine.answer(&alice(), &request("per_2"), once()).await.expect_err("it is too late");
    assert!(third.message().contains("already answered at the agent"), "{third}");
}
