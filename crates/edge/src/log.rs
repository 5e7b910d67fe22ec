//! Converts the log of a task into the events of a stream, in the format of one protocol version.
//!
//! An event is encoded once, and all readers with the same version and extensions share the bytes.

use std::time::Instant;

use bytes::Bytes;
use longshore_engine::{Engine, Entries, LogEntry, SharedEntry, SubscriptionStart, TaskReader};
use longshore_model::{Principal, Result, Seq, Task, TaskEvent, TaskState, TaskStatus};
use longshore_wire::v1::encode::{self, Gap, View};
use longshore_wire::v03::encode::{HasArtifact, Step, Stream, TaskFrame};

use crate::response_format::ResponseFormat;
use crate::sse::{Event, Source};
use crate::version::ProtocolVersion;

/// The log of a task as one caller sees it.
#[derive(Debug)]
pub(crate) struct Log {
    engine: Engine,
    caller: Principal,
    reader: TaskReader,
    format: ResponseFormat,
    view: View,
    /// The state of a 0.3 stream, in which earlier events affect the encoding of later ones. `None`: the reader uses 1.0.
    v03_stream: Option<Box<Stream>>,
    /// The task folded from the events so far. It is built when the first event needs the whole artifact, and is then kept so that
    /// the log is not read from its start for each such event. Leaves out the messages of callers, because they may be large and
    /// many readers may each hold such a task.
    folded: Option<Box<Task>>,
    /// Whether the 0.3 reader has received the last chunk of the stream artifact.
    has_last_chunk: bool,
    /// The number up to which events are part of a snapshot that the reader has received.
    snapshot_seq: Seq,
    /// Entries that were read but not encoded yet. They are encoded when the stream has room.
    waiting: Option<Entries>,
    /// When the gateway received the waiting entries.
    queued_since: Option<Instant>,
    /// The entry that is being encoded. Stored here so that it is not lost if the future is dropped.
    current: Option<SharedEntry>,
}

impl Log {
    /// `opening`: what the reader receives before the events of the log.
    pub(crate) fn new(
        engine: Engine,
        caller: Principal,
        reader: TaskReader,
        opening: &SubscriptionStart,
        format: ResponseFormat,
        view: View,
    ) -> Self {
        let dialect = format.dialect();
        let v03_stream = match (format.version, opening) {
            (ProtocolVersion::V1, _) => None,
            (ProtocolVersion::V03, SubscriptionStart::Tail) if reader.cursor() == Seq::START => {
                Some(Stream::from_start(view, dialect))
            }
            (ProtocolVersion::V03, SubscriptionStart::Tail) => Some(Stream::resumed(view, dialect)),
            (ProtocolVersion::V03, SubscriptionStart::Snapshot(now) | SubscriptionStart::Gap(now, _)) => {
                Some(Stream::from_snapshot(&now.task, view, dialect))
            }
        };
        Self {
            engine,
            caller,
            reader,
            format,
            view,
            v03_stream: v03_stream.map(Box::new),
            folded: None,
            has_last_chunk: false,
            snapshot_seq: Seq::START,
            waiting: None,
            queued_since: None,
            current: None,
        }
    }

    /// The 1.0 stream response without an envelope, for readers with this view. `None`: this view hides the event; empty bytes in
    /// the cache stand for that.
    fn v1_body(&self, logged: &LogEntry) -> Option<Bytes> {
        let form = encode::frame_form(&logged.entry.event, self.view);
        let body = self.format.shared_event(logged, form, |entry| {
            let (task, context) = (self.reader.task_id(), self.reader.context_id());
            encode::stream_entry(task, context, entry, self.view, self.reader.output()).unwrap_or_default()
        });
        (!body.is_empty()).then_some(body)
    }

    /// The event for a 1.0 reader.
    fn v1_event(&self, logged: &LogEntry) -> Event {
        let state = state(logged);
        Event { id: Some(logged.entry.id()), body: self.v1_body(logged), state }
    }

