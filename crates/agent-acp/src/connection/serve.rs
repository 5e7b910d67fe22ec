//! Serves the agent's requests for files and commands that the operator allows.
//!
//! Background tasks do the work, so that a slow disk or a long command does not delay the agent's other messages. The terminal of a
//! command is reserved before that, at a moment at which the turn certainly runs.

use std::path::PathBuf;
use std::sync::Arc;

use longshore_engine::Tasks;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::backlog::TurnEvents;
use super::dispatch::Fatal;
use super::{Connection, Outgoing, Phase, TurnEvent};
use crate::client::{
    Client, ClientConfig, FileRequest, Kind, NewTerminal, Refusal, Report, Request, Reserved, TerminalRequest,
};
use crate::frame::{self, AgentRequestId};

/// The session that makes a request.
struct Asker {
    directory: PathBuf,
    /// The events of the session's turn, if a turn runs and was not canceled.
    turn: Option<TurnEvents>,
}

impl Connection {
    /// Allows the agent's requests for files and commands. Must be called before the handshake, which announces this to the agent.
    pub(crate) fn offer(&self, config: ClientConfig, tasks: &Tasks) {
        let is_first = self.0.client.set(Arc::new(Client::new(config, tasks))).is_ok();
        debug_assert!(is_first, "the agent is told once");
    }

    pub(super) fn client_capabilities(&self) -> Value {
        match self.0.client.get() {
            Some(client) => client.config.capabilities(),
            None => ClientConfig::default().capabilities(),
        }
    }

    /// Kills the commands of a session whose turn is over or about to end.
    pub(super) fn end_commands(&self, session: &str) {
        if let Some(client) = self.0.client.get() {
            client.terminals.end_session(session);
        }
    }

    /// Whether the gateway runs a command for the session.
    pub(crate) fn runs_command(&self, session: &str) -> bool {
        self.0.client.get().is_some_and(|client| client.terminals.runs_in(session))
    }

    /// Kills the commands of all sessions.
    pub(super) fn end_all_commands(&self) {
        if let Some(client) = self.0.client.get() {
            client.terminals.end_all();
        }
    }

    /// Serves a request. `None`: its method is not served.
    pub(super) async fn serve(
        &self,
        id: &AgentRequestId,
        method: &str,
        params: Option<&str>,
        bytes: usize,
    ) -> Option<Result<(), Fatal>> {
        let client = self.0.client.get()?;
        let begun = match client.read(method, params)? {
            Ok(request) => self.begin(client, id, request, bytes).await,
            Err(refusal) => Err(refusal),
        };
        Some(match begun {
            Ok(()) => Ok(()),
            Err(refusal) => self.try_send(refused(id, refusal)),
        })
    }

    /// Starts the work in a background task, which also sends the response.
    async fn begin(
        &self,
        client: &Arc<Client>,
        id: &AgentRequestId,
        request: Request,
        bytes: usize,
    ) -> Result<(), Refusal> {
        let asker = self.asker(&request)?;
        let Request { session, kind } = request;
        let (connection, worker, id) = (self.clone(), Arc::clone(client), id.clone());
        match kind {
            Kind::Terminal(TerminalRequest::Create(new)) => {
                let held = permit(&client.requests)?;
                let reserved = self.reserve(client, &session, &new)?;
                spawn(client, async move {
                    let (config, directory) = (&worker.config, &asker.directory);
                    let created = worker.terminals.create(config, &session, directory, new, reserved).await;
                    let (answer, follower) = match created {
                        Ok((terminal, follower)) => (Ok(json!({"terminalId": terminal})), Some(follower)),
                        Err(refusal) => (Err(refusal), None),
                    };
                    let answering = async move {
                        connection.answer_request(&id, answer, None).await;
                        drop(held);
                    };
                    // Runs concurrently with sending the response, so that the command can be ended even if the agent does not read
                    // the response.
                    let following = async {
                        if let Some(follower) = follower {
                            follower.run(|report| Self::show(asker.turn.as_ref(), report)).await;
                        }
                    };
                    tokio::join!(answering, following);
                });
            }
            Kind::Terminal(TerminalRequest::WaitForExit(terminal)) => {
                let held = permit(&client.waits)?;
                spawn(client, async move {
                    let answer = worker.terminals.wait_for_exit(&session, &terminal).await;
                    connection.answer_request(&id, answer, None).await;
                    drop(held);
                });
            }
            Kind::Terminal(TerminalRequest::Output(terminal)) => {
                let held = permit(&client.requests)?;
                spawn(client, async move {
                    let long = worker.long_answer().await;
                    let answer = worker.terminals.output(&session, &terminal);
                    connection.answer_request(&id, answer, long).await;
                    drop(held);
                });
            }
            Kind::Terminal(TerminalRequest::Kill(terminal)) => {
                let held = permit(&client.requests)?;
                spawn(client, async move {
                    let killed = worker.terminals.kill(&session, &terminal).await;
                    connection.answer_request(&id, killed.map(|()| json!({})), None).await;
                    drop(held);
                });
            }
            Kind::Terminal(TerminalRequest::Release(terminal)) => {
                let held = permit(&client.requests)?;
                spawn(client, async move {
                    let released = worker.terminals.release(&session, &terminal).await;
                    connection.answer_request(&id, released.map(|()| json!({})), None).await;
                    drop(held);
                });
            }
            Kind::File(request) => {
                let held = (permit(&client.requests)?, self.room_for(bytes).await);
                let is_read = matches!(request, FileRequest::Read { .. });
                spawn(client, async move {
                    // A write does not wait here, because its turn might be over by then.
                    let long = if is_read { worker.long_answer().await } else { None };
                    let answer = worker.serve_file(&session, asker.directory, request).await;
                    connection.answer_request(&id, answer, long).await;
                    drop(held);
                });
            }
        }
        Ok(())
    }

