//! Generates `docs/methods.md` from the table.

use std::fmt::Write as _;

use longshore_model::ErrorKind;

use super::{items, methods as all};
use crate::extension::{Activated, Extension, HEADER};
use crate::methods::{
    Answer, Effect, Field, FieldType, Kind, MAX_BRANCH, MAX_CURSOR, MAX_INT, MAX_LINE, MAX_NAME, MODEL,
    Method, OTHER_PAGING, Param, Stability, item,
};
use crate::names::CONTEXT_PREFIX;
use crate::surface::ProtocolVersion;
use crate::{v1, v03};

const HEAD: &str = "\
<!-- Made by `make docs` from crates/wire/src/methods. A test fails when it is stale. -->

# Methods

These JSON-RPC methods exist in addition to the operations of A2A. Both protocol versions have the same methods. Call them at
`/` with `{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": …, \"params\": {…}}`.

A call without an `id` is a notification. The gateway answers it with 204 and no body. It carries out a notification that
changes something, and ignores one that only reads. The 204 comes at once if the method waits for a model or a program,
and otherwise when the method is done.

A gateway serves the methods that its card names. A method that is switched off is refused with `METHOD_DISABLED`; any other
method is refused as unknown.

On 1.0 the caller must activate the extension of the method. On 0.3 all extensions are active.

Parameters that this page does not name are refused, also inside objects, except in `metadata.opencode` and `metadata.shared`.
`null` means the same as an absent parameter. Whole numbers may be written as text. So may flags, as `true`, `1`, `yes`, `on`,
`false`, `0`, `no` or `off`. Limits of texts are in bytes.

The gateway checks a call in this order:

1. The extension is activated.
2. The method is switched on.
3. The credential has the capability of the method.
4. All parameter names are known.
5. All values are valid.
6. The credential has the capabilities that the parameters need.
7. The session belongs to the caller.
8. The caller may work in the directory.
9. The session is idle.

The first check that fails is reported. Until all have passed, the gateway asks OpenCode for nothing that could change anything.

A session belongs to the caller for whom it was created. A session of a sub-agent belongs to the owner of its root session. A
session that was created in OpenCode itself is unowned: callers with the capability `session_claim` see it in lists, and own it
after their first change. The setting `control.session_guard` can share sessions between callers.
";

/// The whole page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for extension in Activated::ALL.iter() {
        let methods: Vec<&Method> = all().filter(|method| method.extension == extension).collect();
        if methods.is_empty() {
            continue;
        }
        let _ = write!(page, "\n## {}\n\n`{HEADER}: {}`\n", heading(extension), extension.uri());
        for method in methods {
            section(&mut page, method);
        }
    }
    write_items(&mut page);
    errors(&mut page);
    page
}

fn heading(extension: Extension) -> &'static str {
    match extension {
        Extension::InteractiveInterrupt => "Answering asks of the agent",
        Extension::SessionManagement => "Sessions",
        Extension::ProviderDiscovery => "Providers and models",
        Extension::WorkspaceControl => "Projects, OpenCode workspaces and worktrees",
        Extension::InterruptRecovery => "Listing open asks of the agent, and approvals",
        Extension::SessionBinding
        | Extension::ModelSelection
        | Extension::StreamHints
        | Extension::CompatibilityProfile
        | Extension::WireContract
        | Extension::ThinkingExposure
        | Extension::ArtifactMetadata => "Others",
    }
}

