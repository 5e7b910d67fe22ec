//! A session and its turns, and how OpenCode spells them.

use super::bus::PROJECT;
use super::ids;
use super::script::Script;
use crate::clock;
use crate::stamp::{self, TextSum};

/// The tree that a step works on; its value has no meaning here.
const SNAPSHOT: &str = "d1b5e5c44450514180c4d1a7957abb4b3015b7f1";
const VERSION: &str = "1.18.33";
const MODEL: &str = r#"{"id":"scripted","providerID":"scripted","variant":"default"}"#;
const NO_TOKENS: &str = r#"{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}}"#;
const TOKENS: &str = r#"{"input":102,"output":10,"reasoning":0,"cache":{"read":0,"write":0}}"#;
const STEP_TOKENS: &str =
    r#"{"total":112,"input":102,"output":10,"reasoning":0,"cache":{"write":0,"read":0}}"#;
const COST: &str = "0.000122";

#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) directory: String,
    /// As JSON text.
    pub(super) title: String,
    pub(super) created: u64,
    pub(super) updated: u64,
    pub(super) prompted: bool,
    pub(super) summed: bool,
    pub(super) answered: bool,
    /// How many durable events it has had.
    pub(super) durable: u64,
    /// Oldest first. The last one may run.
    pub(super) turns: Vec<Turn>,
}

/// A prompt and its answer.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) script: Script,
    /// Ids of the messages and of their parts.
    pub(super) user: String,
    pub(super) user_part: String,
    pub(super) assistant: String,
    pub(super) step_start: String,
    pub(super) text_part: String,
    pub(super) step_finish: String,
    /// As JSON text.
    pub(super) prompt: String,
    pub(super) asked: u64,
    pub(super) began: u64,
    pub(super) text_began: u64,
    pub(super) text_ended: u64,
    pub(super) completed: Option<u64>,
    pub(super) aborted: bool,
    /// When the next delta is to be sent, on the clock that never jumps.
    pub(super) due_ns: u64,
    /// Deltas that were sent.
    pub(super) sent: u64,
    pub(super) text: String,
    pub(super) sum: TextSum,
}

impl Session {
    pub(super) fn new(directory: &str, title: Option<&str>) -> Self {
        let now = clock::wall_ms();
        let title = title.map_or_else(|| format!("New session - {now}"), str::to_owned);
        Self {
            id: ids::fresh("ses"),
            directory: directory.to_owned(),
            title: json_text(&title),
            created: now,
            updated: now,
            prompted: false,
            summed: false,
            answered: false,
            durable: 0,
            turns: Vec::new(),
        }
    }

    /// A new turn. `message`: the id that the prompt gave its message.
    pub(super) fn prompt(&mut self, text: &str, message: Option<&str>) -> &mut Turn {
        let now = clock::wall_ms();
        self.prompted = true;
        self.turns.push(Turn {
            script: Script::read(text),
            user: message.map_or_else(|| ids::fresh("msg"), str::to_owned),
            user_part: ids::fresh("prt"),
            assistant: ids::later("msg"),
            step_start: ids::later("prt"),
            text_part: ids::later("prt"),
            step_finish: ids::later("prt"),
            prompt: json_text(text),
            asked: now,
            began: now,
            text_began: now,
            text_ended: now,
            completed: None,
            aborted: false,
            due_ns: 0,
            sent: 0,
            text: String::new(),
            sum: TextSum::default(),
        });
        self.turns.last_mut().expect("just pushed")
    }

