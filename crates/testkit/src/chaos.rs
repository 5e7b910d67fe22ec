//! Everything that breaks at once, and whoever finds out what was lost: a proxy that cuts, clients that come back, a
//! world whose parts are killed, and a checker that holds what was seen against the log and against the agent itself.

pub mod campaign;
pub mod checker;
pub mod client;
mod errands;
mod left_behind;
mod opencode;
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
pub use record::{CancelAt, Canceled, Canceling, Errand, Frame, Record, Returns};
pub use speaker::{Answering, Speaker, Spelled};
pub use world::{Kind, World};
