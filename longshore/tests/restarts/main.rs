//! What becomes of a real gateway, its clients and its agent when it is told to end, and when it is started again: in the
//! middle of many streams, while it starts, twice at once, with a client that does not read, and with a predecessor that
//! is not gone yet.

mod client;
mod ends;
mod place;
mod speaker;
mod streams;
mod waits;
