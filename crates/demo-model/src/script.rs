//! Directives in a prompt, which decide the model's replies: `scn:NAME key=value key="quoted value"`.
//!
//! Several directives make a script: the first directive answers the prompt, the second answers the request that carries the
//! tool result of the first, and so on. Everything around a directive is ordinary text and is ignored.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

/// The start of a directive.
const MARK: &str = "scn:";

/// More directives in one prompt are not read. No turn gets that far.
const MAX_DIRECTIVES: usize = 1_000;

/// After so many arguments the directive ends; the rest is ordinary text.
const MAX_ARGUMENTS: usize = 64;

/// One step of a script.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Directive {
    pub name: String,
    #[serde(rename = "args")]
    arguments: BTreeMap<String, String>,
}

impl Directive {
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), arguments: BTreeMap::new() }
    }

    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.arguments.insert(key.into(), value.into());
        self
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.arguments.get(key).map(String::as_str)
    }

    /// The argument, or `otherwise` if it is not given.
    pub fn text<'a>(&'a self, key: &str, otherwise: &'a str) -> &'a str {
        self.get(key).unwrap_or(otherwise)
    }

    /// A number, or `otherwise` if the argument is missing or not a number.
    pub fn number<N: FromStr>(&self, key: &str, otherwise: N) -> N {
        self.get(key).and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    }

    /// `1` and `true` are true, everything else is false.
    pub fn flag(&self, key: &str) -> bool {
        matches!(self.get(key), Some("1" | "true"))
    }

    /// An argument in milliseconds.
    pub fn millis(&self, key: &str, otherwise: u64) -> Duration {
        Duration::from_millis(self.number(key, otherwise))
    }
}

/// The directive as a user would write it, so that a log line can be pasted into a prompt.
impl fmt::Display for Directive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK}{}", self.name)?;
        for (key, value) in &self.arguments {
            write!(f, " {key}={}", serde_json::Value::from(value.as_str()))?;
        }
        Ok(())
    }
}

/// Every directive of a prompt, in order.
pub fn parse(prompt: &str) -> Vec<Directive> {
    let mut script = Vec::new();
    let mut rest = prompt;
    while let Some(at) = rest.find(MARK) {
        if script.len() == MAX_DIRECTIVES {
            break;
        }
        rest = &rest[at + MARK.len()..];
        let (name, after) = take_word(rest);
        if name.is_empty() {
            continue;
        }
        let mut directive = Directive::new(name);
        rest = after;
        while directive.arguments.len() < MAX_ARGUMENTS
            && let Some((key, value, after)) = argument(rest)
        {
            directive.arguments.insert(key, value);
            rest = after;
        }
        script.push(directive);
    }
    script
}

/// White space and `key=value`, and the text after it.
fn argument(text: &str) -> Option<(String, String, &str)> {
    let trimmed = text.trim_start();
    if trimmed.len() == text.len() {
        return None;
    }
    let (key, rest) = take_word(trimmed);
    let rest = rest.strip_prefix('=')?;
    if key.is_empty() {
        return None;
    }
    let (value, rest) = value(rest)?;
    Some((key.to_owned(), value, rest))
}

fn value(text: &str) -> Option<(String, &str)> {
    match text.chars().next()? {
        '"' => quoted(text),
        '{' | '[' => json(text).or_else(|| bare(text)),
        _ => bare(text),
    }
}

/// A string in double quotes with JSON's escapes. A raw line break in it, which JSON forbids, is accepted.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find_map(|(at, c)| match c {
        _ if escaped => {
            escaped = false;
            None
        }
        '\\' => {
            escaped = true;
            None
        }
        '"' => Some(at),
        _ => None,
    })?;
    let (literal, rest) = text.split_at(end + 1);
    let value = serde_json::from_str(&literal.replace('\r', "\\r").replace('\n', "\\n").replace('\t', "\\t"))
        .unwrap_or_else(|_| literal[1..end].to_owned());
    Some((value, rest))
}

/// One JSON value that ends or is followed by white space, as it was written.
fn json(text: &str) -> Option<(String, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    values.next()?.ok()?;
    let (value, rest) = text.split_at(values.byte_offset());
    rest.chars().next().is_none_or(char::is_whitespace).then(|| (value.to_owned(), rest))
}

fn bare(text: &str) -> Option<(String, &str)> {
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (end > 0).then(|| (text[..end].to_owned(), &text[end..]))
}

