//! Another client of the agent, which types into the sessions of the gateway's users, and what the gateway learns of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_engine::port::{ExternalTurn, Session};
use longshore_model::{Part, SessionId, Task, TaskId};
use longshore_testkit::external_turns::ExternalTurnSource;
use tokio::sync::{Notify, mpsc};

use crate::agent::{AgentTurn, Fate, SimAgent, State};
use crate::stage::Stage;
use crate::world::World;

/// Types some prompts, and waits until each one that was reported to the gateway is a task.
pub(crate) async fn live(world: Arc<World>) {
    let stage = &world.stage;
    for number in 1..=stage.draw(|chance| chance.between(1, 4)) {
        stage.wait(0, 3000).await;
        let sessions: Vec<SessionId> = world.agent.state().sessions.keys().cloned().collect();
        let owned: Vec<_> = sessions.into_iter().filter(|session| world.store.is_owned(session)).collect();
        if owned.is_empty() {
            continue;
        }
        let session = stage.draw(|chance| chance.pick(&owned).clone());
        let words = format!("typed{number}");
        if world.agent.type_into(&session, &words) {
            stage.note(format_args!("stranger: types {words} into {session}"));
        }
    }
    // An ask is answered only through a gateway that has a task for it.
    while has_to_wait(&world) {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// An external prompt is at most one task, and exactly one if it was reported to a gateway that still runs.
pub(crate) fn check(world: &World, tasks: &BTreeMap<TaskId, Task>, agent: &State) {
    for turn in typed(agent) {
        let words = &turn.prompts[0].words;
        let of_it = tasks.values().filter(|task| is_of(task, words) && task.parent.is_none()).count();
        if of_it > 1 {
            world.stage.find(format_args!("{words} has {of_it} tasks"));
        }
    }
    for words in missing(world, agent) {
        world.stage.find(format_args!("{words} was typed, and is no task"));
    }
}

impl State {
    /// Whether another client typed in the session of these turns.
    pub(crate) fn is_shared(&self, began: &[String]) -> bool {
        let is_one = |turn: &AgentTurn| began.contains(&turn.prompts[0].words);
        let mut shared = self.sessions.values().filter(|session| session.turns.iter().any(is_one));
        shared.any(|session| session.turns.iter().any(|turn| turn.is_typed))
    }
}

fn typed(agent: &State) -> impl Iterator<Item = &AgentTurn> {
    agent.sessions.values().flat_map(|session| &session.turns).filter(|turn| turn.is_typed)
}

fn is_of(task: &Task, words: &str) -> bool {
    let first = task.history.first().and_then(|message| message.parts.first());
    first.and_then(Part::as_text) == Some(words)
}

fn has_to_wait(world: &World) -> bool {
    let agent = world.agent.state();
    typed(&agent).any(|turn| turn.fate == Fate::Running) || !missing(world, &agent).is_empty()
}

/// The words that were reported to the current gateway and have no task.
fn missing(world: &World, agent: &State) -> Vec<String> {
    let made: Vec<Task> =
        world.store.made().iter().filter_map(|(owner, id)| Some(world.store.task(owner, id)?.task)).collect();
    let is_told = |turn: &&AgentTurn| turn.told_to == Some(world.life());
    let words = typed(agent).filter(is_told).map(|turn| turn.prompts[0].words.clone());
    words.filter(|words| !made.iter().any(|task| is_of(task, words))).collect()
}

/// What one gateway learns of external turns.
#[derive(Debug)]
pub(crate) struct SimControl {
    tasks: Tasks,
    watcher: Arc<Watcher>,
}

#[derive(Debug)]
struct Watcher {
    agent: Arc<SimAgent>,
    life: u64,
    watched: Mutex<BTreeMap<SessionId, Session>>,
    /// One more session is watched.
    more: Notify,
}

impl SimControl {
    pub(crate) fn new(agent: &Arc<SimAgent>, tasks: &Tasks, life: u64) -> Arc<Self> {
        let agent = Arc::clone(agent);
        let watcher = Watcher { agent, life, watched: Mutex::default(), more: Notify::new() };
        Arc::new(Self { tasks: tasks.clone(), watcher: Arc::new(watcher) })
    }
}

impl Watcher {
    fn watched(&self) -> MutexGuard<'_, BTreeMap<SessionId, Session>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports each running external turn that this gateway was not told about.
    async fn run(self: Arc<Self>, external_turns: mpsc::Sender<ExternalTurn>) {
        let mut changes = self.agent.changes();
        let stage = &self.agent.stage;
        loop {
            changes.borrow_and_update();
            if let Some(external_turn) = self.next() {
                stage.note(format_args!("driver: hears of {}", external_turn.prompt));
                if external_turns.send(external_turn).await.is_err() {
                    return;
                }
                continue;
            }
            tokio::select! {
                biased;
                () = self.more.notified() => {}
                told = changes.changed() => if told.is_err() { return },
            }
            if stage.strikes(|fault_rates| fault_rates.stream_breaks) {
                stage.wait(0, 500).await;
            }
        }
    }

    fn next(&self) -> Option<ExternalTurn> {
        let (watched, mut state) = (self.watched(), self.agent.state());
        if !state.is_up {
            return None;
        }
        let known: Vec<_> = watched.values().filter(|session| state.session(&session.id).is_some()).collect();
        known.into_iter().find_map(|session| {
            let mut turns = state.sessions.get_mut(&session.id)?.turns.iter_mut();
            let turn = turns.find(|turn| {
                turn.is_typed && turn.fate == Fate::Running && turn.told_to != Some(self.life)
            })?;
            turn.told_to = Some(self.life);
            Some(ExternalTurn {
                session: session.clone(),
                prompt: turn.prompts[0].id.clone(),
                engine_prompt: None,
                content: vec![Part::text(turn.prompts[0].words.clone())],
                at: Stage::time_of_day(self.agent.stage.now()),
            })
        })
    }
}

impl ExternalTurnSource for SimControl {
    fn watch(&self, sessions: Vec<Session>) {
        self.watcher.watched().extend(sessions.into_iter().map(|session| (session.id.clone(), session)));
        self.watcher.more.notify_one();
    }

    fn external_turns(&self) -> mpsc::Receiver<ExternalTurn> {
        let (external_turns, receiver) = mpsc::channel(2);
        let (watcher, stop) = (Arc::clone(&self.watcher), self.tasks.stopping().clone());
        self.tasks.spawn("watch", async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = watcher.run(external_turns) => {}
            }
        });
        receiver
    }
}
