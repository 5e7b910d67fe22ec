//! All participants of one seed, and the faults that hit them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_engine::port::Store;
use longshore_engine::simulation::Flaw;
use longshore_engine::{AskConfig, Engine, EngineConfig, EngineParts, Tasks};
use longshore_meter::Metrics;
use longshore_meter::label::TurnState;
use longshore_testkit::external_turns::ExternalTurnsOnly;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::agent::SimAgent;
use crate::driver::SimDriver;
use crate::oracle::Oracle;
use crate::other_client::{self, SimControl};
use crate::stage::{DayClock, Stage, TaskGroup, conduct};
use crate::store::SimStore;
use crate::user;

/// Shorter than the real limit, so that it passes in some seeds.
pub(crate) const TURN_LIMIT: Duration = Duration::from_secs(30);

/// Longer than anything here may take. The clock is paused, so waiting costs nothing.
const PATIENCE: Duration = Duration::from_hours(6);

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) stage: Arc<Stage>,
    pub(crate) store: Arc<SimStore>,
    pub(crate) agent: Arc<SimAgent>,
    pub(crate) oracle: Oracle,
    gateway: watch::Sender<Option<Arc<Gateway>>>,
    /// The number of gateways so far.
    lives: AtomicU64,
}

/// One life of the gateway.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) engine: Engine,
    tasks: Tasks,
    cast: Arc<TaskGroup>,
    metrics: Arc<Metrics>,
    /// Cancelled when the gateway's connections break.
    pub(crate) is_gone: CancellationToken,
}

/// The result of a seed.
#[derive(Debug)]
pub(crate) struct Ending {
    /// The findings, if any, with the trace that led to them.
    pub(crate) report: Option<String>,
    pub(crate) findings: Vec<String>,
    /// Empty if something was found on the way.
    pub(crate) tally: Tally,
    pub(crate) digest: u64,
    /// The last lines of the trace.
    pub(crate) trace: Vec<String>,
}

/// The outcomes of the users' tasks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) made: usize,
    pub(crate) completed: usize,
}

/// Plays one seed.
pub(crate) fn play(seed: u64, flaw: Option<Flaw>) -> Ending {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let stage = Stage::new(seed, flaw);
        let world = World::new(&stage);
        // Not one of the tasks that it schedules.
        let conductor = Tasks::new().spawn("conductor", conduct(Arc::clone(&stage)));
        let lived =
            Tasks::simulated(TaskGroup::new(&stage)).spawn("world", async move { world.live().await });
        let tally = tokio::select! {
            biased;
            () = stage.has_failed.cancelled() => None,
            // Its panic is a finding, like that of any other task.
            lived = lived => lived.ok(),
        };
        conductor.abort();
        Ending {
            report: stage.report(),
            findings: stage.findings(),
            tally: tally.unwrap_or_default(),
            digest: stage.digest(),
            trace: stage.trace(),
        }
    })
}

impl World {
    fn new(stage: &Arc<Stage>) -> Arc<Self> {
        Arc::new(Self {
            stage: Arc::clone(stage),
            store: SimStore::new(stage),
            agent: SimAgent::new(stage),
            oracle: Oracle::default(),
            gateway: watch::Sender::new(None),
            lives: AtomicU64::new(0),
        })
    }

    async fn live(self: &Arc<Self>) -> Tally {
        let people = Tasks::simulated(TaskGroup::new(&self.stage));
        self.open().await;
        let users = self.stage.draw(|chance| chance.between(1, 3));
        let mut playing: Vec<_> =
            (0..users).map(|user| people.spawn("user", user::live(Arc::clone(self), user))).collect();
        playing.extend(
            (0..self.stage.draw(|chance| chance.below(3)))
                .map(|watcher| people.spawn("watcher", user::watch(Arc::clone(self), watcher))),
        );
        if self.stage.draw(|chance| chance.one_in(2)) {
            playing.push(people.spawn("stranger", other_client::live(Arc::clone(self))));
        }
        self.break_things().await;
        self.stage.calm_down();
        self.stage.note(format_args!("calm"));
        let done = tokio::time::timeout(PATIENCE, async {
            for user in playing {
                // A panic is a finding already.
                let _ = user.await;
            }
            loop {
                while !self.store.unfinished().is_empty() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                self.close().await;
                // A send without a waiting caller may just have created its task, which the next start resumes.
                if self.store.unfinished().is_empty() {
                    return;
                }
                self.open().await;
            }
        });
        if done.await.is_err() {
            self.stage.find(format_args!("hours later, these are not over: {:?}", self.store.unfinished()));
            self.close().await;
        }
        self.oracle.judge(self)
    }

