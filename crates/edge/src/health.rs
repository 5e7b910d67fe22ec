//! `/health`: reports whether the agent and the store work.

use std::time::Duration;

use http::StatusCode;
use longshore_engine::Engine;
use longshore_model::Result;
use longshore_wire::contract::{self, Deployment, HealthFacts, Part};
use longshore_wire::surface::ProtocolVersion;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::media::Media;
use crate::reply::{self, Response};

/// How long a result is reused. So the agent and the store are checked at most this often, however many clients ask.
const FRESH: Duration = Duration::from_secs(2);

/// How long one check may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a part that worked may leave checks unanswered before it counts as down. A single-threaded agent is sometimes busy for
/// seconds.
const BUSY: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct Health {
    deployment: Deployment,
    engine: Engine,
    closing: CancellationToken,
    /// The last result. Locked during a check, so that requests that arrive meanwhile wait for the same result.
    last: Mutex<Option<CheckResult>>,
}

#[derive(Clone, Debug)]
struct CheckResult {
    at: Instant,
    agent: Checked,
    store: Checked,
}

#[derive(Clone, Debug)]
struct Checked {
    part: Part,
    /// When the part last reported that it works.
    worked: Option<Instant>,
}

impl Health {
    pub(crate) fn new(deployment: Deployment, engine: Engine, closing: CancellationToken) -> Self {
        Self { deployment, engine, closing, last: Mutex::new(None) }
    }

    /// The response: status 200 if the gateway can accept new work, otherwise 503.
    pub(crate) async fn answer(&self, version: ProtocolVersion) -> Response {
        let CheckResult { agent, store, .. } = self.check().await;
        let stopping = self.closing.is_cancelled();
        let facts = HealthFacts { agent: agent.part, store: store.part, stopping };
        let status = if facts.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        reply::json(status, Media::Json, contract::health(&self.deployment, version, &facts))
    }

    async fn check(&self) -> CheckResult {
        let mut last = self.last.lock().await;
        if let Some(found) = last.as_ref().filter(|found| found.at.elapsed() < FRESH) {
            return found.clone();
        }
        let (agent, store) = tokio::join!(
            timeout(CHECK_TIMEOUT, self.engine.check_agent()),
            timeout(CHECK_TIMEOUT, self.engine.check_store()),
        );
        let before = last.as_ref();
        let mut store = checked("store", store.ok(), before.map(|found| &found.store));
        if matches!(store.part, Part::Up)
            && let Some(damage) = self.engine.store_damage()
        {
            store.part = Part::Degraded(damage);
        }
        let found = CheckResult {
            agent: checked(&self.deployment.agent_name, agent.ok(), before.map(|found| &found.agent)),
            store,
            at: Instant::now(),
        };
        *last = Some(found.clone());
        found
    }
}

