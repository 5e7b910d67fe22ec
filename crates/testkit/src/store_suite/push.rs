//! Configurations for push notifications, and the queue of their delivery.

use std::sync::Arc;

use longshore_engine::port::{
    Burial, Created, LeasedPush, MAX_DEAD_LETTERS, NewPushConfig, PushConfigs, PushCounts, PushLease,
    PushLimit, PushLimits, PushPut, PushQueue, PushRetry, Retention, Store, with_caller_trace,
};
use longshore_model::{
    Principal, PushAuthentication, PushConfig, PushConfigId, PushEvents, PushFormat, PushView, Secret, Seq,
    TaskState, Timestamp, TraceContext,
};

use super::make::{ada, append, appended, chunk, create, made, owner, status, task_id};
use super::retention::retained;

/// The three sides of one store.
#[derive(Clone, Debug)]
pub struct PushStores {
    pub store: Arc<dyn Store>,
    pub configs: Arc<dyn PushConfigs>,
    pub queue: Arc<dyn PushQueue>,
}

/// Like [`super::Fixture`].
pub trait PushFixture: Send + Sync {
    fn open(&self) -> PushStores;

    fn reopen(&self, stores: PushStores) -> PushStores;
}

const NO_LIMITS: PushLimits = PushLimits { per_task: 0, per_principal: 0, in_all: 0 };

/// A moment after everything that the checks do.
const LATE: Timestamp = Timestamp(1_000_000);

fn id(text: &str) -> PushConfigId {
    PushConfigId::parse(text).expect("tests write valid ids")
}

pub fn config(task: &str, name: &str) -> PushConfig {
    PushConfig {
        id: id(name),
        task: task_id(task),
        url: format!("https://hooks.example.com/{name}?key=planted-url"),
        token: Some(Secret::new("planted-token")),
        authentication: Some(PushAuthentication {
            scheme: "Bearer".to_owned(),
            credentials: Some(Secret::new("planted-credentials")),
        }),
        format: PushFormat::V1,
        events: PushEvents::default(),
        view: PushView { extensions: vec!["urn:x".to_owned()], raw_thinking: true, tool_trace: false },
        created: Timestamp(5),
    }
}

pub fn new(task: &str, name: &str, after: u64) -> NewPushConfig {
    NewPushConfig { owner: ada(), config: config(task, name), after: Seq(after), limits: NO_LIMITS }
}

async fn put(stores: &PushStores, new: NewPushConfig) {
    assert_eq!(stores.configs.put(new).await.expect("a write"), PushPut::Stored);
}

/// Leases everything that is due at a moment, for ten units of time.
async fn due(stores: &PushStores, now: i64) -> Vec<LeasedPush> {
    stores.queue.due(Timestamp(now), 100, Timestamp(now + 10)).await.expect("a write")
}

async fn names(stores: &PushStores, now: i64) -> Vec<String> {
    due(stores, now).await.iter().map(|leased| leased.config.id.to_string()).collect()
}

async fn advance(stores: &PushStores, lease: &PushLease, cursor: u64, keep: Option<i64>) -> bool {
    stores.queue.advance(lease, Seq(cursor), keep.map(Timestamp), true).await.expect("a write")
}

async fn bury(stores: &PushStores, lease: &PushLease, event: u64, keep: Option<i64>) -> bool {
    let dead = Burial {
        event: Seq(event),
        reason: "the receiver answered 404".to_owned(),
        attempts: 2,
        first_failed_at: Timestamp(7),
        at: Timestamp(9),
    };
    stores.queue.bury(lease, dead, keep.map(Timestamp)).await.expect("a write")
}

/// The numbers and the events of the dead letters.
async fn dead(stores: &PushStores) -> Vec<(u64, u64)> {
    let letters = stores.queue.dead(0, 5_000).await.expect("a read");
    letters.iter().map(|letter| (letter.number, letter.event.0)).collect()
}

