//! The test's side of the fake agent.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_engine::Tasks;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};

use super::{Action, OPTIONS, Options, SOCKET, STATE};
use crate::fake_opencode::Gate;

/// How many commands may wait for a process. Further ones wait too.
const COMMANDS: usize = 64;

/// Scripts all processes of one fake agent, and keeps what they received.
#[derive(Debug)]
pub struct FakeAcp {
    directory: TempDir,
    shared: Arc<Shared>,
    tasks: Tasks,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// The number of processes that run.
    alive: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct State {
    scripts: VecDeque<Vec<Action>>,
    gates: HashMap<u64, Gate>,
    /// The reports of all processes, in order.
    reports: Vec<Value>,
    /// To the processes that run.
    processes: Vec<mpsc::Sender<Value>>,
}

impl FakeAcp {
    /// Must be called in a Tokio runtime.
    pub fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join("socket")).expect("a socket");
        let (shared, tasks) = (Arc::<Shared>::default(), Tasks::new());
        tasks.spawn("fake acp", accept(listener, Arc::clone(&shared), tasks.clone()));
        Self { directory, shared, tasks }
    }

    /// The variables that the process needs.
    pub fn environment(&self, options: &Options) -> BTreeMap<String, String> {
        let path = |path: &Path| path.to_str().expect("a temporary path is UTF-8").to_owned();
        BTreeMap::from([
            (OPTIONS.to_owned(), serde_json::to_string(options).expect("JSON")),
            (STATE.to_owned(), path(self.directory.path())),
            (SOCKET.to_owned(), path(&self.directory.path().join("socket"))),
        ])
    }

    /// The script of a prompt. Each prompt takes the oldest script that is left; without one the agent says nothing.
    pub fn queue(&self, script: Vec<Action>) {
        self.shared.lock().scripts.push_back(script);
    }

    /// Adds a session that no client of the agent's processes opened.
    pub fn add_session(&self, id: &str) {
        std::fs::write(self.directory.path().join(format!("{id}.jsonl")), "").expect("a file");
    }

    /// Waits at this gate.
    pub fn hold(&self, gate: &Gate) -> Action {
        let mut state = self.shared.lock();
        let number = state.gates.len() as u64;
        state.gates.insert(number, gate.clone());
        Action::Hold(number)
    }

    /// What all processes reported, in order: `started`, `called`, `prompt`, `cancel`, `answer`, `reached`, `forked`.
    pub fn reports(&self) -> Vec<Value> {
        self.shared.lock().reports.clone()
    }

    /// Kills the processes that run, and waits until they are dead. Returns whether there were any.
    pub async fn kill(&self) -> bool {
        let processes = self.shared.lock().processes.clone();
        for process in &processes {
            // An error means that the process is dead.
            let _ = process.send(json!({"die": true})).await;
        }
        self.wait_until_dead().await;
        !processes.is_empty()
    }

    /// Waits until no process runs.
    pub async fn wait_until_dead(&self) {
        // The sender is not dropped before `self`.
        let _ = self.shared.alive.subscribe().wait_for(|alive| *alive == 0).await;
    }

    /// Ends the test's side.
    pub async fn stop(&self) {
        self.tasks.stop().await;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: UnixListener, shared: Arc<Shared>, tasks: Tasks) {
    loop {
        let accepted = tokio::select! {
            () = tasks.stopping().cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else { return };
        let (commands, queue) = mpsc::channel(COMMANDS);
        shared.lock().processes.push(commands.clone());
        shared.alive.send_modify(|alive| *alive += 1);
        tasks.spawn("fake acp process", follow(stream, Arc::clone(&shared), commands, queue, tasks.clone()));
    }
}

/// Follows one process until it is dead.
async fn follow(
    stream: UnixStream,
    shared: Arc<Shared>,
    commands: mpsc::Sender<Value>,
    queue: mpsc::Receiver<Value>,
    tasks: Tasks,
) {
    let (read, write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    tasks.spawn("fake acp commands", send_all(queue, write, tasks.clone()));
    loop {
        let line = tokio::select! {
            () = tasks.stopping().cancelled() => break,
            line = lines.next_line() => line,
        };
        let Ok(Some(line)) = line else { break };
        let Ok(mut line) = serde_json::from_str::<Value>(&line) else { continue };
        let report = line["report"].take();
        let gate = {
            let mut state = shared.lock();
            state.reports.push(report.clone());
            report["reached"].as_u64().and_then(|gate| Some((gate, state.gates.get(&gate)?.clone())))
        };
        // An error means that the process is dead, which the next line shows.
        let _ = commands.send(json!({"taken": line["number"]})).await;
        if let Some(number) = report["prompt"]["wants_script"].as_u64() {
            let script = shared.lock().scripts.pop_front().unwrap_or_default();
            let _ = commands.send(json!({"script": [number, script]})).await;
        }
        if let Some((number, gate)) = gate {
            let (commands, tasks) = (commands.clone(), tasks.clone());
            tasks.clone().spawn("fake acp gate", async move {
                tokio::select! {
                    () = tasks.stopping().cancelled() => {}
                    () = commands.closed() => {}
                    () = gate.pass() => drop(commands.send(json!({"open": number})).await),
                }
            });
        }
    }
    shared.lock().processes.retain(|process| !process.same_channel(&commands));
    shared.alive.send_modify(|alive| *alive -= 1);
}

async fn send_all(mut queue: mpsc::Receiver<Value>, mut write: OwnedWriteHalf, tasks: Tasks) {
    loop {
        let command = tokio::select! {
            () = tasks.stopping().cancelled() => return,
            command = queue.recv() => command,
        };
        let Some(command) = command else { return };
        if write.write_all(format!("{command}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}
