use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::lease::WAITING_READ_INTERVAL;
use super::*;
use crate::api::EventKind;
use crate::reader::Reader;

fn reader() -> Arc<Reader> {
    let metrics = Arc::new(Metrics::default());
    Arc::new(Reader {
        directory: "/w".to_owned(),
        routes: Mutex::new(Routes::new(Arc::clone(&metrics))),
        link: watch::Sender::default(),
        lease_dropped: tokio::sync::Notify::new(),
        metrics,
    })
}

/// Sends an event. Returns whether a turn received it.
fn send(reader: &Reader, session: &str, kind: EventKind, body: &str) -> bool {
    let routes = reader.routes();
    let event = Event::parsed(kind, Bytes::copy_from_slice(body.as_bytes()));
    routes.find(session).is_some_and(|target| target.send(event) == Fate::Routed)
}

/// A description of the lease's next entry, if there is one.
async fn now(lease: &mut Lease) -> Option<String> {
    let routed = timeout(Duration::from_millis(10), lease.next()).await.ok()?;
    Some(match routed {
        Routed::Event { child, event } => {
            let of =
                child.map(|child| format!("{} below {}: ", child.session, child.parent)).unwrap_or_default();
            of + std::str::from_utf8(event.body()).unwrap()
        }
        Routed::Missed => "missed".to_owned(),
        Routed::Reconnected => "reconnected".to_owned(),
        Routed::Lagged => unreachable!("only the queue holds this"),
    })
}

