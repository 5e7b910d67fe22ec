//! Decides which files are sent to a model unchanged.
//!
//! OpenCode stores a prompt before the provider's package sees the prompt. If the package does not support a file's type, that
//! prompt and all later prompts of the session fail. An image that cannot be decoded makes OpenCode drop the whole prompt. So a
//! file is sent only if every package supports its type and its first bytes match the type.

use longshore_engine::port::{FileSource, InputFile};

use crate::api::FileKinds;

/// How many bytes at the start of a file identify its type.
pub(super) const HEAD: usize = 16;

#[derive(Debug)]
pub(super) struct Medium {
    /// The media types of this kind of file: first OpenCode's name for it, then other names that senders use.
    names: &'static [&'static str],
    is_accepted: fn(FileKinds) -> bool,
    begins: fn(&[u8]) -> bool,
}

const MEDIA: &[Medium] = &[
    Medium {
        names: &["image/png"],
        is_accepted: |kinds| kinds.image,
        begins: |head| head.starts_with(b"\x89PNG\r\n\x1a\n"),
    },
    Medium {
        names: &["image/jpeg", "image/jpg"],
        is_accepted: |kinds| kinds.image,
        begins: |head| head.starts_with(b"\xff\xd8\xff"),
    },
    Medium {
        names: &["image/gif"],
        is_accepted: |kinds| kinds.image,
        begins: |head| head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a"),
    },
    Medium {
        names: &["image/webp"],
        is_accepted: |kinds| kinds.image,
        begins: |head| is_riff(head, b"WEBP"),
    },
    Medium {
        names: &["audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave"],
        is_accepted: |kinds| kinds.audio,
        begins: |head| is_riff(head, b"WAVE"),
    },
    Medium {
        names: &["audio/mpeg", "audio/mp3"],
        is_accepted: |kinds| kinds.audio,
        begins: |head| head.starts_with(b"ID3") || is_mpeg_frame(head),
    },
    Medium {
        names: &["application/pdf"],
        is_accepted: |kinds| kinds.pdf,
        begins: |head| head.starts_with(b"%PDF-"),
    },
];

impl Medium {
    /// The type of a file by its declared media type, if some models accept such files.
    pub(super) fn find(file: &InputFile) -> Option<&'static Self> {
        // OpenCode does not download files for a model.
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

    /// Whether a file that begins with these bytes can be sent to a model that accepts these kinds.
    pub(super) fn accepts(&self, accepted: FileKinds, head: &[u8]) -> bool {
        (self.is_accepted)(accepted) && (self.begins)(head)
    }
}

fn is_riff(head: &[u8], what: &[u8]) -> bool {
    head.starts_with(b"RIFF") && head.get(8..12) == Some(what)
}

/// Whether the bytes begin like an MPEG audio frame: eleven set bits, then a version and a layer that are not reserved values.
fn is_mpeg_frame(head: &[u8]) -> bool {
    matches!(head, [0xff, second, ..] if second & 0xe0 == 0xe0 && second & 0x18 != 0x08 && second & 0x06 != 0)
}
