use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use longshore_engine::port::{Append, Appended, Created, Store};
use longshore_model::{ErrorKind, Retry, Seq, TaskEvent};
use longshore_testkit::store_suite::make::{ada, append, chunk, create, existing, owner, task_id};
use tempfile::TempDir;

use super::super::queue::QUEUE_OF_OWNER;
use super::super::{Durability, SqliteStore};
use super::*;

struct Bench {
    store: SqliteStore,
    /// The last field, so that it is dropped after the store.
    _directory: TempDir,
}

impl Bench {
    /// A store with the tasks `a`, `b` and `c`.
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join("store.db"), Durability::Process).unwrap();
        for task in ["a", "b", "c"] {
            store.create(create(task)).await.unwrap();
        }
        Self { store, _directory: directory }
    }

    /// Makes SQLite refuse events whose body contains `word`.
    async fn refuse(&self, word: &'static str, how: &'static str) {
        let trigger = format!(
            "CREATE TRIGGER refuse BEFORE INSERT ON events WHEN NEW.body LIKE '%{word}%'
             BEGIN SELECT RAISE({how}, 'refused'); END"
        );
        self.store.writer.run(Owner::Gateway, move |db| Ok(db.execute_batch(&trigger)?)).await.unwrap();
    }

    /// Runs the requests in one group: the thread is kept busy until all of them wait.
    async fn in_one_group<T>(&self, requests: Vec<BoxFuture<'_, Result<T>>>) -> Vec<Result<T>> {
        assert!(requests.len() <= GROUP);
        let (busy, release) = self.keep_busy().await;
        let mut all = join_all(requests);
        // The first poll of each future puts its request into the queue.
        assert!((&mut all).now_or_never().is_none());
        drop(release);
        let answers = all.await;
        busy.await.unwrap();
        answers
    }

    /// Keeps the thread busy until the sender is dropped.
    async fn keep_busy(&self) -> (BoxFuture<'_, Result<()>>, SyncSender<()>) {
        let (release, released) = sync_channel::<()>(1);
        let (begun, has_begun) = oneshot::channel();
        let mut begun = Some(begun);
        let mut busy = self
            .store
            .writer
            .run(Owner::Gateway, move |_| {
                begun.take().unwrap().send(()).unwrap();
                // Ends with an error when the sender is dropped.
                released.recv().unwrap_err();
                Ok(())
            })
            .boxed();
        assert!((&mut busy).now_or_never().is_none());
        has_begun.await.unwrap();
        (busy, release)
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended>> {
        self.store.append(append)
    }

    async fn log(&self, task: &str) -> Vec<TaskEvent> {
        let entries = self.store.read(&ada(), &task_id(task), Seq(1), 100).await.unwrap();
        entries.into_iter().map(|entry| entry.event).collect()
    }
}

