//! The methods of OpenCode's own surface, on both lines, against the real OpenCode.

mod adopted;
mod caller;
mod failures;
mod places;
mod sessions;
mod stage;
