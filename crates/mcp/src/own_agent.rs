//! The tools that call the agent of this gateway, for one client with a credential. A call is a normal A2A task of that client, and
//! its handle is the id of the task.

use std::time::Duration;

use longshore_edge::OwnAgent;
use longshore_engine::port::BoxFuture;
use longshore_model::{BlockKind, Error, Message, MessageId, Part, Principal, Role, Task, TaskId, TaskState};
use longshore_peers::{
    AnswerRequest, CallHandle, CallKey, CallReport, CallRequest, CallState, PeerSummary, Progress,
    ToolCaller, ToolError, Tools, one_line,
};
use rand::distr::{Alphanumeric, SampleString as _};
use serde_json::Value;

use crate::callers::{CALL_KEY, Callers, IncomingCall};

/// Attributes every call to one principal.
#[derive(Debug)]
pub(crate) struct ClientCallers(Principal);

impl ClientCallers {
    pub(crate) fn new(principal: Principal) -> Self {
        Self(principal)
    }
}

impl Callers for ClientCallers {
    fn identify<'a>(
        &'a self,
        call: &'a mut IncomingCall,
    ) -> BoxFuture<'a, Result<(ToolCaller, CallKey), ToolError>> {
        let key = match call.meta.get(CALL_KEY) {
            None => Ok(new_key()),
            Some(Value::String(key)) if MessageId::parse(key).is_ok() => Ok(key.clone()),
            Some(_) => Err(ToolError(format!(
                "The call was not made: {CALL_KEY} must have 1 to 128 letters, digits or characters of _.:-"
            ))),
        };
        Box::pin(async { Ok((ToolCaller::Client(self.0.clone()), CallKey(key?))) })
    }
}

fn new_key() -> String {
    format!("mcp-{}", Alphanumeric.sample_string(&mut rand::rng(), 24))
}

#[derive(Debug)]
pub(crate) struct OwnAgentTools {
    agent: OwnAgent,
}

impl OwnAgentTools {
    pub(crate) fn new(agent: OwnAgent) -> Self {
        Self { agent }
    }

    async fn send(&self, key: &CallKey, request: &CallRequest, name: &str) -> Result<Task, ToolError> {
        let context_id = match &request.continues {
            Some(call) => Some(self.agent.get(&id(call)?).await.map_err(refused)?.context_id),
            None if request.peer.trim().eq_ignore_ascii_case(name) => None,
            None => {
                return Err(ToolError(format!(
                    "There is no agent `{}`. The only agent here is `{}`.",
                    one_line(&request.peer),
                    one_line(name)
                )));
            }
        };
        let message = message(&key.0, &request.text)?;
        self.agent.send(Message { context_id, ..message }).await.map_err(refused)
    }

    /// Waits for at most `wait` until the task settles, and reports on it.
    async fn wait(&self, task: Task, wait: Duration, progress: &Progress) -> Result<CallReport, ToolError> {
        if wait.is_zero() || task.status.state.is_settled() {
            return Ok(self.report(&task));
        }
        // If the queue is full, the line is dropped.
        let report = |line| drop(progress.try_send(line));
        match tokio::time::timeout(wait, self.agent.settled(&task.id, report)).await {
            Ok(settled) => settled.map(|task| self.report(&task)).map_err(refused),
            Err(_) => self.agent.get(&task.id).await.map(|task| self.report(&task)).map_err(refused),
        }
    }

    fn report(&self, task: &Task) -> CallReport {
        let said = task.status.message.as_ref().map(|message| text(&message.parts)).unwrap_or_default();
        let blocks = |kind| task.artifacts.iter().filter(move |artifact| artifact.kind == kind);
        let answers: Vec<String> = blocks(BlockKind::Text)
            .map(|artifact| text(&artifact.parts))
            .filter(|text| !text.is_empty())
            .collect();
        let answer = answers.join("\n\n");
        let reason = || if said.is_empty() { "The agent gave no reason.".to_owned() } else { said.clone() };
        let state = match task.status.state {
            TaskState::Submitted | TaskState::Working => CallState::Working,
            TaskState::InputRequired | TaskState::AuthRequired => CallState::Asks {
                asks: task.open_asks.iter().map(|ask| ask.request_id.to_string()).collect(),
                question: reason(),
            },
            TaskState::Completed => CallState::Completed,
            TaskState::Failed | TaskState::Rejected => CallState::Failed { reason: reason() },
            TaskState::Canceled => CallState::Canceled,
        };
        CallReport {
            handle: CallHandle(task.id.as_str().to_owned()),
            peer: self.agent.summary().name,
            text: if state == CallState::Completed && answer.is_empty() { said } else { answer },
            state,
            artifacts: blocks(BlockKind::File).cloned().collect(),
        }
    }
}

