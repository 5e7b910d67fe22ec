//! Tests of the whole gateway without the real OpenCode: a scripted fake, or no agent at all, stands behind it.
//!
//! All of them are one binary, because each further binary links the whole workspace again. Tests whose name begins with
//! `long_` take minutes: `make test` leaves them out, `make test-long` runs them.

#[cfg(target_os = "linux")]
mod acp_kills;
#[cfg(target_os = "linux")]
mod acp_sessions;
mod bench;
mod chaos;
mod cli;
mod client;
mod common;
mod control;
#[cfg(target_os = "linux")]
mod hostile_clients;
#[cfg(target_os = "linux")]
mod leaks;
mod made_up_operation;
mod migration;
mod push;
mod replay;
mod repository;
mod restarts;
mod secrets;
mod store_faults;
