//! Compares what every client received with the gateway's log, and with the agent's own records.
//!
//! The checker is a pure function with tests of its own: a checker that finds nothing proves nothing.

mod ends;
mod reasons;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::BTreeMap;
use std::fmt;

use longshore_model::{Task, TaskState, Timestamp};
use serde_json::Value;

use self::ends::TurnFacts;
use super::record::{Frame, Record};
use super::speaker::{self, ClientProtocol};
use crate::fake_opencode::{PromptRecord, TurnEnd};

/// The kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// An event is missing at the client, or in the log.
    Lost,
    /// A client received an event twice.
    Doubled,
    /// A client received an event after a later one.
    Reordered,
    /// A task does not end.
    Hangs,
    /// The agent received a prompt twice.
    DoublePrompt,
    /// A report that is false.
    Untrue,
    /// A session accepts no more turns, because an ended turn goes on in the agent.
    Stuck,
    /// An answer that no client should get.
    Surprise,
    /// A process that is left when everything has ended, or a gateway that does not shut down properly.
    LeftBehind,
}

impl Fault {
    pub const ALL: [Self; 9] = [
        Self::Lost,
        Self::Doubled,
        Self::Reordered,
        Self::Hangs,
        Self::DoublePrompt,
        Self::Untrue,
        Self::Stuck,
        Self::Surprise,
        Self::LeftBehind,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Lost => "events lost",
            Self::Doubled => "events doubled",
            Self::Reordered => "events or turns re-ordered",
            Self::Hangs => "tasks that do not end",
            Self::DoublePrompt => "double prompts",
            Self::Untrue => "false reports",
            Self::Stuck => "sessions that stay busy",
            Self::Surprise => "surprises",
            Self::LeftBehind => "processes left behind",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub fault: Fault,
    /// The message, and its task.
    pub whose: String,
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.fault.name(), self.whose, self.detail)
    }
}

/// What a client received, and what the gateway shows at the end.
#[derive(Clone, Debug)]
pub struct Observation {
    pub record: Record,
    /// The whole log, read without interruption in the client's own protocol.
    pub log: Result<Vec<Frame>, String>,
    /// The task, as this client gets it.
    pub stored: Result<Value, String>,
}

/// The agent's record of a prompt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentRecord {
    pub session: String,
    pub words: String,
    pub times: usize,
    /// All text that the agent wrote, including reasoning, in order.
    pub text: String,
    pub is_complete: bool,
    /// The text is only what the agent stored. It may have streamed more, and lost that when it was killed.
    pub is_what_was_kept: bool,
    pub turn_end: TurnEnd,
    /// The text of the answer that the agent shows now.
    pub kept: String,
    /// The complete answer of the model to this prompt, where it is known.
    pub whole: Option<String>,
}

impl AgentRecord {
    /// `kept`: the text that the messages of the session show.
    pub(super) fn of_fake(prompt: PromptRecord, kept: String) -> Self {
        let PromptRecord { session, words, times, text, is_complete, turn_end, .. } = prompt;
        Self {
            session,
            words,
            times,
            text,
            is_complete,
            is_what_was_kept: false,
            turn_end,
            kept,
            whole: None,
        }
    }
}

/// What the storm broke, and when.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StormFacts {
    /// When the gateway and the agent were killed.
    pub gateway: Vec<Timestamp>,
    pub agent: Vec<Timestamp>,
    /// Connections between the two were cut all the time.
    pub connections: bool,
    /// The agent is a real OpenCode: if it was killed before it stored a prompt, no record shows whether it received the prompt.
    pub is_real: bool,
}

/// The result of the check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    pub findings: Vec<Finding>,
    /// How many tasks ended in which state.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// How many failed for which reason.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Tasks that report missing text which the agent wrote and lost. They are not findings.
    pub forgotten: u64,
    /// Turns that report that a joined message may not have been read. They are not findings.
    pub unread: u64,
}

pub fn check(observations: &[Observation], agent_records: &[AgentRecord], broken: &StormFacts) -> Verdict {
    let mut verdict = Verdict::default();
    for observation in observations {
        let record = &observation.record;
        let whose = whose(record);
        let mut report = |fault, detail: String| {
            verdict.findings.push(Finding { fault, whose: whose.clone(), detail });
        };
        let is_own = |prompt: &&AgentRecord| prompt.words == record.planned.words;
        let prompts: Vec<&AgentRecord> = agent_records.iter().filter(is_own).collect();
        let times: usize = prompts.iter().map(|prompt| prompt.times).sum();
        if times > 1 {
            report(Fault::DoublePrompt, format!("{times} times"));
        }
        let Some(task) = check_reading(observation, &mut report) else { continue };
        let Ok(log) = &observation.log else { continue };
        if !record.ended {
            continue;
        }
        let turn = TurnFacts::of(observation, log, observations, agent_records, broken);
        let reason = ends::check(&task, &turn, &record.canceling, &mut report);
        if let Some(reason) = reason {
            *verdict.reasons.entry(reason).or_default() += 1;
        }
        *verdict.outcomes.entry(task.status.state.as_str()).or_default() += 1;
        verdict.forgotten += u64::from(turn.names_loss && turn.is_one_killed());
        verdict.unread += u64::from(turn.names_unread);
    }
    turns::check(observations, agent_records, &mut verdict.findings);
    // A prompt without a message of any client was made up.
    for prompt in agent_records {
        if observations.iter().all(|observation| observation.record.planned.words != prompt.words) {
            let (whose, detail) = (prompt.words.clone(), "a prompt that no client sent".to_owned());
            verdict.findings.push(Finding { fault: Fault::Untrue, whose, detail });
        }
    }
    verdict
}

