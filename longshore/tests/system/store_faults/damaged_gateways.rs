//! A whole gateway on a damaged store: each damage is refused, repaired, or served with the damage named, and no read is wrong.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use longshore_testkit::chaos::measured;
use longshore_testkit::fake_opencode::FakeOpenCode;
use longshore_testkit::raw::{Frame, RawClient};
use serde_json::{Value, json};

use crate::store_faults::damaged_files::{self, Dice, damage};
use crate::store_faults::data_dir::DataDir;
use crate::store_faults::gateway::{Ended, Gateway, longshore};

const FILE: &str = "longshore.db";

/// The token of the principal that owns the tasks.
const ADA: &str = "ada-token-0123456789abcdef";

/// A store, and what a client reads from it before it is damaged. The store is the same in each run, but for the numbers of its
/// epoch, so that a seed damages the same bytes.
struct Originals {
    tasks: BTreeMap<String, Original>,
    store: Vec<u8>,
}

struct Original {
    task: Value,
    /// `None`: the task had not ended, so that each start of a gateway adds its own end.
    log: Option<Vec<Frame>>,
}

/// How the damages were treated.
#[derive(Default, Debug)]
struct Outcomes {
    refused: usize,
    served: usize,
    repaired: usize,
    not_repairable: usize,
    unaffected: usize,
    /// Reads that were refused because of the damage, and reads that were right.
    refused_reads: usize,
    right_reads: usize,
}

async fn start(data_dir: &DataDir, fake: &FakeOpenCode) -> Result<(Gateway, RawClient), Ended> {
    let config = data_dir.home().join("longshore.toml");
    let config = config.to_str().expect("UTF-8");
    // The tasks of the test are old.
    let gateway = Gateway::try_start_with(
        data_dir,
        fake,
        &["--config", config, "--fold-after", "0", "--keep-tasks", "0"],
    )
    .await?;
    let client = RawClient::new(gateway.url.clone(), ADA);
    Ok((gateway, client))
}

async fn make(data_dir: &DataDir, fake: &FakeOpenCode) -> Originals {
    let config = data_dir.home().join("longshore.toml");
    let mut config = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(config)
        .expect("a new file");
    let ada = format!("[[auth.credentials]]\nscheme = \"bearer\"\ntoken = \"{ADA}\"\nprincipal = \"ada\"\n");
    config.write_all(ada.as_bytes()).expect("it can be written");
    let path = data_dir.path().join(FILE);
    let made = damaged_files::make(&path).await;
    let store = std::fs::read(&path).expect("the store can be read");
    let (gateway, client) = start(data_dir, fake).await.unwrap_or_else(|ended| panic!("{ended:?}"));
    let mut tasks = BTreeMap::new();
    for original in made {
        let id = original.id.to_string();
        let has_ended = original.task.status.state.is_terminal();
        let log = if has_ended { Some(replay(&client, &id).await.expect("a whole log")) } else { None };
        tasks.insert(id.clone(), Original { task: client.task(&id).await, log });
    }
    gateway.kill().await;
    Originals { tasks, store }
}

async fn replay(client: &RawClient, id: &str) -> Result<Vec<Frame>, Value> {
    match client.rest_stream("GET", &format!("/tasks/{id}:subscribe"), None, Some(0)).await {
        Ok(stream) => Ok(stream.all().await),
        Err(answer) => Err(answer.body),
    }
}

/// Puts the original store back.
fn restore(directory: &Path, store: &[u8]) {
    for entry in std::fs::read_dir(directory).expect("the directory is there") {
        let path = entry.expect("it can be listed").path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(FILE)) {
            let removed =
                if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.expect("it can be removed");
        }
    }
    std::fs::write(directory.join(FILE), store).expect("the store can be written");
}

/// The reads of one gateway.
#[derive(Default)]
struct Reads<'a> {
    /// All that the repair has printed. Empty: there was none.
    report: &'a str,
    right: usize,
    refused: usize,
    wrong: Vec<String>,
}

