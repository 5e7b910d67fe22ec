//! Permission requests: their options, the option for an answer, and the ask that callers see.

use longshore_model::redact;
use longshore_model::{
    Action, Answer, Ask, AskKind, AskOption, AskOptions, Error, ErrorKind, Json, OptionKind, PermissionReply,
    PermissionRequest, RequestId, Result, SessionId,
};
use serde_json::json;

use crate::schema::{MAX_META, RawOption};
use crate::translate::{CallFacts, MAX_PATHS, places};

/// The longest text in an ask's details, in characters. A longer text is cut; the tool call has all of it.
const MAX_DETAIL_CHARS: usize = 4096;

/// The answer to a permission request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice<'a> {
    Selected(&'a AskOption),
    /// The turn is being stopped, or no option fits a rejection.
    Cancelled,
}

impl<'a> Choice<'a> {
    /// The option for a caller's answer. Fails if the agent does not offer that option.
    pub fn of(answer: &Answer, options: &'a AskOptions) -> Result<Self> {
        match answer {
            // A rejection always succeeds, even without a fitting option, because the gateway itself rejects at the deadline.
            Answer::Permission { reply: PermissionReply::Reject, .. } => Ok(options
                .choose(PermissionReply::Reject)
                .ok()
                .flatten()
                .map_or(Self::Cancelled, Self::Selected)),
            Answer::Permission { reply, .. } => {
                Ok(options.choose(*reply)?.map_or(Self::Cancelled, Self::Selected))
            }
            Answer::PermissionOption { option, .. } => Ok(Self::Selected(options.named(option)?)),
            Answer::Question { .. } | Answer::RejectQuestion => Err(Error::new(
                ErrorKind::InterruptTypeMismatch,
                "The agent asks for a permission, and this answers a question.",
            )),
        }
    }

    /// The result for the agent. It is never an error, because an error would make the session of one agent unusable.
    pub fn outcome(self) -> serde_json::Value {
        match self {
            Self::Selected(option) => json!({"outcome": {"outcome": "selected", "optionId": option.id}}),
            Self::Cancelled => json!({"outcome": {"outcome": "cancelled"}}),
        }
    }

    pub fn is_rejection(self) -> bool {
        match self {
            Self::Selected(option) => option.kind.is_rejection(),
            Self::Cancelled => true,
        }
    }
}

/// Parses the options of a request. Empty: the agent offers none that could be chosen.
pub fn read_options(raw: &[RawOption]) -> AskOptions {
    AskOptions::new(raw.iter().map(|raw| AskOption {
        id: raw.option_id.clone(),
        name: raw.name.clone(),
        kind: OptionKind::parse(&raw.kind),
    }))
}

/// The options of a request, in the form for callers and in the agent's form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offered<'a> {
    pub(crate) options: &'a AskOptions,
    pub(crate) raw: &'a [RawOption],
}

impl Offered<'_> {
    /// The agent's additions (`_meta`) to its options, by option id, together at most [`MAX_META`] bytes. An addition that does not
    /// fit is left out.
    fn meta(self) -> serde_json::Map<String, serde_json::Value> {
        let mut room = MAX_META;
        let meta = |option: &AskOption| {
            let raw = self.raw.iter().find(|raw| raw.option_id == option.id)?;
            let meta = raw.meta.0.as_ref()?;
            room = room.checked_sub(meta.get().len())?;
            Some((option.id.clone(), meta.to_value()))
        };
        self.options.iter().filter_map(meta).collect()
    }
}

