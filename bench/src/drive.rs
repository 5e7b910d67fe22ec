//! A2A clients: many, cheap, and exact about what they receive.

mod call;
mod chunked;
mod connection;
mod grpc;
mod request;
mod stand_in;
mod stream;
mod websocket;

pub use self::call::{Reply, call, call_reusing};
pub use self::connection::{BodyKind, Connection, Head};
pub use self::request::{Binding, ProtocolVersion, Target};
pub use self::stand_in::{SentText, Totals, release, sent_text, totals};
pub use self::stream::{Counts, End, Outcome, Prompt, Tally, Window, open_stream};
