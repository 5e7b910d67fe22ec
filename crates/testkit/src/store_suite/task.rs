//! One task: who can read it, its head, and its fold.

use std::sync::Arc;

use longshore_engine::port::{Append, Create, Head, StoredTask, TurnRecord};
use longshore_model::{OutputModes, Seq, TaskEvent, TaskState};

use super::Fixture;
use super::make::{
    ada, append, appended, chunk, context_id, create, folded, made, owner, prompt_id, status, submitted,
    task_id, turn,
};

pub(super) async fn a_foreign_task_is_not_found(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("adas")).await;
    made(&store, Create { owner: owner("bob"), ..create("bobs") }).await;
    let cases = [
        ("ada", "adas", true),
        ("ada", "bobs", false),
        ("bob", "adas", false),
        ("bob", "bobs", true),
        ("ADA", "adas", false),
        ("ada", "none", false),
        ("nobody", "adas", false),
    ];
    for (who, id, sees) in cases {
        let (who_asks, task) = (owner(who), task_id(id));
        let got = store.get(&who_asks, &task).await.expect("a read");
        assert_eq!(got.map(|stored| stored.task.id), sees.then(|| task.clone()), "{who} gets {id}");
        let head = store.head(&who_asks, &task).await.expect("a read");
        assert_eq!(head.is_some(), sees, "{who} asks for the head of {id}");
    }
}

pub(super) async fn the_head_follows_the_log(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("t")).await;
    let steps = [
        (vec![], TaskState::Submitted),
        (vec![status(TaskState::Working, 2), chunk("a")], TaskState::Working),
        (vec![chunk("b")], TaskState::Working),
        (vec![status(TaskState::Working, 3), status(TaskState::InputRequired, 3)], TaskState::InputRequired),
        (vec![chunk("c"), status(TaskState::Canceled, 4)], TaskState::Canceled),
    ];
    let mut seq = Seq(1);
    for (events, state) in steps {
        if !events.is_empty() {
            let head = seq.plus(events.len());
            appended(&store, append("t", seq.0, events)).await;
            seq = head;
        }
        let head = store.head(&ada(), &task_id("t")).await.expect("a read");
        let output = OutputModes::default();
        let (context, epoch, first) = (context_id("c"), store.epoch(), Seq(1));
        assert_eq!(head, Some(Head { context, seq, epoch, first, state, output }));
    }
}

pub(super) async fn the_head_contains_the_accepted_output_modes(fixture: &dyn Fixture) {
    let store = fixture.open();
    let cases: [(&str, &[&str]); 3] =
        [("any", &[]), ("text", &["text/plain"]), ("more", &["text/*", "image/png"])];
    for (name, modes) in cases {
        let output = OutputModes::new(modes.iter().copied());
        let mut create = create(name);
        if let TaskEvent::Submitted { options, .. } = &mut create.first {
            options.output = output.clone();
        }
        made(&store, create).await;
        appended(&store, append(name, 1, vec![chunk("x"), status(TaskState::Completed, 2)])).await;
        let head = store.head(&ada(), &task_id(name)).await.expect("a read").expect("it is there");
        assert_eq!(head.output, output);
    }
}

pub(super) async fn a_task_is_folded_to_its_head(fixture: &dyn Fixture) {
    let store = fixture.open();
    let events = [
        submitted("c", 1),
        status(TaskState::Working, 2),
        chunk("one "),
        chunk("two "),
        status(TaskState::InputRequired, 3),
        chunk("three"),
        status(TaskState::Completed, 4),
    ];
    // Each bit of the number decides whether the batch that ends there comes with a snapshot.
    for with_snapshot in [0_usize, 0b10, 0b1010, 0b100_0000, 0b111_1110] {
        let name = format!("t{with_snapshot}");
        made(&store, create(&name)).await;
        let id = task_id(&name);
        for index in 1..events.len() {
            let task = folded(&id, &events[..=index]);
            let snapshot = (with_snapshot >> index & 1 == 1).then(|| Arc::new(task.clone()));
            appended(&store, Append { snapshot, ..append(&name, index as u64, vec![events[index].clone()]) })
                .await;
            let stored = store.get(&ada(), &id).await.expect("a read");
            let seq = Seq(index as u64 + 1);
            let (owner, epoch) = (ada(), store.epoch());
            let expected = StoredTask { owner, task, seq, epoch, turn: None, open_asks: Vec::new() };
            assert_eq!(stored, Some(expected), "{name} at {index}");
        }
    }
}

pub(super) async fn the_newest_turn_is_kept(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("t")).await;
    let kept = async || store.get(&ada(), &task_id("t")).await.expect("a read").expect("it is there").turn;
    assert_eq!(kept().await, None);
    let first = Some(turn("ses_1", "msg_1"));
    appended(&store, Append { turn: first.clone(), ..append("t", 1, vec![chunk("a")]) }).await;
    assert_eq!(kept().await, first);
    // A batch without a turn keeps the turn.
    appended(&store, append("t", 2, vec![chunk("b")])).await;
    assert_eq!(kept().await, first);
    let second = Some(turn("ses_2", "msg_2"));
    appended(&store, Append { turn: second.clone(), ..append("t", 3, vec![chunk("c")]) }).await;
    assert_eq!(kept().await, second);
    // Prompts that join the turn, and then none.
    for joined in [&["msg_4", "msg_3"][..], &["msg_5"], &[]] {
        let seq = store.head(&ada(), &task_id("t")).await.expect("a read").expect("it is there").seq;
        let joined = joined.iter().map(|id| prompt_id(id)).collect();
        let record = Some(TurnRecord { joined, ..turn("ses_2", "msg_2") });
        appended(&store, Append { turn: record.clone(), ..append("t", seq.0, vec![chunk("x")]) }).await;
        assert_eq!(kept().await, record);
    }
    // A refused append changes nothing.
    let late = Append { turn: first, ..append("t", 1, vec![chunk("d")]) };
    store.append(late).await.expect("a conflict is no error");
    assert_eq!(kept().await, second);
}
