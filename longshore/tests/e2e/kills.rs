//! The managed OpenCode is killed again and again, at any moment, with messages sent at once.

use std::io::Write as _;
use std::time::Duration;

use longshore_testkit::chaos::measured::report;
use longshore_testkit::gateway::{Record, TOKEN, kill};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::client::{message, message_in};
use crate::frames::{explanation, state_of};
use crate::harness::Harness;

const KILLS: usize = 30;

/// How long after OpenCode is back a turn may take to begin, and how much longer than OpenCode's own first turn to end.
const ALLOWED: Duration = Duration::from_secs(5);

/// The messages that are sent at once: in a new context, and in that of a turn that was killed.
const AT_ONCE: &str = "sent at once";
const BEHIND: &str = "behind a killed turn";

/// How often OpenCode's own first turn is measured.
const BASELINES: usize = 3;

/// Nothing here takes this long, not even where a call hangs until its time limit.
const LIMIT: Duration = Duration::from_mins(4);

/// How often the test looks at the tasks and at `/health`.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// An OpenCode that ran this long is restarted without a growing pause.
const STEADY: Duration = Duration::from_secs(20);

/// A task that was there at the kill, or was sent at once, and how it ended.
struct Watched {
    what: &'static str,
    id: String,
    /// When the task became WORKING, for the last time. Since the kill, like all times here.
    began: Duration,
    ended: Option<Duration>,
    task: Value,
}

/// What one kill did.
struct Killed {
    back: Duration,
    watched: Vec<Watched>,
    /// Each state of `/health` with its reason, without repetitions.
    health: Vec<String>,
    log: String,
}

