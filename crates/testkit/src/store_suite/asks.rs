//! Permission requests and questions of agents: opened and closed together with events.

use std::sync::Arc;

use longshore_engine::port::{Append, Appended, Create, Store};
use longshore_model::{
    AskKind, Closed, ErrorKind, Interrupt, Principal, Question, Resolution, Seq, TaskState, Timestamp,
};

use super::Fixture;
use super::make::{
    ada, append, appended, asking, chunk, closed, closes, context_id, create, interrupt, log, made, opens,
    owner, request_id, status, task_id,
};

const KINDS: [AskKind; 2] = [AskKind::Permission, AskKind::Question];

async fn find(store: &Arc<dyn Store>, request: &str) -> Option<Interrupt> {
    store.interrupt(&ada(), &request_id(request)).await.expect("a read")
}

/// How an ask was closed. `None`: it is open.
async fn closing(store: &Arc<dyn Store>, request: &str) -> Option<Closed> {
    find(store, request).await.unwrap_or_else(|| panic!("{request} was not found")).closed
}

async fn open_of(store: &Arc<dyn Store>, who: &Principal, kind: AskKind) -> Vec<String> {
    names(&store.open_interrupts(who, kind).await.expect("a read"))
}

/// The open asks of a task of ada.
async fn open_in(store: &Arc<dyn Store>, task: &str) -> Vec<String> {
    let stored = store.get(&ada(), &task_id(task)).await.expect("a read").expect("the task is there");
    names(&stored.open_asks)
}

fn names(asks: &[Interrupt]) -> Vec<String> {
    asks.iter().map(|interrupt| interrupt.ask.request_id.to_string()).collect()
}

fn question(task: &str, request: &str) -> Interrupt {
    let mut interrupt = interrupt(task, request);
    interrupt.ask.kind = AskKind::Question;
    let options = vec!["yes".to_owned(), "\"no\"\n".to_owned()];
    interrupt.ask.questions =
        vec![Question { text: "Which?".to_owned(), options, multiple: true, custom: true }];
    interrupt
}

pub(super) async fn an_ask_is_opened_closed_and_opened_again(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("t")).await;
    assert_eq!(find(&store, "r").await, None);

    let first = Interrupt { expires_at: Some(Timestamp(50)), ..question("t", "r") };
    appended(&store, asking("t", 1, vec![opens(&first)])).await;
    assert_eq!(find(&store, "r").await.as_ref(), Some(&first));
    assert_eq!(open_of(&store, &ada(), AskKind::Question).await, ["r"]);
    assert_eq!(open_in(&store, "t").await, ["r"]);

    let answer =
        Closed { by: Some(owner("bob")), how: Some("yes; no".to_owned()), ..closed(Resolution::Replied, 9) };
    appended(&store, asking("t", 2, vec![closes("r", answer.clone())])).await;
    assert_eq!(find(&store, "r").await, Some(Interrupt { closed: Some(answer), ..first }));
    assert_eq!(open_of(&store, &ada(), AskKind::Question).await, [""; 0]);
    assert_eq!(open_in(&store, "t").await, [""; 0]);

    // The agent uses the id again for another ask.
    let again = Interrupt { asked_at: Timestamp(20), ..interrupt("t", "r") };
    appended(&store, asking("t", 3, vec![opens(&again)])).await;
    assert_eq!(find(&store, "r").await, Some(again));
    assert_eq!(open_of(&store, &ada(), AskKind::Question).await, [""; 0]);
    assert_eq!(open_of(&store, &ada(), AskKind::Permission).await, ["r"]);
    assert_eq!(open_in(&store, "t").await, ["r"]);
}

pub(super) async fn ask_changes_apply_in_order(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("t")).await;
    let (ask, answer) = (interrupt("t", "r"), closed(Resolution::Elsewhere, 5));
    let changes = [
        (vec![closes("r", answer.clone()), opens(&ask)], None),
        (vec![closes("r", answer.clone()), opens(&ask), closes("r", answer.clone())], Some(answer.clone())),
        (vec![opens(&ask), closes("r", answer.clone()), opens(&ask)], None),
        (vec![opens(&ask), opens(&ask)], None),
    ];
    for (expected, (asks, left)) in (1..).zip(changes) {
        appended(&store, asking("t", expected, asks)).await;
        assert_eq!(closing(&store, "r").await, left, "{expected}");
        assert_eq!(open_in(&store, "t").await.len(), usize::from(left.is_none()), "{expected}");
    }
}

