//! The traits that the engine needs from outside. Other crates implement them; only the binary knows both sides.

mod agent;
mod caller;
mod calls;
mod clock;
mod control;
mod push;
mod spans;
mod store;

pub use agent::{
    Admission, Admitted, Agent, ContentFacts, Description, FileSource, Input, InputFile, MAX_STEERING,
    NewSession, Prompting, Resume, ResumedChild, ResumedChildState, Session, SessionChoices, SessionFinder,
    Steering, Turn, TurnRequest, UnfollowedTurns,
};
pub use caller::{caller, caller_trace, with_caller, with_caller_trace};
pub use calls::{CallPage, CallStore, MAX_CALLS, PAGE_CALLS, StoredCall};
pub use clock::{Clock, SystemClock};
pub use control::{
    Control, ExternalTurn, KnownSession, MAX_OFFERS, NativePrompts, RemovedPlace, RemovedSession, Removes,
    SessionWatch,
};
pub use push::{
    Burial, LeasedPush, MAX_DEAD_LETTERS, MAX_PUSH_PAGE, NewPushConfig, PushConfigs, PushCounts, PushLease,
    PushLimit, PushLimits, PushPut, PushQueue, PushRetry, Receivers,
};
pub use spans::{NoSpans, Span, SpanKind, SpanPosition, Spans, TurnAttributes};
pub use store::{
    Append, Appended, AskChange, Binding, Bound, Claim, Claimed, ContextLocation, Create, Created, EndTask,
    EndedTurn, FileFacts, Head, IdempotencyKey, ListQuery, MAX_APPROVALS, MAX_CONTEXTS, MAX_ENDED,
    MAX_OWNERS, NewFile, OwnedSession, PAGE_BYTES, PAGE_TASKS, PageCursor, READ_BYTES, RecordedSends,
    Retention, RetentionStep, RunningTurn, Store, StoredBytes, StoredTask, TaskPage, TurnRecord,
    UnfinishedPage,
};

/// A future behind a trait object.
pub type BoxFuture<'a, T> = futures_util::future::BoxFuture<'a, T>;
