//! Replays recordings of real agents through the reader of lines and the translation.

#![expect(clippy::unwrap_used, reason = "a panic is the right answer to a recording that cannot be read")]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write as _;
use std::path::Path;

use longshore_agent_acp::client::Request;
use longshore_agent_acp::frame::{Incoming, Line, LineReader, MAX_LINE_BYTES, parse};
use longshore_agent_acp::permission::read_options;
use longshore_agent_acp::schema::{
    self, ConfigAnswer, InitializeAnswer, PermissionRequest, SessionAnswer, SessionList, ToolUpdate, Update,
};
use longshore_agent_acp::translate::{Replay, SessionTotals, Translator, TurnEnd};
use longshore_model::{
    AgentEvent, AskOptions, BlockKind, ChildEvent, Json, Outcome, PromptId, RequestId, SessionId, ToolStatus,
};
use serde_json::Value;
use serde_json::value::RawValue;

/// What a recording became.
#[derive(Default)]
struct Played {
    /// The events of each turn, in the order in which the turns ended.
    turns: Vec<Vec<AgentEvent>>,
    /// The text of message chunks while a turn ran, read without the crate.
    text: String,
    /// What could not be translated, by name.
    unmapped: BTreeMap<String, u64>,
    /// The history that was repeated, by session.
    replays: HashMap<String, Replay>,
    noise: Vec<String>,
    /// The requests for files and commands.
    served: usize,
    messages: usize,
}

/// A turn that runs, and its open asks by the agent's ids.
struct Running {
    prompt: Value,
    translator: Translator,
    asks: HashMap<String, (RequestId, AskOptions)>,
}

#[derive(Default)]
struct Player {
    played: Played,
    requests: HashMap<String, Value>,
    running: HashMap<String, VecDeque<Running>>,
    totals: HashMap<String, SessionTotals>,
    prompts: usize,
}

async fn play(text: &str) -> Played {
    let mut player = Player::default();
    for row in text.lines().map(|row| serde_json::from_str::<Value>(row).unwrap()) {
        match row["kind"].as_str().unwrap() {
            "to-agent" => player.sent(&row["message"]),
            "from-agent" => player.line(&row["message"].to_string()).await,
            "stdout-noise" => player.line(row["text"].as_str().unwrap()).await,
            "note" if row["text"] == "stdout closed" => player.process_ended(),
            _ => {}
        }
    }
    player.process_ended();
    player.played
}

impl Player {
    fn sent(&mut self, message: &Value) {
        let session = message["params"]["sessionId"].as_str().unwrap_or_default().to_owned();
        match message["method"].as_str() {
            Some("session/prompt") => {
                self.prompts += 1;
                let prompt = PromptId::parse(&format!("prompt-{}", self.prompts)).unwrap();
                let Ok(id) = SessionId::parse(&session) else { return };
                let totals = self.totals.get(&session).copied().unwrap_or_else(SessionTotals::of_new_session);
                let translator = Translator::new(id, &prompt, totals).in_directory("/workspace".to_owned());
                let running = Running { prompt: message["id"].clone(), translator, asks: HashMap::new() };
                self.running.entry(session).or_default().push_back(running);
            }
            Some("session/cancel") => {
                self.running
                    .entry(session)
                    .or_default()
                    .iter_mut()
                    .for_each(|turn| turn.translator.stopped());
            }
            None => self.answered(message),
            Some(_) => {}
        }
        if message.get("method").is_some() && message.get("id").is_some() {
            self.requests.insert(message["id"].to_string(), message.clone());
        }
    }

    /// The recorder answered a request of the agent.
    fn answered(&mut self, message: &Value) {
        let id = message["id"].to_string();
        for turn in self.running.values_mut().flatten() {
            let Some((ask, options)) = turn.asks.remove(&id) else { continue };
            let chosen = message["result"]["outcome"]["optionId"].as_str();
            let chosen = chosen.and_then(|chosen| options.named(chosen).ok());
            turn.translator.answered(&ask, chosen.is_none_or(|option| option.kind.is_rejection()));
        }
    }

