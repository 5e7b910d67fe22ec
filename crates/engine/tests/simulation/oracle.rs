//! Checks the rules: on everything that a user sees, and on the final state.

mod answers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use longshore_engine::Snapshot;
use longshore_model::{
    Answer, Entry, InterruptPhase, Message, MessageId, PartContent, RequestId, Resolution, Seq, Task,
    TaskEvent, TaskId, TaskState, Timestamp,
};

use self::answers::RecordedAnswer;
use crate::agent::{AgentTurn, Fate, NotStarted, State, TextPart};
use crate::driver::{AWAY, KILLED, MODEL_FAILED, NOT_KNOWN, SUB_AGENT_FAILED, UNREAD};
use crate::other_client;
use crate::stage::Stage;
use crate::store::folded;
use crate::user::owner;
use crate::world::{TURN_LIMIT, Tally, World};

/// Responses that users got, which therefore must stay true.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    promised: Mutex<Promised>,
}

#[derive(Debug, Default)]
struct Promised {
    /// The task of each message.
    messages: BTreeMap<MessageId, TaskId>,
    /// The messages that were to answer an ask. They are in the task only if they did: another answer may have been faster.
    answers: BTreeMap<MessageId, RecordedAnswer>,
    made: Vec<Made>,
    wants_to_cancel: BTreeSet<TaskId>,
    canceled: BTreeSet<TaskId>,
}

/// A message that created a task.
#[derive(Debug)]
struct Made {
    context: String,
    words: String,
    task: TaskId,
    /// When it was first sent, and when its sender knew that it exists.
    began: u64,
    told: u64,
}

impl Oracle {
    fn promised(&self) -> MutexGuard<'_, Promised> {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A random task that some user created.
    pub(crate) fn some_task(&self, stage: &Stage) -> Option<TaskId> {
        let promised = self.promised();
        if promised.made.is_empty() {
            return None;
        }
        Some(stage.draw(|chance| chance.pick(&promised.made).task.clone()))
    }

    /// A repeated message leads to the same task.
    pub(crate) fn told(&self, stage: &Stage, message: &MessageId, task: &TaskId) {
        let mut promised = self.promised();
        let before = promised.messages.entry(message.clone()).or_insert_with(|| task.clone());
        if before != task {
            stage.find(format_args!("{message} is with {before} and with {task}"));
        }
    }

    /// Records that a message is to answer an ask: this one, if it names one.
    pub(crate) fn is_answer(&self, message: &MessageId, named: Option<(&RequestId, Answer)>) {
        let named = named.map(|(request, answer)| (request.clone(), answer));
        self.promised().answers.insert(message.clone(), RecordedAnswer { named, told: Vec::new() });
    }

    /// The answer was accepted, or refused for good.
    pub(crate) fn answer_was_told(&self, message: &MessageId, is_taken: bool) {
        if let Some(answer) = self.promised().answers.get_mut(message) {
            answer.told.push(is_taken);
        }
    }

    pub(crate) fn made(&self, stage: &Stage, context: &str, words: &str, task: &TaskId, began: u64) {
        let (context, words, task) = (context.to_owned(), words.to_owned(), task.clone());
        self.promised().made.push(Made { context, words, task, began, told: stage.tick() });
    }

    pub(crate) fn wants_to_cancel(&self, task: &TaskId) {
        self.promised().wants_to_cancel.insert(task.clone());
    }

    pub(crate) fn canceled(&self, world: &World, task: &TaskId, snapshot: &Snapshot) {
        self.promised().canceled.insert(task.clone());
        world.check_snapshot(task, snapshot);
        if snapshot.task.status.state != TaskState::Canceled {
            world
                .stage
                .find(format_args!("{task} is said to be canceled and is {}", snapshot.task.status.state));
        }
    }

    /// Checks the final state, when nothing moves any more.
    pub(crate) fn judge(&self, world: &World) -> Tally {
        let promised = self.promised();
        let agent = world.agent.state();
        let made = world.store.made();
        let mut tasks = BTreeMap::new();
        for (owner, id) in &made {
            let log = world.store.log(id);
            check_log(&world.stage, id, &log);
            let stored = world.store.task(owner, id);
            let Some(task) = folded(id, &log, Seq(u64::MAX)) else {
                world.stage.find(format_args!("{id} has no first event"));
                continue;
            };
            if stored.map(|stored| stored.task).as_ref() != Some(&task) {
                world.stage.find(format_args!("{id} is not what its log makes of it"));
            }
            check_asks(&world.stage, id, &log, &agent);
            if task.parent.is_none() {
                promised.check_truth(&world.stage, &task, &log, &agent);
            }
            tasks.insert(id.clone(), task);
        }
        for task in tasks.values().filter(|task| task.parent.is_some()) {
            promised.check_sub_agent(&world.stage, task, &tasks, &agent);
        }
        promised.check_messages(&world.stage, &tasks);
        answers::check(world, &promised.answers, &agent);
        promised.check_message_order(&world.stage, &agent);
        other_client::check(world, &tasks, &agent);
        let mut tally = Tally::default();
        for task in tasks.values().filter(|task| task.parent.is_none()) {
            tally.made += 1;
            tally.completed += usize::from(task.status.state == TaskState::Completed);
        }
        tally
    }
}

