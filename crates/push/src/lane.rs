//! Delivers the events of one leased configuration, one after the other.

use std::sync::Arc;

use futures_util::future::join_all;
use http::HeaderMap;
use longshore_engine::RareLine;
use longshore_engine::port::{Burial, Clock, LeasedPush, PushLease, PushQueue, PushRetry, Store};
use longshore_meter::Metrics;
use longshore_model::{Entry, Result, Seq, TaskEvent, Timestamp};
use longshore_outbound::Post;

use crate::body::Bodies;
use crate::folded::FoldedTasks;
use crate::hosts;
use crate::in_flight::Registration;
use crate::policy::{self, DeliveryRules, Health, Judged, Verdict};
use crate::request::{self, Unusable};
use crate::transport::Transport;

/// The most calls of one lease. Then other configurations get their turn.
const CALLS: usize = 16;

/// The most events that are read at a time.
const READ: usize = 64;

/// The state that all lanes share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: Arc<dyn PushQueue>,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) rules: DeliveryRules,
    pub(crate) folded: FoldedTasks,
    pub(crate) store_failures: RareLine,
}

impl Shared {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn lease_end(&self) -> Timestamp {
        policy::later(self.now(), self.rules.lease())
    }

    /// Gives a lease back to the queue for a while. This does not count as an attempt.
    pub(crate) async fn give_back(&self, leased: &LeasedPush, pause: std::time::Duration) {
        let at = policy::later(self.now(), pause);
        let retry = PushRetry { at, attempts: leased.attempts, first_failed_at: leased.first_failed_at };
        if let Err(error) = self.queue.postpone(&leased.lease, retry).await {
            self.note_store_failure(&error);
        }
    }

    /// Gives all leases back concurrently, so that the store can write them in one commit.
    pub(crate) async fn give_back_all(&self, leases: Vec<(LeasedPush, std::time::Duration)>) {
        join_all(leases.iter().map(|(leased, pause)| self.give_back(leased, *pause))).await;
    }

    pub(crate) fn note_store_failure(&self, error: &longshore_model::Error) {
        if let Some(failures) = self.store_failures.due() {
            tracing::warn!(failures, error = ?error, "the store failed; push notifications will be tried again");
        }
    }
}

/// Delivers events until none is left, the receiver fails, or the lease has made its calls. Returns what the calls showed about the
/// host.
pub(crate) async fn run(shared: &Shared, leased: LeasedPush, registration: &Registration) -> Health {
    let mut lane = Lane {
        shared,
        lease: leased.lease.clone(),
        attempts: leased.attempts,
        first_failed_at: leased.first_failed_at,
        health: Health::Unknown,
    };
    // If the configuration changes, `run` drops this future, and with it a call in progress.
    let done = registration.run(lane.deliver(&leased)).await.unwrap_or(Ok(()));
    if let Err(error) = done {
        shared.note_store_failure(&error);
        shared.give_back(&leased, policy::pause(1)).await;
    }
    lane.health
}

struct Lane<'a> {
    shared: &'a Shared,
    lease: PushLease,
    /// The attempts so far for the next event.
    attempts: u32,
    first_failed_at: Option<Timestamp>,
    health: Health,
}

/// How the attempt to deliver one event ended.
enum Attempted {
    /// The event is done: the cursor is after it.
    Done,
    /// The lease has ended or is no longer valid.
    Stop,
}

