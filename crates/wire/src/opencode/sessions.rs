//! The methods that read OpenCode's sessions, change them, and make the agent start work in them.

use longshore_model::{ControlCommand, ControlQuery};

use super::errors::{
    GUARDED_IDLE_SESSION, IDLE_SESSION, SESSION, SHARED_SESSION, TURN, TURN_OR_NOTE, UPSTREAM,
};
use super::params::{DIRECTORY, METADATA, SESSION_DIRECTORY, SESSION_ID};
use super::{build, ids, items};
use crate::extension::Extension;
use crate::methods::{
    Answer, DIRECTORY_QUERY, Effect, Kind, LINE, LINES, MAX_INT, MAX_LINES, MODEL, Method, NAME, Param,
    Stability, Switch, Upstream, Variant,
};

/// How many parts a prompt may have.
const MAX_PARTS: usize = 100;
/// How many tools may be withheld.
const MAX_TOOLS: usize = 128;
/// The longest text of a part. The size of a whole request is limited by the edge.
const MAX_TEXT: usize = 1024 * 1024;
/// The longest URL of a file. A `data:` URL contains the file itself.
const MAX_URL: usize = 64 * 1024 * 1024;

const LIMIT: Param = Param::optional(
    "limit",
    Kind::Int { min: 1, max: 100, default: Some(20) },
    "The maximum number of items.",
);

const MESSAGE_ID: Kind = Kind::Id(ids::MESSAGE);

/// The caller's id for its message. The gateway never passes it on to OpenCode, because OpenCode would overwrite an existing
/// message with that id.
const OWN_MESSAGE_ID: Param = Param::optional(
    "messageID",
    MESSAGE_ID,
    "The id of the task's message; a retry with the same id leads to the same task.",
);

const AGENT: Param = Param::optional("agent", NAME, "The agent of OpenCode that answers.");
const VARIANT: Param = Param::optional("variant", NAME, "The variant of the model.");
const MODEL_OBJECT: Param = Param::optional("model", Kind::Object(MODEL), "The model that answers.");

const FILE: Variant = Variant {
    tag: "file",
    fields: &[
        Param::required("mime", NAME, "Its media type."),
        Param::required(
            "url",
            Kind::Line { max: MAX_URL, may_be_blank: false },
            "A `data:` URL, a `file:` URL inside the workspace, or another URL that messages may contain.",
        ),
        Param::optional("filename", LINE, "The name of the file."),
    ],
};

/// The type of a shell command, which must be one line: OpenCode replaces line breaks and tabs, so the shell would run another
/// command.
const SHELL_LINE: Kind = Kind::Line { max: MAX_LINES, may_be_blank: false };

const PROMPT_PARTS: Kind = Kind::Tagged(&[
    Variant { tag: "text", fields: &[Param::required("text", Kind::Text { max: MAX_TEXT }, "The text.")] },
    FILE,
    Variant { tag: "agent", fields: &[Param::required("name", NAME, "The agent to mention.")] },
    Variant {
        tag: "subtask",
        fields: &[
            Param::required(
                "prompt",
                LINES,
                "The prompt of the sub-agent. Files that it names with `@` must be in the workspace.",
            ),
            Param::required("description", LINE, "A short description."),
            Param::required("agent", NAME, "The sub-agent."),
            MODEL_OBJECT,
            Param::optional("command", NAME, "The command that the subtask belongs to."),
        ],
    },
]);

const FILE_PARTS: Kind = Kind::Tagged(&[FILE]);

const PROMPT: &[Param] = &[
    Param::required(
        "parts",
        Kind::List { of: &PROMPT_PARTS, max: MAX_PARTS, may_be_empty: true },
        "The content: parts of the types text, file, agent and subtask.",
    ),
    OWN_MESSAGE_ID,
    MODEL_OBJECT,
    AGENT,
    Param::optional(
        "noReply",
        Kind::Flag,
        "Adds the message to the session without an answer and without a task.",
    ),
    Param::optional(
        "tools",
        Kind::Map { of: &Kind::Off, max: MAX_TOOLS },
        "Tools to disable, each with the value `false`, from now on in this session. Tools cannot be enabled this way.",
    ),
    Param::optional(
        "format",
        Kind::Object(&[Param::required("type", Kind::Word(&["text"]), "Only text.")]),
        "The format of the answer.",
    ),
    Param::optional("system", LINES, "Additional system instructions."),
    VARIANT,
];