    /// The session as OpenCode shows it.
    pub(super) fn info(&self) -> String {
        let Self { id, directory, title, created, updated, .. } = self;
        let agent =
            if self.prompted { format!(r#","agent":"build","model":{MODEL}"#) } else { String::new() };
        let summary = if self.summed { r#","summary":{"additions":0,"deletions":0,"files":0}"# } else { "" };
        let (cost, tokens) = if self.answered { (COST, TOKENS) } else { ("0", NO_TOKENS) };
        format!(
            r#"{{"id":"{id}","slug":"misty-forest","projectID":"{PROJECT}","directory":"{directory}","path":"","title":{title}{agent},"version":"{VERSION}"{summary},"cost":{cost},"tokens":{tokens},"time":{{"created":{created},"updated":{updated}}}}}"#
        )
    }

    /// All messages, oldest first, as the list has them.
    pub(super) fn messages(&self) -> Vec<String> {
        let both = |turn: &Turn| {
            [
                format!(r#"{{"info":{},"parts":[{}]}}"#, turn.user_info(self, true), turn.prompt_part(self)),
                turn.answer(self),
            ]
        };
        self.turns.iter().flat_map(both).collect()
    }
}

impl Turn {
    /// Makes the next delta and gives it.
    pub(super) fn next_delta(&mut self) -> &str {
        let from = self.text.len();
        stamp::write(&mut self.text, self.sent, self.script.size);
        self.sent += 1;
        let delta = &self.text[from..];
        self.sum.add(delta.as_bytes());
        delta
    }

    pub(super) fn user_info(&self, session: &Session, summed: bool) -> String {
        let summary = if summed { r#","summary":{"diffs":[]}"# } else { "" };
        format!(
            r#"{{"id":"{}","role":"user","sessionID":"{}","time":{{"created":{}}},"agent":"build","model":{{"providerID":"scripted","modelID":"scripted"}}{summary}}}"#,
            self.user, session.id, self.asked
        )
    }

    pub(super) fn prompt_part(&self, session: &Session) -> String {
        let Self { prompt, user, user_part, .. } = self;
        format!(
            r#"{{"type":"text","text":{prompt},"messageID":"{user}","sessionID":"{}","id":"{user_part}"}}"#,
            session.id
        )
    }

    /// The assistant's message: as it begins, with how it finished, or complete.
    pub(super) fn info(&self, session: &Session, finished: bool) -> String {
        let Session { id, directory, .. } = session;
        let (cost, tokens) = if finished { (COST, STEP_TOKENS) } else { ("0", NO_TOKENS) };
        let completed = self.completed.map(|at| format!(r#","completed":{at}"#)).unwrap_or_default();
        let end = match (self.aborted, finished) {
            (true, _) => r#","error":{"name":"MessageAbortedError","data":{"message":"Aborted"}}"#,
            (false, true) => r#","finish":"stop""#,
            (false, false) => "",
        };
        format!(
            r#"{{"id":"{}","parentID":"{}","role":"assistant","mode":"build","agent":"build","path":{{"cwd":"{directory}","root":"{directory}"}},"cost":{cost},"tokens":{tokens},"modelID":"scripted","providerID":"scripted","time":{{"created":{}{completed}}},"sessionID":"{id}"{end}}}"#,
            self.assistant, self.user, self.began
        )
    }

    pub(super) fn start_part(&self, session: &Session) -> String {
        format!(
            r#"{{"id":"{}","messageID":"{}","sessionID":"{}","snapshot":"{SNAPSHOT}","type":"step-start"}}"#,
            self.step_start, self.assistant, session.id
        )
    }

    /// The text. What streams is not stored, so that it is empty until it has ended.
    pub(super) fn text_part(&self, session: &Session, ended: bool) -> String {
        let Self { text_part, assistant, text, text_began, text_ended, .. } = self;
        let (text, end) =
            if ended { (text.as_str(), format!(r#","end":{text_ended}"#)) } else { ("", String::new()) };
        format!(
            r#"{{"id":"{text_part}","messageID":"{assistant}","sessionID":"{}","type":"text","text":"{text}","time":{{"start":{text_began}{end}}}}}"#,
            session.id
        )
    }

    pub(super) fn finish_part(&self, session: &Session) -> String {
        format!(
            r#"{{"id":"{}","reason":"stop","snapshot":"{SNAPSHOT}","messageID":"{}","sessionID":"{}","type":"step-finish","tokens":{STEP_TOKENS},"cost":{COST}}}"#,
            self.step_finish, self.assistant, session.id
        )
    }

    /// The answer as the list and the blocking call show it.
    pub(super) fn answer(&self, session: &Session) -> String {
        let ended = self.completed.is_some();
        let mut parts = format!("{},{}", self.start_part(session), self.text_part(session, ended));
        if ended && !self.aborted {
            parts = format!("{parts},{}", self.finish_part(session));
        }
        format!(r#"{{"info":{},"parts":[{parts}]}}"#, self.info(session, ended))
    }
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
