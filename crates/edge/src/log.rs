//! A task's log as the events of a stream, in the spelling of one line.
//!
//! An event is encoded once and its bytes are shared by all readers that see the same of it.

use std::time::Instant;

use bytes::Bytes;
use longshore_engine::{Engine, Entries, Form, LogEntry, Logged, Opening, TaskReader};
use longshore_model::{Principal, Result, Seq, Task, TaskEvent, TaskStatus};
use longshore_wire::v1::encode::{self, Gap, View};
use longshore_wire::v03::encode::{Recalled, Step, Stream};

use crate::line::ProtocolVersion;
use crate::shape::Shape;
use crate::sse::{Event, Source, Standing};

/// A log, as one caller sees it.
#[derive(Debug)]
pub(crate) struct Log {
    engine: Engine,
    caller: Principal,
    reader: TaskReader,
    shape: Shape,
    view: View,
    /// What a reader of the 0.3 line has been told.
    told: Option<Box<Stream>>,
    /// What the events so far make of the task, from the first one on for which the whole artifact has to be told. Kept, so
    /// that the log is not read from its start for each of these. Without what was sent, which may be large: there may be
    /// many readers.
    folded: Option<Box<Task>>,
    /// Events up to here are part of a snapshot that the reader got.
    known: Seq,
    /// What was read, and not yet made into events: those are made when there is room for them.
    waiting: Option<Entries>,
    /// Since when that has been under way.
    since: Option<Instant>,
    /// The entry whose event is being made. Kept here, so that it is not lost with a wait that is given up.
    current: Option<Logged>,
}

impl Log {
    /// `opening`: what the reader is told before the events of the log.
    pub(crate) fn new(
        engine: Engine,
        caller: Principal,
        reader: TaskReader,
        opening: &Opening,
        shape: Shape,
        view: View,
    ) -> Self {
        let dialect = shape.dialect;
        let told = match (shape.line, opening) {
            (ProtocolVersion::V1, _) => None,
            (ProtocolVersion::V03, Opening::Tail) if reader.cursor() == Seq::START => {
                Some(Stream::from_start(view, dialect))
            }
            (ProtocolVersion::V03, Opening::Tail) => Some(Stream::resumed(view, dialect)),
            (ProtocolVersion::V03, Opening::Snapshot(now) | Opening::Gap(now, _)) => {
                Some(Stream::from_snapshot(&now.task, view, dialect))
            }
        };
        Self {
            engine,
            caller,
            reader,
            shape,
            view,
            told: told.map(Box::new),
            folded: None,
            known: Seq::START,
            waiting: None,
            since: None,
            current: None,
        }
    }

    /// The 1.0 stream response, without an envelope, as readers with this view see it. JSON-RPC and REST share it. `None`:
    /// nothing of the event is for them, which is kept as no bytes at all.
    fn shown(&self, logged: &LogEntry) -> Option<Bytes> {
        let form = Form(encode::spelling(&logged.entry.event, self.view));
        let json = logged.encoded(form, |entry| {
            let (task, context) = (self.reader.task_id(), self.reader.context_id());
            encode::stream_entry(task, context, entry, self.view, self.reader.output()).unwrap_or_default()
        });
        (!json.is_empty()).then_some(json)
    }

    /// An event as the 1.0 line has it.
    fn plain(&self, logged: &LogEntry) -> Event {
        let standing = standing(logged);
        Event { id: logged.entry.id(), json: self.shown(logged), standing }
    }

