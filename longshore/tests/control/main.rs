//! The methods for callers who know OpenCode, on a whole gateway in front of a fake OpenCode that has the real one's weaknesses
//! and keeps a log of what it was asked.

mod asks;
mod callers;
mod directories;
mod errors;
mod every_method;
mod hang_ups;
mod hanging;
mod notifications;
mod orders;
mod params;
mod path_tricks;
mod scene;
mod secrets;
mod seeds;
mod stage;
mod switches;
mod two_principals;
mod validation;