    /// Fails if the session may not make this request now.
    fn asker(&self, request: &Request) -> Result<Asker, Refusal> {
        let state = self.lock();
        let route = state.sessions.get(&request.session).ok_or(Refusal::NO_SESSION)?;
        let turn = match &route.phase {
            Phase::Turn { events, is_cancelled: false } => Some(events.clone()),
            Phase::Turn { .. } | Phase::Idle | Phase::Loading(_) => None,
        };
        let needs_turn = matches!(
            request.kind,
            Kind::File(FileRequest::Write { .. }) | Kind::Terminal(TerminalRequest::Create(_))
        );
        if needs_turn && turn.is_none() {
            return Err(Refusal::NO_TURN);
        }
        Ok(Asker { directory: PathBuf::from(&route.facts.directory), turn })
    }

    /// Reserves a terminal while the turn is locked, so that the end of the turn finds the terminal.
    fn reserve(&self, client: &Client, session: &str, new: &NewTerminal) -> Result<Reserved, Refusal> {
        let state = self.lock();
        if state.turn_of(session).is_none() || state.is_cancelled(session) {
            return Err(Refusal::NO_TURN);
        }
        client.terminals.reserve(session, new)
    }

    /// Reports the output of a command to callers. The last report waits for room; an earlier one is skipped if there is no room.
    async fn show(turn: Option<&TurnEvents>, report: Report) {
        let Some(events) = turn else { return };
        let bytes = report.output.len();
        if report.is_last {
            events.until_room(bytes).await;
        } else if !events.has_room(bytes) {
            return;
        }
        events.send(TurnEvent::Terminal(report), bytes);
    }

    /// Sends the response. `long`: a permit that is held until the agent has read the response.
    async fn answer_request(
        &self,
        id: &AgentRequestId,
        answer: Result<Value, Refusal>,
        long: Option<OwnedSemaphorePermit>,
    ) {
        let line = match answer {
            Ok(answer) => frame::result(id, &answer),
            Err(refusal) => refused(id, refusal),
        };
        let outbox = self.lock().outbox();
        // An error means that the connection is over.
        if let (Ok(outbox), Ok(room)) = (outbox, self.0.unwritten.room(line.len()).await) {
            let _ = outbox.send(Outgoing { line, _room: room, _held: long }).await;
        }
    }
}

impl Client {
    async fn long_answer(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.long_answers).acquire_owned().await.ok()
    }
}

/// A permit that is held until the request has its response. Fails if there is none.
fn permit(bound: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Refusal> {
    Arc::clone(bound).try_acquire_owned().map_err(|_| Refusal::TOO_MANY)
}

/// Runs work in the background, until the gateway stops at the latest.
fn spawn(client: &Client, work: impl Future<Output = ()> + Send + 'static) {
    let tasks = client.tasks.clone();
    client.tasks.spawn("acp client request", async move {
        tokio::select! {
            biased;
            () = tasks.stopping().cancelled() => {}
            () = work => {}
        }
    });
}

fn refused(id: &AgentRequestId, refusal: Refusal) -> Vec<u8> {
    frame::error(id, refusal.code, refusal.text)
}

#[cfg(test)]
mod tests;
