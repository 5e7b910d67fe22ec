//! Sessions of the real OpenCode: read, steered and guarded.
