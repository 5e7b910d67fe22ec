//! The files that go to a model as they are.
//!
//! OpenCode stores what it is sent before the provider's package looks at it. A type that the package does not know makes
//! that prompt and every later one of the session fail, and a picture that cannot be decoded makes OpenCode drop the whole
//! prompt. So only types go along that every package knows, and only files that begin as such files do.

use longshore_engine::port::{FileSource, InputFile};

use crate::api::Takes;

/// So many bytes of a file tell what it is.
pub(super) const HEAD: usize = 16;

#[derive(Debug)]
pub(super) struct Medium {
    /// The type's name for OpenCode, then the others that senders use.
    names: &'static [&'static str],
    is_taken: fn(Takes) -> bool,
    begins: fn(&[u8]) -> bool,
}

const MEDIA: &[Medium] = &[
    Medium {
        names: &["image/png"],
        is_taken: |takes| takes.image,
        begins: |head| head.starts_with(b"\x89PNG\r\n\x1a\n"),
    },
    Medium {
        names: &["image/jpeg", "image/jpg"],
        is_taken: |takes| takes.image,
        begins: |head| head.starts_with(b"\xff\xd8\xff"),
    },
    Medium {
        names: &["image/gif"],
        is_taken: |takes| takes.image,
        begins: |head| head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a"),
    },
    Medium { names: &["image/webp"], is_taken: |takes| takes.image, begins: |head| is_riff(head, b"WEBP") },
    Medium {
        names: &["audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave"],
        is_taken: |takes| takes.audio,
        begins: |head| is_riff(head, b"WAVE"),
    },
    Medium {
        names: &["audio/mpeg", "audio/mp3"],
        is_taken: |takes| takes.audio,
        begins: |head| head.starts_with(b"ID3") || is_mpeg_frame(head),
    },
    Medium {
        names: &["application/pdf"],
        is_taken: |takes| takes.pdf,
        begins: |head| head.starts_with(b"%PDF-"),
    },
];

impl Medium {
    /// What a file is by its declared type, if some models take such files.
    pub(super) fn of(file: &InputFile) -> Option<&'static Self> {
        // OpenCode fetches nothing for a model.
        if file.is_text || matches!(file.source, FileSource::Remote(_)) {
            return None;
        }
        let declared = file.media_type.split(';').next().unwrap_or_default().trim();
        let is_named = |medium: &&Self| medium.names.iter().any(|name| name.eq_ignore_ascii_case(declared));
        MEDIA.iter().find(is_named)
    }

    pub(super) fn name(&self) -> &'static str {
        self.names[0]
    }

    /// Whether a file that begins so can be sent to a model that takes these.
    pub(super) fn goes(&self, takes: Takes, head: &[u8]) -> bool {
        (self.is_taken)(takes) && (self.begins)(head)
    }
}

fn is_riff(head: &[u8], what: &[u8]) -> bool {
    head.starts_with(b"RIFF") && head.get(8..12) == Some(what)
}

/// Eleven bits that are set, and then the version and the layer, which are never the reserved ones.
fn is_mpeg_frame(head: &[u8]) -> bool {
    matches!(head, [0xff, second, ..] if second & 0xe0 == 0xe0 && second & 0x18 != 0x08 && second & 0x06 != 0)
}
