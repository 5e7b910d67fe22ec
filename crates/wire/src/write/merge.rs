//! Our objects in a metadata object of somebody else, whose text stays as it is.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::json::{ObjectWriter, on_one_line};

/// Writes `base`, which is an object, with the object `name` in it. What `base` says under that name stays where `write`
/// does not write the same key.
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
    // Nothing has to be taken apart: ours goes before the brace that closes theirs.
    let open = base.strip_suffix('}').unwrap_or("{").trim_ascii_end();
    out.extend_from_slice(open.as_bytes());
    if open.len() > 1 {
        out.push(b',');
    }
    let mut ours = ObjectWriter::inside(out);
    ours.object(name, write);
    ours.end();
}

/// The same for a base that may already hold the name.
pub(crate) fn write_merged(
    out: &mut Vec<u8>,
    base: &str,
    name: &str,
    write: impl FnOnce(&mut ObjectWriter<'_>),
) {
    let mut ours = Vec::new();
    let mut object = ObjectWriter::begin(&mut ours);
    write(&mut object);
    object.end();
    let ours = str::from_utf8(&ours).map(fields_of).unwrap_or_default();

    let fields = fields_of(base);
    let theirs = fields.get(name).map(|raw| fields_of(raw.get())).unwrap_or_default();
    let mut object = ObjectWriter::begin(out);
    write_all_but(&mut object, base, name);
    object.object(name, |object| {
        write_fields(object, theirs.iter().filter(|(key, _)| !ours.contains_key(*key)));
        write_fields(object, ours.iter());
    });
    object.end();
}

/// Writes the fields of an object into ours, but for one name.
pub(crate) fn write_all_but(object: &mut ObjectWriter<'_>, json: &str, name: &str) {
    write_fields(object, fields_of(json).iter().filter(|(key, _)| *key != name));
}

/// Writes the fields of an object, and those of another in the place of the ones that have the same name.
pub(crate) fn write_over(object: &mut ObjectWriter<'_>, base: &str, others: &str) {
    let others = fields_of(others);
    write_fields(object, fields_of(base).iter().filter(|(key, _)| !others.contains_key(*key)));
    write_fields(object, others.iter());
}

/// False only when the name is surely no key of the object.
fn may_hold(base: &str, name: &str) -> bool {
    base.contains(name) || base.contains("\\u")
}

/// Nothing for what is no object: ours has to stand somewhere, and nobody else owns the name.
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