/// The ask that callers see. `directory`: the session's directory, from which relative paths start.
pub(crate) fn ask(
    id: RequestId,
    session: SessionId,
    call: &CallFacts<'_>,
    offered: Offered<'_>,
    directory: Option<&str>,
) -> Ask {
    let request = requested(call, directory);
    let what = match call.kind.unwrap_or_default() {
        "execute" => "run",
        "edit" => "edit",
        "read" => "read",
        "delete" => "delete",
        "move" => "move",
        "search" => "search",
        "fetch" => "fetch",
        _ => "use",
    };
    let Action { command, paths, .. } = &request.action;
    let subject = match (command, paths.as_slice(), call.title) {
        (Some(command), _, _) => command.clone(),
        (None, [_, ..], _) => paths.join(", "),
        (None, [], Some(title)) => title.to_owned(),
        (None, [], None) => call.tool.to_owned(),
    };
    let cut = |text: &str| redact::cut_at(text, MAX_DETAIL_CHARS);
    let mut details = json!({"permission": request.permission, "patterns": request.patterns});
    let facts = [
        ("tool", Some(call.tool)),
        ("kind", call.kind),
        ("title", call.title),
        ("command", command.as_deref()),
        ("directory", call.directory.as_deref()),
        ("diff", call.diff.as_deref()),
    ];
    for (name, fact) in facts {
        if let Some(fact) = fact {
            details[name] = cut(fact).into();
        }
    }
    if !paths.is_empty() {
        details["paths"] = paths.iter().map(|path| cut(path)).collect();
    }
    let meta = offered.meta();
    if !meta.is_empty() {
        details["option_meta"] = meta.into();
    }
    Ask {
        request_id: id,
        kind: AskKind::Permission,
        session,
        summary: redact::cut(&format!("The agent asks for permission to {what}: {subject}")),
        details: Json::from_value(&details),
        questions: Vec::new(),
        call: Some(call.id.to_owned()),
        permission: Some(Box::new(request)),
        options: offered.options.clone(),
    }
}

/// The permission that the request asks for. `always` covers the same command in the same directory, or the same files. If the call
/// shows neither a command nor files, `always` covers other calls of the same tool, but only if the tool changes nothing. Otherwise
/// it covers nothing, because nobody saw what was approved.
fn requested(call: &CallFacts<'_>, directory: Option<&str>) -> PermissionRequest {
    let paths = all_places(&call.paths, directory);
    let works_on_files = matches!(call.kind, Some("read" | "edit" | "delete" | "move" | "search"));
    // The editor tool of one agent has the name of its operation in the field `command`.
    let command = call.command.clone().filter(|_| !works_on_files);
    let titled = || vec![call.title.unwrap_or(call.tool).to_owned()];
    let (patterns, always) = match (call.kind, &command) {
        (Some("execute"), Some(command)) => {
            let pattern = match &call.directory {
                Some(named) => format!("{command} (in {})", places(named, directory).join(" or ")),
                None => command.clone(),
            };
            (vec![pattern.clone()], exactly(vec![pattern]).filter(|_| !call.has_arguments))
        }
        _ if works_on_files && !paths.is_empty() => (paths.clone(), exactly(paths.clone())),
        (Some("fetch" | "think"), None) if call.is_tool_named && paths.is_empty() => {
            (titled(), Some(vec!["*".to_owned()]))
        }
        _ => (titled(), None),
    };
    let are_known = paths.iter().all(|path| path.starts_with('/') && !path.contains('$'));
    let always = always.filter(|_| are_known).unwrap_or_default();
    let action =
        Action { tool: Some(call.tool.to_owned()), kind: call.kind.map(str::to_owned), command, paths };
    PermissionRequest { permission: call.tool.to_owned(), patterns, always, action }
}

/// The patterns, if they match only themselves. `None`: one contains a wildcard character, so it cannot be approved exactly.
fn exactly(patterns: Vec<String>) -> Option<Vec<String>> {
    let is_exact = |pattern: &String| !pattern.contains(['*', '?']);
    patterns.iter().all(is_exact).then_some(patterns)
}

fn all_places(paths: &[String], directory: Option<&str>) -> Vec<String> {
    let mut all = Vec::new();
    for place in paths.iter().take(MAX_PATHS).flat_map(|path| places(path, directory)) {
        if !all.contains(&place) {
            all.push(place);
        }
    }
    if paths.len() > MAX_PATHS {
        all.push("unresolved:more".to_owned());
    }
    all
}

#[cfg(test)]
mod tests {
    use longshore_model::{AgentEvent, PromptId};
    use serde_json::value::RawValue;

    use super::*;
    use crate::schema::{Meta, Update};
    use crate::translate::{SessionTotals, Translator};

