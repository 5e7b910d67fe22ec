//! Permission requests: their options, the choice among them, and the ask that callers see.
//!
//! An option is chosen by its kind or by its own name, never by its id or position alone: `cancel` is how one agent rejects a
//! single call, and several options may allow always.

use longshore_model::redact;
use longshore_model::{
    Ask, AskKind, Error, ErrorKind, Json, PermissionReply, PermissionRequest, RequestId, Result, SessionId,
};
use serde::Serialize;
use serde_json::json;

use crate::schema::RawOption;
use crate::translate::CallFacts;

/// The longest text of an ask's details, in characters. The rest is cut; the tool call has the whole text.
const MAX_DETAIL_CHARS: usize = 4096;

/// How many options of a request are kept. Real agents offer up to five.
const MAX_OPTIONS: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OptionKind {
    AllowOnce,
    AllowAlways,
    RejectOnce,
    RejectAlways,
    /// A kind that this gateway does not know. Only a caller who names the option chooses it.
    Other,
}

impl OptionKind {
    fn parse(word: &str) -> Self {
        match word {
            "allow_once" => Self::AllowOnce,
            "allow_always" => Self::AllowAlways,
            "reject_once" => Self::RejectOnce,
            "reject_always" => Self::RejectAlways,
            _ => Self::Other,
        }
    }

    pub fn is_rejection(self) -> bool {
        matches!(self, Self::RejectOnce | Self::RejectAlways)
    }
}

/// One of the answers that the agent offers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PermissionOption {
    pub id: String,
    pub name: String,
    pub kind: OptionKind,
}

/// The options of a request, in the agent's order.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Options(Vec<PermissionOption>);

/// The answer to a permission request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice<'a> {
    Selected(&'a PermissionOption),
    /// The turn is stopped, or no option fits a rejection.
    Cancelled,
}

impl Choice<'_> {
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