pub(super) async fn only_an_open_ask_of_the_task_is_closed(fixture: &dyn Fixture) {
    let store = fixture.open();
    for name in ["t", "u"] {
        made(&store, create(name)).await;
    }
    let (first, late) = (closed(Resolution::Rejected, 5), closed(Resolution::Expired, 6));
    appended(&store, asking("t", 1, vec![opens(&interrupt("t", "r")), opens(&interrupt("t", "other"))]))
        .await;
    // Closed by a task that did not ask, and an unknown ask.
    appended(&store, asking("u", 1, vec![closes("r", late.clone()), closes("none", late.clone())])).await;
    assert_eq!((closing(&store, "r").await, find(&store, "none").await), (None, None));

    appended(&store, asking("t", 2, vec![closes("r", first.clone())])).await;
    appended(&store, asking("t", 3, vec![closes("r", late)])).await;
    assert_eq!((closing(&store, "r").await, closing(&store, "other").await), (Some(first), None));
}

pub(super) async fn an_owner_sees_only_their_own_open_asks(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("adas")).await;
    made(&store, Create { owner: owner("bob"), ..create("bobs") }).await;
    let bobs = Interrupt { owner: owner("bob"), ..interrupt("bobs", "b") };
    appended(&store, asking("adas", 1, vec![opens(&interrupt("adas", "a")), opens(&question("adas", "q"))]))
        .await;
    appended(&store, asking("bobs", 1, vec![opens(&bobs)])).await;
    let cases: [(&str, AskKind, &[&str]); 6] = [
        ("ada", AskKind::Permission, &["a"]),
        ("ada", AskKind::Question, &["q"]),
        ("bob", AskKind::Permission, &["b"]),
        ("bob", AskKind::Question, &[]),
        ("ADA", AskKind::Permission, &[]),
        ("nobody", AskKind::Question, &[]),
    ];
    for (who, kind, expected) in cases {
        assert_eq!(open_of(&store, &owner(who), kind).await, expected, "{who} {kind}");
    }
    // Looking an ask up by its id shows its owner.
    for (request, expected) in [("a", "ada"), ("b", "bob")] {
        assert_eq!(find(&store, request).await.map(|ask| ask.owner), Some(owner(expected)));
    }
}

pub(super) async fn the_soonest_deadline_comes_first(fixture: &dyn Fixture) {
    let store = fixture.open();
    // Two tasks, neither in the order of the deadlines nor of the names.
    let asks = [
        ("t", "never-b", None),
        ("u", "late", Some(300)),
        ("t", "soon-b", Some(100)),
        ("u", "never-a", None),
        ("t", "past", Some(-5)),
        ("u", "soon-a", Some(100)),
    ];
    for name in ["t", "u"] {
        made(&store, create(name)).await;
        let own = asks.iter().filter(|(task, ..)| *task == name);
        let changes = own.map(|(task, request, deadline)| {
            opens(&Interrupt { expires_at: deadline.map(Timestamp), ..interrupt(task, request) })
        });
        appended(&store, asking(name, 1, changes.collect())).await;
    }
    let expected = ["past", "soon-a", "soon-b", "late", "never-a", "never-b"];
    assert_eq!(open_of(&store, &ada(), AskKind::Permission).await, expected);
}

pub(super) async fn a_task_lists_its_open_asks_oldest_first(fixture: &dyn Fixture) {
    let store = fixture.open();
    for name in ["t", "u"] {
        made(&store, create(name)).await;
    }
    let at = |request: &str, at: i64| Interrupt { asked_at: Timestamp(at), ..interrupt("t", request) };
    let asks = [at("z", 5), at("m", 5), at("first", 4), at("a", 5), at("gone", 1)];
    appended(&store, asking("t", 1, asks.iter().map(opens).collect())).await;
    appended(&store, asking("u", 1, vec![opens(&interrupt("u", "not-yours"))])).await;
    // Asks of the same moment come in the order in which they were last opened.
    let changes = vec![opens(&at("z", 5)), closes("gone", closed(Resolution::Replied, 6))];
    appended(&store, asking("t", 2, changes)).await;
    let expected = [at("first", 4), at("m", 5), at("a", 5), at("z", 5)];

    let stored = store.get(&ada(), &task_id("t")).await.expect("a read").expect("the task is there");
    assert_eq!(stored.open_asks, expected);
    let unfinished = store.unfinished().await.expect("a read");
    assert_eq!(unfinished.first(), Some(&stored));
    assert_eq!(unfinished.get(1).map(|stored| names(&stored.open_asks)), Some(vec!["not-yours".to_owned()]));
}