impl Tools for OwnAgentTools {
    fn discover<'a>(&'a self, _: &'a ToolCaller) -> BoxFuture<'a, Result<Vec<PeerSummary>, ToolError>> {
        let summary = self.agent.summary();
        let (name, description, skills) = (summary.name, summary.description, summary.skills);
        Box::pin(async { Ok(vec![PeerSummary { name, description, skills, problem: None }]) })
    }

    fn call<'a>(
        &'a self,
        _: &'a ToolCaller,
        key: &'a CallKey,
        request: CallRequest,
        progress: Progress,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>> {
        Box::pin(async move {
            let name = self.agent.summary().name;
            let task = self.send(key, &request, &name).await?;
            let handle = one_line(task.id.as_str());
            let _ = progress.try_send(format!("{} has the message; the call is {handle}", one_line(&name)));
            self.wait(task, request.wait, &progress).await
        })
    }

    fn status<'a>(
        &'a self,
        _: &'a ToolCaller,
        call: &'a CallHandle,
        wait: Duration,
        progress: Progress,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>> {
        Box::pin(async move {
            let task = self.agent.get(&id(call)?).await.map_err(refused)?;
            self.wait(task, wait, &progress).await
        })
    }

    fn answer<'a>(
        &'a self,
        _: &'a ToolCaller,
        key: &'a CallKey,
        call: &'a CallHandle,
        request: AnswerRequest,
        progress: Progress,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>> {
        Box::pin(async move {
            let AnswerRequest { ask, text, wait } = request;
            let task = id(call)?;
            // The key becomes the message id. If the client repeats an answer, the gateway recognizes the id and knows the answered
            // ask.
            let message = Message { task_id: Some(task.clone()), ..message(&key.0, &text)? };
            match self.agent.answer(message, ask.as_deref()).await {
                Ok(task) => self.wait(task, wait, &progress).await,
                Err(error) => {
                    let now = self.agent.get(&task).await.map_err(refused)?.status.state;
                    if now.is_interrupted() {
                        return Err(refused(error));
                    }
                    Err(ToolError(format!(
                        "The call asks nothing: it is {now}. a2a_continue sends a message."
                    )))
                }
            }
        })
    }

    fn cancel<'a>(
        &'a self,
        _: &'a ToolCaller,
        call: &'a CallHandle,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>> {
        Box::pin(async move {
            let id = id(call)?;
            match self.agent.cancel(&id).await {
                Ok(task) => Ok(self.report(&task)),
                Err(error) => match self.agent.get(&id).await {
                    Ok(task) if task.status.state == TaskState::Canceled => Ok(self.report(&task)),
                    _ => Err(refused(error)),
                },
            }
        })
    }
}

fn message(id: &str, text: &str) -> Result<Message, ToolError> {
    let id = MessageId::parse(id).map_err(|error| ToolError(format!("The key of the call {error}.")))?;
    Ok(Message::new(id, Role::User, vec![Part::text(text)]))
}

fn id(call: &CallHandle) -> Result<TaskId, ToolError> {
    TaskId::parse(&call.0).map_err(|_| {
        ToolError("There is no such call. Take the handle from the result of a call.".to_owned())
    })
}

/// Converts an error to its public text. The log has the cause.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn refused(error: Error) -> ToolError {
    ToolError(error.message().to_owned())
}

fn text(parts: &[Part]) -> String {
    parts.iter().filter_map(Part::as_text).collect::<Vec<_>>().join("\n")
}
