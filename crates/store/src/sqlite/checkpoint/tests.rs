use std::path::PathBuf;
use std::sync::mpsc::sync_channel;

use tempfile::TempDir;

use super::super::{Durability, schema};
use super::*;

const SHORT: Lengths = Lengths { step: 3, copy: 10, long: 40 };

/// No test writes more often than this before it gives up.
const MANY: usize = 100_000;

struct Bench {
    directory: TempDir,
    db: Connection,
    checkpoints: Checkpoints,
    // Closed last.
    file: Arc<File>,
}

impl Bench {
    fn new() -> Self {
        Self::with(SHORT, |path| schema::open_checkpointer(path, Durability::Process).unwrap())
    }

    fn with(lengths: Lengths, checkpointer: impl Fn(&std::path::Path) -> Connection) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let mut db = schema::open_writer(&path, Durability::Process).unwrap();
        let file = Arc::new(schema::open_file(&path).unwrap());
        let checkpoints = Checkpoints::start(&mut db, checkpointer(&path), file.clone(), lengths).unwrap();
        Self { directory, db, checkpoints, file }
    }

    /// The test is in its place from now on.
    fn end_the_thread(&mut self) {
        self.checkpoints.shared.lock().errand = Errand::End;
        self.checkpoints.shared.changed.notify_all();
        self.checkpoints.thread.take().unwrap().join().unwrap();
        self.checkpoints.shared.lock().errand = Errand::None;
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("store.db")
    }

    /// Writes a page or two, and gives how many the log has then.
    fn write(&self) -> i64 {
        self.checkpoints.begin_group();
        self.insert();
        self.checkpoints.end_group();
        self.checkpoints.shared.lock().pages
    }

    fn insert(&self) {
        let sql = "INSERT INTO probes (body) VALUES (zeroblob(3000))";
        self.db.prepare_cached(sql).unwrap().execute([]).unwrap();
    }

    /// Writes until the log has begun anew, and gives how long it was before.
    fn write_until_anew(&self) -> i64 {
        let mut last = 0;
        for _ in 0..MANY {
            let pages = self.write();
            if pages < last {
                return last;
            }
            last = pages;
        }
        panic!("the log has {last} pages and grows");
    }
}

#[test]
fn the_log_is_copied_when_it_has_grown_enough_since_the_last_time_or_anew() {
    let mut copies = Copies::default();
    let steps = [1000, 2000, 3000, 4010, 5000, 8000, 8010, 1000, 3000, 4000, 7000, 4000, 8000];
    let due: Vec<i64> = steps.into_iter().filter(|pages| copies.is_due(*pages, 4000)).collect();
    // 8 000 is not far enough behind 4 010; and before 1 000, as before the last 4 000, the log has begun anew.
    assert_eq!(due, [4010, 8010, 4000, 8000]);
}

#[test]
fn a_log_that_is_always_written_to_is_begun_anew() {
    let bench = Bench::new();
    for _ in 0..3 {
        assert!(bench.write_until_anew() >= SHORT.step);
    }
}

#[test]
fn what_is_written_until_the_writer_is_held_is_copied_too() {
    // The thread does nothing by itself; the test is in its place.
    let lengths = Lengths { step: i64::MAX, copy: i64::MAX, long: 0 };
    let open = |path: &std::path::Path| schema::open_checkpointer(path, Durability::Process).unwrap();
    let bench = Bench::with(lengths, open);
    let (checkpointer, shared, file) = (open(&bench.path()), &bench.checkpoints.shared, &*bench.file);
    let mut before = 0;
    for _ in 0..20 {
        before = bench.write();
    }
    bench.checkpoints.begin_group();
    bench.db.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        let checkpoint =
            scope.spawn(move || shared.checkpoint(&checkpointer, file, &LogFile::of(&checkpointer)).unwrap());
        while !shared.lock().is_held {
            std::thread::yield_now();
        }
        // All but this is copied by now.
        bench.insert();
        bench.db.execute_batch("COMMIT").unwrap();
        bench.checkpoints.end_group();
        checkpoint.join().unwrap();
    });
    let after = bench.write();
    assert!(after < before, "the log goes on with page {after}");
}

