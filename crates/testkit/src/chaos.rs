//! Breaking things on purpose, and judging what clients saw of it.

pub mod proxy;
