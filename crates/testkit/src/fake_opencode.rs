//! A fake OpenCode server for tests. It plays recordings of the real one, or turns written in code.
//!
//! The fake listens on loopback, answers the endpoints that a gateway uses in OpenCode's shapes, logs the requests, and fails
//! where the test asks for it. Each prompt takes the next script from a queue.

mod answer;
mod check;
mod control;
mod decision;
mod fault;
mod garble;
mod gate;
mod global;
mod ids;
mod other_client;
mod player;
mod project;
mod prompt_records;
mod prompting;
mod reads;
mod recording;
mod request_log;
mod responder;
mod routes;
mod script;
mod server;
mod state;
mod streams;
mod subtask;
#[cfg(test)]
mod tests;
mod turn;
mod worktrees;
mod world;
mod writer;

use std::future::ready;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpSocket;
use tokio_util::sync::CancellationToken;

pub use control::Shell;
pub use decision::{Decision, TurnContext};
pub use fault::{Cut, CutKind, Delivery, Fault};
pub use garble::{Garble, GarbleKind};
pub use gate::Gate;
pub use other_client::OtherClient;
pub use project::{Agent, Command, Model, PRIVATE_PROMPT, PROVIDER_KEY, Project, Sharing};
pub use prompt_records::{PromptRecord, TurnEnd};
pub use recording::{RecordedAnswer, RecordedLine, Recording};
pub use request_log::LoggedRequest;
pub use script::Play;
pub use turn::{Tool, Turn};
pub use worktrees::WorktreeReport;

use fault::Rule;
use script::Script;
use state::{Shared, State};

/// The settings of a fake.
#[derive(Clone, Debug)]
pub struct Setup {
    /// User and password that every request must carry.
    pub password: Option<(String, String)>,
    /// The interval of heartbeats on an idle `/event` stream.
    pub heartbeat: Duration,
    /// The version that the fake reports.
    pub version: String,
    /// How many requests the log keeps; the newest stay.
    pub keep_log: usize,
    /// How long a new reader of `/global/event` misses all events after `server.connected`: half a second in the real OpenCode.
    pub deaf: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            password: None,
            heartbeat: Duration::from_secs(10),
            version: longshore_opencode_shapes::VERSION.to_owned(),
            keep_log: usize::MAX,
            deaf: Duration::ZERO,
        }
    }
}

/// A running fake. Dropping it stops the server.
#[derive(Debug)]
pub struct FakeOpenCode {
    shared: Arc<Shared>,
    /// Keeps the port from others while the server is down.
    port: TcpSocket,
    workspace: TempDir,
    #[expect(dead_code, reason = "holds the directory of the worktrees as long as the fake runs")]
    data: TempDir,
}

impl FakeOpenCode {
    pub fn start() -> Self {
        Self::start_with(Setup::default())
    }