    /// The event for a 0.3 reader. Changes no state before its last await, so that the call can be repeated if its future is
    /// dropped.
    async fn v03_event(&mut self, logged: &LogEntry) -> Result<Event> {
        let entry = &logged.entry;
        let (task, context) = (self.reader.task_id(), self.reader.context_id());
        let state = state(logged);
        let Some(v03_stream) = &mut self.v03_stream else { return Ok(self.v1_event(logged)) };
        if entry.seq <= self.snapshot_seq {
            return Ok(Event { id: Some(entry.id()), body: None, state: None });
        }
        let output = self.reader.output();
        let body = match v03_stream.step(&entry.event, output) {
            Step::Hidden => None,
            Step::Frame(frame) => {
                let encode = |entry: &_| frame.encode(task, context, entry, output);
                Some(self.format.shared_event(logged, frame.form(), encode))
            }
            Step::NeedsTask => {
                if self.folded.is_none() {
                    // Such events are rare and this future is large. Boxed, so that it does not enlarge the future of every stream.
                    let before = Box::pin(self.engine.task_before(&self.caller, task, entry.seq)).await?;
                    self.folded = before.map(Box::new);
                }
                let Some(folded) = &mut self.folded else {
                    return Box::pin(self.resend_task(entry.seq)).await;
                };
                let TaskFrame { frame, is_whole_artifact } = v03_stream.encode_with_task(folded, entry);
                if !is_whole_artifact {
                    // The task was only needed to find the reader's position, and most readers never need it again.
                    self.folded = None;
                }
                let body = frame.map(|json| self.format.own_event(Some(entry.id()), json));
                return Ok(Event { id: Some(entry.id()), body, state });
            }
        };
        // Only artifact events are applied. The encoder needs nothing from a status event, which may add a large message.
        if let (Some(folded), TaskEvent::Artifact(_)) = (&mut self.folded, &entry.event) {
            folded.apply(&entry.event);
        }
        Ok(Event { id: Some(entry.id()), body, state })
    }

    /// The last chunk of the stream artifact. A 0.3 reader gets it once, before the event that ends the task. `None`: it is not due
    /// yet, or the reader has no such artifact.
    async fn last_chunk(&mut self, logged: &LogEntry) -> Option<Event> {
        let LogEntry { entry, .. } = logged;
        if self.has_last_chunk || !entry.event.is_terminal() || entry.seq <= self.snapshot_seq {
            return None;
        }
        let (task, context) = (self.reader.task_id(), self.reader.context_id());
        let v03_stream = self.v03_stream.as_mut()?;
        if v03_stream.has_artifact() == HasArtifact::Unknown {
            match Box::pin(self.engine.task_before(&self.caller, task, entry.seq)).await {
                Ok(Some(before)) => v03_stream.locate(&before),
                Ok(None) => {}
                // The stream continues without this chunk, because the end of the task is more important.
                Err(error) => tracing::debug!(%task, %error, "a stream ends without its last chunk"),
            }
        }
        self.has_last_chunk = true;
        let is_due = v03_stream.has_artifact() == HasArtifact::Yes;
        let json = is_due.then(|| v03_stream.last_chunk(task, context, self.reader.output())).flatten()?;
        Some(Event { id: None, body: Some(self.format.own_event(None, json)), state: None })
    }

    /// The current task, which replaces an event that cannot be encoded because earlier events are no longer kept. The snapshot
    /// tells the reader that it has missed events.
    async fn resend_task(&mut self, unseen: Seq) -> Result<Event> {
        let now = self.engine.get(&self.caller, self.reader.task_id()).await?;
        let id = now.id();
        let gap = Gap { requested: Seq(unseen.0 - 1).into(), first: unseen, head: id };
        self.v03_stream = Some(Box::new(Stream::from_snapshot(&now.task, self.view, self.format.dialect())));
        self.snapshot_seq = now.seq;
        let json = self.format.snapshot(&now.task, id, self.view, Some(gap));
        let state = now.task.status.state;
        let status = TaskStatus { message: None, ..now.task.status };
        self.folded = Some(Box::new(Task { status, history: Vec::new(), ..now.task }));
        Ok(Event { id: Some(id), body: Some(json), state: Some(state) })
    }
}

