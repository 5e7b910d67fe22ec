//! A client that sends one message and stays with it through every break until the task is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longshore_model::TaskState;
use longshore_wire::v1::decode::StreamEvent;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::record::{CancelAt, Canceled, Errand, Frame, Record};
use super::speaker::{self, Answering, Speaker};
use super::wire::{Frames, Next, Trouble, Wire};

/// What is answered to every ask.
pub(super) const ANSWER: &str = "once";

/// A client that has met so many things which no client should see gives up.
const SURPRISES: usize = 5;

/// Where the clients go, and how long they try.
#[derive(Clone, Debug)]
pub struct Way {
    /// Without a slash at the end.
    pub base: String,
    pub token: String,
    /// Whoever has not seen the end by then says so.
    pub deadline: Instant,
    pub tally: Arc<Tally>,
}

/// What the clients have met so far, all together.
#[derive(Debug, Default)]
pub struct Tally {
    pub(super) cuts: AtomicU64,
    pub(super) asked: AtomicU64,
    /// Tasks that a client tried to cancel.
    pub(super) canceling: AtomicU64,
    pub(super) completed: AtomicU64,
}

impl Tally {
    fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends the message of the errand, comes back after every break, answers what is asked, cancels when it is time, and ends
/// with the task. `begun` is told when the agent is at work on it.
pub async fn run(errand: Errand, way: &Way, begun: Option<oneshot::Sender<()>>) -> Record {
    let wire = Wire::new(&way.base, &way.token, errand.speaker, errand.answering);
    let rng = StdRng::seed_from_u64(errand.seed);
    let (record, tally) = (Record::new(errand), Arc::clone(&way.tally));
    let session = Session { wire, rng, state: None, record, ask: None, begun, tally };
    session.run(way.deadline).await
}

/// Reads the whole log of a task over a connection that nobody breaks, as this errand's client would see it.
pub async fn uncut(errand: &Errand, task: &str, way: &Way) -> Result<Vec<Frame>, String> {
    let wire = Wire::new(&way.base, &way.token, errand.speaker, errand.answering);
    let stream = wire.stream(&errand.speaker.subscribe(task), Some("0")).await;
    let mut stream = stream.map_err(|trouble| format!("{trouble:?}"))?;
    let mut frames = Vec::new();
    loop {
        match tokio::time::timeout_at(way.deadline, stream.next()).await {
            Ok(Next::Frame(frame)) => frames.push(frame),
            Ok(Next::End { .. }) => return Ok(frames),
            Ok(Next::Trouble(trouble)) => return Err(format!("{trouble:?}")),
            Err(_) => return Err("the log does not end".to_owned()),
        }
    }
}

/// The task as it is stored.
pub async fn stored(errand: &Errand, task: &str, way: &Way) -> Result<Value, String> {
    let wire = Wire::new(&way.base, &way.token, errand.speaker, errand.answering);
    wire.call(&errand.speaker.get(task)).await.map_err(|trouble| format!("{trouble:?}"))
}

#[derive(Debug)]
struct Session {
    wire: Wire,
    rng: StdRng,
    record: Record,
    /// The place of the ask that waits for this client's answer, and its request, if it is shown.
    ask: Option<(u64, Option<String>)>,
    /// The last state that was told.
    state: Option<TaskState>,
    begun: Option<oneshot::Sender<()>>,
    tally: Arc<Tally>,
}

impl Session {
    async fn run(mut self, deadline: Instant) -> Record {
        let whole = async {
            if self.record.errand.steers && self.steer().await {
                return;
            }
            while !self.record.ended && self.record.surprises.len() < SURPRISES {
                self.try_once().await;
            }
        };
        // Whoever has not ended by then says so.
        let _ = tokio::time::timeout_at(deadline, whole).await;
        self.record
    }

    /// Sends a message that is to join a turn, until there is an answer. False: it is a task of its own.
    async fn steer(&mut self) -> bool {
        // Not always at the same place of the turn.
        let wait = self.rng.random_range(0..600);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let speaker = self.record.errand.speaker;
        let spelled = speaker.send(&speaker.errand(&self.record.errand));
        while self.record.surprises.len() < SURPRISES {
            let answer = match self.wire.call(&spelled).await {
                Ok(answer) => speaker.event(&answer),
                Err(trouble) => {
                    self.met(trouble).await;
                    continue;
                }
            };
            match answer {
                Ok(StreamEvent::Task(task)) => {
                    let first = task.history.first().map(|first| first.id.as_str());
                    self.record.joined = first != Some(self.record.errand.id.as_str());
                    self.record.task = Some(task.id.to_string());
                    self.record.ended = self.record.joined;
                    return self.record.joined;
                }
                Ok(other) => self.surprise(format!("a send gave no task: {other:?}")),
                Err(problem) => self.surprise(problem),
            }
        }
        true
    }

