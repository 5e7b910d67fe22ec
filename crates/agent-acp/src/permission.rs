//! Permission requests: their options, the choice among them, and the ask that callers see.

use longshore_model::redact;
use longshore_model::{
    Action, Answer, Ask, AskKind, AskOption, AskOptions, Error, ErrorKind, Json, OptionKind, PermissionReply,
    PermissionRequest, RequestId, Result, SessionId,
};
use serde_json::json;

use crate::schema::RawOption;
use crate::translate::CallFacts;

/// The longest text of an ask's details, in characters. The rest is cut; the tool call has the whole text.
const MAX_DETAIL_CHARS: usize = 4096;

/// The answer to a permission request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice<'a> {
    Selected(&'a AskOption),
    /// The turn is stopped, or no option fits a rejection.
    Cancelled,
}

impl<'a> Choice<'a> {
    /// The choice of a caller. Fails for an option that the agent does not offer.
    pub fn of(answer: &Answer, options: &'a AskOptions) -> Result<Self> {
        match answer {
            // The gateway rejects at a deadline too, also if the agent offers no option for that.
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

    /// The result that the agent gets. An error instead of a result would make the session of one agent unusable.
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

/// The options of a request. Empty: the agent offers none that could be chosen.
pub fn read_options(raw: &[RawOption]) -> AskOptions {
    AskOptions::new(raw.iter().map(|raw| AskOption {
        id: raw.option_id.clone(),
        name: raw.name.clone(),
        kind: OptionKind::parse(&raw.kind),
    }))
}

/// The ask that callers see.
pub(crate) fn ask(id: RequestId, session: SessionId, call: &CallFacts<'_>, options: &AskOptions) -> Ask {
    let request = requested(call);
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
    let subject = match (&call.command, call.paths.as_slice(), call.title) {
        (Some(command), _, _) => command.clone(),
        (None, [_, ..], _) => call.paths.join(", "),
        (None, [], Some(title)) => title.to_owned(),
        (None, [], None) => call.tool.to_owned(),
    };
    let cut = |text: &str| redact::cut_at(text, MAX_DETAIL_CHARS);
    let mut details = json!({"permission": request.permission, "patterns": request.patterns});
    let facts = [
        ("tool", Some(call.tool)),
        ("kind", call.kind),
        ("title", call.title),
        ("command", call.command.as_deref()),
        ("directory", call.directory.as_deref()),
        ("diff", call.diff.as_deref()),
    ];
    for (name, fact) in facts {
        if let Some(fact) = fact {
            details[name] = cut(fact).into();
        }
    }
    if !request.action.paths.is_empty() {
        details["paths"] = request.action.paths.iter().map(|path| cut(path)).collect();
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
        options: options.clone(),
    }
}

/// What the request asks for. `always` covers the same command in the same directory, or the same files again. If the call shows neither, `always` covers
/// other calls of the same tool only if the tool changes nothing; else it covers nothing, because nobody saw what was approved.
fn requested(call: &CallFacts<'_>) -> PermissionRequest {
    let (patterns, always) = match &call.command {
        Some(command) => {
            let command = match &call.directory {
                Some(directory) => format!("{command} (in {directory})"),
                None => command.clone(),
            };
            (vec![command.clone()], vec![command])
        }
        None if !call.paths.is_empty() => (call.paths.clone(), call.paths.clone()),
        None if call.is_tool_named && matches!(call.kind, Some("read" | "search" | "fetch" | "think")) => {
            (vec![call.title.unwrap_or(call.tool).to_owned()], vec!["*".to_owned()])
        }
        None => (vec![call.title.unwrap_or(call.tool).to_owned()], Vec::new()),
    };
    // In a pattern, these characters stand for others: a command with one of them cannot be approved exactly.
    let is_exact = |pattern: &String| pattern == "*" || !pattern.contains(['*', '?']);
    let always = if always.iter().all(is_exact) { always } else { Vec::new() };
    let mut action = Action {
        tool: Some(call.tool.to_owned()),
        kind: call.kind.map(str::to_owned),
        command: call.command.clone(),
        paths: call.paths.clone(),
    };
    if action.paths.is_empty() {
        action.paths.extend(call.input_path.clone());
    }
    PermissionRequest { permission: call.tool.to_owned(), patterns, always, action }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_chooses_an_option_or_cancels_the_request() {
        let raw = |id: &str, name: &str, kind: &str| RawOption {
            option_id: id.to_owned(),
            name: name.to_owned(),
            kind: kind.to_owned(),
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
            directory: None,
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            input_path: None,
            diff: None,
        };
        for (call, patterns, always) in [
            (call(Some("touch a"), &["/w"], true), vec!["touch a"], vec!["touch a"]),
            // The same command does something else in another directory.
            (
                CallFacts { directory: Some("/w/d".to_owned()), ..call(Some("make"), &[], true) },
                vec!["make (in /w/d)"],
                vec!["make (in /w/d)"],
            ),
            // As a pattern, this would cover every command that begins with `rm`.
            (call(Some("rm *"), &[], true), vec!["rm *"], vec![]),
            (call(None, &["/w/a", "/w/b"], true), vec!["/w/a", "/w/b"], vec!["/w/a", "/w/b"]),
            // A call whose command is not known: `always` must not cover every later command.
            (call(None, &[], true), vec!["a title"], vec![]),
            (CallFacts { kind: Some("fetch"), ..call(None, &[], true) }, vec!["a title"], vec!["*"]),
            (CallFacts { kind: Some("fetch"), ..call(None, &[], false) }, vec!["a title"], vec![]),
        ] {
            let request = requested(&call);
            assert_eq!((request.patterns, request.always), (own(&patterns), own(&always)), "{call:?}");
        }
    }

    #[test]
    fn an_ask_carries_its_tool_kind_command_and_paths() {
        let session = SessionId::parse("s").unwrap();
        let call = CallFacts {
            id: "c",
            tool: "read_file",
            is_tool_named: true,
            kind: Some("read"),
            title: None,
            command: None,
            directory: None,
            paths: own(&["/w/a"]),
            input_path: Some("/w/b".to_owned()),
            diff: None,
        };
        let action = |kind: &str, command: Option<&str>, paths: &[&str]| Action {
            tool: Some("read_file".to_owned()),
            kind: Some(kind.to_owned()),
            command: command.map(str::to_owned),
            paths: own(paths),
        };
        for (call, expected) in [
            (call.clone(), action("read", None, &["/w/a"])),
            (CallFacts { paths: Vec::new(), ..call.clone() }, action("read", None, &["/w/b"])),
            (
                CallFacts { kind: Some("execute"), command: Some("cat /w/a".to_owned()), ..call },
                action("execute", Some("cat /w/a"), &["/w/a"]),
            ),
        ] {
            let ask = ask(RequestId::parse("a").unwrap(), session.clone(), &call, &AskOptions::words());
            let details = ask.details.to_value();
            assert_eq!(ask.permission.unwrap().action, expected);
            assert_eq!(details["kind"].as_str(), expected.kind.as_deref());
            assert_eq!(details.get("command").and_then(|text| text.as_str()), expected.command.as_deref());
            assert_eq!(details["paths"], json!(expected.paths));
        }
    }

    fn own(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }
}
