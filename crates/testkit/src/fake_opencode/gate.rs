//! A point in a script where the fake waits for the test, so that no test needs to sleep.

use std::sync::Arc;

use tokio::sync::watch;

use super::state::PATIENCE;

/// Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    reached: watch::Sender<bool>,
    open: watch::Sender<bool>,
}

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits until the script reaches the gate. Panics if that takes too long.
    pub async fn reached(&self) {
        let reached = tokio::time::timeout(PATIENCE, wait_until_true(&self.0.reached)).await;
        assert!(reached.is_ok(), "the script did not reach the gate in time");
    }

    /// Lets the script continue.
    pub fn open(&self) {
        self.0.open.send_replace(true);
    }

    /// Waits at the gate until the test opens it.
    pub(crate) async fn pass(&self) {
        self.0.reached.send_replace(true);
        wait_until_true(&self.0.open).await;
    }
}

async fn wait_until_true(flag: &watch::Sender<bool>) {
    // The sender lives in the gate that is borrowed here, so the channel cannot close.
    let _ = flag.subscribe().wait_for(|set| *set).await;
}