    #[test]
    fn an_answer_chooses_an_option_or_cancels_the_request() {
        let raw = |id: &str, name: &str, kind: &str| RawOption {
            option_id: id.to_owned(),
            name: name.to_owned(),
            kind: kind.to_owned(),
            meta: Meta::default(),
        };
        let vibe = read_options(&[
            raw("allow_once", "Allow once", "allow_once"),
            raw("session", "Allow for remainder of this session", "allow_always"),
            raw("reject_once", "Deny", "reject_once"),
            raw("more", "", "ask_more"),
        ]);
        let odd = read_options(&[raw("y", "Yes", "allow_once")]);
        let for_ever = read_options(&[raw("y", "Yes", "allow_once"), raw("n", "Never", "reject_always")]);
        let selected = |id: &str| json!({"outcome": {"outcome": "selected", "optionId": id}});
        let cancelled = json!({"outcome": {"outcome": "cancelled"}});
        for (options, text, outcome, is_rejection) in [
            (&vibe, "once", Ok(selected("allow_once")), false),
            (&vibe, "always", Ok(selected("session")), false),
            (&vibe, "reject", Ok(selected("reject_once")), true),
            (&vibe, "deny", Ok(selected("reject_once")), true),
            (&vibe, "more", Ok(selected("more")), false),
            (&vibe, "perhaps", Err(ErrorKind::InvalidParams), false),
            (&odd, "reject", Ok(cancelled.clone()), true),
            (&for_ever, "reject", Ok(cancelled), true),
            (&odd, "always", Err(ErrorKind::InvalidParams), false),
        ] {
            let answer = Answer::permission(text, None);
            let choice = Choice::of(&answer, options).map_err(|error| error.kind());
            assert_eq!(choice.map(Choice::outcome), outcome, "{text}");
            assert_eq!(choice.is_ok_and(Choice::is_rejection), is_rejection, "{text}");
        }
        let question = Choice::of(&Answer::RejectQuestion, &vibe).unwrap_err();
        assert_eq!(question.kind(), ErrorKind::InterruptTypeMismatch);
    }

    #[test]
    fn the_gateways_always_covers_no_more_than_was_asked() {
        let call = |command: Option<&str>, paths: &[&str], is_tool_named| CallFacts {
            id: "c",
            tool: "bash",
            is_tool_named,
            kind: Some("execute"),
            title: Some("a title"),
            command: command.map(str::to_owned),
            has_arguments: false,
            directory: None,
            paths: own(paths),
            diff: None,
        };
        let of_kind = |kind, call| CallFacts { kind: Some(kind), ..call };
        for (call, patterns, always) in [
            (call(Some("touch a"), &["/w"], true), vec!["touch a"], vec!["touch a"]),
            // The same command has another effect in another directory.
            (
                CallFacts { directory: Some("/w/d".to_owned()), ..call(Some("make"), &[], true) },
                vec!["make (in /w/d)"],
                vec!["make (in /w/d)"],
            ),
            (
                CallFacts { has_arguments: true, ..call(Some("npm (args: [\"ci\"])"), &[], true) },
                vec!["npm (args: [\"ci\"])"],
                vec![],
            ),
            // As patterns, these would also cover other commands.
            (call(Some("rm *"), &[], true), vec!["rm *"], vec![]),
            (call(Some("*"), &[], true), vec!["*"], vec![]),
            // The command is not known, so `always` must not cover every later command.
            (call(None, &[], true), vec!["a title"], vec![]),
            (call(None, &["/w/a", "/w/b"], true), vec!["a title"], vec![]),
            (CallFacts { kind: None, ..call(None, &["/w/a"], true) }, vec!["a title"], vec![]),
            (CallFacts { kind: None, ..call(Some("ls"), &[], true) }, vec!["a title"], vec![]),
            // `write` is the operation of an editor tool, and not a command.
            (of_kind("edit", call(Some("write"), &["/w/a"], true)), vec!["/w/a"], vec!["/w/a"]),
            (
                of_kind("edit", call(None, &["/w/a", "/w/b"], true)),
                vec!["/w/a", "/w/b"],
                vec!["/w/a", "/w/b"],
            ),
            (of_kind("edit", call(Some("write"), &[], true)), vec!["a title"], vec![]),
            (of_kind("read", call(None, &[], true)), vec!["a title"], vec![]),
            (of_kind("search", call(None, &[], true)), vec!["a title"], vec![]),
            (of_kind("search", call(None, &["/w/*"], true)), vec!["/w/*"], vec![]),
            // It is not known where this path leads.
            (of_kind("edit", call(None, &["$HOME/a"], true)), vec!["$HOME/a"], vec![]),
            (of_kind("edit", call(None, &["file:/w/a"], true)), vec!["file:/w/a"], vec![]),
            (of_kind("edit", call(None, &["a"], true)), vec!["a"], vec![]),
            (of_kind("fetch", call(None, &[], true)), vec!["a title"], vec!["*"]),
            (of_kind("fetch", call(None, &["/w/a"], true)), vec!["a title"], vec![]),
            (of_kind("fetch", call(None, &[], false)), vec!["a title"], vec![]),
        ] {
            let request = requested(&call, None);
            assert_eq!((request.patterns, request.always), (own(&patterns), own(&always)), "{call:?}");
        }
    }