/// Rules that must hold at the moment of observation.
impl World {
    pub(crate) fn check_answered(&self, request: &RequestId) {
        if self.store.interrupt_of(request).is_none_or(|ask| ask.is_open()) {
            self.stage.find(format_args!("{request} is said to be answered and is open"));
        }
    }

    /// One event that a reader gets after its cursor.
    pub(crate) fn check_entry(&self, task: &TaskId, cursor: Seq, entry: &Entry) {
        if entry.seq != cursor.next() {
            self.stage.find(format_args!("a reader of {task} gets {} behind {cursor}", entry.seq));
        }
        match self.store.entry(task, entry.seq) {
            None => self.stage.find(format_args!("{task} {} is seen before it is kept", entry.seq)),
            Some(kept) if kept != *entry => {
                self.stage
                    .find(format_args!("{task} {} is not what was seen: {entry:?}, {kept:?}", entry.seq));
            }
            Some(_) => {}
        }
    }

    /// A task as of some event.
    pub(crate) fn check_snapshot(&self, task: &TaskId, snapshot: &Snapshot) {
        let log = self.store.log(task);
        if log.last().is_none_or(|last| last.seq < snapshot.seq) {
            self.stage.find(format_args!("{task} is shown at {}, which is not kept", snapshot.seq));
        } else if folded(task, &log, snapshot.seq).as_ref() != Some(&snapshot.task) {
            self.stage.find(format_args!("{task} is not shown as its log has it at {}", snapshot.seq));
        }
    }

    /// Checks that a reader that saw the end of the task has read the whole log.
    pub(crate) fn check_end(&self, task: &TaskId, cursor: Seq) {
        let log = self.store.log(task);
        let last = log.last().map(|last| (last.seq, last.event.is_terminal()));
        if last != Some((cursor, true)) {
            self.stage.find(format_args!("a reader of {task} ends at {cursor}, and its log at {last:?}"));
        }
    }

    pub(crate) fn check_over(&self, task: &TaskId) {
        let state = self.store.task(&owner(), task).map(|stored| stored.task.status.state);
        if !state.is_some_and(TaskState::is_terminal) {
            self.stage.find(format_args!("{task} is said to be over and is {state:?}"));
        }
    }
}

/// A log has no gaps, and ends once.
fn check_log(stage: &Stage, task: &TaskId, log: &[Entry]) {
    for (entry, number) in log.iter().zip(1..) {
        if entry.seq.0 != number {
            stage.find(format_args!("{task} has {} as its event {number}", entry.seq));
        }
        let is_last = usize::try_from(number).is_ok_and(|number| number == log.len());
        if entry.event.is_terminal() != is_last {
            let as_state = entry.event.status().map(|status| status.state);
            stage.find(format_args!("{task} has {as_state:?} as event {number} of {}", log.len()));
        }
    }
}

/// Every ask is opened once and closed once, and its recorded answer was given.
fn check_asks(stage: &Stage, task: &TaskId, log: &[Entry], agent: &State) {
    let mut open = BTreeSet::new();
    let mut closed = BTreeSet::new();
    for note in log.iter().filter_map(|entry| match &entry.event {
        TaskEvent::Status(update) => update.notes.interrupt.as_ref(),
        _ => None,
    }) {
        let request = &note.request_id;
        match note.phase {
            InterruptPhase::Asked => {
                if closed.contains(request) || !open.insert(request.clone()) {
                    stage.find(format_args!("{task} tells of {request} twice"));
                }
            }
            InterruptPhase::Resolved(resolution) => {
                if !open.remove(request) || !closed.insert(request.clone()) {
                    stage.find(format_args!("{task} closes {request}, which is not open"));
                }
                let is_ours = matches!(resolution, Resolution::Replied | Resolution::Rejected);
                if is_ours && !agent.was_answered(request) {
                    stage.find(format_args!("{request} was not answered, and {task} says so"));
                }
            }
        }
    }
    if !open.is_empty() {
        stage.find(format_args!("{task} is over with open asks: {open:?}"));
    }
}

