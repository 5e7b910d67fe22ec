//! When a worktree that OpenCode makes can be used.
//!
//! OpenCode answers at once, and puts the files there afterwards. It tells of the end only on its stream of all directories, and
//! that stream loses what happens in its first moments. So it is listened to before OpenCode is told to begin.

use std::time::Duration;

use reqwest::Response;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::api::control::GlobalEvent;
use crate::client::{CallError, Client};
use crate::redact;
use crate::sse::{Decoder, Item, MAX_EVENT_BYTES};

/// How long the stream has to begin.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a stream that has begun yet loses what happens.
const SETTLES: Duration = Duration::from_millis(500);

/// How long a worktree has to become usable.
const LIMIT: Duration = Duration::from_mins(1);

/// How often the disk is looked at when something may not have been heard.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// What became of it.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Readiness {
    Ready,
    /// Why, fit for a caller.
    Failed(String),
    /// Nothing was heard in time.
    Unknown,
}

/// Listens to OpenCode.
#[derive(Debug)]
pub(super) struct Listening {
    client: Client,
    stream: Response,
    decoder: Decoder,
    heard: std::vec::IntoIter<Item>,
    /// Something may have been said that was not heard.
    has_gap: bool,
    is_over: bool,
    /// Of what is waited for, from when it is waited for.
    deadline: Option<Instant>,
}

impl Listening {
    /// Returns when nothing is lost any more.
    pub(super) async fn begin(client: &Client) -> Result<Self, CallError> {
        let stream = client.global_events(PATIENCE).await?;
        let mut listening = Self::to(client.clone(), stream);
        let connected = async {
            while let Some(event) = listening.next().await {
                if event.payload.kind == "server.connected" {
                    return Ok(());
                }
            }
            Err(CallError::NoAnswer)
        };
        timeout(PATIENCE, connected).await.unwrap_or(Err(CallError::NoAnswer))?;
        sleep(SETTLES).await;
        Ok(listening)
    }

    fn to(client: Client, stream: Response) -> Self {
        Self {
            client,
            stream,
            decoder: Decoder::new(MAX_EVENT_BYTES),
            heard: Vec::new().into_iter(),
            has_gap: false,
            is_over: false,
            deadline: None,
        }
    }

    /// Listens once more to an OpenCode whose stream has ended. What was said meanwhile is lost, and the disk has to tell.
    async fn listen_again(&mut self) {
        if let Ok(stream) = self.client.global_events(LOOK_AGAIN).await {
            (self.stream, self.decoder) = (stream, Decoder::new(MAX_EVENT_BYTES));
            (self.heard, self.is_over) = (Vec::new().into_iter(), false);
        }
    }

    /// What is said about the worktree in this directory. `None`: nothing yet, and something may not have been heard, so that it is
    /// time to look at the disk.
    pub(super) async fn hear(&mut self, directory: &str) -> Option<Readiness> {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + LIMIT);
        if self.is_over {
            self.listen_again().await;
        }
        let until = if self.has_gap { deadline.min(Instant::now() + LOOK_AGAIN) } else { deadline };
        let knew_of_gap = self.has_gap;
        let said = async {
            while let Some(event) = self.next().await {
                let said = readiness(event, directory);
                if said.is_some() || self.has_gap != knew_of_gap {
                    return said;
                }
            }
            if knew_of_gap { std::future::pending().await } else { None }
        };
        match timeout_at(until, said).await {
            Ok(said) => said,
            Err(_) => (Instant::now() >= deadline).then_some(Readiness::Unknown),
        }
    }

    /// The next event that can be read. `None`: there is none any more.
    async fn next(&mut self) -> Option<GlobalEvent> {
        while !self.is_over {
            for item in self.heard.by_ref() {
                let event = match item {
                    Item::Event(data) => serde_json::from_slice(&data).ok(),
                    Item::TooLong | Item::Unreadable => None,
                };
                match event {
                    Some(event) => return Some(event),
                    None => self.has_gap = true,
                }
            }
            let Ok(Some(chunk)) = self.stream.chunk().await else {
                (self.has_gap, self.is_over) = (true, true);
                break;
            };
            let mut items = Vec::new();
            self.decoder.push(&chunk, &mut items);
            self.heard = items.into_iter();
        }
        None
    }
}

/// What an event says about the worktree in this directory, if anything.
fn readiness(event: GlobalEvent, directory: &str) -> Option<Readiness> {
    if event.directory.as_deref() != Some(directory) {
        return None;
    }
    match event.payload.kind.as_str() {
        "worktree.ready" => Some(Readiness::Ready),
        "worktree.failed" => {
            let why = event.payload.properties.and_then(|properties| properties.message);
            Some(Readiness::Failed(redact::public(&why.unwrap_or_default())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longshore_testkit::fake_opencode::FakeOpenCode;

    use super::*;
    use crate::Endpoint;

    fn listening_to(base_url: &str) -> Listening {
        let (base_url, username) = (base_url.parse().unwrap(), "opencode".to_owned());
        let endpoint = Endpoint { base_url, username, password: None };
        let client = Client::new(endpoint, LIMIT, 1, Arc::default()).unwrap();
        // It has ended already.
        Listening::to(client, Response::from(http::Response::new("")))
    }

    /// What fails from then on is heard.
    #[tokio::test]
    async fn a_stream_that_ended_is_opened_again() {
        let fake = FakeOpenCode::start();
        let mut listening = listening_to(&fake.url());
        assert_eq!(listening.hear("/data/new").await, None);
        while listening.is_over {
            assert_eq!(listening.hear("/data/new").await, None);
        }
        fake.global_streams_opened(1).await;
    }

    /// The stream has ended, OpenCode is away, and the disk never shows it.
    #[tokio::test(start_paused = true)]
    async fn what_is_never_said_is_not_waited_for_longer_than_its_time() {
        // A port that nobody has.
        let mut listening = listening_to("http://127.0.0.1:1");
        let (began, mut looks) = (Instant::now(), 0);
        let said = loop {
            match listening.hear("/data/lost").await {
                Some(said) => break said,
                None => looks += 1,
            }
        };
        assert_eq!(said, Readiness::Unknown);
        let took = began.elapsed();
        assert!((LIMIT..LIMIT + PATIENCE).contains(&took), "{took:?}");
        assert!(looks > 60, "the disk was looked at {looks} times");
    }

    #[test]
    fn what_is_said_of_a_worktree() {
        // From the recordings, with the directory shortened.
        let ready = r#"{"directory": "/data/feature-one", "project": "7bb4", "payload": {"type": "worktree.ready",
            "properties": {"name": "feature-one", "branch": "opencode/feature-one"}, "id": "evt_1"}}"#;
        let failed = r#"{"directory": "/data/feature-one", "payload": {"type": "worktree.failed",
            "properties": {"message": "cannot write /data/feature-one/a"}}}"#;
        let other = r#"{"payload": {"type": "server.connected", "properties": {}}}"#;
        let read = |text, directory| readiness(serde_json::from_str(text).unwrap(), directory);
        assert_eq!(read(ready, "/data/feature-one"), Some(Readiness::Ready));
        assert_eq!(read(ready, "/data/feature"), None);
        let why = Readiness::Failed("cannot write <redacted-path>".to_owned());
        assert_eq!(read(failed, "/data/feature-one"), Some(why));
        assert_eq!(read(other, "/data/feature-one"), None);
    }
}
