//! Whether the end of a task is what happened.

use longshore_model::{Task, TaskState};

use super::super::record::{Canceled, Canceling, Frame, Record};
use super::{Fault, Testimony, Upstream, facts};

/// What the agent knows of a turn: of the message that began it, and of those that joined.
#[derive(Debug, Default)]
pub(super) struct Happened {
    /// What it wrote for each of them.
    texts: Vec<String>,
    /// The newest of its prompts is answered to the end.
    is_complete: bool,
    /// One of them is.
    is_any_complete: bool,
    is_what_was_kept: bool,
    /// A message joined the turn, and the agent never got it.
    is_one_missing: bool,
    /// What the end says itself.
    pub(super) names_loss: bool,
    pub(super) names_unread: bool,
}

impl Happened {
    pub(super) fn of(
        record: &Record,
        log: &[Frame],
        testimonies: &[Testimony],
        upstream: &[Upstream],
    ) -> Self {
        let others = testimonies.iter().map(|testimony| &testimony.record);
        let joined = others.filter(|other| other.joined && other.task == record.task);
        let words: Vec<&str> =
            [record].into_iter().chain(joined).map(|record| record.errand.words.as_str()).collect();
        // In the order in which the agent got them. One that it got again is found elsewhere.
        let mut prompts: Vec<&Upstream> = Vec::new();
        for prompt in upstream.iter().filter(|prompt| words.contains(&prompt.words.as_str())) {
            if prompts.iter().all(|known| known.words != prompt.words) {
                prompts.push(prompt);
            }
        }
        let is_there = |words: &&&str| prompts.iter().any(|prompt| prompt.words == ***words);
        let end = log.last().map(|frame| frame.json.to_string()).unwrap_or_default();
        Self {
            texts: prompts.iter().map(|prompt| prompt.text.clone()).collect(),
            is_complete: prompts.last().is_some_and(|prompt| prompt.is_complete),
            is_any_complete: prompts.iter().any(|prompt| prompt.is_complete),
            is_what_was_kept: prompts.iter().any(|prompt| prompt.is_what_was_kept),
            is_one_missing: words[1..].iter().filter(is_there).count() + 1 < words.len(),
            names_loss: names_loss(&end),
            names_unread: names_unread(&end),
        }
    }

    /// Of what the agent wrote for each of the messages there is some of its beginning, and nothing else.
    fn has_only_beginnings(&self, told: &str) -> bool {
        let mut left = told;
        for text in &self.texts {
            let same = |(one, other): &(char, char)| one == other;
            let common = left.chars().zip(text.chars()).take_while(same);
            left = &left[common.map(|(one, _)| one.len_utf8()).sum::<usize>()..];
        }
        left.is_empty()
    }
}

pub(super) fn check(
    task: &Task,
    happened: &Happened,
    canceling: &Canceling,
    report: &mut impl FnMut(Fault, String),
) {
    let (state, told) = facts(task);
    let Happened { texts, names_loss, names_unread, .. } = happened;
    let text = &texts.concat();
    // Of a turn that was not followed to its end there may be more with the agent, and never other words. One that was
    // killed may have forgotten the end of an answer before it began the next.
    let may_have_gaps = *names_loss || state == TaskState::Canceled;
    let is_beginning = text.starts_with(&told)
        || happened.is_what_was_kept && told.starts_with(text.as_str())
        || may_have_gaps && happened.has_only_beginnings(&told);
    check_cancel(state, canceling, report);
    match state {
        TaskState::Completed if !happened.is_complete && !(*names_unread && happened.is_any_complete) => {
            report(Fault::Untrue, "the agent did not complete it".to_owned());
        }
        TaskState::Completed if happened.is_one_missing && !names_unread => {
            report(Fault::Lost, "nobody says that a message which joined was not read".to_owned());
        }
        TaskState::Completed if *names_unread && is_beginning => {}
        TaskState::Completed if told != *text && !names_loss => {
            report(Fault::Lost, format!("the agent wrote {text:?}, and the client has {told:?}"));
        }
        TaskState::Failed if happened.is_complete && !names_unread => {
            let reason = task.status.message.as_ref().map(|message| format!("{:?}", message.parts));
            report(Fault::Untrue, format!("the agent completed it, and the task failed: {reason:?}"));
        }
        TaskState::Failed | TaskState::Canceled if !is_beginning => {
            report(Fault::Untrue, format!("the agent wrote {text:?}, and the client has {told:?}"));
        }
        TaskState::Failed if text.len() > told.len() && !names_loss && !names_unread => {
            report(Fault::Lost, format!("nobody says that text is missing: of {text:?} there is {told:?}"));
        }
        TaskState::Completed | TaskState::Failed => {}
        TaskState::Canceled if canceling.sends > 0 => {}
        other => report(Fault::Untrue, format!("nobody made it {other}")),
    }
    if state == TaskState::Failed && is_busy(task) {
        report(Fault::Stuck, "nobody but the gateway uses the session".to_owned());
    }
}

/// What was said of a cancel stands.
fn check_cancel(state: TaskState, canceling: &Canceling, report: &mut impl FnMut(Fault, String)) {
    match canceling.answer {
        Some(Canceled::Told(told)) if told != state => {
            report(Fault::Untrue, format!("a cancel was answered with {told}, and the task is {state}"));
        }
        // Who else would have done it?
        Some(Canceled::TooLate) if canceling.sends == 1 && state == TaskState::Canceled => {
            report(Fault::Untrue, "a cancel came too late for a task that nobody else canceled".to_owned());
        }
        _ => {}
    }
}

/// The task failed because the session is busy.
fn is_busy(task: &Task) -> bool {
    let reason = task.status.message.as_ref().map(|message| format!("{:?}", message.parts));
    reason.is_some_and(|reason| reason.contains("busy with work of somebody else"))
}

/// The end says that the agent forgot text: to programs, or in words.
fn names_loss(end: &str) -> bool {
    end.contains(r#""lost":"text""#) || end.contains("may be missing")
}

/// The end says that the agent may not have read one of the messages.
fn names_unread(end: &str) -> bool {
    ["may not have been read", "was not read", "answered only what joined it"]
        .iter()
        .any(|words| end.contains(words))
}
