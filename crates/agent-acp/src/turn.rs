//! One turn: sends the prompt, translates its events, and answers its asks.

use std::collections::HashMap;
use std::time::Duration;

use longshore_engine::queue;
use longshore_model::{
    AgentEvent, Answer, ArtifactId, AskOptions, Error, ErrorKind, PromptId, RequestId, Result, SessionId,
};
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::connection::{CallError, Connection, Queued, Role, Room, TurnEvent};
use crate::frame::AgentRequestId;
use crate::permission::{self, Choice};
use crate::translate::{FilePaths, Settings, Translator, TurnEnd};

/// A running turn. Dropping it does not stop the agent.
#[derive(Debug)]
pub struct Turn {
    connection: Connection,
    session: SessionId,
    translator: Translator,
    events: queue::Receiver<Queued>,
    asks: HashMap<RequestId, (AgentRequestId, AskOptions)>,
    /// Gets the sentence about how the process ended, once that is known.
    epitaph: Option<watch::Receiver<Option<String>>>,
    /// The value of [`Self::silent_since`].
    silent_since: Instant,
    is_over: bool,
    /// Whether the agent refused the prompt because it works on another prompt of the session.
    found_busy: bool,
    /// See [`Self::lost_because`].
    lost_because: Option<String>,
}

/// How long a turn whose connection is over waits for the sentence about how the process ended.
const EPITAPH_TIMEOUT: Duration = Duration::from_secs(2);

impl Turn {
    pub fn start(
        connection: &Connection,
        session: SessionId,
        prompt: &PromptId,
        content: &[impl Serialize],
    ) -> std::result::Result<Self, CallError> {
        Self::start_in(None, connection, session, prompt, content)
    }

    /// Like [`Self::start`], with the room that the prompt waited for.
    pub(crate) fn start_in(
        room: Option<Room>,
        connection: &Connection,
        session: SessionId,
        prompt: &PromptId,
        content: &[impl Serialize],
    ) -> std::result::Result<Self, CallError> {
        let facts = connection.facts(session.as_str()).ok_or(CallError::NoSession)?;
        let events = connection.prompt_in(room, session.as_str(), content)?;
        let settings =
            Settings::new(facts.current(Role::Mode), facts.current(Role::Model), &facts.config_options);
        let translator = Translator::new(session.clone(), prompt, facts.totals)
            .with_settings(settings)
            .in_directory(facts.directory)
            .with_auth_methods(connection.auth_methods());
        let (connection, asks) = (connection.clone(), HashMap::new());
        Ok(Self {
            connection,
            session,
            translator,
            events,
            asks,
            epitaph: None,
            silent_since: Instant::now(),
            is_over: false,
            found_busy: false,
            lost_because: None,
        })
    }

    /// Makes the turn report how the agent's process ended, if the turn ends because of that.
    #[must_use]
    pub fn with_epitaph(self, epitaph: watch::Receiver<Option<String>>) -> Self {
        Self { epitaph: Some(epitaph), ..self }
    }

    pub fn translator(&self) -> &Translator {
        &self.translator
    }

    /// The paths from which a reported file may come. `None`: not all are known.
    pub fn take_file_paths(&mut self, file: &ArtifactId) -> Option<FilePaths> {
        self.translator.take_paths(file)
    }

