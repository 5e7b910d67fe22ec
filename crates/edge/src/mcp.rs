//! The path of MCP (Model Context Protocol). Another crate implements the protocol. Its requests pass the same gate as all others,
//! and reach the agent through the same operations, with the rights of their caller.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{Request, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream};
use longshore_engine::{Subscription, SubscriptionStart};
use longshore_model::{
    BlockKind, CancelTask, Delivery, Error, GetTask, Json, Message, OutputModes, Part, PartContent,
    Principal, Result, SendConfig, SendMessage, SendOptions, Task, TaskEvent, TaskId, TaskState,
};
use longshore_wire::contract::{self, Audience, Base};
use longshore_wire::surface::ProtocolVersion;

use crate::auth::Caller;
use crate::binding::Bindings;
use crate::command::{Command, RequestOptions};
use crate::incoming::Incoming;
use crate::limits::OpenedFor;
use crate::operation::{Operations, Reply};
use crate::reply::{self, Body, Response};

/// The body of a response.
pub type McpBody = UnsyncBoxBody<Bytes, Infallible>;

/// An implementation of MCP over HTTP.
pub trait McpService: fmt::Debug + Send + Sync {
    /// Answers a request of a caller that has passed the gate. Only the body and the MCP headers of the request matter.
    fn answer(&self, agent: OwnAgent, request: Request<Bytes>)
    -> BoxFuture<'static, http::Response<McpBody>>;
}

/// The agent of this gateway, as one caller may use it.
#[derive(Clone, Debug)]
pub struct OwnAgent {
    operations: Arc<Operations>,
    caller: Arc<Caller>,
    options: RequestOptions,
}

/// A summary of the agent's public card.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentSummary {
    pub name: String,
    pub description: String,
    /// Name and description of each skill.
    pub skills: Vec<(String, String)>,
}

