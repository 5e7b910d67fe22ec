//! The rules for messages that answer an ask.

use std::collections::BTreeMap;

use longshore_model::{Answer, MessageId, RequestId, Resolution};

use crate::agent::{AgentAsk, State};
use crate::user::owner;
use crate::world::World;

/// A message that was to answer an ask, and the responses that its sender got.
#[derive(Debug)]
pub(super) struct RecordedAnswer {
    /// The ask that the message names, and the answer.
    pub(super) named: Option<(RequestId, Answer)>,
    /// The answer was accepted, or refused for good.
    pub(super) told: Vec<bool>,
}

/// One message answers one ask, is not a prompt, and is reported as accepted only if it may have been.
pub(super) fn check(world: &World, answers: &BTreeMap<MessageId, RecordedAnswer>, agent: &State) {
    let stage = &world.stage;
    for (message, RecordedAnswer { named, told }) in answers {
        let answered: Vec<&AgentAsk> = agent.asks().filter(|ask| is_answered_by(ask, message)).collect();
        if answered.len() > 1 {
            let asks: Vec<&RequestId> = answered.iter().map(|ask| &ask.id).collect();
            stage.find(format_args!("{message} answered all of {asks:?}"));
        }
        let (words, data) = (format!("reject: {message}"), format!("\"{message}\""));
        if agent.prompted.iter().any(|prompt| *prompt == words || prompt.contains(&data)) {
            stage.find(format_args!("{message} was an answer, and is a prompt"));
        }
        // A message that came too early, or beside another answer, may be accepted later; an accepted one stays accepted.
        let was_taken_first = told.windows(2).any(|two| two[0] && !two[1]);
        if was_taken_first || (answered.is_empty() && told.contains(&true) && told.contains(&false)) {
            stage.find(format_args!("{message} was told {told:?}"));
        }
        // An ask may expire while it is unknown whether the agent has the answer.
        let is_certain = |ask: &&&AgentAsk| {
            let closed = world.store.interrupt_of(&ask.id).and_then(|known| known.closed);
            closed.is_some_and(|closed| closed.resolution != Resolution::Expired)
        };
        if told.last() == Some(&false)
            && let Some(ask) = answered.iter().find(is_certain)
        {
            stage.find(format_args!("{message} answered {}, and was refused", ask.id));
        }
        let closed = named.as_ref().and_then(|(request, answer)| {
            Some((request, answer, world.store.interrupt_of(request)?.closed?))
        });
        if let Some((request, answer, closed)) = closed
            && told.contains(&true)
            && answered.is_empty()
        {
            let is_the_same = closed.by == Some(owner()) && closed.how == Some(answer.how());
            let is_unknown = closed.by.is_none() && closed.resolution != Resolution::Expired;
            if !is_the_same && !is_unknown {
                stage.find(format_args!(
                    "{message} was said to answer {request}, which is closed: {closed:?}"
                ));
            }
        }
    }
}

fn is_answered_by(ask: &AgentAsk, message: &MessageId) -> bool {
    matches!(&ask.answer, Some(Answer::Permission { message: Some(words), .. }) if words == message.as_str())
}
