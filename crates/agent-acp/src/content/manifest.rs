//! Describes a file to an agent that does not take it: a block of lines with one fact each.

use std::fmt::Write as _;
use std::path::Path;

use longshore_engine::port::{FileSource, InputFile};
use longshore_model::redact;

/// The longest value of a line, in characters. The rest is cut.
const MAX_CHARS: usize = 1024;

pub(super) fn describe(file: &InputFile, directory: &Path) -> String {
    let source = match &file.source {
        FileSource::Inline(_) => "inline".to_owned(),
        FileSource::Workspace(path) => {
            path.strip_prefix(directory).unwrap_or(path).to_string_lossy().into_owned()
        }
        FileSource::Remote(url) => url.clone(),
    };
    let size = file.content.as_ref().map(|content| content.bytes.to_string());
    let hash = file.content.as_ref().map(|content| {
        content.sha256.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    });
    let lines = [
        ("filename", name(file)),
        ("mediaType", Some(file.media_type.clone())),
        ("byteSize", size),
        ("sha256", hash),
        ("source", Some(source)),
    ];
    let mut text = "[A file was sent with this message. Its content is not shown to you.]".to_owned();
    for (label, value) in lines {
        if let Some(value) = value {
            let _ = write!(text, "\n{label}: {}", one_line(&value));
        }
    }
    text
}

/// The file's name: the sender's, or else its own. Without a directory and without line breaks.
pub(super) fn name(file: &InputFile) -> Option<String> {
    let own = match &file.source {
        FileSource::Workspace(path) => path.file_name().map(|name| name.to_string_lossy().into_owned()),
        FileSource::Inline(_) | FileSource::Remote(_) => None,
    };
    let name = one_line(&file.name.clone().or(own)?);
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default().trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Prevents a value from adding lines of its own to the block.
fn one_line(text: &str) -> String {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    redact::cut_at(text.replace(breaks, " ").trim(), MAX_CHARS)
}
