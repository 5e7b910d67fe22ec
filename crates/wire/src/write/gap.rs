//! Adds a note to a task's metadata that the reader has missed events that the log no longer has.

use super::{Gap, merge};

/// The metadata with `longshore.gap` set. All other keys are kept, including those inside `longshore`.
pub(crate) fn annotated(metadata: Option<&str>, gap: Gap) -> String {
    let mut out = Vec::new();
    merge::write_merged(&mut out, metadata.unwrap_or("{}"), "longshore", |object| {
        object.object("gap", |object| {
            object.number("requested", gap.requested.seq.0);
            object.number("first", gap.first.0);
            object.number("head", gap.head.seq.0);
            if let Some(epoch) = gap.requested.epoch {
                object.number("requested_epoch", epoch.0);
            }
            if let Some(epoch) = gap.head.epoch {
                object.number("head_epoch", epoch.0);
            }
        });
    });
    String::from_utf8(out).expect("JSON is UTF-8")
}
