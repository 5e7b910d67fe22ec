//! The health document: the state of each part of the gateway, and the profile.

use bytes::Bytes;
use serde_json::{Value, json};

use super::deployment::Deployment;
use super::profile;
use crate::surface::ProtocolVersion;

/// The state of a part of the gateway that can fail independently.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    Up,
    /// The part works, but some data is lost. The text is shown to callers: it contains no path and no secret.
    Degraded(String),
    /// The part does not work. The text is shown to callers: it contains no path and no secret.
    Down(String),
}

impl Part {
    fn works(&self) -> bool {
        !matches!(self, Self::Down(_))
    }
}

/// The current state of the gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HealthFacts {
    pub agent: Part,
    pub store: Part,
    /// Whether the gateway is shutting down and accepts no new work.
    pub stopping: bool,
}

impl HealthFacts {
    /// Whether the gateway accepts new work.
    pub fn is_ready(&self) -> bool {
        !self.stopping && self.agent.works() && self.store.works()
    }

    fn status(&self) -> &'static str {
        match (self.is_ready(), &self.agent, &self.store) {
            (false, ..) => "unavailable",
            (true, Part::Up, Part::Up) => "ok",
            _ => "degraded",
        }
    }
}

/// The response of `/health`.
pub fn health(deployment: &Deployment, version: ProtocolVersion, facts: &HealthFacts) -> Bytes {
    let document = json!({
        "status": facts.status(),
        "service": "longshore",
        "version": deployment.version,
        // A gateway that can respond is always live.
        "live": true,
        "ready": facts.is_ready(),
        "stopping": facts.stopping,
        "parts": {deployment.surface.key: part(&facts.agent), "store": part(&facts.store)},
        "profile": profile(deployment, version),
    });
    document.to_string().into()
}

fn part(part: &Part) -> Value {
    match part {
        Part::Up => json!({"status": "up"}),
        Part::Degraded(why) => json!({"status": "degraded", "message": why}),
        Part::Down(why) => json!({"status": "down", "message": why}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_names_the_part_that_is_down() {
        let down = || Part::Down("It does not answer.".to_owned());
        for (agent, store, stopping, status, ready) in [
            (Part::Up, Part::Up, false, "ok", true),
            (down(), Part::Up, false, "unavailable", false),
            (Part::Up, down(), false, "unavailable", false),
            (Part::Up, Part::Up, true, "unavailable", false),
            (Part::Up, Part::Degraded("Some tasks are damaged.".to_owned()), false, "degraded", true),
        ] {
            let facts = HealthFacts { agent, store, stopping };
            let bytes = health(&Deployment::of_opencode(), ProtocolVersion::V1, &facts);
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
