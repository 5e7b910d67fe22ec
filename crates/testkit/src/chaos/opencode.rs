//! The real OpenCode as a child process, and the prompts that it has stored.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::BoxFuture;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::checker::AgentRecord;
use super::script;
use crate::fake_opencode::TurnEnd;

/// A cold start takes seconds, and much longer on a busy machine.
const START: Duration = Duration::from_mins(1);
const CALL: Duration = Duration::from_secs(20);
/// The text before the address in the line that OpenCode prints when it listens.
const LISTENS: &str = "listening on ";

/// How to run the real OpenCode.
#[derive(Clone, Debug)]
pub struct Program {
    pub file: PathBuf,
    /// The complete environment: a home of its own, and a model that needs no account.
    pub environment: BTreeMap<OsString, OsString>,
}

/// An OpenCode that is running, or was killed.
#[derive(Debug)]
pub(super) struct OpenCode {
    program: Program,
    directory: PathBuf,
    password: String,
    child: Option<Child>,
    pub(super) port: u16,
}

impl OpenCode {
    pub(super) async fn start(program: Program, directory: &Path, password: &str) -> Result<Self, String> {
        let (directory, password) = (directory.to_owned(), password.to_owned());
        let mut started = Self { program, directory, password, child: None, port: 0 };
        started.revive().await?;
        Ok(started)
    }

    /// Starts OpenCode on any port.
    pub(super) async fn revive(&mut self) -> Result<(), String> {
        let mut child = Command::new(&self.program.file)
            .args(["serve", "--hostname", "127.0.0.1", "--port", "0"])
            .current_dir(&self.directory)
            .env_clear()
            .envs(&self.program.environment)
            .env("OPENCODE_SERVER_PASSWORD", &self.password)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot start OpenCode: {error}"))?;
        let stdout = child.stdout.take().ok_or("OpenCode has no standard output")?;
        self.child = Some(child);
        let mut lines = BufReader::new(stdout).lines();
        let port = async {
            while let Ok(Some(line)) = lines.next_line().await {
                let address = line.split_once(LISTENS).map(|(_, address)| address.trim().to_owned());
                let port = address.as_deref().and_then(|address| address.rsplit(':').next()?.parse().ok());
                if port.is_some() {
                    return port;
                }
            }
            None
        };
        let port = tokio::time::timeout(START, port).await.ok().flatten();
        self.port = port.ok_or("OpenCode did not report its address")?;
        crate::gateway::keep_reading(lines);
        Ok(())
    }

    /// Kills OpenCode and its child processes, as a crash would.
    pub(super) async fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = group {
            // The process may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
        drop(child.wait().await);
    }

    pub(super) fn api<'a>(&'a self, directory: &'a Path) -> Api<'a> {
        Api { port: self.port, password: &self.password, directory }
    }
}

impl Drop for OpenCode {
    fn drop(&mut self) {
        let group = self.child.as_ref().and_then(Child::id).and_then(|id| i32::try_from(id).ok());
        if let Some(group) = group.and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Queries a running OpenCode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Api<'a> {
    pub(super) port: u16,
    pub(super) password: &'a str,
    pub(super) directory: &'a Path,
}

impl Api<'_> {
    /// All prompts that OpenCode has stored.
    pub(super) async fn prompts(&self) -> Result<Vec<AgentRecord>, String> {
        let http = reqwest::Client::builder().no_proxy().timeout(CALL).build();
        let http = http.map_err(|error| error.to_string())?;
        let mut prompts = Vec::new();
        for session in list(self.get(&http, "/session").await?)? {
            let id = session["id"].as_str().unwrap_or_default().to_owned();
            let messages = list(self.get(&http, &format!("/session/{id}/message")).await?)?;
            prompts.extend(of_session(&messages));
        }
        Ok(prompts)
    }

    fn get<'a>(&'a self, http: &'a reqwest::Client, path: &'a str) -> BoxFuture<'a, Result<Value, String>> {
        Box::pin(async move {
            let directory = self.directory.to_string_lossy().into_owned();
            let request = http
                .get(format!("http://127.0.0.1:{}{path}", self.port))
                .header("x-opencode-directory", directory)
                .basic_auth("opencode", Some(self.password));
            let failed = |error: reqwest::Error| format!("GET {path}: {error}");
            let text = request.send().await.map_err(failed)?.text().await.map_err(failed)?;
            serde_json::from_str(&text).map_err(|_| format!("GET {path} returned no JSON: {text}"))
        })
    }
}

/// The prompts of a session, and their answers.
pub(super) fn of_session(messages: &[Value]) -> Vec<AgentRecord> {
    // A killed OpenCode may have stored a message without its text.
    let has_parts = |message: &&Value| message["parts"].as_array().is_some_and(|parts| !parts.is_empty());
    let users = messages.iter().filter(|message| message["info"]["role"] == "user").filter(has_parts);
    users
        .map(|user| {
            let replies = messages.iter().filter(|reply| reply["info"]["parentID"] == user["info"]["id"]);
            let last = replies.clone().next_back().map(|reply| &reply["info"]);
            let is_complete = last.is_some_and(|info| {
                info["finish"].is_string()
                    && info["finish"] != "tool-calls"
                    && info["error"].is_null()
                    && !info["time"]["completed"].is_null()
            });
            // A turn that neither ended nor was aborted was killed. The checker compares that with the kills of the storm.
            let turn_end = match last.map(|info| &info["error"]["name"]) {
                _ if is_complete => TurnEnd::Ended,
                Some(name) if name == "MessageAbortedError" => TurnEnd::Aborted,
                _ => TurnEnd::Killed,
            };
            let parts = replies.flat_map(|reply| reply["parts"].as_array().into_iter().flatten());
            let clients = parts.filter(|part| part["type"] == "text" || part["type"] == "reasoning");
            let words = user["parts"].as_array().into_iter().flatten().find_map(|part| part["text"].as_str());
            let (words, text) = (words.unwrap_or_default(), clients.filter_map(|part| part["text"].as_str()));
            let text: String = text.collect();
            AgentRecord {
                session: user["info"]["sessionID"].as_str().unwrap_or_default().to_owned(),
                words: words.to_owned(),
                times: 1,
                kept: text.clone(),
                text,
                is_complete,
                is_what_was_kept: true,
                turn_end,
                whole: script::whole(words),
            }
        })
        .collect()
}

fn list(value: Value) -> Result<Vec<Value>, String> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(format!("not a list: {other}")),
    }
}
