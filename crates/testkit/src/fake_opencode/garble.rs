//! Events that are spoilt on their way to the readers of `/event`: what comes in place of one cannot be read.

use bytes::Bytes;
use serde_json::{Value, json};

/// The next events that become unreadable. OpenCode itself knows of nothing: what they tell has happened.
#[derive(Clone, Debug)]
pub struct Garble {
    /// The type of the events, such as `session.idle`. `*`: any.
    pub kind: &'static str,
    pub how: GarbleKind,
    /// How many of them.
    pub times: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GarbleKind {
    /// The second half of the line is missing: no JSON, and nobody knows whose event it was.
    Torn,
    /// Its type and session are there, and everything else has another shape.
    Misshapen,
    /// The first bytes of the line are others, so that it is no line of data at all.
    Unnamed,
}

/// What is still to be spoilt.
#[derive(Debug, Default)]
pub(super) struct Garbling(Vec<Garble>);

impl Garbling {
    pub(super) fn add(&mut self, garble: Garble) {
        self.0.push(garble);
    }

    /// The event as it goes out.
    pub(super) fn frame(&mut self, event: &Value) -> Bytes {
        let kind = event["type"].as_str().unwrap_or_default();
        let due = |garble: &&mut Garble| garble.times > 0 && (garble.kind == "*" || garble.kind == kind);
        let Some(garble) = self.0.iter_mut().find(due) else { return frame(event) };
        garble.times -= 1;
        match garble.how {
            GarbleKind::Torn => {
                let text = event.to_string();
                let half = (0..text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                Bytes::from(format!("data: {}\n\n", &text[..half]))
            }
            GarbleKind::Unnamed => Bytes::from(format!("\u{fffd}ta: {event}\n\n")),
            GarbleKind::Misshapen => {
                let session = &event["properties"]["sessionID"];
                frame(&json!({
                    "id": event["id"], "type": event["type"],
                    "properties": {"sessionID": session, "status": 7, "info": {}, "part": 7, "delta": 7, "id": 7},
                }))
            }
        }
    }
}

pub(super) fn frame(event: &Value) -> Bytes {
    Bytes::from(format!("data: {event}\n\n"))
}
