//! Leases configurations that are due, and runs their deliveries.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use longshore_engine::port::{BoxFuture, Clock, LeasedPush, PushConfigs, PushQueue, Store};
use longshore_engine::{RareLine, Tasks};
use longshore_meter::Metrics;
use tokio::time::Instant;

use crate::configs::DeliveredConfigs;
use crate::folded::FoldedTasks;
use crate::hosts::{Admission, Destination, Hosts, Slot, Waiting};
use crate::in_flight::{InFlight, Registration};
use crate::lane::{self, Shared};
use crate::policy::{DeliveryRules, Health};
use crate::transport::Transport;

/// The most configurations in one batch of leases.
const LEASES: u32 = 64;

/// The pause of a lease that finds no room, before it is due again. The leases of each further batch in a row without room wait one
/// more such pause, up to [`LONGEST_NO_ROOM`]. Otherwise the configurations of a busy host would become due faster than they are
/// leased.
const NO_ROOM: Duration = Duration::from_secs(1);
const LONGEST_NO_ROOM: Duration = Duration::from_secs(10);

/// The pause after the queue has failed.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// The longest time between two reads of the queue. The clock may be set, so the next due time may be wrong.
const LONGEST_SLEEP: Duration = Duration::from_mins(1);

/// How long calls may continue when the gateway stops. The unfinished ones are repeated with the same ids after the next start.
const DRAIN: Duration = Duration::from_secs(3);

/// The parts from which a [`Delivery`] is made.
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

/// Delivers push notifications.
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
    /// How many leases have found no room since the queue was last empty.
    without_room: u32,
    tasks: Tasks,
}

/// The future of a running delivery. Returns its slot and what the delivery showed about the host. `None`: the delivery panicked.
type Lane = BoxFuture<'static, (Slot, Option<Health>)>;

impl Delivery {
    pub fn new(parts: DeliveryParts) -> Self {
        let DeliveryParts { store, configs, queue, transport, clock, metrics, rules } = parts;
        let in_flight = Arc::new(InFlight::default());
        let hosts = Hosts::new(&rules);
        let store_failures = RareLine::new();
        let folded = FoldedTasks::default();
        let shared =
            Arc::new(Shared { store, queue, transport, clock, metrics, rules, folded, store_failures });
        let configs = Arc::new(DeliveredConfigs { configs, in_flight: Arc::clone(&in_flight) });
        Self { configs, worker: Worker { shared, in_flight, hosts, without_room: 0, tasks: Tasks::new() } }
    }

    /// The configurations for the engine. All changes must go through this object, so that it can end their deliveries.
    pub fn configs(&self) -> Arc<DeliveredConfigs> {
        Arc::clone(&self.configs)
    }

    /// Starts the background task that delivers. Deliveries that the last run did not finish are repeated.
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
            // If the store is slow, several calls may have ended while the worker leased. Handle all of them.
            for _ in 0..lanes.len() {
                let Some(Some((slot, health))) = lanes.next().now_or_never() else { break };
                self.ended(&mut lanes, slot, health).await;
            }
        }
    }

    /// Leases one batch of due configurations, and starts deliveries for which there is room. Returns how long nothing else will be
    /// due.
    async fn fill(&mut self, lanes: &mut FuturesUnordered<Lane>) -> Duration {
        let room = self.hosts.room().min(LEASES as usize);
        if room == 0 {
            return LONGEST_SLEEP;
        }
        let in_flight = Arc::clone(&self.in_flight);
        let leasing = in_flight.leasing.lock().await;
        let due = match self.shared.queue.due(self.shared.now(), room, self.shared.lease_end()).await {
            Ok(due) => due,
            Err(error) => {
                self.shared.note_store_failure(&error);
                return STORE_PAUSE;
            }
        };
        let is_all = due.len() < room;
        let due: Vec<_> = due.into_iter().map(|leased| (self.register(&leased), leased)).collect();
        drop(leasing);
        let since = Instant::now();
        let mut refused = Vec::new();
        for (registration, leased) in due {
            refused.extend(self.place(lanes, registration, leased, since));
        }
        self.shared.give_back_all(refused).await;
        if !is_all {
            // More may be due. The caller first handles ended calls, which makes room, and then leases the next batch.
            return Duration::ZERO;
        }
        self.without_room = 0;
        match self.shared.queue.next_due().await {
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

    /// Starts a delivery, or keeps its lease until a call of its host or owner ends. `Some`: the lease must be given back for this
    /// time.
    fn place(
        &mut self,
        lanes: &mut FuturesUnordered<Lane>,
        registration: Registration,
        leased: LeasedPush,
        since: Instant,
    ) -> Option<(LeasedPush, Duration)> {
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
                // After a panic nobody gives the lease back, so it expires.
                lanes.push(Box::pin(async move { (slot, running.await.ok()) }));
            }
            Admission::Wait => self.hosts.wait(destination, (registration, leased, since)),
            Admission::WaitForOwner => {
                self.hosts.wait_for_owner(destination.owner, (registration, leased, since));
            }
            Admission::Later(pause) => return Some((leased, pause)),
            Admission::NoRoom => {
                let batches = self.without_room / LEASES + 1;
                self.without_room = self.without_room.saturating_add(1);
                return Some((leased, NO_ROOM.saturating_mul(batches).min(LONGEST_NO_ROOM)));
            }
        }
        None
    }

    async fn ended(&mut self, lanes: &mut FuturesUnordered<Lane>, slot: Slot, health: Option<Health>) {
        let owner = slot.destination.owner.clone();
        let waiting = self.hosts.end(slot, health.unwrap_or(Health::Unknown), Instant::now());
        let mut refused = Vec::new();
        for leased in waiting {
            refused.extend(self.place_again(lanes, leased));
        }
        while let Some(leased) = self.hosts.next_of(&owner) {
            refused.extend(self.place_again(lanes, leased));
        }
        self.shared.give_back_all(refused).await;
    }

    fn place_again(
        &mut self,
        lanes: &mut FuturesUnordered<Lane>,
        (registration, leased, since): Waiting,
    ) -> Option<(LeasedPush, Duration)> {
        // The configuration has changed in the meantime. The change also makes it due again.
        if registration.is_canceled() {
            return None;
        }
        if since.elapsed() > self.shared.rules.lease() / 2 {
            return Some((leased, Duration::ZERO));
        }
        self.place(lanes, registration, leased, since)
    }
}
