//! `docs/methods.md`, made from the table.

use std::fmt::Write as _;

use longshore_model::ErrorKind;

use super::item::{Field, Shape};
use super::param::{Kind, MAX_BRANCH, MAX_CURSOR, MAX_LINE, MAX_NAME, MODEL, Param};
use super::row::{Answer, Effect, Item, Method, Stability};
use super::{OTHER_PAGING, all, answer};
use crate::extension::{Activated, Extension, HEADER};
use crate::surface::ProtocolVersion;
use crate::{v1, v03};

const HEAD: &str = "\
<!-- Made by `make docs` from crates/wire/src/methods. A test fails when it is stale. -->

# Methods

What can be called by JSON-RPC beside the operations of A2A. Both lines have the same methods. They are called at `/` with
`{\"jsonrpc\": \"2.0\", \"id\": 1, \"method\": …, \"params\": {…}}`. Without an `id` a call is a notification: what changes
something is done, what only reads is not, and the answer is 204 without a body: at once for what takes as long as a model or
a program takes, else when it is done.

A gateway serves those that its card names. One that is switched off is answered with `METHOD_DISABLED`, any other as a method
that is not there.

On 1.0 the extension of the method must be activated. On 0.3 everything is.

Parameters that are not named here are refused, at any depth, but for what stands inside of `metadata.opencode` and
`metadata.shared`. `null` is the same as nothing. Whole numbers may be written as texts; flags too, as `true`, `1`, `yes`,
`on`, `false`, `0`, `no` or `off`. Bounds of texts count bytes.

A call is looked at in this order: is the extension activated, is the method switched on, has the credential the capability,
are the names of the parameters known, are their values good, has the credential the capability that a parameter needs, is
the session the caller's, may the caller work in that place, is the session free. The first that fails is told, and nothing
was asked of OpenCode that could change anything.

A session belongs to the caller that it was made for; a session of a sub-agent belongs to whom its root belongs. Sessions of
nobody, made in OpenCode itself, are listed to callers with the capability `session_claim`, and become theirs with the first
change. The setting `control.session_guard` can share sessions.
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
    items(&mut page);
    errors(&mut page);
    page
}

fn heading(extension: Extension) -> &'static str {
    match extension {
        Extension::InteractiveInterrupt => "Answers to the agent",
        Extension::SessionManagement => "Sessions",
        Extension::ProviderDiscovery => "Providers and models",
        Extension::WorkspaceControl => "Projects, workspaces and worktrees",
        Extension::InterruptRecovery => "What the agent waits for",
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
        Effect::Read => "reads",
        Effect::Mutate => "changes something; each call is audited",
        Effect::Control => "has the agent work; each call is audited",
    };
    let _ = writeln!(page, "- It {effect}.");
    if let Some(switch) = method.switch {
        let (toggle, capability) = (switch.toggle(), switch.capability().as_str());
        let _ = writeln!(
            page,
            "- Only where `{toggle}` is set, and for credentials with the capability `{capability}`."
        );
    }
    if method.paged {
        let others = OTHER_PAGING.map(|name| format!("`{name}`")).join(", ");
        let _ = writeln!(
            page,
            "- Pages are asked for with `limit`; {others} are refused. On 0.3 the parameters may stand in `query`."
        );
    }
    for upstream in method.upstream {
        let query = upstream.query.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(page, "- OpenCode: `{} {}`, query {query}", upstream.verb.as_str(), upstream.path);
    }
    if method.stability == Stability::Experimental {
        page.push_str("- OpenCode calls what this rests on experimental.\n");
    }
    let _ = writeln!(page, "- Result: {}", result(method.result));
    let errors: Vec<String> = method.errors.iter().map(|kind| format!("`{}`", word(*kind))).collect();
    if !errors.is_empty() {
        let _ = writeln!(page, "- Errors: {}", errors.join(", "));
    }
    if method.params.is_empty() {
        page.push_str("\nIt takes no parameters.\n");
        return;
    }
    page.push_str("\n| parameter | takes | |\n|---|---|---|\n");
    for param in method.params {
        row(page, "", param);
    }
}

fn row(page: &mut String, place: &str, param: &Param) {
    let name = format!("{place}{}", param.name);
    let mark = if param.required { " (required)" } else { "" };
    let mut help = param.description();
    if let Some(other) = param.with {
        let _ = write!(help, " Only together with `{other}`.");
    }
    let _ = writeln!(page, "| `{name}`{mark} | {} | {help} |", takes(&param.kind));
    match param.kind {
        Kind::Object(fields) | Kind::OneOf(fields) => {
            for field in fields {
                row(page, &format!("{name}."), field);
            }
        }
        Kind::List { of: Kind::Tagged(variants), .. } => {
            for variant in *variants {
                let place = format!("{name}[{}].", variant.tag);
                for field in variant.fields {
                    row(page, &place, field);
                }
            }
        }
        _ => {}
    }
}

