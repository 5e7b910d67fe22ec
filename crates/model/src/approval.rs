//! Approvals: when a caller answers `always`, the gateway keeps that answer for one session and its sub-agents.

use serde::{Deserialize, Serialize};

use crate::id::{ContextId, Principal, RequestId, SessionId};
use crate::time::Timestamp;

/// What a permission request asks for, in the agent's own terms.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PermissionRequest {
    /// The kind of permission, such as `bash` or `edit`.
    pub permission: String,
    /// What the agent wants to do: one entry for each command of a chain, or for each file.
    pub patterns: Vec<String>,
    /// The patterns that the answer `always` approves.
    pub always: Vec<String>,
}

/// The answer `always`, kept for later asks of the same principal in the same session and its sub-agents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Approval {
    /// The ask that was answered with `always`.
    pub request_id: RequestId,
    pub owner: Principal,
    /// The session of the root turn. The approval also covers the sessions of its sub-agents.
    pub session: SessionId,
    /// The approval is forgotten together with this context.
    pub context: ContextId,
    pub permission: String,
    pub patterns: Vec<String>,
    pub at: Timestamp,
}

impl Approval {
    fn covers(&self, permission: &str, pattern: &str) -> bool {
        self.permission == permission && self.patterns.iter().any(|approved| matches(approved, pattern))
    }
}

/// The approvals that together cover a request. `None`: at least one of its patterns is not covered.
pub fn covering<'a>(approvals: &'a [Approval], request: &PermissionRequest) -> Option<Vec<&'a RequestId>> {
    let PermissionRequest { permission, patterns, .. } = request;
    let one = |pattern: &String| approvals.iter().find(|approval| approval.covers(permission, pattern));
    let mut covering: Vec<_> =
        patterns.iter().map(|pattern| one(pattern).map(|found| &found.request_id)).collect::<Option<_>>()?;
    covering.dedup();
    (!covering.is_empty()).then_some(covering)
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
    // The position of the last `*`, and the end of the text that it takes. After a mismatch, the star takes one character
    // more.
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
        // A pattern with many stars stays fast.
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
            let request =
                PermissionRequest { permission: permission.to_owned(), patterns, always: Vec::new() };
            let found = covering(&approvals, &request)
                .map(|found| found.into_iter().map(RequestId::as_str).collect::<Vec<_>>());
            assert_eq!(found.as_deref(), expected, "{request:?}");
        }
    }
}
