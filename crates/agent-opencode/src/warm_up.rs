//! Checks whether OpenCode can work, and makes it load before its first turn what that turn needs.

use std::time::Duration;

use longshore_model::{Error, ErrorKind, Result};
use tokio::time::{Instant, timeout, timeout_at};

use crate::client::CallError;
use crate::{OpenCode, outage};

/// How long the first turn may take to load everything. After that, the turns of callers load the rest.
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

    /// Makes OpenCode load what it would load with the first message: the workspace with its configuration and its providers. With
    /// a `prompt`, also loads the rest, by a turn in a session that is deleted afterwards. The prompt costs a call of the model.
    pub async fn warm_up(&self, prompt: Option<&str>) {
        if let Err(cause) = self.load(prompt).await {
            tracing::debug!(%cause, "OpenCode did not load everything before the first turn");
        }
    }

    async fn load(&self, prompt: Option<&str>) -> Result<(), CallError> {
        let (root, deadline) = (self.access.root.as_str(), Instant::now() + PATIENCE);
        let workspace = async {
            self.access.catalog.load(root).await?;
            // The stream stays open for the first turn.
            self.readers.attached(root, PATIENCE).await?;
            Ok::<_, CallError>(())
        };
        timeout_at(deadline, workspace).await.unwrap_or(Err(CallError::NoAnswer))?;
        let Some(prompt) = prompt else { return Ok(()) };
        // This call has no deadline, because without its response nobody could delete the session.
        let session = self.client.create_session(root, None).await?;
        let playing = self.client.play_turn(root, &session.id, prompt);
        let played = timeout_at(deadline, playing).await.unwrap_or(Err(CallError::NoAnswer));
        let client = self.client.for_cleanup();
        if played.is_err()
            && let Err(cause) = client.abort(root, &session.id).await
        {
            tracing::debug!(%cause, "could not abort the first turn of OpenCode");
        }
        client.delete_session(root, &session.id).await?;
        played
    }

    /// The reason for an outage that a failed call shows. A call may fail shortly before the outage is noticed.
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
