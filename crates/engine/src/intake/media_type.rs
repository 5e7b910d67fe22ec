//! What a media type says about a file: whether it is text, and whether it is accepted at all. Does no IO.

use crate::config::IntakeRules;

pub(super) const PLAIN_TEXT: &str = "text/plain";
pub(super) const BYTES: &str = "application/octet-stream";

/// A media type with its charset, the only parameter that matters here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MediaType {
    /// Type and subtype, in lower case.
    pub(super) essence: String,
    charset: Option<String>,
}

/// How a file is treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FileKind {
    Text,
    Media,
}

impl MediaType {
    /// Parses a media type. `None`: the text is not a media type.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut pieces = text.split(';').map(str::trim);
        let essence = pieces.next()?;
        let (kind, subtype) = essence.split_once('/')?;
        if !is_token(kind) || !is_token(subtype) {
            return None;
        }
        let charset = pieces
            .filter_map(|parameter| parameter.split_once('='))
            .find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))
            .map(|(_, value)| value.trim().trim_matches('"').to_ascii_lowercase());
        Some(Self { essence: essence.to_ascii_lowercase(), charset })
    }

    pub(super) fn of(essence: &str) -> Self {
        Self { essence: essence.to_owned(), charset: None }
    }

    /// Whether text of this type is in an encoding that the gateway can read (UTF-8).
    pub(super) fn is_utf8(&self) -> bool {
        matches!(self.charset.as_deref(), None | Some("utf-8" | "utf8" | "us-ascii" | "ascii"))
    }

    pub(super) fn is_json(&self) -> bool {
        self.essence == "application/json" || self.essence.ends_with("+json")
    }

    /// How a file of this type is treated. `None`: files of this type are not accepted.
    pub(super) fn kind(&self, rules: &IntakeRules) -> Option<FileKind> {
        let essence = self.essence.as_str();
        // The check for text comes first: an SVG is an image, but the agent reads it best as text.
        if is_well_known_text(essence) || is_among(&rules.text_types, essence) {
            return Some(FileKind::Text);
        }
        let is_media = essence.starts_with("image/")
            || essence.starts_with("audio/")
            || matches!(essence, "application/pdf" | BYTES)
            || is_among(&rules.media_types, essence);
        is_media.then_some(FileKind::Media)
    }
}

/// The accepted types, as text for error messages.
pub(super) fn accepted(rules: &IntakeRules) -> String {
    let well_known = ["text/*", "application/json", "image/*", "audio/*", "application/pdf", BYTES];
    let named = rules.text_types.iter().chain(&rules.media_types).map(String::as_str);
    well_known.into_iter().chain(named).collect::<Vec<_>>().join(", ")
}

/// The type that a file with this name most likely has.
pub(super) fn by_name(name: &str) -> Option<&'static str> {
    let (_, extension) = name.rsplit_once('.')?;
    let extension = extension.to_ascii_lowercase();
    BY_EXTENSION.iter().find(|(_, known)| known.contains(&extension.as_str())).map(|(essence, _)| *essence)
}

/// Media types by file extension. The gateway determines the type of other files from their content. So this lists only types
/// that say more than "text" or "bytes", and types whose files must be refused when they are not UTF-8.
const BY_EXTENSION: &[(&str, &[&str])] = &[
    (
        PLAIN_TEXT,
        &[
            "txt", "log", "rs", "py", "go", "c", "h", "cc", "cpp", "hpp", "java", "kt", "rb", "php", "swift",
            "ts", "tsx", "jsx", "cs", "lua", "ini", "cfg", "conf", "tf", "diff", "patch", "rst",
        ],
    ),
    ("text/markdown", &["md", "markdown"]),
    ("text/html", &["html", "htm"]),
    ("text/css", &["css"]),
    ("text/csv", &["csv"]),
    ("application/json", &["json"]),
    ("application/xml", &["xml"]),
    ("application/yaml", &["yaml", "yml"]),
    ("application/toml", &["toml"]),
    ("application/javascript", &["js", "mjs", "cjs"]),
    ("application/x-sh", &["sh", "bash"]),
    ("application/sql", &["sql"]),
    ("image/svg+xml", &["svg"]),
    ("image/png", &["png"]),
    ("image/jpeg", &["jpg", "jpeg"]),
    ("image/gif", &["gif"]),
    ("image/webp", &["webp"]),
    ("image/bmp", &["bmp"]),
    ("image/avif", &["avif"]),
    ("audio/wav", &["wav"]),
    ("audio/mpeg", &["mp3"]),
    ("audio/ogg", &["ogg", "opus"]),
    ("audio/flac", &["flac"]),
    ("audio/mp4", &["m4a"]),
    ("application/pdf", &["pdf"]),
    ("video/mp4", &["mp4"]),
    ("video/webm", &["webm"]),
    ("video/quicktime", &["mov"]),
];