async fn counts(stores: &PushStores, who: &Principal) -> (u64, u64) {
    let PushCounts { of_owner, in_all } = stores.configs.counts(who).await.expect("a read");
    (of_owner, in_all)
}

pub(super) async fn a_configuration_is_kept_for_its_owner_until_it_is_deleted(fixture: &dyn PushFixture) {
    let stores = fixture.open();
    made(&stores.store, create("t")).await;
    for name in ["b", "a", "c"] {
        put(&stores, new("t", name, 1)).await;
    }
    let foreign = NewPushConfig { owner: owner("bob"), ..new("t", "d", 1) };
    assert_eq!(stores.configs.put(foreign).await.expect("a write"), PushPut::NoTask);
    assert_eq!(stores.configs.put(new("u", "d", 1)).await.expect("a write"), PushPut::NoTask);

    let stores = fixture.reopen(stores);
    let task = task_id("t");
    let read = stores.configs.get(&ada(), &task, &id("a")).await.expect("a read");
    assert_eq!(read, Some(config("t", "a")));
    assert_eq!(stores.configs.get(&owner("bob"), &task, &id("a")).await.expect("a read"), None);
    let listed = async |who: &Principal, after: Option<&str>, limit| {
        let after = after.map(id);
        let found = stores.configs.list(who, &task, after.as_ref(), limit).await.expect("a read");
        found.iter().map(|config| config.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&ada(), None, 9).await, ["a", "b", "c"]);
    assert_eq!(listed(&ada(), Some("a"), 1).await, ["b"]);
    assert_eq!(stores.configs.ids(&ada(), &task).await.expect("a read"), ["a", "b", "c"].map(id));
    assert_eq!(stores.configs.ids(&owner("bob"), &task).await.expect("a read"), []);
    assert_eq!(listed(&owner("bob"), None, 9).await, [""; 0]);

    assert!(!stores.configs.delete(&owner("bob"), &task, &id("b")).await.expect("a write"));
    assert!(stores.configs.delete(&ada(), &task, &id("b")).await.expect("a write"));
    assert!(!stores.configs.delete(&ada(), &task, &id("b")).await.expect("a write"));
    assert_eq!(listed(&ada(), None, 9).await, ["a", "c"]);
}

pub(super) async fn a_configuration_of_a_send_is_stored_with_its_task(fixture: &dyn PushFixture) {
    let stores = fixture.open();
    let with = |task: &str, limits| {
        let push = NewPushConfig { limits, ..new(task, "a", 0) };
        let mut create = create(task);
        create.push = Some(Box::new(push));
        create
    };
    let trace = TraceContext::generate();
    let creating = async { made(&stores.store, with("t", NO_LIMITS)).await };
    with_caller_trace(Some(trace.clone()), creating).await;
    let leased = due(&stores, 10).await;
    assert_eq!(leased.len(), 1);
    assert_eq!((leased[0].cursor, &leased[0].owner, &leased[0].config), (Seq(0), &ada(), &config("t", "a")));
    assert_eq!(leased[0].trace.as_ref().map(TraceContext::traceparent), Some(trace.traceparent()));
    let full = stores.store.create(with("u", PushLimits { in_all: 1, ..NO_LIMITS })).await;
    assert_eq!(full.expect("a write"), Created::PushFull(PushLimit::InAll));
    assert_eq!(stores.store.get(&ada(), &task_id("u")).await.expect("a read"), None);
}

