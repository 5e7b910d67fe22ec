//! Tells a turn when there is no stream because what answers is strange: not OpenCode, or not for us.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::Link;

#[derive(Debug)]
pub(crate) struct InvalidResponseAlarm {
    link: watch::Receiver<Link>,
    told: Option<Instant>,
}

impl InvalidResponseAlarm {
    pub(super) fn at(link: watch::Receiver<Link>) -> Self {
        Self { link, told: None }
    }

    /// Waits until it has been so for that long, and then for as long again each time.
    pub(crate) async fn stay(&mut self, long: Duration) {
        loop {
            let strange = self.link.wait_for(|link| link.invalid_since.is_some()).await;
            let Ok(since) = strange.map(|link| link.invalid_since) else { break };
            let due = since.max(self.told).unwrap_or_else(Instant::now) + long;
            // In a box: every turn waits here, and few for this.
            let gone = Box::pin(timeout_at(due, self.link.wait_for(|link| link.invalid_since.is_none())));
            match gone.await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => break,
                Err(_) => {
                    self.told = Some(Instant::now());
                    return;
                }
            }
        }
        // There is no reader any more.
        std::future::pending::<()>().await;
    }
}
