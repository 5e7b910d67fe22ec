//! The note in a task's metadata that a reader missed events for good.

use super::{Gap, merge};

/// The metadata with `longshore.gap` set. Other keys stay, those beside `gap` included.
pub(crate) fn noted(metadata: Option<&str>, gap: Gap) -> String {
    let mut out = Vec::new();
    merge::write_merged(&mut out, metadata.unwrap_or("{}"), "longshore", |object| {
        object.object("gap", |object| {
            object.number("requested", gap.requested.0);
            object.number("first", gap.first.0);
            object.number("head", gap.head.0);
        });
    });
    String::from_utf8(out).expect("JSON is text")
}
