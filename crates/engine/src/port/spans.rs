//! The trait through which the engine reports the spans of turns and tool calls to a trace collector. Spans hold no text of
//! messages.

use std::borrow::Cow;
use std::fmt::Debug;

use longshore_model::{ContextId, ModelName, TaskId, TaskState, Timestamp, TraceContext, Usage};

/// Receives the spans of turns and of their tools.
pub trait Spans: Send + Sync + Debug {
    /// Decides whether a trace that begins here is sampled. Returns the trace, marked as not sampled if it is not chosen.
    fn decided(&self, trace: TraceContext) -> TraceContext {
        trace
    }

    /// The span of a turn that is about to begin for a caller with this trace context. `None`: the span is not recorded.
    fn begin(&self, caller: Option<&TraceContext>) -> Option<SpanPosition>;

    /// Receives a span that has ended. Does not wait: if there is no room for the span, it is dropped.
    fn ended(&self, span: Span);
}

/// A [`Spans`] that records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSpans;

impl Spans for NoSpans {
    fn begin(&self, _caller: Option<&TraceContext>) -> Option<SpanPosition> {
        None
    }

    fn ended(&self, _span: Span) {}
}

/// The position of a span in its trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpanPosition {
    pub own: TraceContext,
    /// The parent span. `None`: the trace begins with this span.
    pub parent: Option<TraceContext>,
}

impl SpanPosition {
    /// The position of a turn's span: the first span in a trace that begins here, otherwise a child of the caller's span.
    pub fn for_turn(caller: TraceContext) -> Self {
        if caller.is_new_trace() {
            return Self { own: caller, parent: None };
        }
        Self { own: caller.child(), parent: Some(caller) }
    }

    #[must_use]
    pub fn below(&self) -> Self {
        Self { own: self.own.child(), parent: Some(self.own.clone()) }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Span {
    pub place: SpanPosition,
    pub began: Timestamp,
    /// Never before `began`.
    pub ended: Timestamp,
    /// The task for which the work was done.
    pub task: TaskId,
    pub work: SpanKind,
    /// The kind of failure with which the work ended, from a small set of words. `None`: it did not fail.
    pub error: Option<Cow<'static, str>>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum SpanKind {
    Turn(Box<TurnAttributes>),
    Tool { name: String, call: String },
}

#[derive(Clone, PartialEq, Debug)]
pub struct TurnAttributes {
    pub context: ContextId,
    /// The offered agent that the message requested. `None`: it requested none.
    pub agent: Option<String>,
    pub model: Option<ModelName>,
    /// The state of the task after the turn. Not a final state if the gateway stopped first.
    pub state: TaskState,
    pub usage: Option<Usage>,
}
