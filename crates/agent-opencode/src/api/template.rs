//! What the template of a command does with what callers give it.
//!
//! OpenCode puts the arguments in the place of `$ARGUMENTS`, `$1`, `$2` …, then runs each !`...` in a shell, then reads each file
//! that is named as `@path`. It asks nobody for either.

use serde::{Deserialize, Deserializer};

/// The template itself is a whole prompt of somebody's, and is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Template {
    /// They become part of what is run.
    pub(crate) runs_arguments: bool,
    /// They become part of the name of a file.
    pub(crate) reads_arguments: bool,
}

/// What is not known may do anything.
impl Default for Template {
    fn default() -> Self {
        Self { runs_arguments: true, reads_arguments: true }
    }
}

impl Template {
    fn of(text: &str) -> Self {
        let runs_arguments = text.match_indices('!').any(|(at, _)| {
            let rest = &text[at + 1..];
            let run = rest.strip_prefix('`').and_then(|run| run.split('`').next());
            takes_at_once(rest) || run.is_some_and(takes)
        });
        let reads_arguments = text.match_indices('@').any(|(at, _)| {
            let name = text[at + 1..].split(|end: char| end.is_whitespace() || matches!(end, '`' | ','));
            name.into_iter().next().is_some_and(takes)
        });
        Self { runs_arguments, reads_arguments }
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // That of an MCP server's prompt is not told: the server makes it anew each time.
        let text = super::string_or_nothing(deserializer)?;
        Ok(text.as_deref().map_or_else(Self::default, Self::of))
    }
}

fn takes(text: &str) -> bool {
    text.match_indices('$').any(|(at, _)| takes_at_once(&text[at..]))
}

fn takes_at_once(text: &str) -> bool {
    let name = text.strip_prefix('$');
    name.is_some_and(|name| {
        name.starts_with("ARGUMENTS") || name.starts_with(|first: char| first.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_what_runs_and_what_reads_its_arguments() {
        for (text, runs, reads) in [
            ("Review $ARGUMENTS", false, false),
            ("!`git status` and then $1, `$2`", false, false),
            ("Costs $5 @all of !`ls $HOME`", false, false),
            ("!`git log $1`", true, false),
            ("!`git diff | grep $ARGUMENTS`", true, false),
            ("Now!$ARGUMENTS", true, false),
            ("Read @$1 first", false, true),
            ("Read @docs/$2.md, then @x", false, true),
            ("@src `$1`", false, false),
        ] {
            let expected = Template { runs_arguments: runs, reads_arguments: reads };
            assert_eq!(Template::of(text), expected, "{text}");
        }
        let odd: Template = serde_json::from_str("{}").unwrap();
        assert_eq!(odd, Template::default());
    }
}
