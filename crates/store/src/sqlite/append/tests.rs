use std::fs;

use longshore_engine::port::{Append, Store};
use longshore_testkit::store_suite::make::{append, chunk, create, status};
use tempfile::TempDir;

use super::super::{Durability, SqliteStore, schema};
use super::*;

/// The bytes of the header of SQLite's write-ahead log.
const LOG_HEADER: usize = 32;

/// The bytes of a frame of that log: a header with the page number, and the page.
const FRAME: usize = 24 + 4096;

struct Bench {
    directory: TempDir,
    store: SqliteStore,
}

impl Bench {
    /// A store with this many working tasks.
    async fn new(tasks: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join("store.db"), Durability::Process).unwrap();
        let bench = Self { directory, store };
        for number in 0..tasks {
            bench.store.create(create(&format!("t-{number}"))).await.unwrap();
            let working = vec![status(TaskState::Working, 2)];
            bench.append(append(&format!("t-{number}"), 1, working)).await;
        }
        bench
    }

    async fn append(&self, append: Append) {
        let head = append.expected.plus(append.events.len());
        assert_eq!(self.store.append(append).await.unwrap(), Appended::Head(head));
    }

    /// The pages that were written since the last call. A page occurs once for each commit that changed it.
    fn pages_since(&self, before: &mut usize) -> Vec<u32> {
        let log = fs::read(self.directory.path().join("store.db-wal")).unwrap();
        let numbers = log[LOG_HEADER..].chunks_exact(FRAME).map(|frame| {
            let number: [u8; 4] = frame[..4].try_into().unwrap();
            u32::from_be_bytes(number)
        });
        let pages: Vec<_> = numbers.skip(*before).collect();
        *before += pages.len();
        pages
    }

    /// The page of a table that has only one page.
    fn page_of(&self, table: &str) -> u32 {
        let db = Connection::open(self.directory.path().join("store.db")).unwrap();
        let root = "SELECT rootpage FROM sqlite_schema WHERE name = ?";
        db.query_row(root, [table], |row| row.get(0)).unwrap()
    }
}

/// A piece of output costs only one write of one page, until that page is full.
#[tokio::test]
async fn output_writes_the_page_of_the_log_and_no_other() {
    let bench = Bench::new(1).await;
    let (log, tasks, mut seen) = (bench.page_of("events"), bench.page_of("tasks"), 0);
    bench.pages_since(&mut seen);
    for expected in 2..8 {
        bench.append(append("t-0", expected, vec![chunk("a piece of output")])).await;
        assert_eq!(bench.pages_since(&mut seen), [log], "{expected}");
    }
    // A change of state is written to the task's row too.
    bench.append(append("t-0", 8, vec![status(TaskState::InputRequired, 3)])).await;
    let pages = bench.pages_since(&mut seen);
    assert!(pages.contains(&log) && pages.contains(&tasks), "{pages:?}");
}

#[tokio::test]
async fn the_output_of_many_tasks_leaves_their_rows_alone() {
    const TASKS: u64 = 16;
    let bench = Bench::new(TASKS).await;
    let (tasks, mut seen) = (bench.page_of("tasks"), 0);
    let made = bench.pages_since(&mut seen);
    assert!(made.contains(&tasks));
    for expected in 2..22 {
        for number in 0..TASKS {
            bench.append(append(&format!("t-{number}"), expected, vec![chunk("a piece of output")])).await;
        }
    }
    let pages = bench.pages_since(&mut seen);
    assert!(!pages.contains(&tasks), "{pages:?}");
    // This includes the pages that are written when a full page of the log is split, which are most of the rest.
    let appends = usize::try_from(20 * TASKS).unwrap();
    assert!(pages.len() < 3 * appends, "{} pages for {appends} pieces of output", pages.len());
}

/// Every query for the head of a log takes one step, however long the log is.
#[test]
fn the_head_is_found_in_one_step() {
    let directory = tempfile::tempdir().unwrap();
    let db = schema::open_writer(&directory.path().join("store.db"), Durability::Process).unwrap();
    let mut statement = db.prepare(&format!("EXPLAIN {}", *HAS_EXPECTED_HEAD)).unwrap();
    let steps = statement.raw_query().mapped(|row| row.get::<_, String>(1));
    let steps: Vec<_> = steps.map(Result::unwrap).collect();
    // The query reads the last event and no other.
    assert!(steps.iter().any(|step| step == "SeekLE" || step == "SeekLT"), "{steps:?}");
    assert!(!steps.iter().any(|step| step == "Next" || step == "Rewind"), "{steps:?}");
}
