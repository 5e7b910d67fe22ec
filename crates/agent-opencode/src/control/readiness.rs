//! Waits until a worktree that OpenCode creates is ready for use.
//!
//! OpenCode responds at once and writes the files afterwards. Only its global event stream reports when the files are complete, and
//! for a moment after it was opened, a stream loses events. So the driver opens the stream before it sends the request.

use std::time::Duration;

use reqwest::Response;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::api::control::GlobalEvent;
use crate::client::{CallError, Client};
use crate::redact;
use crate::sse::{Decoder, Item, MAX_EVENT_BYTES};

/// How long the stream may take to open.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a stream that has just opened still loses events.
const SETTLE_TIME: Duration = Duration::from_millis(500);

/// How long a worktree may take to become usable.
const LIMIT: Duration = Duration::from_mins(1);

/// How often the disk is checked when an event may have been missed.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// The outcome of the creation of a worktree.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Readiness {
    Ready,
    /// The reason, which may be shown to a caller.
    Failed(String),
    /// No event came within the time limit.
    Unknown,
}

/// Reads OpenCode's global event stream.
#[derive(Debug)]
pub(super) struct ReadinessEvents {
    client: Client,
    stream: Response,
    decoder: Decoder,
    pending: std::vec::IntoIter<Item>,
    /// Whether an event may have been missed.
    has_gap: bool,
    is_over: bool,
    /// The time limit of the wait. Set when the wait for a worktree begins.
    deadline: Option<Instant>,
}

impl ReadinessEvents {
    /// Opens the stream. Returns when the stream no longer loses events.
    pub(super) async fn open(client: &Client) -> Result<Self, CallError> {
        let stream = client.global_events(PATIENCE).await?;
        let mut events = Self::reading(client.clone(), stream);
        let connected = async {
            while let Some(event) = events.next().await {
                if event.payload.kind == "server.connected" {
                    return Ok(());
                }
            }
            Err(CallError::NoAnswer)
        };
        timeout(PATIENCE, connected).await.unwrap_or(Err(CallError::NoAnswer))?;
        sleep(SETTLE_TIME).await;
        Ok(events)
    }

    fn reading(client: Client, stream: Response) -> Self {
        Self {
            client,
            stream,
            decoder: Decoder::new(MAX_EVENT_BYTES),
            pending: Vec::new().into_iter(),
            has_gap: false,
            is_over: false,
            deadline: None,
        }
    }

    /// Opens the stream again after it has ended. Events in between are lost, so the disk has to show the outcome.
    async fn reopen(&mut self) {
        if let Ok(stream) = self.client.global_events(CHECK_EVERY).await {
            (self.stream, self.decoder) = (stream, Decoder::new(MAX_EVENT_BYTES));
            (self.pending, self.is_over) = (Vec::new().into_iter(), false);
        }
    }

    /// Waits for an event about the worktree in this directory. `None`: no event came, but one may have been missed, so the caller
    /// should check the disk.
    pub(super) async fn next_outcome(&mut self, directory: &str) -> Option<Readiness> {
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + LIMIT);
        if self.is_over {
            self.reopen().await;
        }
        let until = if self.has_gap { deadline.min(Instant::now() + CHECK_EVERY) } else { deadline };
        let knew_of_gap = self.has_gap;
        let outcome = async {
            while let Some(event) = self.next().await {
                let outcome = readiness(event, directory);
                if outcome.is_some() || self.has_gap != knew_of_gap {
                    return outcome;
                }
            }
            if knew_of_gap { std::future::pending().await } else { None }
        };
        match timeout_at(until, outcome).await {
            Ok(outcome) => outcome,
            Err(_) => (Instant::now() >= deadline).then_some(Readiness::Unknown),
        }
    }

    /// The next readable event. `None`: the stream has ended.
    async fn next(&mut self) -> Option<GlobalEvent> {
        while !self.is_over {
            for item in self.pending.by_ref() {
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
            self.pending = items.into_iter();
        }
        None
    }
}

/// The outcome that an event reports for the worktree in this directory, if it is about that worktree.
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

    fn ended_stream(base_url: &str) -> ReadinessEvents {
        let client = Client::new(Endpoint::without_password(base_url), LIMIT, 1, Arc::default()).unwrap();
        ReadinessEvents::reading(client, Response::from(http::Response::new("")))
    }

    /// Later failures are received on the new stream.
    #[tokio::test]
    async fn a_stream_that_ended_is_opened_again() {
        let fake = FakeOpenCode::start();
        let mut events = ended_stream(&fake.url());
        assert_eq!(events.next_outcome("/data/new").await, None);
        while events.is_over {
            assert_eq!(events.next_outcome("/data/new").await, None);
        }
        fake.wait_for_global_streams(1).await;
    }

    /// The stream has ended, OpenCode is unreachable, and the worktree never appears on the disk.
    #[tokio::test(start_paused = true)]
    async fn a_wait_without_any_event_ends_at_its_time_limit() {
        // Nothing listens on this port.
        let mut events = ended_stream("http://127.0.0.1:1");
        let (began, mut checks) = (Instant::now(), 0);
        let outcome = loop {
            match events.next_outcome("/data/lost").await {
                Some(outcome) => break outcome,
                None => checks += 1,
            }
        };
        assert_eq!(outcome, Readiness::Unknown);
        let took = began.elapsed();
        assert!((LIMIT..LIMIT + PATIENCE).contains(&took), "{took:?}");
        assert!(checks > 60, "the disk was checked {checks} times");
    }

    #[test]
    fn only_events_about_the_worktree_report_readiness() {
        // From recordings, with a shortened directory.
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