    /// An event as a reader of the 0.3 line has to be told it. Nothing is changed before the last wait, so that a wait that is
    /// given up can be taken up again.
    async fn told(&mut self, logged: &LogEntry) -> Result<Event> {
        let entry = &logged.entry;
        let (task, context) = (self.reader.task_id(), self.reader.context_id());
        let standing = standing(logged);
        let Some(told) = &mut self.told else { return Ok(self.plain(logged)) };
        if entry.seq <= self.known {
            return Ok(Event { id: entry.id(), json: None, standing: None });
        }
        let output = self.reader.output();
        let json = match told.step(&entry.event, output) {
            Step::Hidden => None,
            Step::Frame(frame) => {
                let encode = |entry: &_| frame.encode(task, context, entry, output);
                Some(logged.encoded(Form(frame.form()), encode))
            }
            Step::NeedsTask => {
                if self.folded.is_none() {
                    // These waits are rare, and their futures large: in a box they cost the other streams nothing.
                    let before = Box::pin(self.engine.task_before(&self.caller, task, entry.seq)).await?;
                    self.folded = before.map(Box::new);
                }
                let Some(folded) = &mut self.folded else { return Box::pin(self.anew(entry.seq)).await };
                let Recalled { frame, is_retold } = told.recall(folded, entry);
                if !is_retold {
                    // It was only to find the reader's place, and most readers never need it again.
                    self.folded = None;
                }
                return Ok(Event { id: entry.id(), json: frame, standing });
            }
        };
        // A status brings nothing that is looked at, but perhaps one more message.
        if let (Some(folded), TaskEvent::Artifact(_)) = (&mut self.folded, &entry.event) {
            folded.apply(&entry.event);
        }
        Ok(Event { id: entry.id(), json, standing })
    }

    /// The task as it is now, in place of an event and those behind it that cannot be told without what was before them,
    /// which is gone. The reader is told that it has not seen them.
    async fn anew(&mut self, unseen: Seq) -> Result<Event> {
        let now = self.engine.get(&self.caller, self.reader.task_id()).await?;
        let id = now.id();
        let gap = Gap { requested: Seq(unseen.0 - 1).into(), first: unseen, head: id };
        self.told = Some(Box::new(Stream::from_snapshot(&now.task, self.view, self.shape.dialect)));
        self.known = now.seq;
        let json = self.shape.snapshot(&now.task, self.view, Some(gap));
        let standing = Standing::of(now.task.status.state);
        let status = TaskStatus { message: None, ..now.task.status };
        self.folded = Some(Box::new(Task { status, history: Vec::new(), ..now.task }));
        Ok(Event { id, json: Some(json), standing: Some(standing) })
    }
}

impl Source for Log {
    async fn wait(&mut self) -> Result<bool> {
        self.waiting = self.reader.next().await?;
        self.since = self.waiting.as_ref().and_then(Entries::since);
        Ok(self.waiting.is_some())
    }

