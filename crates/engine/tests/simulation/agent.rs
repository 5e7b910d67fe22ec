//! A small coding agent. It outlives the engine, can itself be killed, and knows what it really did.
//!
//! The agent stores a text only when its part ends: a driver that did not listen meanwhile misses the text until then, and for
//! ever if the agent is killed first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_engine::port::Session;
use longshore_model::{Answer, PromptId, RequestId, Resolution, SessionId, TaskId};
use tokio::sync::watch;

use crate::stage::{Stage, TaskGroup};

#[derive(Debug)]
pub(crate) struct SimAgent {
    pub(crate) stage: Arc<Stage>,
    tasks: Tasks,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) is_up: bool,
    pub(crate) sessions: BTreeMap<SessionId, Conversation>,
    /// The prompts, in order.
    pub(crate) prompted: Vec<String>,
    /// The tasks whose turns were resumed.
    pub(crate) taken_up: BTreeSet<TaskId>,
    /// Why the last attempt to start a turn of the task failed, if it did.
    pub(crate) not_started: BTreeMap<TaskId, NotStarted>,
    names: u64,
}

#[derive(Debug)]
pub(crate) struct NotStarted {
    pub(crate) why: String,
    /// The prompt was on its way, so it must not be sent again.
    pub(crate) was_prompting: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Conversation {
    is_forgotten: bool,
    pub(crate) turns: Vec<AgentTurn>,
}

/// What the agent does between two idle times, and its result.
#[derive(Clone, Debug)]
pub(crate) struct AgentTurn {
    /// The prompt that started the turn, then those that joined it.
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) parts: Vec<TextPart>,
    /// Including those of the sub-agents.
    pub(crate) asks: Vec<AgentAsk>,
    pub(crate) children: Vec<SubAgent>,
    pub(crate) fate: Fate,
    /// The time of the end, unless the turn runs.
    pub(crate) ended: Option<Duration>,
    /// Another client typed the prompt.
    pub(crate) is_typed: bool,
    /// The number of the gateway that was last told about an external turn.
    pub(crate) told_to: Option<u64>,
}

/// A sub-agent that the turn calls. The turn waits for it.
#[derive(Clone, Debug)]
pub(crate) struct SubAgent {
    pub(crate) session: SessionId,
    pub(crate) call: String,
    pub(crate) prompt: PromptId,
    pub(crate) words: String,
    pub(crate) parts: Vec<TextPart>,
    pub(crate) fate: Fate,
}

/// Who writes in a turn: the agent itself, or one of its sub-agents.
type Voice = Option<usize>;