fn head(outcome: &Result<Appended>) -> u64 {
    match outcome {
        Ok(Appended::Head(seq)) => seq.0,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_group_runs_in_the_order_of_its_requests() {
    let bench = Bench::new().await;
    let events: Vec<_> = (0..20).map(|n| chunk(&n.to_string())).collect();
    // Each request expects the write of the one before it. All are in one transaction.
    let requests =
        events.iter().zip(1..).map(|(e, at)| bench.append(append("a", at, vec![e.clone()]))).collect();
    let heads: Vec<_> = bench.in_one_group(requests).await.iter().map(head).collect();
    assert_eq!(heads, (2..=21).collect::<Vec<_>>());
    assert_eq!(bench.log("a").await, events);
}

#[tokio::test]
async fn requests_that_write_nothing_do_not_affect_their_group() {
    let bench = Bench::new().await;
    let requests = vec![
        bench.append(append("a", 1, vec![chunk("1")])),
        bench.append(append("b", 7, vec![chunk("conflict")])),
        bench.append(append("none", 1, vec![chunk("unknown")])),
        bench.append(append("a", 2, vec![chunk("2")])),
    ];
    let answers = bench.in_one_group(requests).await;
    assert_eq!(head(&answers[0]), 2);
    assert_eq!(*answers[1].as_ref().unwrap(), Appended::Conflict { head: Seq(1) });
    assert_eq!(answers[2].as_ref().unwrap_err().kind(), ErrorKind::TaskNotFound);
    assert_eq!(head(&answers[3]), 3);
    assert_eq!(bench.log("a").await, [chunk("1"), chunk("2")]);
    assert_eq!(bench.log("b").await, []);
}

#[tokio::test]
async fn only_the_request_that_fails_half_way_is_undone() {
    let bench = Bench::new().await;
    bench.refuse("poison", "ABORT").await;
    let requests = vec![
        bench.append(append("a", 1, vec![chunk("1")])),
        bench.append(append("b", 1, vec![chunk("written first"), chunk("poison"), chunk("never tried")])),
        bench.append(append("c", 1, vec![chunk("3")])),
    ];
    let answers = bench.in_one_group(requests).await;
    assert_eq!((head(&answers[0]), head(&answers[2])), (2, 2));
    assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(bench.log("a").await, [chunk("1")]);
    assert_eq!(bench.log("b").await, []);
    assert_eq!(bench.log("c").await, [chunk("3")]);
    // No row of the failed request is left.
    assert_eq!(head(&bench.append(append("b", 1, vec![chunk("again")])).await), 2);
}

#[tokio::test]
async fn a_refusal_is_repeated_when_the_group_is_run_in_savepoints() {
    let bench = Bench::new().await;
    bench.refuse("poison", "ABORT").await;
    let requests = vec![
        bench.append(append("b", 7, vec![chunk("conflict")])),
        bench.append(append("none", 1, vec![chunk("unknown")])),
        bench.append(append("a", 1, vec![chunk("1")])),
        bench.append(append("b", 1, vec![chunk("poison")])),
        bench.append(append("a", 2, vec![chunk("2")])),
        bench.append(append("c", 1, vec![chunk("poison")])),
        bench.append(append("a", 2, vec![chunk("late")])),
    ];
    let answers = bench.in_one_group(requests).await;
    assert_eq!(*answers[0].as_ref().unwrap(), Appended::Conflict { head: Seq(1) });
    assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::TaskNotFound);
    assert_eq!((head(&answers[2]), head(&answers[4])), (2, 3));
    for poisoned in [3, 5] {
        assert_eq!(answers[poisoned].as_ref().unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert_eq!(*answers[6].as_ref().unwrap(), Appended::Conflict { head: Seq(3) });
    assert_eq!(bench.log("a").await, [chunk("1"), chunk("2")]);
    assert_eq!((bench.log("b").await, bench.log("c").await), (vec![], vec![]));
}

#[tokio::test]
async fn a_single_request_that_fails_half_way_leaves_nothing() {
    let bench = Bench::new().await;
    bench.refuse("poison", "ABORT").await;
    let refused = bench.append(append("a", 1, vec![chunk("written first"), chunk("poison")])).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(bench.log("a").await, []);
    assert_eq!(head(&bench.append(append("a", 1, vec![chunk("again")])).await), 2);
}

#[tokio::test]
async fn a_reused_row_of_another_task_is_not_written_to() {
    let bench = Bench::new().await;
    assert_eq!(head(&bench.append(append("c", 1, vec![chunk("1")])).await), 2);
    // SQLite reuses the ordinal of a deleted task for the next one.
    let swap = "DELETE FROM tasks WHERE id = 'c'";
    bench.store.writer.run(Owner::Gateway, move |db| Ok(db.execute_batch(swap)?)).await.unwrap();
    bench.store.create(create("d")).await.unwrap();
    bench.store.append(append("d", 1, vec![chunk("d")])).await.unwrap();
    let refused = bench.append(append("c", 2, vec![chunk("2")])).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TaskNotFound);
    assert_eq!(bench.log("d").await, [chunk("d")]);
}

/// Returns the position of each write of `who` in the order of execution.
fn numbered<'a>(bench: &'a Bench, done: &Arc<AtomicUsize>, who: &str) -> BoxFuture<'a, Result<usize>> {
    let done = done.clone();
    bench
        .store
        .writer
        .run(Owner::Principal(owner(who)), move |_| Ok(done.fetch_add(1, Ordering::SeqCst)))
        .boxed()
}

#[tokio::test]
async fn a_thousand_writes_of_one_owner_do_not_delay_another() {
    let bench = Bench::new().await;
    let (busy, release) = bench.keep_busy().await;
    let done = Arc::new(AtomicUsize::new(0));
    let mut flood = join_all((0..1_000).map(|_| numbered(&bench, &done, "ada")));
    assert!((&mut flood).now_or_never().is_none());
    let mut mine = join_all((0..3).map(|_| numbered(&bench, &done, "bob")));
    assert!((&mut mine).now_or_never().is_none());
    drop(release);
    busy.await.unwrap();
    let (flood, mine) = tokio::join!(flood, mine);
    let before_mine: Vec<_> = mine.into_iter().map(Result::unwrap).collect();
    // Before each of my writes, one write of the other owner ran.
    assert_eq!(before_mine, [1, 3, 5]);
    // No write is lost, and none is done twice.
    let all: BTreeSet<_> = flood.into_iter().map(Result::unwrap).collect();
    assert_eq!((all.len(), done.load(Ordering::SeqCst)), (1_000, 1_003));
}