    async fn line(&mut self, text: &str) {
        let mut lines = LineReader::new(text.as_bytes(), MAX_LINE_BYTES);
        let Some(Line::Whole(line)) = lines.next().await.unwrap() else { panic!("no whole line: {text}") };
        self.played.messages += 1;
        match parse(&line) {
            Incoming::Answer { id, outcome } => {
                let id = id.map_or_else(
                    || serde_json::from_str::<Value>(text).unwrap()["id"].to_string(),
                    |id| id.to_string(),
                );
                let request = self.requests.remove(&id).unwrap_or_default();
                match (request["method"].as_str().unwrap_or_default(), outcome) {
                    ("session/prompt", outcome) => {
                        let end = match outcome {
                            Ok(answer) => TurnEnd::Answered(schema::read(&Json::from_raw(answer)).unwrap()),
                            Err(error) => TurnEnd::Refused(error),
                        };
                        let session = request["params"]["sessionId"].as_str().unwrap_or_default();
                        self.end(session, &request["id"], &end);
                    }
                    ("initialize", Ok(answer)) => {
                        let answer: InitializeAnswer = schema::read(&Json::from_raw(answer)).unwrap();
                        assert_eq!(answer.protocol_version, Some(1));
                        assert!(!answer.agent_info.name.is_empty());
                    }
                    ("session/new" | "session/fork", Ok(answer)) => {
                        let opened = whole_session(answer);
                        assert!(SessionId::parse(&opened.session_id.unwrap()).is_ok());
                        assert!(!opened.config_options.is_empty());
                    }
                    ("session/load" | "session/resume", Ok(answer)) => drop(whole_session(answer)),
                    ("session/set_config_option", Ok(answer)) => {
                        let read: ConfigAnswer = schema::read(&Json::from_raw(answer)).unwrap();
                        assert_eq!(read.config_options.len(), count(answer, &["configOptions"]));
                    }
                    ("session/list", Ok(answer)) => {
                        let read: SessionList = schema::read(&Json::from_raw(answer)).unwrap();
                        assert_eq!(read.sessions.len(), count(answer, &["sessions"]));
                    }
                    _ => {}
                }
            }
            Incoming::Request { method, params, .. } if method == "session/request_permission" => {
                let id = serde_json::from_str::<Value>(text).unwrap()["id"].to_string();
                self.ask(id, params.unwrap());
            }
            Incoming::Request { method, params, .. } => {
                match Request::read(&method, params.map(RawValue::get).unwrap_or_default()) {
                    Some(Ok(_)) => self.played.served += 1,
                    _ => self.count(&format!("request {method}")),
                }
            }
            Incoming::Notification { method, params } if method == "session/update" => {
                self.update(params.unwrap());
            }
            Incoming::Notification { method, .. } => self.count(&format!("notification {method}")),
            Incoming::Noise => self.played.noise.push(text.to_owned()),
            Incoming::Invalid | Incoming::Blank => panic!("not a message: {text}"),
        }
    }

    fn ask(&mut self, id: String, params: &RawValue) {
        let request: PermissionRequest = serde_json::from_str(params.get()).unwrap();
        assert_eq!(request.options.len(), count(params, &["options"]));
        check_call(&request.tool_call, params, "toolCall");
        let options = read_options(&request.options);
        let turn = self.running.get_mut(&request.session_id).and_then(|turns| turns.front_mut()).unwrap();
        let ask = turn.translator.permission(&request, &options).unwrap();
        turn.asks.insert(id, (ask, options));
    }

    fn update(&mut self, params: &RawValue) {
        #[derive(serde::Deserialize)]
        struct Params<'a> {
            #[serde(rename = "sessionId")]
            session: String,
            #[serde(borrow)]
            update: &'a RawValue,
        }
        let Params { session, update: raw } = serde_json::from_str(params.get()).unwrap();
        let update = Update::read(raw);
        if let Update::Unknown(name) = &update {
            self.count(&format!("update {name}"));
        }
        check_update(&update, raw);
        if let Update::Usage(usage) = &update {
            self.totals.entry(session.clone()).or_insert_with(SessionTotals::of_new_session).note(usage);
        }
        match self.running.get_mut(&session).and_then(|turns| turns.front_mut()) {
            Some(turn) => {
                let raw: Value = serde_json::from_str(raw.get()).unwrap();
                if raw["sessionUpdate"] == "agent_message_chunk" {
                    self.played.text += raw["content"]["text"].as_str().unwrap_or_default();
                }
                turn.translator.update(&update);
            }
            None => self.played.replays.entry(session).or_default().update(&update),
        }
    }

    fn end(&mut self, session: &str, prompt: &Value, end: &TurnEnd) {
        let Some(turns) = self.running.get_mut(session) else { return };
        let Some(at) = turns.iter().position(|turn| turn.prompt == *prompt) else { return };
        let turn = turns.remove(at).unwrap();
        self.finish(turn, end);
    }

    fn finish(&mut self, mut turn: Running, end: &TurnEnd) {
        turn.translator.end(end);
        for (name, count) in turn.translator.ignored().counts() {
            *self.played.unmapped.entry(name).or_default() += count;
        }
        self.played.turns.push(turn.translator.take());
    }

    fn process_ended(&mut self) {
        let turns: Vec<Running> = std::mem::take(&mut self.running).into_values().flatten().collect();
        for turn in turns {
            self.finish(turn, &TurnEnd::Lost("The agent ended.".to_owned()));
        }
        self.requests.clear();
    }

    fn count(&mut self, name: &str) {
        *self.played.unmapped.entry(name.to_owned()).or_default() += 1;
    }
}

