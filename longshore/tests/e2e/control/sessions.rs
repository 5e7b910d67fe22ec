//! Sessions of the real OpenCode: read, steered and guarded.
//!
//! What the gateway tells is held against what OpenCode itself says over its own API, on both lines.

mod everything;
