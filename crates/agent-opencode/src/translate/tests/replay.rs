//! Tests with whole recordings: how they end, and that the text equals OpenCode's own message list.

use longshore_testkit::fake_opencode::{RecordedLine, Recording};
use serde_json::Value;

use super::*;

/// One prompt of a recording, played to the translator.
pub(super) struct Replay {
    pub(super) session: String,
    pub(super) prompt: String,
    pub(super) translator: Translator,
    pub(super) events: Vec<AgentEvent>,
    /// The outcome. `None`: the stream alone did not show the end.
    pub(super) outcome: Option<Outcome>,
    /// Lines of the recording after the prompt, up to the end of the turn.
    rest: std::vec::IntoIter<RecordedLine>,
    /// The session and its sub-agents.
    pub(super) tree: Vec<String>,
}

impl Replay {
    /// A replay positioned before the first event of the `nth` prompt, counted from 0.
    pub(super) fn of(name: &str, nth: usize) -> Self {
        let mut seen = 0;
        let is_nth = |line: &RecordedLine| {
            seen += usize::from(line.prompt().is_some());
            seen > nth
        };
        Self::from(name, is_nth, |line| line.prompt().is_some())
    }

    /// A replay positioned before the first event after this request. It ends before the next request of the same kind.
    pub(super) fn from(
        name: &str,
        is_first: impl FnMut(&RecordedLine) -> bool,
        is_next: impl Fn(&RecordedLine) -> bool,
    ) -> Self {
        let recording = Recording::load(name);
        let at = recording.lines.iter().position(is_first).expect("a prompt");
        let mut rest = recording.lines[at..].to_vec();
        let RecordedLine::Request { path, .. } = &rest[0] else { panic!("no request: {:?}", rest[0]) };
        let session = path.split('/').nth(2).expect("a session").to_owned();
        let next_prompt = rest[1..].iter().position(is_next);
        rest.truncate(next_prompt.map_or(rest.len(), |next| next + 1));
        let prompt = rest.iter().find_map(|line| match line {
            RecordedLine::Event(event) if event["type"] == "message.updated" => {
                let info = &event["properties"]["info"];
                (info["role"] == "user" && info["sessionID"] == session.as_str() && info["summary"].is_null())
                    .then(|| info["id"].as_str().unwrap().to_owned())
            }
            _ => None,
        });
        let prompt = prompt.unwrap_or_else(|| "msg_never_stored".to_owned());
        Self {
            translator: Translator::new(&session, &prompt),
            tree: vec![session.clone()],
            session,
            prompt,
            events: Vec::new(),
            outcome: None,
            rest: rest.into_iter(),
        }
    }

    /// Plays events until the turn is over or the recording ends.
    pub(super) fn finished(mut self) -> Self {
        while self.outcome.is_none() && self.next_event().is_some() {}
        self
    }

    /// Plays one event of the session, as the reader would route it.
    pub(super) fn next_event(&mut self) -> Option<Value> {
        loop {
            let RecordedLine::Event(event) = self.rest.next()? else { continue };
            let properties = &event["properties"];
            let session = properties["sessionID"].as_str().unwrap_or_default();
            if properties["info"]["parentID"]
                .as_str()
                .is_some_and(|parent| self.tree.iter().any(|known| known == parent))
            {
                self.tree.push(session.to_owned());
            }
            let Some(kind) = EventKind::parse(event["type"].as_str().unwrap_or_default()) else { continue };
            let mine = session == self.session
                || (kind.concerns_whole_tree() && self.tree.iter().any(|known| known == session));
            if !mine {
                continue;
            }
            self.translator
                .event(kind, event.to_string().as_bytes())
                .expect("a recorded event can be parsed");
            assert!(!self.translator.must_reread());
            self.events.extend(self.translator.take());
            if let Verdict::Over(outcome) = self.translator.verdict(false) {
                self.outcome = Some(outcome);
            }
            return Some(event);
        }
    }

