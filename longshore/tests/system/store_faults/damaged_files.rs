//! Files that were damaged at random places: each is refused, or served without a wrong task or event.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use longshore_engine::end_of_repaired;
use longshore_engine::port::{Append, Store as _};
use longshore_model::{Entry, Seq, Task, TaskId, TaskState, Timestamp};
use longshore_store::Durability;
use longshore_testkit::store_suite::make::{ada, append, chunk, create, everything, status, task_id, turn};

const TASKS: usize = 60;
const PAGE: usize = 4096;

/// What was written.
pub(crate) struct Original {
    pub(crate) id: TaskId,
    pub(crate) task: Task,
    log: Vec<Entry>,
}

/// Repeatable numbers.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

impl Dice {
    /// A byte that JSON text may hold.
    fn letter(&mut self) -> u8 {
        b' ' + u8::try_from(self.below(95)).expect("it is small")
    }
}

pub(crate) async fn make(path: &Path) -> Vec<Original> {
    let store = longshore_store::sqlite(path, Durability::Process).expect("a new store");
    let mut made = Vec::new();
    for number in 0..TASKS {
        let name = format!("task-{number}");
        store.create(create(&name)).await.expect("it is created");
        let working = append(&name, 1, vec![status(TaskState::Working, 2)]);
        let turn = Some(turn(&name, &format!("prompt-{number}")));
        store.append(Append { turn, ..working }).await.expect("it is appended");
        for piece in 0..12 {
            let words = format!("piece {piece} of {name} ").repeat(1 + (number * piece) % 40);
            store.append(append(&name, 2 + piece as u64, vec![chunk(&words)])).await.expect("it is appended");
        }
        if number % 3 > 0 {
            store.append(append(&name, 14, vec![status(TaskState::Completed, 20)])).await.expect("it ends");
        }
        let id = task_id(&name);
        let task = store.get(&ada(), &id).await.expect("it is read").expect("it is there").task;
        let log = store.read(&ada(), &id, Seq::START, 100).await.expect("it is read");
        made.push(Original { id, task, log });
    }
    made
}

/// Damages the file, and says how.
pub(crate) fn damage(path: &Path, dice: &mut Dice) -> String {
    let file = OpenOptions::new().write(true).open(path).expect("the file is there");
    let size = file.metadata().expect("it has a size").len();
    match dice.below(10) {
        0 => {
            let size = dice.below(size);
            file.set_len(size).expect("it can be truncated");
            format!("truncated to {size}")
        }
        1 => {
            file.set_len(0).expect("it can be truncated");
            "emptied".to_owned()
        }
        2 | 3 => {
            let pages: Vec<u64> = (0..=dice.below(3)).map(|_| dice.below(size / PAGE as u64)).collect();
            for page in &pages {
                file.write_all_at(&[0; PAGE], page * PAGE as u64).expect("it can be written");
            }
            format!("pages {pages:?} zeroed")
        }
        _ => {
            let places: Vec<u64> = (0..=dice.below(40)).map(|_| dice.below(size)).collect();
            for place in &places {
                let bytes: Vec<u8> = (0..=dice.below(8)).map(|_| dice.letter()).collect();
                file.write_all_at(&bytes, *place).expect("it can be written");
            }
            format!("overwritten at {places:?}")
        }
    }
}

/// How a damaged file was served, and repaired.
#[derive(Default, Debug)]
struct Served {
    refused: usize,
    with_damage: usize,
    whole: usize,
    repaired: usize,
}

/// After a repair nothing is damaged, and each task is as it was, or says that it is damaged, or is named as lost.
async fn check_repair(path: &Path, originals: &[Original], how: &str) -> bool {
    let target = path.with_extension("repaired");
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{suffix}", target.display()));
    }
    let now = Timestamp(1_700_000_000_000);
    let repaired = match longshore_store::repair(path, &target, now, &end_of_repaired(now)) {
        Ok(Some(repaired)) => repaired,
        Ok(None) => {
            assert!(
                longshore_store::find_damage(path).is_ok_and(|damage| damage.is_none()),
                "{how}: not repaired"
            );
            return false;
        }
        Err(_) => {
            assert!(!target.exists(), "{how}: a failed repair left a file");
            return false;
        }
    };
    let store = longshore_store::sqlite(&target, Durability::Process).expect("a repaired store opens");
    store.unfinished().await.expect("it can be resumed");
    store.begin_check();
    let mut found = 0;
    for Original { id, task, log } in originals {
        let Some(now) = store.get(&ada(), id).await.unwrap_or_else(|error| panic!("{how}: {error:?}")) else {
            let is_named =
                repaired.lost.iter().any(|name| name == id.as_str() || name.starts_with("number "));
            let is_structural = !repaired.damage.structure.is_empty();
            assert!(is_named || is_structural, "{how}: {id} is gone without a word: {repaired:?}");
            continue;
        };
        found += 1;
        let entries = store.read(&ada(), id, Seq::START, 100).await.expect("a repaired log can be read");
        if repaired.ended.contains(id) {
            assert_eq!(now.task.status.state, TaskState::Failed, "{how}");
            let text = format!("{:?}", now.task.status.message);
            assert!(text.contains("damaged"), "{how}: {text}");
            check_prefix(&now.task, task, how);
        } else {
            assert_eq!(now.task, *task, "{how}: a wrong task");
            if !repaired.without_log.contains(id) {
                assert_eq!(entries, *log, "{how}: a wrong log");
            }
        }
    }
    let mut query = everything();
    query.limit = 100;
    let page = store.list(query).await.unwrap_or_else(|error| panic!("{how}: {error:?}"));
    assert_eq!((page.total, page.tasks.len()), (found, usize::try_from(found).expect("few")), "{how}");
    assert_eq!(store.damage(), None, "{how}");
    true
}