fn takes(kind: &Kind) -> String {
    let bounded = |what: &str, max: usize| format!("{what}, at most {}", size(max));
    match kind {
        Kind::Id(id) if id.prefix().is_empty() => "an id".to_owned(),
        Kind::Id(id) => format!("an id that begins with `{}`", id.prefix()),
        Kind::ProtocolVersion { max, may_be_blank } => {
            bounded(if *may_be_blank { "a line" } else { "a line that is not blank" }, *max)
        }
        Kind::Lines { max, may_be_blank } => {
            bounded(if *may_be_blank { "text" } else { "text that is not blank" }, *max)
        }
        Kind::Text { max } => bounded("any text", *max),
        Kind::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or "),
        Kind::FileName { max } => bounded("a name without `/` that does not begin with `-` or `.`", *max),
        Kind::Branch => bounded("a name that git takes for a branch", MAX_BRANCH),
        Kind::Command => bounded("a name", MAX_NAME),
        Kind::Int { min, max, default } => {
            let bounds = if *max == super::MAX_INT {
                format!("a whole number from {min} on")
            } else {
                format!("a whole number from {min} to {max}")
            };
            default.map_or(bounds.clone(), |default| format!("{bounds}; {default} if not given"))
        }
        Kind::Flag => "a flag".to_owned(),
        Kind::Off => "`false`".to_owned(),
        Kind::Cursor => bounded("a cursor", MAX_CURSOR),
        Kind::Directory => bounded("a directory", MAX_LINE),
        Kind::Metadata { .. } => "an object of `opencode` and `shared`, which are objects".to_owned(),
        Kind::Object(_) => "an object".to_owned(),
        Kind::OneOf(_) => "an object with exactly one of these".to_owned(),
        Kind::Tagged(variants) => {
            let tags: Vec<String> = variants.iter().map(|variant| format!("`{}`", variant.tag)).collect();
            format!("an object whose `type` is {}", tags.join(", "))
        }
        Kind::List { of, max, may_be_empty } => {
            format!("a list of {} to {max}: {}", usize::from(!may_be_empty), takes(of))
        }
        Kind::Map { of, max } => format!("an object of at most {max} names: {}", takes(of)),
        Kind::ModelRef => {
            let names: Vec<String> = MODEL.iter().map(|field| format!("`{}`", field.name)).collect();
            format!("an object of {}, or a text `provider/model`", names.join(" and "))
        }
        Kind::Json { max } => bounded("any object", *max),
        Kind::Reply => "`once`, `always` or `reject`, in any case".to_owned(),
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
    let item =
        answer.item().map(|item| format!("[{0}](#{1})", item.name(), item.name().to_ascii_lowercase()));
    let item = item.unwrap_or_default();
    match answer {
        Answer::Items(_) => format!("`{{items}}` of {item}"),
        Answer::Page(_) => format!("`{{items, next_cursor}}` of {item}; the cursor is null on the last page"),
        Answer::Catalog(_) => format!("`{{items, default_by_provider, connected}}` of {item}"),
        Answer::Item(_) => format!("`{{item}}`, a {item}"),
        Answer::ItemOrNull(_) => format!("`{{item}}`, a {item} or null"),
        Answer::ItemOfTask(_) => {
            format!("`{{item, task_id, context_id}}`, a {item} and the task that it came of")
        }
        Answer::Flag => "`{ok}`".to_owned(),
        Answer::Done => "`{ok, session_id}`".to_owned(),
        Answer::Begun => "`{ok, session_id, task_id, context_id}`; the last two if a task began".to_owned(),
        Answer::Answered => "`{ok, request_id}`".to_owned(),
    }
}

fn items(page: &mut String) {
    page.push_str("\n## What results are made of\n");
    for item in Item::ALL {
        let _ = write!(page, "\n### {}\n\n{}\n", item.name(), item.help());
        match item {
            Item::Task => {
                let _ = write!(
                    page,
                    "\n`id` is that of the session, `contextId` is `{}<id>`, the state is completed since the session last \
                     changed, and `metadata.shared.session` has its id and title. A message with that `contextId` goes on with \
                     the session.\n",
                    answer::CONTEXT_PREFIX
                );
            }
            Item::Message => page.push_str(
                "\n`messageId` is OpenCode's own; there is one text part with all that was said, empty if that was nothing. \
                 `metadata.opencode.error` says why it is no answer.\n",
            ),
            _ => {
                page.push_str("\n| field | is | |\n|---|---|---|\n");
                for field in item.fields() {
                    field_row(page, "", field);
                }
            }
        }
        if item == Item::Worktree {
            page.push_str("\nOn 0.3 a list of worktrees is one of directories.\n");
        }
    }
}

fn field_row(page: &mut String, place: &str, field: &Field) {
    let name = format!("{place}{}", field.name);
    let is = match field.shape {
        Shape::Id => "an id".to_owned(),
        Shape::Text => "text".to_owned(),
        Shape::Flag => "true or false".to_owned(),
        Shape::Count => "a whole number".to_owned(),
        Shape::Millis => "milliseconds since 1970".to_owned(),
        Shape::Texts => "a list of texts".to_owned(),
        Shape::Words(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" or "),
        Shape::Deadline => "a number or null".to_owned(),
        Shape::Facts | Shape::Object(_) => "an object".to_owned(),
    };
    let optional = if field.always { "" } else { ", if there is one" };
    let version = field.version.map_or_else(String::new, |version| format!(", on {} only", version.version()));
    let _ = writeln!(page, "| `{name}` | {is}{optional}{version} | {} |", field.help);
    if let Shape::Object(fields) = field.shape {
        for field in fields {
            field_row(page, &format!("{name}."), field);
        }
    }
}

/// How every method can fail.
const COMMON: [ErrorKind; 5] = [
    ErrorKind::InvalidParams,
    ErrorKind::ExtensionNotActivated,
    ErrorKind::MethodDisabled,
    ErrorKind::TooManyRequests,
    ErrorKind::Unavailable,
];

fn errors(page: &mut String) {
    page.push_str(
        "\n## Errors\n\nOn 1.0 the word is the `reason` of the error, on 0.3 its `type`. Look at the word and not at the code: codes \
         are shared. The first rows can be told by every method.\n\n| word | code | |\n|---|---|---|\n",
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
            let _ = write!(words, ", on {} `{}`", ProtocolVersion::V03.version(), old.word);
        }
        let mut codes = new.code.to_string();
        if old.code != new.code {
            let _ = write!(codes, ", on {} {}", ProtocolVersion::V03.version(), old.code);
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
            "A parameter is missing, not known or not good; the error names it. On 0.3 also `MISSING_FIELD`, `INVALID_FIELD` and \
             `INVALID_PAGINATION_MODE`."
        }
        ErrorKind::ExtensionNotActivated => {
            "On 1.0: the extension of the method was not named in the request."
        }
        ErrorKind::MethodDisabled => "The operator has the method switched off; the error names the switch.",
        ErrorKind::Unavailable => "The gateway is about to stop, or its store is down.",
        ErrorKind::TooManyRequests => {
            "The caller comes too often, or the caller, the context or the gateway has as many unfinished tasks as it may have, or \
             too many sessions are about to be taken. Nothing was done; the error says when to come again."
        }
        ErrorKind::ContentTypeNotSupported => {
            "A part is of a type that is not taken; the error names the part, and the types that are."
        }
        ErrorKind::InterruptNotFound => "There is no such ask, or it is another caller's.",
        ErrorKind::InterruptExpired => "The time for an answer is over.",
        ErrorKind::InterruptTypeMismatch => "The answer is for the other kind of ask.",
        ErrorKind::SessionNotFound => "OpenCode has no such session.",
        ErrorKind::SessionForbidden => {
            "The session is another caller's, or nobody's and the caller may not take it."
        }
        ErrorKind::SessionBusy => "Something else is under way there. Try again later.",
        ErrorKind::AuthorizationForbidden => "The credential lacks the capability that the error names.",
        ErrorKind::UpstreamUnreachable => {
            "OpenCode did not answer. What was to be changed may have been changed; the gateway does not try again."
        }
        ErrorKind::UpstreamHttpError => "OpenCode refused; the error has its status.",
        ErrorKind::UpstreamPayloadError => "OpenCode answered with something that cannot be read.",
        ErrorKind::UpstreamBackpressure => {
            "As many calls to OpenCode as are allowed at once are under way. Nothing was done. Try again later."
        }
        kind => kind.label(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_not_stale() {
        let page = page();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/methods.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(written == page, "docs/methods.md is stale; run make docs");
    }

    #[test]
    fn every_method_field_and_error_is_on_it() {
        let page = page();
        for method in all() {
            assert!(page.contains(&format!("### `{}`\n", method.name)), "{}", method.name);
            for kind in method.errors {
                assert_ne!(meaning(*kind), kind.label(), "{kind:?} is not explained");
            }
        }
        assert!(!page.contains("## Others"));
        // Each row of a table has its three cells.
        for line in page.lines().filter(|line| line.starts_with('|')) {
            assert_eq!(line.matches('|').count(), 4, "{line}");
        }
    }
}
