//! Reads the messages of a session.

use longshore_meter::label::Call;
use reqwest::Method;
use serde::de::DeserializeOwned;

use super::{CallError, Client, Result, decode, session_path};
use crate::api::{StoredInfo, StoredMessage};
use crate::id::{Kind, is_prompt, query_value, segment};

/// Messages per page of the message list.
const PAGE: usize = 100;

/// The maximum number of messages that are searched for a prompt. A prompt that is older than all of these counts as unknown to
/// OpenCode.
const MAX_MESSAGES: usize = 50 * PAGE;

/// Why the reading of a message list ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Paged {
    /// The callback returned true.
    Enough,
    /// There are no more messages.
    All,
    /// There are more than [`MAX_MESSAGES`].
    TooMany,
}

impl Client {
    /// The messages of a session from the first of these prompts on, oldest first. If OpenCode does not have that prompt, the list
    /// starts at the oldest prompt that it has. Empty if OpenCode has none of them.
    pub(crate) async fn messages_since(
        &self,
        directory: &str,
        session: &str,
        prompts: &[String],
    ) -> Result<Vec<StoredMessage>> {
        let Some((first, joined)) = prompts.split_first() else { return Ok(Vec::new()) };
        let mut newer: Vec<StoredMessage> = Vec::new();
        let found = |mut page: Vec<StoredMessage>| {
            let at = page.iter().position(|message| is_prompt(&message.info.id, first));
            page.drain(..at.unwrap_or_default());
            page.append(&mut newer);
            newer = page;
            at.is_some()
        };
        if self.pages(directory, session, found).await? != Paged::Enough {
            let is_joined =
                |message: &StoredMessage| joined.iter().any(|prompt| is_prompt(&message.info.id, prompt));
            let at = newer.iter().position(is_joined);
            newer.drain(..at.unwrap_or(newer.len()));
        }
        Ok(newer)
    }

    /// The messages of a sub-agent's session that were created since this time, without their content. May contain some older
    /// messages too.
    pub(crate) async fn infos_created_since(
        &self,
        directory: &str,
        session: &str,
        created: f64,
    ) -> Result<Vec<StoredInfo>> {
        let mut all = Vec::new();
        let is_older = |message: &StoredInfo| message.info.time.created < created;
        self.pages(directory, session, |page: Vec<StoredInfo>| {
            let done = page.iter().any(is_older);
            all.extend(page);
            done
        })
        .await?;
        Ok(all)
    }

    /// The messages of a session that were created since this time, oldest first.
    pub(crate) async fn messages_created_since(
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

    pub(crate) async fn stored_message(
        &self,
        directory: &str,
        session: &str,
        message: &str,
    ) -> Result<StoredMessage> {
        self.get(Call::Messages, &message_path(session, message)?, directory, "").await
    }

    /// Reads the message list from its end, page by page, until `enough` returns true.
    pub(super) async fn pages<T: DeserializeOwned>(
        &self,
        directory: &str,
        session: &str,
        mut enough: impl FnMut(Vec<T>) -> bool,
    ) -> Result<Paged> {
        let mut before = None;
        let (mut limit, mut left) = (PAGE, MAX_MESSAGES);
        while left > 0 {
            let (page, next) = self.page(directory, session, before.as_deref(), &mut limit).await?;
            left = left.saturating_sub(limit);
            if enough(page) {
                return Ok(Paged::Enough);
            }
            if next.is_none() {
                return Ok(Paged::All);
            }
            before = next;
        }
        Ok(Paged::TooMany)
    }

    /// Reads one page of the message list, oldest message first, and the cursor of the next older page. Only a page with very
    /// large files in it exceeds the size limit of a response: such a page is requested again with half as many messages, down
    /// to one.
    pub(super) async fn page<T: DeserializeOwned>(
        &self,
        directory: &str,
        session: &str,
        before: Option<&str>,
        limit: &mut usize,
    ) -> Result<(T, Option<String>)> {
        let path = session_path(session, "message")?;
        let before = before.map(|before| format!("&before={}", query_value(before))).unwrap_or_default();
        loop {
            let request = self.request(Method::GET, &path, directory, &format!("&limit={limit}{before}"))?;
            let _slot = self.slot().await?;
            let _time = self.time(Call::Messages);
            let reading = async {
                let response = request.timeout(self.shared.timeout).send().await?;
                let cursor = response.headers().get("x-next-cursor").and_then(|value| value.to_str().ok());
                let cursor = cursor.map(str::to_owned);
                Ok((decode(response, self.shared.max_body).await?, cursor))
            };
            match self.in_run(reading).await {
                Err(CallError::TooLong) if *limit > 1 => *limit /= 2,
                page => return page,
            }
        }
    }
}

pub(super) fn message_path(session: &str, message: &str) -> Result<String> {
    session_path(session, &format!("message/{}", segment(Kind::Message, message)?))
}