impl Options {
    pub fn read(raw: &[RawOption]) -> Self {
        let option = |raw: &RawOption| PermissionOption {
            id: raw.option_id.clone(),
            name: if raw.name.is_empty() { raw.option_id.clone() } else { raw.name.clone() },
            kind: OptionKind::parse(&raw.kind),
        };
        Self(raw.iter().take(MAX_OPTIONS).map(option).collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = &PermissionOption> {
        self.0.iter()
    }

    /// The option for one of the three words. `always` stays in the gateway, so the agent gets its option to allow once. Fails if
    /// the agent offers nothing that allows once: an option that allows more must be named.
    pub fn choose(&self, reply: PermissionReply) -> Result<Choice<'_>> {
        let of_kind = |kind| self.0.iter().find(|option| option.kind == kind);
        match reply {
            PermissionReply::Once | PermissionReply::Always => of_kind(OptionKind::AllowOnce)
                .map(Choice::Selected)
                .ok_or_else(|| self.unknown(reply.as_str())),
            PermissionReply::Reject => {
                let found = of_kind(OptionKind::RejectOnce).or_else(|| of_kind(OptionKind::RejectAlways));
                Ok(found.map_or(Choice::Cancelled, Choice::Selected))
            }
        }
    }

    /// The option with this id, or with this name if no other option has it too.
    pub fn named(&self, word: &str) -> Result<&PermissionOption> {
        let word = word.trim();
        if let Some(option) = self.0.iter().find(|option| option.id == word) {
            return Ok(option);
        }
        let mut by_name = self.0.iter().filter(|option| option.name.eq_ignore_ascii_case(word));
        match (by_name.next(), by_name.next()) {
            (Some(option), None) => Ok(option),
            _ => Err(self.unknown(word)),
        }
    }

    fn unknown(&self, word: &str) -> Error {
        let offered: Vec<_> =
            self.0.iter().map(|option| format!("{} ({})", option.id, option.name)).collect();
        let text = if offered.is_empty() {
            "The agent offers no options for this request; it can only be rejected.".to_owned()
        } else {
            format!(
                "The agent does not offer `{word}` for this request. Name one of: {}.",
                offered.join(", ")
            )
        };
        Error::new(ErrorKind::InvalidParams, redact::cut(&text))
    }
}

/// The ask that callers see.
pub(crate) fn ask(id: RequestId, session: SessionId, call: &CallFacts<'_>, options: &Options) -> Ask {
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
    let mut details =
        json!({"permission": request.permission, "patterns": request.patterns, "options": options});
    let facts = [
        ("tool", Some(call.tool)),
        ("kind", call.kind),
        ("title", call.title),
        ("command", call.command.as_deref()),
        ("diff", call.diff.as_deref()),
    ];
    for (name, fact) in facts {
        if let Some(fact) = fact {
            details[name] = cut(fact).into();
        }
    }
    if !call.paths.is_empty() {
        details["paths"] = call.paths.iter().map(|path| cut(path)).collect();
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
    }
}

/// What the request asks for. `always` covers the same command or the same files again, or another call of the same tool if the
/// call has neither.
fn requested(call: &CallFacts<'_>) -> PermissionRequest {
    let (patterns, always) = match &call.command {
        Some(command) => (vec![command.clone()], vec![command.clone()]),
        None if !call.paths.is_empty() => (call.paths.clone(), call.paths.clone()),
        None if call.is_tool_named => {
            (vec![call.title.unwrap_or(call.tool).to_owned()], vec!["*".to_owned()])
        }
        None => (vec![call.title.unwrap_or(call.tool).to_owned()], Vec::new()),
    };
    // In a pattern, these characters stand for others: a command with one of them cannot be approved exactly.
    let is_exact = |pattern: &String| pattern == "*" || !pattern.contains(['*', '?']);
    let always = if always.iter().all(is_exact) { always } else { Vec::new() };
    PermissionRequest { permission: call.tool.to_owned(), patterns, always }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(kinds: &[(&str, &str, &str)]) -> Options {
        let raw = |(id, name, kind): &(&str, &str, &str)| RawOption {
            option_id: (*id).to_owned(),
            name: (*name).to_owned(),
            kind: (*kind).to_owned(),
        };
        Options::read(&kinds.iter().map(raw).collect::<Vec<_>>())
    }

    /// The options of each recorded agent for a shell command.
    fn agents() -> [Options; 4] {
        [
            options(&[
                ("proceed_always_project", "Always Allow in project: touch *", "allow_always"),
                ("proceed_always_user", "Always Allow for user: touch *", "allow_always"),
                ("proceed_once", "Allow", "allow_once"),
                ("cancel", "Reject", "reject_once"),
            ]),
            options(&[
                ("allow_always", "Always Allow", "allow_always"),
                ("allow", "Allow", "allow_once"),
                ("reject", "Reject", "reject_once"),
            ]),
            options(&[
                ("allow_once", "Allow once", "allow_once"),
                ("allow_always", "Allow for remainder of this session", "allow_always"),
                ("allow_always_permanent", "Always allow", "allow_always"),
                ("reject_once", "Deny", "reject_once"),
            ]),
            options(&[
                ("once", "Allow once", "allow_once"),
                ("always", "Always allow", "allow_always"),
                ("reject", "Reject", "reject_once"),
            ]),
        ]
    }

    fn chosen(options: &Options, reply: PermissionReply) -> String {
        match options.choose(reply) {
            Ok(Choice::Selected(option)) => option.id.clone(),
            Ok(Choice::Cancelled) => "(cancelled)".to_owned(),
            Err(error) => format!("(refused: {error})"),
        }
    }

    #[test]
    fn the_words_choose_by_kind_for_every_recorded_agent() {
        let expected = [
            ("proceed_once", "cancel"),
            ("allow", "reject"),
            ("allow_once", "reject_once"),
            ("once", "reject"),
        ];
        for (options, (once, reject)) in agents().iter().zip(expected) {
            assert_eq!(chosen(options, PermissionReply::Once), once);
            assert_eq!(chosen(options, PermissionReply::Always), once, "always stays in the gateway");
            assert_eq!(chosen(options, PermissionReply::Reject), reject);
        }
    }

    #[test]
    fn once_never_becomes_an_option_that_allows_more() {
        let only_always = options(&[("y", "Yes", "allow_always"), ("x", "Odd", "maybe")]);
        for reply in [PermissionReply::Once, PermissionReply::Always] {
            let refused = chosen(&only_always, reply);
            assert!(refused.contains("Name one of: y (Yes), x (Odd)."), "{refused}");
        }
        assert_eq!(chosen(&only_always, PermissionReply::Reject), "(cancelled)");
        assert_eq!(chosen(&options(&[("n", "", "reject_always")]), PermissionReply::Reject), "n");
    }

    #[test]
    fn an_option_is_named_by_its_id_or_its_unique_name() {
        let options = options(&[
            ("a", "Allow", "allow_once"),
            ("b", "allow", "allow_always"),
            ("Reject", "No", "reject_once"),
            ("c", "Reject", "other"),
        ]);
        assert_eq!(options.named(" a ").unwrap().id, "a");
        assert_eq!(options.named("no").unwrap().id, "Reject");
        assert_eq!(options.named("Reject").unwrap().id, "Reject", "an id comes before a name");
        let error = options.named("Allow").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams);
        assert!(error.message().contains("a (Allow), b (allow)"), "{error}");
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
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            diff: None,
        };
        for (call, patterns, always) in [
            (call(Some("touch a"), &["/w"], true), vec!["touch a"], vec!["touch a"]),
            // As a pattern, this would cover every command that begins with `rm`.
            (call(Some("rm *"), &[], true), vec!["rm *"], vec![]),
            (call(None, &["/w/a", "/w/b"], true), vec!["/w/a", "/w/b"], vec!["/w/a", "/w/b"]),
            (call(None, &[], true), vec!["a title"], vec!["*"]),
            (call(None, &[], false), vec!["a title"], vec![]),
        ] {
            let request = requested(&call);
            assert_eq!((request.patterns, request.always), (own(&patterns), own(&always)), "{call:?}");
        }
    }

    fn own(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }
}
