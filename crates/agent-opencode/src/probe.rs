//! Tests what a turn needs from a running OpenCode, without starting a turn.

use std::time::Duration;

use longshore_model::{Error, ErrorKind, Result};

use crate::OpenCode;

/// How long the event stream may take to begin. OpenCode sends its first event at once.
const STREAM_PATIENCE: Duration = Duration::from_secs(5);

impl OpenCode {
    /// Opens the event stream of the workspace, and waits for its first event.
    pub async fn try_stream(&self) -> Result<()> {
        let doing = "open the event stream";
        let failed = || {
            Error::new(ErrorKind::AgentUnavailable, "OpenCode's event stream opens, but no event comes.")
                .permanent()
        };
        let response = self.client.events(&self.access.root, STREAM_PATIENCE).await;
        let mut response = response.map_err(|error| error.into_error(doing))?;
        match tokio::time::timeout(STREAM_PATIENCE, response.chunk()).await {
            Ok(Ok(Some(chunk))) if !chunk.is_empty() => Ok(()),
            _ => Err(failed()),
        }
    }

    /// The ids of the providers that have models: those with credentials, and those that need none.
    pub async fn usable_providers(&self) -> Result<Vec<String>> {
        let found = self.client.providers(&self.access.root).await;
        let found = found.map_err(|error| error.into_error("list the providers"))?;
        let usable = found.providers.into_iter().filter(|provider| !provider.models.is_empty());
        Ok(usable.map(|provider| provider.id).collect())
    }
}