fn is_well_known_text(essence: &str) -> bool {
    essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || matches!(
            essence,
            "application/json"
                | "application/xml"
                | "application/yaml"
                | "application/x-yaml"
                | "application/toml"
                | "application/javascript"
                | "application/x-sh"
                | "application/sql"
        )
}

/// Whether a type or a range of the list covers this type.
fn is_among(list: &[String], essence: &str) -> bool {
    list.iter().any(|entry| {
        let entry = entry.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match entry.strip_suffix("/*") {
            Some("*") => true,
            Some(kind) => essence.split_once('/').is_some_and(|(of, _)| of == kind),
            None => entry == essence,
        }
    })
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> IntakeRules {
        IntakeRules {
            text_types: vec!["application/x-tex".to_owned(), "Application/HCL; x=y".to_owned()],
            media_types: vec!["video/*".to_owned(), "application/zip".to_owned()],
            ..IntakeRules::default()
        }
    }

    #[test]
    fn types_are_text_or_media_or_not_accepted() {
        let table = [
            ("text/plain", Some(FileKind::Text)),
            ("Text/X-Rust; charset=utf-8", Some(FileKind::Text)),
            ("application/json", Some(FileKind::Text)),
            ("application/problem+json", Some(FileKind::Text)),
            ("application/atom+xml", Some(FileKind::Text)),
            ("application/x-yaml", Some(FileKind::Text)),
            ("image/svg+xml", Some(FileKind::Text)),
            ("application/x-tex", Some(FileKind::Text)),
            ("application/hcl", Some(FileKind::Text)),
            ("image/png", Some(FileKind::Media)),
            ("IMAGE/PNG", Some(FileKind::Media)),
            ("audio/ogg;codecs=opus", Some(FileKind::Media)),
            ("application/pdf", Some(FileKind::Media)),
            ("application/octet-stream", Some(FileKind::Media)),
            ("video/mp4", Some(FileKind::Media)),
            ("application/zip", Some(FileKind::Media)),
            ("application/zipper", None),
            ("videos/mp4", None),
            ("font/woff2", None),
            ("application/jsonp", None),
        ];
        for (text, expected) in table {
            assert_eq!(MediaType::parse(text).unwrap().kind(&rules()), expected, "{text}");
        }
        let video = MediaType::parse("video/mp4").unwrap();
        assert_eq!(video.kind(&IntakeRules::default()), None, "only by setting");
    }

    #[test]
    fn text_that_is_no_media_type_is_not_parsed_as_one() {
        for text in [
            "",
            " ",
            "text",
            "text/",
            "/plain",
            "text/pl ain",
            "te xt/plain",
            "a/b/c",
            "text/*",
            "é/x",
            ";x=y",
        ] {
            assert_eq!(MediaType::parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_encodings_that_are_utf8_are_accepted() {
        let table = [
            ("text/plain", true),
            ("text/plain;charset=UTF-8", true),
            ("text/plain; Charset=\"utf-8\"", true),
            ("text/plain; format=flowed; charset = us-ascii", true),
            ("text/plain;charset=iso-8859-1", false),
            ("text/plain;charset=utf-16", false),
            ("text/plain;charset=", false),
        ];
        for (text, expected) in table {
            assert_eq!(MediaType::parse(text).unwrap().is_utf8(), expected, "{text}");
        }
    }

    #[test]
    fn every_type_of_the_table_is_valid_and_no_extension_is_listed_twice() {
        let mut seen = std::collections::BTreeSet::new();
        for (essence, extensions) in BY_EXTENSION {
            assert_eq!(MediaType::parse(essence), Some(MediaType::of(essence)));
            for extension in *extensions {
                assert!(seen.insert(extension), "{extension}");
                assert_eq!(by_name(&format!("a.b.{}", extension.to_uppercase())), Some(*essence));
            }
        }
        for name in ["", "png", "Makefile", "a.", "a.unknown", ".gitignore"] {
            assert_eq!(by_name(name), None, "{name}");
        }
    }
}
