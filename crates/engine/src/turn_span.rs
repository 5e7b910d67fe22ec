//! The spans of a turn, for trace collectors: one for the turn, and one for each tool call.
//!
//! Only the beginning and the end of a turn or a tool call cost time here; text output costs nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_model::{
    AgentEvent, ChildEvent, ChildStart, Metadata, Outcome, SessionId, Task, TaskId, TaskState, Timestamp,
    ToolCall, ToolStatus, TraceContext, Usage,
};
use serde_json::Value;

use crate::derived_ids;
use crate::port::{Span, SpanKind, SpanPosition, Spans, TurnAttributes};

/// How many running tools, and how many sub-agents, are tracked for one turn. Further ones get no span.
const MAX_REMEMBERED: usize = 256;

/// The longest name of a kind of failure.
const MAX_KIND: usize = 64;

/// The reported kind of a failure whose kind is not known.
const OTHER: &str = "_OTHER";

/// The reported kind of failure for a tool that failed.
const TOOL_FAILED: &str = "tool_error";

/// The reported kind of failure for a tool that was still running when its turn ended.
const CUT_SHORT: &str = "turn_ended";

#[derive(Debug)]
pub(crate) struct TurnSpan {
    spans: Arc<dyn Spans>,
    position: SpanPosition,
    began: Timestamp,
    has_worked: bool,
    usage: Option<Usage>,
    error: Option<Cow<'static, str>>,
    /// The running tools by the id of the call.
    tools: BTreeMap<String, Tool>,
    sub_agents: BTreeMap<SessionId, SubAgent>,
}

#[derive(Debug)]
struct Tool {
    /// The name of the tool. Empty until the agent reports the call itself.
    name: String,
    position: SpanPosition,
    task: TaskId,
    began: Timestamp,
    is_running: bool,
}

#[derive(Debug)]
struct SubAgent {
    position: SpanPosition,
    task: TaskId,
}

impl TurnSpan {
    /// Begins the span of a turn. `None`: this turn is not recorded.
    pub(crate) fn begin(
        spans: &Arc<dyn Spans>,
        caller: Option<&TraceContext>,
        now: Timestamp,
    ) -> Option<Self> {
        Some(Self {
            position: spans.begin(caller)?,
            spans: Arc::clone(spans),
            began: now,
            has_worked: false,
            usage: None,
            error: None,
            tools: BTreeMap::new(),
            sub_agents: BTreeMap::new(),
        })
    }

    /// The trace context that is sent to the agent for its work.
    pub(crate) fn context(&self) -> &TraceContext {
        &self.position.own
    }

    /// Starts the span's clock, because the agent begins to work. The time spent waiting for a session or a permit is not part of
    /// the span.
    pub(crate) fn works(&mut self, now: Timestamp) {
        if !self.has_worked {
            (self.has_worked, self.began) = (true, now);
        }
    }

    pub(crate) fn has_used(&mut self, usage: Usage) {
        self.usage = Some(usage);
    }

    /// Records that the turn failed. `metadata` may name the kind of failure.
    pub(crate) fn failed(&mut self, metadata: Option<&Metadata>) {
        self.error = Some(metadata.and_then(kind_of_failure).map_or(Cow::Borrowed(OTHER), Cow::Owned));
    }

