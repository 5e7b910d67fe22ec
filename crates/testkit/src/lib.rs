//! Shared by tests: fakes, suites, recordings and raw clients. Never a normal dependency.

pub mod agent_suite;
pub mod arbitrary;
pub mod certificates;
pub mod chaos;
pub mod external_turns;
pub mod fake_acp;
pub mod fake_opencode;
pub mod faulty_store;
pub mod gateway;
pub mod process;
pub mod raw;
pub mod receiver;
pub mod scripted_agent;
pub mod scripted_control;
pub mod store_suite;
pub mod stub_agent;
pub mod terminal;
pub mod websocket;