#[tokio::test(start_paused = true)]
async fn events_go_to_the_turn_of_their_session_and_of_sub_agents_to_the_turn_of_their_root() {
    let reader = reader();
    let mut one = Lease::open(Arc::clone(&reader), "ses_1").unwrap();
    let mut two = Lease::open(Arc::clone(&reader), "ses_2").unwrap();
    for (child, parent) in
        [("ses_child", "ses_1"), ("ses_grandchild", "ses_child"), ("ses_other", "ses_nobody")]
    {
        reader.routes().add_child(child, parent);
    }
    assert!(send(&reader, "ses_1", EventKind::PartDelta, "a"));
    assert!(send(&reader, "ses_2", EventKind::Idle, "b"));
    assert!(send(&reader, "ses_grandchild", EventKind::PermissionAsked, "c"));
    assert!(send(&reader, "ses_child", EventKind::PartDelta, "d"));
    assert!(!send(&reader, "ses_other", EventKind::QuestionAsked, "no turn"));
    assert_eq!(now(&mut one).await.as_deref(), Some("a"));
    assert_eq!(now(&mut one).await.as_deref(), Some("ses_grandchild below ses_child: c"));
    assert_eq!(now(&mut one).await.as_deref(), Some("ses_child below ses_1: d"));
    assert_eq!(now(&mut one).await, None);
    assert_eq!(now(&mut two).await.as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_events_and_reports_it_after_the_queued_ones() {
    let long = "x".repeat(MAX_QUEUED_BYTES / 3);
    let cases: [(&str, usize, usize); 2] = [("x", MAX_QUEUED + 10, MAX_QUEUED), (&long, 5, 3)];
    for (body, sent, kept) in cases {
        let reader = reader();
        let mut lease = Lease::open(Arc::clone(&reader), "ses_1").unwrap();
        let taken = (0..sent).filter(|_| send(&reader, "ses_1", EventKind::PartDelta, body)).count();
        assert_eq!(taken, kept);
        for _ in 0..kept {
            assert_eq!(now(&mut lease).await.as_deref(), Some(body));
        }
        assert!(!send(&reader, "ses_1", EventKind::PartDelta, "dropped: the turn has not noticed yet"));
        assert_eq!(now(&mut lease).await.as_deref(), Some("reconnected"));
        send(&reader, "ses_1", EventKind::PartDelta, "after");
        assert_eq!(now(&mut lease).await.as_deref(), Some("after"));
        assert_eq!(now(&mut lease).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn one_event_over_the_byte_bound_passes_an_empty_queue() {
    let reader = reader();
    let mut lease = Lease::open(Arc::clone(&reader), "ses_1").unwrap();
    let huge = "x".repeat(MAX_QUEUED_BYTES + 1);
    for _ in 0..2 {
        send(&reader, "ses_1", EventKind::PartUpdated, &huge);
        assert_eq!(now(&mut lease).await.map(|body| body.len()), Some(huge.len()));
    }
    assert_eq!(now(&mut lease).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_reconnection_keeps_its_position_in_the_queue() {
    let reader = reader();
    let mut lease = Lease::open(Arc::clone(&reader), "ses_1").unwrap();
    send(&reader, "ses_1", EventKind::PartDelta, "before");
    reader.routes().reconnected();
    send(&reader, "ses_1", EventKind::PartDelta, "after");
    for expected in ["before", "reconnected", "after"] {
        assert_eq!(now(&mut lease).await.as_deref(), Some(expected));
    }
    send(&reader, "ses_1", EventKind::PartDelta, "forgotten");
    reader.routes().lag_all();
    lease.discard_queued();
    send(&reader, "ses_1", EventKind::PartDelta, "next");
    assert_eq!(now(&mut lease).await.as_deref(), Some("next"));
    assert_eq!(now(&mut lease).await, None);
}

#[tokio::test]
async fn dropping_a_lease_gives_up_its_own_route_and_children_only() {
    let reader = reader();
    assert!(reader.routes().unused_since().is_some());
    let lease = Lease::open(Arc::clone(&reader), "ses_1").unwrap();
    reader.routes().add_child("ses_child", "ses_1");
    assert!(Lease::open(Arc::clone(&reader), "ses_1").is_none(), "another turn holds the route");
    drop(Lease::open_or_wait(Arc::clone(&reader), "ses_1"));
    assert!(reader.routes().unused_since().is_none());
    assert!(send(&reader, "ses_child", EventKind::QuestionAsked, "still routed"));
    reader.routes().note_abort("ses_child");
    assert!(lease.child_session("ses_child").unwrap().aborted_by_gateway() && !lease.aborted_by_gateway());
    reader.routes().note_abort("ses_1");
    assert!(lease.aborted_by_gateway());
    drop(lease);
    assert!(reader.routes().unused_since().is_some());
    assert!(!send(&reader, "ses_1", EventKind::Idle, "no turn"));
    assert!(reader.routes().descendants.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_turn_without_a_route_reads_now_and_then_and_gets_the_route_once_it_is_free() {
    let reader = reader();
    let mut first = Lease::open(Arc::clone(&reader), "ses_1").unwrap();
    let other = Lease::open(Arc::clone(&reader), "ses_2").unwrap();
    let mut waiting = Lease::open_or_wait(Arc::clone(&reader), "ses_1");
    let begun = Instant::now();
    for times in 1..=2 {
        // Other reasons may wake the waiting lease before that.
        while now(&mut waiting).await.is_none() {
            drop(Lease::open(Arc::clone(&reader), "ses_3").unwrap());
        }
        let waited = begun.elapsed();
        assert!(
            waited >= WAITING_READ_INTERVAL * times
                && waited < WAITING_READ_INTERVAL * times + WAITING_READ_INTERVAL / 2,
            "{waited:?}"
        );
    }
    send(&reader, "ses_1", EventKind::PartDelta, "for the first");
    assert_eq!(now(&mut first).await.as_deref(), Some("for the first"));
    assert_eq!(now(&mut waiting).await, None);
    drop(first);
    assert!(reader.routes().unused_since().is_none());
    assert_eq!(now(&mut waiting).await.as_deref(), Some("reconnected"), "the turn reads what it missed");
    assert!(send(&reader, "ses_1", EventKind::PartDelta, "for the second"));
    assert_eq!(now(&mut waiting).await.as_deref(), Some("for the second"));
    assert_eq!(now(&mut waiting).await, None);
    drop((waiting, other));
    assert!(reader.routes().unused_since().is_some());
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_event_is_reported_at_its_position_and_not_twice_in_a_row() {
    let reader = reader();
    let mut lease = Lease::open(Arc::clone(&reader), "ses_1").unwrap();
    let missed = || reader.routes().missed();
    send(&reader, "ses_1", EventKind::PartDelta, "a");
    for _ in 0..2 * MAX_QUEUED {
        missed();
    }
    send(&reader, "ses_1", EventKind::PartDelta, "b");
    missed();
    for expected in ["a", "missed", "b", "missed"] {
        assert_eq!(now(&mut lease).await.as_deref(), Some(expected));
    }
    assert_eq!(now(&mut lease).await, None);
    // The turn has read its state since the last one.
    missed();
    assert_eq!(now(&mut lease).await.as_deref(), Some("missed"));
}

/// Only the beginning of a skimmed event is read. The rest may be the end of another turn's event.
#[tokio::test(start_paused = true)]
async fn a_malformed_event_is_reported_to_all_turns() {
    let reader = reader();
    let torn = br#"{"id":"evt_1","type":"message.updated","properties":{"sessionID":"ses_1","info":{"#;
    let send_torn = || {
        let routes = reader.routes();
        let target = routes.find("ses_1").unwrap();
        assert!(target.reads_everything());
        target.send(crate::skim::skim(torn).unwrap().event(Bytes::from_static(torn)));
    };
    let mut one = Lease::open(Arc::clone(&reader), "ses_1").unwrap();
    let mut two = Lease::open(Arc::clone(&reader), "ses_2").unwrap();
    send_torn();
    one.discard_queued();
    assert_eq!(now(&mut two).await.as_deref(), Some("missed"));
    send_torn();
    drop(one);
    assert_eq!(now(&mut two).await.as_deref(), Some("missed"), "the turn ended before it parsed the event");
    assert_eq!(reader.routes().metrics.opencode_event_queue_depth.get(), 0);

    // No turn would notice a malformed event of a sub-agent, or one that is dropped for a lagging turn.
    let _one = Lease::open(Arc::clone(&reader), "ses_1").unwrap();
    reader.routes().add_child("ses_child", "ses_1");
    assert!(!reader.routes().find("ses_child").unwrap().reads_everything());
    reader.routes().lag_all();
    assert!(!reader.routes().find("ses_1").unwrap().reads_everything());
}

#[test]
fn a_queue_entry_is_small() {
    assert!(size_of::<Routed>() <= 56, "{}", size_of::<Routed>());
}
