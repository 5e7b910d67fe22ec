//! The whole of Longshore, from an A2A client to the real OpenCode and back, with the demo model behind OpenCode.
//!
//! Every turn that [`harness::Harness::play`] plays is checked against three rules: the stream folds into the stored task,
//! the stored task says what OpenCode's own message list says, and the log has no gap and exactly one end.
//! OpenCode takes seconds to start, so the scenarios of one test function share a gateway; a failure names its scenario.
//! Tests whose name begins with `long_` take long: `make test` leaves them out, `make test-long` runs them.

mod acp_agents;
mod acp_commands;
mod acp_matrix;
mod approvals;
mod ask_deadlines;
mod ask_scenarios;
mod asking;
mod asks;
mod broken_streams;
mod call;
mod client;
mod configured_harness;
mod control;
mod conversations;
mod crashes;
mod credentials;
mod data_in_workspace;
mod directories;
mod documented_commands;
mod files;
mod first_request;
mod frames;
mod harness;
mod kills;
#[cfg(target_os = "linux")]
mod many_restarts;
#[cfg(target_os = "linux")]
mod memory;
mod model_log;
mod official_client;
mod peers;
mod real_agents;
mod resume;
mod seeds;
mod shared_gateway;
mod shutdown;
mod steering;
mod sub_agents;
mod thinking;
mod tools;
mod turns;
mod upstream;
mod watchdogs;
