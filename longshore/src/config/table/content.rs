//! What messages may contain, and what callers see.

use super::super::setting::Fallback::{Nothing, Value};
use super::super::setting::{Kind, Setting};

pub const DATA_PARTS: Setting = Setting {
    key: "input.data_parts",
    flag: Some("data-parts"),
    env: Some("LONGSHORE_DATA_PARTS"),
    kind: Kind::Choice(&["accept", "refuse"]),
    fallback: Value("accept"),
    help: "What happens to the data parts of a message: the agent gets them as JSON text (`accept`), or the message is \
           refused (`refuse`).",
};

pub const TEXT_TYPES: Setting = Setting {
    key: "input.text_types",
    flag: Some("text-types"),
    env: Some("IACCODE_A2A_TEXT_MIME_TYPES"),
    kind: Kind::List,
    fallback: Nothing,
    help: "Further media types that count as text, besides `text/*`, JSON, YAML, XML and other well-known ones.",
};

pub const MEDIA_TYPES: Setting = Setting {
    key: "input.media_types",
    flag: Some("media-types"),
    env: Some("IACCODE_A2A_MULTIMODAL_MIME_TYPES"),
    kind: Kind::List,
    fallback: Nothing,
    help: "Further media types of files that messages may contain, besides images, audio, PDF and plain bytes. \
           `video/*` means every kind of video.",
};

pub const MAX_TEXT: Setting = Setting {
    key: "input.max_text_bytes",
    flag: Some("max-text-bytes"),
    env: Some("LONGSHORE_MAX_TEXT_BYTES"),
    kind: Kind::Size,
    fallback: Value("1048576"),
    help: "The maximum size of a text part, a data part or a text file.",
};

pub const MAX_INLINE: Setting = Setting {
    key: "input.max_inline_bytes",
    flag: Some("max-inline-bytes"),
    env: Some("LONGSHORE_MAX_INLINE_BYTES"),
    kind: Kind::Size,
    fallback: Value("5242880"),
    help: "The maximum size of a file inside a message. The limit of the request body (serve.max_request_body_bytes) \
           applies to all files of a message together.",
};

pub const MAX_FILE: Setting = Setting {
    key: "input.max_file_bytes",
    flag: Some("max-file-bytes"),
    env: Some("LONGSHORE_MAX_FILE_BYTES"),
    kind: Kind::Size,
    fallback: Value("26214400"),
    help: "The maximum size of a workspace file that a message refers to.",
};

pub const MAX_METADATA: Setting = Setting {
    key: "input.max_metadata_bytes",
    flag: Some("max-metadata-bytes"),
    env: Some("LONGSHORE_MAX_METADATA_BYTES"),
    kind: Kind::Size,
    fallback: Value("262144"),
    help: "How many bytes a message may have beside the content of its parts: metadata of the request, the message and the parts, \
           file names, media types, extensions and accepted output modes.",
};

pub const MAX_EXTENSIONS: Setting = Setting {
    key: "input.max_extensions",
    flag: Some("max-extensions"),
    env: Some("LONGSHORE_MAX_EXTENSIONS"),
    kind: Kind::Count,
    fallback: Value("64"),
    help: "How many extensions a message may name.",
};

pub const MAX_REFERENCES: Setting = Setting {
    key: "input.max_references",
    flag: Some("max-references"),
    env: Some("LONGSHORE_MAX_REFERENCES"),
    kind: Kind::Count,
    fallback: Value("64"),
    help: "How many tasks a message may refer to (referenceTaskIds).",
};

pub const REMOTE_HOSTS: Setting = Setting {
    key: "input.remote_hosts",
    flag: Some("remote-hosts"),
    env: Some("LONGSHORE_REMOTE_HOSTS"),
    kind: Kind::List,
    fallback: Nothing,
    help: "Hosts whose http and https URLs may appear in a message; `*.example.com` means every host below example.com. \
           The agent gets the URL, and Longshore itself never fetches it. URLs of other hosts are refused.",
};

pub const THINKING: Setting = Setting {
    key: "output.thinking_exposure",
    flag: Some("thinking-exposure"),
    env: Some("LONGSHORE_THINKING_EXPOSURE"),
    kind: Kind::List,
    fallback: Value("raw_thinking,tool_trace"),
    help: "What callers see besides the answer itself: `raw_thinking` (the agent's reasoning), `tool_trace` (its tool \
           calls), `all` or `none`. A credential can have its own setting.",
};

pub const WRITTEN_FILES: Setting = Setting {
    key: "output.written_files",
    flag: Some("written-files"),
    env: Some("LONGSHORE_WRITTEN_FILES"),
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Whether the files that the tools of a turn wrote or edited are kept and offered for download. Files that a \
           shell command wrote are not included, because they cannot be distinguished from files of others. Files that a \
           tool returns are always offered. Only for OpenCode over HTTP.",
};

pub const MAX_KEPT: Setting = Setting {
    key: "output.max_file_bytes",
    flag: Some("max-kept-file-bytes"),
    env: Some("LONGSHORE_MAX_KEPT_FILE_BYTES"),
    kind: Kind::Size,
    fallback: Value("26214400"),
    help: "The maximum size of a file that is kept for download. The task mentions a larger file, but its content is \
           not kept.",
};