/// Checks what one client received against the log and the stored task, whatever the agent did. Returns the task as the log tells
/// it. `None`: the log cannot be read, or the message has no task of its own.
pub fn check_reading(observation: &Observation, report: &mut impl FnMut(Fault, String)) -> Option<Task> {
    let record = &observation.record;
    for surprise in &record.surprises {
        report(Fault::Surprise, surprise.clone());
    }
    if !record.ended {
        let last = record.frames.last().map(|frame| frame.json.to_string());
        report(Fault::Hangs, format!("the last frame is {last:?}"));
    }
    check_frame_order(&record.frames, report);
    // A task that the message only joined belongs to another message, and is checked there.
    record.task.as_ref().filter(|_| !record.joined)?;
    let log = match &observation.log {
        Ok(log) => log,
        Err(error) => {
            report(Fault::Lost, format!("the log cannot be read: {error}"));
            return None;
        }
    };
    check_log(&record.frames, log, record.ended, report);
    let speaker = record.planned.speaker;
    match speaker.folded(log.iter().map(|frame| &frame.json)) {
        Ok(task) => {
            check_stored(&task, speaker, &observation.stored, report);
            Some(task)
        }
        Err(problem) => {
            report(Fault::Untrue, format!("the log does not fold to a task: {problem}"));
            None
        }
    }
}

fn whose(record: &Record) -> String {
    format!("{} by {}, task {:?}", record.planned.id, record.planned.speaker.name(), record.task)
}

fn check_frame_order(frames: &[Frame], report: &mut impl FnMut(Fault, String)) {
    let mut last = 0;
    for frame in frames {
        match frame.seq() {
            None if ends_artifact(&frame.json) => {}
            None => report(Fault::Untrue, format!("a frame without a sequence number: {}", frame.json)),
            Some(seq) if seq == last => report(Fault::Doubled, format!("event {seq}")),
            Some(seq) if seq < last => report(Fault::Reordered, format!("event {seq} after {last}")),
            Some(seq) => last = seq,
        }
    }
}

/// Whether a frame of 0.3 only marks the end of an artifact. The log has no event of its own for it.
fn ends_artifact(json: &Value) -> bool {
    let update = json.get("artifactUpdate").unwrap_or(json);
    update["lastChunk"] == true && update["artifact"]["parts"][0]["text"] == ""
}

fn check_log(frames: &[Frame], log: &[Frame], ended: bool, report: &mut impl FnMut(Fault, String)) {
    let kept: BTreeMap<u64, &Frame> = log.iter().filter_map(|frame| Some((frame.seq()?, frame))).collect();
    let seen: BTreeMap<u64, &Frame> = frames.iter().filter_map(|frame| Some((frame.seq()?, frame))).collect();
    for (seq, frame) in &seen {
        match kept.get(seq) {
            None => report(Fault::Lost, format!("the log does not have event {seq}: {}", frame.json)),
            Some(kept) if kept.json != frame.json => {
                report(Fault::Untrue, format!("event {seq} was {}, and is now {}", frame.json, kept.json));
            }
            Some(kept) if kept.id != frame.id => {
                report(Fault::Untrue, format!("event {:?} has the id {:?} now", frame.id, kept.id));
            }
            Some(_) => {}
        }
    }
    let Some((last, _)) = seen.last_key_value() else { return };
    for (seq, frame) in kept.range(..last).filter(|(seq, _)| !seen.contains_key(seq)) {
        report(Fault::Lost, format!("the client does not have event {seq}: {}", frame.json));
    }
    if ended && let Some((seq, frame)) = kept.range(last + 1..).next() {
        report(Fault::Untrue, format!("event {seq} is after the end: {}", frame.json));
    }
}

fn check_stored(
    task: &Task,
    speaker: ClientProtocol,
    stored: &Result<Value, String>,
    report: &mut impl FnMut(Fault, String),
) {
    let stored = stored.as_ref().map_err(Clone::clone).and_then(|stored| speaker.task(stored));
    match stored {
        Err(problem) => report(Fault::Untrue, format!("the task cannot be read: {problem}")),
        Ok(stored) => {
            let (from_log, from_store) = (facts(task), facts(&stored));
            if from_log != from_store {
                report(
                    Fault::Untrue,
                    format!("the log folds to {from_log:?}, and the task is {from_store:?}"),
                );
            }
        }
    }
}

fn facts(task: &Task) -> (TaskState, String) {
    (task.status.state, speaker::text(task))
}
