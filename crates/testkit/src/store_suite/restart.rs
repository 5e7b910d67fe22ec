//! What the gateway finds when it starts again.

use std::sync::Arc;

use longshore_engine::port::{
    Append, Appended, Bound, Create, Created, EndedTurn, ListQuery, Store, TurnRecord,
};
use longshore_model::{Seq, TaskState, Timestamp};

use super::Fixture;
use super::make::{
    ada, append, appended, binding, child, chunk, context_id, create, create_in, everything, existing, file,
    file_id, made, owner, prompt_id, session, session_id, status, task_id, turn,
};

pub(super) async fn unfinished_tasks_come_in_the_order_of_creation(fixture: &dyn Fixture) {
    let store = fixture.open();
    // Sorted neither by name, nor by time, nor by owner.
    let made_in_order = ["m", "z", "a", "k", "b", "y", "q", "c"];
    for (index, name) in (0..).zip(made_in_order) {
        let who = if index % 2 == 0 { "ada" } else { "bob" };
        made(&store, Create { owner: owner(who), ..create_in(name, "c", 100 - index) }).await;
    }
    for (name, state) in made_in_order.into_iter().zip(TaskState::ALL) {
        if state != TaskState::Submitted {
            let turn = Some(turn(&format!("ses_{name}"), &format!("msg_{name}")));
            appended(&store, Append { turn, ..append(name, 1, vec![chunk("x"), status(state, 5)]) }).await;
        }
    }
    let store = fixture.reopen(store);
    let unfinished = store.unfinished().await.expect("a read");
    let names: Vec<_> = unfinished.iter().map(|stored| stored.task.id.as_str()).collect();
    assert_eq!(names, ["m", "z", "a", "k"]);
    for stored in &unfinished {
        let name = stored.task.id.as_str();
        let expected = (name != "m").then(|| turn(&format!("ses_{name}"), &format!("msg_{name}")));
        assert_eq!(stored.turn, expected, "{name}");
        // Complete, as its owner would get it.
        assert_eq!(store.get(&stored.owner, &stored.task.id).await.expect("a read").as_ref(), Some(stored));
    }
}

pub(super) async fn possibly_running_ended_turns_are_listed_newest_first(fixture: &dyn Fixture) {
    let store = fixture.open();
    let ended = [
        ("old", TaskState::Canceled, 99),
        ("canceled", TaskState::Canceled, 100),
        ("failed", TaskState::Failed, 300),
        ("joined", TaskState::Canceled, 200),
        ("completed", TaskState::Completed, 300),
        ("completed_joined", TaskState::Completed, 150),
        ("working", TaskState::Working, 300),
    ];
    for (name, state, at) in ended {
        made(&store, create_in(name, "c", 1)).await;
        let joined = if name.ends_with("joined") { vec![prompt_id("msg_more")] } else { Vec::new() };
        let turn = Some(TurnRecord { joined, ..turn(&format!("ses_{name}"), &format!("msg_{name}")) });
        appended(&store, Append { turn, ..append(name, 1, vec![status(TaskState::Working, 2)]) }).await;
        if state.is_terminal() {
            appended(&store, append(name, 2, vec![status(state, at)])).await;
        }
    }
    // A task without a turn, and a task of a sub-agent.
    made(&store, create_in("waited", "c", 1)).await;
    appended(&store, append("waited", 1, vec![status(TaskState::Canceled, 300)])).await;
    made(&store, Create { context: context_id("c"), ..child("below", "working", "working") }).await;
    let canceled = append("below", 1, vec![status(TaskState::Canceled, 300)]);
    appended(&store, Append { turn: Some(turn("ses_below", "msg_below")), ..canceled }).await;

    let store = fixture.reopen(store);
    let listed = store.ended_turns(Timestamp(100)).await.expect("a read");
    let names: Vec<_> = listed.iter().map(|ended| ended.task.as_str()).collect();
    assert_eq!(names, ["failed", "joined", "completed_joined", "canceled"]);
    for EndedTurn { task, turn: listed } in listed {
        let joined = if task.as_str().ends_with("joined") { vec![prompt_id("msg_more")] } else { Vec::new() };
        assert_eq!(listed, TurnRecord { joined, ..turn(&format!("ses_{task}"), &format!("msg_{task}")) });
    }
}

