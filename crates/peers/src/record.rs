//! What is known of a call, as it is stored.

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
    /// The session that calls: that of the task, or of a sub-agent.
    pub(crate) session: SessionId,
    /// The turn that calls.
    pub(crate) turn: PromptId,
    /// The epoch of the store when the call began.
    pub(crate) epoch: u32,
    /// The agent's own id of the tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_call: Option<String>,
    /// The name of a peer, or a URL.
    pub(crate) peer: String,
    pub(crate) text: String,
    /// The position of the call in the trace of its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<String>,
    pub(crate) hops: Hops,
    /// The peer's own ids, as far as they are known.
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

/// An ask of the peer that is open.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct OpenAsk {
    /// The id that the ask has on the calling task.
    pub(crate) id: RequestId,
    /// What the peer asks, by the peer's own words.
    pub(crate) question: String,
    /// Tells the ask from the others of the peer's task.
    pub(crate) identity: String,
    /// Only the user may answer.
    pub(crate) is_permission: bool,
    /// The peer's own id of the ask: then the answer names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remote: Option<String>,
    /// As the calling task shows it: shown again if the gateway ended before it was.
    pub(crate) shown: Box<Ask>,
}

/// An answer that the model gave. It is stored before the peer has it: the gateway may die in between, and the same answer again must
/// not answer another ask.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct ModelAnswer {
    pub(crate) key: String,
    pub(crate) ask: RequestId,
}

/// How many answers of the model are remembered.
const MAX_MODEL_ANSWERS: usize = 32;

/// How a call ended, and what the model gets.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) how: Ending,
    /// Why, unless the call completed.
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

    /// The id of the message to the peer: the same for every attempt to send it.
    pub(crate) fn message_id(&self) -> String {
        format!("longshore-{}", self.id)
    }

    /// Keeps the key of an answer of the model.
    pub(crate) fn note_answer(&mut self, key: &CallKey, ask: &RequestId) {
        let answers = &mut self.body.answers;
        if answers.len() >= MAX_MODEL_ANSWERS {
            answers.remove(0);
        }
        answers.push(ModelAnswer { key: key.0.clone(), ask: ask.clone() });
    }

    /// Whether an answer with this key was for an ask that is closed by now.
    pub(crate) fn was_answered_with(&self, key: &CallKey) -> bool {
        let answered = self.body.answers.iter().rfind(|answer| answer.key == key.0);
        let open = self.body.ask.as_ref().filter(|_| self.body.end.is_none());
        answered.is_some_and(|answered| open.is_none_or(|open| open.id != answered.ask))
    }

    /// `model_answers`: whether the model may answer questions of the peer.
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

/// The id of a call. Derived, so that the same tool call has the same id after a restart.
pub(crate) fn call_id(task: &TaskId, key: &CallKey) -> String {
    let mut hasher = Sha256::new();
    for word in [task.as_str(), &key.0] {
        hasher.update((word.len() as u64).to_le_bytes());
        hasher.update(word.as_bytes());
    }
    format!("call_{}", &hex(&hasher.finalize())[..24])
}

/// How the ids of the asks of peers begin.
const ASK_PREFIX: &str = "peer_";

/// The id of the nth ask of a call.
pub(crate) fn ask_id(call: &str, number: u32) -> RequestId {
    RequestId::parse(&format!("{ASK_PREFIX}{call}_{number}")).expect("a call id makes an id")
}

/// The call to which an ask with this id belongs, if it is one of a peer.
pub(crate) fn call_of_ask(request: &RequestId) -> Option<&str> {
    let rest = request.as_str().strip_prefix(ASK_PREFIX)?;
    rest.rsplit_once('_').map(|(call, _)| call)
}