pub(super) async fn a_refused_append_changes_no_ask(fixture: &dyn Fixture) {
    let store = fixture.open();
    for name in ["t", "over"] {
        made(&store, create(name)).await;
    }
    appended(&store, asking("t", 1, vec![opens(&interrupt("t", "open"))])).await;
    appended(&store, append("over", 1, vec![status(TaskState::Failed, 2)])).await;

    let changes = |task| vec![opens(&interrupt(task, "new")), closes("open", closed(Resolution::Replied, 3))];
    let conflict = Appended::Conflict { head: Seq(2) };
    let cases = [("t", 1, conflict), ("t", 3, conflict), ("over", 2, Appended::Terminal)];
    for (task, expected, outcome) in cases {
        let answer = store.append(asking(task, expected, changes(task))).await.expect("an answer");
        assert_eq!(answer, outcome, "{task} {expected}");
    }
    // The refused end of a task closes no ask either.
    let end = append("t", 1, vec![status(TaskState::Canceled, 3)]);
    assert_eq!(store.append(end).await.expect("an answer"), conflict);
    let unknown = store.append(asking("none", 1, changes("none"))).await;
    assert_eq!(unknown.expect_err("no such task").kind(), ErrorKind::TaskNotFound);

    assert_eq!((closing(&store, "open").await, find(&store, "new").await), (None, None));
    assert_eq!(open_of(&store, &ada(), AskKind::Permission).await, ["open"]);
}

pub(super) async fn an_invalid_ask_is_refused(fixture: &dyn Fixture) {
    let store = fixture.open();
    for name in ["t", "u"] {
        made(&store, create(name)).await;
    }
    made(&store, Create { owner: owner("bob"), ..create("bobs") }).await;
    let bobs = Interrupt { owner: owner("bob"), ..interrupt("bobs", "bobs") };
    appended(&store, asking("bobs", 1, vec![opens(&bobs)])).await;
    let is_closed = Some(closed(Resolution::Replied, 1));
    let wrong = [
        ("of another task", interrupt("u", "r")),
        ("of another owner than the task", Interrupt { owner: owner("bob"), ..interrupt("t", "r") }),
        ("of another context", Interrupt { context: context_id("d"), ..interrupt("t", "r") }),
        ("closed before it is open", Interrupt { closed: is_closed, ..interrupt("t", "r") }),
        ("with the id of a foreign ask", interrupt("t", "bobs")),
    ];
    for (name, ask) in wrong {
        let batch = asking("t", 1, vec![opens(&interrupt("t", "fine")), opens(&ask)]);
        let refused = store.append(batch).await.err().unwrap_or_else(|| panic!("an ask {name} was accepted"));
        assert_eq!(refused.kind(), ErrorKind::Internal, "{name}");
    }
    // Neither the events nor the earlier asks of the batch are stored.
    assert_eq!(log(&store, "t").await.len(), 1);
    assert_eq!((find(&store, "r").await, find(&store, "fine").await), (None, None));
    assert_eq!(find(&store, "bobs").await, Some(bobs));
}

pub(super) async fn the_end_of_a_task_drops_its_open_asks(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("neighbour")).await;
    appended(&store, asking("neighbour", 1, vec![opens(&interrupt("neighbour", "waits"))])).await;
    for state in TaskState::ALL.into_iter().filter(|state| *state != TaskState::Submitted) {
        let task = state.as_str();
        let request = |name: &str| format!("{task}-{name}");
        let ask = |name: &str| opens(&interrupt(task, &request(name)));
        made(&store, create(task)).await;
        let before = closed(Resolution::Replied, 2);
        let opened =
            vec![ask("before"), ask("open"), ask("with"), closes(&request("before"), before.clone())];
        appended(&store, asking(task, 1, opened)).await;

        let with = closed(Resolution::Expired, 8);
        let last = Append {
            at: Timestamp(9),
            asks: vec![closes(&request("with"), with.clone()), ask("at-once")],
            ..append(task, 2, vec![chunk("x"), status(state, 7)])
        };
        appended(&store, last).await;
        let dropped = state.is_terminal().then(|| closed(Resolution::Dropped, 9));
        let cases =
            [("before", Some(before)), ("with", Some(with)), ("open", dropped.clone()), ("at-once", dropped)];
        for (name, expected) in cases {
            assert_eq!(closing(&store, &request(name)).await, expected, "{task} {name}");
        }
        let left = open_in(&store, task).await;
        let expected = if state.is_terminal() { vec![] } else { vec![request("open"), request("at-once")] };
        assert_eq!(left, expected, "{task}");
    }
    assert_eq!(open_in(&store, "neighbour").await, ["waits"]);
}

