//! An engine whose agent calls peers of every kind.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

mod asks;
mod endings;
mod fixture;
mod hostile;
mod limits;
mod restarts;
