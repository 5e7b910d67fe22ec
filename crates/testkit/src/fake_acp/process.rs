//! The process: reads requests, and starts a thread for each prompt.

use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::turn::Turn;
use super::{Action, OPTIONS, Options, SOCKET, STATE};

/// The agent's side of everything that several threads use.
pub(super) struct Agent {
    options: Options,
    state_directory: PathBuf,
    /// `None`: the output is closed.
    output: Mutex<Option<std::io::Stdout>>,
    /// To the test. `None`: no test listens.
    test: Option<Mutex<UnixStream>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) cancelled: HashSet<String>,
    pub(super) open_gates: HashSet<u64>,
    /// Scripts that the test sent, by the number of their prompt.
    pub(super) scripts: HashMap<u64, Vec<Action>>,
    last_prompt: u64,
    /// The answers to the agent's own requests, by number.
    pub(super) answers: HashMap<u64, Value>,
    pub(super) last_request: u64,
    last_report: u64,
    /// The reports that the test has taken.
    taken_reports: HashSet<u64>,
    is_test_gone: bool,
    last_session: u64,
    open_sessions: HashSet<String>,
    is_authenticated: bool,
}

/// Runs the agent until its input ends.
pub fn run() -> ExitCode {
    let variable = |name: &str| std::env::var(name).ok();
    let options = variable(OPTIONS).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let state_directory = variable(STATE).map_or_else(std::env::temp_dir, PathBuf::from);
    let test = variable(SOCKET).and_then(|path| UnixStream::connect(path).ok());
    let commands = test.as_ref().and_then(|test| test.try_clone().ok());
    let agent = Arc::new(Agent {
        options,
        state_directory,
        output: Mutex::new(Some(std::io::stdout())),
        test: test.map(Mutex::new),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    if let Some(commands) = commands {
        let agent = Arc::clone(&agent);
        std::thread::spawn(move || agent.obey_test(commands));
    }
    agent.tell(&json!({"started": std::process::id()}));
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if let Ok(message) = serde_json::from_str::<Value>(&line) {
            agent.take(&message);
        }
    }
    if agent.options.ignores_end_of_input {
        live_on();
    }
    ExitCode::SUCCESS
}

impl Agent {
    fn take(self: &Arc<Self>, message: &Value) {
        let (id, params) = (&message["id"], &message["params"]);
        let session = params["sessionId"].as_str().unwrap_or_default();
        let Some(method) = message["method"].as_str() else {
            if let Some(number) = id.as_u64() {
                self.change(|state| state.answers.insert(number, message["result"]["outcome"].clone()));
            }
            return;
        };
        self.tell(&json!({"called": method, "session": session}));
        if self.options.dies_once_at.as_deref() == Some(method) {
            let is_first =
                OpenOptions::new().write(true).create_new(true).open(self.state_directory.join("died"));
            if is_first.is_ok() {
                die();
            }
        }
        let is_refused = self.options.auth.is_some() && !self.lock().is_authenticated;
        match method {
            "initialize" => self.answer(id, &self.about()),
            "authenticate" if self.options.auth.as_deref() == params["methodId"].as_str() => {
                self.change(|state| state.is_authenticated = true);
                self.answer(id, &json!({}));
            }
            "authenticate" => self.refuse(id, -32_602, "no such method to log in with"),
            "session/new" if is_refused => self.refuse(id, -32_000, "Authentication required"),
            "session/new" => self.new_session(id),
            "session/load" if self.options.load => self.open_session(id, session, true),
            "session/resume" if self.options.resume => self.open_session(id, session, false),
            "session/close" if self.options.close => {
                self.change(|state| {
                    state.open_sessions.remove(session);
                    state.cancelled.insert(session.to_owned());
                });
                self.answer(id, &json!({}));
            }
            "session/list" if self.options.keeps => self.list(id, &params["cwd"]),
            "session/fork" if self.options.keeps => self.fork(id, session),
            "session/delete" if self.options.keeps => match std::fs::remove_file(self.history(session)) {
                Ok(()) => self.answer(id, &json!({})),
                Err(_) => self.refuse(id, -32_002, "Resource not found"),
            },
            "session/prompt" => self.prompt(id, session, &params["prompt"]),
            "session/cancel" => {
                self.tell(&json!({"cancel": session}));
                self.change(|state| state.cancelled.insert(session.to_owned()));
            }
            "session/set_mode" if !self.options.modes.is_empty() => self.answer(id, &json!({})),
            "session/set_model" if !self.options.models.is_empty() => self.answer(id, &json!({})),
            _ if id.is_null() => {}
            _ => self.refuse(id, -32_601, "\"Method not found\""),
        }
    }

    fn about(&self) -> Value {
        let options = &self.options;
        let mut about = json!({
            "protocolVersion": 1, "agentInfo": {"name": "fake", "title": "Fake agent", "version": "1.0.0"},
            "agentCapabilities": {
                "loadSession": options.load, "promptCapabilities": {"image": true, "embeddedContext": true},
                "sessionCapabilities": {},
            },
            "authMethods": [],
        });
        if options.keeps {
            for method in ["list", "fork", "delete"] {
                about["agentCapabilities"]["sessionCapabilities"][method] = json!({});
            }
        }
        if options.close {
            about["agentCapabilities"]["sessionCapabilities"]["close"] = json!({});
        }
        if options.resume || options.false_resume {
            about["agentCapabilities"]["sessionCapabilities"]["resume"] = json!({});
        }
        if let Some(method) = &options.auth {
            about["authMethods"] = json!([{"id": method, "name": format!("Log in with {method}")}]);
        }
        about
    }

    /// The answer that opens a session, without its id.
    fn opened(&self) -> Value {
        let mut opened = json!({});
        if let Some(first) = self.options.modes.first() {
            let all: Vec<Value> =
                self.options.modes.iter().map(|mode| json!({"id": mode, "name": mode})).collect();
            opened["modes"] = json!({"currentModeId": first, "availableModes": all});
        }
        if let Some(first) = self.options.models.first() {
            let all: Vec<Value> =
                self.options.models.iter().map(|model| json!({"modelId": model, "name": model})).collect();
            opened["models"] = json!({"currentModelId": first, "availableModels": all});
        }
        opened
    }

    fn new_session(&self, id: &Value) {
        let session = self.open_next();
        self.remember(&session, None);
        if self.options.early_updates {
            self.update(
                &session,
                &json!({"sessionUpdate": "available_commands_update", "availableCommands": []}),
            );
        }
        let mut opened = self.opened();
        opened["sessionId"] = session.as_str().into();
        self.answer(id, &opened);
    }

    /// Opens a session with the next id.
    fn open_next(&self) -> String {
        self.change(|state| {
            state.last_session += 1;
            let session = format!("fake-{}-{}", std::process::id(), state.last_session);
            state.open_sessions.insert(session.clone());
            session
        })
    }

    /// All sessions, as if they were in the requested directory.
    fn list(&self, id: &Value, cwd: &Value) {
        let files = std::fs::read_dir(&self.state_directory).into_iter().flatten().flatten();
        let names = files.filter_map(|file| file.file_name().into_string().ok());
        let mut sessions: Vec<_> =
            names.filter_map(|name| Some(name.strip_suffix(".jsonl")?.to_owned())).collect();
        sessions.sort();
        let listed: Vec<Value> =
            sessions.into_iter().map(|session| json!({"sessionId": session, "cwd": cwd})).collect();
        self.answer(id, &json!({"sessions": listed}));
    }

    fn fork(&self, id: &Value, session: &str) {
        let copy = self.open_next();
        match std::fs::copy(self.history(session), self.history(&copy)) {
            Ok(_) => self.answer(id, &json!({"sessionId": copy})),
            Err(_) => self.refuse(id, -32_002, "Resource not found"),
        }
    }

    fn open_session(&self, id: &Value, session: &str, is_replayed: bool) {
        let Ok(history) = std::fs::read_to_string(self.history(session)) else {
            return self.refuse(id, -32_002, "Resource not found");
        };
        for update in history.lines().filter(|_| is_replayed) {
            if let Ok(update) = serde_json::from_str(update) {
                self.update(session, &update);
            }
        }
        self.change(|state| state.open_sessions.insert(session.to_owned()));
        self.answer(id, &self.opened());
    }

    fn prompt(self: &Arc<Self>, id: &Value, session: &str, prompt: &Value) {
        if !self.lock().open_sessions.contains(session) {
            return self.refuse(id, -32_602, "Session not found");
        }
        let blocks = prompt.as_array().into_iter().flatten();
        let text: String = blocks.filter_map(|block| block["text"].as_str()).collect();
        self.change(|state| state.cancelled.remove(session));
        let said = json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": text}});
        self.remember(session, Some(&said));
        if self.options.echoes_prompts {
            self.update(session, &said);
        }
        let script = match serde_json::from_str::<Vec<Action>>(&text) {
            Ok(script) => Some(script),
            Err(_) if self.test.is_some() => None,
            Err(_) => Some(vec![Action::Text(text.clone())]),
        };
        let number = self.change(|state| {
            state.last_prompt += 1;
            state.last_prompt
        });
        let wants = script.is_none().then_some(number);
        self.tell(&json!({"prompt": {"session": session, "text": text, "wants_script": wants}}));
        let turn = Turn::new(Arc::clone(self), id.clone(), session.to_owned(), number);
        std::thread::spawn(move || turn.play(script));
    }

    /// Does what the test says, at any moment.
    fn obey_test(&self, commands: UnixStream) {
        for line in BufReader::new(commands).lines() {
            let Some(command) = line.ok().and_then(|line| serde_json::from_str::<Value>(&line).ok()) else {
                break;
            };
            if let Some(report) = command["taken"].as_u64() {
                self.change(|state| state.taken_reports.insert(report));
            } else if let Some(gate) = command["open"].as_u64() {
                self.change(|state| state.open_gates.insert(gate));
            } else if let Ok((prompt, script)) = serde_json::from_value(command["script"].clone()) {
                self.change(|state| state.scripts.insert(prompt, script));
            } else if !command["die"].is_null() {
                die();
            }
        }
        self.change(|state| state.is_test_gone = true);
    }

    pub(super) fn update(&self, session: &str, update: &Value) {
        self.print(&json!({
            "jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": update},
        }));
    }

    pub(super) fn answer(&self, id: &Value, result: &Value) {
        self.print(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    pub(super) fn refuse(&self, id: &Value, code: i64, message: &str) {
        self.print(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}));
    }

    pub(super) fn print(&self, message: &Value) {
        let mut line = message.to_string();
        line.push('\n');
        self.print_bytes(line.as_bytes());
    }

    /// A reader that is gone has no effect: the agent ends when its input does.
    pub(super) fn print_bytes(&self, bytes: &[u8]) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(output) = output.as_mut() {
            let _ = output.write_all(bytes).and_then(|()| output.flush());
        }
    }

    /// Closes the output, so that its reader sees the end.
    pub(super) fn close_output(&self) {
        *self.output.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Ok(nowhere) = OpenOptions::new().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(nowhere);
        }
    }

    /// Tells the test what happens, and waits until the test knows it: what the agent says after that must not arrive earlier.
    pub(super) fn tell(&self, report: &Value) {
        let Some(test) = &self.test else { return };
        let number = self.change(|state| {
            state.last_report += 1;
            state.last_report
        });
        let line = format!("{}\n", json!({"number": number, "report": report}));
        let _ = test.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
        self.wait_for(|state| (state.taken_reports.remove(&number) || state.is_test_gone).then_some(()));
    }

    /// Adds an update to the history of a session. `None`: makes the history.
    pub(super) fn remember(&self, session: &str, update: Option<&Value>) {
        let file = OpenOptions::new().create(true).append(true).open(self.history(session));
        if let (Ok(mut file), Some(update)) = (file, update) {
            let _ = file.write_all(format!("{update}\n").as_bytes());
        }
    }

    /// The file name of a strange session id is one that does not exist.
    fn history(&self, session: &str) -> PathBuf {
        let is_plain = session.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter));
        self.state_directory.join(if is_plain { format!("{session}.jsonl") } else { "strange".to_owned() })
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.lock());
        self.changed.notify_all();
        changed
    }

    /// Waits until `found` finds something in the state.
    pub(super) fn wait_for<T>(&self, mut found: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut state = self.lock();
        loop {
            if let Some(found) = found(&mut state) {
                return found;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the process as `kill -9` does.
pub(super) fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    live_on()
}

/// Waits until the process is killed.
fn live_on() -> ! {
    loop {
        std::thread::park();
    }
}
