//! Passes each line of the agent to the request or the session to which it belongs.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longshore_meter::label::WhyIgnored;
use longshore_model::Json;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};

use super::backlog::{Loss, TurnEvents};
use super::{CallError, Connection, OpenedSession, Pending, Phase, Route, SessionFacts, State, TurnEvent};
use crate::frame::{self, AgentRequestId, Head, Incoming, RpcError};
use crate::permission::Choice;
use crate::schema::{self, COMMANDS, Commands, PermissionRequest, SessionAnswer, Update};
use crate::translate::{Replay, SessionTotals, TurnEnd};

/// How many updates, and how many bytes of them, wait for the response that names their session, and for how long. Further updates
/// and older ones are dropped.
const MAX_EARLY: usize = 64;
const MAX_EARLY_BYTES: usize = 4 * 1024 * 1024;
const MAX_EARLY_AGE: Duration = Duration::from_mins(1);

/// Updates of sessions that are not known yet, because an agent may send them before its response to `session/new`. They are
/// dropped when no session is being opened any more.
#[derive(Default)]
pub(super) struct EarlyUpdates(VecDeque<EarlyUpdate>);

struct EarlyUpdate {
    session: String,
    update: Update,
    bytes: usize,
    since: Instant,
}

/// The reason why the connection cannot continue.
pub(super) type Fatal = String;

impl Connection {
    pub(super) async fn take_line(&self, line: &[u8]) -> Result<(), Fatal> {
        match frame::parse(line) {
            Incoming::Answer { id, outcome } => {
                let outcome = outcome.map(Json::from_raw).map_err(CallError::Rpc);
                self.take_answer(id, outcome, line.len());
            }
            Incoming::Request { id, method, params } => {
                return self.take_request(id, &method, params, line.len()).await;
            }
            Incoming::Notification { method, params } if method == "session/update" => {
                self.take_update(params, line.len()).await;
            }
            Incoming::Notification { method, params } => {
                self.note_heard(params);
                self.lock().count(WhyIgnored::Unknown, &format!("notification {method}"));
            }
            Incoming::Invalid => self.lock().note_noise("line that is no message", line),
            Incoming::Noise => self.lock().note_noise("line that is no JSON", line),
            Incoming::Blank => {}
        }
        Ok(())
    }

    /// Handles a line that was too long to keep: its request fails, or its turn reports a lost update.
    pub(super) async fn take_overlong(&self, head: &[u8], bytes: u64) -> Result<(), Fatal> {
        let most = self.0.limits.line_bytes;
        self.lock().count(WhyIgnored::TooMuch, "line that is too long");
        let has = |word: &str| head.windows(word.len()).any(|part| part == word.as_bytes());
        // The kind of an update may stand behind its long part, which is not kept.
        let names_commands = has(COMMANDS) || !has("sessionUpdate");
        let head = Head::read(head);
        if let Some(id) = head.answers() {
            self.take_answer(Some(id), Err(CallError::TooLong { bytes, most }), 0);
            return Ok(());
        }
        if let Some(id) = head.request() {
            return self.refuse(&id, head.method.as_deref().unwrap_or_default());
        }
        match (head.method.as_deref(), head.session) {
            (Some("session/update"), Some(session)) => {
                let events = {
                    let mut state = self.lock();
                    if names_commands {
                        match state.sessions.get_mut(&session) {
                            Some(route) => route.facts.commands.get_or_insert_default().is_whole = false,
                            None => state.take_early(&session, Update::Commands(Commands::default()), 0),
                        }
                        self.0.commands_named.send_replace(());
                    }
                    state.turn_of(&session)
                };
                if let Some(events) = events
                    && self.has_room(&session, &events, 0).await
                {
                    events.send(TurnEvent::LostUpdate(Loss::TooLong), 0);
                }
                Ok(())
            }
            // The id is not in the kept beginning of the line, so no response is possible, and the agent would wait for ever.
            (Some(method), _) if is_request(method) => Err(format!(
                "The agent sent a request of {bytes} bytes, which cannot be answered; {most} bytes are allowed."
            )),
            (Some(_), _) => Ok(()),
            // The line may be the response that a turn waits for.
            (None, _) => Err(format!(
                "The agent sent a line of {bytes} bytes, which cannot be told from other messages by its beginning; {most} bytes \
                 are allowed."
            )),
        }
    }