fn section(page: &mut String, method: &Method) {
    let _ = write!(page, "\n### `{}`\n\n{}\n\n", method.name, method.summary);
    let effect = match method.effect {
        Effect::Read => "Only reads.",
        Effect::Mutate => "Changes something. Each call is audited.",
        Effect::Control => "Can make the agent work. Each call is audited.",
    };
    let _ = writeln!(page, "- {effect}");
    if let Some(switch) = method.switch {
        let (toggle, capability) = (switch.toggle(), switch.capability().as_str());
        let _ = writeln!(
            page,
            "- Needs the setting `{toggle}`, and a credential with the capability `{capability}`."
        );
    }
    if method.paged {
        let others = OTHER_PAGING.map(|name| format!("`{name}`")).join(", ");
        let _ = writeln!(
            page,
            "- The page size is `limit`; {others} are refused. On 0.3 the parameters may also be in the object `query`."
        );
    }
    for upstream in method.upstream {
        let query = upstream.query.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(page, "- OpenCode: `{} {}`, query {query}", upstream.verb.as_str(), upstream.path);
    }
    if method.stability == Stability::Experimental {
        page.push_str("- OpenCode calls the endpoint experimental.\n");
    }
    let _ = writeln!(page, "- Result: {}", result(method.result));
    let errors: Vec<String> = method.errors.iter().map(|kind| format!("`{}`", word(*kind))).collect();
    if !errors.is_empty() {
        let _ = writeln!(page, "- Errors: {}", errors.join(", "));
    }
    if method.params.is_empty() {
        page.push_str("\nNo parameters.\n");
        return;
    }
    page.push_str("\n| parameter | type | description |\n|---|---|---|\n");
    for param in method.params {
        row(page, "", param);
    }
}

fn row(page: &mut String, prefix: &str, param: &Param) {
    let name = format!("{prefix}{}", param.name);
    let mark = if param.required { " (required)" } else { "" };
    let mut help = param.description();
    if let Some(other) = param.with {
        let _ = write!(help, " Only together with `{other}`.");
    }
    let _ = writeln!(page, "| `{name}`{mark} | {} | {help} |", type_of(&param.kind));
    match param.kind {
        Kind::Object(fields) | Kind::OneOf(fields) => {
            for field in fields {
                row(page, &format!("{name}."), field);
            }
        }
        Kind::List { of: Kind::Tagged(variants), .. } => {
            for variant in *variants {
                let prefix = format!("{name}[{}].", variant.tag);
                for field in variant.fields {
                    row(page, &prefix, field);
                }
            }
        }
        _ => {}
    }
}

fn type_of(kind: &Kind) -> String {
    let bounded = |what: &str, max: usize| format!("{what}, at most {}", size(max));
    match kind {
        Kind::Id(id) if id.prefix.is_empty() => "an id".to_owned(),
        Kind::Id(id) => format!("an id that begins with `{}`", id.prefix),
        Kind::Line { max, may_be_blank } => {
            bounded(if *may_be_blank { "one line of text" } else { "one line of text, not blank" }, *max)
        }
        Kind::Lines { max, may_be_blank } => {
            bounded(if *may_be_blank { "text" } else { "text, not blank" }, *max)
        }
        Kind::Text { max } => bounded("any text", *max),
        Kind::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or "),
        Kind::FileName { max } => bounded("a name without `/` that does not begin with `-` or `.`", *max),
        Kind::Branch => bounded("a valid name of a git branch", MAX_BRANCH),
        Kind::Command => bounded("a name", MAX_NAME),
        Kind::Int { min, max, default } => {
            let bounds = if *max == MAX_INT {
                format!("a whole number, at least {min}")
            } else {
                format!("a whole number from {min} to {max}")
            };
            default.map_or(bounds.clone(), |default| format!("{bounds}; the default is {default}"))
        }
        Kind::Flag => "a flag".to_owned(),
        Kind::Off => "`false`".to_owned(),
        Kind::Cursor => bounded("a cursor", MAX_CURSOR),
        Kind::Directory => bounded("a directory", MAX_LINE),
        Kind::Metadata { .. } => "an object with the objects `opencode` and `shared`".to_owned(),
        Kind::Object(_) => "an object".to_owned(),
        Kind::OneOf(_) => "an object with exactly one of the fields below".to_owned(),
        Kind::Tagged(variants) => {
            let tags: Vec<String> = variants.iter().map(|variant| format!("`{}`", variant.tag)).collect();
            format!("an object whose `type` is {}", tags.join(", "))
        }
        Kind::List { of, max, may_be_empty } => {
            format!("a list of {} to {max} elements: {}", usize::from(!may_be_empty), type_of(of))
        }
        Kind::Map { of, max } => format!("an object with at most {max} names: {}", type_of(of)),
        Kind::ModelRef => {
            let names: Vec<String> = MODEL.iter().map(|field| format!("`{}`", field.name)).collect();
            format!("an object with {}, or the text `provider/model`", names.join(" and "))
        }
        Kind::Json { max } => bounded("any object", *max),
        Kind::Reply => "`once`, `always` or `reject` in upper or lower case, or an option".to_owned(),
        Kind::Answers => "a list of lists of texts".to_owned(),
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1024 * 1024 => format!("{} MiB", bytes / (1024 * 1024)),
        bytes if bytes > 1024 => format!("{} KiB", bytes / 1024),
        bytes => format!("{bytes} bytes"),
    }
}