impl Promised {
    /// A task ends as its turn ended, and its text is what the agent wrote.
    fn check_truth(&self, stage: &Stage, task: &Task, log: &[Entry], agent: &State) {
        let Task { id, status, .. } = task;
        let Messages { began, joined } = Messages::of(log);
        let turns: Vec<_> = began.iter().map(|words| agent.turn_of(words)).collect();
        let last = turns.last().copied().flatten();
        let reason = status.message.as_ref().and_then(words_of).unwrap_or_default();
        let fate = last.map(|(turn, _)| turn.fate);
        if !reason.is_empty() {
            stage.note(format_args!("{id} is {}: {reason}", status.state));
        }
        let is_true = match status.state {
            TaskState::Completed => fate == Some(Fate::Completed),
            TaskState::Canceled => {
                // An abort stops everything that runs in the session.
                self.wants_to_cancel.contains(id) || fate == Some(Fate::Aborted) && agent.is_shared(&began)
            }
            TaskState::Failed
                if task.options.adopted && began.len() == 1 && reason.contains("took longer") =>
            {
                false
            }
            TaskState::Failed => is_true_failure(task, &reason, log, last, agent),
            _ => false,
        };
        if !is_true {
            stage.find(format_args!("{id} {began:?} is {} ({reason}), and its turn {fate:?}", status.state));
        }
        if self.canceled.contains(id) && status.state != TaskState::Canceled {
            stage.find(format_args!("{id} was canceled and is {}", status.state));
        }
        let parts: Vec<&TextPart> = turns.iter().flatten().flat_map(|(turn, _)| &turn.parts).collect();
        check_text(stage, task, &parts);
        let told = log.iter().filter_map(|entry| entry.event.status()?.message.as_ref());
        if status.state != TaskState::Completed
            || told.filter_map(words_of).any(|words| words.contains(UNREAD))
        {
            return;
        }
        for message in joined.iter().filter(|message| task.history.contains(message)) {
            let words = words_of(message);
            let prompts = turns.iter().flatten().flat_map(|(turn, _)| &turn.prompts);
            if !prompts.map(|prompt| &prompt.words).any(|known| Some(known) == words.as_ref()) {
                stage.find(format_args!("{words:?} joined {id} and the agent never had it"));
            }
        }
    }

    /// The same for the task of a sub-agent.
    fn check_sub_agent(&self, stage: &Stage, task: &Task, tasks: &BTreeMap<TaskId, Task>, agent: &State) {
        let Task { id, status, parent, .. } = task;
        let Some(parent) = parent else { return };
        let root = tasks.get(&parent.root).map(|root| root.status.state);
        let child = agent.sub_agent(&parent.session);
        let fate = child.map(|child| child.fate);
        let reason = status.message.as_ref().and_then(words_of).unwrap_or_default();
        let is_true = match status.state {
            TaskState::Completed => fate == Some(Fate::Completed),
            TaskState::Canceled => root == Some(TaskState::Canceled) || self.wants_to_cancel.contains(id),
            TaskState::Failed if reason == SUB_AGENT_FAILED => {
                fate.is_some_and(|fate| !matches!(fate, Fate::Running | Fate::Completed))
            }
            TaskState::Failed if reason.contains("and the sub-agent had not ended") => {
                root == Some(TaskState::Failed)
            }
            _ => false,
        };
        if !is_true {
            stage.find(format_args!(
                "{id} of {} is {} ({reason}), its sub-agent {fate:?} and its root {root:?}",
                parent.session, status.state
            ));
        }
        check_text(stage, task, &child.into_iter().flat_map(|child| &child.parts).collect::<Vec<_>>());
        let namesakes = tasks.values().filter(|other| other.parent.as_ref() == Some(parent));
        if namesakes.count() != 1 {
            stage.find(format_args!("{} has more than one task", parent.session));
        }
    }

    /// Checks that each message is in the history of the task that accepted it.
    fn check_messages(&self, stage: &Stage, tasks: &BTreeMap<TaskId, Task>) {
        for (message, task) in self.messages.iter().filter(|(message, _)| !self.answers.contains_key(message))
        {
            let has_it = |task: &Task| task.history.iter().any(|known| known.id == *message);
            if !tasks.get(task).is_some_and(has_it) {
                stage.find(format_args!("{message} was taken by {task}, and is not there"));
            }
        }
    }