impl Reads<'_> {
    async fn check_all(&mut self, client: &RawClient, originals: &Originals) {
        for (id, original) in &originals.tasks {
            let answer = client.rpc("GetTask", json!({"id": id})).await.body;
            self.check_task(id, &answer, original);
            let Some(log) = &original.log else { continue };
            match replay(client, id).await {
                Ok(frames) if frames == *log => self.right += 1,
                // A log that was reduced is shown as a gap.
                Ok(frames) => {
                    let gap =
                        frames.first().and_then(|frame| frame.json.pointer("/task/metadata/longshore/gap"));
                    self.accept(gap.is_some() && self.is_reported(id), || {
                        format!("the log of {id}: {frames:#?}")
                    });
                }
                Err(answer) => self.check_refusal(&answer, id),
            }
        }
        let answer = client.rpc("ListTasks", json!({"pageSize": 100})).await.body;
        let Some(listed) = answer["result"]["tasks"].as_array() else {
            return self.check_refusal(&answer, "");
        };
        if answer["result"]["totalSize"] != json!(listed.len()) {
            self.wrong.push(format!(
                "the total of {} tasks: {}",
                listed.len(),
                answer["result"]["totalSize"]
            ));
        }
        for task in listed {
            let id = task["id"].as_str().unwrap_or_default();
            let Some(original) = originals.tasks.get(id) else {
                self.wrong.push(format!("an unknown task in the list: {task:#}"));
                continue;
            };
            let is_same = original.log.is_none() || task["status"] == original.task["status"];
            if is_same {
                self.right += 1;
            } else {
                self.accept(says_damaged(task), || format!("in the list: {task:#}"));
            }
        }
    }

    fn check_task(&mut self, id: &str, answer: &Value, original: &Original) {
        let now = &answer["result"];
        if now.is_null() {
            return self.check_refusal(answer, id);
        }
        // What a turn without its OpenCode becomes does not matter; its words do.
        let is_same = match &original.log {
            Some(_) => *now == original.task,
            None => {
                now["artifacts"] == original.task["artifacts"] && now["history"] == original.task["history"]
            }
        };
        if is_same {
            self.right += 1;
        } else {
            self.accept(says_damaged(now), || format!("task {now:#}, which was {:#}", original.task));
        }
    }

    /// A refusal says that something is damaged. A task that is not found was named by the repair.
    fn check_refusal(&mut self, answer: &Value, id: &str) {
        let text = answer.to_string();
        let is_lost = text.contains("was not found") && self.is_reported(id);
        self.accept(text.contains("damaged") || is_lost, || format!("the refusal of {id}: {answer:#}"));
    }

    /// The repair named this task, or found tasks without a name, or pages that may have had some.
    fn is_reported(&self, id: &str) -> bool {
        let words = [format!("task {id}\n"), "lost: task number".to_owned(), "damaged: ".to_owned()];
        words.iter().any(|words| self.report.contains(words))
    }

    fn accept(&mut self, is_right: bool, what: impl FnOnce() -> String) {
        if is_right {
            self.refused += 1;
        } else {
            self.wrong.push(what());
        }
    }
}

fn says_damaged(task: &Value) -> bool {
    task["status"]["state"] == "TASK_STATE_FAILED"
        && task["status"]["message"].to_string().contains("damaged")
}

/// `longshore repair`: its exit code, and all that it printed.
fn repair(data_dir: &DataDir) -> (Option<i32>, String) {
    let output = longshore(data_dir, "repair").output().expect("longshore can be run");
    let printed =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), printed)
}

/// Every other store is repaired before it is served.
async fn damage_at_random(seeds: std::ops::Range<u64>) -> Outcomes {
    let (data_dir, fake) = (DataDir::plain(), FakeOpenCode::start());
    let originals = make(&data_dir, &fake).await;
    let (directory, mut outcomes) = (data_dir.path(), Outcomes::default());
    for seed in seeds {
        restore(&directory, &originals.store);
        let how = damage(&directory.join(FILE), &mut Dice(0xDA5E + seed * 6151));
        let (how, is_repaired_first) = (format!("seed {seed}, {how}"), seed % 2 == 1);
        let mut report = String::new();
        if is_repaired_first {
            let (code, printed) = repair(&data_dir);
            match code {
                Some(0) => outcomes.unaffected += 1,
                Some(3) => report = printed,
                Some(1) if printed.contains("error: ") => outcomes.not_repairable += 1,
                other => panic!("{how}: exit code {other:?}: {printed}"),
            }
        }
        let (gateway, client) = match start(&data_dir, &fake).await {
            Ok(started) => started,
            Err(ended) => {
                assert!(report.is_empty(), "{how}: a repaired store does not start: {ended:?}");
                let is_error = ended.stderr.lines().any(|line| line.starts_with("error: "));
                assert!(ended.code == Some(1) && is_error, "{how}: {ended:?}");
                outcomes.refused += 1;
                continue;
            }
        };
        let mut reads = Reads { report: &report, ..Reads::default() };
        reads.check_all(&client, &originals).await;
        let health = client.rest("GET", "/health", None).await.body;
        let log = gateway.kill().await;
        let Reads { right, refused, wrong, .. } = reads;
        assert!(wrong.is_empty(), "{how}: {}\n{health:#}\n{log}\n{report}", wrong.join("\n"));
        let status = &health["parts"]["store"]["status"];
        if !report.is_empty() {
            assert_eq!(status, "up", "{how}: a repaired store is not healthy: {health:#}\n{log}");
            outcomes.repaired += 1;
        } else if refused > 0 {
            // A start ends unfinished tasks that it cannot read. They are whole then, and say that they were damaged.
            assert!(
                status == "degraded" || log.contains("a task is damaged and was ended"),
                "{how}: {health:#}\n{log}"
            );
            outcomes.served += 1;
        } else if !is_repaired_first {
            outcomes.unaffected += 1;
        }
        outcomes.right_reads += right;
        outcomes.refused_reads += refused;
    }
    outcomes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_on_a_damaged_store_reads_nothing_wrong() {
    damage_at_random(0..4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn campaign_gateways_on_stores_damaged_in_200_ways_read_nothing_wrong() {
    let outcomes = damage_at_random(0..200).await;
    let Outcomes { refused, served, repaired, not_repairable, unaffected, refused_reads, right_reads } =
        outcomes;
    assert!(refused > 0 && served > 0 && repaired > 0, "{refused} {served} {repaired}");
    let measured = format!(
        "{refused} starts refused ({not_repairable} of them after a repair that was refused too), {served} served with the damage \
         named, {repaired} repaired and served, {unaffected} not affected; {right_reads} reads right, {refused_reads} refused or \
         marked as damaged, 0 wrong"
    );
    measured::report("stores damaged in 200 random ways, each on a whole gateway", measured)
        .expect("the row can be written");
}