/// How many entries the list at this place has. The reader of the crate leaves out entries that it cannot read.
fn count(raw: &RawValue, place: &[&str]) -> usize {
    let value: Value = serde_json::from_str(raw.get()).unwrap();
    place.iter().fold(&value, |value, name| &value[*name]).as_array().map_or(0, Vec::len)
}

/// The answer that opens a session. No mode, model or option was left out.
fn whole_session(raw: &RawValue) -> SessionAnswer {
    let answer: SessionAnswer = schema::read(&Json::from_raw(raw)).unwrap();
    let of_modes = answer.modes.as_ref().map_or(0, |modes| modes.available_modes.len());
    let listed = answer.models.as_ref().map_or(0, |models| models.available_models.len());
    assert_eq!(of_modes, count(raw, &["modes", "availableModes"]), "{raw}");
    assert_eq!(listed, count(raw, &["models", "availableModels"]), "{raw}");
    assert_eq!(answer.config_options.len(), count(raw, &["configOptions"]), "{raw}");
    assert!(answer.config_options.iter().all(|option| !option.choices.is_empty()), "{raw}");
    answer
}

/// No entry of an update was left out.
fn check_update(update: &Update, raw: &RawValue) {
    let (read, sent) = match update {
        Update::ToolCall(call) | Update::ToolCallUpdate(call) => return check_call(call, raw, ""),
        Update::Plan(plan) => (plan.entries.len(), count(raw, &["entries"])),
        Update::Commands(commands) => {
            assert!(commands.is_whole, "{raw}");
            (commands.entries.len(), count(raw, &["availableCommands"]))
        }
        Update::ConfigOptions(options) => (options.len(), count(raw, &["configOptions"])),
        Update::Mode(mode) => (mode.len().min(1), 1),
        Update::Title(title) => (title.iter().len(), 1),
        Update::AgentMessage(chunk) | Update::AgentThought(chunk) | Update::UserMessage(chunk) => {
            (chunk.content.kind.len().min(1), 1)
        }
        Update::Usage(_) | Update::Unknown(_) => return,
    };
    assert_eq!(read, sent, "{raw}");
}

fn check_call(call: &ToolUpdate, raw: &RawValue, member: &str) {
    let at = |name| [member, name].into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>();
    assert_eq!(call.content.as_ref().map_or(0, Vec::len), count(raw, &at("content")), "{raw}");
    assert_eq!(call.locations.as_ref().map_or(0, Vec::len), count(raw, &at("locations")), "{raw}");
}

/// Checks what must hold for the events of every turn.
fn check(events: &[AgentEvent], name: &str) {
    let ends = events.iter().filter(|event| matches!(event, AgentEvent::Ended(_))).count();
    assert!(ends == 1 && matches!(events.last(), Some(AgentEvent::Ended(_))), "{name}: {events:?}");
    let (mut texts, mut calls, mut asks, mut children) = (vec![], HashMap::new(), vec![], HashMap::new());
    for event in events {
        match event {
            AgentEvent::Text { block, text } => {
                assert!(!text.is_empty() && matches!(block.kind, BlockKind::Text | BlockKind::Reasoning));
                texts.push(&block.id);
            }
            AgentEvent::TextEnded { block } => texts.retain(|open| **open != block.id),
            AgentEvent::Tool { block, call } | AgentEvent::ToolOutput { block, call } => {
                assert!(!call.tool.is_empty());
                let before = calls.insert(&block.id, call.status);
                let is_over = matches!(before, Some(ToolStatus::Completed | ToolStatus::Error));
                assert!(!is_over, "{name}: a finished call changed: {call:?}");
            }
            AgentEvent::Asked(ask) => asks.push(&ask.request_id),
            AgentEvent::AskClosed { request_id, .. } => asks.retain(|open| *open != request_id),
            AgentEvent::Child { session, event } => match &**event {
                ChildEvent::Started(_) => assert_eq!(children.insert(session, false), None, "{name}"),
                ChildEvent::Report(AgentEvent::Ended(_)) => {
                    assert_eq!(children.insert(session, true), Some(false));
                }
                _ => assert_eq!(children.get(session), Some(&false), "{name}"),
            },
            _ => {}
        }
    }
    assert!(texts.is_empty() && asks.is_empty(), "{name}: left open: {texts:?} {asks:?}");
    let open = calls.values().any(|status| matches!(status, ToolStatus::Pending | ToolStatus::Running));
    assert!(!open && children.values().all(|is_over| *is_over), "{name}: {events:?}");
}

