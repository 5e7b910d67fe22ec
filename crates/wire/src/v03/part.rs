//! Reads and writes parts. Each dialect of 0.3 has its own format, and so has 1.0. All three formats are read.

use longshore_model::{Json, Metadata, Part, PartContent};
use serde_json::value::RawValue;

use super::Dialect;
use crate::base64;
use crate::json::{
    Fault, Object, ObjectWriter, Read, carried_json, carried_metadata, is_null, some_text, text,
};
use crate::output::data_as_text;
use crate::spelling::PartView;
use crate::write::shared::Shared;
use crate::write::write_bytes;

pub(super) fn read_rpc(raw: &RawValue) -> Read<Part> {
    read(raw, Dialect::Rpc)
}

pub(super) fn read_rest(raw: &RawValue) -> Read<Part> {
    read(raw, Dialect::Rest)
}

pub(super) fn write_rpc(out: &mut Vec<u8>, part: PartView<'_>) {
    write(out, part, Dialect::Rpc);
}

pub(super) fn write_rest(out: &mut Vec<u8>, part: PartView<'_>) {
    write(out, part, Dialect::Rest);
}

fn read(raw: &RawValue, dialect: Dialect) -> Read<Part> {
    let known = &["kind", "type", "text", "file", "data", "raw", "url", "metadata", "filename", "mediaType"];
    let object = Object::read(raw, known)?;
    let metadata = object.optional("metadata", carried_metadata)?;
    let part = content(&object, dialect)?;
    // Before 0.3 the field was called `type`.
    let kind = if object.raw("kind").is_some() { "kind" } else { "type" };
    object.optional(kind, |raw| {
        let (given, kind) = (text(raw)?, kind_of(&part.content));
        if given == kind {
            return Ok(());
        }
        let problem = match given.as_str() {
            "text" | "file" | "data" => format!("says {given}, but the part holds {kind}"),
            _ => "must be text, file or data".to_owned(),
        };
        Err(Fault::new(problem))
    })?;
    // Outside of `file`, these two fields have their names of 1.0.
    let media_type = object.optional("mediaType", some_text)?.flatten();
    let filename = object.optional("filename", some_text)?.flatten();
    Ok(Part {
        media_type: part.media_type.or(media_type),
        filename: part.filename.or(filename),
        metadata,
        ..part
    })
}

fn kind_of(content: &PartContent) -> &'static str {
    match content {
        PartContent::Text(_) => "text",
        PartContent::Raw(_) | PartContent::Url(_) => "file",
        PartContent::Data(_) => "data",
    }
}

fn content(part: &Object<'_>, dialect: Dialect) -> Read<Part> {
    let plain = |content| Part::new(content);
    let arms = [
        part.optional("text", |raw| text(raw).map(PartContent::Text).map(plain))?,
        part.optional("file", |raw| file(raw, dialect))?,
        part.optional("data", |raw| data(raw, dialect).map(PartContent::Data).map(plain))?,
        part.optional("raw", |raw| bytes(raw).map(PartContent::Raw).map(plain))?,
        part.optional("url", |raw| text(raw).map(PartContent::Url).map(plain))?,
    ];
    let mut arms = arms.into_iter().flatten();
    match (arms.next(), arms.next()) {
        (Some(part), None) => Ok(part),
        (Some(_), Some(_)) => {
            Err(Fault::new("has more than one of text, file and data; a part has exactly one"))
        }
        // As in 1.0, `null` is a value if no other field is present.
        (None, _) => match part.raw("data").filter(|raw| is_null(raw)) {
            Some(null) => carried_json(null).map(PartContent::Data).map(plain),
            None => Err(Fault::new("must have one of text, file and data")),
        },
    }
}