/// The state of a part as callers see it. `answer`: the result of the check; `None`: the part did not answer. Logs once when a part
/// goes down.
fn checked(name: &str, answer: Option<Result<()>>, before: Option<&Checked>) -> Checked {
    let was_down = before.is_some_and(|before| matches!(before.part, Part::Down(_)));
    let worked = before.filter(|_| !was_down).and_then(|before| before.worked);
    let part = match (answer, before) {
        (Some(Ok(())), _) => return Checked { part: Part::Up, worked: Some(Instant::now()) },
        // The part was already down. The earlier reason says more than the lack of an answer.
        (None, Some(before)) if was_down => before.part.clone(),
        (None, _) if worked.is_some_and(|worked| worked.elapsed() < BUSY) => Part::Up,
        (Some(Err(error)), _) => {
            if !was_down {
                reply::log(&error, name);
            }
            Part::Down(error.message().to_owned())
        }
        (None, _) => {
            tracing::warn!(part = name, "no answer to the health check");
            Part::Down("It does not answer.".to_owned())
        }
    };
    Checked { part, worked }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::header::CACHE_CONTROL;
    use http_body_util::BodyExt;
    use longshore_testkit::faulty_store::FaultyStore;
    use longshore_testkit::scripted_agent::ScriptedAgent;
    use serde_json::{Value, json};

    use super::*;
    use crate::test_engine;

    struct Bench {
        agent: Arc<ScriptedAgent>,
        store: Arc<FaultyStore>,
        closing: CancellationToken,
        health: Health,
    }

    impl Bench {
        fn new() -> Self {
            let (agent, store) = (ScriptedAgent::echo(), FaultyStore::over(longshore_store::memory()));
            let engine = test_engine::engine(store.clone(), agent.clone());
            let closing = CancellationToken::new();
            let health = Health::new(Deployment::of_opencode(), engine, closing.clone());
            Self { agent, store, closing, health }
        }

        /// Runs the checks. Returns the HTTP status, the status in the document, and what the document says about the parts.
        async fn ask(&self) -> (u16, Value, Value) {
            let response = self.health.answer(ProtocolVersion::V1).await;
            let status = response.status().as_u16();
            assert_eq!(response.headers()[CACHE_CONTROL], "no-store");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let document: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(document["ready"], status == 200);
            (status, document["status"].clone(), document["parts"].clone())
        }
    }

    fn up() -> Value {
        json!({"status": "up"})
    }

    fn down(why: &str) -> Value {
        json!({"status": "down", "message": why})
    }

    #[tokio::test(start_paused = true)]
    async fn health_reports_when_the_agent_or_the_store_is_down_and_when_they_are_back() {
        let bench = Bench::new();
        let well = (200, json!("ok"), json!({"opencode": up(), "store": up()}));
        assert_eq!(bench.ask().await, well);

        bench.agent.set_down(true);
        tokio::time::advance(FRESH).await;
        let unreachable = down("The agent cannot be reached.");
        let expected = json!({"opencode": unreachable, "store": up()});
        assert_eq!(bench.ask().await, (503, json!("unavailable"), expected));

        bench.agent.set_down(false);
        tokio::time::advance(FRESH).await;
        assert_eq!(bench.ask().await, well);

        bench.store.break_logs();
        tokio::time::advance(FRESH).await;
        let expected = json!({"opencode": up(), "store": down("The store is away.")});
        assert_eq!(bench.ask().await, (503, json!("unavailable"), expected));
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_does_not_answer_is_down_after_the_timeout() {
        let bench = Bench::new();
        bench.agent.checks.hold();
        let asked = Instant::now();
        let expected = json!({"opencode": down("It does not answer."), "store": up()});
        assert_eq!(bench.ask().await, (503, json!("unavailable"), expected));
        assert!(asked.elapsed() <= CHECK_TIMEOUT + Duration::from_millis(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_part_is_not_down_before_it_was_silent_for_long() {
        let bench = Bench::new();
        assert_eq!(bench.ask().await.0, 200);
        bench.agent.checks.hold();
        let silent = Instant::now();
        while silent.elapsed() + FRESH + CHECK_TIMEOUT < BUSY {
            tokio::time::advance(FRESH).await;
            assert_eq!(bench.ask().await.0, 200, "after {:?}", silent.elapsed());
        }
        tokio::time::advance(BUSY).await;
        assert_eq!(bench.ask().await.0, 503);
    }

    #[tokio::test(start_paused = true)]
    async fn the_reason_of_an_outage_stays_until_the_part_answers() {
        let bench = Bench::new();
        bench.agent.set_down(true);
        let down = bench.ask().await;
        bench.agent.checks.hold();
        tokio::time::advance(FRESH).await;
        assert_eq!(bench.ask().await, down);
    }

    #[tokio::test(start_paused = true)]
    async fn many_requests_share_one_check_while_it_is_fresh() {
        let bench = Bench::new();
        futures_util::future::join_all((0..100).map(|_| bench.ask())).await;
        assert_eq!(bench.agent.log().checked, 1);
        tokio::time::advance(FRESH).await;
        bench.ask().await;
        assert_eq!(bench.agent.log().checked, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_shuts_down_is_not_ready() {
        let bench = Bench::new();
        assert_eq!(bench.ask().await.0, 200);
        bench.closing.cancel();
        assert_eq!(bench.ask().await.0, 503);
    }
}