impl Harness {
    /// Kills OpenCode and sends a message at once, in the context of `running` and in a new one. Returns when OpenCode is back and
    /// all these tasks have ended.
    async fn kill_opencode(&mut self, running: Vec<(&'static str, Value)>) -> Killed {
        let logged = self.gateway.log().len();
        let old = self.opencode.pid();
        kill(old);
        let killed = Instant::now();
        let watch = |what, task: &Value| {
            let id = task["id"].as_str().expect("a task has an id").to_owned();
            Watched { what, id, began: Duration::ZERO, ended: None, task: Value::Null }
        };
        let mut watched: Vec<Watched> = running.iter().map(|(what, task)| watch(*what, task)).collect();
        watched.push(watch(AT_ONCE, &self.client.submit(&message("scn:text n=2")).await));
        if let Some((_, task)) = running.first() {
            let context = task["contextId"].as_str().expect("a task has a context");
            let next = self.client.submit(&message_in(context, "scn:text n=3")).await;
            watched.push(watch(BEHIND, &next));
        }
        let (mut back, mut health): (_, Vec<String>) = (None, Vec::new());
        while back.is_none() || watched.iter().any(|task| task.ended.is_none()) {
            assert!(killed.elapsed() < LIMIT, "after {LIMIT:?}:\n{}", &self.gateway.log()[logged..]);
            if back.is_none() && Record::read(&self.gateway.data_dir()).is_some_and(|now| now.pid != old) {
                self.opencode = self.gateway.opencode().await;
                assert_eq!(self.opencode.get("/global/health").await["healthy"], true);
                back = Some(killed.elapsed());
            }
            for task in watched.iter_mut().filter(|task| task.ended.is_none()) {
                let was_working = task.task.get("status").is_some_and(|status| state_of(status) == "WORKING");
                task.task = self.client.get(&task.id).await;
                if !was_working && matches!(state_of(&task.task), "WORKING" | "COMPLETED") {
                    task.began = killed.elapsed();
                }
                if matches!(state_of(&task.task), "COMPLETED" | "FAILED" | "CANCELED" | "REJECTED") {
                    task.ended = Some(killed.elapsed());
                }
            }
            let now = self.health().await;
            if health.last() != Some(&now) {
                health.push(now);
            }
            sleep(LOOK_AGAIN).await;
        }
        let log = self.gateway.log()[logged..].to_owned();
        Killed { back: back.expect("the loop ends after that"), watched, health, log }
    }

    /// Kills OpenCode while the gateway has no turn. Returns how long OpenCode itself takes for the first turn after its start.
    async fn measure_first_turn(&mut self) -> Duration {
        let old = self.opencode.pid();
        kill(old);
        self.until_opencode_is_back(old).await;
        let back = Instant::now();
        let session = self.opencode.post_json("/session", &json!({})).await;
        let session = session["id"].as_str().expect("a session has an id").to_owned();
        let prompt = json!({"parts": [{"type": "text", "text": "scn:text n=2"}]});
        self.opencode.post_json(&format!("/session/{session}/prompt_async"), &prompt).await;
        let is_over = |messages: &[Value]| {
            let answer = messages.last().filter(|last| last["info"]["role"] == "assistant");
            answer.is_some_and(|answer| answer.pointer("/info/time/completed").is_some())
        };
        while !is_over(&self.opencode.messages(&session).await) {
            sleep(LOOK_AGAIN).await;
        }
        back.elapsed()
    }

    /// The status and the statement about OpenCode.
    async fn health(&self) -> String {
        let url = format!("{}/health", self.gateway.url());
        let request = reqwest::Client::new().get(url).bearer_auth(TOKEN);
        let answer = request.send().await.expect("the gateway answers").text().await.expect("a body");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        format!("{} {}", answer["status"], answer["parts"]["opencode"])
    }
}

impl Killed {
    /// The ends that are not true or not soon enough, and what else is wrong.
    fn problems(&self, first_turn: Duration) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |holds: bool, problem: String| {
            if !holds {
                problems.push(problem);
            }
        };
        for Watched { what, began, ended, task, .. } in &self.watched {
            let late = ended.expect("all tasks have ended").saturating_sub(self.back);
            check(late <= first_turn + ALLOWED, format!("{what}: ended {late:?} after OpenCode was back"));
            if what.starts_with("scn:") {
                // A turn may be over just before the kill.
                let is_true = match state_of(task) {
                    "COMPLETED" => true,
                    "FAILED" => explanation(task).contains("OpenCode ended"),
                    _ => false,
                };
                check(is_true, format!("{what}: {task:#}"));
                continue;
            }
            check(state_of(task) == "COMPLETED", format!("{what}: {task:#}"));
            let wait = began.saturating_sub(self.back);
            check(
                *what == BEHIND || wait <= ALLOWED,
                format!("{what}: waited {wait:?} after OpenCode was back"),
            );
        }
        for line in
            ["OpenCode is down; turns wait for it", "OpenCode is back; turns that waited for it continue"]
        {
            check(self.log.matches(line).count() == 1, format!("not logged once: {line}"));
        }
        let states: Vec<&str> = self.health.iter().filter_map(|state| state.split(' ').next()).collect();
        let expected = [r#""ok""#, r#""unavailable""#, r#""ok""#];
        check(expected.ends_with(&states), format!("/health changed too often: {:#?}", self.health));
        problems
    }
}

fn show(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn seconds(times: &mut [Duration]) -> String {
    times.sort();
    let at = |index: usize| times.get(index).map_or(0.0, Duration::as_secs_f64);
    format!(
        "p50 {:.1} s, max {:.1} s, of {}",
        at(times.len() / 2),
        at(times.len().saturating_sub(1)),
        times.len()
    )
}

/// Shows the figures of each kill.
#[tokio::test(flavor = "multi_thread")]
async fn campaign_turns_continue_soon_after_each_kill_of_opencode() {
    let (mut harness, _model) = Harness::with_own_model().await;
    harness.play("scn:text n=1").await.ended("COMPLETED", "");
    let mut random = StdRng::seed_from_u64(20);
    let (mut backs, mut killed_turns, mut waits, mut sent) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut first_turns, mut problems) = (Vec::new(), Vec::new());
    for _ in 0..BASELINES {
        first_turns.push(harness.measure_first_turn().await);
    }
    let first_turn = *first_turns.iter().max().expect("there is one");
    show(&format!("OpenCode's own first turn: {}", seconds(&mut first_turns)));
    let mut up = Instant::now();
    for number in 0..KILLS {
        let wait = if number % 5 == 4 { Duration::ZERO } else { STEADY.saturating_sub(up.elapsed()) };
        sleep(wait).await;
        let mut running = Vec::new();
        let turns = ["scn:long n=2000 delay=10", "scn:bash cmd=\"sleep 60\"", "scn:text n=40 delay=50"];
        for what in turns.into_iter().take(random.random_range(0..=turns.len())) {
            running.push((what, harness.client.submit(&message(what)).await));
        }
        // No event announces a random moment.
        sleep(Duration::from_millis(random.random_range(0..2_500))).await;
        let begun = Instant::now();
        let killed = harness.kill_opencode(running).await;
        up = begun + killed.back;
        show(&format!(
            "kill {number}: OpenCode back after {:.1} s; health {:?}",
            killed.back.as_secs_f64(),
            killed.health
        ));
        backs.push(killed.back);
        for Watched { what, began, ended, task, .. } in &killed.watched {
            let ended = ended.expect("all tasks have ended");
            let late = ended.saturating_sub(killed.back);
            show(&format!(
                "  {:>5.1} s ({:+.1}, began {:+.1}) {what}: {} {}",
                ended.as_secs_f64(),
                ended.as_secs_f64() - killed.back.as_secs_f64(),
                began.as_secs_f64() - killed.back.as_secs_f64(),
                state_of(task),
                explanation(task)
            ));
            let times = if what.starts_with("scn:") { &mut killed_turns } else { &mut sent };
            times.push(late);
            if *what == AT_ONCE {
                waits.push(began.saturating_sub(killed.back));
            }
        }
        for problem in killed.problems(first_turn) {
            show(&killed.log);
            problems.push(format!("kill {number}: {problem}"));
        }
    }
    let done = format!("OpenCode killed {KILLS} times, with messages sent at once");
    let measured = format!(
        "OpenCode itself: back after {}, its first turn {}. After that: killed turns ended in {}; messages sent at once \
         began in {} and completed in {}.",
        seconds(&mut backs),
        seconds(&mut first_turns),
        seconds(&mut killed_turns),
        seconds(&mut waits),
        seconds(&mut sent)
    );
    report(done, measured).expect("a row can be written");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