    async fn event(&mut self) -> Result<Option<Event>> {
        let next = self.current.take().or_else(|| self.waiting.as_mut()?.next());
        let Some(logged) = next else { return Ok(None) };
        if self.told.is_none() {
            return Ok(Some(self.plain(&logged)));
        }
        self.current = Some(logged.clone());
        let event = self.told(&logged).await?;
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

    fn is_excused(&self) -> bool {
        self.reader.is_excused()
    }

    fn under_way_since(&mut self) -> Option<Instant> {
        self.since.take()
    }
}

fn standing(logged: &LogEntry) -> Option<Standing> {
    logged.entry.event.status().map(|status| Standing::of(status.state))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longshore_engine::port::SystemClock;
    use longshore_engine::{EngineConfig, EngineParts, Tasks};
    use longshore_model::{
        AgentEvent, Message, MessageId, Part, Role, SendConfig, SendMessage, SendOptions, TaskId,
    };
    use longshore_testkit::faulty_store::FaultyStore;
    use longshore_testkit::scripted_agent::{ScriptedAgent, StartedTurn, text_block};
    use longshore_wire::v03::encode::FORMS;

    use super::*;

    #[test]
    fn every_form_of_a_frame_is_kept() {
        assert_eq!(FORMS.start, encode::HIDDEN + 1, "the lines share no form");
        assert_eq!(usize::from(FORMS.end), LogEntry::KEPT_FORMS);
    }

    const UPLOAD: usize = 1 << 20;

    fn upload(id: &str, task: Option<&TaskId>) -> SendMessage {
        let message =
            Message::new(MessageId::parse(id).unwrap(), Role::User, vec![Part::text("x".repeat(UPLOAD))]);
        SendMessage {
            message: Message { task_id: task.cloned(), ..message },
            config: SendConfig::default(),
            metadata: None,
            wishes: SendOptions::default(),
            may_claim: false,
            trace: None,
        }
    }

    fn engine(store: Arc<FaultyStore>, agent: Arc<ScriptedAgent>) -> Engine {
        Engine::new(EngineParts {
            store,
            agent,
            control: None,
            clock: Arc::new(SystemClock),
            tasks: Tasks::new(),
            metrics: Arc::default(),
            config: EngineConfig::default(),
        })
    }

    /// A reader of 0.3 that comes back in the middle.
    async fn resumed(engine: &Engine, caller: &Principal, task: &TaskId) -> Log {
        let head = engine.get(caller, task).await.unwrap().seq;
        let subscription = engine.subscribe(caller, task, Some(head.into())).await.unwrap();
        let (engine, shape) = (engine.clone(), Shape::rest(ProtocolVersion::V03));
        Log::new(engine, caller.clone(), subscription.reader, &subscription.opening, shape, View::default())
    }

    /// Reads until a frame says this.
    async fn until(log: &mut Log, said: &str) {
        loop {
            while let Some(event) = log.event().await.unwrap() {
                if event.json.is_some_and(|json| String::from_utf8_lossy(&json).contains(said)) {
                    return;
                }
            }
            assert!(log.wait().await.unwrap(), "the task goes on");
        }
    }

    async fn replace(turn: &StartedTurn, text: &str) {
        turn.report(AgentEvent::TextReplaced { block: text_block("a"), text: text.to_owned() }).await;
    }

    /// How much of the task a reader keeps, if any.
    fn kept(log: &Log) -> Option<usize> {
        log.folded.as_ref().map(|task| serde_json::to_vec(task).unwrap().len())
    }

    #[tokio::test]
    async fn a_reader_that_comes_back_keeps_nothing_of_what_was_sent() {
        let (agent, mut turns) = ScriptedAgent::manual();
        let store = FaultyStore::over(longshore_store::memory());
        let engine = engine(store.clone(), agent);
        let ada = Principal::new("ada");
        let task = engine.send(&ada, upload("m1", None)).await.unwrap().task;
        let mut turn = turns.recv().await.unwrap();
        let is_small = |log: &Log| kept(log).is_some_and(|size| size < UPLOAD / 100);

        let mut log = resumed(&engine, &ada, &task).await;
        turn.say("a", "One.").await;
        until(&mut log, "One.").await;
        assert_eq!(kept(&log), None, "the next events need no task");
        turn.say("b", "Two.").await;
        replace(&turn, "Three.").await;
        until(&mut log, "Three.").await;
        assert!(is_small(&log), "{:?}", kept(&log));
        // What is sent while the task works is not kept either.
        let (sent, _) = tokio::join!(engine.send(&ada, upload("m2", Some(&task))), turn.joined());
        sent.unwrap();
        replace(&turn, "Four.").await;
        until(&mut log, "Four.").await;
        assert!(is_small(&log), "{:?}", kept(&log));

        let mut late = resumed(&engine, &ada, &task).await;
        store.forget_before(3);
        replace(&turn, "Five.").await;
        until(&mut late, "Five.").await;
        assert!(is_small(&late), "{:?}", kept(&late));
    }

    #[tokio::test]
    async fn only_who_waits_for_an_event_learns_how_long_it_was_under_way() {
        let (agent, mut turns) = ScriptedAgent::manual();
        let engine = engine(FaultyStore::over(longshore_store::memory()), agent);
        let ada = Principal::new("ada");
        let task = engine.send(&ada, upload("m1", None)).await.unwrap().task;
        let turn = turns.recv().await.unwrap();
        turn.say("a", "One.").await;
        let mut waiting = resumed(&engine, &ada, &task).await;
        let mut stalled = resumed(&engine, &ada, &task).await;
        // All that there is up to here, in whichever batches it was written.
        until(&mut waiting, "One.").await;
        until(&mut stalled, "One.").await;

        let (is_given, ()) = tokio::join!(waiting.wait(), turn.say("a", "Two."));
        assert!(is_given.unwrap());
        assert!(waiting.under_way_since().is_some());
        assert!(waiting.under_way_since().is_none(), "told once");
        // The same event is in memory for a reader whose client took its time. That time is not the gateway's.
        assert!(stalled.wait().await.unwrap());
        assert!(stalled.under_way_since().is_none());
    }
}