    /// The session's messages from the prompt on, as the last list in the recording shows them.
    pub(super) fn stored(name: &str, session: &str, prompt: &str) -> Option<Vec<Value>> {
        let (messages, changed_after) = Recording::load(name).final_messages(session)?;
        if changed_after {
            return None;
        }
        let messages = messages.as_array()?;
        let at = messages.iter().position(|message| message["info"]["id"] == prompt)?;
        Some(messages[at..].to_vec())
    }

    pub(super) fn close(&mut self) {
        self.translator.close();
        self.events.extend(self.translator.take());
    }
}

/// The names of the recordings in which no prompt joins a running turn.
pub(super) fn names() -> impl Iterator<Item = String> {
    let joining = ["two_prompts_one_session", "prompt_during_tool", "many_prompts_queue"];
    Recording::names().into_iter().filter(move |name| !joining.contains(&name.as_str()))
}

pub(super) fn decode(messages: Vec<Value>) -> Vec<StoredMessage> {
    serde_json::from_value(Value::Array(messages)).unwrap()
}

/// The answers of a turn in the message list, summaries included.
pub(super) fn answers<'a>(messages: &'a [Value], prompt: &str) -> Vec<&'a Value> {
    let mut prompts = vec![prompt.to_owned()];
    let mut after_summary = false;
    let mut answers = Vec::new();
    for message in messages {
        let (info, parts) = (&message["info"], message["parts"].as_array().unwrap());
        if info["role"] == "user" {
            if after_summary || parts.iter().any(|part| part["auto"] == true) {
                prompts.push(info["id"].as_str().unwrap().to_owned());
            }
            continue;
        }
        if !prompts.iter().any(|id| info["parentID"] == id.as_str()) {
            // Another turn begins here.
            break;
        }
        after_summary = info["summary"] == true;
        answers.push(message);
    }
    answers
}

/// The finished blocks of a turn's answers in the message list.
pub(super) fn shown(messages: &[Value], prompt: &str) -> Vec<Folded> {
    let mut blocks = Vec::new();
    for message in answers(messages, prompt) {
        if message["info"]["summary"] == true {
            continue;
        }
        for part in message["parts"].as_array().unwrap() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let id = text(&part["id"]);
            let state = &part["state"];
            blocks.push(match part["type"].as_str().unwrap() {
                kind @ ("text" | "reasoning") => {
                    Folded { id, kind: kind.to_owned(), text: text(&part["text"]), ended: true }
                }
                "tool" => Folded {
                    id,
                    kind: format!("tool:{}", part["tool"].as_str().unwrap()),
                    text: text(if state["status"] == "error" { &state["error"] } else { &state["output"] }),
                    ended: true,
                },
                _ => continue,
            });
        }
    }
    blocks.retain(|block| block.kind.starts_with("tool:") || !block.text.is_empty());
    blocks
}

/// How the end of a turn is found (by the stream alone, after a read of the messages, or at the end of the wait), and its outcome.
fn end_of(name: &str, nth: usize) -> (&'static str, String) {
    let mut replay = Replay::of(name, nth).finished();
    if let Some(outcome) = &replay.outcome {
        return ("stream", short(outcome));
    }
    let messages = Replay::stored(name, &replay.session, &replay.prompt).unwrap_or_default();
    replay.translator.merge_messages(decode(messages));
    replay.translator.confirm_status(None);
    match replay.translator.verdict(false) {
        Verdict::Over(outcome) => ("reading", short(&outcome)),
        _ => ("last word", short(&replay.translator.forced_outcome(false, true))),
    }
}

