//! The edge over real sockets, with a real engine, a store in memory and an agent that the test controls.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod asks;
mod bindings;
mod caching;
mod connections;
mod control;
mod control_audit;
mod control_offers;
mod control_switches;
mod crossing;
mod documents;
mod error_table;
mod errors;
mod extensions;
mod files;
mod health;
mod limits;
mod logging;
mod memory;
mod metrics;
mod negotiation;
mod operations;
mod plain_answers;
mod public;
mod push;
mod refusals;
mod rights;
mod slow_clients;
mod stream_limits;
mod streams;
mod support;
mod tls;
mod unfinished_bodies;
mod unix_socket;
mod versions;
mod websocket;
