//! A client that sends one message and follows its task through every break until it ends.

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

use super::checker::Observation;
use super::record::{CancelAnswer, CancelAt, Frame, PlannedMessage, Record};
use super::speaker::{self, Answering, ClientProtocol};
use super::wire::{CallError, Frames, Next, Wire};

/// The answer to every ask.
pub(super) const ANSWER: &str = "once";

/// A client gives up after so many unexpected answers.
const MAX_SURPRISES: usize = 5;

/// The gateway that the clients use, and how long they try.
#[derive(Clone, Debug)]
pub struct ClientTarget {
    /// Without a slash at the end.
    pub base: String,
    pub token: String,
    /// A client that has not seen the end of its task by then stops.
    pub deadline: Instant,
    pub tally: Arc<Tally>,
}

/// Counts of all clients together.
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

/// Sends the planned message, reconnects after every break, answers the asks of the agent, cancels at the planned moment, and stops
/// at the end of the task. `begun` is signaled when the task is no longer SUBMITTED.
pub async fn run(
    planned: PlannedMessage,
    target: &ClientTarget,
    begun: Option<oneshot::Sender<()>>,
) -> Record {
    let wire = Wire::new(&target.base, &target.token, planned.speaker, planned.answering);
    let rng = StdRng::seed_from_u64(planned.seed);
    let (record, tally) = (Record::new(planned), Arc::clone(&target.tally));
    let session = Session { wire, rng, state: None, record, ask: None, begun, tally };
    session.run(target.deadline).await
}

/// Reads the whole log of a task over a connection that the proxy does not break, in this client's protocol.
pub async fn uncut(
    planned: &PlannedMessage,
    task: &str,
    target: &ClientTarget,
) -> Result<Vec<Frame>, String> {
    let wire = Wire::new(&target.base, &target.token, planned.speaker, planned.answering);
    let stream = wire.stream(&planned.speaker.subscribe(task), Some("0")).await;
    let mut stream = stream.map_err(|error| format!("{error:?}"))?;
    let mut frames = Vec::new();
    loop {
        match tokio::time::timeout_at(target.deadline, stream.next()).await {
            Ok(Next::Frame(frame)) => frames.push(frame),
            Ok(Next::End { .. }) => return Ok(frames),
            Ok(Next::Failed(error)) => return Err(format!("{error:?}")),
            Err(_) => return Err("the log does not end".to_owned()),
        }
    }
}

/// What a client received, compared with what the gateway shows over a connection that the proxy does not break.
pub async fn observe(record: Record, target: &ClientTarget) -> Observation {
    let Some(task) = record.task.clone().filter(|_| !record.joined) else {
        let nothing = "the message has no task of its own".to_owned();
        return Observation { record, log: Err(nothing.clone()), stored: Err(nothing) };
    };
    let log = uncut(&record.planned, &task, target).await;
    let stored = stored(&record.planned, &task, target).await;
    Observation { record, log, stored }
}

/// The task as it is stored.
pub async fn stored(planned: &PlannedMessage, task: &str, target: &ClientTarget) -> Result<Value, String> {
    let wire = Wire::new(&target.base, &target.token, planned.speaker, planned.answering);
    wire.call(&planned.speaker.get(task)).await.map_err(|error| format!("{error:?}"))
}

#[derive(Debug)]
struct Session {
    wire: Wire,
    rng: StdRng,
    record: Record,
    /// The sequence number of the open ask, and its request id if the client is shown it.
    ask: Option<(u64, Option<String>)>,
    /// The last reported state.
    state: Option<TaskState>,
    begun: Option<oneshot::Sender<()>>,
    tally: Arc<Tally>,
}

impl Session {
    async fn run(mut self, deadline: Instant) -> Record {
        let whole = async {
            if self.record.planned.steers && self.steer().await {
                return;
            }
            while !self.record.ended && self.record.surprises.len() < MAX_SURPRISES {
                self.try_once().await;
            }
        };
        // The record of a client that runs out of time has not ended.
        let _ = tokio::time::timeout_at(deadline, whole).await;
        self.record
    }

    /// Sends a message that is to join a turn, until there is an answer. False: the message became a task of its own.
    async fn steer(&mut self) -> bool {
        // Joins at different points of the turn.
        let wait = self.rng.random_range(0..600);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let speaker = self.record.planned.speaker;
        let request = speaker.send(&speaker.planned(&self.record.planned));
        while self.record.surprises.len() < MAX_SURPRISES {
            let answer = match self.wire.call(&request).await {
                Ok(answer) => speaker.event(&answer),
                Err(error) => {
                    self.handle(error).await;
                    continue;
                }
            };
            match answer {
                Ok(StreamEvent::Task(task)) => {
                    let first = task.history.first().map(|first| first.id.as_str());
                    self.record.joined = first != Some(self.record.planned.id.as_str());
                    self.record.task = Some(task.id.to_string());
                    self.record.ended = self.record.joined;
                    return self.record.joined;
                }
                Ok(other) => self.surprise(format!("a send returned no task: {other:?}")),
                Err(problem) => self.surprise(problem),
            }
        }
        true
    }

    /// Uses one connection as long as it lives.
    async fn try_once(&mut self) {
        if !self.act().await {
            return self.back_off().await;
        }
        let stream = match self.connect().await {
            Ok(stream) => stream,
            Err(error) => return self.handle(error).await,
        };
        if let Err(error) = self.read(stream).await {
            self.record.cuts += 1;
            Tally::add(&self.tally.cuts);
            self.handle(error).await;
        }
    }