    /// Kills and stops participants a random number of times.
    async fn break_things(self: &Arc<Self>) {
        for _ in 0..self.stage.draw(|chance| chance.below(6)) {
            self.stage.wait(0, 1500).await;
            match self.stage.draw(|chance| chance.below(5)) {
                0 | 1 => self.kill().await,
                2 => {
                    self.stage.let_store_be_away(true);
                    self.stay_down(8000).await;
                    self.stage.let_store_be_away(false);
                }
                3 => {
                    self.close().await;
                    self.stay_down(0).await;
                    self.open().await;
                }
                _ => {
                    self.agent.kill();
                    self.stage.wait(0, 2000).await;
                    self.agent.come_back();
                }
            }
        }
        self.stage.wait(0, 3000).await;
    }

    /// The number of the last gateway.
    pub(crate) fn life(&self) -> u64 {
        self.lives.load(Ordering::Relaxed)
    }

    /// The current gateway, as soon as there is one.
    pub(crate) async fn gateway(&self) -> Arc<Gateway> {
        let mut gateways = self.gateway.subscribe();
        let found = gateways.wait_for(Option::is_some).await.expect("the world holds the other end");
        Arc::clone(found.as_ref().expect("it was waited for"))
    }

    /// Starts a gateway, and retries until it is up.
    async fn open(&self) {
        loop {
            let cast = TaskGroup::new(&self.stage);
            let tasks = Tasks::simulated(Arc::clone(&cast) as Arc<_>);
            let metrics = Arc::<Metrics>::default();
            let life = self.lives.fetch_add(1, Ordering::Relaxed) + 1;
            let control = SimControl::new(&self.agent, &tasks, life);
            let driver = SimDriver {
                agent: Arc::clone(&self.agent),
                control: Arc::clone(&control),
                tasks: tasks.clone(),
            };
            let engine = Engine::new(EngineParts {
                store: Arc::clone(&self.store) as Arc<dyn Store>,
                agent: Arc::new(driver),
                control: Some(Arc::new(ExternalTurnsOnly(control))),
                clock: Arc::new(DayClock(Arc::clone(&self.stage))),
                tasks: tasks.clone(),
                metrics: Arc::clone(&metrics),
                config: config(self.stage.seed()),
            });
            match engine.recover().await {
                Ok(recovered) => {
                    self.stage.note(format_args!("gateway: up, {} taken up", recovered.unfinished));
                    let is_gone = CancellationToken::new();
                    self.gateway.send_replace(Some(Arc::new(Gateway {
                        engine,
                        tasks,
                        cast,
                        metrics,
                        is_gone,
                    })));
                    return;
                }
                Err(error) => {
                    self.stage.note(format_args!("gateway: does not come up: {}", error.message()));
                    cast.kill();
                    self.stage.wait(1, 100).await;
                }
            }
        }
    }

    /// Kills the gateway: none of its tasks takes another step.
    async fn kill(&self) {
        if let Some(gateway) = self.gateway.send_replace(None) {
            self.stage.note(format_args!("gateway: killed"));
            gateway.is_gone.cancel();
            gateway.cast.kill();
        }
        self.stay_down(200).await;
        self.open().await;
    }

    /// Lets at most this much time pass, or occasionally much more, so that every deadline passes meanwhile.
    async fn stay_down(&self, longest: u64) {
        let is_long = self.stage.draw(|chance| chance.one_in(6));
        self.stage.wait(0, if is_long { 60_000 } else { longest }).await;
    }

    /// Stops the gateway like a signal: connections are closed, and its tasks come to rest.
    async fn close(&self) {
        let Some(gateway) = self.gateway.send_replace(None) else { return };
        self.stage.note(format_args!("gateway: stops"));
        gateway.is_gone.cancel();
        if tokio::time::timeout(Duration::from_mins(1), gateway.tasks.stop()).await.is_err() {
            self.stage.find(format_args!("{} tasks of the gateway do not stop", gateway.tasks.running()));
            gateway.cast.kill();
            return;
        }
        // A leaked slot would keep other turns out for ever.
        gateway.engine.update_gauges();
        let Metrics { turns, interrupt_open, tasks_unfinished, .. } = &*gateway.metrics;
        let left =
            [turns.of(TurnState::Running), turns.of(TurnState::Waiting), interrupt_open, tasks_unfinished];
        if left.iter().any(|left| left.get() != 0) {
            self.stage.find(format_args!("the gateway stopped and still counts {left:?}"));
        }
    }
}

/// Shorter times than the real ones, and in most seeds a low limit.
fn config(seed: u64) -> EngineConfig {
    let limits = match seed % 4 {
        0 => EngineConfig { turns: 1, ..EngineConfig::default() },
        1 => EngineConfig { turns: 0, turns_per_principal: 2, ..EngineConfig::default() },
        2 => EngineConfig { unfinished: 3, unfinished_per_context: 2, ..EngineConfig::default() },
        _ => EngineConfig::default(),
    };
    EngineConfig {
        turn_timeout: Some(TURN_LIMIT),
        idempotency_window: Duration::from_hours(24),
        asks: AskConfig { time_to_live: Some(Duration::from_secs(20)), ..AskConfig::default() },
        ..limits
    }
}
