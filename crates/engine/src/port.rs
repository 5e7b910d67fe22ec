//! What the engine needs from outside. Other crates implement these; only the binary sees both sides.

mod agent;
mod clock;
mod store;

pub use agent::{Agent, NewSession, Prompting, Resume, Session, Turn, TurnRequest};
pub use clock::{Clock, SystemClock};
pub use store::{
    Append, Appended, AskChange, Binding, Bound, Create, Created, Head, IdempotencyKey, ListQuery,
    PageCursor, READ_BYTES, Store, StoredTask, TaskPage, TurnRecord,
};

/// A future behind a trait object.
pub type BoxFuture<'a, T> = futures_util::future::BoxFuture<'a, T>;
