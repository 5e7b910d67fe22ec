//! What a real gateway, its clients and its agent experience when the gateway ends and starts again: in the middle of many
//! streams, during its own start, after two signals, with a client that does not read, while its predecessor still runs, and with
//! a parent that closes its input.

mod client;
mod data_dir_lock;
mod installation;
mod protocol;
mod shutdown;
mod stdio;
mod streams;
mod waiting;
