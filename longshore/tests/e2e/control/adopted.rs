//! Turns that somebody else begins in OpenCode become tasks, with their streams and their asks.
