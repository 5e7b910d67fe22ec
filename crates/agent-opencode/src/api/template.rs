//! The template of a command, and the text into which OpenCode expands it.
//!
//! OpenCode replaces `$1`, `$2` … by the words of the arguments, and then `$ARGUMENTS` by all arguments. If a template contains
//! none of these, the arguments are appended to it. Then OpenCode runs each !`...` of that text in a shell, and reads each file
//! that the text names as `@path`, without asking for permission for either. Template and arguments can each contribute a part of
//! such a mark. So the checks are made on the expanded text, and the code here expands a template exactly as OpenCode does.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};

/// The longest text, in bytes, into which OpenCode may expand a template. Short arguments can produce a very long text, because
/// each `$ARGUMENTS` in the first word stands for all arguments once more.
const MAX_TEXT: usize = 4 * 1024 * 1024;

const ALL_ARGUMENTS: &str = "$ARGUMENTS";

/// The template of a command. `None`: unknown, as for every prompt of an MCP server, because the server generates the template anew
/// for each request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Template(Option<Arc<str>>);

/// The text that OpenCode makes of a template.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Expanded {
    /// The template is unknown, so the text may run any command and read any file.
    Unknown,
    TooLong,
    Text(String),
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::if_valid(deserializer).map(Self)
    }
}

#[cfg(test)]
impl From<&str> for Template {
    fn from(text: &str) -> Self {
        Self(Some(text.into()))
    }
}

impl Template {
    pub(crate) fn expand(&self, arguments: &str) -> Expanded {
        let Some(template) = self.0.as_deref() else { return Expanded::Unknown };
        expand(template, arguments).map_or(Expanded::TooLong, Expanded::Text)
    }

    /// Whether the template puts arguments into a shell command. Callers without the right to run a shell may not pass arguments to
    /// such a template. So no check depends on the details of how OpenCode replaces arguments.
    pub(crate) fn runs_arguments(&self) -> bool {
        let template = self.0.as_deref().unwrap_or_default();
        let has_argument =
            |command: &str| command.contains(ALL_ARGUMENTS) || numbers(command).next().is_some();
        commands(template).into_iter().any(has_argument)
    }
}

/// The shell commands that OpenCode runs when it expands this text: each !`...` in it.
pub(crate) fn commands(text: &str) -> Vec<&str> {
    let mut commands = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("!`") {
        let Some((command, next)) = after.split_once('`') else { break };
        // An empty command does not count. Its second backtick cannot begin another command, because no `!` precedes it.
        commands.extend((!command.is_empty()).then_some(command));
        rest = next;
    }
    commands
}

/// JavaScript's definition of white space.
pub(crate) fn is_blank(letter: char) -> bool {
    letter == '\u{feff}' || (letter.is_whitespace() && letter != '\u{85}')
}

fn expand(template: &str, arguments: &str) -> Option<String> {
    let (text, has_numbers) = put_words(template, &words(arguments))?;
    if has_numbers || template.contains(ALL_ARGUMENTS) {
        return put_all(&text, arguments);
    }
    let mut text = Limited(text);
    if !arguments.trim_matches(is_blank).is_empty() {
        text.push("\n\n")?;
        text.push(arguments)?;
    }
    Some(text.0)
}

/// Replaces `$1`, `$2` …; the highest number stands for all remaining words.
fn put_words(template: &str, words: &[&str]) -> Option<(String, bool)> {
    let last = numbers(template).map(|(_, _, number)| number).max();
    let mut text = Limited::default();
    let mut from = 0;
    for (at, end, number) in numbers(template) {
        text.push(&template[from..at])?;
        let is_last = Some(number) == last;
        match number.checked_sub(1) {
            // For `$0` OpenCode's JavaScript indexes from the end: as the last number it gives the last word, otherwise
            // `undefined`.
            None if is_last => text.push(words.last().unwrap_or(&""))?,
            None => text.push("undefined")?,
            Some(index) if is_last => text.push(&words.get(index..).unwrap_or_default().join(" "))?,
            Some(index) => text.push(words.get(index).unwrap_or(&""))?,
        }
        from = end;
    }
    text.push(&template[from..])?;
    Some((text.0, last.is_some()))
}

