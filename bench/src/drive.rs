//! Clients of A2A: many, cheap, and exact about what they got.

mod call;
mod chunked;
mod connection;
mod speak;
mod stream;
mod truth;

pub use self::call::{Reply, call};
pub use self::connection::{BodyKind, Connection, Head};
pub use self::speak::{ProtocolVersion, Target};
pub use self::stream::{Counts, End, Outcome, Tally, Window, open_stream};
pub use self::truth::{Totals, Truth, totals, truth};
