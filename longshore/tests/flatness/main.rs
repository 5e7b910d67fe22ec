//! Clients that come and go by the thousand leave nothing behind: no memory, no open file, no thread, no task and no
//! process. Neither do the connections to OpenCode, which are cut at the same time.
#![cfg(target_os = "linux")]

#[expect(dead_code, reason = "the replays use more of it")]
#[path = "../common/mod.rs"]
mod common;
mod connection;
mod cycles;
mod process;
mod stage;
mod tasks;