/// The longest run of lower-case letters, digits and `_`.
fn take_word(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))
        .unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(prompt: &str, expected: &[(&str, &[(&str, &str)])]) {
        let expected: Vec<Directive> = expected
            .iter()
            .map(|(name, arguments)| {
                arguments.iter().fold(Directive::new(*name), |all, (key, value)| all.with(*key, *value))
            })
            .collect();
        assert_eq!(parse(prompt), expected, "for the prompt {prompt:?}");
    }

    #[test]
    fn directives_are_found_in_ordinary_text() {
        check("", &[]);
        check("tell me a story", &[]);
        check("scn:", &[]);
        check("scn: text", &[]);
        check("scn:text", &[("text", &[])]);
        check("please scn:text now", &[("text", &[])]);
        check("say (scn:empty) or not", &[("empty", &[])]);
        check("scn:plan_exit", &[("plan_exit", &[])]);
        check("scn:text scn:long", &[("text", &[]), ("long", &[])]);
        check("scn:Text", &[]);
    }

    #[test]
    fn arguments_are_bare_quoted_or_json() {
        check("scn:text n=3 size=10", &[("text", &[("n", "3"), ("size", "10")])]);
        check("scn:text\n  n=3\n  size=10\n", &[("text", &[("n", "3"), ("size", "10")])]);
        check("scn:read path=a/b.txt, then", &[("read", &[("path", "a/b.txt,")])]);
        check(r#"scn:bash cmd="echo hi" desc="say""#, &[("bash", &[("cmd", "echo hi"), ("desc", "say")])]);
        check(r#"scn:bash cmd="a \"b\" \\ c\nd""#, &[("bash", &[("cmd", "a \"b\" \\ c\nd")])]);
        check("scn:write content=\"two\nlines\"", &[("write", &[("content", "two\nlines")])]);
        check(r#"scn:write content="bad \q escape""#, &[("write", &[("content", r"bad \q escape")])]);
        check(r#"scn:write content="" path=x"#, &[("write", &[("content", ""), ("path", "x")])]);
        check(
            r#"scn:tool name=bash args={"command": "echo {}", "n": [1]} pre=x"#,
            &[("tool", &[("name", "bash"), ("args", r#"{"command": "echo {}", "n": [1]}"#), ("pre", "x")])],
        );
        check("scn:tool args={broken json", &[("tool", &[("args", "{broken")])]);
        check("scn:bash cmd=größe", &[("bash", &[("cmd", "größe")])]);
        check("scn:text n=1 n=2", &[("text", &[("n", "2")])]);
    }

    #[test]
    fn text_that_is_no_argument_ends_the_directive() {
        check("scn:text n=3 and more n=4", &[("text", &[("n", "3")])]);
        check("scn:text =3", &[("text", &[])]);
        check("scn:text n= 3", &[("text", &[])]);
        check("scn:text, n=3", &[("text", &[])]);
        check(r#"scn:bash cmd="never closed"#, &[("bash", &[])]);
        check("scn:text n=3 scn:text n=4", &[("text", &[("n", "3")]), ("text", &[("n", "4")])]);
    }

    #[test]
    fn a_script_inside_a_quoted_argument_belongs_to_the_argument() {
        check(
            r#"scn:task prompt="scn:bash cmd=\"touch y\" scn:text" scn:text n=2"#,
            &[("task", &[("prompt", r#"scn:bash cmd="touch y" scn:text"#)]), ("text", &[("n", "2")])],
        );
    }

    #[test]
    fn a_directive_is_displayed_as_it_is_written() {
        for prompt in [r#"scn:bash cmd="echo \"hi\"" delay="3""#, "scn:empty", r#"scn:text text="a\nb""#] {
            let script = parse(prompt);
            assert_eq!(script.len(), 1);
            assert_eq!(script[0].to_string(), prompt);
        }
    }

    #[test]
    fn the_number_of_directives_and_arguments_is_bounded() {
        assert_eq!(parse(&"scn:text ".repeat(MAX_DIRECTIVES + 5)).len(), MAX_DIRECTIVES);
        let many: Vec<String> = (0..MAX_ARGUMENTS + 5).map(|i| format!("k{i}=1")).collect();
        let many = format!("scn:text {}", many.join(" "));
        assert_eq!(parse(&many)[0].arguments.len(), MAX_ARGUMENTS);
    }

    #[test]
    fn unusable_numbers_give_the_default() {
        let directive = Directive::new("text").with("n", "many").with("size", "7").with("times", "-1");
        assert_eq!(directive.number("n", 5_u64), 5);
        assert_eq!(directive.number("size", 5_u64), 7);
        assert_eq!(directive.number("times", 2_u32), 2);
        assert_eq!(directive.number("absent", 9_u8), 9);
    }
}
