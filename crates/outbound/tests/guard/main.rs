//! The guard between hostile URLs and the network: which URLs are refused before a connection is opened, and how a call behaves on
//! a real connection.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]
#![expect(clippy::disallowed_methods, reason = "the receivers are no tasks of the gateway")]

mod fixture;
mod hostile;
mod post;
mod rules;