    /// One connection, as long as it lives.
    async fn try_once(&mut self) {
        if !self.speak().await {
            return self.back_off().await;
        }
        let stream = match self.connect().await {
            Ok(stream) => stream,
            Err(trouble) => return self.met(trouble).await,
        };
        if let Err(trouble) = self.read(stream).await {
            self.record.cuts += 1;
            Tally::add(&self.tally.cuts);
            self.met(trouble).await;
        }
    }

    /// Says what there is to say now: a cancel, or an answer. False: it was not heard.
    async fn speak(&mut self) -> bool {
        if self.is_time_to_cancel() {
            return self.cancel().await;
        }
        // Nobody answers what a task asked before it was canceled.
        let is_canceled = self.record.canceling.answer.is_some();
        self.ask.is_none() || is_canceled || self.answer().await
    }

    fn is_time_to_cancel(&self) -> bool {
        let is_time = match self.record.errand.cancel {
            None => false,
            Some(CancelAt::Frame(count)) => self.record.frames.len() >= count,
            Some(CancelAt::Ask) => self.ask.is_some(),
        };
        is_time && !self.record.ended && self.record.canceling.answer.is_none()
    }

    /// True: it stands, or the task was over before.
    async fn cancel(&mut self) -> bool {
        let speaker = self.record.errand.speaker;
        let Some(task) = self.record.task.clone() else { return true };
        if self.record.canceling.sends == 0 {
            Tally::add(&self.tally.canceling);
        }
        self.record.canceling.sends += 1;
        let answer = match self.wire.call(&speaker.cancel(&task)).await {
            Ok(task) => speaker.task(&task).map(|task| Canceled::ControlResult(task.status.state)),
            Err(Trouble::Passing) => {
                self.record.refusals += 1;
                return false;
            }
            Err(Trouble::Refused(reason)) if reason == "TASK_NOT_CANCELABLE" => Ok(Canceled::TooLate),
            Err(Trouble::Refused(reason)) => Err(format!("a cancel was refused: {reason}")),
            Err(Trouble::Nonsense(what)) => Err(what),
        };
        match answer {
            Ok(answer) => {
                self.record.canceling.answer = Some(answer);
                true
            }
            Err(what) => {
                self.surprise(what);
                // Whoever meets too much of this gives up.
                self.record.surprises.len() >= SURPRISES
            }
        }
    }

    async fn met(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Passing => self.record.refusals += 1,
            Trouble::Refused(reason) => self.surprise(format!("refused: {reason}")),
            Trouble::Nonsense(what) => self.surprise(what),
        }
        self.back_off().await;
    }

    async fn back_off(&mut self) {
        let pause = self.rng.random_range(20..200);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }

    fn surprise(&mut self, what: String) {
        self.record.surprises.push(what);
    }

    async fn connect(&mut self) -> Result<Frames, Trouble> {
        let speaker = self.record.errand.speaker;
        let cursor = self.record.cursor().map(str::to_owned);
        let subscribes = self.rng.random_bool(0.5);
        match (&cursor, &self.record.task) {
            (Some(_), Some(task)) if subscribes => {
                self.record.returns.subscribed += 1;
                self.wire.stream(&speaker.subscribe(task), cursor.as_deref()).await
            }
            _ => {
                match cursor {
                    Some(_) => self.record.returns.sent_again += 1,
                    None => self.record.returns.from_start += 1,
                }
                let message = speaker.errand(&self.record.errand);
                self.wire.stream(&speaker.stream(&message), cursor.as_deref()).await
            }
        }
    }