    /// Records the outcome that the agent reports.
    pub(crate) fn ended_with(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Failed(failure) | Outcome::AuthRequired(failure) => {
                self.failed(failure.metadata.as_ref());
            }
            Outcome::Incomplete(outcome) => self.ended_with(outcome),
            Outcome::Completed { .. } | Outcome::Canceled { .. } => {}
        }
    }

    /// Records a tool call of the turn itself. `is_live`: the call is reported as it happens, and not later, after a restart of the
    /// gateway.
    pub(crate) fn tool(&mut self, task: &Task, call: &ToolCall, now: Timestamp, is_live: bool) {
        let position = self.position.clone();
        self.take_tool(&position, &task.id, call, now, is_live);
    }

    /// Records a report of a sub-agent.
    pub(crate) fn sub_agent(
        &mut self,
        task: &Task,
        session: &SessionId,
        event: &ChildEvent,
        now: Timestamp,
        is_live: bool,
    ) {
        match event {
            ChildEvent::Started(start) => self.start_sub_agent(task, session, start, now),
            ChildEvent::Report(AgentEvent::Tool { call, .. }) => {
                let Some(SubAgent { position, task }) = self.sub_agents.get(session) else { return };
                let (position, task) = (position.clone(), task.clone());
                self.take_tool(&position, &task, call, now, is_live);
            }
            ChildEvent::Working(_) | ChildEvent::Model(_) | ChildEvent::Report(_) => {}
        }
    }

    /// Ends the span, because the turn is over or the gateway stops. (After a stop, the next run of the gateway resumes the
    /// turn without this span.)
    pub(crate) fn end(mut self, task: &Task, now: Timestamp) {
        for (call, tool) in std::mem::take(&mut self.tools) {
            self.end_tool(call, tool, now, Some(CUT_SHORT));
        }
        let state = task.status.state;
        let has_failed = matches!(state, TaskState::Failed | TaskState::Rejected | TaskState::AuthRequired);
        let error = self.error.filter(|_| has_failed).or_else(|| has_failed.then_some(Cow::Borrowed(OTHER)));
        let prompt = &task.options.prompt;
        self.spans.ended(Span {
            place: self.position,
            began: self.began,
            ended: now.max(self.began),
            task: task.id.clone(),
            work: SpanKind::Turn(Box::new(TurnAttributes {
                context: task.context_id.clone(),
                agent: prompt.agent.clone(),
                model: prompt.model.clone(),
                state,
                usage: self.usage,
            })),
            error,
        });
    }

    /// Links a sub-agent to the tool call that started it, so that the spans of its tools are children of that call.
    fn start_sub_agent(&mut self, root: &Task, session: &SessionId, start: &ChildStart, now: Timestamp) {
        if self.sub_agents.len() >= MAX_REMEMBERED {
            return;
        }
        let caller = self.sub_agents.get(&start.caller);
        let (position, caller_task) =
            caller.map_or((&self.position, &root.id), |caller| (&caller.position, &caller.task));
        let (mut position, caller_task) = (position.clone(), caller_task.clone());
        if let Some(call) = &start.call
            && let Some(tool) = self.remember(&position, &caller_task, call, now)
        {
            position = tool.position.clone();
        }
        let task = derived_ids::child_task(&root.id, session, start.call.as_deref());
        self.sub_agents.insert(session.clone(), SubAgent { position, task });
    }

    fn take_tool(
        &mut self,
        position: &SpanPosition,
        task: &TaskId,
        call: &ToolCall,
        now: Timestamp,
        is_live: bool,
    ) {
        let is_over = matches!(call.status, ToolStatus::Completed | ToolStatus::Error);
        if is_over && !is_live && !self.tools.contains_key(&call.call_id) {
            // The start time of the tool is unknown, so it gets no span.
            return;
        }
        let Some(tool) = self.remember(position, task, &call.call_id, now) else { return };
        if tool.name.is_empty() {
            tool.name.clone_from(&call.tool);
        }
        if call.status == ToolStatus::Running && !tool.is_running {
            (tool.is_running, tool.began) = (true, now);
        }
        if is_over && let Some(tool) = self.tools.remove(&call.call_id) {
            let error = (call.status == ToolStatus::Error).then_some(TOOL_FAILED);
            self.end_tool(call.call_id.clone(), tool, now, error);
        }
    }

    fn remember(
        &mut self,
        position: &SpanPosition,
        task: &TaskId,
        call: &str,
        now: Timestamp,
    ) -> Option<&mut Tool> {
        if !self.tools.contains_key(call) {
            if self.tools.len() >= MAX_REMEMBERED {
                return None;
            }
            let (position, task) = (position.below(), task.clone());
            let tool = Tool { name: String::new(), position, task, began: now, is_running: false };
            self.tools.insert(call.to_owned(), tool);
        }
        self.tools.get_mut(call)
    }

    fn end_tool(&self, call: String, tool: Tool, now: Timestamp, error: Option<&'static str>) {
        let Tool { name, position, task, began, .. } = tool;
        let work = SpanKind::Tool { name, call };
        let ended = now.max(began);
        self.spans.ended(Span { place: position, began, ended, task, work, error: error.map(Cow::Borrowed) });
    }
}

/// The `error.type` of the first entry that has one. These types are identifiers, not text for people.
fn kind_of_failure(metadata: &Metadata) -> Option<String> {
    let metadata: Value = serde_json::from_str(metadata.get()).ok()?;
    let mut kinds = metadata.as_object()?.values().filter_map(|of| of["error"]["type"].as_str());
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    kinds.next().filter(|kind| kind.len() <= MAX_KIND && kind.bytes().all(is_word)).map(str::to_owned)
}
