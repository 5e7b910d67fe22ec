//! All sessions, and what is due when. Everything that happens here is written to the bus.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};

use tokio::sync::oneshot;

use super::bus::{Bus, Event};
use super::session::Session;
use crate::clock;
use crate::histogram::Histogram;
use crate::stamp::TextSum;

/// How long a turn waits for a reader that does not come.
const READER_PATIENCE_NS: u64 = 2_000_000_000;

/// Deltas are due at multiples of this, so that those of many turns go out together, as OpenCode's do.
const QUANTUM_NS: u64 = 2_000_000;

/// Sessions that are remembered. Older ones that are idle are forgotten, so that a long run does not fill the memory.
const MAX_SESSIONS: usize = 20_000;

/// Turns of which the truth is remembered. It is small, and asked for when all of a load is over.
const MAX_TRUTHS: usize = 300_000;

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) bus: Bus,
    sessions: HashMap<String, Session>,
    /// In the order in which they were made.
    order: VecDeque<String>,
    busy: HashSet<String>,
    /// When which session has its next delta.
    due: BinaryHeap<Reverse<(u64, String)>>,
    /// Turns that have not begun: until when they wait for a reader.
    waiting: Vec<(u64, String)>,
    /// How many turns run, or wait, that have a reader of their own each; and how many there were since there was none.
    with_reader: usize,
    readers_awaited: usize,
    /// Who waits for the end of a turn.
    callers: HashMap<String, Vec<oneshot::Sender<String>>>,
    /// What is true of a turn, by the key of its prompt.
    truth: HashMap<String, Truth>,
    /// Their keys, in the order in which they ended.
    told: VecDeque<String>,
    pub(super) totals: Totals,
}

/// What the text of a turn really was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Truth {
    pub(super) deltas: u64,
    pub(super) bytes: usize,
    pub(super) sum: TextSum,
}

#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) turns: u64,
    pub(super) ended: u64,
    pub(super) deltas: u64,
    /// How late deltas were written, measured by their schedule.
    pub(super) lag: Histogram,
}