#[test]
fn every_recording_ends_as_expected() {
    let stopped = "canceled: The turn was stopped at OpenCode itself.";
    let failed = "failed: OpenCode could not complete the turn: ";
    let cases: &[(&str, usize, &str, &str)] = &[
        ("abort_before_first_byte", 0, "stream", stopped),
        ("abort_stream", 0, "stream", stopped),
        ("abort_tool", 0, "stream", stopped),
        (
            "bad_json",
            0,
            "stream",
            "failed: OpenCode could not complete the turn: JSON parsing failed: Text: {this is not json.\n\
             Error message: JSON Parse error: Expected '}'",
        ),
        ("cut_fin_then_abort", 0, "reading", stopped),
        ("cut_noend_loop", 0, "stream", stopped),
        ("delete_while_busy", 0, "last word", stopped),
        (
            "error_400",
            0,
            "stream",
            "failed: The model's provider did not accept the request (status 400): bad request made by the script",
        ),
        (
            "error_401",
            0,
            "stream",
            "auth required: The model's provider refused OpenCode's credentials (status 401): Incorrect API key \
             provided. Give OpenCode the credentials for it, then send a message on this task to try again.",
        ),
        (
            "error_500_gives_up",
            0,
            "stream",
            "failed: The model's provider failed (status 500): The server had an error",
        ),
        ("error_model_not_found", 0, "last word", &format!("{failed}Model not found: scripted/nope.")),
        (
            "error_model_not_found",
            1,
            "last word",
            &format!("{failed}Model not found: nope/nope. Did you mean: standardcompute?"),
        ),
        (
            "error_model_not_found",
            2,
            "last word",
            &format!("{failed}Agent not found: \"nope\". Available agents: build, explore, general, plan"),
        ),
        (
            "error_model_not_found",
            3,
            "last word",
            &format!("{failed}Agent not found: \"nope\". Available agents: build, explore, general, plan"),
        ),
        (
            "finish_content_filter",
            0,
            "stream",
            "failed: The model's provider blocked the reply with its content filter: The response was blocked by the \
             provider's content filter",
        ),
        ("finish_length", 0, "stream", "completed: The reply was cut at the model's length limit."),
        ("instance_dispose", 0, "stream", stopped),
        ("permission_abort", 0, "stream", stopped),
        (
            "permission_pair",
            0,
            "reading",
            "failed: OpenCode ended the turn after the tool call 'bash' failed: The user rejected permission to use \
             this specific tool call.",
        ),
        (
            "permission_reject",
            0,
            "reading",
            "failed: OpenCode ended the turn after the tool call 'bash' failed: The user rejected permission to use \
             this specific tool call.",
        ),
        ("question_abort", 0, "stream", stopped),
        (
            "question_reject",
            0,
            "reading",
            "failed: OpenCode ended the turn after the tool call 'question' failed: The user dismissed this question",
        ),
        (
            "restart_sigterm",
            0,
            "last word",
            "failed: OpenCode stopped in the middle of the turn, for instance because it was restarted. What it had \
             done by then is done; the prompt is not sent again.",
        ),
        ("sse_error_not_retryable", 0, "stream", &format!("{failed}model melted")),
        ("stall", 0, "stream", stopped),
        ("task_abort", 0, "stream", stopped),
    ];
    let mut completed = 0;
    for name in names() {
        for nth in 0..Recording::load(&name).prompts().len() {
            let case = cases.iter().find(|case| (case.0, case.1) == (name.as_str(), nth));
            let expected = case.map_or(("stream", "completed"), |case| (case.2, case.3));
            completed += usize::from(case.is_none());
            let end = end_of(&name, nth);
            assert_eq!((end.0, end.1.as_str()), expected, "{name}, prompt {nth}");
        }
    }
    assert!(completed > 35, "only {completed} recorded turns completed");
}

#[test]
fn the_reported_text_equals_the_message_list() {
    let mut compared = 0;
    for name in names() {
        let prompts = Recording::load(&name).prompts().len();
        for nth in 0..prompts {
            let mut replay = Replay::of(&name, nth).finished();
            let Some(messages) = Replay::stored(&name, &replay.session, &replay.prompt) else { continue };
            replay.close();
            let mut folded = fold(&replay.events);
            // The recording or the turn may end in the middle of a tool call.
            for block in &mut folded {
                block.ended = true;
            }
            assert_eq!(folded, shown(&messages, &replay.prompt), "{name}, prompt {nth}");
            compared += 1;
        }
    }
    assert!(compared > 40, "only {compared} turns were compared");
}
