//! For benchmarks only: decodes the bytes of an event stream into the reports of a turn, without sockets, queues and tasks.

use bytes::Bytes;

use crate::api::{EventKind, Head};
use crate::skim::{self, Event};
use crate::sse::{Decoder, Item, MAX_EVENT_BYTES};
use crate::translate::Translator;

/// The event stream of one session, and the translator of its turn.
#[derive(Debug)]
pub struct EventPipeline {
    decoder: Decoder,
    items: Vec<Item>,
    translator: Translator,
}

impl EventPipeline {
    /// A pipeline for a turn that was just prompted. `prompt`: the id of its message.
    pub fn new(session: &str, prompt: &str) -> Self {
        Self {
            decoder: Decoder::new(MAX_EVENT_BYTES),
            items: Vec::new(),
            translator: Translator::new(session, prompt),
        }
    }

    /// Decodes bytes of the stream. Returns the number of reports.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let mut reports = 0;
        self.decoder.push(bytes, &mut self.items);
        for item in self.items.drain(..) {
            let Item::Event(body) = item else { continue };
            let Some(event) = event(body) else { continue };
            if self.translator.handle(&event).is_ok() {
                reports += self.translator.take().len();
            }
        }
        reports
    }
}

/// Parses an event as the reader does.
fn event(body: Bytes) -> Option<Event> {
    if let Some(skimmed) = skim::skim(&body) {
        return Some(skimmed.event(body));
    }
    let head = serde_json::from_slice::<Head<'_>>(&body).ok()?;
    let kind = EventKind::parse(&head.kind)?;
    drop(head);
    Some(Event::parsed(kind, body))
}
