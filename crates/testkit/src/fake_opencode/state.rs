//! What all parts of the fake share: its world, its readers, its scripts and the log of requests.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_engine::Tasks;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::control::Shell;
use super::fault::{Fault, Rule};
use super::gate::Gate;
use super::global::{Globals, Place};
use super::project::{PROJECT_ID, Project};
use super::request_log::RequestLog;
use super::script::Script;
use super::streams::{Connection, Deliveries, Streams};
use super::truth::Truth;
use super::turn::Turn;
use super::world::World;

/// How long a test waits for something that must come. Longer than any pause of a gateway.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) tasks: Tasks,
    /// Where the server "runs": the directory of requests that name none.
    pub(super) directory: String,
    /// Where it makes worktrees.
    pub(super) data: String,
    pub(super) authorization: Option<String>,
    pub(super) heartbeat: Duration,
    state: Mutex<State>,
    /// Counts changes of the log, the readers and the scripts; whoever waits for one looks again.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) world: World,
    pub(super) project: Project,
    pub(super) version: String,
    pub(super) streams: Streams,
    pub(super) globals: Globals,
    /// Directories that somebody had removed, whether they were there or not.
    pub(super) removed: Vec<String>,
    pub(super) log: RequestLog,
    pub(super) truth: Truth,
    pub(super) rules: Vec<Rule>,
    pub(super) scripts: VecDeque<Script>,
    /// What prompts do that nothing was queued for, one after the other and then from the start again.
    pub(super) otherwise: VecDeque<Turn>,
    /// What the next shell commands print.
    pub(super) shells: VecDeque<Shell>,
    /// Where the next summaries wait.
    pub(super) summaries: VecDeque<Gate>,
    /// What the next `POST /session` answers: the sessions of the recordings that will be played.
    pub(super) sessions: VecDeque<Value>,
    pub(super) renamed: HashMap<String, String>,
    /// How many scripts run or wait, by session.
    pub(super) turns: HashMap<String, usize>,
    /// Sessions play one script at a time.
    pub(super) lanes: HashMap<String, Arc<tokio::sync::Mutex<()>>>,
    /// Somebody holds the port.
    pub(super) listening: bool,
    /// Ends the connections and scripts of this life of the server.
    pub(super) life: CancellationToken,
}

impl Shared {
    pub(super) fn new(
        directory: String,
        data: String,
        authorization: Option<String>,
        heartbeat: Duration,
    ) -> Self {
        let state = State {
            world: World::default(),
            project: Project::default(),
            version: String::new(),
            streams: Streams::default(),
            globals: Globals::default(),
            removed: Vec::new(),
            log: RequestLog::default(),
            truth: Truth::default(),
            rules: Vec::new(),
            scripts: VecDeque::new(),
            otherwise: VecDeque::from([Turn::new().text("unscripted", 1)]),
            shells: VecDeque::new(),
            summaries: VecDeque::new(),
            sessions: VecDeque::new(),
            renamed: HashMap::new(),
            turns: HashMap::new(),
            lanes: HashMap::new(),
            listening: false,
            life: CancellationToken::new(),
        };
        let (tasks, changes) = (Tasks::new(), watch::Sender::new(0));
        Self { tasks, directory, data, authorization, heartbeat, state: Mutex::new(state), changes }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes whoever waits for it.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changes.send_modify(|count| *count += 1);
        changed
    }

    /// Waits until `look` finds what it looks for.
    pub(super) async fn wait_for<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut changes = self.changes.subscribe();
        loop {
            changes.mark_unchanged();
            if let Some(found) = look(&mut self.lock()) {
                return found;
            }
            // The sender is ours; it cannot be gone.
            let _ = changes.changed().await;
        }
    }

    /// The same for a test, which is told what never came.
    pub(super) async fn expect<T>(&self, what: &str, look: impl FnMut(&mut State) -> Option<T>) -> T {
        let found = tokio::time::timeout(PATIENCE, self.wait_for(look)).await;
        found.unwrap_or_else(|_| panic!("still waiting for {what}; the log is {:#?}", self.lock().log))
    }

    /// Folds an event in and sends it to the readers of its directory.
    pub(super) async fn emit(&self, event: &Value) {
        self.emit_in(&CancellationToken::new(), event).await;
    }

    /// The same for a script, which says nothing more once its life of the server is over.
    pub(super) async fn emit_in(&self, life: &CancellationToken, event: &Value) {
        self.wait_for(|state| (!state.streams.awaits_reader()).then_some(())).await;
        let deliveries = self.change(|state| {
            // Looked at under the lock: whoever kills the server forgets in the same step what ran.
            if life.is_cancelled() {
                return Vec::new();
            }
            let properties = &event["properties"];
            let of_session = properties["sessionID"].as_str();
            state.world.apply(event);
            state.truth.note(event);
            let info = of_session.and_then(|session| state.world.known(session));
            let field = |name: &str| info.and_then(|info| info[name].as_str()).map(str::to_owned);
            let directory = field("directory").or_else(|| Some(properties["directory"].as_str()?.to_owned()));
            let directory = directory.unwrap_or_else(|| self.directory.clone());
            let (project, workspace) = (field("projectID"), field("workspaceID"));
            let project = Some(project.as_deref().unwrap_or(PROJECT_ID));
            let place = Place { directory: &directory, project, workspace: workspace.as_deref() };
            let mut deliveries = state.streams.route(event, &directory, workspace.as_deref());
            deliveries.extend(state.globals.tell(place, event));
            deliveries
        });
        Self::deliver(deliveries).await;
    }

    /// Sends an event to `/global/event` alone.
    pub(super) async fn tell_world(&self, place: Place<'_>, event: &Value) {
        let deliveries = self.change(|state| state.globals.tell(place, event));
        Self::deliver(deliveries).await;
    }

    async fn deliver(deliveries: Deliveries) {
        for (reader, chunk) in deliveries {
            // A reader that left misses the event.
            let _ = reader.send(chunk).await;
        }
    }

    /// A new `/event` stream. Waits while a cut keeps readers away.
    pub(super) async fn connect(&self, directory: &str, workspace: Option<&str>) -> Connection {
        self.wait_for(|state| (!state.streams.closed_to_readers()).then_some(())).await;
        self.change(|state| state.streams.connect(directory, workspace))
    }

    /// The fault that this request meets, counted.
    pub(super) fn fault(&self, method: &str, path: &str) -> Option<Fault> {
        let mut state = self.lock();
        let rule = state.rules.iter_mut().find(|rule| rule.matches(method, path))?;
        rule.left = rule.left.map(|left| left - 1);
        Some(rule.fault.clone())
    }
}

impl State {
    /// What the next prompt does: what the test queued, else the next of the others.
    pub(super) fn next_script(&mut self) -> Script {
        self.scripts.pop_front().unwrap_or_else(|| {
            let turn = self.otherwise.front().cloned().unwrap_or_default();
            self.otherwise.rotate_left(1.min(self.otherwise.len()));
            Script::Written(turn)
        })
    }
}
