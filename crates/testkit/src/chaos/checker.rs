//! Holds what every client saw against the log that the gateway keeps, and against what the agent knows itself.
//!
//! It is a pure function, and has tests of its own: a checker that finds nothing proves nothing.

mod reasons;
#[cfg(test)]
mod tests;
mod truth;
mod turns;

use std::collections::BTreeMap;
use std::fmt;

use longshore_model::{Task, TaskState, Timestamp};
use serde_json::Value;

use self::truth::Happened;
use super::record::{Frame, Record};
use super::speaker::{self, Speaker};
use crate::fake_opencode::{Fate, Prompted};

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// An event that the client, or the log, does not have.
    Lost,
    /// An event that the client got twice.
    Doubled,
    /// An event that came behind a later one.
    Reordered,
    /// A task that does not end.
    Hangs,
    /// A prompt that reached the agent twice.
    DoublePrompt,
    /// Something told that is not so.
    Untrue,
    /// A session that takes no more turns, because one that is over here goes on there.
    Stuck,
    /// Something that no client should meet.
    Surprise,
    /// A process that is left when everything has ended, or a gateway that does not end as it should.
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
            Self::Untrue => "untrue tellings",
            Self::Stuck => "sessions that stay busy",
            Self::Surprise => "surprises",
            Self::LeftBehind => "processes left behind",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub fault: Fault,
    /// Which errand, and its task.
    pub whose: String,
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.fault.name(), self.whose, self.detail)
    }
}

/// What a client saw, and what the gateway says at the end.
#[derive(Clone, Debug)]
pub struct Testimony {
    pub record: Record,
    /// The whole log, read in one piece in the client's own spelling.
    pub log: Result<Vec<Frame>, String>,
    /// The task, as the client gets it.
    pub stored: Result<Value, String>,
}

/// What the agent knows of a prompt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Upstream {
    pub session: String,
    pub words: String,
    pub times: usize,
    /// Everything that it wrote, thoughts and words, in order.
    pub text: String,
    pub is_complete: bool,
    /// The text is what it kept. It may have streamed more, and forgotten it when it was killed.
    pub is_what_was_kept: bool,
    pub fate: Fate,
    /// What it shows of the answer now.
    pub kept: String,
    /// What the model says to these words, to the end, where that is known.
    pub whole: Option<String>,
}

impl Upstream {
    /// `kept`: what the messages of the session show.
    pub(super) fn of_fake(prompt: Prompted, kept: String) -> Self {
        let Prompted { session, words, times, text, is_complete, fate, .. } = prompt;
        Self { session, words, times, text, is_complete, is_what_was_kept: false, fate, kept, whole: None }
    }
}

/// What was broken, and when.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Broken {
    /// When the gateway and the agent died.
    pub gateway: Vec<Timestamp>,
    pub agent: Vec<Timestamp>,
    /// Connections between the two were cut all the time.
    pub connections: bool,
    /// The agent is a real one: of what it took and did not keep before it was killed nobody knows.
    pub is_real: bool,
}

/// What came out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    pub findings: Vec<Finding>,
    /// How many tasks ended in which state.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// How many failed for which reason.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Tasks that say that text is missing which the agent wrote and forgot. They are no findings.
    pub forgotten: u64,
    /// Turns that say that a message which joined them may not have been read. They are no findings.
    pub unread: u64,
}

