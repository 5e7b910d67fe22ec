//! Tells a turn that its event stream has had only invalid responses for some time. Either another program responds instead of
//! OpenCode, or OpenCode rejects the gateway's password.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::Link;

#[derive(Debug)]
pub(crate) struct InvalidResponseAlarm {
    link: watch::Receiver<Link>,
    last_ring: Option<Instant>,
}

impl InvalidResponseAlarm {
    pub(super) fn at(link: watch::Receiver<Link>) -> Self {
        Self { link, last_ring: None }
    }

    /// Returns when all responses have been invalid for the interval. Each further call returns after one more interval of invalid
    /// responses.
    pub(crate) async fn ring_every(&mut self, interval: Duration) {
        loop {
            let failing = self.link.wait_for(|link| link.invalid_since.is_some()).await;
            let Ok(since) = failing.map(|link| link.invalid_since) else { break };
            let due = since.max(self.last_ring).unwrap_or_else(Instant::now) + interval;
            // Boxed, because every turn waits here but few ever need this future.
            let gone = Box::pin(timeout_at(due, self.link.wait_for(|link| link.invalid_since.is_none())));
            match gone.await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => break,
                Err(_) => {
                    self.last_ring = Some(Instant::now());
                    return;
                }
            }
        }
        // The reader has stopped, so the alarm can never ring.
        std::future::pending::<()>().await;
    }
}