impl World {
    pub(super) fn make_session(&mut self, directory: &str, title: Option<&str>) -> String {
        let mut session = Session::new(directory, title);
        emit_session(&mut self.bus, &mut session, "session.created");
        let (id, info) = (session.id.clone(), session.info());
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

    pub(super) fn truth(&self, key: &str) -> Option<Truth> {
        self.truth.get(key).copied()
    }

    pub(super) fn running(&self) -> usize {
        self.busy.len()
    }

    pub(super) fn known(&self) -> usize {
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

    /// Takes a prompt. `None`: there is no such session. One that is busy gets no second turn here: a gateway that
    /// prompts it then does something that is not measured.
    pub(super) fn prompt(&mut self, id: &str, text: &str, message: Option<&str>) -> Option<bool> {
        let session = self.sessions.get_mut(id)?;
        if !self.busy.insert(id.to_owned()) {
            return Some(false);
        }
        let awaits = session.prompt(text, message).script.awaits_reader;
        self.totals.turns += 1;
        let deadline = if awaits { clock::monotonic_ns() + READER_PATIENCE_NS } else { 0 };
        self.with_reader += usize::from(awaits);
        self.readers_awaited += usize::from(awaits);
        self.waiting.push((deadline, id.to_owned()));
        Some(true)
    }

    /// Waits for the end of the turn that runs; the answer comes as text.
    pub(super) fn at_end(&mut self, id: &str) -> oneshot::Receiver<String> {
        let (sender, receiver) = oneshot::channel();
        self.callers.entry(id.to_owned()).or_default().push(sender);
        receiver
    }

    /// Does what is due, and says when to come again.
    pub(super) fn advance(&mut self) -> Option<u64> {
        let now = clock::monotonic_ns();
        self.begin_those_that_may(now);
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

    fn begin_those_that_may(&mut self, now: u64) {
        let waiting = std::mem::take(&mut self.waiting);
        for (deadline, id) in waiting {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            // Those that are open may be left over from turns that have ended, so that those that came are counted.
            if now < deadline && self.bus.opened(&session.directory) < self.readers_awaited {
                self.waiting.push((deadline, id));
                continue;
            }
            let ramp = begin(&mut self.bus, session);
            // Spread over the interval by what is random in an id, so that not all turns speak at the same moment.
            let interval = session.turns.last().map_or(0, |turn| turn.script.interval_ns());
            let phase = TextSum::of(id.as_bytes()).0 % interval.max(1);
            let first = now + ramp + phase;
            if let Some(turn) = session.turns.last_mut() {
                turn.due_ns = first;
            }
            self.due.push(Reverse((first, id)));
        }
    }

    /// The deltas of one turn that are due, or its end.
    fn step(&mut self, id: &str, now: u64) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let Some(mut turn) = session.turns.pop() else { return };
        if turn.completed.is_some() {
            session.turns.push(turn);
            return;
        }
        let interval = turn.script.interval_ns();
        while turn.sent < turn.script.deltas && turn.due_ns <= now {
            let (message, part) = (turn.assistant.clone(), turn.text_part.clone());
            let delta = turn.next_delta();
            self.bus.emit(
                &session.directory,
                Event {
                    kind: "message.part.delta",
                    durable: None,
                    properties: format_args!(
                        r#"{{"sessionID":"{id}","messageID":"{message}","partID":"{part}","field":"text","delta":"{delta}"}}"#
                    ),
                },
            );
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

    /// Stops what runs in a session. Nothing happens to an idle one.
    pub(super) fn abort(&mut self, id: &str) {
        if self.busy.contains(id) {
            self.waiting.retain(|(_, waiting)| waiting != id);
            self.end(id, true);
            self.bus.flush();
        }
    }

    fn end(&mut self, id: &str, aborted: bool) {
        self.busy.remove(id);
        let Some(session) = self.sessions.get_mut(id) else { return };
        let Some(turn) = session.turns.last_mut() else { return };
        turn.aborted = aborted;
        if turn.script.awaits_reader {
            self.with_reader -= 1;
            if self.with_reader == 0 {
                self.readers_awaited = 0;
                self.bus.forget_opened();
            }
        }
        self.totals.ended += 1;
        if !turn.script.key.is_empty() {
            let truth = Truth { deltas: turn.sent, bytes: turn.text.len(), sum: turn.sum };
            self.truth.insert(turn.script.key.clone(), truth);
            self.told.push_back(turn.script.key.clone());
            if self.told.len() > MAX_TRUTHS
                && let Some(oldest) = self.told.pop_front()
            {
                self.truth.remove(&oldest);
            }
        }
        finish(&mut self.bus, session);
        if let Some(callers) = self.callers.remove(id) {
            let answer = session.turns.last().map(|turn| turn.answer(session)).unwrap_or_default();
            for caller in callers {
                // Whoever has gone away need not know.
                let _ = caller.send(answer.clone());
            }
        }
    }
}

/// The events of a session's prompt, up to the place where its text streams. Gives how long the model thinks first.
fn begin(bus: &mut Bus, session: &mut Session) -> u64 {
    let Some(mut turn) = session.turns.pop() else { return 0 };
    let now = clock::wall_ms();
    (turn.began, turn.text_began, session.updated) = (now, now, now);
    emit_session(bus, session, "session.updated");
    emit_message(bus, session, &turn.user_info(session, false));
    emit_part(bus, session, &turn.prompt_part(session));
    emit_session(bus, session, "session.updated");
    emit_status(bus, session, "busy");
    emit_message(bus, session, &turn.info(session, false));
    emit_session(bus, session, "session.updated");
    session.summed = true;
    emit_session(bus, session, "session.updated");
    emit_diff(bus, session);
    emit_message(bus, session, &turn.user_info(session, true));
    emit_status(bus, session, "busy");
    emit_part(bus, session, &turn.start_part(session));
    emit_part(bus, session, &turn.text_part(session, false));
    let ramp = turn.script.ramp_ms * 1_000_000;
    session.turns.push(turn);
    ramp
}

/// The events from the last delta on.
fn finish(bus: &mut Bus, session: &mut Session) {
    let Some(mut turn) = session.turns.pop() else { return };
    turn.text_ended = clock::wall_ms();
    if turn.aborted {
        emit(
            bus,
            session,
            "session.error",
            false,
            format_args!(
                r#"{{"sessionID":"{}","error":{{"name":"MessageAbortedError","data":{{"message":"Aborted"}}}}}}"#,
                session.id
            ),
        );
        emit_idle(bus, session);
    }
    emit_part(bus, session, &turn.text_part(session, true));
    if !turn.aborted {
        emit_part(bus, session, &turn.finish_part(session));
        emit_message(bus, session, &turn.info(session, true));
    }
    let now = clock::wall_ms();
    (turn.completed, session.updated) = (Some(now), now);
    session.answered = true;
    emit_message(bus, session, &turn.info(session, !turn.aborted));
    emit_status(bus, session, "busy");
    emit_idle(bus, session);
    emit_session(bus, session, "session.updated");
    emit_diff(bus, session);
    emit_message(bus, session, &turn.user_info(session, true));
    session.turns.push(turn);
}

fn emit(bus: &mut Bus, session: &Session, kind: &str, durable: bool, properties: std::fmt::Arguments<'_>) {
    let durable = durable.then_some((session.id.as_str(), session.durable));
    bus.emit(&session.directory, Event { kind, durable, properties });
}

fn emit_session(bus: &mut Bus, session: &mut Session, kind: &str) {
    let info = session.info();
    let properties = format_args!(r#"{{"sessionID":"{}","info":{info}}}"#, session.id);
    emit(bus, session, kind, true, properties);
    session.durable += 1;
}

fn emit_message(bus: &mut Bus, session: &mut Session, info: &str) {
    let properties = format_args!(r#"{{"sessionID":"{}","info":{info}}}"#, session.id);
    emit(bus, session, "message.updated", true, properties);
    session.durable += 1;
}

fn emit_part(bus: &mut Bus, session: &mut Session, part: &str) {
    let now = clock::wall_ms();
    let properties = format_args!(r#"{{"sessionID":"{}","part":{part},"time":{now}}}"#, session.id);
    emit(bus, session, "message.part.updated", true, properties);
    session.durable += 1;
}

fn emit_status(bus: &mut Bus, session: &Session, status: &str) {
    let properties = format_args!(r#"{{"sessionID":"{}","status":{{"type":"{status}"}}}}"#, session.id);
    emit(bus, session, "session.status", false, properties);
}

fn emit_idle(bus: &mut Bus, session: &Session) {
    emit_status(bus, session, "idle");
    emit(bus, session, "session.idle", false, format_args!(r#"{{"sessionID":"{}"}}"#, session.id));
}

fn emit_diff(bus: &mut Bus, session: &Session) {
    emit(bus, session, "session.diff", false, format_args!(r#"{{"sessionID":"{}","diff":[]}}"#, session.id));
}
