//! Adds objects of the gateway to a metadata object from elsewhere. The rest of that object's JSON text is copied unchanged.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::json::{ObjectWriter, on_one_line};

/// Writes the object `base` and adds the object `name` to it. If `base` already has that object, its keys are kept, except for
/// those that `write` writes.
pub(crate) fn write(
    out: &mut Vec<u8>,
    base: Option<&str>,
    name: &str,
    write: impl FnOnce(&mut ObjectWriter<'_>),
) {
    let base = on_one_line(base.unwrap_or("{}"));
    if may_hold(&base, name) {
        return write_merged(out, &base, name, write);
    }
    // `base` does not have the name, so the object is inserted before the closing brace, and nothing has to be parsed.
    let open = base.strip_suffix('}').unwrap_or("{").trim_ascii_end();
    out.extend_from_slice(open.as_bytes());
    if open.len() > 1 {
        out.push(b',');
    }
    let mut added = ObjectWriter::inside(out);
    added.object(name, write);
    added.end();
}

/// Like `write`, for a `base` that may already have the name.
pub(crate) fn write_merged(
    out: &mut Vec<u8>,
    base: &str,
    name: &str,
    write: impl FnOnce(&mut ObjectWriter<'_>),
) {
    let mut added = Vec::new();
    let mut object = ObjectWriter::begin(&mut added);
    write(&mut object);
    object.end();
    let added = str::from_utf8(&added).map(fields_of).unwrap_or_default();

    let fields = fields_of(base);
    let existing = fields.get(name).map(|raw| fields_of(raw.get())).unwrap_or_default();
    let mut object = ObjectWriter::begin(out);
    write_all_but(&mut object, base, name);
    object.object(name, |object| {
        write_fields(object, existing.iter().filter(|(key, _)| !added.contains_key(*key)));
        write_fields(object, added.iter());
    });
    object.end();
}

/// Writes all fields of an object except one into another object.
pub(crate) fn write_all_but(object: &mut ObjectWriter<'_>, json: &str, name: &str) {
    write_fields(object, fields_of(json).iter().filter(|(key, _)| *key != name));
}

/// Writes the fields of `base`, except that fields of `overrides` with the same name replace them, and the rest of `overrides`.
pub(crate) fn write_over(object: &mut ObjectWriter<'_>, base: &str, overrides: &str) {
    let overrides = fields_of(overrides);
    write_fields(object, fields_of(base).iter().filter(|(key, _)| !overrides.contains_key(*key)));
    write_fields(object, overrides.iter());
}

/// Whether `name` may be a key of the object. `false` is certain, `true` is not.
fn may_hold(base: &str, name: &str) -> bool {
    base.contains(name) || base.contains("\\u")
}

/// The fields of an object. Any other value counts as an object without fields. The gateway may replace it, because the name
/// belongs to the gateway.
fn fields_of(json: &str) -> BTreeMap<String, &RawValue> {
    serde_json::from_str(json).unwrap_or_default()
}

fn write_fields<'a>(
    object: &mut ObjectWriter<'_>,
    fields: impl Iterator<Item = (&'a String, &'a &'a RawValue)>,
) {
    for (key, value) in fields {
        object.foreign_key(key).extend_from_slice(on_one_line(value.get()).as_bytes());
    }
}
