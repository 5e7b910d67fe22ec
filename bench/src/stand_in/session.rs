//! A session and its turns, in OpenCode's shapes.

use std::cell::Cell;

use longshore_opencode_shapes::{
    self as shapes, Cost, DiffSummary, FileSummary, Message, MessageTime, MessageWithParts, Model,
    NamedError, Part, PartIds, SessionModel, SessionTime, Tokens, VERSION, WorkingPath,
};
use serde::Serialize;

use super::bus::PROJECT;
use super::ids;
use super::script::Script;
use crate::clock;
use crate::stamp::{self, TextSum};

const AGENT: &str = "build";
const MODEL: &str = "scripted";

#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) directory: String,
    title: String,
    created: u64,
    pub(super) updated: u64,
    was_prompted: bool,
    /// OpenCode has summarized which files the turns changed.
    pub(super) is_summarized: bool,
    pub(super) was_answered: bool,
    /// How many events of this session OpenCode has stored. The bus counts them.
    pub(super) stored_events: Cell<u64>,
    /// Oldest first. The last one may run.
    pub(super) turns: Vec<Turn>,
}

/// A prompt and its answer.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) script: Script,
    /// Ids of the messages and of their parts.
    user: String,
    user_part: String,
    pub(super) assistant: String,
    step_start: String,
    pub(super) text_part: String,
    step_finish: String,
    prompt: String,
    asked_at: u64,
    pub(super) began_at: u64,
    pub(super) text_began_at: u64,
    pub(super) text_ended_at: u64,
    pub(super) completed_at: Option<u64>,
    pub(super) is_aborted: bool,
    /// When the next delta is to be sent, on the monotonic clock.
    pub(super) due_ns: u64,
    /// Deltas that were sent.
    pub(super) sent: u64,
    pub(super) text: String,
    pub(super) sum: TextSum,
}

impl Session {
    pub(super) fn new(directory: &str, title: Option<&str>) -> Self {
        let now = clock::wall_ms();
        Self {
            id: ids::fresh("ses"),
            directory: directory.to_owned(),
            title: title.map_or_else(|| format!("New session - {now}"), str::to_owned),
            created: now,
            updated: now,
            was_prompted: false,
            is_summarized: false,
            was_answered: false,
            stored_events: Cell::new(0),
            turns: Vec::new(),
        }
    }

    /// Adds a turn. `message`: the id that the prompt gave its message.
    pub(super) fn prompt(&mut self, text: &str, message: Option<&str>) -> &mut Turn {
        let now = clock::wall_ms();
        self.was_prompted = true;
        self.turns.push(Turn {
            script: Script::read(text),
            user: message.map_or_else(|| ids::fresh("msg"), str::to_owned),
            user_part: ids::fresh("prt"),
            assistant: ids::later("msg"),
            step_start: ids::later("prt"),
            text_part: ids::later("prt"),
            step_finish: ids::later("prt"),
            prompt: text.to_owned(),
            asked_at: now,
            began_at: now,
            text_began_at: now,
            text_ended_at: now,
            completed_at: None,
            is_aborted: false,
            due_ns: 0,
            sent: 0,
            text: String::new(),
            sum: TextSum::default(),
        });
        self.turns.last_mut().expect("just pushed")
    }

    pub(super) fn info(&self) -> shapes::Session<'_> {
        let (cost, tokens) = if self.was_answered {
            (Cost::Step, Tokens::STEP_OF_SESSION)
        } else {
            (Cost::Nothing, Tokens::NONE)
        };
        shapes::Session {
            id: &self.id,
            slug: "misty-forest",
            project: PROJECT,
            directory: &self.directory,
            path: "",
            title: &self.title,
            agent: self.was_prompted.then_some(AGENT),
            model: self.was_prompted.then_some(SessionModel {
                id: MODEL,
                provider: MODEL,
                variant: "default",
            }),
            version: VERSION,
            summary: self.is_summarized.then(FileSummary::default),
            cost,
            tokens,
            time: SessionTime { created: self.created, updated: self.updated },
        }
    }

    /// All messages, oldest first, as JSON.
    pub(super) fn messages(&self) -> Vec<String> {
        let both = |turn: &Turn| {
            let prompt =
                MessageWithParts { info: turn.user_message(self, true), parts: vec![turn.prompt_part(self)] };
            [json(&prompt), turn.answer(self)]
        };
        self.turns.iter().flat_map(both).collect()
    }
}

impl Turn {
    /// Appends the next delta to the text, and returns where it starts.
    pub(super) fn add_delta(&mut self) -> usize {
        let start = self.text.len();
        stamp::write(&mut self.text, self.sent, self.script.size);
        self.sent += 1;
        self.sum.add(&self.text.as_bytes()[start..]);
        start
    }

    pub(super) fn user_message<'a>(&'a self, session: &'a Session, is_summarized: bool) -> Message<'a> {
        Message::User {
            id: &self.user,
            session: &session.id,
            time: MessageTime { created: self.asked_at, completed: None },
            agent: AGENT,
            model: Model { provider: MODEL, model: MODEL },
            summary: is_summarized.then_some(DiffSummary { diffs: &[] }),
        }
    }

    pub(super) fn prompt_part<'a>(&'a self, session: &'a Session) -> Part<'a> {
        PartIds { id: &self.user_part, message: &self.user, session: &session.id }.prompt(&self.prompt)
    }

    /// The reply, with how it finished if it has.
    pub(super) fn assistant_message<'a>(&'a self, session: &'a Session, is_finished: bool) -> Message<'a> {
        let (cost, tokens) =
            if is_finished { (Cost::Step, Tokens::STEP) } else { (Cost::Nothing, Tokens::NONE) };
        Message::Assistant {
            id: &self.assistant,
            parent: &self.user,
            mode: AGENT,
            agent: AGENT,
            path: WorkingPath::new(&session.directory),
            cost,
            tokens,
            model: MODEL,
            provider: MODEL,
            time: MessageTime { created: self.began_at, completed: self.completed_at },
            session: &session.id,
            finish: (is_finished && !self.is_aborted).then_some("stop"),
            error: self.is_aborted.then_some(NamedError::ABORTED),
        }
    }

    pub(super) fn start_part<'a>(&'a self, session: &'a Session) -> Part<'a> {
        self.part(session, &self.step_start).step_start()
    }

    pub(super) fn text_part<'a>(&'a self, session: &'a Session, has_ended: bool) -> Part<'a> {
        let (text, end) = if has_ended { (self.text.as_str(), Some(self.text_ended_at)) } else { ("", None) };
        self.part(session, &self.text_part).block("text", text, self.text_began_at, end)
    }

    pub(super) fn finish_part<'a>(&'a self, session: &'a Session) -> Part<'a> {
        self.part(session, &self.step_finish).step_finish("stop")
    }

    /// The reply and its parts as JSON, as the message list and the blocking prompt answer with it.
    pub(super) fn answer(&self, session: &Session) -> String {
        let has_ended = self.completed_at.is_some();
        let mut parts = vec![self.start_part(session), self.text_part(session, has_ended)];
        if has_ended && !self.is_aborted {
            parts.push(self.finish_part(session));
        }
        json(&MessageWithParts { info: self.assistant_message(session, has_ended), parts })
    }

    fn part<'a>(&'a self, session: &'a Session, id: &'a str) -> PartIds<'a> {
        PartIds { id, message: &self.assistant, session: &session.id }
    }
}

pub(super) fn json(shape: &impl Serialize) -> String {
    serde_json::to_string(shape).expect("a shape is JSON")
}
