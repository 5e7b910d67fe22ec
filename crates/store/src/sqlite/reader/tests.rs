use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use longshore_engine::port::{ListQuery, Store as _};
use longshore_model::{Principal, Seq, Timestamp};
use longshore_testkit::store_suite::make::{ada, create, everything, file_id, owner, request_id, task_id};

use super::super::known_damage::KnownDamage;
use super::super::{Durability, SqliteStore, list};
use super::*;

/// Blocks the thread with a job of this owner until the returned sender is dropped.
fn hold(reader: &Reader, owner: Owner) -> (SyncSender<()>, oneshot::Receiver<()>, BoxFuture<'_, Result<()>>) {
    let (release, released) = sync_channel::<()>(1);
    let (begun, has_begun) = oneshot::channel();
    let busy = move |_: &Connection| {
        begun.send(()).expect("the test waits");
        // Ends with an error when the sender is dropped.
        released.recv().expect_err("nothing is sent");
        Ok(())
    };
    let mut busy = reader.run(owner, busy).boxed();
    assert!((&mut busy).now_or_never().is_none());
    (release, has_begun, busy)
}

#[tokio::test]
async fn a_thousand_lists_of_one_owner_do_not_delay_another() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join("store.db"), Durability::Process).unwrap();
    store.create(create("t")).await.unwrap();

    let (release, has_begun, busy) = hold(&store.lists, Owner::Gateway);
    has_begun.await.unwrap();

    let done = Arc::new(AtomicUsize::new(0));
    let list = |who: &str| {
        let done = done.clone();
        let query = ListQuery { owner: owner(who), ..everything() };
        store.lists.run(Owner::Principal(owner(who)), move |db| {
            let total = list::list(db, &KnownDamage::default(), &query)?.total;
            Ok((done.fetch_add(1, Ordering::SeqCst), total))
        })
    };
    let mut flood = join_all((0..1_000).map(|_| list("ada")));
    assert!((&mut flood).now_or_never().is_none());
    let mut mine = list("bob").boxed();
    assert!((&mut mine).now_or_never().is_none());
    drop(release);
    busy.await.unwrap();
    let (flood, mine) = tokio::join!(flood, mine);
    // Only one job of the other owner ran before mine.
    assert_eq!(mine.unwrap(), (1, 0));
    let positions: BTreeSet<_> = flood.into_iter().map(|one| one.unwrap().0).collect();
    assert_eq!(positions.len(), 1_000);
}

/// Bob makes one request after Ada has made a thousand. He must get his answer before her third.
async fn check_fair(reader: &Reader, ask: impl Fn(Principal) -> BoxFuture<'static, ()>) {
    let (release, has_begun, busy) = hold(reader, Owner::Gateway);
    has_begun.await.expect("it begins");
    let mut flood = join_all((0..1_000).map(|_| ask(ada())));
    assert!((&mut flood).now_or_never().is_none());
    let mut mine = ask(owner("bob"));
    assert!((&mut mine).now_or_never().is_none());
    let (release_again, has_begun, busy_again) = hold(reader, Owner::Principal(owner("bob")));
    drop(release);
    busy.await.expect("it ends");
    has_begun.await.expect("it begins");
    mine.now_or_never().expect("it is answered");
    assert!((&mut flood).now_or_never().is_none());
    drop(release_again);
    busy_again.await.expect("it ends");
    flood.await;
}

#[tokio::test]
async fn a_thousand_reads_of_one_owner_do_not_delay_another() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join("store.db"), Durability::Process).unwrap();
    let store = Arc::new(store);
    store.create(create("t")).await.unwrap();
    check_fair(&store.quick, |caller| {
        let store = Arc::clone(&store);
        async move {
            assert_eq!(store.read(&caller, &task_id("t"), Seq::START, 9).await.unwrap().len(), 1);
        }
        .boxed()
    })
    .await;
    check_fair(&store.quick, |caller| {
        let store = Arc::clone(&store);
        async move { assert_eq!(store.interrupt(&caller, &request_id("r")).await.unwrap(), None) }.boxed()
    })
    .await;
    check_fair(&store.whole, |caller| {
        let store = Arc::clone(&store);
        async move { assert_eq!(store.read_file(&caller, &file_id("f"), 0, 9).await.unwrap(), None) }.boxed()
    })
    .await;
}

/// A health check waits for at most one job of the gateway itself.
#[tokio::test]
async fn a_health_check_does_not_wait_for_the_gateways_own_work() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join("store.db"), Durability::Process).unwrap();
    let (release, has_begun, busy) = hold(&store.quick, Owner::Gateway);
    has_begun.await.unwrap();
    let mut flood = join_all((0..200).map(|_| store.ended_turns(Timestamp(0))));
    assert!((&mut flood).now_or_never().is_none());
    let mut check = store.check();
    assert!((&mut check).now_or_never().is_none());
    // Hold the thread again in a job that runs behind the health check and before most of the flood.
    let (release_again, has_begun, busy_again) = hold(&store.quick, Owner::Health);
    drop(release);
    busy.await.unwrap();
    has_begun.await.unwrap();
    tokio::time::timeout(Duration::from_secs(30), check).await.expect("the health check ends").unwrap();
    assert!((&mut flood).now_or_never().is_none());
    drop(release_again);
    busy_again.await.unwrap();
    assert!(flood.await.into_iter().all(|found| found.is_ok()));
}
