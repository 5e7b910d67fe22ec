use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use futures_util::FutureExt;
use futures_util::future::join_all;
use longshore_engine::port::{ListQuery, Store as _};
use longshore_testkit::store_suite::make::{create, everything, owner};

use super::super::{Durability, SqliteStore, list};
use super::*;

#[tokio::test]
async fn one_owner_with_a_thousand_lists_does_not_keep_another_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&directory.path().join("store.db"), Durability::Process).unwrap();
    store.create(create("t")).await.unwrap();

    let (release, released) = sync_channel::<()>(1);
    let (begun, has_begun) = oneshot::channel();
    let busy = move |_: &Connection| {
        begun.send(()).unwrap();
        // Ends with an error when the sender is dropped.
        released.recv().unwrap_err();
        Ok(())
    };
    let mut busy = store.lists.run(None, busy).boxed();
    assert!((&mut busy).now_or_never().is_none());
    has_begun.await.unwrap();

    let done = Arc::new(AtomicUsize::new(0));
    let list = |who: &str| {
        let done = done.clone();
        let query = ListQuery { owner: owner(who), ..everything() };
        store.lists.run(Some(owner(who)), move |db| {
            let total = list::list(db, &query)?.total;
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
    // One of the other before mine.
    assert_eq!(mine.unwrap(), (1, 0));
    let places: BTreeSet<_> = flood.into_iter().map(|one| one.unwrap().0).collect();
    assert_eq!(places.len(), 1_000);
}
