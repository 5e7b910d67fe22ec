//! What A2A clients see when the fake OpenCode plays recordings of the real one, and when the fake breaks.

mod all_recordings;
mod asks;
mod endings;
mod faults;
mod fixture;
mod joining;
mod opencode_restarts;
mod recordings;
mod refusals;
mod stable_names;
mod usage;
