//! What becomes of a real gateway, with an OpenCode that does what the test says, when its store fails: the disk is full,
//! the file is locked, read-only or damaged. And a copy of the store that is taken while it is written.

mod backup;
#[expect(dead_code, reason = "the replays use more of it")]
#[path = "../common/mod.rs"]
mod common;
mod damaged;
mod disk_full;
mod locked;
mod place;
mod process;
mod read_only;
mod sends;
