//! What a session holds that somebody else works in.

use reqwest::Method;

use super::{Call, Client, Result};
use crate::api::StoredMessage;
use crate::id::{Kind, segment};

impl Client {
    /// The newest messages of a session, oldest first.
    pub(crate) async fn newest_messages(&self, directory: &str, session: &str) -> Result<Vec<StoredMessage>> {
        let mut newest = Vec::new();
        self.pages(directory, session, |page: Vec<StoredMessage>| {
            newest = page;
            true
        })
        .await?;
        Ok(newest)
    }

    /// One message.
    pub(crate) async fn stored_message(
        &self,
        directory: &str,
        session: &str,
        message: &str,
    ) -> Result<StoredMessage> {
        let path = format!(
            "session/{}/message/{}",
            segment(Kind::Session, session)?,
            segment(Kind::Message, message)?
        );
        self.json(Call::Messages, self.request(Method::GET, &path, directory, "")?).await
    }
}
