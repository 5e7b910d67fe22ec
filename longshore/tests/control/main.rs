//! The methods for callers who know OpenCode, on a whole gateway in front of a fake OpenCode that has the real one's weaknesses
//! and keeps a log of what it was asked.

mod asks;
mod errors;
mod every_method;
mod notifications;
mod orders;
mod scene;
mod secrets;
mod seeds_on_the_fake;
mod stage;
mod switches;
