//! What the template of a command does with the caller's arguments.
//!
//! OpenCode puts the arguments in place of `$ARGUMENTS`, `$1`, `$2` …, then runs each !`...` in a shell, then reads each file
//! that is named as `@path`. It asks for no permission before it runs a shell or reads a file.

use serde::{Deserialize, Deserializer};

/// The text of the template is a whole prompt of its author, and is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Template {
    /// The arguments become part of a shell command.
    pub(crate) runs_arguments: bool,
    /// The arguments become part of a file name.
    pub(crate) reads_arguments: bool,
}

/// An unknown template may do anything.
impl Default for Template {
    fn default() -> Self {
        Self { runs_arguments: true, reads_arguments: true }
    }
}

impl Template {
    fn parse(text: &str) -> Self {
        let runs_arguments = text.match_indices('!').any(|(at, _)| {
            let rest = &text[at + 1..];
            let run = rest.strip_prefix('`').and_then(|run| run.split('`').next());
            starts_with_argument(rest) || run.is_some_and(has_argument)
        });
        let reads_arguments = text.match_indices('@').any(|(at, _)| {
            let name = text[at + 1..].split(|end: char| end.is_whitespace() || matches!(end, '`' | ','));
            name.into_iter().next().is_some_and(has_argument)
        });
        Self { runs_arguments, reads_arguments }
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // OpenCode reports no template for the prompt of an MCP server: the server makes it on each request.
        let text: Option<String> = super::if_valid(deserializer)?;
        Ok(text.as_deref().map_or_else(Self::default, Self::parse))
    }
}

fn has_argument(text: &str) -> bool {
    text.match_indices('$').any(|(at, _)| starts_with_argument(&text[at..]))
}

fn starts_with_argument(text: &str) -> bool {
    let name = text.strip_prefix('$');
    name.is_some_and(|name| {
        name.starts_with("ARGUMENTS") || name.starts_with(|first: char| first.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_shows_whether_it_runs_or_reads_its_arguments() {
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
            assert_eq!(Template::parse(text), expected, "{text}");
        }
        let odd: Template = serde_json::from_str("{}").unwrap();
        assert_eq!(odd, Template::default());
    }
}
