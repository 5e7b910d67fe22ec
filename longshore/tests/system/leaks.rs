//! Thousands of clients connect and disconnect, and connections to OpenCode break at the same time. Afterwards the gateway
//! holds no more memory, open files, threads, tasks or processes than before.

mod connection;
mod cycles;
mod fixture;
mod process;
mod stuck_readers;
mod tasks;