    #[test]
    fn an_ask_carries_its_tool_kind_command_and_paths() {
        let session = SessionId::parse("s").unwrap();
        let action = |kind: &str, command: Option<&str>, paths: &[&str]| Action {
            tool: Some("read_file".to_owned()),
            kind: Some(kind.to_owned()),
            command: command.map(str::to_owned),
            paths: own(paths),
        };
        let announced = |input| json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "read_file", "rawInput": input});
        for (announced, asked, expected) in [
            // The input, the locations and the changes may each name different files.
            (
                announced(json!({})),
                json!({"kind": "read", "locations": [{"path": "/w/a"}], "rawInput": {"file_path": "/w/b"}}),
                action("read", None, &["/w/a", "/w/b"]),
            ),
            (
                announced(json!({})),
                json!({"kind": "edit", "locations": [{"path": "/w/a"}], "content": [{"type": "diff", "path": "/w/b"}]}),
                action("edit", None, &["/w/a", "/w/b"]),
            ),
            (
                announced(json!({})),
                json!({"kind": "edit", "rawInput": {"filepath": "/w/b"}}),
                action("edit", None, &["/w/b"]),
            ),
            (
                announced(json!({"paths": ["b", "/etc/c"]})),
                json!({"kind": "read", "rawInput": {}}),
                action("read", None, &["/w/b", "/etc/c"]),
            ),
            (
                announced(json!({})),
                json!({"kind": "edit", "rawInput": {"command": "write", "path": "/w/b"}}),
                action("edit", None, &["/w/b"]),
            ),
            (
                announced(json!({})),
                json!({"kind": "execute", "locations": [{"path": "/w/a"}], "rawInput": {"command": "cat a"}}),
                action("execute", Some("cat a"), &["/w/a"]),
            ),
            (
                announced(json!({})),
                json!({"kind": "execute", "rawInput": {"command": "npm", "args": ["ci"], "env": {}}}),
                action("execute", Some("npm (args: [\"ci\"])"), &[]),
            ),
            (
                announced(json!({})),
                json!({"kind": "execute", "rawInput": {"command": ["sh", "-c", "a b"]}}),
                action("execute", Some("[\"sh\",\"-c\",\"a b\"]"), &[]),
            ),
        ] {
            let prompt = PromptId::parse("p").unwrap();
            let totals = SessionTotals::of_new_session();
            let mut translator =
                Translator::new(session.clone(), &prompt, totals).in_directory("/w".to_owned());
            translator.update(&Update::read(&RawValue::from_string(announced.to_string()).unwrap()));
            let mut request = json!({"sessionId": "s", "toolCall": asked});
            request["toolCall"]["toolCallId"] = "c".into();
            let request = serde_json::from_str(&request.to_string()).unwrap();
            translator.permission(&request, &AskOptions::words()).unwrap();
            let Some(AgentEvent::Asked(ask)) = translator.take().pop() else { panic!("{asked}") };
            let details = ask.details.to_value();
            assert_eq!(ask.permission.unwrap().action, expected, "{asked}");
            assert_eq!(details["kind"].as_str(), expected.kind.as_deref());
            assert_eq!(details.get("command").and_then(|text| text.as_str()), expected.command.as_deref());
            let paths = details.get("paths").cloned().unwrap_or(json!([]));
            assert_eq!(paths, json!(expected.paths));
        }
    }

    #[test]
    fn an_ask_carries_what_the_agent_adds_to_its_options() {
        let (pattern, long) = (json!({"session_pattern": "touch *"}), json!({"x": "x".repeat(MAX_META)}));
        let raw = [
            ("once", "allow_once", json!({})),
            ("long", "allow_always", long),
            ("always", "allow_always", pattern.clone()),
            ("", "other", pattern.clone()),
            ("always", "other", json!({"second": true})),
        ];
        let raw =
            raw.map(|(id, kind, meta)| json!({"optionId": id, "kind": kind, "_meta": meta}).to_string());
        let raw = raw.map(|raw| serde_json::from_str::<RawOption>(&raw).unwrap());
        let options = read_options(&raw);
        let shown = Offered { options: &options, raw: &raw }.meta();
        assert_eq!(serde_json::Value::from(shown), json!({"always": pattern}));
    }

    fn own(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }
}