pub fn check(testimonies: &[Testimony], upstream: &[Upstream], broken: &Broken) -> Verdict {
    let mut verdict = Verdict::default();
    for testimony in testimonies {
        let record = &testimony.record;
        let whose = whose(record);
        let mut report = |fault, detail: String| {
            verdict.findings.push(Finding { fault, whose: whose.clone(), detail });
        };
        for surprise in &record.surprises {
            report(Fault::Surprise, surprise.clone());
        }
        if !record.ended {
            let last = record.frames.last().map(|frame| frame.json.to_string());
            report(Fault::Hangs, format!("the last frame is {last:?}"));
        }
        check_order(&record.frames, &mut report);
        let of_words = |prompt: &&Upstream| prompt.words == record.errand.words;
        let prompts: Vec<&Upstream> = upstream.iter().filter(of_words).collect();
        let times: usize = prompts.iter().map(|prompt| prompt.times).sum();
        if times > 1 {
            report(Fault::DoublePrompt, format!("{times} times"));
        }
        let log = match (&testimony.log, &record.task) {
            (_, None) => continue,
            // The task is another's, and is looked at there.
            (_, Some(_)) if record.joined => continue,
            (Ok(log), Some(_)) => log,
            (Err(error), Some(_)) => {
                report(Fault::Lost, format!("the log cannot be read: {error}"));
                continue;
            }
        };
        check_log(&record.frames, log, record.ended, &mut report);
        let speaker = record.errand.speaker;
        let task = match speaker.folded(log.iter().map(|frame| &frame.json)) {
            Ok(task) => task,
            Err(problem) => {
                report(Fault::Untrue, format!("the log makes no task: {problem}"));
                continue;
            }
        };
        check_stored(&task, speaker, &testimony.stored, &mut report);
        if !record.ended {
            continue;
        }
        let happened = Happened::of(testimony, log, testimonies, upstream, broken);
        let reason = truth::check(&task, &happened, &record.canceling, &mut report);
        if let Some(reason) = reason {
            *verdict.reasons.entry(reason).or_default() += 1;
        }
        *verdict.outcomes.entry(task.status.state.as_str()).or_default() += 1;
        verdict.forgotten += u64::from(happened.names_loss && happened.is_one_killed());
        verdict.unread += u64::from(happened.names_unread);
    }
    turns::check(testimonies, upstream, &mut verdict.findings);
    // What nobody was sent out to say was made up by somebody.
    for prompt in upstream {
        if testimonies.iter().all(|testimony| testimony.record.errand.words != prompt.words) {
            let (whose, detail) = (prompt.words.clone(), "a prompt that no client sent".to_owned());
            verdict.findings.push(Finding { fault: Fault::Untrue, whose, detail });
        }
    }
    verdict
}

fn whose(record: &Record) -> String {
    format!("{} by {}, task {:?}", record.errand.id, record.errand.speaker.name(), record.task)
}

fn check_order(frames: &[Frame], report: &mut impl FnMut(Fault, String)) {
    let mut last = 0;
    for frame in frames {
        match frame.seq() {
            None => report(Fault::Untrue, format!("a frame without a place: {}", frame.json)),
            Some(seq) if seq == last => report(Fault::Doubled, format!("event {seq}")),
            Some(seq) if seq < last => report(Fault::Reordered, format!("event {seq} behind {last}")),
            Some(seq) => last = seq,
        }
    }
}

fn check_log(frames: &[Frame], log: &[Frame], ended: bool, report: &mut impl FnMut(Fault, String)) {
    let kept: BTreeMap<u64, &Frame> = log.iter().filter_map(|frame| Some((frame.seq()?, frame))).collect();
    let seen: BTreeMap<u64, &Frame> = frames.iter().filter_map(|frame| Some((frame.seq()?, frame))).collect();
    for (seq, frame) in &seen {
        match kept.get(seq) {
            None => report(Fault::Lost, format!("the log does not have event {seq}: {}", frame.json)),
            Some(kept) if kept.json != frame.json => {
                report(Fault::Untrue, format!("event {seq} was {}, and is {}", frame.json, kept.json));
            }
            Some(kept) if kept.id != frame.id => {
                report(Fault::Untrue, format!("event {:?} is {:?} now", frame.id, kept.id));
            }
            Some(_) => {}
        }
    }
    let Some((last, _)) = seen.last_key_value() else { return };
    for (seq, frame) in kept.range(..last).filter(|(seq, _)| !seen.contains_key(seq)) {
        report(Fault::Lost, format!("the client does not have event {seq}: {}", frame.json));
    }
    if ended && let Some((seq, frame)) = kept.range(last + 1..).next() {
        report(Fault::Untrue, format!("event {seq} is behind the end: {}", frame.json));
    }
}

fn check_stored(
    task: &Task,
    speaker: Speaker,
    stored: &Result<Value, String>,
    report: &mut impl FnMut(Fault, String),
) {
    let stored = stored.as_ref().map_err(Clone::clone).and_then(|stored| speaker.task(stored));
    match stored {
        Err(problem) => report(Fault::Untrue, format!("the task cannot be read: {problem}")),
        Ok(stored) => {
            let (of_log, of_task) = (facts(task), facts(&stored));
            if of_log != of_task {
                report(Fault::Untrue, format!("the log makes {of_log:?}, and the task is {of_task:?}"));
            }
        }
    }
}

fn facts(task: &Task) -> (TaskState, String) {
    (task.status.state, speaker::text(task))
}
