//! The methods of OpenCode's own surface, on both lines, against the real OpenCode.

mod adopted;
mod places;
mod sessions;
