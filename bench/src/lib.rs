//! Measures Longshore beside the Python gateway `opencode-a2a`. A fast stand-in replaces OpenCode, many clients speak
//! A2A, and `/proc` shows what the server between them costs. `make bench` runs everything and writes
//! `docs/performance.md`.

pub mod bench;
pub mod clock;
pub mod count;
pub mod drive;
pub mod histogram;
pub mod load;
pub mod micro;
pub mod number;
pub mod options;
pub mod output;
pub mod phases;
pub mod proc;
pub mod process;
pub mod report;
pub mod results;
pub mod run;
pub mod servers;
pub mod stamp;
pub mod stand_in;
