//! Keeps a managed OpenCode running.
//!
//! When OpenCode ends, the supervisor terminates all processes that OpenCode left running, and starts OpenCode again with the same
//! port and password. So its users only notice broken calls and a wait. The [`crate::Address`] of OpenCode reports when the process
//! has ended and when the next one responds. If another program has taken the port, OpenCode gets another port and another
//! password, and the address passes both to all users. An OpenCode that no longer responds is terminated and restarted in the same
//! way.
//!
//! The first restart waits 250 ms, and each further one twice as long, up to 15 s. After OpenCode has run for 20 s, the waits start
//! again at 250 ms. Each wait is shortened at random by up to a half, so that several servers that ended together do not start
//! together. OpenCode is not restarted if its record is missing, because then it was stopped on purpose.

use std::time::Duration;

use longshore_engine::Tasks;
use longshore_model::Result;
use secrecy::SecretString;
use tokio::sync::watch;
use tokio::time::Instant;

use super::lock::Lock;
use super::record::Record;
use super::{Managed, STOP_PATIENCE, launch};
use crate::reader::jittered;

const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// How long OpenCode must have run so that its end is not blamed on the start. A failing start shows within seconds.
const STEADY: Duration = Duration::from_secs(20);

/// How often the supervisor checks whether an adopted OpenCode, which is not its child, still runs.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// The state of a supervised OpenCode, for health reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    Running {
        pid: u32,
        version: String,
    },
    /// OpenCode ended or does not respond, and is restarted after a wait. `reason` may be shown to anybody.
    Down {
        restarts: u32,
        reason: String,
    },
    /// OpenCode was stopped on purpose, and stays stopped.
    Stopped,
}

impl Managed {
    /// Restarts OpenCode whenever it ends, until it is stopped on purpose. When the gateway ends, OpenCode keeps running.
    pub fn supervise(self, tasks: &Tasks) -> watch::Receiver<State> {
        let (sender, receiver) = watch::channel(self.state());
        let stopping = tasks.stopping().clone();
        tasks.spawn("managed-opencode", async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = self.keep_running(&sender) => {}
            }
        });
        receiver
    }

    async fn keep_running(mut self, state: &watch::Sender<State>) {
        let mut backoff = Backoff::default();
        let mut restarts = 0;
        loop {
            let since = Instant::now();
            let mut reason = match self.until_down().await {
                Down::Ended => {
                    tracing::warn!(pid = self.pid(), "OpenCode ended");
                    "OpenCode ended unexpectedly and is being started again.".to_owned()
                }
                Down::Silent => {
                    let silence = self.liveness.silence;
                    tracing::error!(
                        pid = self.pid(),
                        ?silence,
                        "OpenCode does not respond and is terminated"
                    );
                    "OpenCode does not respond and is being started again.".to_owned()
                }
            };
            backoff.reset_after(since.elapsed());
            loop {
                self.address.set_down(reason.clone());
                state.send_replace(State::Down { restarts, reason });
                tokio::time::sleep(backoff.next()).await;
                restarts += 1;
                match self.restart().await {
                    Ok(true) => break,
                    Ok(false) => {
                        tracing::info!("OpenCode was stopped");
                        self.address.set_down("OpenCode was stopped.");
                        state.send_replace(State::Stopped);
                        return;
                    }
                    Err(error) => {
                        tracing::error!(%error, cause = ?error.cause(), "OpenCode cannot be started again");
                        reason = error.to_string();
                    }
                }
            }
            state.send_replace(self.state());
        }
    }

    fn state(&self) -> State {
        State::Running { pid: self.pid().unwrap_or_default(), version: self.version().to_owned() }
    }

    /// Waits until OpenCode has ended or no longer responds.
    async fn until_down(&mut self) -> Down {
        let (liveness, port, password) = (self.liveness, self.record.port, self.record.password.clone());
        tokio::select! {
            () = self.ended() => Down::Ended,
            () = liveness.until_silent(port, &password) => Down::Silent,
        }
    }

    async fn ended(&mut self) {
        if let Some(child) = &mut self.child {
            match child.wait().await {
                Ok(status) => tracing::debug!(%status, "the OpenCode process ended"),
                Err(error) => tracing::warn!(%error, "the gateway cannot wait for the OpenCode process"),
            }
        }
        while self.record.running_process().is_some() {
            tokio::time::sleep(CHECK_EVERY).await;
        }
    }

    /// Restarts OpenCode. Returns false if OpenCode was stopped on purpose.
    async fn restart(&mut self) -> Result<bool> {
        let _lock = Lock::take(&self.config.data_dir, STOP_PATIENCE).await?;
        match Record::load(&self.config.data_dir) {
            Ok(Some(record)) if record.marker == self.record.marker => {}
            Ok(_) => return Ok(false),
            // A deliberate stop removes the record. A damaged record is written again.
            Err(error) => tracing::warn!(cause = ?error.cause(), "{error}"),
        }
        self.record.terminate().await?;
        let (record, child) = launch::restart(&self.config, self.record.clone()).await?;
        self.address.move_to(record.base_url(), SecretString::from(record.password.clone()));
        self.record = record;
        self.child = Some(child);
        Ok(true)
    }
}

enum Down {
    Ended,
    Silent,
}

/// The growing waits between restarts.
#[derive(Debug)]
struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(FIRST_WAIT)
    }
}

impl Backoff {
    fn reset_after(&mut self, life: Duration) {
        if life >= STEADY {
            *self = Self::default();
        }
    }

    fn next(&mut self) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(LONGEST_WAIT);
        jittered(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_differ() {
        let waits = || {
            let mut backoff = Backoff::default();
            let waits: Vec<u128> = (0..8).map(|_| backoff.next().as_micros()).collect();
            for (wait, longest) in waits.iter().zip([250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]) {
                assert!(*wait <= longest * 1_000 && wait * 2 >= longest * 1_000, "{wait} of {longest}");
            }
            waits
        };
        assert_ne!(waits(), waits());
    }

    #[test]
    fn waits_start_again_after_a_long_run() {
        let mut backoff = Backoff::default();
        for life in [0, 5, 19].map(Duration::from_secs) {
            backoff.next();
            backoff.reset_after(life);
        }
        assert_eq!(backoff.0, FIRST_WAIT * 8);
        backoff.reset_after(STEADY);
        assert_eq!(backoff.0, FIRST_WAIT);
    }
}
