//! One turn: sends the prompt, translates its events, and answers its asks.

use std::collections::HashMap;

use longshore_engine::queue;
use longshore_model::{
    AgentEvent, Answer, AskOptions, Error, ErrorKind, PromptId, RequestId, Result, SessionId,
};
use serde::Serialize;

use crate::connection::{CallError, Connection, Queued, TurnEvent};
use crate::frame::AgentRequestId;
use crate::permission::{self, Choice};
use crate::translate::{Translator, TurnEnd};

/// A turn that runs. Dropping it does not stop the agent.
#[derive(Debug)]
pub struct Turn {
    connection: Connection,
    session: SessionId,
    translator: Translator,
    events: queue::Receiver<Queued>,
    asks: HashMap<RequestId, (AgentRequestId, AskOptions)>,
    is_over: bool,
}

impl Turn {
    pub fn start(
        connection: &Connection,
        session: SessionId,
        prompt: &PromptId,
        content: &[impl Serialize],
    ) -> std::result::Result<Self, CallError> {
        let facts = connection.facts(session.as_str()).ok_or(CallError::NoSession)?;
        let events = connection.prompt(session.as_str(), content)?;
        let translator = Translator::new(session.clone(), prompt, facts.totals);
        let (connection, asks) = (connection.clone(), HashMap::new());
        Ok(Self { connection, session, translator, events, asks, is_over: false })
    }

    pub fn translator(&self) -> &Translator {
        &self.translator
    }

    /// The next events. `None`: the turn is over. When the future is dropped, no event is lost.
    pub async fn next(&mut self) -> Option<Vec<AgentEvent>> {
        loop {
            let waiting = self.translator.take();
            if !waiting.is_empty() {
                return Some(waiting);
            }
            if self.is_over {
                return None;
            }
            let event = self.events.recv().await.map_or_else(|| self.lost(), |queued| queued.event);
            self.take(event);
        }
    }

    /// The queue has ended without an end of the turn.
    fn lost(&self) -> TurnEvent {
        let why = self.connection.closed().unwrap_or_else(|| "The connection to the agent ended.".to_owned());
        TurnEvent::Ended(TurnEnd::Lost(why))
    }

    fn take(&mut self, event: TurnEvent) {
        match event {
            TurnEvent::Update(update) => self.translator.update(&update),
            TurnEvent::LostUpdate => self.translator.lost_update(),
            TurnEvent::Permission { id, request } => {
                let options = permission::read_options(&request.options);
                match self.translator.permission(&request, &options) {
                    Some(ask) => {
                        self.asks.insert(ask, (id, options));
                    }
                    // An error means that the connection is over, which the next event says.
                    None => drop(self.connection.answer(&id, Choice::Cancelled)),
                }
            }
            TurnEvent::Ended(end) => {
                self.is_over = true;
                self.asks.clear();
                self.translator.end(&end);
            }
        }
    }

    /// Answers an ask. Fails with `InterruptNotFound` if it is not open, and for an option that the agent does not offer.
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
        if !was_open {
            return Err(gone());
        }
        self.translator.answered(ask, is_rejection);
        Ok(())
    }

    /// Asks the agent to stop. The turn goes on until the agent says that it ended.
    pub fn cancel(&mut self) -> std::result::Result<(), CallError> {
        self.connection.cancel(self.session.as_str())?;
        self.asks.clear();
        self.translator.stopped();
        Ok(())
    }
}
