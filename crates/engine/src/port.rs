//! What the engine needs from outside. Other crates implement these traits; only the binary sees both sides.

mod agent;
mod caller;
mod clock;
mod control;
mod spans;
mod store;

pub use agent::{
    Admission, Admitted, Agent, ContentFacts, FileSource, Input, InputFile, MAX_STEERING, NewSession,
    Prompting, Resume, ResumedChild, ResumedChildState, Session, Steering, Turn, TurnRequest,
};
pub use caller::{on_behalf_of, trace_of_caller};
pub use clock::{Clock, SystemClock};
pub use control::{Control, ExternalTurn, Inhabitant, Inhabited, Known, MAX_OFFERS};
pub use spans::{NoSpans, Span, SpanPlace, Spans, TurnFacts, Work};
pub use store::{
    Append, Appended, AskChange, Begun, Binding, Bound, Claim, Claimed, ContextPlace, Create, Created,
    EndTask, EndedTurn, FileFacts, Head, IdempotencyKey, ListQuery, MAX_CONTEXTS, MAX_ENDED, MAX_OWNERS,
    NewFile, NotedSends, Owned, PageCursor, READ_BYTES, Retained, Retention, Store, StoredTask, TaskPage,
    TurnRecord,
};

/// A future behind a trait object.
pub type BoxFuture<'a, T> = futures_util::future::BoxFuture<'a, T>;