    fn take_answer(&self, id: Option<u64>, outcome: Result<Json, CallError>, bytes: usize) {
        let events = {
            let mut state = self.lock();
            // A response whose caller has stopped waiting is dropped.
            match id.and_then(|id| state.pending.remove(&id)) {
                None => return state.count(WhyIgnored::Unexpected, "answer to no request"),
                Some(Pending::Call(reply)) => return drop(reply.send(outcome)),
                Some(Pending::Closing) => return,
                Some(Pending::NewSession { directory, is_copy, reply }) => {
                    let totals = if is_copy {
                        SessionTotals::of_old_session()
                    } else {
                        SessionTotals::of_new_session()
                    };
                    let opened = outcome.and_then(|answer| state.open(&answer, directory, totals));
                    state.drop_early();
                    return drop(reply.send(opened));
                }
                Some(Pending::OldSession { session, is_replayed, reply }) => {
                    let opened = state.reopened(session, outcome);
                    let opened = opened
                        .map(|(id, replay)| OpenedSession { id, replay: is_replayed.then_some(replay) });
                    return drop(reply.send(opened));
                }
                Some(Pending::Unwanted { session, is_copy }) => {
                    state.count(WhyIgnored::Unexpected, "answer to no request");
                    return state.close_unwanted(session, is_copy, outcome);
                }
                Some(Pending::Prompt { session }) => {
                    self.end_commands(&session);
                    let Some(events) = state.end_turn(&session) else { return };
                    for id in state.asks_of(&session) {
                        // The send may fail, because an agent that does not read has ended the turn anyway.
                        let _ = state.send(frame::result(&id, &Choice::Cancelled.outcome()));
                        state.open_asks.remove(&id);
                    }
                    events
                }
            }
        };
        let end = match outcome {
            Ok(answer) => TurnEnd::Answered(schema::read(&answer).unwrap_or_default()),
            Err(CallError::Rpc(error)) if error.code == RpcError::AUTH_REQUIRED => TurnEnd::AuthRequired,
            Err(CallError::Rpc(error)) => TurnEnd::Refused(error),
            Err(other) => TurnEnd::Lost(format!("The end of the turn could not be read: {other}")),
        };
        // Accepted even without room, because a turn without an end would hang.
        events.send(TurnEvent::Ended(end), bytes);
    }

    async fn take_request(
        &self,
        id: AgentRequestId,
        method: &str,
        params: Option<&RawValue>,
        bytes: usize,
    ) -> Result<(), Fatal> {
        let request = (method == "session/request_permission")
            .then(|| serde_json::from_str::<Box<PermissionRequest>>(params?.get()).ok())
            .flatten();
        let Some(request) = request else {
            self.note_heard(params);
            let served = self.serve(&id, method, params.map(RawValue::get), bytes).await;
            return served.unwrap_or_else(|| self.refuse(&id, method));
        };
        let events = {
            let mut state = self.lock();
            // The agent would take the answer to one of two requests with the same id for the answer to the other.
            if state.open_asks.contains_key(&id) {
                state.count(WhyIgnored::Unexpected, "permission request with an id that is in use");
                return Ok(());
            }
            let events = state.turn_of(&request.session_id).filter(|events| !events.is_closed());
            let is_cancelled = state.is_cancelled(&request.session_id);
            let events = events.filter(|_| !is_cancelled);
            if events.is_some() {
                state.open_asks.insert(id.clone(), request.session_id.clone());
            } else {
                state.count(WhyIgnored::Unexpected, "permission request outside of a turn");
            }
            events
        };
        match events {
            Some(events) if self.has_room(&request.session_id, &events, bytes).await => {
                events.send(TurnEvent::Permission { id, request }, bytes);
                Ok(())
            }
            // A cancel may have answered the request meanwhile.
            Some(_) if self.lock().open_asks.remove(&id).is_none() => Ok(()),
            _ => self.try_send(frame::result(&id, &Choice::Cancelled.outcome())),
        }
    }

    /// Answers a request that is not served. A permission request always gets a result, because an error would make the session of
    /// one agent unusable.
    fn refuse(&self, id: &AgentRequestId, method: &str) -> Result<(), Fatal> {
        self.lock().count(WhyIgnored::Unknown, &format!("request {method}"));
        self.try_send(if method == "session/request_permission" {
            frame::result(id, &Choice::Cancelled.outcome())
        } else {
            frame::error(id, RpcError::METHOD_NOT_FOUND, "This client does not offer the method.")
        })
    }

