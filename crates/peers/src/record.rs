//! The stored record of a call.

use longshore_engine::port::StoredCall;
use longshore_model::{
    Artifact, Ask, Hops, Json, Principal, PromptId, RequestId, SessionId, TaskId, Timestamp, Usage,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::hops::hex;
use crate::tools::{CallKey, CallState};

/// A call, with the task that it belongs to.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) task: TaskId,
    pub(crate) owner: Principal,
    /// When the call began.
    pub(crate) at: Timestamp,
    pub(crate) body: Body,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Body {
    /// The session that made the call: the session of the task or of a sub-agent.
    pub(crate) session: SessionId,
    /// The turn that made the call.
    pub(crate) turn: PromptId,
    /// The epoch of the store when the call began.
    pub(crate) epoch: u32,
    /// The agent's own id of the tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_call: Option<String>,
    /// The name of a configured peer, or a URL.
    pub(crate) peer: String,
    pub(crate) text: String,
    /// The call's span in the trace of its turn, as a `traceparent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<String>,
    pub(crate) hops: Hops,
    /// The peer's own id of the context. It and the next field, the peer's id of the task, are empty until they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remote_task: Option<String>,
    /// How often the peer has asked.
    #[serde(default)]
    pub(crate) asks: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ask: Option<OpenAsk>,
    /// The newest answers of the model, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) answers: Vec<ModelAnswer>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Usage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<End>,
}

/// The open ask of the peer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct OpenAsk {
    /// The id that the ask has on the calling task.
    pub(crate) id: RequestId,
    /// The peer's own text.
    pub(crate) question: String,
    /// Distinguishes this ask from the other asks of the peer's task.
    pub(crate) identity: String,
    /// Whether only the user may answer, not the model.
    pub(crate) is_permission: bool,
    /// The peer's own id of the ask, which the answer then names. `None`: the peer named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remote: Option<String>,
    /// The ask as the calling task shows it. After a restart the gateway shows it again, in case the log lacks it.
    pub(crate) shown: Box<Ask>,
}

/// An answer of the model. It is stored before it is sent to the peer: if the gateway ends in between and the model repeats the
/// answer, the repeated answer must not go to another ask.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct ModelAnswer {
    pub(crate) key: String,
    pub(crate) ask: RequestId,
}

/// How many answers of the model a record keeps.
const MAX_MODEL_ANSWERS: usize = 32;

/// How a call ended, and the result that the model gets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) how: Ending,
    /// The reason. Empty if the call completed.
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) text: String,
    #[serde(default)]
    pub(crate) artifacts: Vec<Artifact>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    Completed,
    Failed,
    Canceled,
    Unknown,
}

impl End {
    pub(crate) fn new(how: Ending, reason: impl Into<String>) -> Self {
        Self { how, reason: reason.into(), text: String::new(), artifacts: Vec::new() }
    }

    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self::new(Ending::Failed, reason)
    }
}

impl Record {
    pub(crate) fn read(stored: &StoredCall) -> Option<Self> {
        let body = serde_json::from_str(stored.record.get()).ok()?;
        let StoredCall { id, task, owner, at, .. } = stored.clone();
        Some(Self { id, task, owner, at, body })
    }

    pub(crate) fn to_stored(&self) -> StoredCall {
        StoredCall {
            id: self.id.clone(),
            task: self.task.clone(),
            owner: self.owner.clone(),
            is_open: self.body.end.is_none(),
            at: self.at,
            record: Json::from_value(&self.body),
        }
    }

    /// The id of the message to the peer. Every attempt to send the message uses the same id.
    pub(crate) fn message_id(&self) -> String {
        format!("longshore-{}", self.id)
    }

    /// Stores the key of an answer of the model.
    pub(crate) fn note_answer(&mut self, key: &CallKey, ask: &RequestId) {
        let answers = &mut self.body.answers;
        if answers.len() >= MAX_MODEL_ANSWERS {
            answers.remove(0);
        }
        answers.push(ModelAnswer { key: key.0.clone(), ask: ask.clone() });
    }

    /// Whether the model has already given an answer with this key, to an ask that is closed now.
    pub(crate) fn was_answered_with(&self, key: &CallKey) -> bool {
        let answered = self.body.answers.iter().rfind(|answer| answer.key == key.0);
        let open = self.body.ask.as_ref().filter(|_| self.body.end.is_none());
        answered.is_some_and(|answered| open.is_none_or(|open| open.id != answered.ask))
    }

    /// The state that the model sees. `model_answers`: whether the model may answer questions of the peer.
    pub(crate) fn state(&self, model_answers: bool) -> CallState {
        match (&self.body.end, &self.body.ask) {
            (Some(End { how, reason, .. }), _) => {
                let reason = reason.clone();
                match how {
                    Ending::Completed => CallState::Completed,
                    Ending::Failed => CallState::Failed { reason },
                    Ending::Canceled => CallState::Canceled,
                    Ending::Unknown => CallState::Unknown { reason },
                }
            }
            (None, Some(ask)) if model_answers && !ask.is_permission => {
                CallState::Asks { asks: vec![ask.id.to_string()], question: ask.question.clone() }
            }
            (None, Some(ask)) => CallState::AsksUser { question: ask.question.clone() },
            (None, None) => CallState::Working,
        }
    }
}

/// The id of a call. It is derived from task and key, so that the same tool call has the same id after a restart.
pub(crate) fn call_id(task: &TaskId, key: &CallKey) -> String {
    let mut hasher = Sha256::new();
    for word in [task.as_str(), &key.0] {
        hasher.update((word.len() as u64).to_le_bytes());
        hasher.update(word.as_bytes());
    }
    format!("call_{}", &hex(&hasher.finalize())[..24])
}

/// The prefix of the ids of peers' asks.
const ASK_PREFIX: &str = "peer_";

/// The id of the nth ask of a call.
pub(crate) fn ask_id(call: &str, number: u32) -> RequestId {
    RequestId::parse(&format!("{ASK_PREFIX}{call}_{number}")).expect("a call id makes an id")
}

/// The id of the call to which an ask of a peer belongs. `None`: the ask is not one of a peer.
pub(crate) fn call_of_ask(request: &RequestId) -> Option<&str> {
    let rest = request.as_str().strip_prefix(ASK_PREFIX)?;
    rest.rsplit_once('_').map(|(call, _)| call)
}