    /// Reads until the stream ends or breaks.
    async fn read(&mut self, mut stream: Frames) -> Result<(), Trouble> {
        loop {
            match stream.next().await {
                Next::Frame(frame) => {
                    if self.record.ended {
                        self.surprise(format!("a frame behind the end: {}", frame.json));
                    }
                    self.take(frame);
                }
                Next::End { told_to_return } => {
                    let asks = self.state == Some(TaskState::InputRequired);
                    if !self.record.ended && !asks && !told_to_return {
                        self.surprise("a stream that ends before the task does".to_owned());
                    }
                    return Ok(());
                }
                // Whatever breaks behind the end breaks nothing.
                Next::Trouble(_) if self.record.ended => return Ok(()),
                Next::Trouble(trouble) => return Err(trouble),
            }
            while !self.speak().await {
                self.back_off().await;
            }
        }
    }

    fn take(&mut self, frame: Frame) {
        let event = match self.record.errand.speaker.event(&frame.json) {
            Ok(event) => event,
            Err(problem) => {
                self.surprise(problem);
                return self.record.frames.push(frame);
            }
        };
        let task = match &event {
            StreamEvent::Task(task) => Some(task.id.to_string()),
            StreamEvent::Status { task_id, .. } | StreamEvent::Artifact { task_id, .. } => {
                Some(task_id.to_string())
            }
            StreamEvent::Message(_) => None,
        };
        match (&self.record.task, task) {
            (None, found) => self.record.task = found,
            (Some(known), Some(found)) if *known == found => {}
            (Some(known), found) => {
                let what = format!("a frame of {found:?} in the stream of {known}");
                self.surprise(what);
            }
        }
        let state = speaker::state(&event);
        match state {
            // Other news of a task that asks, such as a new title, tell the same state again.
            Some(TaskState::InputRequired) if self.state == state => {}
            Some(TaskState::InputRequired) => {
                if self.record.asked == 0 {
                    Tally::add(&self.tally.asked);
                }
                self.record.asked += 1;
                self.ask = Some((frame.seq().unwrap_or_default(), request(&frame.json)));
            }
            Some(state) => {
                self.ask = None;
                self.record.ended = state.is_terminal();
                if state == TaskState::Completed {
                    Tally::add(&self.tally.completed);
                }
            }
            None => {}
        }
        if state.is_some_and(|state| state != TaskState::Submitted) {
            // Whoever waited for it may have given up.
            let _ = self.begun.take().map(|begun| begun.send(()));
        }
        self.state = state.or(self.state);
        self.record.frames.push(frame);
    }

    /// Says `once`. True: whoever asked has an answer, this one or another.
    async fn answer(&mut self) -> bool {
        let Some((place, request)) = self.ask.clone() else { return true };
        let Errand { id, speaker, answering, .. } = self.record.errand.clone();
        let spelled = match (answering, request, &self.record.task) {
            (Answering::ByCall, Some(request), _) => Speaker::reply(&request),
            (_, _, Some(task)) => {
                let id = format!("{id}-answer-{place}");
                speaker.send(&speaker.message(&id, ANSWER, Some(task), None))
            }
            (_, _, None) => return true,
        };
        let done = match self.wire.call(&spelled).await {
            Ok(_) => true,
            Err(Trouble::Passing) => {
                self.record.refusals += 1;
                false
            }
            // The agent may be gone, and its ask with it; or an answer was taken whose confirmation got lost. If neither
            // is so, the task never ends, and that is found.
            Err(Trouble::Refused(reason)) if is_past(&reason) => true,
            Err(Trouble::Refused(reason)) => {
                self.surprise(format!("an answer was refused: {reason}"));
                true
            }
            Err(Trouble::Nonsense(what)) => {
                self.surprise(what);
                true
            }
        };
        if done {
            self.ask = None;
        }
        done
    }
}

/// The ask is not there any more, or the task takes no more messages.
fn is_past(reason: &str) -> bool {
    matches!(
        reason,
        "INTERRUPT_REQUEST_NOT_FOUND"
            | "INTERRUPT_REQUEST_EXPIRED"
            | "UNSUPPORTED_OPERATION"
            | "INVALID_PARAMS"
    )
}

/// The ask that a frame tells of, where the client is shown it.
pub fn request(json: &Value) -> Option<String> {
    match json {
        Value::Object(fields) => {
            let here = fields.get("interrupt").and_then(|interrupt| interrupt["request_id"].as_str());
            here.map(str::to_owned).or_else(|| fields.values().find_map(request))
        }
        Value::Array(items) => items.iter().find_map(request),
        _ => None,
    }
}