#[derive(Clone, Debug)]
pub(crate) struct Prompt {
    pub(crate) id: PromptId,
    pub(crate) words: String,
    is_answered: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct TextPart {
    pub(crate) id: String,
    pub(crate) text: String,
    /// Stored from here on.
    pub(crate) has_ended: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct AgentAsk {
    pub(crate) id: RequestId,
    pub(crate) session: SessionId,
    /// `None`: the ask is open.
    pub(crate) closed: Option<Resolution>,
    /// The answer that came through the gateway, if one closed the ask.
    pub(crate) answer: Option<Answer>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Running,
    Completed,
    Failed,
    /// The provider refused the agent's credentials.
    NoCredentials,
    Aborted,
    /// The agent was killed during the turn.
    Killed,
}

/// How a turn answers one prompt.
struct Plan {
    parts: u64,
    words: u64,
    /// The number of simultaneous asks.
    asks: u64,
    calls: bool,
    ends: Fate,
    /// The pause between two words.
    pause: u64,
}

impl Plan {
    fn of(stage: &Stage) -> Self {
        stage.draw(|chance| Self {
            parts: chance.between(1, 2),
            words: chance.between(1, 4),
            asks: *chance.pick(&[0, 0, 0, 0, 0, 0, 1, 1, 2]),
            calls: chance.one_in(6),
            ends: match chance.below(24) {
                0 | 1 => Fate::Failed,
                2 => Fate::NoCredentials,
                _ => Fate::Completed,
            },
            pause: if chance.one_in(40) { 15_000 } else { *chance.pick(&[0, 5, 60, 400]) },
        })
    }
}

impl SimAgent {
    pub(crate) fn new(stage: &Arc<Stage>) -> Arc<Self> {
        Arc::new(Self {
            stage: Arc::clone(stage),
            tasks: Tasks::simulated(TaskGroup::new(stage)),
            state: Mutex::new(State { is_up: true, ..State::default() }),
            changes: watch::Sender::new(0),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies of every change.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn tell(&self) {
        self.changes.send_modify(|number| *number += 1);
    }

    /// Everything that runs is lost, and perhaps some sessions too.
    pub(crate) fn kill(&self) {
        self.stage.note(format_args!("agent: killed"));
        let mut state = self.state();
        state.is_up = false;
        let now = self.stage.now();
        for (name, session) in &mut state.sessions {
            for turn in session.turns.iter_mut().filter(|turn| turn.fate == Fate::Running) {
                turn.end(Fate::Killed, now);
            }
            if self.stage.draw(|chance| chance.one_in(6)) {
                self.stage.note(format_args!("agent: {name} is forgotten"));
                session.is_forgotten = true;
            }
        }
        drop(state);
        self.tell();
    }

    pub(crate) fn come_back(&self) {
        self.stage.note(format_args!("agent: back"));
        self.state().is_up = true;
        self.tell();
    }

    pub(crate) fn open(&self, directory: &str) -> Session {
        let mut state = self.state();
        let id = SessionId::parse(&state.name("ses")).expect("letters and digits");
        state.sessions.insert(id.clone(), Conversation::default());
        Session { id, directory: directory.to_owned() }
    }

    /// Accepts a prompt and starts to answer it, in the running turn or in a new one. `goes_on`: the turn of this prompt continues,
    /// even if it was idle meanwhile.
    pub(crate) fn take(
        self: &Arc<Self>,
        session: &SessionId,
        id: &PromptId,
        words: String,
        goes_on: Option<&PromptId>,
    ) {
        self.stage.note(format_args!("agent: {session} takes {id} ({words})"));
        let mut state = self.state();
        if state.prompted.contains(&words) {
            self.stage.find(format_args!("{words:?} is prompted twice"));
        }
        state.prompted.push(words.clone());
        let conversation = state.sessions.entry(session.clone()).or_default();
        if conversation.turns.iter().flat_map(|turn| &turn.prompts).any(|known| known.id == *id) {
            self.stage.find(format_args!("the prompt {id} is used twice"));
        }
        let prompt = Prompt { id: id.clone(), words, is_answered: false };
        let index = goes_on.and_then(|first| conversation.index(first));
        // Another client types at any time.
        let is_running = conversation.turns.iter().any(|turn| turn.fate == Fate::Running && !turn.is_typed);
        let index = if let Some(index) = index {
            let turn = &mut conversation.turns[index];
            turn.prompts.push(prompt);
            if turn.fate == Fate::Running {
                None
            } else {
                (turn.fate, turn.ended) = (Fate::Running, None);
                Some(index)
            }
        } else {
            if is_running {
                self.stage.find(format_args!("{id} is prompted while {session} is at work"));
            }
            conversation.turns.push(AgentTurn::new(prompt));
            Some(conversation.turns.len() - 1)
        };
        drop(state);
        self.tell();
        if let Some(index) = index {
            self.tasks.spawn("agent-turn", Arc::clone(self).play(session.clone(), index));
        }
    }

    /// Another client types this, if the session exists and is idle. Returns whether it does.
    pub(crate) fn type_into(self: &Arc<Self>, session: &SessionId, words: &str) -> bool {
        let mut state = self.state();
        let is_free = state.session(session).is_some_and(|session| !session.is_busy());
        if !state.is_up || !is_free {
            return false;
        }
        let prompt = Prompt { id: state.new_prompt(), words: words.to_owned(), is_answered: false };
        let Some(conversation) = state.sessions.get_mut(session) else { return false };
        conversation.turns.push(AgentTurn { is_typed: true, ..AgentTurn::new(prompt) });
        let index = conversation.turns.len() - 1;
        drop(state);
        self.tell();
        self.tasks.spawn("agent-turn", Arc::clone(self).play(session.clone(), index));
        true
    }

    /// Works until every prompt of the turn is answered.
    async fn play(self: Arc<Self>, session: SessionId, index: usize) {
        loop {
            let unanswered = self.in_turn(&session, index, |turn| {
                let next = turn.prompts.iter_mut().find(|prompt| !prompt.is_answered);
                let words = next.map(|prompt| {
                    prompt.is_answered = true;
                    prompt.words.clone()
                });
                if words.is_none() {
                    turn.end(Fate::Completed, self.stage.now());
                }
                words
            });
            let Some(Some(words)) = unanswered else { break };
            if self.answer(&session, index, &words).await.is_none() {
                break;
            }
        }
        self.tell();
    }

    /// Answers one prompt. `None`: the turn is over.
    async fn answer(&self, session: &SessionId, index: usize, words: &str) -> Option<()> {
        let plan = Plan::of(&self.stage);
        self.write(session, index, None, words, &plan).await?;
        if plan.calls {
            self.call(session, index, words).await?;
        }
        self.in_turn(session, index, |turn| {
            if plan.ends != Fate::Completed {
                turn.end(plan.ends, self.stage.now());
            }
        });
        Some(())
    }

    /// Calls a sub-agent.
    async fn call(&self, session: &SessionId, index: usize, words: &str) -> Option<()> {
        let (child, voice) = {
            let mut state = self.state();
            let (child, call) = (state.name("ses"), state.name("call"));
            let child = SessionId::parse(&child).expect("letters and digits");
            let sub_agent = SubAgent {
                session: child.clone(),
                call,
                prompt: state.new_prompt(),
                words: format!("{words}.child"),
                parts: Vec::new(),
                fate: Fate::Running,
            };
            let turn = state.sessions.get_mut(session)?.turns.get_mut(index)?;
            turn.children.push(sub_agent);
            (child, turn.children.len() - 1)
        };
        self.stage.note(format_args!("agent: calls {child}"));
        self.tell();
        let plan = Plan::of(&self.stage);
        self.write(session, index, Some(voice), &format!("{words}.child"), &plan).await?;
        let fate = if plan.ends == Fate::Completed { Fate::Completed } else { Fate::Failed };
        self.in_turn(session, index, |turn| turn.children[voice].fate = fate)
    }

    /// Writes the planned text, with asks in between.
    async fn write(
        &self,
        session: &SessionId,
        index: usize,
        voice: Voice,
        words: &str,
        plan: &Plan,
    ) -> Option<()> {
        for part in 0..plan.parts {
            self.stage.wait(0, plan.pause).await;
            let id = self.state().name("prt");
            self.in_turn(session, index, |turn| {
                turn.parts_of(voice).push(TextPart { id, text: String::new(), has_ended: false });
            })?;
            for word in 0..plan.words {
                self.in_turn(session, index, |turn| {
                    let text = &mut turn.parts_of(voice).last_mut().expect("it was made above").text;
                    write!(text, "{words}.{part}.{word} ").expect("a string takes everything");
                })?;
                self.stage.wait(0, plan.pause).await;
            }
            self.in_turn(session, index, |turn| {
                turn.parts_of(voice).last_mut().expect("it was made above").has_ended = true;
            })?;
            if part == 0 && plan.asks > 0 {
                self.ask(session, index, voice, plan.asks).await?;
            }
        }
        Some(())
    }

    /// Opens several asks, and waits until all are closed.
    async fn ask(&self, session: &SessionId, index: usize, voice: Voice, count: u64) -> Option<()> {
        let mut changes = self.changes();
        let mut asked = Vec::new();
        for _ in 0..count {
            let id = RequestId::parse(&self.state().name("per")).expect("letters and digits");
            asked.push(id.clone());
            self.stage.note(format_args!("agent: asks {id}"));
            self.in_turn(session, index, |turn| {
                let session = voice.map_or(session, |voice| &turn.children[voice].session).clone();
                turn.asks.push(AgentAsk { id, session, closed: None, answer: None });
            })?;
        }
        if self.stage.draw(|chance| chance.one_in(10)) {
            // Another client answers.
            self.stage.wait(0, 3000).await;
            self.close(session, &asked[0], Resolution::Elsewhere, None);
        }
        loop {
            let is_open = |turn: &mut AgentTurn| {
                turn.asks.iter().any(|ask| asked.contains(&ask.id) && ask.closed.is_none())
            };
            if !self.in_turn_silently(session, index, is_open)? {
                return Some(());
            }
            changes.changed().await.ok()?;
        }
    }

    /// Closes an open ask. `false`: it is not open.
    pub(crate) fn close(
        &self,
        session: &SessionId,
        request: &RequestId,
        resolution: Resolution,
        answer: Option<&Answer>,
    ) -> bool {
        let mut state = self.state();
        let turns = state.sessions.get_mut(session).into_iter().flat_map(|session| &mut session.turns);
        let found =
            turns.flat_map(|turn| &mut turn.asks).find(|ask| ask.id == *request && ask.closed.is_none());
        let Some(ask) = found else { return false };
        (ask.closed, ask.answer) = (Some(resolution), answer.cloned());
        drop(state);
        self.tell();
        true
    }

    pub(crate) fn stop(&self, session: &SessionId) {
        let mut state = self.state();
        let Some(conversation) = state.sessions.get_mut(session) else { return };
        for turn in conversation.turns.iter_mut().filter(|turn| turn.fate == Fate::Running) {
            turn.end(Fate::Aborted, self.stage.now());
            self.stage.note(format_args!("agent: the turn of {} is aborted", turn.prompts[0].words));
        }
        drop(state);
        self.tell();
    }

    /// Changes a running turn and notifies. `None`: the turn does not run.
    fn in_turn<T>(
        &self,
        session: &SessionId,
        index: usize,
        change: impl FnOnce(&mut AgentTurn) -> T,
    ) -> Option<T> {
        let done = self.in_turn_silently(session, index, change)?;
        self.tell();
        Some(done)
    }

    fn in_turn_silently<T>(
        &self,
        session: &SessionId,
        index: usize,
        change: impl FnOnce(&mut AgentTurn) -> T,
    ) -> Option<T> {
        let mut state = self.state();
        let turn = state.sessions.get_mut(session)?.turns.get_mut(index)?;
        (turn.fate == Fate::Running).then(|| change(turn))
    }
}

impl State {
    /// `None`: the session does not exist, or no longer.
    pub(crate) fn session(&self, id: &SessionId) -> Option<&Conversation> {
        self.sessions.get(id).filter(|session| !session.is_forgotten)
    }

    /// The turn that started with these words, in any session, and whether the agent still knows it.
    pub(crate) fn turn_of(&self, words: &str) -> Option<(&AgentTurn, bool)> {
        self.sessions.values().find_map(|session| {
            let turn = session.turns.iter().find(|turn| turn.prompts[0].words == words)?;
            Some((turn, !session.is_forgotten))
        })
    }

    pub(crate) fn sub_agent(&self, session: &SessionId) -> Option<&SubAgent> {
        let turns = self.sessions.values().flat_map(|session| &session.turns);
        turns.flat_map(|turn| &turn.children).find(|child| child.session == *session)
    }

    /// An answer to this ask came through the gateway.
    pub(crate) fn was_answered(&self, request: &RequestId) -> bool {
        self.asks().any(|ask| ask.id == *request && ask.answer.is_some())
    }

    /// All asks so far.
    pub(crate) fn asks(&self) -> impl Iterator<Item = &AgentAsk> {
        self.sessions.values().flat_map(|session| &session.turns).flat_map(|turn| &turn.asks)
    }

    fn name(&mut self, kind: &str) -> String {
        self.names += 1;
        format!("{kind}_{}", self.names)
    }

    pub(crate) fn new_prompt(&mut self) -> PromptId {
        PromptId::parse(&self.name("msg")).expect("letters and digits")
    }
}

impl Conversation {
    pub(crate) fn is_busy(&self) -> bool {
        self.turns.iter().any(|turn| turn.fate == Fate::Running)
    }

    fn index(&self, first: &PromptId) -> Option<usize> {
        self.turns.iter().position(|turn| turn.prompts[0].id == *first)
    }

    pub(crate) fn turn(&self, first: &PromptId) -> Option<&AgentTurn> {
        self.turns.get(self.index(first)?)
    }
}

impl AgentTurn {
    fn new(prompt: Prompt) -> Self {
        Self {
            prompts: vec![prompt],
            parts: Vec::new(),
            asks: Vec::new(),
            children: Vec::new(),
            fate: Fate::Running,
            ended: None,
            is_typed: false,
            told_to: None,
        }
    }

    fn parts_of(&mut self, voice: Voice) -> &mut Vec<TextPart> {
        match voice {
            Some(child) => &mut self.children[child].parts,
            None => &mut self.parts,
        }
    }

    fn end(&mut self, fate: Fate, now: Duration) {
        (self.fate, self.ended) = (fate, Some(now));
        for child in self.children.iter_mut().filter(|child| child.fate == Fate::Running) {
            child.fate = fate;
        }
        for ask in self.asks.iter_mut().filter(|ask| ask.closed.is_none()) {
            ask.closed = Some(Resolution::Dropped);
        }
    }
}
