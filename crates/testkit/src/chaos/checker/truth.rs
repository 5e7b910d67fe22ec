//! Whether the end of a task is what happened.

use std::collections::BTreeSet;

use longshore_model::{Task, TaskState, Timestamp};

use super::super::record::{Canceled, Canceling, Frame, Record};
use super::{Broken, Fault, Testimony, Upstream, facts, reasons, turns};
use crate::fake_opencode::Fate;

/// The clocks of the runner and of the gateway are one, but the moment of a death is noted a little later than it is.
const SLACK: i64 = 1_500;

/// What the agent knows of a turn: of the message that began it, and of those that joined.
#[derive(Debug, Default)]
pub(super) struct Happened {
    /// Its prompts, in the order in which the agent got them.
    prompts: Vec<Upstream>,
    /// The words that began it.
    first: String,
    /// How many messages joined it, and how many of these the agent never got.
    joined: usize,
    missing: usize,
    near: Near,
    /// The agent is a real one, which may have taken what it does not show.
    is_real: bool,
    /// What the end says itself.
    pub(super) names_loss: bool,
    pub(super) names_unread: bool,
}

/// What broke while a turn was under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Near {
    #[default]
    Nothing,
    /// The gateway, or connections between it and the agent.
    Break,
    DeathOfTheAgent,
}

impl Happened {
    pub(super) fn of(
        testimony: &Testimony,
        log: &[Frame],
        testimonies: &[Testimony],
        upstream: &[Upstream],
        broken: &Broken,
    ) -> Self {
        let record: &Record = &testimony.record;
        let others = testimonies.iter().map(|testimony| &testimony.record);
        let joined = others.filter(|other| other.joined && other.task == record.task);
        let words: Vec<&str> =
            [record].into_iter().chain(joined).map(|record| record.errand.words.as_str()).collect();
        // One that the agent got again is found elsewhere.
        let mut prompts: Vec<Upstream> = Vec::new();
        for prompt in upstream.iter().filter(|prompt| words.contains(&prompt.words.as_str())) {
            if prompts.iter().all(|known| known.words != prompt.words) {
                prompts.push(prompt.clone());
            }
        }
        let is_there = |words: &&&str| prompts.iter().any(|prompt| prompt.words == ***words);
        let end = log.last().map(|frame| frame.json.to_string()).unwrap_or_default();
        let (began, ended) = (turns::began_at(testimony), turns::ended_at(testimony));
        let is_near = |deaths: &[Timestamp]| {
            let (Some(began), Some(ended)) = (began, ended) else { return false };
            deaths.iter().any(|at| (began.0 - SLACK..=ended.0 + SLACK).contains(&at.0))
        };
        let near = match () {
            () if is_near(&broken.agent) => Near::DeathOfTheAgent,
            () if is_near(&broken.gateway) || broken.connections && began.is_some() => Near::Break,
            () => Near::Nothing,
        };
        Self {
            first: words[0].to_owned(),
            joined: words.len() - 1,
            missing: words.len() - 1 - words[1..].iter().filter(is_there).count(),
            near,
            is_real: broken.is_real,
            names_loss: names_loss(&end),
            names_unread: names_unread(&end),
            prompts,
        }
    }

    fn text(&self) -> String {
        self.prompts.iter().map(|prompt| prompt.text.as_str()).collect()
    }

    /// The newest of its prompts is answered to the end.
    fn is_complete(&self) -> bool {
        self.prompts.last().is_some_and(|prompt| prompt.is_complete)
    }

    fn is_any_complete(&self) -> bool {
        self.prompts.iter().any(|prompt| prompt.is_complete)
    }

    fn is_what_was_kept(&self) -> bool {
        self.prompts.iter().any(|prompt| prompt.is_what_was_kept)
    }

    /// The agent was killed while it worked on one of the messages.
    pub(super) fn is_one_killed(&self) -> bool {
        self.prompts.iter().any(|prompt| self.is_killed(prompt))
    }

    /// What a real one was at is not known better than by the time of its death.
    fn is_killed(&self, prompt: &Upstream) -> bool {
        prompt.fate == Fate::Killed && (!prompt.is_what_was_kept || self.near == Near::DeathOfTheAgent)
    }

    /// The agent was killed before it began with the message that the turn is about. A real one that was killed may have
    /// taken it and kept nothing of it.
    pub(super) fn is_first_killed(&self) -> bool {
        let is_unseen = self.is_real && self.near == Near::DeathOfTheAgent;
        self.first().map_or(is_unseen, |first| self.is_killed(first))
    }

    fn first(&self) -> Option<&Upstream> {
        self.prompts.iter().find(|prompt| prompt.words == self.first)
    }

    /// A message joined the turn.
    pub(super) fn has_joined(&self) -> bool {
        self.joined > 0
    }

    /// Nobody can know whether the agent got the message that the turn is about: it did not, or was killed with it.
    pub(super) fn is_first_in_doubt(&self) -> bool {
        self.near != Near::Nothing && self.first().is_none_or(|first| self.is_killed(first))
    }

    /// Something broke around the message that the turn is about, and a real agent shows it without a word of an answer.
    pub(super) fn is_first_given_up(&self) -> bool {
        let is_unanswered = |first: &Upstream| !first.is_complete && first.text.is_empty();
        self.is_real && self.near != Near::Nothing && self.first().is_none_or(is_unanswered)
    }

