//! Decodes the parts of messages and artifacts.

use longshore_model::{Part, PartContent};
use serde_json::value::RawValue;

use crate::base64;
use crate::json::{Fault, Object, Read, carried_json, carried_metadata, is_null, some_text, text};

pub(in crate::v1) fn part(raw: &RawValue) -> Read<Part> {
    let part = Object::read(raw, &["text", "raw", "url", "data", "metadata", "filename", "mediaType"])?;
    Ok(Part {
        content: content(&part)?,
        media_type: part.optional("mediaType", some_text)?.flatten(),
        filename: part.optional("filename", some_text)?.flatten(),
        metadata: part.optional("metadata", carried_metadata)?,
    })
}

fn content(part: &Object<'_>) -> Read<PartContent> {
    let arms = [
        part.optional("text", |raw| text(raw).map(PartContent::Text))?,
        part.optional("raw", |raw| bytes(raw).map(PartContent::Raw))?,
        part.optional("url", |raw| text(raw).map(PartContent::Url))?,
        part.optional("data", |raw| carried_json(raw).map(PartContent::Data))?,
    ];
    let mut arms = arms.into_iter().flatten();
    match (arms.next(), arms.next()) {
        (Some(content), None) => Ok(content),
        (Some(_), Some(_)) => {
            Err(Fault::new("has more than one of text, raw, url and data; a part has exactly one"))
        }
        // Unlike for other fields, `null` is a valid value of `data`. But next to another field it only means that a careless
        // client wrote out an empty field, so it counts only if no other field is present.
        (None, _) => match part.raw("data").filter(|raw| is_null(raw)) {
            Some(null) => carried_json(null).map(PartContent::Data),
            None => Err(Fault::new("must have one of text, raw, url and data")),
        },
    }
}

fn bytes(raw: &RawValue) -> Read<Vec<u8>> {
    base64::decode(&text(raw)?)
        .ok_or_else(|| Fault::new("must be base64, of the standard or the URL-safe alphabet"))
}
