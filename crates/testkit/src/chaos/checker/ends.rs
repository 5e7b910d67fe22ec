//! Checks whether the end of a task matches what happened to its turn.

use std::collections::BTreeSet;

use longshore_model::{Task, TaskState, Timestamp};

use super::super::record::{CancelAnswer, Canceling, Frame, Record};
use super::{AgentRecord, Fault, Observation, StormFacts, facts, reasons, turns};
use crate::fake_opencode::TurnEnd;

/// The runner and the gateway have the same clock, but a death is noted a little after it happens.
const SLACK: i64 = 1_500;

/// What the agent recorded of a turn: the message that began it, and the messages that joined.
#[derive(Debug, Default)]
pub(super) struct TurnFacts {
    /// Its prompts, in the order in which the agent received them.
    prompts: Vec<AgentRecord>,
    /// The text of the message that began the turn.
    first: String,
    /// How many messages joined, and how many of these the agent never received.
    joined: usize,
    missing: usize,
    near: NearbyBreak,
    /// The agent is a real OpenCode, which may have received prompts that it does not show.
    is_real: bool,
    /// The last status reports missing text, or a message that may not have been read.
    pub(super) names_loss: bool,
    pub(super) names_unread: bool,
}

/// What broke during a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum NearbyBreak {
    #[default]
    Nothing,
    /// The gateway, or connections between it and the agent.
    Break,
    AgentDeath,
}

