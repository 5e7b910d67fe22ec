//! An OpenCode server that does what the test says: plays recordings of the real one, or turns written in code.
//!
//! It listens on loopback, answers the endpoints that a gateway uses in the real one's shapes, keeps a log of what
//! it was asked, and breaks where the test wants it to. A prompt takes the next script that was queued.

mod answer;
mod check;
mod control;
mod decision;
mod fault;
mod garble;
mod gate;
mod global;
mod ids;
mod places;
mod player;
mod project;
mod prompting;
mod reads;
mod recording;
mod request_log;
mod routes;
mod script;
mod server;
mod state;
mod streams;
mod subtask;
#[cfg(test)]
mod tests;
mod truth;
mod turn;
mod typist;
mod voice;
mod world;
mod writer;

use std::future::ready;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub use control::Shell;
pub use decision::{Decision, Scene};
pub use fault::{Cut, CutKind, Delivery, Fault};
pub use garble::{Garble, GarbleKind};
pub use gate::Gate;
pub use places::News;
pub use project::{Agent, Command, Model, PRIVATE_PROMPT, PROVIDER_KEY, Project, Sharing};
pub use recording::{ProtocolVersion, RecordedAnswer, Recording};
pub use request_log::LoggedRequest;
pub use script::Play;
pub use truth::{Fate, Prompted};
pub use turn::{Tool, Turn};
pub use typist::Typist;

use fault::Rule;
use script::Script;
use state::{Shared, State};

/// What may differ from one fake to the next.
#[derive(Clone, Debug)]
pub struct Setup {
    /// User and password that every request needs.
    pub password: Option<(String, String)>,
    /// How often an idle `/event` stream says so.
    pub heartbeat: Duration,
    /// Which OpenCode it says that it is.
    pub version: String,
    /// How many requests it remembers, the newest.
    pub keep_log: usize,
    /// How long a new reader of `/global/event` hears nothing but that it is connected. Half a second of the real one.
    pub deaf: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            password: None,
            heartbeat: Duration::from_secs(10),
            version: "1.18.33".to_owned(),
            keep_log: usize::MAX,
            deaf: Duration::ZERO,
        }
    }
}

/// A running fake. Dropping it ends it.
#[derive(Debug)]
pub struct FakeOpenCode {
    shared: Arc<Shared>,
    address: Mutex<SocketAddr>,
    workspace: TempDir,
    #[expect(dead_code, reason = "it is held until the worktrees in it are not needed any more")]
    data: TempDir,
}

impl FakeOpenCode {
    pub fn start() -> Self {
        Self::start_with(Setup::default())
    }

