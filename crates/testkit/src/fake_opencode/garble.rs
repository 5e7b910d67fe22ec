//! Events that readers of `/event` receive in an unreadable form.

use bytes::Bytes;
use longshore_opencode_shapes::write_frame;
use serde::Serialize;
use serde_json::{Value, json};

/// Makes the next events unreadable. OpenCode itself does not notice: what the events report has happened.
#[derive(Clone, Debug)]
pub struct Garble {
    /// The type of the events, such as `session.idle`. `*`: any.
    pub kind: &'static str,
    pub how: GarbleKind,
    /// How many events.
    pub times: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GarbleKind {
    /// The second half of the line is missing. The rest is not JSON, and does not show which session the event belongs to.
    Torn,
    /// Type and session are readable, and everything else has another shape.
    Misshapen,
    /// The first bytes of the line are wrong, so that it is no `data:` line.
    Unnamed,
}

/// The events that are still to be garbled.
#[derive(Debug, Default)]
pub(super) struct Garbling(Vec<Garble>);

impl Garbling {
    pub(super) fn add(&mut self, garble: Garble) {
        self.0.push(garble);
    }

    /// The event as it is sent.
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

pub(super) fn frame(event: &impl Serialize) -> Bytes {
    let mut frame = Vec::new();
    write_frame(&mut frame, event).expect("memory can be written");
    frame.into()
}
