//! Measures Longshore beside its peer: a fast stand-in for OpenCode, many clients of A2A, and what `/proc` says of the
//! server between them. `make bench` runs it all and writes `docs/performance.md`.

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
