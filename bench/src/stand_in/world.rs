//! All sessions, and when each one has to act. Every change is written to the bus.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};

use longshore_opencode_shapes::{Message, NamedError, Part, Properties, Status};
use tokio::sync::oneshot;

use super::acp;
use super::bus::Bus;
use super::session::{Session, json};
use crate::clock;
use crate::histogram::Histogram;
use crate::stamp::TextSum;

/// How long a turn waits for its reader before it starts without one.
const READER_TIMEOUT_NS: u64 = 2_000_000_000;

/// Deltas are due at multiples of this, so that the deltas of many turns go out together, as OpenCode's do.
const QUANTUM_NS: u64 = 2_000_000;

/// Sessions that are kept. Older idle sessions are dropped, so that a long run does not fill the memory.
const MAX_SESSIONS: usize = 20_000;

/// Turns whose sent text is kept. An entry is small, and is read only after the whole load has ended.
const MAX_SENT_TEXTS: usize = 300_000;

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) bus: Bus,
    /// The client of an ACP agent. With an ACP agent the event bus has no readers.
    pub(super) client: Option<acp::Client>,
    sessions: HashMap<String, Session>,
    /// In the order of creation.
    order: VecDeque<String>,
    busy: HashSet<String>,
    /// When each session has its next delta.
    due: BinaryHeap<Reverse<(u64, String)>>,
    /// Turns that have not begun, and until when each waits for a reader.
    waiting: Vec<(u64, String)>,
    /// Turns that have begun and wait for their release, and how long after it each has its first delta.
    held: Vec<(u64, String)>,
    /// How many running or waiting turns have a reader of their own.
    turns_with_reader: usize,
    /// How many such turns came since there was none of them.
    readers_awaited: usize,
    /// Blocking prompts that wait for the end of a turn.
    callers: HashMap<String, Vec<oneshot::Sender<String>>>,
    /// The text that a turn sent, by the key of its prompt.
    sent_texts: HashMap<String, SentText>,
    /// The keys of `sent_texts`, in the order in which the turns ended.
    ended_keys: VecDeque<String>,
    pub(super) totals: Totals,
}

/// The text that a turn sent, to be compared with the text that clients received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SentText {
    pub(super) deltas: u64,
    pub(super) bytes: usize,
    pub(super) sum: TextSum,
}

#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) turns: u64,
    pub(super) ended: u64,
    pub(super) deltas: u64,
    /// How late deltas were written, compared with their schedule.
    pub(super) lag: Histogram,
}

impl World {
    /// The world of an ACP agent.
    pub(super) fn of_acp() -> Self {
        Self { client: Some(acp::Client::default()), ..Self::default() }
    }

    /// Creates a session and returns it as JSON.
    pub(super) fn make_session(&mut self, directory: &str, title: Option<&str>) -> String {
        let session = Session::new(directory, title);
        emit_session(&mut self.bus, &session, "session.created");
        let (id, info) = (session.id.clone(), json(&session.info()));
        self.order.push_back(id.clone());
        self.sessions.insert(id, session);
        while self.order.len() > MAX_SESSIONS {
            let Some(oldest) = self.order.pop_front() else { break };
            if self.busy.contains(&oldest) {
                self.order.push_back(oldest);
                break;
            }
            self.sessions.remove(&oldest);
        }
        self.bus.flush();
        info
    }

    pub(super) fn session(&self, id: &str) -> Option<&Session> {
        self.sessions.get(id)
    }

    pub(super) fn sent_text(&self, key: &str) -> Option<SentText> {
        self.sent_texts.get(key).copied()
    }

    pub(super) fn running(&self) -> usize {
        self.busy.len()
    }

