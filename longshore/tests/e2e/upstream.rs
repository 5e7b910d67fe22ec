//! The turn as OpenCode itself reports it, compared with the task of the gateway.

use longshore_testkit::gateway::OpenCodeApi;
use serde_json::{Map, Value, json};

use crate::client::PATIENCE;

/// A turn in the message list of OpenCode.
#[derive(Debug)]
pub(crate) struct UpstreamTurn {
    pub(crate) session: String,
    /// `{info, parts}` of each answer, the oldest first.
    pub(crate) answers: Vec<Value>,
}

/// How much of the message list the task must have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Agreement {
    /// All of it, and nothing else.
    Whole,
    /// The task ended before OpenCode did: texts may be shorter, and tool calls may have ended since.
    Stopped,
}

/// A block of output under its id: a text of some kind, or a tool call.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Block {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) content: Value,
}

/// The turn whose user message is exactly `text`. Fails unless there is exactly one in all sessions.
pub(crate) async fn turn(opencode: &OpenCodeApi, text: &str) -> UpstreamTurn {
    let mut found = turns(opencode, text).await;
    assert_eq!(found.len(), 1, "expected one prompt {text:?} at OpenCode, found {found:#?}");
    found.remove(0)
}

/// The same, once OpenCode has closed every message of the turn: it closes an aborted turn later.
pub(crate) async fn settled_turn(opencode: &OpenCodeApi, text: &str) -> UpstreamTurn {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let turn = turn(opencode, text).await;
        let open = turn.answers.iter().any(|answer| answer.pointer("/info/time/completed").is_none());
        if !open && !opencode.busy().await.contains(&turn.session) {
            return turn;
        }
        assert!(tokio::time::Instant::now() < deadline, "{text}: OpenCode was left running: {turn:#?}");
    }
}

/// All turns whose user message is exactly `text`, without sub-agents.
pub(crate) async fn turns(opencode: &OpenCodeApi, text: &str) -> Vec<UpstreamTurn> {
    let mut found = Vec::new();
    for session in opencode.sessions().await {
        if session.get("parentID").is_some() {
            continue;
        }
        let session = session["id"].as_str().expect("a session has an id").to_owned();
        let messages = opencode.messages(&session).await;
        for user in messages.iter().filter(|message| message["info"]["role"] == "user") {
            if message_text(user) == text {
                let id = &user["info"]["id"];
                let answers = messages.iter().filter(|message| message["info"]["parentID"] == *id);
                found.push(UpstreamTurn { session: session.clone(), answers: answers.cloned().collect() });
            }
        }
    }
    found
}

/// The text of all parts of a message.
pub(crate) fn message_text(message: &Value) -> String {
    let parts = message["parts"].as_array().into_iter().flatten();
    parts.filter(|part| part["type"] == "text").filter_map(|part| part["text"].as_str()).collect()
}

/// The texts, reasonings and tool calls of a turn, in order, without empty texts.
pub(crate) fn blocks_of_opencode(turn: &UpstreamTurn) -> Vec<Block> {
    let parts = turn.answers.iter().filter_map(|answer| answer["parts"].as_array()).flatten();
    parts.filter_map(block_of_part).collect()
}

fn block_of_part(part: &Value) -> Option<Block> {
    let id = part["id"].as_str()?.to_owned();
    let (name, content) = match part["type"].as_str()? {
        kind @ ("text" | "reasoning") => (kind.to_owned(), part["text"].clone()),
        "tool" => {
            let state = &part["state"];
            let mut call =
                json!({"call_id": part["callID"], "tool": part["tool"], "status": state["status"]});
            for key in ["input", "output", "error"] {
                if let Some(value) = state.get(key) {
                    call[key] = value.clone();
                }
            }
            (format!("tool:{}", part["tool"].as_str()?), call)
        }
        _ => return None,
    };
    (content != "").then_some(Block { id, name, content })
}

/// The same of a task, without withdrawn blocks and files.
pub(crate) fn blocks_of_task(task: &Value) -> Vec<Block> {
    let artifacts = task["artifacts"].as_array().into_iter().flatten();
    let is_file = |artifact: &&Value| artifact.pointer("/parts/0/url").is_some();
    artifacts.filter(|artifact| !is_file(artifact)).filter_map(block_of_artifact).collect()
}

fn block_of_artifact(artifact: &Value) -> Option<Block> {
    let parts = artifact["parts"].as_array().unwrap_or_else(|| panic!("no parts in {artifact}"));
    let [part] = parts.as_slice() else { panic!("expected one part in {artifact}") };
    let content = match part.get("data") {
        // The title is left out: OpenCode changes it at any time.
        Some(Value::Object(call)) => {
            let known = ["call_id", "tool", "status", "input", "output", "error"];
            let call: Map<String, Value> = call
                .iter()
                .filter(|(key, _)| known.contains(&key.as_str()))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            Value::Object(call)
        }
        _ => part["text"].clone(),
    };
    let text =
        |key: &str| artifact[key].as_str().unwrap_or_else(|| panic!("no {key} in {artifact}")).to_owned();
    (content != "").then(|| Block { id: text("artifactId"), name: text("name"), content })
}

/// Fails unless the task has the blocks of OpenCode. Only the reason of a tool call whose ask nobody answered differs: OpenCode takes
/// the gateway's rejection for one by its user.
pub(crate) fn check(name: &str, task: &Value, turn: &UpstreamTurn, agreement: Agreement) {
    let (mut ours, theirs) = (blocks_of_task(task), blocks_of_opencode(turn));
    for (ours, theirs) in ours.iter_mut().zip(&theirs) {
        let is_corrected =
            |error: &Value| error.as_str().is_some_and(|error| error.starts_with("Nobody answered"));
        if ours.content.get("error").is_some_and(is_corrected) {
            let reason = theirs.content["error"].as_str().unwrap_or_default();
            assert!(reason.starts_with("The user "), "{name}: {theirs:#?}");
            ours.content["error"] = theirs.content["error"].clone();
        }
    }
    match agreement {
        Agreement::Whole => {
            assert!(
                ours == theirs,
                "{name}: expected what OpenCode has:\n{theirs:#?}\nbut the task has:\n{ours:#?}"
            );
        }
        Agreement::Stopped => {
            for ours in &ours {
                let theirs = theirs.iter().find(|theirs| theirs.id == ours.id && theirs.name == ours.name);
                let theirs = theirs.unwrap_or_else(|| panic!("{name}: OpenCode does not have {ours:#?}"));
                assert!(
                    began_as(&ours.content, &theirs.content),
                    "{name}: {ours:#?} is no beginning of {theirs:#?}"
                );
            }
        }
    }
}

/// A stopped text is a prefix of the whole; a stopped tool call is the same call.
fn began_as(ours: &Value, theirs: &Value) -> bool {
    match (ours.as_str(), theirs.as_str()) {
        (Some(ours), Some(theirs)) => theirs.starts_with(ours),
        _ => ours["call_id"] == theirs["call_id"] && ours["tool"] == theirs["tool"],
    }
}
