//! The chaos machinery: a proxy that breaks connections, clients that reconnect, a world whose processes are killed, and a
//! checker that compares what the clients received with the gateway's log and with the agent's own records.

pub mod campaign;
pub mod checker;
pub mod client;
mod left_behind;
pub mod measured;
mod opencode;
mod planned_messages;
pub mod proxy;
mod record;
pub mod report;
pub mod round;
mod script;
mod speaker;
mod storm;
mod wire;
mod world;

pub use opencode::Program;
pub use record::{CancelAnswer, CancelAt, Canceling, Frame, PlannedMessage, Record, Returns};
pub use speaker::{Answering, ClientProtocol, ClientRequest, Transport};
pub use world::{Kind, World};
