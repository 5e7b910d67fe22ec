//! The note in a task's metadata that a reader missed events for good.

use std::collections::BTreeMap;

use longshore_model::Metadata;
use serde_json::value::RawValue;

use super::Gap;
use crate::json::{ObjectWriter, on_one_line};

/// Writes the metadata with `longshore.gap` set. Other keys stay, those beside `gap` included.
pub(super) fn write(out: &mut Vec<u8>, metadata: Option<&Metadata>, gap: Gap) {
    let fields = metadata.map(|metadata| fields_of(metadata.get())).unwrap_or_default();
    let mut object = ObjectWriter::begin(out);
    let ours = write_all_but(&mut object, &fields, "longshore");
    let ours = ours.map(|raw| fields_of(raw.get())).unwrap_or_default();
    object.object("longshore", |object| {
        write_all_but(object, &ours, "gap");
        object.object("gap", |object| {
            object.number("requested", gap.requested.0);
            object.number("first", gap.first.0);
            object.number("head", gap.head.0);
        });
    });
    object.end();
}

/// Nothing for what is no object: the note has to stand somewhere, and nobody else owns the name.
fn fields_of(json: &str) -> BTreeMap<String, &RawValue> {
    serde_json::from_str(json).unwrap_or_default()
}

fn write_all_but<'a>(
    object: &mut ObjectWriter<'_>,
    fields: &BTreeMap<String, &'a RawValue>,
    left_out: &str,
) -> Option<&'a RawValue> {
    for (key, value) in fields {
        if key != left_out {
            object.foreign_key(key).extend_from_slice(on_one_line(value.get()).as_bytes());
        }
    }
    fields.get(left_out).copied()
}
