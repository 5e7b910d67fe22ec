//! The whole of Longshore, from an A2A client to the real OpenCode and back, with the demo model behind it.
//!
//! Every turn that [`harness::Harness::play`] plays is held against three rules: the stream folds into the stored task,
//! the stored task says what OpenCode's own message list says, and the log has no gap and one end.
//! A start of OpenCode takes seconds, so the tests of one file share a gateway where they can; a failure names
//! its scenario.

mod ask_deadlines;
mod ask_scenarios;
mod asking;
mod asks;
mod broken_streams;
mod client;
mod configured;
mod control;
mod conversations;
mod crashes;
mod credentials;
mod files;
mod frames;
mod harness;
mod lives;
mod memory;
mod model_log;
mod resume;
mod seeds;
mod shutdown;
mod silence;
mod steering;
mod sub_agents;
mod thinking;
mod tools;
mod turns;
mod unknown_model;
mod upstream;
mod watchdogs;
