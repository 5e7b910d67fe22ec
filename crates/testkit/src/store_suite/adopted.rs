//! Tasks of turns that run already, and the tasks of prompts.

use std::collections::BTreeSet;
use std::sync::Arc;

use longshore_engine::Tasks;
use longshore_engine::port::{
    Append, Appended, Bound, ContextLocation, Create, Created, Retention, RunningTurn, Store, TurnRecord,
};
use longshore_model::{NativePrompt, Seq, TaskEvent, TaskId, TaskState, Timestamp};

use super::make::{
    ada, append, appended, binding, child, chunk, context_id, create, create_in, everything, folded, log,
    made, owner, prompt_id, session, session_id, status, submitted, task_id, turn,
};
use super::sessions::check_refused;
use super::{Fixture, retention};

/// A task of ada in the context `c` whose turn runs already.
fn begun(task: &str, session_name: &str, prompt: &str) -> Create {
    let begun = RunningTurn { working: status(TaskState::Working, 2), turn: turn(session_name, prompt) };
    Create { idempotency: None, begun: Some(begun), ..create(task) }
}

async fn turn_of(store: &Arc<dyn Store>, session_name: &str, prompt: &str) -> Option<TaskId> {
    store.turn_of(&session_id(session_name), &prompt_id(prompt)).await.expect("a read")
}

fn existing(task: &str, context: &str) -> Created {
    Created::Existing { task: task_id(task), context: context_id(context) }
}

/// The task, its first two events and its turn are stored at once: none of them is ever found without the others, whenever the
/// gateway ends.
pub(super) async fn an_adopted_turn_is_created_with_its_task(fixture: &dyn Fixture) {
    let store = fixture.open();
    store.bind(binding("ada", "c", "ses")).await.expect("the session is free");
    made(&store, begun("t", "ses", "typed")).await;
    let events = [submitted("c", 1), status(TaskState::Working, 2)];
    let mut store = store;
    for is_restarted in [false, true] {
        if is_restarted {
            store = fixture.reopen(store);
        }
        assert_eq!(log(&store, "t").await, events);
        let stored = store.get(&ada(), &task_id("t")).await.expect("a read").expect("it is there");
        assert_eq!((stored.seq, &stored.turn), (Seq(2), &Some(turn("ses", "typed"))));
        assert_eq!(stored.task, folded(&task_id("t"), &events));
        assert_eq!(store.unfinished().await.expect("a read"), std::slice::from_ref(&stored));
        let head = store.head(&ada(), &task_id("t")).await.expect("a read").expect("it is there");
        assert_eq!((head.seq, head.first, head.state), (Seq(2), Seq(1), TaskState::Working));
        let listed = store.list(everything()).await.expect("a list");
        assert_eq!((listed.tasks, listed.total), (vec![stored.task], 1));
        assert_eq!(store.get(&owner("bob"), &task_id("t")).await.expect("a read"), None);
        assert_eq!(turn_of(&store, "ses", "typed").await, Some(task_id("t")));
        // The caller did not name the session.
        let bound = Some(Bound { session: session("ses"), named: false });
        assert_eq!(store.context_location(&ada(), &context_id("c")).await.expect("a read").bound, bound);
    }
    // The task continues like any other, and counts as a use of its session.
    let late = store.append(append("t", 1, vec![chunk("x")])).await.expect("an answer");
    assert_eq!(late, Appended::Conflict { head: Seq(2) });
    appended(&store, append("t", 2, vec![chunk("x"), status(TaskState::Canceled, 9)])).await;
    let ended = store.ended_turns(Timestamp(9)).await.expect("a read");
    assert_eq!(ended.iter().map(|ended| &ended.turn).collect::<Vec<_>>(), [&turn("ses", "typed")]);
    let again = Create { at: Timestamp(50), ..begun("again", "ses", "typed-again") };
    made(&store, again).await;
    assert_eq!(store.recent_sessions(Timestamp(50), 9).await.expect("a read"), [session("ses")]);
}