pub(super) async fn limits_count_what_may_still_be_sent(fixture: &dyn PushFixture) {
    let stores = fixture.open();
    for task in ["t", "u"] {
        made(&stores.store, create(task)).await;
    }
    put(&stores, new("t", "a", 1)).await;
    put(&stores, new("t", "b", 1)).await;
    let limited = |per_task, per_principal, in_all| PushLimits { per_task, per_principal, in_all };
    for (task, limits, expected) in [
        ("t", limited(2, 9, 9), PushPut::Full(PushLimit::PerTask)),
        ("u", limited(9, 2, 9), PushPut::Full(PushLimit::PerPrincipal)),
        ("u", limited(9, 9, 2), PushPut::Full(PushLimit::InAll)),
        ("u", limited(1, 3, 3), PushPut::Stored),
    ] {
        let put = stores.configs.put(NewPushConfig { limits, ..new(task, "c", 1) }).await;
        assert_eq!(put.expect("a write"), expected);
    }
    // A replacement is no new one.
    put(&stores, NewPushConfig { limits: limited(1, 1, 1), ..new("t", "a", 1) }).await;
    assert_eq!((counts(&stores, &ada()).await, counts(&stores, &owner("bob")).await), ((3, 3), (0, 3)));

    appended(&stores.store, append("t", 1, vec![status(TaskState::Completed, 2)])).await;
    assert_eq!(counts(&stores, &ada()).await, (3, 3));
    for leased in due(&stores, 10).await {
        assert!(advance(&stores, &leased.lease, 2, None).await);
    }
    assert_eq!(counts(&stores, &ada()).await, (1, 1));
    put(&stores, new("t", "late", 2)).await;
    assert_eq!(counts(&stores, &ada()).await, (1, 1));
}

pub(super) async fn a_configuration_is_due_when_its_log_has_news_for_it(fixture: &dyn PushFixture) {
    let stores = fixture.open();
    made(&stores.store, create("t")).await;
    put(&stores, new("t", "default", 1)).await;
    put(
        &stores,
        NewPushConfig {
            config: PushConfig { events: PushEvents::ALL, ..config("t", "all") },
            ..new("t", "all", 1)
        },
    )
    .await;
    assert_eq!(names(&stores, 10).await, [""; 0]);
    appended(&stores.store, append("t", 1, vec![chunk("x")])).await;
    let leased = due(&stores, 10).await;
    // A store may offer more than is wanted, but never less.
    let all = leased.iter().find(|leased| leased.config.id == id("all")).expect("wants everything");
    assert_eq!((all.cursor, all.attempts, all.first_failed_at), (Seq(1), 0, None));
    for leased in &leased {
        assert!(advance(&stores, &leased.lease, 2, None).await);
    }
    assert_eq!(names(&stores, 10).await, [""; 0]);
    appended(&stores.store, append("t", 2, vec![status(TaskState::InputRequired, 2)])).await;
    stores.queue.grown().await;
    let leased = due(&stores, 10).await;
    assert_eq!(leased.len(), 2);
    // News that come while the lease is held make it due again at its end.
    appended(&stores.store, append("t", 3, vec![status(TaskState::Completed, 3)])).await;
    assert_eq!(names(&stores, 10).await, [""; 0]);
    for leased in &leased {
        assert!(advance(&stores, &leased.lease, 3, None).await);
    }
    assert_eq!(names(&stores, 10).await.len(), 2);
}

pub(super) async fn one_lease_counts_until_it_expires_or_its_configuration_changes(
    fixture: &dyn PushFixture,
) {
    let stores = fixture.open();
    made(&stores.store, create("t")).await;
    for name in ["a", "b"] {
        put(&stores, new("t", name, 0)).await;
    }
    let first = stores.queue.due(Timestamp(10), 1, Timestamp(20)).await.expect("a write");
    assert_eq!(first.len(), 1);
    let second = due(&stores, 10).await;
    assert_eq!(second.len(), 1);
    assert_ne!(first[0].config.id, second[0].config.id);
    assert_eq!(stores.queue.next_due().await.expect("a read"), Some(Timestamp(20)));
    // Renewed.
    assert!(advance(&stores, &first[0].lease, 1, Some(30)).await);
    let expired = due(&stores, 20).await;
    assert_eq!(expired.len(), 1);
    assert_eq!(expired[0].config.id, second[0].config.id);
    assert!(!advance(&stores, &second[0].lease, 1, None).await);
    assert!(!bury(&stores, &second[0].lease, 1, None).await);
    assert_eq!(dead(&stores).await, []);
    // Replaced: it continues at the cursor, and the lease is void.
    let name = first[0].config.id.to_string();
    let other = PushConfig { url: "https://other.example.com/".to_owned(), ..config("t", &name) };
    put(&stores, NewPushConfig { config: other.clone(), ..new("t", &name, 0) }).await;
    assert!(!advance(&stores, &first[0].lease, 1, None).await);
    let replaced = due(&stores, 21).await;
    assert_eq!(replaced.len(), 1);
    assert_eq!((&replaced[0].config, replaced[0].cursor), (&other, Seq(1)));
    // Deleted, and made again with the same name.
    stores.configs.delete(&ada(), &task_id("t"), &other.id).await.expect("a write");
    put(&stores, new("t", &name, 0)).await;
    assert!(!advance(&stores, &replaced[0].lease, 1, None).await);
}