fn result(answer: Answer) -> String {
    let item = answer.item().map(|item| format!("[{0}](#{1})", item.name, item.name.to_ascii_lowercase()));
    let item = item.unwrap_or_default();
    match answer {
        Answer::Items(_) => format!("`{{items}}` of {item}"),
        Answer::Page(_) => format!("`{{items, next_cursor}}` of {item}; the cursor is null on the last page"),
        Answer::Catalog(_) => format!("`{{items, default_by_provider, connected}}` of {item}"),
        Answer::Item(_) => format!("`{{item}}`, a {item}"),
        Answer::ItemOrNull(_) => format!("`{{item}}`, a {item} or null"),
        Answer::ItemOfTask(_) => {
            format!("`{{item, task_id, context_id}}`, a {item} and the task that produced it")
        }
        Answer::Flag => "`{ok}`".to_owned(),
        Answer::Done => "`{ok, session_id}`".to_owned(),
        Answer::Begun => "`{ok, session_id, task_id, context_id}`; the last two if a task began".to_owned(),
        Answer::Answered => "`{ok, request_id}`".to_owned(),
    }
}

fn write_items(page: &mut String) {
    page.push_str("\n## Items in results\n");
    for item in items::ALL.into_iter().chain(item::OF_ASKS) {
        let _ = write!(page, "\n### {}\n\n{}\n", item.name, item.help);
        match item {
            items::TASK => {
                let _ = write!(
                    page,
                    "\n`id` is the id of the session and `contextId` is `{CONTEXT_PREFIX}<id>`. The state is completed, since the last change of \
                     the session. `metadata.shared.session` has its id and title. A message with that `contextId` continues the \
                     session.\n"
                );
            }
            items::MESSAGE => page.push_str(
                "\n`messageId` is OpenCode's own id. There is one text part with the whole text, which may be empty. If the agent \
                 failed to answer, `metadata.opencode.error` says why.\n",
            ),
            _ => {
                page.push_str("\n| field | type | description |\n|---|---|---|\n");
                for field in item.fields {
                    field_row(page, "", field);
                }
            }
        }
        if item == items::WORKTREE {
            page.push_str("\nOn 0.3 a list of worktrees is a list of directories.\n");
        }
    }
}

fn field_row(page: &mut String, prefix: &str, field: &Field) {
    let name = format!("{prefix}{}", field.name);
    let type_name = match field.field_type {
        FieldType::Id => "an id".to_owned(),
        FieldType::Text => "text".to_owned(),
        FieldType::Flag => "true or false".to_owned(),
        FieldType::Count => "a whole number".to_owned(),
        FieldType::Millis => "milliseconds since 1970".to_owned(),
        FieldType::Texts => "a list of texts".to_owned(),
        FieldType::Words(words) => {
            words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or ")
        }
        FieldType::Deadline => "a number or null".to_owned(),
        FieldType::Facts | FieldType::Object(_) => "an object".to_owned(),
        FieldType::Objects(_) => "a list of objects".to_owned(),
    };
    let optional = if field.always { "" } else { ", optional" };
    let version = field.version.map_or_else(String::new, |version| format!(", on {} only", version.as_str()));
    let _ = writeln!(page, "| `{name}` | {type_name}{optional}{version} | {} |", field.help);
    let (fields, separator) = match field.field_type {
        FieldType::Object(fields) => (fields, "."),
        FieldType::Objects(fields) => (fields, "[]."),
        _ => return,
    };
    for field in fields {
        field_row(page, &format!("{name}{separator}"), field);
    }
}

