use std::path::PathBuf;
use std::sync::mpsc::sync_channel;

use tempfile::TempDir;

use super::super::{Durability, schema};
use super::*;

const SHORT: Thresholds = Thresholds { sync_every: 3, copy_every: 10, restart_at: 40 };

/// The most writes of a test.
const MANY: usize = 100_000;

struct Bench {
    directory: TempDir,
    db: Connection,
    checkpoints: Checkpoints,
    // The last field, so that the file is closed last.
    file: Arc<File>,
}

impl Bench {
    fn new() -> Self {
        Self::with(SHORT, |path| schema::open_checkpointer(path, Durability::Process).unwrap())
    }

    fn with(thresholds: Thresholds, checkpointer: impl Fn(&std::path::Path) -> Connection) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let mut db = schema::open_writer(&path, Durability::Process).unwrap();
        let file = Arc::new(schema::open_file(&path).unwrap());
        let checkpoints = Checkpoints::start(&mut db, checkpointer(&path), file.clone(), thresholds).unwrap();
        Self { directory, db, checkpoints, file }
    }

    /// Ends the checkpoint thread, so that the test can do its work.
    fn end_thread(&mut self) {
        self.checkpoints.shared.lock().action = NextAction::Stop;
        self.checkpoints.shared.changed.notify_all();
        self.checkpoints.thread.take().unwrap().join().unwrap();
        self.checkpoints.shared.lock().action = NextAction::Wait;
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("store.db")
    }

    /// Writes a page or two. Returns the size of the log afterwards.
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

    /// Writes until the log has been restarted. Returns its size before.
    fn write_until_restart(&self) -> i64 {
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
fn a_copy_is_due_after_enough_growth_or_a_restart() {
    let mut copies = CopySchedule::default();
    let steps = [1000, 2000, 3000, 4010, 5000, 8000, 8010, 1000, 3000, 4000, 7000, 4000, 8000];
    let due: Vec<i64> = steps.into_iter().filter(|pages| copies.is_due(*pages, 4000)).collect();
    // At 8 000, the log has grown by less than 4 000 since 4 010. Before 1 000 and before the last 4 000, the log was restarted.
    assert_eq!(due, [4010, 8010, 4000, 8000]);
}

#[test]
fn a_log_under_constant_writes_is_restarted() {
    let bench = Bench::new();
    for _ in 0..3 {
        assert!(bench.write_until_restart() >= SHORT.sync_every);
    }
}

#[test]
fn pages_written_before_the_writer_is_held_are_copied_too() {
    // The thread has ended; the test does its work.
    let thresholds = Thresholds { sync_every: i64::MAX, copy_every: i64::MAX, restart_at: 0 };
    let open = |path: &std::path::Path| schema::open_checkpointer(path, Durability::Process).unwrap();
    let bench = Bench::with(thresholds, open);
    let (checkpointer, shared, file) = (open(&bench.path()), &bench.checkpoints.shared, &*bench.file);
    let mut before = 0;
    for _ in 0..20 {
        before = bench.write();
    }
    bench.checkpoints.begin_group();
    bench.db.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        let checkpoint = scope
            .spawn(move || shared.checkpoint(&checkpointer, file, &LogFile::open(&checkpointer)).unwrap());
        while !shared.lock().is_held {
            std::thread::yield_now();
        }
        // The only page that is not copied yet.
        bench.insert();
        bench.db.execute_batch("COMMIT").unwrap();
        bench.checkpoints.end_group();
        checkpoint.join().unwrap();
    });
    let after = bench.write();
    assert!(after < before, "the log goes on with page {after}");
}

#[test]
fn a_reader_delays_the_restart_only_while_it_reads() {
    let bench = Bench::new();
    let reader = schema::open_reader(&bench.path()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM probes").unwrap();
    let mut last = 0;
    while last < SHORT.restart_at * 5 {
        let pages = bench.write();
        assert!(pages > last, "the log was restarted under a reader");
        last = pages;
    }
    reader.execute_batch("COMMIT").unwrap();
    bench.write_until_restart();
}

#[test]
fn a_log_that_cannot_be_copied_can_still_be_written() {
    // SQLite refuses every checkpoint on a read-only connection.
    let bench = Bench::with(SHORT, |path| schema::open_reader(path).unwrap());
    let mut last = 0;
    while last < SHORT.restart_at * 5 {
        let pages = bench.write();
        assert!(pages > last);
        last = pages;
    }
}

#[test]
fn all_rows_survive_a_restart_of_the_log() {
    let bench = Bench::new();
    bench.write_until_restart();
    let written: i64 = bench.db.query_row("SELECT count(*) FROM probes", [], |row| row.get(0)).unwrap();
    // Copy the files in the state in which a killed process leaves them.
    let left = tempfile::tempdir().unwrap();
    for name in ["store.db", "store.db-wal"] {
        // The log keeps the copied pages until the next write.
        std::fs::copy(bench.directory.path().join(name), left.path().join(name)).unwrap();
    }
    let found = Connection::open(left.path().join("store.db")).unwrap();
    let kept: i64 = found.query_row("SELECT count(*) FROM probes", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, written);
}

#[test]
fn the_writer_is_held_only_between_groups() {
    let bench = Bench::new();
    let (checkpoints, shared) = (&bench.checkpoints, &bench.checkpoints.shared);
    checkpoints.begin_group();
    let (report, reports) = sync_channel(1);
    let (release, released) = sync_channel::<()>(1);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let held = shared.hold_writer();
            report.send("held").unwrap();
            released.recv().unwrap_err();
            report.send("released").unwrap();
            drop(held);
        });
        while !shared.lock().is_held {
            std::thread::yield_now();
        }
        checkpoints.end_group();
        assert_eq!(reports.recv(), Ok("held"));
        let begins = scope.spawn(move || {
            checkpoints.begin_group();
            // The writer was held until here.
            assert_eq!(reports.try_recv(), Ok("released"));
            checkpoints.end_group();
        });
        drop(release);
        begins.join().unwrap();
    });
}

#[test]
fn no_write_runs_beside_a_checkpoint_that_holds_the_writer() {
    let bench = Bench::new();
    let held = bench.checkpoints.shared.hold_writer();
    assert!(!bench.checkpoints.try_begin_group());
    drop(held);
    assert!(bench.checkpoints.try_begin_group());
    // The writer cannot be held before the group ends.
    assert!(bench.checkpoints.shared.lock().is_writing);
    bench.checkpoints.end_group();
}

#[test]
fn inline_appends_avoid_a_busy_disk_and_the_restarting_commit() {
    // First case: everything is copied and the writer restarts the log on its own. Second case: the thread forces the restart.
    for long in [i64::MAX, 0] {
        let thresholds = Thresholds { sync_every: i64::MAX, copy_every: i64::MAX, restart_at: long };
        let open = |path: &std::path::Path| schema::open_checkpointer(path, Durability::Process).unwrap();
        let mut bench = Bench::with(thresholds, open);
        bench.end_thread();
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

        shared.lock().action = NextAction::Sync;
        assert!(!may_write());
        assert!(shared.is_due());
        assert!(!may_write());
        shared.lock().is_thread_busy = false;
        assert!(may_write());

        shared.checkpoint(&checkpointer, &bench.file, &LogFile::open(&checkpointer)).unwrap();
        assert!(!may_write());
        // A group that may wait but writes nothing leaves the restart to the next group.
        bench.checkpoints.begin_group();
        bench.checkpoints.end_group();
        assert!(!may_write());
        let after = bench.write();
        assert!(after < before, "the log goes on with page {after}");
        assert!(may_write());
    }
}
