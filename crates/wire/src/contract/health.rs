//! Health: what works and what does not, with the profile.

use bytes::Bytes;
use serde_json::{Value, json};

use super::deployment::Deployment;
use super::profile;
use crate::surface::ProtocolVersion;

/// A part of the gateway that can fail by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    Up,
    /// It does not work, in words that callers may read: no path, no secret.
    Down(String),
}

/// What was found just now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HealthFacts {
    pub opencode: Part,
    pub store: Part,
    /// It is about to stop, and takes nothing new.
    pub stopping: bool,
}

impl HealthFacts {
    /// New work can be taken.
    pub fn is_ready(&self) -> bool {
        !self.stopping && self.opencode == Part::Up && self.store == Part::Up
    }
}

/// The answer of `/health`.
pub fn health(deployment: &Deployment, version: ProtocolVersion, facts: &HealthFacts) -> Bytes {
    let document = json!({
        "status": if facts.is_ready() { "ok" } else { "unavailable" },
        "service": "longshore",
        "version": deployment.version,
        // Who can answer this lives.
        "live": true,
        "ready": facts.is_ready(),
        "stopping": facts.stopping,
        "parts": {"opencode": part(&facts.opencode), "store": part(&facts.store)},
        "profile": profile(deployment, version),
    });
    document.to_string().into()
}

fn part(part: &Part) -> Value {
    match part {
        Part::Up => json!({"status": "up"}),
        Part::Down(why) => json!({"status": "down", "message": why}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_is_down() {
        let down = || Part::Down("It does not answer.".to_owned());
        for (opencode, store, stopping, status, ready) in [
            (Part::Up, Part::Up, false, "ok", true),
            (down(), Part::Up, false, "unavailable", false),
            (Part::Up, down(), false, "unavailable", false),
            (Part::Up, Part::Up, true, "unavailable", false),
        ] {
            let facts = HealthFacts { opencode, store, stopping };
            let bytes = health(&Deployment::default(), ProtocolVersion::V1, &facts);
            let document: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(
                (&document["status"], &document["ready"]),
                (&json!(status), &json!(ready)),
                "{facts:?}"
            );
            assert_eq!(document["live"], true);
            assert_eq!(document["profile"]["protocol_version"], "1.0");
        }
    }
}