fn file(raw: &RawValue, dialect: Dialect) -> Read<Part> {
    let known = &["bytes", "uri", "fileWithBytes", "fileWithUri", "mimeType", "name"];
    let file = Object::read(raw, known)?;
    let media_type = file.optional("mimeType", some_text)?.flatten();
    let arms = [
        file.optional("bytes", |raw| bytes(raw).map(PartContent::Raw))?,
        file.optional("uri", |raw| text(raw).map(PartContent::Url))?,
        file.optional("fileWithBytes", |raw| {
            let bytes = bytes(raw)?;
            let is_rest = dialect == Dialect::Rest;
            let inner = is_rest.then(|| encoded_twice(&bytes, media_type.as_deref())).flatten();
            Ok(PartContent::Raw(inner.unwrap_or(bytes)))
        })?,
        file.optional("fileWithUri", |raw| {
            let url = text(raw)?;
            Ok(bytes_of_data_url(&url).map_or(PartContent::Url(url), PartContent::Raw))
        })?,
    ];
    let mut arms = arms.into_iter().flatten();
    let names = match dialect {
        Dialect::Rpc => "bytes and uri",
        Dialect::Rest => "fileWithBytes and fileWithUri",
    };
    match (arms.next(), arms.next()) {
        (Some(content), None) => Ok(Part {
            media_type,
            filename: file.optional("name", some_text)?.flatten(),
            ..Part::new(content)
        }),
        _ => Err(Fault::new(format!("must have exactly one of {names}"))),
    }
}

fn bytes(raw: &RawValue) -> Read<Vec<u8>> {
    base64::decode(&text(raw)?)
        .ok_or_else(|| Fault::new("must be base64, of the standard or the URL-safe alphabet"))
}

/// Undoes a double base64 encoding. The official Python client of 0.3 puts base64 where the bytes belong, and then encodes that
/// base64 once more. The JavaScript client does not, and nothing else in the request tells the two apart, because the application
/// sets the header with the program's name. So the bytes decide. They count as encoded twice if they are base64 exactly as an
/// encoder writes it, and in addition one of these conditions holds: a file of this media type is never base64; the bytes look like
/// base64 and decode to what the media type promises; the bytes decode to readable text.
///
/// This guess is wrong for some files of clients that encode once. A file that is itself the base64 of a text becomes that text. A
/// file without a clear media type that is a long key, or any base64, becomes the decoded bytes. The guess also misses some files
/// of the client that encodes twice: a text of 3 or 6 bytes, other files of less than 18 bytes whose base64 has no padding, and a
/// text that is not UTF-8. The rules prefer missing a file, because a garbled word does more harm than a tiny file that is not
/// decoded.
fn encoded_twice(bytes: &[u8], media_type: Option<&str>) -> Option<Vec<u8>> {
    let outer = str::from_utf8(bytes).ok().filter(|text| !text.is_empty())?;
    let inner = base64::decode_strict(outer)?;
    let is_twice = match MediaClass::of(media_type.unwrap_or_default()) {
        MediaClass::Media => true,
        MediaClass::Text => {
            looks_encoded(outer) && str::from_utf8(&inner).is_ok() || decodes_to_text(outer, &inner)
        }
        MediaClass::Unclear => looks_encoded(outer) || decodes_to_text(outer, &inner),
    };
    is_twice.then_some(inner)
}

/// The class of a media type, by whether a file of the type can itself be base64.
enum MediaClass {
    Text,
    /// A file of this type is never base64 as a whole.
    Media,
    Unclear,
}

impl MediaClass {
    fn of(media_type: &str) -> Self {
        let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.split_once('/') {
            Some(("image" | "audio" | "video" | "font", _) | ("application", "pdf")) => Self::Media,
            Some(("text", _) | (_, "json" | "xml" | "yaml" | "toml" | "javascript")) => Self::Text,
            Some((_, subtype)) if subtype.ends_with("+json") || subtype.ends_with("+xml") => Self::Text,
            _ => Self::Unclear,
        }
    }
}

/// Whether a text is base64 and not a word, a path, a number or a hash. Those have no padding, and no long stretch with upper case,
/// lower case and digits. `+` and `/` prove nothing, because sums and paths contain them.
fn looks_encoded(text: &str) -> bool {
    const MIN_MIXED_LENGTH: usize = 24;
    text.ends_with('=')
        || text.len() >= MIN_MIXED_LENGTH
            && has(text, u8::is_ascii_uppercase)
            && has(text, u8::is_ascii_lowercase)
            && has(text, u8::is_ascii_digit)
}

