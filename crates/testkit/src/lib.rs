//! What tests share: fakes, suites, recordings and raw clients. Never a normal dependency.

pub mod scripted_agent;
