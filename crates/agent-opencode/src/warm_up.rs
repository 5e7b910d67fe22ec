//! Whether OpenCode can work, and what it loads before its first turn.

use std::time::Duration;

use longshore_model::{Error, ErrorKind, Result};
use tokio::time::timeout;

use crate::client::CallError;
use crate::{OpenCode, outage};

/// How long the first turn may take to load everything. After that the turns of callers load the rest.
const PATIENCE: Duration = Duration::from_secs(30);

impl OpenCode {
    /// OpenCode's own version. Fails if OpenCode could not work now.
    pub async fn version(&self) -> Result<String> {
        match self.client.health().await {
            Ok(health) if health.healthy => Ok(health.version),
            Ok(_) => Err(Error::new(ErrorKind::AgentUnavailable, "OpenCode reports that it is not healthy.")),
            Err(cause) => Err(match self.why_down(&cause).await {
                Some(reason) => Error::new(ErrorKind::AgentUnavailable, reason),
                None => cause.into_error("check whether it is healthy"),
            }),
        }
    }

    /// Makes OpenCode load what it would load with the first message: the workspace with its configuration and its providers.
    /// With a `prompt` also the rest, by a turn in a session that is deleted at once. The prompt costs a call of the model.
    pub async fn warm_up(&self, prompt: Option<&str>) {
        let warmed = timeout(PATIENCE, self.load(prompt)).await.unwrap_or(Err(CallError::NoAnswer));
        if let Err(cause) = warmed {
            tracing::debug!(%cause, "OpenCode did not load everything before the first turn");
        }
    }

    async fn load(&self, prompt: Option<&str>) -> Result<(), CallError> {
        let root = self.access.root.as_str();
        self.access.catalog.load(root).await?;
        // The stream stays open for the first turn.
        self.readers.attached(root, PATIENCE).await?;
        let Some(prompt) = prompt else { return Ok(()) };
        let session = self.client.create_session(root).await?;
        let played = self.client.play_turn(root, &session.id, prompt).await;
        self.client.delete_session(root, &session.id).await?;
        played
    }

    /// The reason of an outage that a failed call found. A call may fail just before the outage is noticed.
    async fn why_down(&self, cause: &CallError) -> Option<String> {
        match cause {
            CallError::Down(reason) => Some(reason.clone()),
            CallError::Unreachable(_) | CallError::Cut(_) | CallError::Ended => {
                let outage = timeout(outage::NOTICED_WITHIN, self.client.address().until_down()).await;
                outage.ok().map(|outage| outage.reason)
            }
            _ => None,
        }
    }
}