    /// There may be text that nobody has: the agent was killed, or has perhaps never got the prompt.
    fn may_lack_text(&self) -> bool {
        self.is_one_killed() || self.is_first_in_doubt()
    }

    /// Of what the agent wrote for each of the messages there is some of its beginning, and nothing else.
    fn has_only_beginnings(&self, told: &str) -> bool {
        let told = told.as_bytes();
        // How much of it the messages so far can account for: each may stop anywhere.
        let mut ends = BTreeSet::from([0]);
        for prompt in &self.prompts {
            let text = prompt.text.as_bytes();
            let common = |from: usize| told[from..].iter().zip(text).take_while(|(a, b)| a == b);
            ends = ends.iter().flat_map(|from| *from..=*from + common(*from).count()).collect();
        }
        ends.contains(&told.len())
    }

    /// What the agent has kept of an answer, and the client does not have.
    fn kept_and_missing(&self, told: &str) -> Option<&str> {
        self.prompts.iter().map(|prompt| prompt.kept.as_str()).find(|kept| !told.contains(*kept))
    }
}

/// Gives the name of the reason, where the task failed for one that is true.
pub(super) fn check(
    task: &Task,
    happened: &Happened,
    canceling: &Canceling,
    report: &mut impl FnMut(Fault, String),
) -> Option<&'static str> {
    let (state, told) = facts(task);
    let Happened { names_loss, names_unread, .. } = happened;
    let text = &happened.text();
    // Of a turn that was not followed to its end there may be more with the agent, and never other words. One that was
    // killed may have forgotten the end of an answer before it began the next.
    let may_have_gaps = *names_loss || state == TaskState::Canceled;
    let is_beginning = text.starts_with(&told)
        || happened.is_what_was_kept() && told.starts_with(text.as_str())
        || may_have_gaps && happened.has_only_beginnings(&told);
    check_cancel(state, canceling, report);
    check_excuses(state, happened, report);
    if let [prompt] = happened.prompts.as_slice()
        && let Some(whole) = &prompt.whole
        && !whole.starts_with(&told)
    {
        report(Fault::Untrue, format!("the model says {whole:?}, and the client has {told:?}"));
    }
    match state {
        TaskState::Completed if !(happened.is_complete() || *names_unread && happened.is_any_complete()) => {
            report(Fault::Untrue, "the agent did not complete it".to_owned());
        }
        TaskState::Completed if happened.missing > 0 && !names_unread => {
            report(Fault::Lost, "nobody says that a message which joined was not read".to_owned());
        }
        TaskState::Completed if *names_unread && is_beginning => {}
        TaskState::Completed if told != *text && !(*names_loss && happened.is_one_killed()) => {
            report(Fault::Lost, format!("the agent wrote {text:?}, and the client has {told:?}"));
        }
        TaskState::Failed if happened.is_complete() && !names_unread => {
            report(Fault::Untrue, format!("the agent completed it, and the task failed: {}", reason(task)));
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
    // Nothing is read behind a cancel. Of every other turn there is at least what the agent can still show.
    if state == TaskState::Failed
        && let Some(kept) = happened.kept_and_missing(&told)
    {
        report(Fault::Lost, format!("the agent has kept {kept:?}, and the client has {told:?}"));
    }
    if state != TaskState::Failed {
        return None;
    }
    if is_busy(task) {
        report(Fault::Stuck, "nobody but the gateway uses the session".to_owned());
        return None;
    }
    match reasons::check(&reason(task), happened) {
        Ok(name) => Some(name),
        Err(problem) => {
            report(Fault::Untrue, problem);
            None
        }
    }
}

/// Whoever says that something is missing has a cause to say so.
fn check_excuses(state: TaskState, happened: &Happened, report: &mut impl FnMut(Fault, String)) {
    let is_stopped = state == TaskState::Canceled;
    if happened.names_loss && !is_stopped && !happened.may_lack_text() {
        report(
            Fault::Untrue,
            format!("the end says that text may be missing, and nobody was killed: {happened:?}"),
        );
    }
    if happened.names_unread && !happened.has_joined() {
        report(Fault::Untrue, "the end says that a message was not read, and none joined".to_owned());
    }
}

/// What was said of a cancel stands.
fn check_cancel(state: TaskState, canceling: &Canceling, report: &mut impl FnMut(Fault, String)) {
    match canceling.answer {
        Some(Canceled::ControlResult(told)) if told != state => {
            report(Fault::Untrue, format!("a cancel was answered with {told}, and the task is {state}"));
        }
        // Who else would have done it?
        Some(Canceled::TooLate) if canceling.sends == 1 && state == TaskState::Canceled => {
            report(Fault::Untrue, "a cancel came too late for a task that nobody else canceled".to_owned());
        }
        _ => {}
    }
}

/// What a task says of its end.
fn reason(task: &Task) -> String {
    task.status.message.as_ref().map(|message| format!("{:?}", message.parts)).unwrap_or_default()
}

/// The task failed because the session is busy.
fn is_busy(task: &Task) -> bool {
    reason(task).contains("busy with work of somebody else")
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
