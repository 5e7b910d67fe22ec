//! What a sub-agent's session holds of a turn.

use super::{Client, Result};
use crate::api::StoredMessage;

impl Client {
    /// The messages of a session that were begun since this moment, oldest first.
    pub(crate) async fn messages_from(
        &self,
        directory: &str,
        session: &str,
        created: f64,
    ) -> Result<Vec<StoredMessage>> {
        let mut all: Vec<StoredMessage> = Vec::new();
        self.pages(directory, session, |mut page: Vec<StoredMessage>| {
            let before = page.len();
            page.retain(|message| message.info.time.created >= created);
            let done = page.len() < before;
            page.append(&mut all);
            all = page;
            done
        })
        .await?;
        Ok(all)
    }
}
