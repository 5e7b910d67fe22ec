//! What was done and when, for whoever collects traces. No words of anybody are in it.

use std::borrow::Cow;
use std::fmt::Debug;

use longshore_model::{ContextId, ModelName, TaskId, TaskState, Timestamp, TraceContext, Usage};

/// Takes the spans of turns and of their tools.
pub trait Spans: Send + Sync + Debug {
    /// The trace as whoever works for it is to hear of it: as one that is not kept, where it begins here and is not chosen.
    fn decided(&self, trace: TraceContext) -> TraceContext {
        trace
    }

    /// The place of a turn that is about to begin for whoever stands there. `None`: it is not told of.
    fn begin(&self, caller: Option<&TraceContext>) -> Option<SpanPlace>;

    /// Takes a span that is over. It does not wait: what there is no room for is dropped.
    fn ended(&self, span: Span);
}

/// Nobody collects.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSpans;

impl Spans for NoSpans {
    fn begin(&self, _caller: Option<&TraceContext>) -> Option<SpanPlace> {
        None
    }

    fn ended(&self, _span: Span) {}
}

/// Where a span stands in its trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpanPlace {
    pub own: TraceContext,
    /// `None`: the trace begins with it.
    pub parent: Option<TraceContext>,
}

impl SpanPlace {
    /// One of a trace that begins here is the first of it; any other one is below its caller's.
    pub fn of_turn_for(caller: TraceContext) -> Self {
        if caller.is_begun_here() {
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
    pub place: SpanPlace,
    pub began: Timestamp,
    /// Never before it began.
    pub ended: Timestamp,
    /// The task that it was done for.
    pub task: TaskId,
    pub work: Work,
    /// What kind of failure it ended with: one of a few words.
    pub error: Option<Cow<'static, str>>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Work {
    Turn(Box<TurnFacts>),
    Tool { name: String, call: String },
}

#[derive(Clone, PartialEq, Debug)]
pub struct TurnFacts {
    pub context: ContextId,
    /// As far as the message wished for one.
    pub agent: Option<String>,
    pub model: Option<ModelName>,
    /// What the turn left its task as. Not an end, if the gateway stopped first.
    pub state: TaskState,
    pub usage: Option<Usage>,
}