impl Lane<'_> {
    async fn deliver(&mut self, leased: &LeasedPush) -> Result<()> {
        let Shared { store, rules, .. } = self.shared;
        let LeasedPush { owner, config, .. } = leased;
        let Some(head) = store.head(owner, &config.task).await? else { return Ok(()) };
        let mut bodies = Bodies::new(&**store, owner, config, &head, rules.max_body_bytes);
        if let Some(event) = leased.replays {
            return self.replay(leased, &mut bodies, event).await;
        }
        bodies.folded = self.shared.folded.take(&config.task, &config.id);
        let done = self.deliver_all(leased, &mut bodies).await;
        // Keep the task only if another body may follow: the task has not ended, or its last event is tried again.
        if let Some(folded) = bodies.folded.filter(|folded| self.attempts > 0 || !folded.is_ended()) {
            self.shared.folded.keep(config.task.clone(), config.id.clone(), folded);
        }
        done
    }

    async fn deliver_all(&mut self, leased: &LeasedPush, bodies: &mut Bodies<'_>) -> Result<()> {
        let Shared { store, queue, .. } = self.shared;
        let LeasedPush { owner, config, .. } = leased;
        let (mut cursor, mut saved, mut calls) = (leased.cursor, leased.cursor, 0);
        loop {
            let entries = store.read(owner, &config.task, cursor, READ).await?;
            let Some(first) = entries.first() else {
                // If the log has grown since the read, this makes the configuration due again.
                queue.advance(&self.lease, cursor, None, false).await?;
                return Ok(());
            };
            if first.seq != cursor.next() {
                let (task, config) = (&config.task, &config.id);
                tracing::warn!(%task, %config, "events for a receiver are no longer kept; it does not get them");
            }
            for entry in entries {
                let before = std::mem::replace(&mut cursor, entry.seq);
                bodies.follow(&entry);
                if !bodies.wants(&entry.event) {
                    continue;
                }
                if calls >= CALLS {
                    return self.yield_to_others(leased, (saved, before)).await;
                }
                // Save the cursor first, so that a retry need not read the unwanted events before this one again.
                if self.attempts == 0
                    && before > saved
                    && !queue.advance(&self.lease, before, Some(self.shared.lease_end()), false).await?
                {
                    return Ok(());
                }
                calls += 1;
                if let Attempted::Stop = self.attempt(leased, bodies, &entry, true).await? {
                    return Ok(());
                }
                saved = cursor;
            }
        }
    }

    /// Gives the lease back before the next event, and makes that event due at once.
    async fn yield_to_others(&mut self, leased: &LeasedPush, (saved, cursor): (Seq, Seq)) -> Result<()> {
        let queue = &self.shared.queue;
        if cursor > saved
            && !queue.advance(&leased.lease, cursor, Some(self.shared.lease_end()), false).await?
        {
            return Ok(());
        }
        let retry = PushRetry {
            at: self.shared.now(),
            attempts: self.attempts,
            first_failed_at: self.first_failed_at,
        };
        queue.postpone(&self.lease, retry).await?;
        Ok(())
    }

    async fn replay(&mut self, leased: &LeasedPush, bodies: &mut Bodies<'_>, event: Seq) -> Result<()> {
        let before = Seq(event.0.saturating_sub(1));
        let found = self.shared.store.read(&leased.owner, &leased.config.task, before, 1).await?;
        match found.into_iter().next().filter(|entry| entry.seq == event) {
            Some(entry) => {
                self.attempt(leased, bodies, &entry, false).await?;
            }
            None => {
                self.bury(leased, event, "the event is no longer kept".to_owned(), None).await?;
            }
        }
        Ok(())
    }

    /// Delivers one event with one call. `keeps`: whether the lease continues after a success.
    async fn attempt(
        &mut self,
        leased: &LeasedPush,
        bodies: &mut Bodies<'_>,
        entry: &Entry,
        keeps: bool,
    ) -> Result<Attempted> {
        let Shared { queue, rules, metrics, .. } = self.shared;
        let body = bodies.write(entry).await?;
        let id = request::webhook_id(&leased.config, entry);
        let trace = leased.trace.as_ref().map(longshore_model::TraceContext::child);
        let headers = request::headers(&leased.config, &id, self.shared.now(), trace.as_ref(), &body);
        let judged = match headers {
            Ok(headers) => self.call(&leased.config.url, headers, body).await,
            Err(Unusable(what)) => Judged {
                verdict: Verdict::GiveUp,
                health: Health::Unknown,
                reason: format!("the request cannot be written: {what}"),
            },
        };
        self.attempts = self.attempts.saturating_add(1);
        let now = self.shared.now();
        let keep = keeps.then(|| self.shared.lease_end());
        match judged.verdict {
            Verdict::Delivered => {
                self.log_delivered(leased, entry, &id);
                metrics.push_delivered.increment();
                if let TaskEvent::Status(update) = &entry.event {
                    let lag = now.0.saturating_sub(update.status.at.0);
                    let lag = std::time::Duration::from_millis(u64::try_from(lag).unwrap_or(0));
                    metrics.push_lag.observe(lag);
                }
                let is_held = queue.advance(&self.lease, entry.seq, keep, true).await?;
                (self.attempts, self.first_failed_at) = (0, None);
                Ok(if is_held && keeps { Attempted::Done } else { Attempted::Stop })
            }
            Verdict::Retry(asked) => {
                let first_failed_at = *self.first_failed_at.get_or_insert(now);
                let at = policy::retry_at(now, self.attempts, asked);
                let retry = if rules.is_exhausted(self.attempts, first_failed_at, now) {
                    if !self.bury(leased, entry.seq, judged.reason, keep).await? || !keeps {
                        return Ok(Attempted::Stop);
                    }
                    PushRetry { at, attempts: 0, first_failed_at: Some(first_failed_at) }
                } else {
                    metrics.push_retried.increment();
                    PushRetry { at, attempts: self.attempts, first_failed_at: Some(first_failed_at) }
                };
                queue.postpone(&self.lease, retry).await?;
                Ok(Attempted::Stop)
            }
            Verdict::GiveUp => {
                let is_held = self.bury(leased, entry.seq, judged.reason, keep).await?;
                Ok(if is_held && keeps { Attempted::Done } else { Attempted::Stop })
            }
        }
    }

    async fn call(&mut self, url: &str, headers: HeaderMap, body: bytes::Bytes) -> Judged {
        let judged = policy::judge(&self.shared.transport.post(Post { url, headers, body }).await);
        self.health = judged.health;
        judged
    }

    async fn bury(
        &mut self,
        leased: &LeasedPush,
        event: Seq,
        reason: String,
        keep: Option<Timestamp>,
    ) -> Result<bool> {
        let now = self.shared.now();
        let dead = Burial {
            event,
            reason,
            attempts: self.attempts,
            first_failed_at: self.first_failed_at.unwrap_or(now),
            at: now,
        };
        tracing::warn!(
            task = %self.lease.task, config = %self.lease.config, event = %event,
            receiver = hosts::host_of(&leased.config.url), attempts = self.attempts, reason = dead.reason,
            "a push notification is given up; `longshore push dead` lists it"
        );
        let is_held = self.shared.queue.bury(&self.lease, dead, keep).await?;
        if is_held {
            self.shared.metrics.push_dead.increment();
        }
        self.attempts = 0;
        Ok(is_held)
    }

    fn log_delivered(&self, leased: &LeasedPush, entry: &Entry, id: &str) {
        tracing::info!(
            task = %self.lease.task, config = %self.lease.config, event = %entry.seq, webhook = id,
            receiver = hosts::host_of(&leased.config.url), attempts = self.attempts,
            "delivered a push notification"
        );
    }
}