fn text_of(played: &Played) -> String {
    let text = |event: &AgentEvent| match event {
        AgentEvent::Text { block, text } if block.kind == BlockKind::Text => Some(text.clone()),
        _ => None,
    };
    played.turns.iter().flatten().filter_map(text).collect()
}

fn sorted(text: &str) -> Vec<char> {
    let mut characters: Vec<char> = text.chars().collect();
    characters.sort_unstable();
    characters
}

async fn check_recording(text: &str, name: &str) -> Played {
    let played = play(text).await;
    for turn in &played.turns {
        check(turn, name);
    }
    // Turns of two sessions may run at once, so the order over all turns may differ.
    assert_eq!(sorted(&text_of(&played)), sorted(&played.text), "{name}: text was lost or doubled");
    played
}

fn kept(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/recordings/{name}.jsonl"));
    std::fs::read_to_string(file).unwrap()
}

#[tokio::test]
async fn recorded_turns_become_these_events() {
    for name in [
        "opencode-task",
        "opencode-permission-edit",
        "opencode-tool-bash",
        "qwen-permission-reject",
        "qwen-plan",
        "qwen-files",
        "claude-tools",
        "vibe-permission-then-cancel",
        "vibe-kill-open-permission",
    ] {
        let played = check_recording(&kept(name), name).await;
        let mut text = String::new();
        for (number, turn) in played.turns.iter().enumerate() {
            writeln!(text, "turn {}", number + 1).unwrap();
            for event in turn {
                writeln!(text, "  {event:?}").unwrap();
            }
        }
        writeln!(text, "unmapped {:?}", played.unmapped).unwrap();
        insta::assert_snapshot!(name, text);
    }
}

#[tokio::test]
async fn an_agent_that_only_prints_a_sentence_leaves_noise() {
    let played = play(&kept("kimi-discontinued")).await;
    assert!(played.noise[0].starts_with("kimi-cli is no longer maintained."), "{:?}", played.noise);
}

#[tokio::test]
async fn a_turn_that_vibe_continues_while_it_loads_the_session_is_recognised() {
    let played = play(&kept("vibe-kill-open-permission")).await;
    let (_, replay) = played.replays.iter().find(|(_, replay)| replay.prompts > 0).unwrap();
    assert_eq!((replay.prompts, replay.last.reply.as_str()), (2, "alpha b bravo c "));
    // The gateway had heard nothing of this turn but its tool call.
    assert!(replay.last.prompt.starts_with("scn:tool name=bash") && replay.last.went_on(""));
    let lost =
        played.turns.iter().filter(|turn| matches!(turn.last(), Some(AgentEvent::Ended(Outcome::Failed(_)))));
    assert_eq!(lost.count(), 1);
}

/// The recordings are beside the checkout, like the seeds. Where they are missing, `make test` leaves all modules with the name
/// `seeds` out, and says so.
mod seeds {
    use super::*;

    #[tokio::test]
    async fn every_recording_of_an_agent_is_translated() {
        let shared = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .map(|folder| folder.join("shared/recordings"))
            .find(|folder| folder.is_dir())
            .expect("the recordings are beside the checkout");
        let mut folders = vec![shared.join("acp")];
        let agents = std::fs::read_dir(shared.join("acp-agents")).unwrap();
        folders.extend(agents.map(|agent| agent.unwrap().path()).filter(|path| path.is_dir()));
        let (mut recordings, mut turns, mut messages, mut served) = (0, 0, 0, 0);
        let mut unmapped = BTreeMap::new();
        for file in folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
            let file = file.unwrap().path();
            let text = std::fs::read_to_string(&file).unwrap();
            let played = check_recording(&text, &file.display().to_string()).await;
            recordings += 1;
            turns += played.turns.len();
            messages += played.messages;
            served += played.served;
            unmapped.extend(played.unmapped);
        }
        println!("{recordings} recordings, {messages} messages, {turns} turns, {served} requests for files");
        // The recorder offered files. Nothing else than requests for these is left to name.
        assert_eq!(unmapped, BTreeMap::new());
        assert!(recordings >= 129 && messages >= 4_833 && turns >= 200 && served >= 7);
    }
}