#[test]
fn who_reads_keeps_the_log_only_while_he_reads() {
    let bench = Bench::new();
    let reader = schema::open_reader(&bench.path()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM probes").unwrap();
    let mut last = 0;
    while last < SHORT.long * 5 {
        let pages = bench.write();
        assert!(pages > last, "the log was begun anew under a reader");
        last = pages;
    }
    reader.execute_batch("COMMIT").unwrap();
    bench.write_until_anew();
}

#[test]
fn a_log_that_cannot_be_copied_is_still_written() {
    // SQLite refuses every checkpoint here.
    let bench = Bench::with(SHORT, |path| schema::open_reader(path).unwrap());
    let mut last = 0;
    while last < SHORT.long * 5 {
        let pages = bench.write();
        assert!(pages > last);
        last = pages;
    }
}

#[test]
fn everything_is_there_when_the_log_was_begun_anew() {
    let bench = Bench::new();
    bench.write_until_anew();
    let written: i64 = bench.db.query_row("SELECT count(*) FROM probes", [], |row| row.get(0)).unwrap();
    // What a killed process leaves behind.
    let left = tempfile::tempdir().unwrap();
    for name in ["store.db", "store.db-wal"] {
        // Whatever is copied from the log meanwhile is in the log too, until somebody writes.
        std::fs::copy(bench.directory.path().join(name), left.path().join(name)).unwrap();
    }
    let found = Connection::open(left.path().join("store.db")).unwrap();
    let kept: i64 = found.query_row("SELECT count(*) FROM probes", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, written);
}

#[test]
fn the_writer_is_held_between_two_groups() {
    let bench = Bench::new();
    let (checkpoints, shared) = (&bench.checkpoints, &bench.checkpoints.shared);
    checkpoints.begin_group();
    let (told, tells) = sync_channel(1);
    let (release, released) = sync_channel::<()>(1);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let held = shared.hold_the_writer();
            told.send("held").unwrap();
            released.recv().unwrap_err();
            told.send("released").unwrap();
            drop(held);
        });
        while !shared.lock().is_held {
            std::thread::yield_now();
        }
        checkpoints.end_group();
        assert_eq!(tells.recv(), Ok("held"));
        let begins = scope.spawn(move || {
            checkpoints.begin_group();
            // Not before.
            assert_eq!(tells.try_recv(), Ok("released"));
            checkpoints.end_group();
        });
        drop(release);
        begins.join().unwrap();
    });
}

#[test]
fn nobody_writes_beside_a_checkpoint_that_holds_the_writer() {
    let bench = Bench::new();
    let held = bench.checkpoints.shared.hold_the_writer();
    assert!(!bench.checkpoints.try_begin_group());
    drop(held);
    assert!(bench.checkpoints.try_begin_group());
    // It cannot be held before the group is over.
    assert!(bench.checkpoints.shared.lock().is_writing);
    bench.checkpoints.end_group();
}

#[test]
fn who_cannot_wait_does_not_write_while_the_disk_is_busy_or_begin_the_log_anew() {
    // All is copied, and the writer begins anew by itself; or it is made to.
    for long in [i64::MAX, 0] {
        let lengths = Lengths { step: i64::MAX, copy: i64::MAX, long };
        let open = |path: &std::path::Path| schema::open_checkpointer(path, Durability::Process).unwrap();
        let mut bench = Bench::with(lengths, open);
        bench.end_the_thread();
        let (checkpointer, shared) = (open(&bench.path()), &bench.checkpoints.shared);
        bench.write();
        let before = bench.write();
        let may_write = || {
            let may = bench.checkpoints.try_begin_group();
            if may {
                bench.insert();
                bench.checkpoints.end_group();
            }
            may
        };
        assert!(may_write());

        shared.lock().errand = Errand::Step;
        assert!(!may_write());
        assert!(shared.is_due());
        assert!(!may_write());
        shared.lock().is_at_work = false;
        assert!(may_write());

        shared.checkpoint(&checkpointer, &bench.file, &LogFile::of(&checkpointer)).unwrap();
        assert!(!may_write());
        // One that can wait, but has nothing to write, leaves it to the next.
        bench.checkpoints.begin_group();
        bench.checkpoints.end_group();
        assert!(!may_write());
        let after = bench.write();
        assert!(after < before, "the log goes on with page {after}");
        assert!(may_write());
    }
}