pub(super) async fn a_failed_event_waits_and_keeps_its_attempts(fixture: &dyn PushFixture) {
    let stores = fixture.open();
    made(&stores.store, create("t")).await;
    put(&stores, new("t", "a", 0)).await;
    let lease = due(&stores, 10).await.remove(0).lease;
    let retry = PushRetry { at: Timestamp(50), attempts: 3, first_failed_at: Some(Timestamp(8)) };
    assert!(stores.queue.postpone(&lease, retry).await.expect("a write"));
    assert!(!stores.queue.postpone(&lease, retry).await.expect("a write"));
    // News do not shorten the wait.
    appended(&stores.store, append("t", 1, vec![status(TaskState::Completed, 3)])).await;
    let stores = fixture.reopen(stores);
    assert_eq!(names(&stores, 49).await, [""; 0]);
    assert_eq!(stores.queue.next_due().await.expect("a read"), Some(Timestamp(50)));
    let mut leased = due(&stores, 50).await.remove(0);
    assert_eq!((leased.attempts, leased.first_failed_at, leased.cursor), (3, Some(Timestamp(8)), Seq(0)));
    // Events that are not sent do not end the time of the failures; one that is accepted does.
    for (is_accepted, expected) in [(false, Some(Timestamp(8))), (true, None)] {
        let again = stores.queue.advance(&leased.lease, Seq(0), Some(Timestamp(60)), is_accepted);
        assert!(again.await.expect("a write"));
        leased = due(&stores, 70).await.remove(0);
        assert_eq!((leased.attempts, leased.first_failed_at), (0, expected));
    }
    assert!(advance(&stores, &leased.lease, 1, Some(80)).await);
    assert!(advance(&stores, &leased.lease, 2, None).await);
    assert_eq!(names(&stores, LATE.0).await, [""; 0]);
}

pub(super) async fn given_up_events_become_dead_letters(fixture: &dyn PushFixture) {
    let stores = fixture.open();
    made(&stores.store, create("t")).await;
    put(&stores, new("t", "a", 0)).await;
    appended(&stores.store, append("t", 1, vec![chunk("x"), status(TaskState::Completed, 3)])).await;
    let lease = due(&stores, 10).await.remove(0).lease;
    assert!(bury(&stores, &lease, 1, Some(40)).await);
    assert!(bury(&stores, &lease, 2, Some(40)).await);
    assert!(bury(&stores, &lease, 3, None).await);
    let stores = fixture.reopen(stores);
    let letters = stores.queue.dead(0, 10).await.expect("a read");
    let numbers: Vec<u64> = letters.iter().map(|letter| letter.number).collect();
    assert_eq!(letters.iter().map(|letter| letter.event.0).collect::<Vec<_>>(), [1, 2, 3]);
    let first = &letters[0];
    assert_eq!((&first.owner, &first.task, &first.config), (&ada(), &task_id("t"), &id("a")));
    assert_eq!(
        (first.reason.as_str(), first.attempts, first.at),
        ("the receiver answered 404", 2, Timestamp(9))
    );
    assert_eq!(stores.queue.dead(numbers[0], 1).await.expect("a read"), letters[1..2]);
    assert_eq!(names(&stores, LATE.0).await, [""; 0]);

    // Replayed, one by one, in the order of the log.
    for number in [numbers[2], numbers[0]] {
        assert!(stores.queue.replay(number).await.expect("a write"));
    }
    let leased = due(&stores, 10).await.remove(0);
    assert_eq!((leased.replays, leased.cursor), (Some(Seq(1)), Seq(3)));
    assert!(advance(&stores, &leased.lease, 1, None).await);
    let leased = due(&stores, 10).await.remove(0);
    assert_eq!((leased.replays, leased.cursor), (Some(Seq(3)), Seq(3)));
    assert!(bury(&stores, &leased.lease, 3, None).await);
    assert_eq!(names(&stores, LATE.0).await, [""; 0]);
    assert_eq!(dead(&stores).await, [(numbers[1], 2), (numbers[2], 3)]);

    assert!(stores.queue.drop_dead(numbers[1]).await.expect("a write"));
    assert!(!stores.queue.drop_dead(numbers[1]).await.expect("a write"));
    assert!(!stores.queue.replay(numbers[1]).await.expect("a write"));
    assert!(stores.configs.delete(&ada(), &task_id("t"), &id("a")).await.expect("a write"));
    assert_eq!(dead(&stores).await, []);
}

