//! The methods for callers who know OpenCode, on a whole gateway in front of a fake OpenCode that has the real one's weaknesses
//! and keeps a log of what it was asked.

mod callers;
mod hang_ups;
mod params;
mod path_tricks;
mod stage;
mod switches;
mod two_principals;
mod validation;