pub(super) async fn asks_survive_a_restart(fixture: &dyn Fixture) {
    let store = fixture.open();
    made(&store, create("t")).await;
    let answer = Closed { by: Some(ada()), how: Some("once".to_owned()), ..closed(Resolution::Replied, 3) };
    let (open, gone) = (question("t", "open"), interrupt("t", "gone"));
    let changes = vec![opens(&open), opens(&gone), closes("gone", answer.clone())];
    appended(&store, asking("t", 1, changes)).await;

    let store = fixture.reopen(store);
    assert_eq!(find(&store, "open").await.as_ref(), Some(&open));
    assert_eq!(find(&store, "gone").await, Some(Interrupt { closed: Some(answer), ..gone }));
    for (kind, expected) in KINDS.into_iter().zip([&[][..], &["open"]]) {
        assert_eq!(open_of(&store, &ada(), kind).await, expected, "{kind}");
    }
    let unfinished = store.unfinished().await.expect("a read");
    assert_eq!(unfinished.into_iter().map(|stored| stored.open_asks).collect::<Vec<_>>(), [vec![open]]);

    // They can still be answered.
    let late = closed(Resolution::Rejected, 4);
    appended(&store, asking("t", 2, vec![closes("open", late.clone())])).await;
    assert_eq!(closing(&store, "open").await, Some(late));
}

pub(super) async fn old_closed_asks_are_removed_a_few_at_a_time(fixture: &dyn Fixture) {
    const DAY: i64 = 24 * 60 * 60 * 1000;
    const NOW: i64 = 3 * DAY;
    /// More than one new ask removes.
    const CLOSED: i64 = 40;
    let store = fixture.open();
    made(&store, create("t")).await;
    // Closed in a mixed order, one of them exactly a day ago.
    let asks = (0..CLOSED).flat_map(|n| {
        let (request, at) = (format!("r{n}"), NOW - DAY - n * 7 % CLOSED);
        [opens(&interrupt("t", &request)), closes(&request, closed(Resolution::Replied, at))]
    });
    let again = opens(&interrupt("t", "again"));
    let others = [
        opens(&interrupt("t", "open")),
        again.clone(),
        closes("again", closed(Resolution::Replied, NOW - 2 * DAY)),
        again,
    ];
    let asks = asks.chain(others).collect();
    appended(&store, asking("t", 1, asks)).await;
    let left = async || {
        let mut left = Vec::new();
        for n in 0..CLOSED {
            left.extend(
                find(&store, &format!("r{n}")).await.and_then(|ask| ask.closed).map(|c| NOW - c.at.0),
            );
        }
        left.sort_unstable();
        left
    };
    let at = Timestamp(NOW);
    let all = left().await;
    assert_eq!(all.len(), 40);
    // An append that only closes asks removes none, and neither does a refused one.
    appended(&store, Append { at, ..asking("t", 2, vec![closes("none", closed(Resolution::Replied, 1))]) })
        .await;
    store
        .append(Append { at, ..asking("t", 1, vec![opens(&interrupt("t", "x"))]) })
        .await
        .expect("a conflict");
    assert_eq!(left().await, all);

    let mut expected = 3;
    let mut before = all;
    loop {
        let request = format!("new{expected}");
        appended(&store, Append { at, ..asking("t", expected, vec![opens(&interrupt("t", &request))]) })
            .await;
        expected += 1;
        let now = left().await;
        assert!(before.len() - now.len() <= 16, "{} were removed at once", before.len() - now.len());
        // The oldest are removed first.
        assert_eq!(now, before[..now.len()]);
        if now.len() == before.len() {
            break;
        }
        before = now;
    }
    // An ask that was closed exactly a day ago is not old yet, and an open one never is.
    assert_eq!(before, [DAY]);
    for open in ["open", "again", "new3"] {
        assert_eq!(closing(&store, open).await, None, "{open}");
    }
}