impl Source for Log {
    async fn wait(&mut self) -> Result<bool> {
        self.waiting = self.reader.next().await?;
        self.queued_since = self.waiting.as_ref().and_then(Entries::since);
        Ok(self.waiting.is_some())
    }

    async fn event(&mut self) -> Result<Option<Event>> {
        let next = self.current.take().or_else(|| self.waiting.as_mut()?.next());
        let Some(logged) = next else { return Ok(None) };
        if self.v03_stream.is_none() {
            return Ok(Some(self.v1_event(&logged)));
        }
        self.current = Some(logged.clone());
        if let Some(last_chunk) = self.last_chunk(&logged).await {
            return Ok(Some(last_chunk));
        }
        let event = self.v03_event(&logged).await?;
        self.current = None;
        Ok(Some(event))
    }

    async fn is_at_head(&mut self) -> Result<bool> {
        if self.current.is_some() || self.waiting.as_ref().is_some_and(|waiting| !waiting.is_empty()) {
            return Ok(false);
        }
        let now = Box::pin(self.engine.get(&self.caller, self.reader.task_id())).await?;
        Ok(self.reader.cursor() >= now.seq)
    }

    fn may_be_silent(&self) -> bool {
        self.reader.is_silence_expected()
    }

    fn queued_since(&mut self) -> Option<Instant> {
        self.queued_since.take()
    }
}

fn state(logged: &LogEntry) -> Option<TaskState> {
    logged.entry.event.status().map(|status| status.state)
}

#[cfg(test)]
mod tests {
    use longshore_model::{
        AgentEvent, Message, MessageId, Part, Role, SendConfig, SendMessage, SendOptions, TaskId,
    };
    use longshore_testkit::faulty_store::FaultyStore;
    use longshore_testkit::scripted_agent::{ScriptedAgent, StartedTurn, text_block};
    use longshore_wire::v03::encode::FORMS;

    use super::*;
    use crate::test_engine::engine;

    #[test]
    fn the_versions_share_no_form() {
        assert_eq!(FORMS.start, encode::HIDDEN + 1);
    }

    const UPLOAD: usize = 1 << 20;

    fn upload(id: &str, task: Option<&TaskId>) -> SendMessage {
        let message =
            Message::new(MessageId::parse(id).unwrap(), Role::User, vec![Part::text("x".repeat(UPLOAD))]);
        SendMessage {
            message: Message { task_id: task.cloned(), ..message },
            config: SendConfig::default(),
            metadata: None,
            options: SendOptions::default(),
            may_claim: false,
            trace: None,
        }
    }

    /// A 0.3 reader that resumes in the middle of the log.
    async fn resumed(engine: &Engine, caller: &Principal, task: &TaskId) -> Log {
        let head = engine.get(caller, task).await.unwrap().seq;
        let subscription = engine.subscribe(caller, task, Some(head.into())).await.unwrap();
        let (engine, format) = (engine.clone(), ResponseFormat::rest(ProtocolVersion::V03));
        Log::new(engine, caller.clone(), subscription.reader, &subscription.opening, format, View::default())
    }

    /// Reads events until a frame contains this text.
    async fn read_until(log: &mut Log, text: &str) {
        loop {
            while let Some(event) = log.event().await.unwrap() {
                if event.body.is_some_and(|json| String::from_utf8_lossy(&json).contains(text)) {
                    return;
                }
            }
            assert!(log.wait().await.unwrap(), "the task is still running");
        }
    }

    async fn replace(turn: &StartedTurn, text: &str) {
        turn.report(AgentEvent::TextReplaced { block: text_block("a"), text: text.to_owned() }).await;
    }