    pub fn start_with(setup: Setup) -> Self {
        let workspace = tempfile::tempdir().expect("cannot create a temporary directory");
        let directory = std::fs::canonicalize(workspace.path()).expect("the new directory exists");
        let authorization = setup
            .password
            .map(|(user, password)| format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))));
        let directory = directory.to_string_lossy().into_owned();
        let data = tempfile::tempdir().expect("cannot create a temporary directory");
        let worktrees = std::fs::canonicalize(data.path()).expect("the new directory exists");
        let worktrees = worktrees.to_string_lossy().into_owned();
        let shared = Arc::new(Shared::new(directory, worktrees, authorization, setup.heartbeat));
        shared.change(|state| {
            state.version = setup.version;
            state.log.keep(setup.keep_log);
            state.globals.deaf = setup.deaf;
        });
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        let port = server::bind(any_port).expect("cannot bind a port on loopback");
        let fake = Self { shared, port, workspace, data };
        fake.restart();
        fake
    }

    /// The base URL, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    pub fn address(&self) -> SocketAddr {
        self.port.local_addr().expect("a bound socket has an address")
    }

    /// The working directory: sessions work here unless a request names another directory.
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
            worktrees::git(self.workspace(), arguments).await.expect("git is installed");
        }
    }

    /// The directories that requests asked to remove, whether they existed or not.
    pub fn removed_directories(&self) -> Vec<String> {
        self.shared.lock().removed.clone()
    }

    /// Another client of OpenCode that works in this session.
    pub fn other_client(&self, session: &str) -> OtherClient {
        OtherClient::new(Arc::clone(&self.shared), session)
    }

    /// Queues the prompts of a recording. The next session that is created is the recorded one.
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

    /// The turns of prompts for which nothing is queued: one after the other, from the start again at the end.
    pub fn answer_others_with(&self, turns: Vec<Turn>) {
        self.shared.change(|state| state.otherwise = turns.into());
    }

    /// Chooses the turn of a prompt for which nothing is queued by its first text.
    pub fn answering(&self, turn: impl Fn(&str) -> Turn + Send + Sync + 'static) {
        let decision = Decision::new(move |context| Box::pin(ready(turn(&context.text))));
        self.answer_others_with(vec![Turn::new().then(decision)]);
    }

    /// What the next shell command prints. By default, a command prints its own text.
    pub fn shell(&self, shell: Shell) {
        self.shared.change(|state| state.shells.push_back(shell));
    }

    /// All prompts and how each turn ended, the oldest first.
    pub fn prompt_records(&self) -> Vec<PromptRecord> {
        self.shared.lock().prompt_records.prompts().to_vec()
    }

    /// All logged requests.
    pub fn log(&self) -> Vec<LoggedRequest> {
        self.shared.lock().log.iter().cloned().collect()
    }

    /// Method, path and query of every request as received, including requests that met a fault and are not in the log.
    pub fn received_targets(&self) -> Vec<String> {
        self.shared.lock().log.arrived()
    }

    /// All prompts in the log.
    pub fn prompts(&self) -> Vec<LoggedRequest> {
        let mut prompts = self.log();
        prompts.retain(|request| {
            request.method == "POST"
                && (request.path.ends_with("/prompt_async") || request.path.ends_with("/message"))
        });
        prompts
    }

    /// Waits for the `nth` request, counted from 1, with that method and that end of its path.
    pub async fn wait_for_request(&self, method: &str, path_end: &str, nth: usize) -> LoggedRequest {
        let found = |request: &&LoggedRequest| request.method == method && request.path.ends_with(path_end);
        let what = format!("request number {nth} of {method} *{path_end}");
        self.shared.expect(&what, |state| state.log.iter().filter(found).nth(nth - 1).cloned()).await
    }

    /// Waits until that many `/event` streams were opened in total.
    pub async fn wait_for_streams(&self, count: usize) {
        let enough = |state: &mut State| (state.streams.opened >= count).then_some(());
        self.shared.expect("readers of /event", enough).await;
    }

    /// Waits until that many `/global/event` streams were opened in total.
    pub async fn wait_for_global_streams(&self, count: usize) {
        let enough = |state: &mut State| (state.globals.opened >= count).then_some(());
        self.shared.expect("readers of /global/event", enough).await;
    }

    /// Ends the open `/global/event` streams. New streams work.
    pub fn end_global_streams(&self) {
        self.shared.change(|state| state.globals.end());
    }

    /// Waits until no script is running.
    pub async fn wait_until_idle(&self) {
        let quiet = |state: &mut State| state.turns.values().all(|turns| *turns == 0).then_some(());
        self.shared.expect("the end of all scripts", quiet).await;
    }

    /// The next request with that method (`*`: any) and that end of its path meets the fault. A path segment `*` matches any.
    pub fn fault_once(&self, method: &'static str, path_end: &'static str, fault: Fault) {
        self.fault_times(method, path_end, fault, 1);
    }

    /// The same for the next `times` requests.
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

    /// The open `/event` streams stay open and receive nothing more. New streams work.
    pub fn stall_streams(&self) {
        self.shared.change(|state| state.streams.stall());
    }

    /// Ends the open `/event` streams. New streams work.
    pub fn end_streams(&self) {
        self.shared.change(|state| state.streams.end(None));
    }

    /// Cuts `/event` during the next turn.
    pub fn cut_events(&self, cut: Cut) {
        self.shared.change(|state| state.streams.arm(cut));
    }

    /// Changes what the readers of `/event` receive from now on.
    pub fn deliver(&self, delivery: Delivery) {
        self.shared.change(|state| state.streams.delivery = delivery);
    }

    /// Makes events unreadable for the readers of `/event`.
    pub fn garble(&self, garble: Garble) {
        self.shared.change(|state| state.streams.garbling.add(garble));
    }

    /// Kills the process: the port is closed, all connections end, running turns are forgotten.
    pub async fn kill(&self) {
        self.shared.change(|state| {
            state.life.cancel();
            state.life = CancellationToken::new();
            state.streams.end(None);
            state.globals.end();
            state.streams.stop_losing();
            state.world.forget_running();
            state.turns.clear();
            state.session_queues.clear();
        });
        self.shared.expect("the end of the server", |state| (!state.listening).then_some(())).await;
    }

    /// Starts again on the same port, with the stored sessions.
    pub fn restart(&self) {
        let listener = server::bind(self.address()).and_then(|socket| socket.listen(1024));
        server::serve(&self.shared, listener.expect("the port is kept for this server"));
    }

    /// Starts again with another version.
    pub fn restart_as(&self, version: &str) {
        self.shared.change(|state| version.clone_into(&mut state.version));
        self.restart();
    }

    /// Disposes the instance, as another client would: its turns are aborted and its streams end.
    pub async fn dispose_instance(&self) {
        routes::dispose(&self.shared, &self.shared.directory).await;
    }

    /// Deletes the session without an event.
    pub fn forget_session(&self, session: &str) {
        self.shared.change(|state| state.world.delete_session(session));
    }

    /// The message list of a session, as `GET` returns it.
    pub fn messages(&self, session: &str) -> Vec<Value> {
        self.shared.lock().world.messages(session).unwrap_or_default()
    }

    /// The ids of all sessions.
    pub fn sessions(&self) -> Vec<String> {
        let sessions = self.shared.lock().world.sessions();
        let ids = sessions.as_array().into_iter().flatten();
        ids.filter_map(|info| Some(info["id"].as_str()?.to_owned())).collect()
    }

    /// Adds a session that was not created through the gateway.
    pub fn add_session(&self, id: &str, directory: &str) {
        let info = routes::new_session(&self.shared, id, directory);
        self.shared.change(|state| state.world.add_session(info));
    }

    /// Adds a session with this description, such as the session of a sub-agent.
    pub fn add_session_info(&self, info: Value) {
        self.shared.change(|state| state.world.add_session(info));
    }

    /// Changes the answers about the project.
    pub fn project(&self, change: impl FnOnce(&mut Project)) {
        self.shared.change(|state| change(&mut state.project));
    }

    /// The ids of the open permission requests and questions.
    pub fn open_asks(&self) -> Vec<String> {
        let state = self.shared.lock();
        let asks = state.world.permissions.iter().chain(&state.world.questions);
        asks.filter_map(|ask| Some(ask["id"].as_str()?.to_owned())).collect()
    }

    /// Sends one event.
    pub async fn emit(&self, kind: &str, properties: Value) {
        self.shared.emit(&world::event(kind, properties)).await;
    }
}

impl Drop for FakeOpenCode {
    fn drop(&mut self) {
        self.shared.lock().life.cancel();
    }
}