    pub fn start_with(setup: Setup) -> Self {
        let workspace = tempfile::tempdir().expect("a test needs a directory");
        let directory = std::fs::canonicalize(workspace.path()).expect("the directory was just made");
        let authorization = setup
            .password
            .map(|(user, password)| format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))));
        let directory = directory.to_string_lossy().into_owned();
        let data = tempfile::tempdir().expect("a test needs a directory");
        let worktrees = std::fs::canonicalize(data.path()).expect("the directory was just made");
        let worktrees = worktrees.to_string_lossy().into_owned();
        let shared = Arc::new(Shared::new(directory, worktrees, authorization, setup.heartbeat));
        shared.change(|state| {
            state.version = setup.version;
            state.log.keep(setup.keep_log);
            state.globals.deaf = setup.deaf;
        });
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = server::bind(any_port).expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        server::serve(&shared, listener);
        Self { shared, address: Mutex::new(address), workspace, data }
    }

    /// Where it listens, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    pub fn address(&self) -> SocketAddr {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it "runs": sessions work here unless a request names another directory.
    pub fn directory(&self) -> &str {
        &self.shared.directory
    }

    pub fn workspace(&self) -> &Path {
        self.workspace.path()
    }

    /// Makes the workspace a git repository with one commit.
    pub async fn make_repository(&self) {
        std::fs::write(self.workspace().join("README.md"), "# Harbour\n").expect("a file can be written");
        let first: [&[&str]; 3] = [
            &["init", "--quiet", "--initial-branch=main"],
            &["add", "."],
            &["commit", "--quiet", "--message=Lay the first stone"],
        ];
        for arguments in first {
            places::git(self.workspace(), arguments).await.expect("git is installed");
        }
    }

    /// The directories that it was told to remove, whether it did or not.
    pub fn removed(&self) -> Vec<String> {
        self.shared.lock().removed.clone()
    }

    /// Somebody else at work in this session.
    pub fn typist(&self, session: &str) -> Typist {
        Typist::new(Arc::clone(&self.shared), session)
    }

    /// Queues the prompts of a recording; the next session that is made is the recorded one.
    pub fn play(&self, play: &Play) {
        self.shared.change(|state| {
            state.sessions.extend(play.recording().session());
            state.scripts.extend(play.segments().into_iter().map(Script::Recorded));
        });
    }

    /// Queues a turn for the next prompt.
    pub fn queue(&self, turn: Turn) {
        self.shared.change(|state| state.scripts.push_back(Script::Written(turn)));
    }

    /// What prompts do for which nothing is queued: these turns, one after the other, over and over.
    pub fn otherwise(&self, turns: Vec<Turn>) {
        self.shared.change(|state| state.otherwise = turns.into());
    }

    /// What prompts do for which nothing is queued follows from their first text.
    pub fn answering(&self, turn: impl Fn(&str) -> Turn + Send + Sync + 'static) {
        let decision = Decision::new(move |scene| Box::pin(ready(turn(&scene.text))));
        self.otherwise(vec![Turn::new().then(decision)]);
    }

    /// What the next shell command prints. Without this it prints its own words.
    pub fn shell(&self, shell: Shell) {
        self.shared.change(|state| state.shells.push_back(shell));
    }

    /// The next summary is not finished before the test opens the gate.
    pub fn hold_summary(&self, gate: &Gate) {
        self.shared.change(|state| state.summaries.push_back(gate.clone()));
    }

    /// What became of each prompt, the oldest first.
    pub fn truth(&self) -> Vec<Prompted> {
        self.shared.lock().truth.told()
    }

    /// Everything that was asked so far.
    pub fn log(&self) -> Vec<LoggedRequest> {
        self.shared.lock().log.iter().cloned().collect()
    }

    /// Method, path and query of everything that came, as it came; also of what met a fault and is not in the log.
    pub fn arrived(&self) -> Vec<String> {
        self.shared.lock().log.arrived()
    }

    /// The prompts so far.
    pub fn prompts(&self) -> Vec<LoggedRequest> {
        let mut prompts = self.log();
        prompts.retain(|request| {
            request.method == "POST"
                && (request.path.ends_with("/prompt_async") || request.path.ends_with("/message"))
        });
        prompts
    }

    /// Waits until the `nth` request (from 1) of that method with that end of its path has come.
    pub async fn requested(&self, method: &str, path_end: &str, nth: usize) -> LoggedRequest {
        let found = |request: &&LoggedRequest| request.method == method && request.path.ends_with(path_end);
        let what = format!("request {nth} of {method} *{path_end}");
        self.shared.expect(&what, |state| state.log.iter().filter(found).nth(nth - 1).cloned()).await
    }

    /// Waits until that many `/event` streams were opened in all.
    pub async fn streams_opened(&self, count: usize) {
        let enough = |state: &mut State| (state.streams.opened >= count).then_some(());
        self.shared.expect("readers of /event", enough).await;
    }

    /// Waits until that many streams of `/global/event` were opened in all.
    pub async fn global_streams_opened(&self, count: usize) {
        let enough = |state: &mut State| (state.globals.opened >= count).then_some(());
        self.shared.expect("readers of /global/event", enough).await;
    }

    /// The streams of `/global/event` that are open now end; new ones work.
    pub fn end_global_streams(&self) {
        self.shared.change(|state| state.globals.end());
    }

    /// Waits until no script runs.
    pub async fn quiet(&self) {
        let quiet = |state: &mut State| state.turns.values().all(|turns| *turns == 0).then_some(());
        self.shared.expect("the end of all scripts", quiet).await;
    }

    /// The next request of that method (`*`: any) whose path ends so meets the fault. A segment `*` of the path is any.
    pub fn fault_once(&self, method: &'static str, path_end: &'static str, fault: Fault) {
        self.fault_times(method, path_end, fault, 1);
    }

    /// The same for so many of the next requests.
    pub fn fault_times(&self, method: &'static str, path_end: &'static str, fault: Fault, times: usize) {
        self.shared.change(|state| state.rules.push(Rule { method, path_end, fault, left: Some(times) }));
    }

    /// Every such request meets the fault.
    pub fn fault_always(&self, method: &'static str, path_end: &'static str, fault: Fault) {
        self.shared.change(|state| state.rules.push(Rule { method, path_end, fault, left: None }));
    }

    pub fn clear_faults(&self) {
        self.shared.change(|state| state.rules.clear());
    }

    /// Nothing comes any more on the `/event` streams that are open now; new ones work.
    pub fn stall_streams(&self) {
        self.shared.change(|state| state.streams.stall());
    }

    /// The `/event` streams that are open now end; new ones work.
    pub fn end_streams(&self) {
        self.shared.change(|state| state.streams.end(None));
    }

    /// Cuts `/event` during the next turn.
    pub fn cut_events(&self, cut: Cut) {
        self.shared.change(|state| state.streams.arm(cut));
    }

    /// What the readers of `/event` get from now on.
    pub fn deliver(&self, delivery: Delivery) {
        self.shared.change(|state| state.streams.delivery = delivery);
    }

    /// Events become unreadable on their way to the readers of `/event`.
    pub fn garble(&self, garble: Garble) {
        self.shared.change(|state| state.streams.garbling.add(garble));
    }

    /// The process is gone: nobody listens, all connections are closed, what ran is forgotten.
    pub async fn kill(&self) {
        self.shared.change(|state| {
            state.life.cancel();
            state.life = CancellationToken::new();
            state.streams.end(None);
            state.globals.end();
            state.streams.stop_losing();
            state.world.forget_running();
            state.turns.clear();
            state.lanes.clear();
        });
        self.shared.expect("the end of the server", |state| (!state.listening).then_some(())).await;
    }

    /// Listens again, on the same port, with what was stored.
    pub fn come_back(&self) {
        let listener = server::bind(self.address()).expect("nobody else takes a port that was just ours");
        server::serve(&self.shared, listener);
    }

    /// The same; but where the system has given the port to a connection meanwhile, on another one.
    pub fn come_back_somewhere(&self) -> std::io::Result<SocketAddr> {
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = server::bind(self.address()).or_else(|_| server::bind(any_port))?;
        let address = listener.local_addr()?;
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = address;
        server::serve(&self.shared, listener);
        Ok(address)
    }

    /// The same, as another version.
    pub fn come_back_as(&self, version: &str) {
        self.shared.change(|state| version.clone_into(&mut state.version));
        self.come_back();
    }

    /// Somebody disposes the instance: its turns are aborted and its streams end.
    pub async fn dispose_instance(&self) {
        routes::dispose(&self.shared, &self.shared.directory).await;
    }

    /// The session is gone, without a word to anyone.
    pub fn forget_session(&self, session: &str) {
        self.shared.change(|state| state.world.delete_session(session));
    }

    /// The message list of a session, as `GET` gives it.
    pub fn messages(&self, session: &str) -> Vec<Value> {
        self.shared.lock().world.messages(session).unwrap_or_default()
    }

    /// The ids of the sessions that were made.
    pub fn sessions(&self) -> Vec<String> {
        let sessions = self.shared.lock().world.sessions();
        let ids = sessions.as_array().into_iter().flatten();
        ids.filter_map(|info| Some(info["id"].as_str()?.to_owned())).collect()
    }

    /// A session that nobody made through the gateway.
    pub fn add_session(&self, id: &str, directory: &str) {
        let info = routes::new_session(&self.shared, id, directory);
        self.shared.change(|state| state.world.add_session(info));
    }

    /// A session that is described as the test likes, such as that of a sub-agent.
    pub fn add_session_like(&self, info: Value) {
        self.shared.change(|state| state.world.add_session(info));
    }

    /// Changes what is answered about the project.
    pub fn project(&self, change: impl FnOnce(&mut Project)) {
        self.shared.change(|state| change(&mut state.project));
    }

    /// The ids of the asks that are in its lists.
    pub fn open_asks(&self) -> Vec<String> {
        let state = self.shared.lock();
        let asks = state.world.permissions.iter().chain(&state.world.questions);
        asks.filter_map(|ask| Some(ask["id"].as_str()?.to_owned())).collect()
    }

    /// Sends one event by hand.
    pub async fn emit(&self, kind: &str, properties: Value) {
        self.shared.emit(&world::event(kind, properties)).await;
    }
}

impl Drop for FakeOpenCode {
    fn drop(&mut self) {
        self.shared.lock().life.cancel();
    }
}
