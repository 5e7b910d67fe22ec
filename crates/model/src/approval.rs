//! Approvals: when a caller answers `always`, the gateway keeps that answer for one session and its sub-agents.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::id::{ContextId, Principal, RequestId, SessionId};
use crate::time::Timestamp;

/// The permission that a request asks for, in the agent's own terms.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PermissionRequest {
    /// The kind of permission, such as `bash` or `edit`.
    pub permission: String,
    /// The intended actions: one entry for each command of a chain, or for each file.
    pub patterns: Vec<String>,
    /// The patterns that the answer `always` approves.
    pub always: Vec<String>,
    /// The action. Empty: the agent reports no more, or the request was stored by a version of the gateway that did not keep this.
    #[serde(default, skip_serializing_if = "Action::is_empty")]
    pub action: Action,
}

/// The action that needs a permission, in terms that are the same for all agents. Each agent reports only a part of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Action {
    /// The agent's name of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// What the tool does, as one of the words of ACP, such as `execute` or `edit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The files that the action concerns. A path that is not absolute may mean any file, because only the agent knows where it
    /// starts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

impl Action {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The answer `always`, kept for later asks of the same principal in the same session and its sub-agents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Approval {
    /// The ask that was answered with `always`.
    pub request_id: RequestId,
    pub owner: Principal,
    /// The session of the root turn. The approval also covers the sessions of its sub-agents.
    pub session: SessionId,
    /// The context of the answer. The approval is deleted with this context.
    pub context: ContextId,
    pub permission: String,
    pub patterns: Vec<String>,
    /// The approved action. Empty: the agent reported none, or the approval was stored by a version of the gateway that did not
    /// keep this.
    pub action: Action,
    pub at: Timestamp,
}

/// The longest approval that is kept, in bytes of its texts. The limit is low because a list contains many approvals.
const MAX_APPROVAL_BYTES: usize = 16 * 1024;

impl Approval {
    /// Whether the approval is short enough to be kept. If not, the answer `always` means `once`.
    pub fn may_be_kept(&self) -> bool {
        let Action { tool, kind, command, paths } = &self.action;
        let facts = [tool, kind, command].into_iter().flatten();
        let texts = facts.chain(paths).chain(&self.patterns).chain([&self.permission]);
        texts.map(String::len).sum::<usize>() <= MAX_APPROVAL_BYTES
    }

    /// Whether the approval is for requests of this kind.
    fn concerns(&self, request: &PermissionRequest) -> bool {
        let (approved, requested) = (&self.action, &request.action);
        let is_same_kind = approved.is_empty()
            || (approved.kind == requested.kind
                && (approved.command.is_some() || requested.command.is_none())
                && (approved.paths.is_empty() || !requested.paths.is_empty()));
        self.permission == request.permission && is_same_kind
    }

    fn covers(&self, pattern: &str) -> bool {
        self.patterns.iter().any(|approved| matches(approved, pattern))
    }

    /// Whether this path is one that the approval names.
    fn names(&self, path: &str) -> bool {
        let Some(resolved) = resolve(path) else {
            // The same text means the same file, because agent and session are the same.
            return self.action.paths.iter().any(|approved| approved == path);
        };
        let is_it = |approved: &String| resolve(approved).as_ref() == Some(&resolved);
        // A pattern that begins with a star covers every path, so it does not name any path.
        let matches_it = |approved: &&String| approved.starts_with('/') && !approved.starts_with("/*");
        let resolved = resolved.to_string_lossy();
        self.action.paths.iter().any(is_it)
            || self.patterns.iter().filter(matches_it).any(|approved| matches(approved, &resolved))
    }
}

/// The approvals that together cover a request of a session in this directory. `None`: one of the patterns is not covered, or one
/// of the paths was neither approved itself nor is certainly in the directory.
pub fn covering<'a>(
    approvals: &'a [Approval],
    request: &PermissionRequest,
    directory: &str,
) -> Option<Vec<&'a RequestId>> {
    let approvals: Vec<_> = approvals.iter().filter(|approval| approval.concerns(request)).collect();
    let one = |pattern: &String| approvals.iter().find(|approval| approval.covers(pattern));
    let mut covering: Vec<_> =
        request.patterns.iter().map(|pattern| Some(&one(pattern)?.request_id)).collect::<Option<_>>()?;
    covering.dedup();
    let may_touch = |path: &String| {
        resolve(path).is_some_and(|path| path.starts_with(directory))
            || approvals.iter().any(|approval| approval.names(path))
    };
    let Action { kind, paths, .. } = &request.action;
    let is_unknown = paths.is_empty() && matches!(kind.as_deref(), Some("read" | "edit" | "delete" | "move"));
    (!covering.is_empty() && !is_unknown && paths.iter().all(may_touch)).then_some(covering)
}