pub(super) async fn everything_survives_a_restart(fixture: &dyn Fixture) {
    let store = fixture.open();
    for name in ["done", "open"] {
        made(&store, create(name)).await;
        let turn = Some(turn("ses", name));
        appended(&store, Append { turn, ..append(name, 1, vec![status(TaskState::Working, 2)]) }).await;
        appended(&store, append(name, 2, vec![chunk("one "), chunk("two")])).await;
    }
    appended(&store, append("done", 4, vec![status(TaskState::Completed, 3)])).await;
    store.bind(binding("ada", "c", "ses")).await.expect("the session is free");
    made(&store, Create { session: Some(session_id("ses")), ..create_in("named", "d", 1) }).await;
    appended(&store, append("named", 1, vec![status(TaskState::Completed, 3)])).await;
    made(&store, child("below", "open", "open")).await;
    appended(&store, append("below", 1, vec![status(TaskState::Completed, 3)])).await;
    store.put_file(file("done", "f", b"content")).await.expect("a file");
    let bound = |named| Some(Bound { session: session("ses"), named });
    for (context, expected) in [("c", bound(false)), ("d", bound(true))] {
        let found = store.context_location(&ada(), &context_id(context)).await.expect("a read");
        assert_eq!(found.bound, expected, "{context}");
    }

    let before = seen(&store).await;
    let store = fixture.reopen(store);
    assert_eq!(seen(&store).await, before);

    // The store continues where it was.
    let again = store.create(Create { task: task_id("twin"), ..create("open") }).await.expect("a send");
    assert_eq!(again, existing("open"));
    // Owners and bindings of sessions are as before.
    let bobs = Create { owner: owner("bob"), session: Some(session_id("ses")), ..create_in("bobs", "e", 1) };
    assert_eq!(store.create(bobs).await.expect("an answer"), Created::ForeignSession);
    let other = Create { session: Some(session_id("other")), ..create_in("other", "d", 1) };
    assert_eq!(store.create(other).await.expect("an answer"), Created::OtherSession);
    appended(&store, append("open", 4, vec![status(TaskState::Completed, 4)])).await;
    let late = store.append(append("done", 5, vec![chunk("late")])).await.expect("an answer");
    assert_eq!(late, Appended::Terminal);
    made(&store, create("new")).await;
    let names: Vec<_> = store.unfinished().await.expect("a read").into_iter().map(|s| s.task.id).collect();
    assert_eq!(names, [task_id("new")]);
}

/// Every answer of the store, as text.
async fn seen(store: &Arc<dyn Store>) -> Vec<String> {
    let mut seen = Vec::new();
    for name in ["done", "open"] {
        let id = task_id(name);
        seen.push(format!("{:?}", store.get(&ada(), &id).await));
        seen.push(format!("{:?}", store.head(&ada(), &id).await));
        seen.push(format!("{:?}", store.read(&ada(), &id, Seq::START, 100).await));
    }
    for with_artifacts in [false, true] {
        seen.push(format!("{:?}", store.list(ListQuery { with_artifacts, ..everything() }).await));
    }
    for context in ["c", "d"] {
        seen.push(format!("{:?}", store.context_location(&ada(), &context_id(context)).await));
    }
    seen.push(format!("{:?}", store.children(&task_id("open")).await));
    seen.push(format!("{:?}", store.file(&ada(), &file_id("f")).await));
    seen.push(format!("{:?}", store.read_file(&ada(), &file_id("f"), 0, 100).await));
    let id = session_id("ses");
    seen.push(format!("{:?}", store.owner_of(None, &id).await));
    seen.push(format!("{:?}", store.owners(&ada(), vec![id.clone()]).await));
    seen.push(format!("{:?}", store.contexts_of(&ada(), &id).await));
    seen.push(format!("{:?}", store.turn_of(&id, &prompt_id("open")).await));
    seen.push(format!("{:?}", store.recent_sessions(Timestamp(0), 9).await));
    seen.push(format!("{:?}", store.unfinished().await));
    seen
}