    /// The size of the task that a reader keeps, if it keeps one.
    fn kept(log: &Log) -> Option<usize> {
        log.folded.as_ref().map(|task| serde_json::to_vec(task).unwrap().len())
    }

    #[tokio::test]
    async fn a_resumed_reader_keeps_no_message_of_the_caller() {
        let (agent, mut turns) = ScriptedAgent::manual();
        let store = FaultyStore::over(longshore_store::memory());
        let engine = engine(store.clone(), agent);
        let ada = Principal::new("ada");
        let task = engine.send(&ada, upload("m1", None)).await.unwrap().task;
        let mut turn = turns.recv().await.unwrap();
        let is_small = |log: &Log| kept(log).is_some_and(|size| size < UPLOAD / 100);

        let mut log = resumed(&engine, &ada, &task).await;
        turn.say("a", "One.").await;
        read_until(&mut log, "One.").await;
        assert_eq!(kept(&log), None, "the next events need no task");
        turn.say("b", "Two.").await;
        replace(&turn, "Three.").await;
        read_until(&mut log, "Three.").await;
        assert!(is_small(&log), "{:?}", kept(&log));
        // The folded task does not contain a message that joins the turn either.
        let (sent, _) = tokio::join!(engine.send(&ada, upload("m2", Some(&task))), turn.joined());
        sent.unwrap();
        replace(&turn, "Four.").await;
        read_until(&mut log, "Four.").await;
        assert!(is_small(&log), "{:?}", kept(&log));

        let mut late = resumed(&engine, &ada, &task).await;
        store.forget_before(3);
        replace(&turn, "Five.").await;
        read_until(&mut late, "Five.").await;
        assert!(is_small(&late), "{:?}", kept(&late));
    }

    #[tokio::test]
    async fn a_resumed_reader_gets_the_end_of_a_task_whose_log_cannot_be_read() {
        let (agent, mut turns) = ScriptedAgent::manual();
        let store = FaultyStore::over(longshore_store::memory());
        let engine = engine(store.clone(), agent);
        let ada = Principal::new("ada");
        let task = engine.send(&ada, upload("m1", None)).await.unwrap().task;
        let turn = turns.recv().await.unwrap();
        let mut first = resumed(&engine, &ada, &task).await;
        turn.say("a", "One.").await;
        read_until(&mut first, "One.").await;
        let mut log = resumed(&engine, &ada, &task).await;
        turn.complete().await;
        let mut state = None;
        while state.is_none_or(|state: TaskState| !state.is_terminal()) {
            assert!(log.wait().await.unwrap(), "the task has not ended");
            store.break_logs();
            while let Some(event) = log.event().await.unwrap() {
                state = event.state.or(state);
            }
        }
    }

    #[tokio::test]
    async fn only_a_reader_that_waits_for_an_event_measures_its_delay() {
        let (agent, mut turns) = ScriptedAgent::manual();
        let engine = engine(FaultyStore::over(longshore_store::memory()), agent);
        let ada = Principal::new("ada");
        let task = engine.send(&ada, upload("m1", None)).await.unwrap().task;
        let turn = turns.recv().await.unwrap();
        turn.say("a", "One.").await;
        let mut waiting = resumed(&engine, &ada, &task).await;
        let mut stalled = resumed(&engine, &ada, &task).await;
        // Reads all events so far, however they are batched.
        read_until(&mut waiting, "One.").await;
        read_until(&mut stalled, "One.").await;

        let (is_given, ()) = tokio::join!(waiting.wait(), turn.say("a", "Two."));
        assert!(is_given.unwrap());
        assert!(waiting.queued_since().is_some());
        assert!(waiting.queued_since().is_none(), "returned once");
        // A reader whose client was slow has the same event in memory. That delay is not caused by the gateway.
        assert!(stalled.wait().await.unwrap());
        assert!(stalled.queued_since().is_none());
    }
}