/// The path without `.` and `..`. Links are not followed, because the agent may run on another machine. `None`: the path is not
/// absolute or contains a variable, so only the agent knows which file it means.
fn resolve(path: &str) -> Option<PathBuf> {
    if !path.starts_with('/') || path.contains('$') {
        return None;
    }
    let mut resolved = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                resolved.pop();
            }
            part => resolved.push(part),
        }
    }
    Some(resolved)
}

/// Whether a text matches a pattern: `*` is any text, `?` is any character, and a final ` *` also
/// matches nothing, so that `ls *` covers `ls`.
fn matches(pattern: &str, text: &str) -> bool {
    pattern.strip_suffix(" *").is_some_and(|command| matches_whole(command, text))
        || matches_whole(pattern, text)
}

/// Whether the pattern matches the whole text. Takes no more steps than the product of both lengths.
fn matches_whole(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut from) = (0, 0);
    // The position of the last `*`, and the end of the text that it covers. After a mismatch, the star covers one character more.
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(wanted) if *wanted == '?' || *wanted == text[from] => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((star_at, taken)) = star else { return false };
                star = Some((star_at, taken + 1));
                (at, from) = (star_at + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match() {
        for (pattern, text, expected) in [
            ("rm *", "rm -f seven", true),
            ("rm *", "rm", true),
            ("rm *", "rmdir x", false),
            ("rm *", "sudo rm x", false),
            ("git commit *", "git commit -m \"a\nb\"", true),
            ("git commit *", "git push", false),
            ("*", "", true),
            ("*", "anything", true),
            ("src/*.rs", "src/a/b.rs", true),
            ("src/*.rs", "src/a.rss", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a.c", "abc", false),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xbxa", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern:?} {text:?}");
        }
        // Even a pattern with many stars must be fast.
        assert!(!matches(&"*a".repeat(500), &"a".repeat(499)));
    }

    #[test]
    fn a_request_is_covered_only_if_each_of_its_patterns_is() {
        let approval = |id: &str, permission: &str, patterns: &[&str]| Approval {
            request_id: RequestId::parse(id).unwrap(),
            owner: Principal::new("ada"),
            session: SessionId::parse("s").unwrap(),
            context: ContextId::parse("c").unwrap(),
            permission: permission.to_owned(),
            patterns: patterns.iter().map(|pattern| (*pattern).to_owned()).collect(),
            action: Action::default(),
            at: Timestamp(1),
        };
        let approvals = [
            approval("a", "bash", &["rm *"]),
            approval("b", "bash", &["touch *", "ls *"]),
            approval("c", "edit", &["*"]),
        ];
        for (permission, patterns, expected) in [
            ("bash", &["rm x"][..], Some(&["a"][..])),
            ("bash", &["rm x", "rm y"], Some(&["a"])),
            ("bash", &["rm x", "touch y"], Some(&["a", "b"])),
            ("bash", &["rm x", "curl y"], None),
            ("bash", &["curl y", "rm x"], None),
            ("bash", &[], None),
            ("edit", &["a.rs"], Some(&["c"])),
            ("webfetch", &["rm x"], None),
        ] {
            let patterns: Vec<_> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
            let request = PermissionRequest {
                permission: permission.to_owned(),
                patterns,
                always: Vec::new(),
                action: Action::default(),
            };
            let found = covering(&approvals, &request, "/w")
                .map(|found| found.into_iter().map(RequestId::as_str).collect::<Vec<_>>());
            assert_eq!(found.as_deref(), expected, "{request:?}");
        }
    }

    /// An action, from its kind, its command (or nothing) and its path (or nothing).
    fn action(kind: &str, command: &str, path: &str) -> Action {
        let present = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Action {
            tool: None,
            kind: present(kind),
            command: present(command),
            paths: present(path).into_iter().collect(),
        }
    }

    #[test]
    fn an_approval_covers_no_other_kind_and_no_path_outside_that_was_not_approved() {
        // The columns: the approved pattern, its action, the action of the next request, and whether the approval covers that
        // request.
        for (approved, first, next, expected) in [
            ("*", ("edit", "", "/w/a.rs"), ("edit", "", "/w/src/b.rs"), true),
            ("*", ("edit", "", "/w/a.rs"), ("edit", "", "/w/../etc/passwd"), false),
            ("*", ("edit", "", "/w/a.rs"), ("edit", "", "../etc/passwd"), false),
            ("*", ("edit", "", "/w/a.rs"), ("edit", "", "/w2/a.rs"), false),
            ("*", ("edit", "", "/w/a.rs"), ("edit", "", "~/.profile"), false),
            ("*", ("edit", "", "/w/a.rs"), ("edit", "", "file:///etc/passwd"), false),
            ("*", ("edit", "", "/w/a.rs"), ("edit", "", "file:/etc/passwd"), false),
            ("*", ("edit", "", "/w/a.rs"), ("edit", "", "$HOME/x"), false),
            ("*", ("edit", "", "/w/a.rs"), ("edit", "", "/w/$UP/x"), false),
            ("*", ("edit", "", "/etc/hosts"), ("edit", "", "/etc/./hosts"), true),
            // An agent may use relative paths that do not start in the session's directory.
            ("*", ("read", "", "/w/a.rs"), ("read", "", "etc/passwd"), false),
            ("*", ("read", "", "etc/hosts"), ("read", "", "etc/hosts"), true),
            ("*", ("read", "", "etc/hosts"), ("read", "", "etc/passwd"), false),
            // Without a path, the action may concern any file.
            ("*", ("read", "", ""), ("read", "", ""), false),
            ("*", ("search", "", "/w"), ("search", "", ""), false),
            ("*", ("search", "", ""), ("search", "", ""), true),
            ("*", ("search", "", ""), ("search", "", "/etc"), false),
            ("*", ("edit", "", "/w/a.rs"), ("delete", "", "/w/a.rs"), false),
            ("*", ("edit", "", "/w/a.rs"), ("", "", "/w/a.rs"), false),
            ("*", ("edit", "", "/w/a.rs"), ("edit", "rm a.rs", ""), false),
            ("*", ("execute", "ls", ""), ("execute", "rm a.rs", ""), true),
            ("*", ("execute", "ls", ""), ("execute", "ls /", "/"), false),
            ("/etc/*", ("", "", "/etc/hosts"), ("", "", "/etc/passwd"), true),
            ("/etc/*", ("", "", "/etc/hosts"), ("", "", "/etc/../srv/x"), false),
            ("/*", ("", "", "/etc/hosts"), ("", "", "/srv/x"), false),
            // An approval of a version of the gateway that did not keep actions.
            ("*", ("", "", ""), ("edit", "rm", "/w/b.rs"), true),
            ("*", ("", "", ""), ("edit", "", "/etc/passwd"), false),
            ("*", ("", "", ""), ("edit", "", ""), false),
        ] {
            let approval = Approval {
                request_id: RequestId::parse("a").unwrap(),
                owner: Principal::new("ada"),
                session: SessionId::parse("s").unwrap(),
                context: ContextId::parse("c").unwrap(),
                permission: "p".to_owned(),
                patterns: vec![approved.to_owned()],
                action: action(first.0, first.1, first.2),
                at: Timestamp(1),
            };
            let request = PermissionRequest {
                permission: "p".to_owned(),
                patterns: vec!["/etc/".to_owned()],
                always: Vec::new(),
                action: action(next.0, next.1, next.2),
            };
            let found = covering(std::slice::from_ref(&approval), &request, "/w");
            assert_eq!(found.is_some(), expected, "{approved} {first:?} {next:?}");
            let command = Some("x".repeat(MAX_APPROVAL_BYTES));
            let long = Approval { action: Action { command, ..Action::default() }, ..approval.clone() };
            assert_eq!((approval.may_be_kept(), long.may_be_kept()), (true, false));
        }
    }

    #[test]
    fn requests_of_earlier_versions_are_read() {
        let stored = r#"{"permission":"bash","patterns":["ls"],"always":["ls *"]}"#;
        let request: PermissionRequest = serde_json::from_str(stored).unwrap();
        assert!(request.action.is_empty());
        assert_eq!(serde_json::to_string(&request).unwrap(), stored);
    }
}