    pub(super) fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// The sessions of a directory that are busy.
    pub(super) fn statuses(&self, directory: &str) -> String {
        let here =
            |id: &&String| self.sessions.get(*id).is_some_and(|session| session.directory == directory);
        let listed: Vec<_> =
            self.busy.iter().filter(here).map(|id| format!(r#""{id}":{{"type":"busy"}}"#)).collect();
        format!("{{{}}}", listed.join(","))
    }

    /// Starts a turn. `None`: there is no such session. A busy session gets no second turn: no measurement prompts a busy
    /// session.
    pub(super) fn prompt(&mut self, id: &str, text: &str, message: Option<&str>) -> Option<bool> {
        let session = self.sessions.get_mut(id)?;
        if !self.busy.insert(id.to_owned()) {
            return Some(false);
        }
        let awaits = session.prompt(text, message).script.awaits_reader;
        self.totals.turns += 1;
        let deadline = if awaits { clock::monotonic_ns() + READER_TIMEOUT_NS } else { 0 };
        self.turns_with_reader += usize::from(awaits);
        self.readers_awaited += usize::from(awaits);
        self.waiting.push((deadline, id.to_owned()));
        Some(true)
    }

    /// Receives the answer, as JSON, when the running turn ends.
    pub(super) fn answer_at_end(&mut self, id: &str) -> oneshot::Receiver<String> {
        let (sender, receiver) = oneshot::channel();
        self.callers.entry(id.to_owned()).or_default().push(sender);
        receiver
    }

    /// Does everything that is due, and returns the time of the next call.
    pub(super) fn advance(&mut self) -> Option<u64> {
        let now = clock::monotonic_ns();
        self.begin_turns(now);
        while let Some(Reverse((due, _))) = self.due.peek() {
            if *due > now {
                break;
            }
            let Some(Reverse((_, id))) = self.due.pop() else { break };
            self.step(&id, now);
        }
        self.bus.flush();
        let next_delta = self.due.peek().map(|Reverse((due, _))| *due);
        let next_deadline = self.waiting.iter().map(|(deadline, _)| *deadline).min();
        next_delta.into_iter().chain(next_deadline).min()
    }

    fn begin_turns(&mut self, now: u64) {
        let waiting = std::mem::take(&mut self.waiting);
        for (deadline, id) in waiting {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            // Counts the readers that connected, because open readers may belong to turns that have ended.
            if now < deadline && self.bus.opened(&session.directory) < self.readers_awaited {
                self.waiting.push((deadline, id));
                continue;
            }
            let ramp = begin(&mut self.bus, session);
            // The hash of the id spreads the turns over the interval, so that they do not all send at the same moment.
            let interval = session.turns.last().map_or(0, |turn| turn.script.interval_ns());
            let phase = TextSum::of(id.as_bytes()).0 % interval.max(1);
            match session.turns.last_mut() {
                Some(turn) if turn.script.is_held => self.held.push((ramp + phase, id)),
                Some(turn) => {
                    turn.due_ns = now + ramp + phase;
                    self.due.push(Reverse((turn.due_ns, id)));
                }
                None => {}
            }
        }
    }

    /// Lets the held turns go on.
    pub(super) fn release(&mut self) {
        let now = clock::monotonic_ns();
        self.begin_turns(now);
        for (wait, id) in std::mem::take(&mut self.held) {
            let turn = self.sessions.get_mut(&id).and_then(|session| session.turns.last_mut());
            let Some(turn) = turn else { continue };
            turn.due_ns = now + wait;
            self.due.push(Reverse((turn.due_ns, id)));
        }
    }

    /// Sends the deltas of one turn that are due, or its end.
    fn step(&mut self, id: &str, now: u64) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let Some(mut turn) = session.turns.pop() else { return };
        if turn.completed_at.is_some() {
            session.turns.push(turn);
            return;
        }
        let interval = turn.script.interval_ns();
        while turn.sent < turn.script.deltas && turn.due_ns <= now {
            let start = turn.add_delta();
            match &mut self.client {
                Some(client) => client.delta(id, &turn.assistant, &turn.text[start..]),
                None => self.bus.emit_delta(session, &turn.assistant, &turn.text_part, &turn.text[start..]),
            }
            self.totals.deltas += 1;
            if interval > 0 {
                self.totals.lag.record(now - turn.due_ns);
            }
            turn.due_ns += turn.script.interval_after_ns(turn.sent - 1);
        }
        let (over, due) = (turn.sent >= turn.script.deltas, turn.due_ns);
        session.turns.push(turn);
        if over {
            self.end(id, false);
        } else {
            self.due.push(Reverse((due.next_multiple_of(QUANTUM_NS), id.to_owned())));
        }
    }

    /// Stops the running turn of a session, if there is one.
    pub(super) fn abort(&mut self, id: &str) {
        if self.busy.contains(id) {
            self.waiting.retain(|(_, waiting)| waiting != id);
            self.end(id, true);
            self.bus.flush();
        }
    }

    fn end(&mut self, id: &str, is_aborted: bool) {
        self.busy.remove(id);
        let Some(session) = self.sessions.get_mut(id) else { return };
        let Some(turn) = session.turns.last_mut() else { return };
        turn.is_aborted = is_aborted;
        if turn.script.awaits_reader {
            self.turns_with_reader -= 1;
            if self.turns_with_reader == 0 {
                self.readers_awaited = 0;
                self.bus.forget_opened();
            }
        }
        self.totals.ended += 1;
        if !turn.script.key.is_empty() {
            let sent = SentText { deltas: turn.sent, bytes: turn.text.len(), sum: turn.sum };
            self.sent_texts.insert(turn.script.key.clone(), sent);
            self.ended_keys.push_back(turn.script.key.clone());
            if self.ended_keys.len() > MAX_SENT_TEXTS
                && let Some(oldest) = self.ended_keys.pop_front()
            {
                self.sent_texts.remove(&oldest);
            }
        }
        finish(&mut self.bus, session);
        if let Some(client) = &mut self.client {
            client.end(id, is_aborted);
        }
        if let Some(callers) = self.callers.remove(id) {
            let answer = session.turns.last().map(|turn| turn.answer(session)).unwrap_or_default();
            for caller in callers {
                // A caller that has left needs no answer.
                let _ = caller.send(answer.clone());
            }
        }
    }
}

/// Sends the events of a prompt up to the start of its text. Returns how long the model thinks before its first delta.
fn begin(bus: &mut Bus, session: &mut Session) -> u64 {
    let Some(mut turn) = session.turns.pop() else { return 0 };
    let now = clock::wall_ms();
    (turn.began_at, turn.text_began_at, session.updated) = (now, now, now);
    emit_session(bus, session, "session.updated");
    emit_message(bus, session, turn.user_message(session, false));
    emit_part(bus, session, turn.prompt_part(session));
    emit_session(bus, session, "session.updated");
    emit_status(bus, session, "busy");
    emit_message(bus, session, turn.assistant_message(session, false));
    emit_session(bus, session, "session.updated");
    session.is_summarized = true;
    emit_session(bus, session, "session.updated");
    emit_diff(bus, session);
    emit_message(bus, session, turn.user_message(session, true));
    emit_status(bus, session, "busy");
    emit_part(bus, session, turn.start_part(session));
    emit_part(bus, session, turn.text_part(session, false));
    let ramp = turn.script.ramp_ms * 1_000_000;
    session.turns.push(turn);
    ramp
}

/// Sends the events that follow the last delta.
fn finish(bus: &mut Bus, session: &mut Session) {
    let Some(mut turn) = session.turns.pop() else { return };
    turn.text_ended_at = clock::wall_ms();
    if turn.is_aborted {
        let error: Properties<'_> = Properties::Error { session: &session.id, error: NamedError::ABORTED };
        bus.emit(session, "session.error", &error);
        emit_idle(bus, session);
    }
    emit_part(bus, session, turn.text_part(session, true));
    if !turn.is_aborted {
        emit_part(bus, session, turn.finish_part(session));
        emit_message(bus, session, turn.assistant_message(session, true));
    }
    let now = clock::wall_ms();
    (turn.completed_at, session.updated) = (Some(now), now);
    session.was_answered = true;
    emit_message(bus, session, turn.assistant_message(session, !turn.is_aborted));
    emit_status(bus, session, "busy");
    emit_idle(bus, session);
    emit_session(bus, session, "session.updated");
    emit_diff(bus, session);
    emit_message(bus, session, turn.user_message(session, true));
    session.turns.push(turn);
}

fn emit_session(bus: &mut Bus, session: &Session, kind: &str) {
    bus.emit(session, kind, &Properties::Info { session: &session.id, info: session.info() });
}

fn emit_message(bus: &mut Bus, session: &Session, info: Message<'_>) {
    bus.emit(session, "message.updated", &Properties::Info { session: &session.id, info });
}

fn emit_part(bus: &mut Bus, session: &Session, part: Part<'_>) {
    let properties = Properties::Part { session: &session.id, part, time: clock::wall_ms() };
    bus.emit(session, "message.part.updated", &properties);
}

fn emit_status(bus: &mut Bus, session: &Session, kind: &str) {
    let status: Properties<'_> = Properties::Status { session: &session.id, status: Status { kind } };
    bus.emit(session, "session.status", &status);
}

fn emit_idle(bus: &mut Bus, session: &Session) {
    emit_status(bus, session, "idle");
    let idle: Properties<'_> = Properties::Session { session: &session.id };
    bus.emit(session, "session.idle", &idle);
}

fn emit_diff(bus: &mut Bus, session: &Session) {
    let diff: Properties<'_> = Properties::Diff { session: &session.id, diff: &[] };
    bus.emit(session, "session.diff", &diff);
}