pub(super) async fn an_adopted_turn_is_one_task(fixture: &dyn Fixture) {
    let store = fixture.open();
    store.bind(binding("ada", "c", "ses")).await.expect("the session is free");
    store.bind(binding("bob", "c", "bobs")).await.expect("the session is free");
    made(&store, begun("t", "ses", "typed")).await;
    let before = store.list(everything()).await.expect("a list");
    // With the same task id or another, in the same context or another, with the same prompt or only the same id.
    let elsewhere =
        Create { context: context_id("d"), first: submitted("d", 1), ..begun("u", "ses", "typed") };
    let twins =
        [begun("t", "ses", "typed"), begun("u", "ses", "typed"), elsewhere, begun("t", "ses", "other")];
    for twin in twins {
        assert_eq!(store.create(twin.clone()).await.expect("an answer"), existing("t", "c"), "{twin:?}");
    }
    assert_eq!(store.list(everything()).await.expect("a list"), before);
    assert_eq!(log(&store, "t").await.len(), 2);
    assert_eq!(
        store.context_location(&ada(), &context_id("d")).await.expect("a read"),
        ContextLocation::default()
    );
    // Another owner does not learn whose turn it is.
    let bobs = Create { owner: owner("bob"), ..begun("bobs", "ses", "typed") };
    check_refused(&store, bobs, Created::ForeignSession).await;
    // The error does not reveal that the id belongs to another owner's task.
    let bobs = Create { owner: owner("bob"), ..begun("t", "bobs", "typed") };
    store.create(bobs).await.expect_err("the id is taken");
    assert_eq!(turn_of(&store, "bobs", "typed").await, None);

    // A prompt that the gateway has sent, or that has joined one of its turns, belongs to that task.
    made(&store, create_in("sent", "e", 1)).await;
    let joined = TurnRecord { joined: vec![prompt_id("joined")], ..turn("ses", "sent") };
    let working = append("sent", 1, vec![status(TaskState::Working, 2)]);
    appended(&store, Append { turn: Some(joined), ..working }).await;
    let mut store = store;
    for is_restarted in [false, true] {
        if is_restarted {
            store = fixture.reopen(store);
        }
        for prompt in ["sent", "joined"] {
            let twin = begun(&format!("adopts-{prompt}"), "ses", prompt);
            assert_eq!(store.create(twin).await.expect("an answer"), existing("sent", "e"), "{prompt}");
        }
    }
    one_of_concurrent_adoptions_wins(&store).await;
}