    /// Waits for the next events. `None`: the turn is over. Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Vec<AgentEvent>> {
        loop {
            let waiting = self.translator.take();
            if !waiting.is_empty() {
                return Some(waiting);
            }
            if self.is_over {
                return None;
            }
            let event = match self.events.recv().await {
                Some(queued) => queued.event,
                None => self.lost().await,
            };
            self.take(event);
        }
    }

    /// The end of a turn whose queue ended without one.
    async fn lost(&mut self) -> TurnEvent {
        let told = match &mut self.epitaph {
            Some(epitaph) => {
                let told = timeout(EPITAPH_TIMEOUT, epitaph.wait_for(Option::is_some)).await;
                told.ok().and_then(|told| told.ok()?.clone())
            }
            None => None,
        };
        let why = told.or_else(|| self.connection.closed());
        TurnEvent::Ended(TurnEnd::Lost(
            why.unwrap_or_else(|| "The connection to the agent ended.".to_owned()),
        ))
    }

    fn take(&mut self, event: TurnEvent) {
        self.silent_since = Instant::now();
        match event {
            TurnEvent::Update(update) => self.translator.update(&update),
            TurnEvent::LostUpdate(loss) => self.translator.lost_update(loss),
            TurnEvent::Permission { id, request } => {
                let options = permission::read_options(&request.options);
                match self.translator.permission(&request, &options) {
                    Some(ask) => {
                        self.asks.insert(ask, (id, options));
                    }
                    // An error means that the connection is over, which the next event reports.
                    None => drop(self.connection.answer(&id, Choice::Cancelled)),
                }
            }
            TurnEvent::Terminal(report) => self.translator.terminal(&report.terminal, &report.output),
            TurnEvent::Ended(end) => {
                self.is_over = true;
                self.found_busy = matches!(&end, TurnEnd::Refused(error) if error.is_session_busy());
                self.asks.clear();
                self.translator.end(&end);
                if let TurnEnd::Lost(why) = end {
                    self.lost_because = Some(why);
                }
                self.connection.count_ignored(self.translator.ignored());
            }
        }
    }

    /// Since when the agent has sent nothing for the turn. An answer to the agent, or an expected silence, restarts this time.
    pub fn silent_since(&self) -> Instant {
        self.silent_since
    }

    /// Excuses the silence so far if the agent waits for an answer, or runs a tool, or has sent something for the session that is not
    /// of the turn. Returns whether it does.
    pub fn excuse_silence(&mut self) -> bool {
        let heard_at = self.connection.heard_at(self.session.as_str());
        if let Some(at) = heard_at.filter(|at| *at > self.silent_since) {
            self.silent_since = at;
            return true;
        }
        let has_reason =
            self.translator.may_be_silent() || self.connection.runs_command(self.session.as_str());
        if has_reason {
            self.silent_since = Instant::now();
        }
        has_reason
    }

    /// Why the turn ended without an answer of the agent. `None`: it did not.
    pub fn lost_because(&self) -> Option<&str> {
        self.lost_because.as_deref()
    }

    /// Whether the agent refused the prompt because it works on another one of the session, which no turn of the gateway is.
    pub fn found_busy(&self) -> bool {
        self.found_busy
    }

    /// Answers an ask. Fails with `InterruptNotFound` if the ask is not open, and fails if the agent does not offer the option.
    pub fn reply(&mut self, ask: &RequestId, answer: &Answer) -> Result<()> {
        let gone = || {
            Error::new(
                ErrorKind::InterruptNotFound,
                "This request is no longer open: it was answered, or its turn is over.",
            )
        };
        let (id, options) = self.asks.get(ask).ok_or_else(gone)?;
        let choice = Choice::of(answer, options)?;
        let is_rejection = choice.is_rejection();
        let answered = self.connection.answer(id, choice);
        let was_open = answered.map_err(|cause| cause.into_error("take the answer"))?;
        self.asks.remove(ask);
        self.silent_since = Instant::now();
        if !was_open {
            return Err(gone());
        }
        self.translator.answered(ask, is_rejection);
        Ok(())
    }

    /// Ends the turn without the agent, which may continue it. `why`: the reason as a sentence for callers.
    pub fn give_up(&mut self, why: &str) {
        self.take(TurnEvent::Ended(TurnEnd::Lost(why.to_owned())));
    }

    /// Asks the agent to stop. The turn continues until the agent reports its end.
    pub fn cancel(&mut self) -> std::result::Result<(), CallError> {
        self.asks.clear();
        self.translator.stopped();
        self.connection.cancel(self.session.as_str())
    }
}