/// The errors that every method can have.
const COMMON: [ErrorKind; 5] = [
    ErrorKind::InvalidParams,
    ErrorKind::ExtensionNotActivated,
    ErrorKind::MethodDisabled,
    ErrorKind::TooManyRequests,
    ErrorKind::Unavailable,
];

fn errors(page: &mut String) {
    page.push_str(
        "\n## Errors\n\nOn 1.0 the word is the `reason` of the error, on 0.3 its `type`. Check the word, not the code: several errors \
         share a code. Every method can fail with the errors in the first rows.\n\n| word | code | meaning |\n|---|---|---|\n",
    );
    let mut kinds = COMMON.to_vec();
    for kind in all().flat_map(|method| method.errors) {
        if !kinds.contains(kind) {
            kinds.push(*kind);
        }
    }
    for kind in kinds {
        let (new, old) = (v1::error::row(kind), v03::error::row(kind));
        let mut words = format!("`{}`", new.reason);
        if old.word != new.reason {
            let _ = write!(words, ", on {} `{}`", ProtocolVersion::V03.as_str(), old.word);
        }
        let mut codes = new.code.to_string();
        if old.code != new.code {
            let _ = write!(codes, ", on {} {}", ProtocolVersion::V03.as_str(), old.code);
        }
        let _ = writeln!(page, "| {words} | {codes} | {} |", meaning(kind));
    }
}

fn word(kind: ErrorKind) -> &'static str {
    v1::error::row(kind).reason
}

fn meaning(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidParams => {
            "A parameter is missing, unknown or invalid; the error names it. On 0.3 the word may also be `MISSING_FIELD`, \
             `INVALID_FIELD` or `INVALID_PAGINATION_MODE`."
        }
        ErrorKind::ExtensionNotActivated => {
            "Only on 1.0: the request did not name the extension of the method."
        }
        ErrorKind::MethodDisabled => "The operator has switched the method off; the error names the setting.",
        ErrorKind::Unavailable => "The gateway is shutting down, or its store is down.",
        ErrorKind::TooManyRequests => {
            "The caller exceeds its rate limit; or the caller, the context or the gateway has reached its limit of unfinished tasks; \
             or too many sessions are being claimed. Nothing was done. The error says when to retry."
        }
        ErrorKind::ContentTypeNotSupported => {
            "The media type of a part is not accepted; the error names the part and the accepted types."
        }
        ErrorKind::InterruptNotFound => "There is no such ask, or it belongs to another caller.",
        ErrorKind::InterruptExpired => "The time for an answer is over.",
        ErrorKind::InterruptTypeMismatch => "The answer is for the other kind of ask.",
        ErrorKind::SessionNotFound => "OpenCode has no such session.",
        ErrorKind::SessionForbidden => {
            "The session belongs to another caller, or is unowned and the caller may not claim it."
        }
        ErrorKind::SessionBusy => "The session is busy. Try again later.",
        ErrorKind::AuthorizationForbidden => "The credential lacks the capability that the error names.",
        ErrorKind::UpstreamUnreachable => {
            "OpenCode did not answer. A change may have taken place or not; the gateway does not retry."
        }
        ErrorKind::UpstreamHttpError => "OpenCode refused the request; the error has its status.",
        ErrorKind::UpstreamPayloadError => "The response of OpenCode cannot be read.",
        ErrorKind::UpstreamBackpressure => {
            "The limit of concurrent calls to OpenCode is reached. Nothing was done. Try again later."
        }
        kind => kind.label(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_page_is_current() {
        let page = page();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/methods.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == page, "docs/methods.md is stale; run make docs");
    }

    #[test]
    fn every_method_and_error_is_on_the_page() {
        let page = page();
        for method in all() {
            assert!(page.contains(&format!("### `{}`\n", method.name)), "{}", method.name);
            for kind in method.errors {
                assert_ne!(meaning(*kind), kind.label(), "{kind:?} is not explained");
            }
        }
        assert!(!page.contains("## Others"));
        // Each row of a table has three cells.
        for line in page.lines().filter(|line| line.starts_with('|')) {
            assert_eq!(line.matches('|').count(), 4, "{line}");
        }
    }
}
