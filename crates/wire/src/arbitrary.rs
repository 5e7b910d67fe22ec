//! Model values for property tests.
