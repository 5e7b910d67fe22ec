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

/// A result is reused for this long, so that the parts are checked at most this often, however many clients ask.
const FRESH: Duration = Duration::from_secs(2);

/// A part that does not answer within this time counts as down.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Health {
    deployment: Deployment,
    engine: Engine,
    closing: CancellationToken,
    /// Locked during a check: requests that arrive meanwhile wait for the same result.
    last: Mutex<Option<CheckResult>>,
}

#[derive(Clone, Debug)]
struct CheckResult {
    at: Instant,
    opencode: Part,
    store: Part,
}

impl Health {
    pub(crate) fn new(deployment: Deployment, engine: Engine, closing: CancellationToken) -> Self {
        Self { deployment, engine, closing, last: Mutex::new(None) }
    }

    /// Status 200 if the gateway can accept new work, else 503.
    pub(crate) async fn answer(&self, version: ProtocolVersion) -> Response {
        let CheckResult { opencode, store, .. } = self.check().await;
        let facts = HealthFacts { opencode, store, stopping: self.closing.is_cancelled() };
        let status = if facts.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        reply::json(status, Media::Json, contract::health(&self.deployment, version, &facts))
    }

    async fn check(&self) -> CheckResult {
        let mut last = self.last.lock().await;
        if let Some(found) = last.as_ref().filter(|found| found.at.elapsed() < FRESH) {
            return found.clone();
        }
        let (opencode, store) = tokio::join!(
            timeout(CHECK_TIMEOUT, self.engine.check_agent()),
            timeout(CHECK_TIMEOUT, self.engine.check_store()),
        );
        let was_down = |part: fn(&CheckResult) -> &Part| {
            last.as_ref().is_some_and(|found| matches!(part(found), Part::Down(_)))
        };
        let found = CheckResult {
            opencode: part("OpenCode", opencode.ok(), was_down(|found| &found.opencode)),
            store: match part("store", store.ok(), was_down(|found| &found.store)) {
                Part::Up => self.engine.store_damage().map_or(Part::Up, Part::Degraded),
                store => store,
            },
            at: Instant::now(),
        };
        *last = Some(found.clone());
        found
    }
}

/// The state of a part as callers see it. `answer`: `None` if the part did not answer. A part that goes down is logged once.
fn part(name: &'static str, answer: Option<Result<()>>, was_down: bool) -> Part {
    match answer {
        Some(Ok(())) => Part::Up,
        Some(Err(error)) => {
            if !was_down {
                reply::log(&error, name);
            }
            Part::Down(error.message().to_owned())
        }
        None => {
            if !was_down {
                tracing::warn!(part = name, "no answer to the health check");
            }
            Part::Down("It does not answer.".to_owned())
        }
    }
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
            let health = Health::new(Deployment::default(), engine, closing.clone());
            Self { agent, store, closing, health }
        }

        /// The HTTP status, the status in the document, and its statement about the parts.
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
