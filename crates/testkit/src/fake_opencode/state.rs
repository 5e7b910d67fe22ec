//! The shared state of the fake: its sessions, its readers, its scripts and the log of requests.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_engine::Tasks;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::control::Shell;
use super::fault::{Fault, Rule};
use super::global::{Globals, Location};
use super::project::{PROJECT_ID, Project};
use super::prompt_records::PromptRecords;
use super::request_log::RequestLog;
use super::script::Script;
use super::streams::{Connection, Deliveries, Streams};
use super::turn::Turn;
use super::world::World;

/// How long a test waits for an event. Longer than any pause of a gateway.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) tasks: Tasks,
    /// The directory of requests that name none.
    pub(super) directory: String,
    /// The parent directory of new worktrees.
    pub(super) data: String,
    pub(super) authorization: Option<String>,
    pub(super) heartbeat: Duration,
    state: Mutex<State>,
    /// Counts changes of the state. A waiting task checks its condition again after each.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) world: World,
    pub(super) project: Project,
    pub(super) version: String,
    pub(super) streams: Streams,
    pub(super) globals: Globals,
    /// Directories that requests asked to remove, whether they existed or not.
    pub(super) removed: Vec<String>,
    pub(super) log: RequestLog,
    pub(super) prompt_records: PromptRecords,
    pub(super) rules: Vec<Rule>,
    pub(super) scripts: VecDeque<Script>,
    /// The turns of prompts for which nothing is queued: one after the other, then from the start again.
    pub(super) otherwise: VecDeque<Turn>,
    /// The results of the next shell commands.
    pub(super) shells: VecDeque<Shell>,
    /// The answers to the next `POST /session`: the sessions of the queued recordings.
    pub(super) sessions: VecDeque<Value>,
    pub(super) renamed: HashMap<String, String>,
    /// How many scripts run or wait, by session.
    pub(super) turns: HashMap<String, usize>,
    /// One lock per session: a session plays one script at a time.
    pub(super) session_queues: HashMap<String, Arc<tokio::sync::Mutex<()>>>,
    /// The port is bound.
    pub(super) listening: bool,
    /// Ends the connections and scripts when the server is killed.
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
            prompt_records: PromptRecords::default(),
            rules: Vec::new(),
            scripts: VecDeque::new(),
            otherwise: VecDeque::from([Turn::new().text("unscripted", 1)]),
            shells: VecDeque::new(),
            sessions: VecDeque::new(),
            renamed: HashMap::new(),
            turns: HashMap::new(),
            session_queues: HashMap::new(),
            listening: false,
            life: CancellationToken::new(),
        };
        let (tasks, changes) = (Tasks::new(), watch::Sender::new(0));
        Self { tasks, directory, data, authorization, heartbeat, state: Mutex::new(state), changes }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes the waiting tasks.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changes.send_modify(|count| *count += 1);
        changed
    }

    /// Waits until `find` returns a value.
    pub(super) async fn wait_for<T>(&self, mut find: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut changes = self.changes.subscribe();
        loop {
            changes.mark_unchanged();
            if let Some(found) = find(&mut self.lock()) {
                return found;
            }
            // `self` holds the sender, so that the channel stays open.
            let _ = changes.changed().await;
        }
    }

    /// The same for a test: panics after [`PATIENCE`] and names `what` did not come.
    pub(super) async fn expect<T>(&self, what: &str, find: impl FnMut(&mut State) -> Option<T>) -> T {
        let found = tokio::time::timeout(PATIENCE, self.wait_for(find)).await;
        found.unwrap_or_else(|_| panic!("timed out waiting for {what}; the log is {:#?}", self.lock().log))
    }

    /// Applies an event to the state and sends it to the readers of its directory.
    pub(super) async fn emit(&self, event: &Value) {
        self.emit_in(&CancellationToken::new(), event).await;
    }

    /// The same for a script, which sends nothing more once the server is killed. Returns false if the server was killed before.
    pub(super) async fn emit_in(&self, life: &CancellationToken, event: &Value) -> bool {
        self.wait_for(|state| (!state.streams.awaits_reader()).then_some(())).await;
        let deliveries = self.change(|state| {
            // Checked under the lock: `kill` cancels and forgets the running turns in one step.
            if life.is_cancelled() {
                return None;
            }
            let properties = &event["properties"];
            let session = properties["sessionID"].as_str();
            state.world.apply(event);
            state.prompt_records.note(event);
            let info = session.and_then(|session| state.world.known(session));
            let field = |name: &str| info.and_then(|info| info[name].as_str()).map(str::to_owned);
            let directory = field("directory").or_else(|| Some(properties["directory"].as_str()?.to_owned()));
            let directory = directory.unwrap_or_else(|| self.directory.clone());
            let (project, workspace) = (field("projectID"), field("workspaceID"));
            let project = Some(project.as_deref().unwrap_or(PROJECT_ID));
            let location = Location { directory: &directory, project, workspace: workspace.as_deref() };
            let mut deliveries = state.streams.route(event, &directory, workspace.as_deref());
            deliveries.extend(state.globals.route(location, event));
            Some(deliveries)
        });
        let Some(deliveries) = deliveries else { return false };
        Self::deliver(deliveries).await;
        true
    }

    /// Sends an event only to `/global/event`.
    pub(super) async fn emit_globally(&self, location: Location<'_>, event: &Value) {
        let deliveries = self.change(|state| state.globals.route(location, event));
        Self::deliver(deliveries).await;
    }

    async fn deliver(deliveries: Deliveries) {
        for (reader, chunk) in deliveries {
            // A reader that has left misses the event.
            let _ = reader.send(chunk).await;
        }
    }

    /// A new `/event` stream. Waits while a cut keeps readers away.
    pub(super) async fn connect(&self, directory: &str, workspace: Option<&str>) -> Connection {
        self.wait_for(|state| (!state.streams.closed_to_readers()).then_some(())).await;
        self.change(|state| state.streams.connect(directory, workspace))
    }

    /// The fault that this request meets, if any. Counts the request.
    pub(super) fn fault(&self, method: &str, path: &str) -> Option<Fault> {
        let mut state = self.lock();
        let rule = state.rules.iter_mut().find(|rule| rule.matches(method, path))?;
        rule.left = rule.left.map(|left| left - 1);
        Some(rule.fault.clone())
    }
}

impl State {
    /// The script of the next prompt: a queued one, or the next of the others.
    pub(super) fn next_script(&mut self) -> Script {
        self.scripts.pop_front().unwrap_or_else(|| {
            let turn = self.otherwise.front().cloned().unwrap_or_default();
            self.otherwise.rotate_left(1.min(self.otherwise.len()));
            Script::Written(turn)
        })
    }
}