const COMMAND: &[Param] = &[
    Param::required("command", Kind::Command, "The command; a leading slash is ignored."),
    Param::required(
        "arguments",
        Kind::Lines { max: MAX_LINES, may_be_blank: true },
        "The arguments, which may be empty. Arguments that OpenCode would run in a shell (a `!` and backticks; for a command that puts \
         them into a shell, or that is a prompt of an MCP server, all of them) need what `opencode.sessions.shell` needs; files that \
         they name with `@` must be in the workspace.",
    )
    .runs_with(Switch::SessionShell),
    OWN_MESSAGE_ID,
    AGENT,
    Param::optional("model", Kind::ModelRef, "The model that answers, as an object or as `provider/model`."),
    VARIANT,
    Param::optional(
        "parts",
        Kind::List { of: &FILE_PARTS, max: MAX_PARTS, may_be_empty: true },
        "Attached files.",
    ),
];

const QUERY: Method = Method {
    name: "",
    key: "",
    extension: Extension::SessionManagement,
    summary: "",
    params: &[SESSION_ID, SESSION_DIRECTORY, METADATA],
    first: 0,
    paged: false,
    result: Answer::Item(items::TASK),
    effect: Effect::Read,
    switch: None,
    upstream: &[],
    errors: SESSION,
    stability: Stability::Stable,
    build: |args| build::query(args, ControlQuery::Session(build::session(args))),
};

const MUTATION: Method = Method {
    result: Answer::Item(items::SESSION_SUMMARY),
    effect: Effect::Mutate,
    build: |args| build::mutation(args, ControlCommand::Share(build::session(args))),
    ..QUERY
};

