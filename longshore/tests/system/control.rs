//! The `opencode.*` methods on a whole gateway in front of a fake OpenCode that has the weaknesses of the real one and logs
//! every request.

mod asks;
mod calls;
mod errors;
mod every_method;
mod fixture;
mod native_prompts;
mod ownership;
mod params;
mod path_injection;
mod populated;
mod prompt_rules;
mod secrets;
mod seeds;
mod timeouts;
