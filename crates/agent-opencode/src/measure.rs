//! For the benchmarks: the way from the bytes of the event stream to the reports of a turn, without sockets, queues and
//! tasks. Nothing of the product calls it.

use bytes::Bytes;

use crate::api::{EventKind, Head};
use crate::skim::{self, Event};
use crate::sse::{Decoder, Item, MAX_EVENT_BYTES};
use crate::translate::Translator;

/// The events of one session, as far as its turn is concerned.
#[derive(Debug)]
pub struct Reading {
    decoder: Decoder,
    items: Vec<Item>,
    translator: Translator,
}

impl Reading {
    /// A turn that was just prompted. `prompt`: the id of its message.
    pub fn new(session: &str, prompt: &str) -> Self {
        Self {
            decoder: Decoder::new(MAX_EVENT_BYTES),
            items: Vec::new(),
            translator: Translator::new(session, prompt),
        }
    }

    /// Takes bytes of the stream in, and gives how many reports came of them.
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

/// As the reader makes it.
fn event(body: Bytes) -> Option<Event> {
    if let Some(skimmed) = skim::skim(&body) {
        return Some(skimmed.event(body));
    }
    let head = serde_json::from_slice::<Head<'_>>(&body).ok()?;
    let kind = EventKind::parse(&head.kind)?;
    drop(head);
    Some(Event::parsed(kind, body))
}