    /// The agent has sent something for the session that the parameters name.
    fn note_heard(&self, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(rename = "sessionId", borrow)]
            session: Cow<'a, str>,
        }
        if let Some(Params { session }) = params.and_then(|params| serde_json::from_str(params.get()).ok()) {
            self.lock().note_heard(&session);
        }
    }

    async fn take_update(&self, params: Option<&RawValue>, bytes: usize) {
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(rename = "sessionId", borrow)]
            session: Cow<'a, str>,
            #[serde(borrow)]
            update: &'a RawValue,
        }
        let read = params.and_then(|params| serde_json::from_str::<Params<'_>>(params.get()).ok());
        let Some(Params { session, update }) = read else {
            return self.lock().count(WhyIgnored::Unread, "update that cannot be read");
        };
        let update = Update::read(update);
        let events = {
            let mut state = self.lock();
            if let Update::Unknown(kind) = &update {
                state.note_heard(&session);
                return state.count(WhyIgnored::Unknown, &format!("update {kind}"));
            }
            let Some(route) = state.sessions.get_mut(&*session) else {
                return state.take_early(&session, update, bytes);
            };
            route.facts.note(&update);
            if matches!(update, Update::Commands(_)) {
                self.0.commands_named.send_replace(());
            }
            match &mut route.phase {
                Phase::Turn { events, .. } => events.clone(),
                Phase::Loading(replay) => return replay.update(&update),
                Phase::Idle if SessionFacts::concerns(&update) => return,
                Phase::Idle => return state.count(WhyIgnored::Unexpected, "update outside of a turn"),
            }
        };
        if self.has_room(&session, &events, bytes).await {
            events.send(TurnEvent::Update(update), bytes);
        }
    }

    /// Waits until there is room for an event of a turn. False: the event must be dropped, because the events of the turn are not
    /// read and other sessions have waited for too long.
    async fn has_room(&self, session: &str, events: &TurnEvents, bytes: usize) -> bool {
        let stall = self.0.limits.stall;
        loop {
            // Created before the check for room, so that no read in between is missed.
            let read = self.0.backlog.read();
            if events.has_room(bytes) || events.is_closed() {
                return true;
            }
            let since = Instant::now();
            self.0.was_held_back.store(true, Ordering::Relaxed);
            tokio::select! {
                biased;
                () = read => {}
                () = events.closed() => {}
                () = sleep(stall.saturating_sub(events.delay())) => {}
            }
            self.0.was_held_back.store(true, Ordering::Relaxed);
            events.add_delay(since.elapsed());
            if events.delay() < stall {
                continue;
            }
            if self.lock().any_other_waits(session) {
                if events.lose() {
                    tracing::warn!(
                        session,
                        "a turn is not read; some of its events are dropped, because other sessions wait"
                    );
                }
                return false;
            }
            // In this case nothing else has to wait.
            events.reset_delay();
        }
    }

    /// Waits until this many bytes of the agent's requests may be kept.
    pub(super) async fn room_for(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let most = self.0.limits.queued_bytes;
        let bytes = u32::try_from(bytes.min(most)).unwrap_or(u32::MAX);
        Arc::clone(&self.0.requests).acquire_many_owned(bytes).await.ok()
    }

    /// Queues a response to the agent without waiting. A full queue means that the agent no longer reads its input, and the error
    /// then ends the connection. If the agent is already ending, the response is dropped without an error.
    pub(super) fn try_send(&self, line: Vec<u8>) -> Result<(), Fatal> {
        match self.lock().send(line) {
            Err(CallError::Deaf) => Err("The agent does not read its input.".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Whether ACP defines this method of the agent as a request and not as a notification.
fn is_request(method: &str) -> bool {
    method == "session/request_permission" || method.starts_with("fs/") || method.starts_with("terminal/")
}

impl State {
    pub(super) fn turn_of(&self, session: &str) -> Option<TurnEvents> {
        match &self.sessions.get(session)?.phase {
            Phase::Turn { events, .. } => Some(events.clone()),
            Phase::Idle | Phase::Loading(_) => None,
        }
    }

    /// Whether a request waits for the agent, apart from the prompts of this session and of other turns that are not read.
    fn any_other_waits(&self, session: &str) -> bool {
        self.pending.values().any(|pending| match pending {
            Pending::Prompt { session: other } => {
                other != session && self.turn_of(other).is_some_and(|events| events.is_read())
            }
            Pending::Call(_) | Pending::NewSession { .. } | Pending::OldSession { .. } => true,
            Pending::Unwanted { .. } | Pending::Closing => false,
        })
    }

    fn note_heard(&mut self, session: &str) {
        if let Some(route) = self.sessions.get_mut(session) {
            route.heard_at = Some(Instant::now());
        }
    }

    pub(super) fn is_cancelled(&self, session: &str) -> bool {
        let phase = self.sessions.get(session).map(|route| &route.phase);
        matches!(phase, Some(Phase::Turn { is_cancelled: true, .. }))
    }

    pub(super) fn end_turn(&mut self, session: &str) -> Option<TurnEvents> {
        let route = self.sessions.get_mut(session)?;
        match std::mem::replace(&mut route.phase, Phase::Idle) {
            Phase::Turn { events, .. } => Some(events),
            Phase::Idle | Phase::Loading(_) => None,
        }
    }

    /// Called when the agent has opened a session. Its updates are accepted from now on.
    fn open(
        &mut self,
        answer: &Json,
        directory: String,
        totals: SessionTotals,
    ) -> Result<OpenedSession, CallError> {
        let answer: SessionAnswer = schema::read(answer).ok_or(CallError::Unreadable)?;
        let id = answer.session_id.clone().filter(|id| !id.is_empty()).ok_or(CallError::Unreadable)?;
        if self.sessions.contains_key(&id) {
            return Err(CallError::Unreadable);
        }
        let mut facts = SessionFacts::new(directory, totals);
        for update in self.early.take(&id) {
            facts.note(&update);
        }
        facts.opened(answer);
        self.sessions.insert(id.clone(), Route { facts, phase: Phase::Idle, heard_at: None });
        Ok(OpenedSession { id, replay: None })
    }

    fn reopened(
        &mut self,
        session: String,
        outcome: Result<Json, CallError>,
    ) -> Result<(String, Replay), CallError> {
        let Some(route) = self.sessions.get_mut(&session) else { return Err(CallError::NoSession) };
        let replay = match std::mem::replace(&mut route.phase, Phase::Idle) {
            Phase::Loading(replay) => replay,
            Phase::Idle | Phase::Turn { .. } => Replay::default(),
        };
        let answer = outcome.and_then(|answer| schema::read(&answer).ok_or(CallError::Unreadable));
        match answer {
            Ok(answer) => {
                route.facts.opened(answer);
                Ok((session, replay))
            }
            Err(error) => {
                self.sessions.remove(&session);
                Err(error)
            }
        }
    }

    /// Called when the agent has responded to a request to open a session for which nobody waits any more. Closes the session, so
    /// that the agent does not keep it open, unless another request has opened it meanwhile. A copy contains a conversation and has
    /// no owner, so it is deleted if the agent can do that.
    fn close_unwanted(&mut self, session: Option<String>, is_copy: bool, outcome: Result<Json, CallError>) {
        let Ok(answer) = outcome else { return };
        let named = || schema::read::<SessionAnswer>(&answer)?.session_id.filter(|id| !id.is_empty());
        let Some(session) = session.or_else(named) else { return };
        let methods: &[&str] =
            if is_copy { &["session/delete", "session/close"] } else { &["session/close"] };
        let Some(method) = methods.iter().find(|method| self.offers(method)) else { return };
        if self.sessions.contains_key(&session) {
            return;
        }
        let id = self.register(Pending::Closing);
        let line = frame::request(id, method, &json!({"sessionId": session}));
        if let Err(error) = self.send(line) {
            tracing::debug!(session, %error, "a session that nobody waits for could not be closed");
            self.pending.remove(&id);
        }
    }

    /// Keeps an update of an unknown session while a session is being opened, because the update may belong to that session.
    fn take_early(&mut self, session: &str, update: Update, bytes: usize) {
        while self.early.0.front().is_some_and(|early| early.since.elapsed() > MAX_EARLY_AGE) {
            self.early.0.pop_front();
            self.count(WhyIgnored::Unexpected, "update of an unknown session");
        }
        let waiting: usize = self.early.0.iter().map(|early| early.bytes).sum();
        if self.is_opening() && self.early.0.len() < MAX_EARLY && waiting + bytes <= MAX_EARLY_BYTES {
            let (session, since) = (session.to_owned(), Instant::now());
            self.early.0.push_back(EarlyUpdate { session, update, bytes, since });
        } else {
            self.count(WhyIgnored::Unexpected, "update of an unknown session");
        }
    }

    /// Drops the early updates if no session is being opened any more, because they cannot belong to one then.
    pub(super) fn drop_early(&mut self) {
        if !self.is_opening() {
            for _ in std::mem::take(&mut self.early.0) {
                self.count(WhyIgnored::Unexpected, "update of an unknown session");
            }
        }
    }

    fn is_opening(&self) -> bool {
        self.pending.values().any(|pending| matches!(pending, Pending::NewSession { .. }))
    }

    fn note_noise(&mut self, name: &str, line: &[u8]) {
        self.count(WhyIgnored::Unread, name);
        let room = super::MAX_NOISE.saturating_sub(self.noise.len());
        if room > 0 {
            let text = String::from_utf8_lossy(&line[..line.len().min(room)]).into_owned();
            if !self.noise.is_empty() {
                self.noise.push('\n');
            }
            self.noise.push_str(text.trim_end());
        }
    }
}

impl EarlyUpdates {
    /// Removes and returns the updates of this session.
    fn take(&mut self, session: &str) -> Vec<Update> {
        let all = std::mem::take(&mut self.0).into_iter();
        let (mine, others): (VecDeque<_>, VecDeque<_>) = all.partition(|early| early.session == session);
        self.0 = others;
        mine.into_iter().map(|early| early.update).collect()
    }
}