/// Whether the text decodes to readable text that is too long to be a coincidence.
fn decodes_to_text(outer: &str, inner: &[u8]) -> bool {
    const MIN_LENGTH: usize = 12;
    let is_layout = |c| matches!(c, '\n' | '\r' | '\t');
    outer.len() >= MIN_LENGTH
        && has(outer, u8::is_ascii_uppercase)
        && has(outer, u8::is_ascii_lowercase)
        && str::from_utf8(inner).is_ok_and(|text| !text.contains(|c: char| c.is_control() && !is_layout(c)))
}

fn has(text: &str, is: fn(&u8) -> bool) -> bool {
    text.as_bytes().iter().any(is)
}

/// Writes bytes as a data URL. `fileWithBytes` cannot be used, because the official Python client of 0.3 fails on bytes that are
/// not text, and takes text for base64. All clients, including the JavaScript client, read a URL unchanged.
fn write_data_url(out: &mut Vec<u8>, bytes: &[u8], media_type: Option<&str>) {
    let is_plain = |media_type: &&str| {
        media_type.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/.+-_".contains(&byte))
    };
    let media_type = media_type.filter(is_plain).unwrap_or("application/octet-stream");
    out.extend_from_slice(b"\"data:");
    out.extend_from_slice(media_type.as_bytes());
    out.extend_from_slice(b";base64,");
    base64::write(out, bytes);
    out.push(b'"');
}

/// The bytes in a data URL.
fn bytes_of_data_url(url: &str) -> Option<Vec<u8>> {
    let (head, body) = url.strip_prefix("data:")?.split_once(',')?;
    base64::decode(head.ends_with(";base64").then_some(body)?)
}

/// Reads a data part. In ProtoJSON it contains a message that contains the data. Without that wrapper, the value is the data
/// itself.
fn data(raw: &RawValue, dialect: Dialect) -> Read<Json> {
    if dialect == Dialect::Rest
        && let Ok(wrapper) = Object::read(raw, &["data"])
        && let Some(inner) = wrapper.raw("data").filter(|inner| inner.get().starts_with('{'))
    {
        return carried_json(inner).map_err(|fault| fault.under("data"));
    }
    carried_json(raw)
}

fn write(out: &mut Vec<u8>, PartView { part, as_text, block }: PartView<'_>, dialect: Dialect) {
    let mut object = ObjectWriter::begin(out);
    if dialect == Dialect::Rpc {
        object.text("kind", if as_text { "text" } else { kind_of(&part.content) });
    }
    match &part.content {
        PartContent::Text(text) => object.text("text", text),
        PartContent::Data(data) if as_text => object.text("text", &data_as_text(data.get())),
        PartContent::Data(data) if dialect == Dialect::Rest => {
            object.object("data", |wrapper| write_data(wrapper, data));
        }
        PartContent::Data(data) => write_data(&mut object, data),
        PartContent::Raw(_) | PartContent::Url(_) => object.object("file", |file| {
            match (&part.content, dialect) {
                (PartContent::Raw(bytes), Dialect::Rpc) => write_bytes(file.key("bytes"), bytes),
                (PartContent::Raw(bytes), Dialect::Rest) => {
                    write_data_url(file.key("fileWithUri"), bytes, part.media_type.as_deref());
                }
                (PartContent::Url(url), Dialect::Rpc) => file.text("uri", url),
                (PartContent::Url(url), Dialect::Rest) => file.text("fileWithUri", url),
                (PartContent::Text(_) | PartContent::Data(_), _) => {}
            }
            file.some_text("mimeType", part.media_type.as_deref());
            file.some_text("name", part.filename.as_deref());
        }),
    }
    Shared::of_part(block).write(&mut object, part.metadata.as_ref().map(Metadata::get));
    object.end();
}

/// Writes data, which must be an object in 0.3. Any other value is wrapped in an object.
fn write_data(object: &mut ObjectWriter<'_>, data: &Json) {
    if data.get().starts_with('{') {
        object.json("data", data);
    } else {
        object.object("data", |object| object.json("value", data));
    }
}
