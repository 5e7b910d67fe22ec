//! What messages may hold, and what callers see of the answer.

use super::super::setting::Fallback::{Nothing, Value};
use super::super::setting::{Group, Kind, Setting};

pub const DATA_PARTS: Setting = Setting {
    key: "input.data_parts",
    flag: Some("data-parts"),
    env: Some("LONGSHORE_DATA_PARTS"),
    group: Group::Input,
    kind: Kind::Choice(&["accept", "refuse"]),
    fallback: Value("accept"),
    help: "What becomes of the data parts of a message: the agent gets them as JSON text, or they are refused.",
};

pub const TEXT_TYPES: Setting = Setting {
    key: "input.text_types",
    flag: Some("text-types"),
    env: Some("IACCODE_A2A_TEXT_MIME_TYPES"),
    group: Group::Input,
    kind: Kind::List,
    fallback: Nothing,
    help: "Media types that are text, beside `text/*`, JSON, YAML, XML and other well-known ones.",
};

pub const MEDIA_TYPES: Setting = Setting {
    key: "input.media_types",
    flag: Some("media-types"),
    env: Some("IACCODE_A2A_MULTIMODAL_MIME_TYPES"),
    group: Group::Input,
    kind: Kind::List,
    fallback: Nothing,
    help: "Media types of other files that are taken, beside images, audio, PDF and plain bytes. `video/*` is every kind of video.",
};

pub const MAX_TEXT: Setting = Setting {
    key: "input.max_text_bytes",
    flag: Some("max-text-bytes"),
    env: Some("LONGSHORE_MAX_TEXT_BYTES"),
    group: Group::Input,
    kind: Kind::Size,
    fallback: Value("1048576"),
    help: "The largest text or data part, and the largest text file.",
};

pub const MAX_INLINE: Setting = Setting {
    key: "input.max_inline_bytes",
    flag: Some("max-inline-bytes"),
    env: Some("LONGSHORE_MAX_INLINE_BYTES"),
    group: Group::Input,
    kind: Kind::Size,
    fallback: Value("5242880"),
    help: "The largest file that comes with a message. The largest request body bounds all of them together.",
};

pub const MAX_FILE: Setting = Setting {
    key: "input.max_file_bytes",
    flag: Some("max-file-bytes"),
    env: Some("LONGSHORE_MAX_FILE_BYTES"),
    group: Group::Input,
    kind: Kind::Size,
    fallback: Value("26214400"),
    help: "The largest file of the workspace that a message refers to.",
};

pub const REMOTE_HOSTS: Setting = Setting {
    key: "input.remote_hosts",
    flag: Some("remote-hosts"),
    env: Some("LONGSHORE_REMOTE_HOSTS"),
    group: Group::Input,
    kind: Kind::List,
    fallback: Nothing,
    help: "Hosts whose http and https URLs may stand in a message: the agent is told of them; `*.example.com` is every host below. \
           Longshore itself fetches none. Otherwise such URLs are refused.",
};

pub const THINKING: Setting = Setting {
    key: "output.thinking_exposure",
    flag: Some("thinking-exposure"),
    env: Some("LONGSHORE_THINKING_EXPOSURE"),
    group: Group::Output,
    kind: Kind::List,
    fallback: Value("raw_thinking,tool_trace"),
    help: "What callers see of how the agent gets to its answer: `raw_thinking` (its reasoning), `tool_trace` (its tool calls), \
           `all` or `none`. A credential may have a choice of its own.",
};

pub const WRITTEN_FILES: Setting = Setting {
    key: "output.written_files",
    flag: Some("written-files"),
    env: Some("LONGSHORE_WRITTEN_FILES"),
    group: Group::Output,
    kind: Kind::Switch,
    fallback: Value("false"),
    help: "Whether the files that the tools of a turn wrote or edited are kept and offered for download; those that a command wrote \
           are not told from those of others. Files that a tool hands back always are.",
};

pub const MAX_KEPT: Setting = Setting {
    key: "output.max_file_bytes",
    flag: Some("max-kept-file-bytes"),
    env: Some("LONGSHORE_MAX_KEPT_FILE_BYTES"),
    group: Group::Output,
    kind: Kind::Size,
    fallback: Value("26214400"),
    help: "The largest file that is kept. The task tells of a larger one, and of nothing in it.",
};
