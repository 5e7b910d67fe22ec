//! The managed OpenCode is killed again and again, at any moment, with messages sent at once.

use std::io::Write as _;
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_testkit::chaos::measured::report;
use longshore_testkit::gateway::{OpenCodeApi, Record, TOKEN, kill};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::client::{message, message_in};
use crate::frames::{explanation, state_of};
use crate::harness::Harness;

const KILLS: usize = 30;

/// Another number of kills, for a short run.
const KILLS_VARIABLE: &str = "LONGSHORE_CAMPAIGN_KILLS";

/// How much later than the turn of a client that talks to OpenCode itself a turn may end.
const ALLOWED: Duration = Duration::from_secs(5);

/// The messages that are sent at once: in a new context, and in that of a turn that was killed.
const AT_ONCE: &str = "sent at once";
const BEHIND: &str = "behind a killed turn";

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
    /// When the next OpenCode responds.
    back: Duration,
    /// When that OpenCode has completed the first turn of a client that waited for it without the gateway.
    own_turn: Duration,
    watched: Vec<Watched>,
    /// Each state of `/health` with its reason, without repetitions.
    health: Vec<String>,
    log: String,
}

impl Harness {
    /// Kills OpenCode and sends a message at once, in the context of `running` and in a new one. A client of OpenCode itself sends
    /// a prompt as soon as OpenCode responds: the same process, at the same time, under the same load. Returns when all these have
    /// ended.
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
        let (mut own, mut own_turn) = (None, None);
        // `/health` reuses its result for two seconds, so the turns may be over before it says that OpenCode is back.
        let is_ok = |health: &[String]| health.last().is_some_and(|now| now.starts_with(r#""ok""#));
        while own_turn.is_none() || watched.iter().any(|task| task.ended.is_none()) || !is_ok(&health) {
            assert!(killed.elapsed() < LIMIT, "after {LIMIT:?}:\n{}", &self.gateway.log()[logged..]);
            if back.is_none() && Record::read(&self.gateway.data_dir()).is_some_and(|now| now.pid != old) {
                self.opencode = self.gateway.opencode().await;
                assert_eq!(self.opencode.get("/global/health").await["healthy"], true);
                back = Some(killed.elapsed());
                own = Some(Tasks::new().spawn("first-turn", first_turn(self.opencode.clone(), killed)));
            }
            if let Some(turn) = own.take_if(|turn| turn.is_finished()) {
                own_turn = Some(turn.await.expect("OpenCode completes a turn"));
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
        let [back, own_turn] = [back, own_turn].map(|time| time.expect("the loop ends after that"));
        Killed { back, own_turn, watched, health, log }
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

/// Prompts OpenCode itself in a new session. Returns when the turn is over, since `killed`.
async fn first_turn(opencode: OpenCodeApi, killed: Instant) -> Duration {
    let session = opencode.post_json("/session", &json!({})).await;
    let session = session["id"].as_str().expect("a session has an id").to_owned();
    let prompt = json!({"parts": [{"type": "text", "text": "scn:text n=2"}]});
    opencode.post_json_within(&format!("/session/{session}/message"), &prompt, LIMIT).await;
    killed.elapsed()
}

impl Killed {
    /// The ends that are not true or not soon enough, and what else is wrong.
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |holds: bool, problem: String| {
            if !holds {
                problems.push(problem);
            }
        };
        for Watched { what, ended, task, .. } in &self.watched {
            let late = self.late(ended.expect("all tasks have ended"));
            check(late <= ALLOWED, format!("{what}: ended {late:?} after OpenCode's own first turn"));
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

    /// How much later than OpenCode's own first turn.
    fn late(&self, ended: Duration) -> Duration {
        ended.saturating_sub(self.own_turn)
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
    let kills = std::env::var(KILLS_VARIABLE).map_or(KILLS, |number| number.parse().expect("a number"));
    let (mut backs, mut own_turns, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    let (mut killed_turns, mut waits, mut sent, mut late) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut up = Instant::now();
    for number in 0..kills {
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
            "kill {number}: OpenCode back after {:.1} s, its own first turn over after {:.1} s; health {:?}",
            killed.back.as_secs_f64(),
            killed.own_turn.as_secs_f64(),
            killed.health
        ));
        backs.push(killed.back);
        own_turns.push(killed.own_turn);
        for Watched { what, began, ended, task, .. } in &killed.watched {
            let ended = ended.expect("all tasks have ended");
            show(&format!(
                "  {:>5.1} s ({:+.1}, began {:+.1}) {what}: {} {}",
                ended.as_secs_f64(),
                ended.as_secs_f64() - killed.back.as_secs_f64(),
                began.as_secs_f64() - killed.back.as_secs_f64(),
                state_of(task),
                explanation(task)
            ));
            let times = if what.starts_with("scn:") { &mut killed_turns } else { &mut sent };
            times.push(ended);
            late.push(killed.late(ended));
            if *what == AT_ONCE {
                waits.push(began.saturating_sub(killed.back));
            }
        }
        for problem in killed.problems() {
            show(&killed.log);
            problems.push(format!("kill {number}: {problem}"));
        }
    }
    let done = format!("OpenCode killed {kills} times, with messages sent at once");
    let measured = format!(
        "Since the kill: OpenCode responds again after {}, and a client of OpenCode itself has its first answer after {}. Killed \
         turns ended after {}; messages sent at once were completed after {} (they began {} after OpenCode responded). Later than \
         OpenCode's own first answer: {}.",
        seconds(&mut backs),
        seconds(&mut own_turns),
        seconds(&mut killed_turns),
        seconds(&mut sent),
        seconds(&mut waits),
        seconds(&mut late)
    );
    report(done, measured).expect("a row can be written");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