    /// Sends what is due now: a cancel, or an answer. False: no answer came.
    async fn act(&mut self) -> bool {
        if self.is_time_to_cancel() {
            return self.cancel().await;
        }
        // The asks of a canceled task are not answered.
        let is_canceled = self.record.canceling.answer.is_some();
        self.ask.is_none() || is_canceled || self.answer().await
    }

    fn is_time_to_cancel(&self) -> bool {
        let is_time = match self.record.planned.cancel {
            None => false,
            Some(CancelAt::Frame(count)) => self.record.frames.len() >= count,
            Some(CancelAt::Ask) => self.ask.is_some(),
        };
        is_time && !self.record.ended && self.record.canceling.answer.is_none()
    }

    /// True: the cancel succeeded, or the task was over before.
    async fn cancel(&mut self) -> bool {
        let speaker = self.record.planned.speaker;
        let Some(task) = self.record.task.clone() else { return true };
        if self.record.canceling.sends == 0 {
            Tally::add(&self.tally.canceling);
        }
        self.record.canceling.sends += 1;
        let answer = match self.wire.call(&speaker.cancel(&task)).await {
            Ok(task) => speaker.task(&task).map(|task| CancelAnswer::State(task.status.state)),
            Err(CallError::Temporary) => {
                self.record.refusals += 1;
                return false;
            }
            Err(CallError::Refused(reason)) if reason == "TASK_NOT_CANCELABLE" => Ok(CancelAnswer::TooLate),
            Err(CallError::Refused(reason)) => Err(format!("a cancel was refused: {reason}")),
            Err(CallError::Malformed(what)) => Err(what),
        };
        match answer {
            Ok(answer) => {
                self.record.canceling.answer = Some(answer);
                true
            }
            Err(what) => {
                self.surprise(what);
                // After too many surprises the client gives up.
                self.record.surprises.len() >= MAX_SURPRISES
            }
        }
    }

    async fn handle(&mut self, error: CallError) {
        match error {
            CallError::Temporary => self.record.refusals += 1,
            CallError::Refused(reason) => self.surprise(format!("refused: {reason}")),
            CallError::Malformed(what) => self.surprise(what),
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

    async fn connect(&mut self) -> Result<Frames, CallError> {
        let speaker = self.record.planned.speaker;
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
                let message = speaker.planned(&self.record.planned);
                self.wire.stream(&speaker.stream(&message), cursor.as_deref()).await
            }
        }
    }

    /// Reads until the stream ends or breaks.
    async fn read(&mut self, mut stream: Frames) -> Result<(), CallError> {
        loop {
            match stream.next().await {
                Next::Frame(frame) => {
                    if self.record.ended {
                        self.surprise(format!("a frame after the end: {}", frame.json));
                    }
                    self.take(frame);
                }
                Next::End { may_return } => {
                    let asks = self.state == Some(TaskState::InputRequired);
                    if !self.record.ended && !asks && !may_return {
                        self.surprise("the stream ended before the task".to_owned());
                    }
                    return Ok(());
                }
                // A break after the end does no harm.
                Next::Failed(_) if self.record.ended => return Ok(()),
                Next::Failed(error) => return Err(error),
            }
            while !self.act().await {
                self.back_off().await;
            }
        }
    }

    fn take(&mut self, frame: Frame) {
        let event = match self.record.planned.speaker.event(&frame.json) {
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
            // Other updates of a task with an open ask, such as a new title, repeat the state.
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
            // The receiver may have given up.
            let _ = self.begun.take().map(|begun| begun.send(()));
        }
        self.state = state.or(self.state);
        self.record.frames.push(frame);
    }

    /// Answers `once`. True: the ask has an answer, this one or another.
    async fn answer(&mut self) -> bool {
        let Some((seq, request)) = self.ask.clone() else { return true };
        let PlannedMessage { id, speaker, answering, .. } = self.record.planned.clone();
        let request = match (answering, request, &self.record.task) {
            (Answering::ByCall, Some(request), _) => ClientProtocol::reply(&request),
            (_, _, Some(task)) => {
                let id = format!("{id}-answer-{seq}");
                speaker.send(&speaker.message(&id, ANSWER, Some(task), None))
            }
            (_, _, None) => return true,
        };
        let done = match self.wire.call(&request).await {
            Ok(_) => true,
            Err(CallError::Temporary) => {
                self.record.refusals += 1;
                false
            }
            // The agent may have died with its ask, or the confirmation of an earlier answer was lost. If neither is so, the
            // task never ends, and the checker finds that.
            Err(CallError::Refused(reason)) if is_past(&reason) => true,
            Err(CallError::Refused(reason)) => {
                self.surprise(format!("an answer was refused: {reason}"));
                true
            }
            Err(CallError::Malformed(what)) => {
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

/// The ask is gone, or the task accepts no more messages.
fn is_past(reason: &str) -> bool {
    matches!(
        reason,
        "INTERRUPT_REQUEST_NOT_FOUND"
            | "INTERRUPT_REQUEST_EXPIRED"
            | "UNSUPPORTED_OPERATION"
            | "INVALID_PARAMS"
    )
}

/// The request id of the ask in a frame, if the client is shown one.
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
