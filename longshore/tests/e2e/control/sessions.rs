//! The session methods against the real OpenCode.
//!
//! What the gateway reports is compared with what OpenCode reports over its own API. A scenario that the Python peer fails has
//! the number of that defect in its name.

mod changing;
mod injection;
mod other_directories;
mod parameters;
mod prompting;
mod reading;