/// Finds each `$` with a number. Returns its start, its end, and the number.
fn numbers(text: &str) -> impl Iterator<Item = (usize, usize, usize)> {
    text.match_indices('$').filter_map(|(at, _)| {
        let digits = text[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
        let end = at + 1 + digits;
        // A number that does not fit becomes the maximum. There is never a word for it.
        (digits > 0).then(|| (at, end, text[at + 1..end].parse().unwrap_or(usize::MAX)))
    })
}

/// Replaces `$ARGUMENTS`. As in JavaScript's `replace`, a dollar sign before `$`, `&`, a quote or a backtick has a special meaning
/// in the arguments.
fn put_all(text: &str, arguments: &str) -> Option<String> {
    let mut out = Limited::default();
    let mut from = 0;
    for (at, found) in text.match_indices(ALL_ARGUMENTS) {
        out.push(&text[from..at])?;
        from = at + found.len();
        let mut rest = arguments;
        while let Some((before, after)) = rest.split_once('$') {
            out.push(before)?;
            let mark = match after.bytes().next() {
                Some(b'$') => "$",
                Some(b'&') => found,
                Some(b'`') => &text[..at],
                Some(b'\'') => &text[from..],
                _ => {
                    out.push("$")?;
                    rest = after;
                    continue;
                }
            };
            out.push(mark)?;
            rest = &after[1..];
        }
        out.push(rest)?;
    }
    out.push(&text[from..])?;
    Some(out.0)
}

/// The words of the arguments. A word in quotes may contain blanks, and so may `[Image 1]`.
fn words(arguments: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = arguments;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '"' | '\'' => rest[1..].find(first).map(|end| end + 2),
            _ if is_blank(first) => None,
            _ => {
                let end = rest.find(|end| is_blank(end) || matches!(end, '"' | '\''));
                Some(image(rest).or(end).unwrap_or(rest.len()))
            }
        };
        let Some(end) = end else {
            rest = &rest[first.len_utf8()..];
            continue;
        };
        let is_quoted = matches!(first, '"' | '\'');
        words.push(if is_quoted { &rest[1..end - 1] } else { &rest[..end] });
        rest = &rest[end..];
    }
    words
}

/// The end of an image mark such as `[Image 1]`, if the text begins with one.
fn image(text: &str) -> Option<usize> {
    let head = text.get(..6).filter(|head| head.eq_ignore_ascii_case("[image"))?;
    let number = text[head.len()..].trim_start_matches(is_blank);
    let after = number.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let has_blank = head.len() + number.len() < text.len();
    let is_image = has_blank && after.len() < number.len() && after.starts_with(']');
    is_image.then(|| text.len() - after.len() + 1)
}

/// A text that does not grow beyond the limit.
#[derive(Default)]
struct Limited(String);

impl Limited {
    /// Appends text. `None`: the result would be too long.
    fn push(&mut self, text: &str) -> Option<()> {
        if self.0.len() + text.len() > MAX_TEXT {
            return None;
        }
        self.0.push_str(text);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts are those of the JavaScript in OpenCode 1.18.
    #[test]
    fn a_template_is_expanded_as_opencode_expands_it() {
        for (template, arguments, expected) in [
            ("Review $ARGUMENTS!", "a b", "Review a b!"),
            ("Review", "a b", "Review\n\na b"),
            ("Review", " \u{feff}", "Review"),
            ("$1-$2", "a b c", "a-b c"),
            ("$2-$1", "a \"b  c\" 'd'", "b  c d-a"),
            ("$1-$3", "a", "a-"),
            ("$0", "a b", "b"),
            ("$0$1", "a", "undefineda"),
            ("$01 $99999999999999999999999", "a b", "a "),
            ("$1|$2", "[Image 12] [image\t3]x", "[Image 12]|[image\t3] x"),
            ("$1|$2|$3", "[Image1] [Image 1", "[Image1]|[Image|1"),
            ("$1|$2|$3", "a\"b c\"d'e", "a|b c|d e"),
            ("$1", "\"\" '", ""),
            ("$1", "$ARGUMENTS x", "$ARGUMENTS x x"),
            ("$1: $ARGUMENTS", "$2", "$2: $2"),
            ("a $ARGUMENTS b", "$$ $& $' $` $x $", "a $ $ARGUMENTS  b a  $x $ b"),
            ("é $ARGUMENTS", "ü$é", "é ü$é"),
        ] {
            let expanded = Template::from(template).expand(arguments);
            assert_eq!(expanded, Expanded::Text(expected.to_owned()), "{template} {arguments}");
        }
        let many = "$ARGUMENTS".repeat(2000);
        assert_eq!(Template::from("$1").expand(&many), Expanded::TooLong);
        let odd: Template = serde_json::from_str("{}").unwrap();
        assert_eq!(odd.expand(""), Expanded::Unknown);
    }

    #[test]
    fn the_commands_of_a_text_are_found_as_opencode_finds_them() {
        for (text, expected) in [
            ("!`a` and !`b c`", vec!["a", "b c"]),
            ("! `a` `b` !`", vec![]),
            ("!``a`b`", vec![]),
            ("!``!`a`", vec!["a"]),
            ("!!`a\nb`!`c`", vec!["a\nb", "c"]),
        ] {
            assert_eq!(commands(text), expected, "{text}");
        }
    }
}