impl TurnFacts {
    pub(super) fn of(
        observation: &Observation,
        log: &[Frame],
        observations: &[Observation],
        agent_records: &[AgentRecord],
        broken: &StormFacts,
    ) -> Self {
        let record: &Record = &observation.record;
        let others = observations.iter().map(|observation| &observation.record);
        let joined = others.filter(|other| other.joined && other.task == record.task);
        let words: Vec<&str> =
            [record].into_iter().chain(joined).map(|record| record.planned.words.as_str()).collect();
        // A prompt that the agent received twice is another finding.
        let mut prompts: Vec<AgentRecord> = Vec::new();
        for prompt in agent_records.iter().filter(|prompt| words.contains(&prompt.words.as_str())) {
            if prompts.iter().all(|known| known.words != prompt.words) {
                prompts.push(prompt.clone());
            }
        }
        let is_there = |words: &&&str| prompts.iter().any(|prompt| prompt.words == ***words);
        let end = log.last().map(|frame| frame.json.to_string()).unwrap_or_default();
        let (began, ended) = (turns::began_at(observation), turns::ended_at(observation));
        let is_near = |deaths: &[Timestamp]| {
            let (Some(began), Some(ended)) = (began, ended) else { return false };
            deaths.iter().any(|at| (began.0 - SLACK..=ended.0 + SLACK).contains(&at.0))
        };
        let near = match () {
            () if is_near(&broken.agent) => NearbyBreak::AgentDeath,
            () if is_near(&broken.gateway) || broken.connections && began.is_some() => NearbyBreak::Break,
            () => NearbyBreak::Nothing,
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

    /// The newest prompt is answered completely.
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

    /// Of a real OpenCode, only the time of its death shows what it was working on.
    fn is_killed(&self, prompt: &AgentRecord) -> bool {
        prompt.turn_end == TurnEnd::Killed
            && (!prompt.is_what_was_kept || self.near == NearbyBreak::AgentDeath)
    }

    /// The agent was killed before it began with the first message of the turn. A killed real OpenCode may have received the
    /// message and stored nothing of it.
    pub(super) fn is_first_killed(&self) -> bool {
        let is_unseen = self.is_real && self.near == NearbyBreak::AgentDeath;
        self.first().map_or(is_unseen, |first| self.is_killed(first))
    }

    fn first(&self) -> Option<&AgentRecord> {
        self.prompts.iter().find(|prompt| prompt.words == self.first)
    }

    /// Whether a message joined the turn.
    pub(super) fn has_joined(&self) -> bool {
        self.joined > 0
    }

    /// It is unknown whether the agent received the first message: it did not, or it was killed with the message.
    pub(super) fn is_first_in_doubt(&self) -> bool {
        self.near != NearbyBreak::Nothing && self.first().is_none_or(|first| self.is_killed(first))
    }

    /// Something broke near the first message, and a real agent shows that message without any answer.
    pub(super) fn is_first_given_up(&self) -> bool {
        let is_unanswered = |first: &AgentRecord| !first.is_complete && first.text.is_empty();
        self.is_real && self.near != NearbyBreak::Nothing && self.first().is_none_or(is_unanswered)
    }

    /// Text may be lost: the agent was killed, or may never have received the prompt.
    fn may_lack_text(&self) -> bool {
        self.is_one_killed() || self.is_first_in_doubt()
    }

    /// The received text consists only of beginnings of the agent's answers, one for each message.
    fn has_only_beginnings(&self, received: &str) -> bool {
        let received = received.as_bytes();
        // How many bytes the answers so far can account for. Each answer may stop anywhere.
        let mut ends = BTreeSet::from([0]);
        for prompt in &self.prompts {
            let text = prompt.text.as_bytes();
            let common = |from: usize| received[from..].iter().zip(text).take_while(|(a, b)| a == b);
            ends = ends.iter().flat_map(|from| *from..=*from + common(*from).count()).collect();
        }
        ends.contains(&received.len())
    }

    /// An answer that the agent has stored and the client did not receive.
    fn kept_and_missing(&self, received: &str) -> Option<&str> {
        self.prompts.iter().map(|prompt| prompt.kept.as_str()).find(|kept| !received.contains(*kept))
    }
}

/// Returns the name of the reason, if the task failed for a reason that is true.
pub(super) fn check(
    task: &Task,
    turn: &TurnFacts,
    canceling: &Canceling,
    report: &mut impl FnMut(Fault, String),
) -> Option<&'static str> {
    let (state, received) = facts(task);
    let TurnFacts { names_loss, names_unread, .. } = turn;
    let text = &turn.text();
    // If a turn was not followed to its end, the agent may have more text, but never other text. A killed agent may have lost
    // the end of one answer before it began the next.
    let may_have_gaps = *names_loss || state == TaskState::Canceled;
    let is_beginning = text.starts_with(&received)
        || turn.is_what_was_kept() && received.starts_with(text.as_str())
        || may_have_gaps && turn.has_only_beginnings(&received);
    check_cancel(state, canceling, report);
    check_excuses(state, turn, report);
    if let [prompt] = turn.prompts.as_slice()
        && let Some(whole) = &prompt.whole
        && !whole.starts_with(&received)
    {
        report(Fault::Untrue, format!("the model writes {whole:?}, and the client has {received:?}"));
    }
    match state {
        TaskState::Completed if !(turn.is_complete() || *names_unread && turn.is_any_complete()) => {
            report(Fault::Untrue, "the agent did not complete it".to_owned());
        }
        TaskState::Completed if turn.missing > 0 && !names_unread => {
            report(Fault::Lost, "a joined message was not read, and the task does not report it".to_owned());
        }
        TaskState::Completed if *names_unread && is_beginning => {}
        TaskState::Completed if received != *text && !(*names_loss && turn.is_one_killed()) => {
            report(Fault::Lost, format!("the agent wrote {text:?}, and the client has {received:?}"));
        }
        TaskState::Failed if turn.is_complete() && !names_unread => {
            report(Fault::Untrue, format!("the agent completed it, and the task failed: {}", reason(task)));
        }
        TaskState::Failed | TaskState::Canceled if !is_beginning => {
            report(Fault::Untrue, format!("the agent wrote {text:?}, and the client has {received:?}"));
        }
        TaskState::Failed if text.len() > received.len() && !names_loss && !names_unread => {
            report(
                Fault::Lost,
                format!("text is missing without a report: of {text:?} there is {received:?}"),
            );
        }
        TaskState::Completed | TaskState::Failed => {}
        TaskState::Canceled if canceling.sends > 0 => {}
        other => report(Fault::Untrue, format!("no client and no fault made the task {other}")),
    }
    // After a cancel nothing more is read. Any other task has at least the text that the agent can still show.
    if state == TaskState::Failed
        && let Some(kept) = turn.kept_and_missing(&received)
    {
        report(Fault::Lost, format!("the agent has stored {kept:?}, and the client has {received:?}"));
    }
    if state != TaskState::Failed {
        return None;
    }
    if is_busy(task) {
        report(Fault::Stuck, "only the gateway uses the session".to_owned());
        return None;
    }
    match reasons::check(&reason(task), turn) {
        Ok(name) => Some(name),
        Err(problem) => {
            report(Fault::Untrue, problem);
            None
        }
    }
}

/// A task that reports a loss must have a cause for it.
fn check_excuses(state: TaskState, turn: &TurnFacts, report: &mut impl FnMut(Fault, String)) {
    let is_stopped = state == TaskState::Canceled;
    if turn.names_loss && !is_stopped && !turn.may_lack_text() {
        report(
            Fault::Untrue,
            format!("the task reports that text may be missing, and nothing was killed: {turn:?}"),
        );
    }
    if turn.names_unread && !turn.has_joined() {
        report(Fault::Untrue, "the task reports an unread message, and none joined".to_owned());
    }
}

/// The final state must match the answer to a cancel.
fn check_cancel(state: TaskState, canceling: &Canceling, report: &mut impl FnMut(Fault, String)) {
    match canceling.answer {
        Some(CancelAnswer::State(answered)) if answered != state => {
            report(Fault::Untrue, format!("a cancel was answered with {answered}, and the task is {state}"));
        }
        // No other client could have canceled it.
        Some(CancelAnswer::TooLate) if canceling.sends == 1 && state == TaskState::Canceled => {
            report(
                Fault::Untrue,
                "a cancel came too late for a task that no other client canceled".to_owned(),
            );
        }
        _ => {}
    }
}

/// The message of the last status.
fn reason(task: &Task) -> String {
    task.status.message.as_ref().map(|message| format!("{:?}", message.parts)).unwrap_or_default()
}

/// The task failed because the session is busy.
fn is_busy(task: &Task) -> bool {
    reason(task).contains("busy with work of another client")
}

/// The last status reports lost text: in its metadata, or in its message.
fn names_loss(end: &str) -> bool {
    end.contains(r#""lost":"text""#) || end.contains("may be missing")
}

/// The last status reports that the agent may not have read one of the messages.
fn names_unread(end: &str) -> bool {
    ["may not have been read", "was not read", "answered only what joined it"]
        .iter()
        .any(|words| end.contains(words))
}