/// What is left of a task is a beginning of what it was.
fn check_prefix(left: &Task, original: &Task, how: &str) {
    let text = |task: &Task| {
        let parts = task.artifacts.iter().flat_map(|artifact| &artifact.parts);
        parts.fold(String::new(), |text, part| text + &format!("{:?}", part.content))
    };
    let (left, original) = (text(left), text(original));
    let left = left.trim_end_matches("\")");
    assert!(original.starts_with(left), "{how}: {left} is no beginning of {original}");
}

async fn check(path: &Path, originals: &[Original], how: &str, served: &mut Served) {
    let Ok(store) = longshore_store::sqlite(path, Durability::Process) else {
        served.refused += 1;
        return;
    };
    // As at the start of a gateway.
    if store.unfinished().await.is_err() {
        served.refused += 1;
        return;
    }
    store.begin_check();
    let (mut errors, mut readable) = (0, 0);
    for Original { id, task, log } in originals {
        match store.get(&ada(), id).await {
            Ok(found) => {
                assert_eq!(
                    found.map(|found| found.task).as_ref(),
                    Some(task),
                    "{how}: a wrong task {:?}",
                    (store.damage(), longshore_store::find_damage(path))
                );
                readable += 1;
            }
            Err(_) => errors += 1,
        }
        match store.read(&ada(), id, Seq::START, 100).await {
            Ok(found) => assert_eq!(found, *log, "{how}: a wrong log"),
            Err(_) => errors += 1,
        }
    }
    let mut listed = 0;
    let mut query = everything();
    query.limit = 100;
    match store.list(query).await {
        Ok(page) => {
            assert_eq!(page.total, page.tasks.len() as u64, "{how}: a wrong total");
            for task in &page.tasks {
                let original = originals.iter().find(|original| original.id == task.id);
                assert_eq!(
                    original.map(|original| &original.task),
                    Some(task),
                    "{how}: a wrong task in the list"
                );
            }
            listed = page.tasks.len();
            assert_eq!(listed, readable, "{how}: the list and single reads differ");
        }
        Err(_) => errors += 1,
    }
    if errors == 0 && listed == originals.len() {
        served.whole += 1;
    } else {
        assert!(store.damage().is_some(), "{how}: the damage is not named");
        served.with_damage += 1;
    }
}

async fn damage_at_random(seeds: std::ops::Range<u64>) {
    let directory = tempfile::tempdir().expect("a directory");
    let (sound, damaged) = (directory.path().join("sound.db"), directory.path().join("damaged.db"));
    let originals = make(&sound).await;
    let mut served = Served::default();
    for seed in seeds.clone() {
        for suffix in ["-wal", "-shm"] {
            let _ = fs::remove_file(directory.path().join(format!("damaged.db{suffix}")));
        }
        fs::copy(&sound, &damaged).expect("it can be copied");
        let how = damage(&damaged, &mut Dice(0x5EED + seed * 7919));
        // An emptied file is a new store here: the data directory knows that there was one.
        if fs::metadata(&damaged).expect("it is there").len() == 0 {
            served.refused += 1;
            continue;
        }
        let how = format!("seed {seed}, {how}");
        // A start ends unfinished tasks that it cannot read, so the repair comes first.
        served.repaired += usize::from(check_repair(&damaged, &originals, &how).await);
        check(&damaged, &originals, &how, &mut served).await;
    }
    assert!(served.refused > 0 && served.with_damage > 0 && served.repaired > 0, "{served:?}");
}

#[tokio::test]
async fn a_damaged_file_is_refused_or_served_without_a_wrong_read() {
    damage_at_random(0..12).await;
}

#[tokio::test]
async fn long_files_damaged_in_200_ways_are_refused_or_served_without_a_wrong_read() {
    damage_at_random(0..200).await;
}