/// Answers a request at the path of MCP.
pub(crate) async fn answer<B>(
    bindings: &Bindings,
    service: &dyn McpService,
    caller: &Arc<Caller>,
    incoming: &Incoming<'_>,
    body: B,
) -> Result<Response>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    // An MCP request may wait for the agent like a stream, so it takes a stream's slot before it starts anything.
    let slot = bindings.operations.slots.take(&caller.principal, OpenedFor::Subscription)?;
    let body = bindings.read_body(caller, incoming, body).await?;
    let options = RequestOptions {
        version: ProtocolVersion::V1,
        // An MCP client cannot activate extensions and sees nothing that they add, so the required ones count as activated.
        activated: bindings.deployment.required_extensions.iter().copied().collect(),
        resume_after: None,
        trace: incoming.trace.clone(),
        line: incoming.line.clone(),
        span: incoming.span.clone(),
    };
    let agent =
        OwnAgent { operations: Arc::clone(&bindings.operations), caller: Arc::clone(caller), options };
    let mut parts = incoming.parts.clone();
    for credential in [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION] {
        parts.headers.remove(credential);
    }
    let (head, body) = service.answer(agent, Request::from_parts(parts, body)).await.into_parts();
    let is_stream = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
    let mut response = if is_stream {
        let frames = BodyStream::new(body).filter_map(|frame| async {
            match frame {
                Ok(frame) => frame.into_data().ok(),
                Err(never) => match never {},
            }
        });
        let frames = stream::unfold((frames.boxed(), slot), |(mut frames, slot)| async move {
            Some((frames.next().await?, (frames, slot)))
        });
        reply::with_status(head.status, Body::Events(frames.boxed()))
    } else {
        let whole = body.collect().await.unwrap_or_else(|never| match never {});
        reply::full(head.status, whole.to_bytes())
    };
    for (name, value) in &head.headers {
        // The edge itself sets the headers for the length of the body and for caching.
        if ![CONTENT_LENGTH, TRANSFER_ENCODING, header::CACHE_CONTROL].contains(name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    Ok(response)
}

impl OwnAgent {
    pub fn principal(&self) -> &Principal {
        &self.caller.principal
    }

    /// The summary of the public card.
    pub fn summary(&self) -> AgentSummary {
        let deployment = &self.operations.deployment;
        let card = contract::card(deployment, ProtocolVersion::V1, Audience::Anonymous, Base::Root);
        AgentSummary {
            name: card.name,
            description: card.description,
            skills: card.skills.into_iter().map(|skill| (skill.name, skill.description)).collect(),
        }
    }

    /// Sends a message, and returns its task as soon as the task is durable.
    pub async fn send(&self, message: Message) -> Result<Task> {
        self.send_with(message, SendOptions::default()).await
    }

    /// Answers an ask of the task that the message names. If the ask is closed, the text is not sent to the agent as a message.
    /// `ask`: the id of the ask; `None`: the only open one.
    pub async fn answer(&self, message: Message, ask: Option<&str>) -> Result<Task> {
        let Some(ask) = ask else {
            let options = SendOptions { delivery: Delivery::Reject, ..SendOptions::default() };
            return self.send_with(message, options).await;
        };
        let words: Vec<&str> = message.parts.iter().filter_map(Part::as_text).collect();
        let answer = serde_json::json!({ "request_id": ask, "words": words.join("\n") });
        let part = Part::new(PartContent::Data(Json::from_value(&answer)));
        self.send(Message { parts: vec![part], ..message }).await
    }

    async fn send_with(&self, message: Message, options: SendOptions) -> Result<Task> {
        let config = SendConfig {
            accepted_output_modes: OutputModes::default(),
            return_immediately: true,
            ..SendConfig::default()
        };
        let command = SendMessage { message, config, metadata: None, options, may_claim: false, trace: None };
        self.task(Command::Send(command)).await
    }

    pub async fn get(&self, id: &TaskId) -> Result<Task> {
        self.task(Command::Get(GetTask { id: id.clone(), history_length: Some(0) })).await
    }

    pub async fn cancel(&self, id: &TaskId) -> Result<Task> {
        self.task(Command::Cancel(CancelTask { id: id.clone() })).await
    }

    /// Waits until the task is over or has an open ask, and returns the task as of that moment. Returns earlier if the gateway
    /// shuts down. `report` gets short texts about events that the caller may see.
    pub async fn settled(&self, id: &TaskId, mut report: impl FnMut(String) + Send) -> Result<Task> {
        let engine = &self.operations.engine;
        let shows_tools =
            self.caller.rights.exposure.unwrap_or(self.operations.deployment.exposure).tool_trace;
        // Events before the reader's position are already in this task.
        let (mut task, mut reader) = match engine.subscribe(self.principal(), id, None).await {
            Ok(Subscription {
                opening: SubscriptionStart::Snapshot(now) | SubscriptionStart::Gap(now, _),
                reader,
                ..
            }) => (now.task, reader),
            Ok(Subscription { reader, .. }) => (self.get(id).await?, reader),
            // The subscription fails if the task has ended.
            Err(_) => return self.get(id).await,
        };
        if task.status.state.is_settled() {
            return Ok(task);
        }
        loop {
            let entries = tokio::select! {
                biased;
                () = self.operations.closing.cancelled() => return Ok(task),
                entries = reader.next() => entries?,
            };
            let Some(entries) = entries else { return self.get(id).await };
            let mut is_settled = false;
            for entry in entries.iter() {
                let event = &entry.entry.event;
                if let Some(words) = words(event, shows_tools) {
                    report(words);
                }
                is_settled |= event.status().is_some_and(|status| status.state.is_settled());
            }
            if is_settled {
                task = self.get(id).await?;
                if task.status.state.is_settled() {
                    return Ok(task);
                }
            }
        }
    }

    async fn task(&self, command: Command) -> Result<Task> {
        match self.operations.perform(&self.caller, command, &self.options).await? {
            Reply::Sent(task, _) | Reply::Task(task, _) => Ok(task),
            _ => Err(Error::internal("an operation on a task returned something else")),
        }
    }
}

/// A short text about an event. `None`: the event is not worth reporting.
fn words(event: &TaskEvent, shows_tools: bool) -> Option<String> {
    match event {
        TaskEvent::Status(update) if update.status.state == TaskState::Working && !update.repeats => {
            Some("works".to_owned())
        }
        TaskEvent::Artifact(update)
            if shows_tools && !update.append && update.artifact.kind == BlockKind::ToolCall =>
        {
            let name = update.artifact.name.as_deref().unwrap_or("a tool");
            Some(format!("uses {name}"))
        }
        _ => None,
    }
}
