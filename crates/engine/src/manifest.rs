//! Describes a file to an agent that does not accept the file itself: a block of text lines with one fact each.

use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

use longshore_model::redact;

use crate::port::{FileSource, InputFile};

/// The longest value of a line, in characters. A longer value is cut.
const MAX_CHARS: usize = 1024;

pub fn describe(file: &InputFile, directory: &Path) -> String {
    let source = match &file.source {
        FileSource::Inline(_) => "inline".to_owned(),
        FileSource::Workspace(path) => relative(path, directory).to_string_lossy().into_owned(),
        FileSource::Remote(url) => url.clone(),
    };
    let name = name(file);
    let (bytes, hash) = match &file.content {
        Some(facts) => (Some(facts.bytes.to_string()), Some(hex(&facts.sha256))),
        None => (None, None),
    };
    let lines = [
        ("filename", name),
        ("mediaType", Some(file.media_type.clone())),
        ("byteSize", bytes),
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

/// The name of a file, without a directory and without line breaks: the sender's name for it, or the name in its path.
pub fn name(file: &InputFile) -> Option<String> {
    let own = match &file.source {
        FileSource::Workspace(path) => path.file_name().map(|name| name.to_string_lossy()),
        FileSource::Inline(_) | FileSource::Remote(_) => None,
    };
    let name = file.name.as_deref().map(Into::into).or(own)?;
    let name = one_line(&name);
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default().trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// Replaces line breaks, so that a value cannot add lines to the block.
fn one_line(text: &str) -> String {
    let breaks = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    redact::cut_at(text.replace(breaks, " ").trim(), MAX_CHARS)
}

/// The relative path from a directory to a file. Both arguments must be resolved paths.
fn relative(path: &Path, directory: &Path) -> PathBuf {
    let shared = path.components().zip(directory.components()).take_while(|(a, b)| a == b).count();
    let up = directory.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(path.components().skip(shared)).collect()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
