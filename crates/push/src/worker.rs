//! Finds what is due and runs the deliveries.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use longshore_engine::port::{BoxFuture, Clock, LeasedPush, PushConfigs, PushQueue, Store};
use longshore_engine::{RareLine, Tasks};
use longshore_meter::Metrics;
use tokio::time::Instant;

use crate::configs::DeliveredConfigs;
use crate::hosts::{Admission, Destination, Hosts, Slot};
use crate::in_flight::{InFlight, Registration};
use crate::lane::{self, Shared};
use crate::policy::{DeliveryRules, Health};
use crate::transport::Transport;

/// The most configurations that are leased at a time.
const LEASES: usize = 64;

/// How long the queue is left alone after it has failed.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// The queue is looked at so often even if nothing is due: the clock may have been set.
const LONGEST_SLEEP: Duration = Duration::from_mins(1);

/// How long calls may go on when the gateway stops. Those that have not ended are repeated after the next start, with the same ids.
const DRAIN: Duration = Duration::from_secs(3);

/// What the delivery is made of.
#[derive(Debug)]
pub struct DeliveryParts {
    pub store: Arc<dyn Store>,
    pub configs: Arc<dyn PushConfigs>,
    pub queue: Arc<dyn PushQueue>,
    pub transport: Arc<dyn Transport>,
    pub clock: Arc<dyn Clock>,
    pub metrics: Arc<Metrics>,
    pub rules: DeliveryRules,
}

/// The delivery of push notifications.
#[derive(Debug)]
pub struct Delivery {
    configs: Arc<DeliveredConfigs>,
    worker: Worker,
}

#[derive(Debug)]
struct Worker {
    shared: Arc<Shared>,
    in_flight: Arc<InFlight>,
    hosts: Hosts,
    tasks: Tasks,
}

/// A delivery that runs in a task of its own. Returns its place and what it found out about the host. A panic is a `None`.
type Lane = BoxFuture<'static, (Slot, Option<Health>)>;

impl Delivery {
    pub fn new(parts: DeliveryParts) -> Self {
        let DeliveryParts { store, configs, queue, transport, clock, metrics, rules } = parts;
        let in_flight = Arc::new(InFlight::default());
        let hosts = Hosts::new(&rules);
        let store_failures = RareLine::new();
        let shared = Arc::new(Shared { store, queue, transport, clock, metrics, rules, store_failures });
        let configs = Arc::new(DeliveredConfigs { configs, in_flight: Arc::clone(&in_flight) });
        Self { configs, worker: Worker { shared, in_flight, hosts, tasks: Tasks::new() } }
    }

    /// The configurations for the engine. Nothing may change them otherwise.
    pub fn configs(&self) -> Arc<DeliveredConfigs> {
        Arc::clone(&self.configs)
    }

    /// Begins to deliver, in the background. A delivery that was on its way when the gateway ended is repeated.
    pub fn start(self, tasks: &Tasks) {
        let worker = Worker { tasks: tasks.clone(), ..self.worker };
        tasks.spawn("push", worker.run());
    }
}

impl Worker {
    async fn run(mut self) {
        let stopping = self.tasks.stopping().clone();
        let mut lanes = FuturesUnordered::<Lane>::new();
        loop {
            let next = tokio::select! {
                biased;
                () = stopping.cancelled() => break,
                next = self.fill(&mut lanes) => next,
            };
            tokio::select! {
                biased;
                () = stopping.cancelled() => break,
                Some((slot, health)) = lanes.next(), if !lanes.is_empty() => {
                    self.ended(&mut lanes, slot, health).await;
                }
                () = self.shared.queue.grown(), if self.hosts.room() > 0 => {}
                () = tokio::time::sleep(next) => {}
            }
        }
    }

    /// Starts what is due, as far as there is room. Returns how long nothing else will be due.
    async fn fill(&mut self, lanes: &mut FuturesUnordered<Lane>) -> Duration {
        let looked_at = loop {
            let room = self.hosts.room().min(LEASES);
            if room == 0 {
                return LONGEST_SLEEP;
            }
            let in_flight = Arc::clone(&self.in_flight);
            let leasing = in_flight.leasing.lock().await;
            let now = self.shared.now();
            let due = self.shared.queue.due(now, room, self.shared.lease_end()).await;
            let due = match due {
                Ok(due) => due,
                Err(error) => {
                    self.shared.note_store_failure(&error);
                    return STORE_PAUSE;
                }
            };
            let is_all = due.len() < room;
            let due: Vec<_> = due.into_iter().map(|leased| (self.register(&leased), leased)).collect();
            drop(leasing);
            for (registration, leased) in due {
                self.place(lanes, registration, leased, Instant::now()).await;
            }
            if is_all {
                break now;
            }
        };
        // What became due after the look is in the past by now, and must not be missed.
        match self.shared.queue.next_due(looked_at).await {
            Ok(next) => {
                let now = self.shared.now();
                let wait = next.map_or(i64::MAX, |next| next.0.saturating_sub(now.0)).max(1);
                Duration::from_millis(wait.unsigned_abs()).min(LONGEST_SLEEP)
            }
            Err(error) => {
                self.shared.note_store_failure(&error);
                STORE_PAUSE
            }
        }
    }

    fn register(&self, leased: &LeasedPush) -> Registration {
        let key = (leased.lease.task.clone(), leased.lease.config.clone());
        self.in_flight.register(key, leased.lease.number)
    }

    async fn place(
        &mut self,
        lanes: &mut FuturesUnordered<Lane>,
        registration: Registration,
        leased: LeasedPush,
        since: Instant,
    ) {
        let destination = Destination::of(&leased);
        match self.hosts.admit(&destination, Instant::now()) {
            Admission::Run => {
                let slot = self.hosts.begin(destination);
                let (shared, stopping) = (Arc::clone(&self.shared), self.tasks.stopping().clone());
                let running = self.tasks.spawn("push delivery", async move {
                    let registration = registration;
                    let given_up = async {
                        stopping.cancelled().await;
                        tokio::time::sleep(DRAIN).await;
                    };
                    tokio::select! {
                        health = lane::run(&shared, leased, &registration) => health,
                        () = given_up => Health::Unknown,
                    }
                });
                // After a panic, the lease expires.
                lanes.push(Box::pin(async move { (slot, running.await.ok()) }));
            }
            Admission::Wait => self.hosts.wait(destination, (registration, leased, since)),
            Admission::Later(pause) => self.shared.give_back(&leased, pause).await,
        }
    }

    async fn ended(&mut self, lanes: &mut FuturesUnordered<Lane>, slot: Slot, health: Option<Health>) {
        let waiting = self.hosts.end(slot, health.unwrap_or(Health::Unknown), Instant::now());
        for (registration, leased, since) in waiting {
            // A configuration that has changed since is leased again.
            if registration.is_canceled() {
                continue;
            }
            if since.elapsed() > self.shared.rules.lease() / 2 {
                self.shared.give_back(&leased, Duration::ZERO).await;
            } else {
                self.place(lanes, registration, leased, since).await;
            }
        }
    }
}