#[tokio::test]
async fn groups_and_jobs_are_counted() {
    let bench = Bench::new().await;
    let metrics = bench.store.metrics.clone();
    let (groups, appends) = (metrics.store_group.count(), metrics.store_append.count());
    let requests =
        ["a", "b", "c"].iter().map(|task| bench.append(append(task, 1, vec![chunk("1")]))).collect();
    bench.in_one_group(requests).await;
    // One of the two groups is the request that kept the thread busy.
    assert_eq!(metrics.store_group.count() - groups, 2);
    assert_eq!(metrics.store_append.count() - appends, 3);
    assert_eq!(metrics.store_queue_depth.of(StoreThread::Writer).get(), 0);
    assert_eq!(metrics.store_queue_peak.of(StoreThread::Writer).get(), 3);
}

#[tokio::test]
async fn a_lost_transaction_is_lost_for_its_whole_group() {
    let bench = Bench::new().await;
    bench.refuse("poison", "ROLLBACK").await;
    let requests = vec![
        bench.append(append("a", 1, vec![chunk("1")])),
        bench.append(append("b", 1, vec![chunk("poison")])),
        bench.append(append("c", 1, vec![chunk("3")])),
    ];
    for answer in bench.in_one_group(requests).await {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    // The row cache must not claim that the lost events exist.
    bench.store.writer.connection.lock().unwrap().set_inline_allowed(true);
    let late = bench.append(append("a", 2, vec![chunk("2")])).await;
    assert_eq!(late.unwrap(), Appended::Conflict { head: Seq(1) });
    for task in ["a", "b", "c"] {
        assert_eq!(bench.log(task).await, [], "{task}");
        assert_eq!(head(&bench.append(append(task, 1, vec![chunk("again")])).await), 2);
    }
}

#[tokio::test]
async fn a_failed_commit_fails_every_request_of_the_group() {
    let bench = Bench::new().await;
    let twin = create("twin");
    let mut again = create("other");
    again.idempotency = twin.idempotency.clone();
    // A row that violates a constraint which SQLite checks only at the commit.
    let broken = bench.store.writer.run(Owner::Gateway, |db| {
        db.execute_batch(
            "PRAGMA defer_foreign_keys = 1;
             INSERT INTO events (task, seq, at, kind, body) VALUES (999, 1, 0, 'status', '')",
        )?;
        Ok(Created::New)
    });
    let requests = vec![bench.store.create(twin.clone()), broken.boxed(), bench.store.create(again.clone())];
    for answer in bench.in_one_group(requests).await {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    // The key is still unused.
    assert_eq!(bench.store.create(again).await.unwrap(), Created::New);
    assert_eq!(bench.store.create(twin).await.unwrap(), existing("other"));
}

#[tokio::test]
async fn a_queued_write_is_done_although_its_caller_is_gone() {
    let bench = Bench::new().await;
    let (busy, release) = bench.keep_busy().await;
    let mut forgotten = bench.append(append("a", 1, vec![chunk("1")]));
    assert!((&mut forgotten).now_or_never().is_none());
    drop(forgotten);
    drop(release);
    busy.await.unwrap();
    // This request was queued after the broken one.
    bench.store.writer.run(Owner::Principal(ada()), |_| Ok(())).await.unwrap();
    assert_eq!(head(&bench.append(append("a", 2, vec![chunk("2")])).await), 3);
    assert_eq!(bench.log("a").await, [chunk("1"), chunk("2")]);
}

#[tokio::test]
async fn a_full_queue_makes_callers_wait() {
    let bench = Bench::new().await;
    let (busy, release) = bench.keep_busy().await;
    let mut others =
        join_all((0..QUEUE_OF_OWNER).map(|_| bench.store.writer.run(Owner::Principal(ada()), |_| Ok(()))));
    assert!((&mut others).now_or_never().is_none());
    let mut late = bench.append(append("a", 1, vec![chunk("1")]));
    assert!((&mut late).now_or_never().is_none());
    assert_eq!(bench.store.writer.worker.queue.waiting(), QUEUE_OF_OWNER);
    drop(release);
    busy.await.unwrap();
    others.await;
    assert_eq!(head(&late.await), 2);
}

#[tokio::test]
async fn a_store_without_its_thread_says_that_a_retry_does_not_help() {
    let bench = Bench::new().await;
    let broken: Result<()> =
        bench.store.writer.run(Owner::Gateway, |_| panic!("a defect, for the test")).await;
    let refused = bench.append(append("a", 1, vec![chunk("1")])).await;
    for error in [broken.unwrap_err(), refused.unwrap_err()] {
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Internal, Retry::Never));
        assert!(error.message().contains("Restart the gateway"), "{error}");
    }
    // Earlier writes can still be read.
    assert_eq!(bench.log("a").await, []);
}
