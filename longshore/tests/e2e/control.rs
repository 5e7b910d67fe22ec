//! The `opencode.*` methods against the real OpenCode: one test for each family of methods. What does not depend on the real
//! OpenCode (both versions, every error, every parameter) is tested on the fake, in `control` of the `system` binary.

mod caller;
mod external_turns;
pub(crate) mod fixture;
mod resources;
mod sessions;
