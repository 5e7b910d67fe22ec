//! The methods for callers who know OpenCode, on a whole gateway in front of a fake OpenCode that has the real one's weaknesses
//! and keeps a log of what it was asked.

mod stage;
mod switches;