pub(super) async fn the_newest_dead_letters_of_a_configuration_are_kept(fixture: &dyn PushFixture) {
    let stores = fixture.open();
    made(&stores.store, create("t")).await;
    for name in ["a", "b"] {
        put(&stores, new("t", name, 0)).await;
    }
    let leases = due(&stores, 10).await;
    bury(&stores, &leases[1].lease, 1, Some(LATE.0)).await;
    for event in 1..=MAX_DEAD_LETTERS + 1 {
        bury(&stores, &leases[0].lease, event, Some(LATE.0)).await;
    }
    let letters = stores.queue.dead(0, 1_000).await.expect("a read");
    let of = |name: &PushConfigId| {
        let letters = letters.iter().filter(|letter| letter.config == *name);
        letters.map(|letter| letter.event.0).collect::<Vec<_>>()
    };
    assert_eq!(of(&leases[1].config.id), [1]);
    assert_eq!(of(&leases[0].config.id).first(), Some(&2));
}

pub(super) async fn configurations_are_deleted_with_their_task(fixture: &dyn PushFixture) {
    let stores = fixture.open();
    for task in ["t", "u"] {
        made(&stores.store, create(task)).await;
        put(&stores, new(task, "a", 0)).await;
        appended(&stores.store, append(task, 1, vec![status(TaskState::Completed, 10)])).await;
    }
    for leased in due(&stores, 10).await {
        bury(&stores, &leased.lease, 1, None).await;
    }
    let before = Some(Timestamp(50));
    let retention =
        Retention { now: Timestamp(50), fold_before: before, drop_before: before, keys_before: Timestamp(0) };
    retained(&stores.store, retention).await;
    assert_eq!(stores.configs.list(&ada(), &task_id("t"), None, 9).await.expect("a read"), []);
    assert_eq!((dead(&stores).await.as_slice(), counts(&stores, &ada()).await), (&[][..], (0, 0)));
    assert_eq!(names(&stores, LATE.0).await, [""; 0]);
}

pub(super) async fn news_before_a_restart_are_due_after_it(fixture: &dyn PushFixture) {
    let stores = fixture.open();
    made(&stores.store, create("t")).await;
    put(&stores, new("t", "a", 1)).await;
    let stores = fixture.reopen(stores);
    appended(&stores.store, append("t", 1, vec![status(TaskState::InputRequired, 2)])).await;
    let stores = fixture.reopen(stores);
    let leased = due(&stores, 10).await.remove(0);
    assert!(advance(&stores, &leased.lease, 2, None).await);
    let stores = fixture.reopen(stores);
    assert_eq!(names(&stores, LATE.0).await, [""; 0]);
}
