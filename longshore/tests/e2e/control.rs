//! The methods of OpenCode's own surface, on both lines, against the real OpenCode.

mod external_turns;
mod caller;
mod failures;
mod resources;
mod sessions;
mod fixture;
