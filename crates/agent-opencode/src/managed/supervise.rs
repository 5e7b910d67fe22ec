//! Keeps a managed OpenCode running.
//!
//! When it ends, whatever it left running is ended too, and it is started again with the same port and password, so
//! that whoever talks to it need not notice more than a broken connection. One that does not answer any more is ended for
//! that. When somebody else has the port by then, it gets another, with another password, and its address says so to all who
//! have it. The first restart waits 250 ms, each further one twice as long as the one before, up to 15 s; after a life of
//! 20 s the waits begin anew. Each wait is shortened by up to a half at random, so that those that died together do not all
//! start together.
//! It is not started again when its record is gone: somebody stopped it.

use std::time::Duration;

use longshore_engine::Tasks;
use longshore_model::Result;
use secrecy::SecretString;
use tokio::sync::watch;
use tokio::time::Instant;

use super::lock::Lock;
use super::record::Record;
use super::{Managed, STOP_PATIENCE, end, launch};
use crate::reader::jittered;

const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// One that ran so long did not end because of how it was started: that shows within seconds.
const STEADY: Duration = Duration::from_secs(20);

/// How often we look whether an adopted one, which is no child of ours, still runs.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How a supervised OpenCode is, for health reports.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    Running {
        pid: u32,
        version: String,
    },
    /// It ended, or does not answer, and is started again after a wait. `reason` is fit for anybody's eyes.
    Down {
        restarts: u32,
        reason: String,
    },
    /// Somebody stopped it. It stays so.
    Stopped,
}

impl Managed {
    /// Starts it again whenever it ends, until it is stopped or the gateway ends, which leaves it running.
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
        let mut wait = Wait::default();
        let mut restarts = 0;
        loop {
            let since = Instant::now();
            let mut reason = match self.down().await {
                Down::Ended => {
                    tracing::warn!(pid = self.pid(), "OpenCode ended");
                    "OpenCode ended unexpectedly and is being started again.".to_owned()
                }
                Down::Silent => {
                    let silence = self.vigil.silence;
                    tracing::error!(pid = self.pid(), ?silence, "OpenCode does not answer and is ended");
                    "OpenCode does not answer and is being started again.".to_owned()
                }
            };
            wait.after_a_life_of(since.elapsed());
            loop {
                state.send_replace(State::Down { restarts, reason });
                tokio::time::sleep(wait.next()).await;
                restarts += 1;
                match self.restart().await {
                    Ok(true) => break,
                    Ok(false) => {
                        tracing::info!("OpenCode was stopped");
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

    /// Waits until it is of no use any more.
    async fn down(&mut self) -> Down {
        let (vigil, port, password) = (self.vigil, self.record.port, self.record.password.clone());
        tokio::select! {
            () = self.ended() => Down::Ended,
            () = vigil.until_silent(port, &password) => Down::Silent,
        }
    }

    async fn ended(&mut self) {
        if let Some(child) = &mut self.child {
            match child.wait().await {
                Ok(status) => tracing::debug!(%status, "the OpenCode process ended"),
                Err(error) => tracing::warn!(%error, "the OpenCode process cannot be waited for"),
            }
        }
        while self.record.living().is_some() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// False when it shall not run any more.
    async fn restart(&mut self) -> Result<bool> {
        let _lock = Lock::take(&self.config.data_dir, STOP_PATIENCE).await?;
        match Record::load(&self.config.data_dir) {
            Ok(Some(record)) if record.marker == self.record.marker => {}
            Ok(_) => return Ok(false),
            // Whoever stops it removes the record. One that is damaged is written anew.
            Err(error) => tracing::warn!(cause = ?error.cause(), "{error}"),
        }
        end::end(&self.record).await?;
        let (record, child) = launch::again(&self.config, self.record.clone()).await?;
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

/// The waits between restarts.
#[derive(Debug)]
struct Wait(Duration);

impl Default for Wait {
    fn default() -> Self {
        Self(FIRST_WAIT)
    }
}

impl Wait {
    fn after_a_life_of(&mut self, life: Duration) {
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
            let mut wait = Wait::default();
            let waits: Vec<u128> = (0..8).map(|_| wait.next().as_micros()).collect();
            for (wait, longest) in waits.iter().zip([250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]) {
                assert!(*wait <= longest * 1_000 && wait * 2 >= longest * 1_000, "{wait} of {longest}");
            }
            waits
        };
        assert_ne!(waits(), waits());
    }

    #[test]
    fn waits_begin_anew_after_a_life_that_was_long_enough() {
        let mut wait = Wait::default();
        for life in [0, 5, 19].map(Duration::from_secs) {
            wait.next();
            wait.after_a_life_of(life);
        }
        assert_eq!(wait.0, FIRST_WAIT * 8);
        wait.after_a_life_of(STEADY);
        assert_eq!(wait.0, FIRST_WAIT);
    }
}