pub(super) static METHODS: [Method; 18] = [
    Method {
        name: "opencode.sessions.status",
        key: "status",
        summary: "Lists the status of the caller's sessions. Idle sessions are left out.",
        params: &[DIRECTORY, METADATA],
        result: Answer::Items(items::SESSION_STATUS),
        upstream: &[Upstream::get("/session/status", DIRECTORY_QUERY)],
        errors: UPSTREAM,
        build: |args| build::query(args, ControlQuery::Statuses),
        ..QUERY
    },
    Method {
        name: "opencode.sessions.list",
        key: "list_sessions",
        summary: "Lists the caller's sessions, the most recently changed first.",
        params: &[
            LIMIT,
            DIRECTORY,
            Param::optional("roots", Kind::Flag, "Only sessions without a parent."),
            Param::optional(
                "start",
                Kind::Int { min: 0, max: MAX_INT, default: None },
                "Only sessions that changed at this time or later, in milliseconds since 1970.",
            ),
            Param::optional(
                "search",
                Kind::Line { max: 256, may_be_blank: true },
                "Only sessions with this text in the title; `%` matches any text, `_` one character.",
            ),
            METADATA,
        ],
        paged: true,
        result: Answer::Items(items::TASK),
        upstream: &[Upstream::get("/session", &["directory", "limit", "roots", "start", "search"])],
        errors: UPSTREAM,
        build: |args| build::query(args, build::sessions(args)),
        ..QUERY
    },
    Method {
        name: "opencode.sessions.messages.list",
        key: "get_session_messages",
        summary: "Lists the messages of a session, the newest page first, each page with the oldest message first.",
        params: &[
            SESSION_ID,
            LIMIT,
            Param::optional("before", Kind::Cursor, "The `next_cursor` of the previous page."),
            METADATA,
        ],
        paged: true,
        result: Answer::Page(items::MESSAGE),
        upstream: &[Upstream::get("/session/{id}/message", &["directory", "limit", "before"])],
        build: |args| build::query(args, build::messages(args)),
        ..QUERY
    },
    Method {
        name: "opencode.sessions.get",
        key: "get_session",
        summary: "Reads a session.",
        upstream: &[Upstream::get("/session/{id}", DIRECTORY_QUERY)],
        ..QUERY
    },
    Method {
        name: "opencode.sessions.children",
        key: "get_session_children",
        summary: "Lists the child sessions of a session, in which its sub-agents work.",
        result: Answer::Items(items::TASK),
        upstream: &[Upstream::get("/session/{id}/children", DIRECTORY_QUERY)],
        build: |args| build::query(args, ControlQuery::Children(build::session(args))),
        ..QUERY
    },
    Method {
        name: "opencode.sessions.todo",
        key: "get_session_todo",
        summary: "Lists the todos of the agent in a session.",
        result: Answer::Items(items::PLANNED),
        upstream: &[Upstream::get("/session/{id}/todo", DIRECTORY_QUERY)],
        build: |args| build::query(args, ControlQuery::Todos(build::session(args))),
        ..QUERY
    },
    Method {
        name: "opencode.sessions.diff",
        key: "get_session_diff",
        summary: "Lists the file changes of one turn, or of all turns of a session.",
        params: &[
            SESSION_ID,
            Param::optional(
                "message_id",
                MESSAGE_ID,
                "The message that began the turn; the default is all turns.",
            ),
            SESSION_DIRECTORY,
            METADATA,
        ],
        result: Answer::Items(items::FILE_DIFF),
        upstream: &[
            Upstream::get("/session/{id}/diff", &["directory", "messageID"]),
            Upstream::get("/session/{id}/message", &["directory", "limit", "before"]),
        ],
        build: |args| {
            let message = build::message(args, "message_id");
            build::query(args, ControlQuery::Diffs { session: build::session(args), message })
        },
        ..QUERY
    },
    Method {
        name: "opencode.sessions.messages.get",
        key: "get_session_message",
        summary: "Reads a message of a session.",
        params: &[
            SESSION_ID,
            Param::required("message_id", MESSAGE_ID, "The message, a user's or the agent's."),
            SESSION_DIRECTORY,
            METADATA,
        ],
        result: Answer::Item(items::MESSAGE),
        upstream: &[Upstream::get("/session/{id}/message/{message}", DIRECTORY_QUERY)],
        build: |args| build::query(args, build::message_of(args)),
        ..QUERY
    },
    Method {
        name: "opencode.sessions.prompt_async",
        key: "prompt_async",
        summary: "Prompts the agent in a session, and returns the task at once.",
        params: &[SESSION_ID, Param::required("request", Kind::Object(PROMPT), "The prompt."), METADATA],
        result: Answer::Begun,
        effect: Effect::Control,
        upstream: &[Upstream::post("/session/{id}/prompt_async")],
        errors: TURN_OR_NOTE,
        build: build::prompt,
        ..QUERY
    },
    Method {
        name: "opencode.sessions.command",
        key: "command",
        summary: "Runs a command of OpenCode in a session, and returns the last message of the agent.",
        params: &[SESSION_ID, Param::required("request", Kind::Object(COMMAND), "The command."), METADATA],
        result: Answer::ItemOfTask(items::MESSAGE),
        effect: Effect::Control,
        upstream: &[Upstream::post("/session/{id}/command")],
        errors: TURN,
        build: build::command,
        ..QUERY
    },
    Method {
        name: "opencode.sessions.fork",
        key: "fork",
        summary: "Copies a session, completely or up to a message. The copy belongs to the caller.",
        params: &[
            SESSION_ID,
            Param::optional(
                "request",
                Kind::Object(&[Param::optional(
                    "messageID",
                    MESSAGE_ID,
                    "The copy ends before this message.",
                )]),
                "What to copy.",
            ),
            SESSION_DIRECTORY,
            METADATA,
        ],
        upstream: &[Upstream::post("/session/{id}/fork")],
        build: |args| build::mutation(args, build::fork(args)),
        ..MUTATION
    },
    Method {
        name: "opencode.sessions.share",
        key: "share",
        summary: "Makes a session public under a URL, if OpenCode permits it.",
        switch: Some(Switch::SessionShare),
        upstream: &[Upstream::post("/session/{id}/share")],
        errors: SHARED_SESSION,
        ..MUTATION
    },
    Method {
        name: "opencode.sessions.unshare",
        key: "unshare",
        summary: "Ends the sharing of a session.",
        switch: Some(Switch::SessionShare),
        upstream: &[Upstream::delete("/session/{id}/share")],
        errors: SHARED_SESSION,
        build: |args| build::mutation(args, ControlCommand::Unshare(build::session(args))),
        ..MUTATION
    },
    Method {
        name: "opencode.sessions.summarize",
        key: "summarize",
        summary: "Replaces the messages of a session by a summary.",
        params: &[
            SESSION_ID,
            Param::optional(
                "request",
                Kind::Object(&[
                    Param::optional(
                        "providerID",
                        NAME,
                        "The provider of the model; the default is the model of the session.",
                    )
                    .with("modelID"),
                    Param::optional("modelID", LINE, "The model, as its provider calls it.")
                        .with("providerID"),
                    Param::optional("auto", Kind::Flag, "Whether the agent continues its work afterwards."),
                ]),
                "How to summarize.",
            ),
            SESSION_DIRECTORY,
            METADATA,
        ],
        result: Answer::Done,
        upstream: &[Upstream::post("/session/{id}/summarize")],
        errors: IDLE_SESSION,
        build: |args| build::mutation(args, build::summarize(args)),
        ..MUTATION
    },
    Method {
        name: "opencode.sessions.revert",
        key: "revert",
        summary: "Reverts a session, and the files that it changed, to the state before a message.",
        params: &[
            SESSION_ID,
            Param::required(
                "request",
                Kind::Object(&[
                    Param::required("messageID", MESSAGE_ID, "The message, a user's or the agent's."),
                    Param::optional("partID", Kind::Id(ids::PART), "A part of that message."),
                ]),
                "The point to revert to.",
            ),
            SESSION_DIRECTORY,
            METADATA,
        ],
        upstream: &[Upstream::post("/session/{id}/revert")],
        errors: IDLE_SESSION,
        build: |args| build::mutation(args, build::revert(args)),
        ..MUTATION
    },
    Method {
        name: "opencode.sessions.unrevert",
        key: "unrevert",
        summary: "Undoes the last revert of a session.",
        upstream: &[Upstream::post("/session/{id}/unrevert")],
        errors: IDLE_SESSION,
        build: |args| build::mutation(args, ControlCommand::Unrevert(build::session(args))),
        ..MUTATION
    },
    Method {
        name: "opencode.sessions.shell",
        key: "shell",
        summary: "Runs a shell command in the directory of a session, and returns its output.",
        params: &[
            SESSION_ID,
            Param::required(
                "request",
                Kind::Object(&[
                    Param::required("agent", NAME, "The agent to which the output is attributed."),
                    Param::required("command", SHELL_LINE, "The shell command."),
                    MODEL_OBJECT,
                ]),
                "What to run.",
            ),
            METADATA,
        ],
        result: Answer::Item(items::MESSAGE),
        effect: Effect::Control,
        switch: Some(Switch::SessionShell),
        upstream: &[Upstream::post("/session/{id}/shell")],
        errors: GUARDED_IDLE_SESSION,
        build: |args| build::mutation(args, build::shell(args)),
        ..QUERY
    },
    Method {
        name: "opencode.sessions.delete",
        key: "delete",
        summary: "Deletes a session with its messages and the sessions of its sub-agents, unless a turn runs in it.",
        result: Answer::Done,
        switch: Some(Switch::SessionDelete),
        upstream: &[Upstream::delete("/session/{id}")],
        errors: GUARDED_IDLE_SESSION,
        build: |args| build::mutation(args, ControlCommand::Delete(build::session(args))),
        ..MUTATION
    },
];