    /// A message whose sender knew of an earlier message in the context is answered after that one.
    fn check_message_order(&self, stage: &Stage, agent: &State) {
        let place = |made: &Made| agent.prompted.iter().position(|words| *words == made.words);
        for first in &self.made {
            let later = self.made.iter().filter(|later| later.context == first.context);
            for second in later.filter(|later| first.told < later.began) {
                if let (Some(one), Some(two)) = (place(first), place(second))
                    && one > two
                {
                    stage.find(format_args!("{} overtook {}", second.words, first.words));
                }
            }
        }
    }
}

/// Whether the stated reason of a failure is true. Every reason must match a fact about the agent, and there are no others: an
/// engine that fails tasks for its own reasons is found.
fn is_true_failure(
    task: &Task,
    reason: &str,
    log: &[Entry],
    turn: Option<(&AgentTurn, bool)>,
    agent: &State,
) -> bool {
    let (id, at) = (&task.id, task.status.at);
    let fate = turn.map(|(turn, _)| turn.fate);
    match reason {
        MODEL_FAILED => fate == Some(Fate::Failed),
        KILLED => fate == Some(Fate::Killed),
        NOT_KNOWN => match turn {
            Some((_, is_known)) => !is_known,
            // The gateway went away between the record of the turn and the prompt.
            None => agent.taken_up.contains(id) && working_since(log).is_some(),
        },
        _ if reason.contains("credentials in time") => fate == Some(Fate::NoCredentials),
        _ if reason.contains("took longer") => {
            // The turn ran when it was aborted. Whether the abort arrived does not matter.
            let ran =
                turn.is_some_and(|(turn, _)| turn.ended.is_none_or(|end| Stage::time_of_day(end) >= at));
            let limit = i64::try_from(TURN_LIMIT.as_millis()).expect("it is short");
            ran && working_since(log).is_some_and(|since| at.0 - since.0 >= limit)
        }
        // The driver reported this before the prompt. An agent that is away is waited for until then.
        _ => {
            let is_so = |last: &NotStarted| last.why == reason && (last.was_prompting || reason != AWAY);
            turn.is_none() && agent.not_started.get(id).is_some_and(is_so)
        }
    }
}

/// The time when the last turn of a task began.
fn working_since(log: &[Entry]) -> Option<Timestamp> {
    let statuses = log.iter().filter_map(|entry| entry.event.status());
    let turn: Vec<_> = statuses.rev().take_while(|status| status.state != TaskState::Submitted).collect();
    turn.into_iter().rev().find(|status| status.state == TaskState::Working).map(|status| status.at)
}

/// The complete text of a completed turn, in order; otherwise a prefix of each part.
fn check_text(stage: &Stage, task: &Task, parts: &[&TextPart]) {
    let told: Vec<(&str, String)> = task
        .artifacts
        .iter()
        .map(|artifact| {
            let text = artifact.parts.iter().filter_map(|part| part.as_text()).collect();
            (artifact.id.as_str(), text)
        })
        .collect();
    if task.status.state == TaskState::Completed {
        let written: Vec<(&str, String)> =
            parts.iter().map(|part| (part.id.as_str(), part.text.clone())).collect();
        if told != written {
            stage.find(format_args!("{} has {told:?}, and the agent wrote {written:?}", task.id));
        }
        return;
    }
    for (id, text) in told {
        let part = parts.iter().find(|part| part.id == id);
        if !part.is_some_and(|part| part.text.starts_with(&text)) {
            stage.find(format_args!("{} has {text:?} in {id}, and the agent wrote {part:?}", task.id));
        }
    }
}

/// The messages of a task's user by their purpose, without those that answered an ask.
struct Messages {
    /// The words that each started a turn, or were to.
    began: Vec<String>,
    joined: Vec<Message>,
}

impl Messages {
    fn of(log: &[Entry]) -> Self {
        let mut messages = Self { began: Vec::new(), joined: Vec::new() };
        for entry in log {
            match &entry.event {
                TaskEvent::Submitted { message, .. } => messages.began.extend(words_of(message)),
                TaskEvent::Status(update) => match &update.joined {
                    Some(message) if update.status.state == TaskState::Submitted => {
                        messages.began.extend(words_of(message));
                    }
                    Some(message) if update.notes.interrupt.is_none() => {
                        messages.joined.push(message.clone());
                    }
                    _ => {}
                },
                TaskEvent::Artifact(_) => {}
            }
        }
        messages
    }
}

/// The text of a message for the agent.
fn words_of(message: &Message) -> Option<String> {
    match &message.parts.first()?.content {
        PartContent::Text(text) => Some(text.clone()),
        PartContent::Data(data) => Some(data.get().to_owned()),
        _ => None,
    }
}
