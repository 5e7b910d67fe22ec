//! A2A clients: many, cheap, and exact about what they receive.

mod call;
mod chunked;
mod connection;
mod request;
mod stand_in;
mod stream;

pub use self::call::{Reply, call, call_reusing};
pub use self::connection::{BodyKind, Connection, Head};
pub use self::request::{ProtocolVersion, Target};
pub use self::stand_in::{SentText, Totals, sent_text, totals};
pub use self::stream::{Counts, End, Outcome, Tally, Window, open_stream};