async fn one_of_concurrent_adoptions_wins(store: &Arc<dyn Store>) {
    let tasks = Tasks::new();
    let adoptions: Vec<_> = (0..32)
        .map(|n| {
            let (store, create) = (store.clone(), begun(&format!("once-{n}"), "ses", "once"));
            tasks.spawn("adopt", async move {
                let id = create.task.clone();
                (id, store.create(create).await.expect("an answer"))
            })
        })
        .collect();
    let (mut made, mut found) = (Vec::new(), Vec::new());
    for adoption in adoptions {
        match adoption.await.expect("none panics") {
            (id, Created::New) => made.push(id),
            (_, Created::Existing { task, .. }) => found.push(task),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((made.len(), found.len()), (1, 31));
    assert!(found.iter().all(|task| *task == made[0]), "{made:?}, {found:?}");
    assert_eq!(turn_of(store, "ses", "once").await, Some(made.remove(0)));
}

pub(super) async fn an_adopted_turn_belongs_to_the_owner_of_its_session(fixture: &dyn Fixture) {
    let store = fixture.open();
    store.bind(binding("bob", "c", "bobs")).await.expect("the session is free");
    check_refused(&store, begun("t", "bobs", "typed"), Created::ForeignSession).await;
    check_refused(&store, begun("t", "none", "typed"), Created::UnknownSession).await;
    let naming = |create: Create, name| Create { session: Some(session_id(name)), ..create };
    check_refused(&store, naming(begun("t", "bobs", "typed"), "bobs"), Created::ForeignSession).await;
    check_refused(&store, naming(begun("t", "none", "typed"), "none"), Created::UnknownSession).await;
    // Events and sessions that no adopted turn can have.
    let states = TaskState::ALL.into_iter().filter(|state| *state != TaskState::Working);
    let others = states.map(|state| status(state, 2)).chain([chunk("x"), submitted("c", 1)]);
    let says = |working: TaskEvent| RunningTurn { working, turn: turn("bobs", "typed") };
    let bobs = Create { owner: owner("bob"), ..begun("t", "bobs", "typed") };
    let wrong = others.map(|event| Create { begun: Some(says(event)), ..bobs.clone() });
    for wrong in wrong.chain([naming(bobs.clone(), "another")]) {
        store.create(wrong.clone()).await.expect_err("no turn begins so");
    }
    for prompt in ["bobs", "none"] {
        assert_eq!(turn_of(&store, prompt, "typed").await, None);
    }
    assert_eq!(store.unfinished().await.expect("a read"), []);
    // The task may claim its session for the owner.
    made(&store, bobs).await;
    let claiming = Create { claim: Some(session("none")), ..naming(begun("u", "none", "typed"), "none") };
    made(&store, claiming).await;
    assert_eq!(store.session(&ada(), &session_id("none")).await.expect("a read"), Some(session("none")));
    let bound = Some(Bound { session: session("none"), named: true });
    assert_eq!(store.context_location(&ada(), &context_id("c")).await.expect("a read").bound, bound);
    for (name, task) in [("bobs", "t"), ("none", "u")] {
        assert_eq!(turn_of(&store, name, "typed").await, Some(task_id(task)));
    }
}

/// When the agent loses the session of a context, a session that the gateway created is replaced, but not one that the caller
/// named. So only a caller may mark a session as named.
pub(super) async fn adoptions_and_native_prompts_do_not_rebind_a_context(fixture: &dyn Fixture) {
    let store = fixture.open();
    for (context, name) in [("c", "ses"), ("late", "ses"), ("other", "another")] {
        store.bind(binding("ada", context, name)).await.expect("the session is free");
    }
    let bound_to = async |context: &str| {
        store
            .context_location(&ada(), &context_id(context))
            .await
            .expect("a read")
            .bound
            .expect("it is bound")
    };
    let contexts = async || store.contexts_of(&ada(), &session_id("ses")).await.expect("a read");
    let before = contexts().await;
    let adopted = |task: &str, context: &str| {
        let begun = begun(task, "ses", task);
        Create { context: context_id(context), first: submitted(context, 1), at: Timestamp(9), ..begun }
    };
    let order = |task: &str, context: &str| {
        let mut create = Create { at: Timestamp(9), ..create_in(task, context, 1) };
        if let TaskEvent::Submitted { options, .. } = &mut create.first {
            options.order = Some(NativePrompt::Prompt { parts: Vec::new(), withheld: BTreeSet::new() });
        }
        create
    };
    let named = |create: Create| Create { session: Some(session_id("ses")), ..create };
    for create in [adopted("t", "c"), named(adopted("u", "c")), named(order("v", "c"))] {
        made(&store, create).await;
        assert_eq!(bound_to("c").await, Bound { session: session("ses"), named: false });
        assert_eq!(contexts().await, before);
    }
    for create in [named(adopted("w", "other")), named(order("w", "other"))] {
        check_refused(&store, create, Created::OtherSession).await;
    }
    // An unbound context is bound to the named session from now on, and stays so.
    made(&store, named(order("x", "new"))).await;
    made(&store, named(adopted("y", "new"))).await;
    made(&store, adopted("z", "new")).await;
    assert_eq!(bound_to("new").await, Bound { session: session("ses"), named: true });
    // Only a caller who names the session for the context changes that.
    made(&store, named(create_in("m", "c", 1))).await;
    assert_eq!(bound_to("c").await, Bound { session: session("ses"), named: true });
}

pub(super) async fn a_prompt_leads_to_its_task(fixture: &dyn Fixture) {
    let store = fixture.open();
    let runs = async |task: &str, expected: u64, turn: TurnRecord| {
        let append = append(task, expected, vec![status(TaskState::Working, 2)]);
        appended(&store, Append { turn: Some(turn), ..append }).await;
    };
    for name in ["first", "second", "shared"] {
        made(&store, create(name)).await;
    }
    made(&store, child("below", "first", "first")).await;
    let joined = |names: &[&str]| names.iter().copied().map(prompt_id).collect();
    runs("first", 1, turn("ses", "msg_1")).await;
    runs("first", 2, TurnRecord { joined: joined(&["more_1"]), ..turn("ses", "msg_1") }).await;
    runs("first", 3, TurnRecord { joined: joined(&["more_1", "more_2"]), ..turn("ses", "msg_1") }).await;
    // The newest record of a turn counts; the same prompt id in another session is another prompt.
    runs("second", 1, turn("ses", "msg_old")).await;
    runs("second", 2, turn("other", "msg_1")).await;
    runs("below", 1, turn("sub", "msg_below")).await;
    // Of several tasks the newest counts, in whatever order they were written.
    runs("shared", 1, TurnRecord { joined: joined(&["shared"]), ..turn("ses", "msg_shared") }).await;
    runs("second", 3, TurnRecord { joined: joined(&["more_2"]), ..turn("ses", "shared") }).await;

    let mut store = store;
    for is_restarted in [false, true] {
        if is_restarted {
            store = fixture.reopen(store);
        }
        let expected = [
            ("ses", "msg_1", Some("first")),
            ("ses", "more_1", Some("first")),
            ("ses", "more_2", Some("second")),
            ("ses", "msg_old", None),
            ("other", "msg_1", None),
            ("ses", "shared", Some("shared")),
            ("sub", "msg_below", Some("below")),
            ("sub", "msg_1", None),
            ("ses", "more", None),
            ("none", "msg_1", None),
        ];
        for (name, prompt, task) in expected {
            assert_eq!(turn_of(&store, name, prompt).await, task.map(task_id), "{name} {prompt}");
        }
    }
    // A prompt of a removed task leads to no task; other prompts still lead to theirs.
    appended(&store, append("second", 4, vec![status(TaskState::Completed, 5)])).await;
    let old = Retention {
        now: Timestamp(9),
        fold_before: None,
        drop_before: Some(Timestamp(9)),
        keys_before: Timestamp(i64::MIN),
    };
    assert_eq!(retention::retained(&store, old).await.dropped, 1);
    assert_eq!(turn_of(&store, "ses", "more_2").await, Some(task_id("first")));
    appended(&store, append("shared", 2, vec![status(TaskState::Completed, 5)])).await;
    retention::retained(&store, old).await;
    assert_eq!(turn_of(&store, "ses", "shared").await, None);
    assert_eq!(turn_of(&store, "ses", "msg_1").await, Some(task_id("first")));
}
