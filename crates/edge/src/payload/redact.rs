//! Takes out of JSON what looks like a secret: by the name of the member that holds it, and by how it is written.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

const REDACTED: &str = "[redacted]";

/// A member whose name has one of these in it holds a secret, whatever it holds. Names are compared in small letters and with
/// `-` for `_`.
const SECRET_NAMES: [&str; 10] = [
    "api-key",
    "apikey",
    "authorization",
    "bearer",
    "cookie",
    "credential",
    "passw",
    "private-key",
    "secret",
    "token",
];

/// How keys and tokens of model providers and code hosts begin.
const KEY_BEGINNINGS: [&str; 17] = [
    "sk-",
    "sk_",
    "rk_",
    "pk-",
    "gsk_",
    "xai-",
    "hf_",
    "AIza",
    "AKIA",
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "eyJ",
];

/// A key is at least this long; a shorter word with such a beginning is a word.
const MIN_KEY_CHARS: usize = 12;

/// The same JSON on one line, without what looks like a secret. `None`: it is no JSON.
pub(super) fn json(body: &[u8]) -> Option<String> {
    let mut value: Value = serde_json::from_slice(body).ok()?;
    redact(&mut value);
    Some(value.to_string())
}

fn redact(value: &mut Value) {
    match value {
        Value::String(text) => *text = masked(text),
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                if is_secret(name) {
                    *member = Value::from(REDACTED);
                } else {
                    redact(member);
                }
            }
            // The name itself may be one.
            if members.keys().any(|name| masked(name) != *name) {
                *members =
                    std::mem::take(members).into_iter().map(|(name, it)| (masked(&name), it)).collect();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_secret(name: &str) -> bool {
    secret_name_end(name).is_some()
}

/// Where the name of a secret ends that stands in a text.
fn secret_name_end(text: &str) -> Option<usize> {
    let text = text.to_ascii_lowercase().replace(['_', ' '], "-");
    SECRET_NAMES.iter().filter_map(|secret| Some(text.find(secret)? + secret.len())).min()
}

/// A text without keys, without what follows the name of a secret (`token=…`, `Cookie: …`, `--password …`, `Bearer …`), and
/// without the user and password of a URL. What stands around them is kept. Rather too much is taken than too little.
pub(super) fn masked(text: &str) -> String {
    let text = without_private_keys(text);
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut before) = (&*text, None);
    while !rest.is_empty() {
        let word = &rest[..rest.find(ends_word).unwrap_or(rest.len())];
        if let Some(secret) = behind_name(rest, word, before) {
            out.push_str(&rest[..secret.start]);
            out.push_str(REDACTED);
            (rest, before) = (&rest[secret.end..], None);
        } else {
            mask_word(word, &mut out);
            rest = &rest[word.len()..];
            before = rest.chars().next();
            out.extend(before);
            rest = &rest[before.map_or(0, char::len_utf8)..];
        }
    }
    out
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || is_quote(c) || "<>(){}[],;&?|\\".contains(c)
}

fn is_quote(c: char) -> bool {
    "\"'`".contains(c)
}

/// Keys as files have them, from their first line to their last.
fn without_private_keys(text: &str) -> Cow<'_, str> {
    const BEGIN: &str = "-----BEGIN ";
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(BEGIN) {
        let (before, block) = rest.split_at(start);
        let title = block[BEGIN.len()..].split("-----").next().unwrap_or_default();
        out.push_str(before);
        if title.ends_with("PRIVATE KEY") {
            out.push_str(REDACTED);
            let end = format!("-----END {title}-----");
            rest = block.find(&end).map_or("", |at| &block[at + end.len()..]);
        } else {
            out.push_str(BEGIN);
            rest = &block[BEGIN.len()..];
        }
    }
    if out.is_empty() {
        return text.into();
    }
    out.push_str(rest);
    out.into()
}

/// Where the secret is, if a text begins with a word that is the name of one. `before`: what stands before the word.
fn behind_name(text: &str, word: &str, before: Option<char>) -> Option<Range<usize>> {
    let behind_word = &text[word.len()..];
    let name_end = secret_name_end(word)?;
    if let Some(sign) = word[name_end..].find(SIGNS) {
        let name = Name { text: &word[..name_end], is_quoted: false, quote: before.filter(|c| is_quote(*c)) };
        return name.value(text, name_end + sign);
    }
    let at_sign = text.len()
        - behind_word.trim_start_matches(|c| c == '\\' || is_quote(c) || c == ' ' || c == '\t').len();
    if text[at_sign..].starts_with(SIGNS) {
        let is_quoted = behind_word.trim_start_matches('\\').starts_with(is_quote);
        let quote = before.filter(|c| is_quote(*c) && !is_quoted);
        return Name { text: word, is_quoted, quote }.value(text, at_sign);
    }
    if word.eq_ignore_ascii_case("bearer") || word.starts_with('-') {
        let start = text.len() - behind_word.trim_start().len();
        return Some(quoted(text, start).unwrap_or_else(|| start..end_of_word(text, start)))
            .filter(|secret| !secret.is_empty());
    }
    None
}

const SIGNS: [char; 2] = [':', '='];

/// The name of a secret, as it stands in a text.
struct Name<'a> {
    text: &'a str,
    /// As in JSON: it is in quotes itself.
    is_quoted: bool,
    /// It is the first word of what is in quotes.
    quote: Option<char>,
}

impl Name<'_> {
    /// Where its value is, behind a sign.
    fn value(&self, text: &str, at_sign: usize) -> Option<Range<usize>> {
        let behind = text[at_sign..].trim_start_matches(SIGNS);
        let start = text.len() - behind.trim_start().len();
        let is_close = text[at_sign..].starts_with('=') && behind.len() == text.len() - start;
        if start == text.len() {
            return None;
        }
        let in_quotes = quoted(text, start);
        // A header has several words and parts.
        let is_line = !self.is_quoted && (!is_close || is_header(self.text));
        let secret = if is_line {
            let end = text[start..].find(|c| c == '\n' || c == '\r' || Some(c) == self.quote);
            let end = end.map_or(text.len(), |end| start + end);
            // What is in quotes may go on in the next line.
            let end = end.max(in_quotes.filter(|_| self.quote.is_none()).map_or(0, |quoted| quoted.end));
            start..end
        } else if let Some(quoted) = in_quotes {
            quoted
        } else if text[start..].starts_with(['{', '[']) {
            start..end_of_brackets(text, start)
        } else if self.is_quoted {
            start..text[start..].find([',', '}', ']', '\n']).map_or(text.len(), |end| start + end)
        } else {
            start..end_of_word(text, start)
        };
        // The quote that ends it may be an escaped one.
        let kept = text[secret.clone()].trim_end_matches('\\').len();
        Some(secret.start..secret.start + kept)
    }
}

fn is_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("authorization") || name.ends_with("cookie")
}

/// What is between the quotes that begin here, if one does. They may be escaped themselves.
fn quoted(text: &str, start: usize) -> Option<Range<usize>> {
    let escapes = text[start..].len() - text[start..].trim_start_matches('\\').len();
    let quote = text[start + escapes..].chars().next().filter(|c| is_quote(*c))?;
    let inner = start + escapes + quote.len_utf8();
    let mut run = 0;
    for (at, c) in text[inner..].char_indices() {
        // More escapes than the first quote has: it is within another text.
        if c == quote && run <= escapes {
            return Some(inner..inner + at - run);
        }
        run = if c == '\\' { run + 1 } else { 0 };
    }
    Some(inner..text.len())
}

/// Where the brackets that begin here are closed, or the text ends.
fn end_of_brackets(text: &str, start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, c) in text[start..].char_indices() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return start + at + 1;
        }
    }
    text.len()
}

/// A secret may have any sign in it but those that end a word everywhere.
fn end_of_word(text: &str, start: usize) -> usize {
    let ends = |c: char| c.is_whitespace() || is_quote(c) || c == '&';
    text[start..].find(ends).map_or(text.len(), |end| start + end)
}

/// Writes a word that is no name of a secret, or what stands for it.
fn mask_word(word: &str, out: &mut String) {
    if is_key(word) {
        out.push_str(REDACTED);
    } else if let Some((scheme, rest)) = word.split_once("://")
        && let authority = rest.split('/').next().unwrap_or_default()
        && let Some((user, _)) = authority.rsplit_once('@')
    {
        out.extend([scheme, "://", REDACTED, &rest[user.len()..]]);
    } else {
        out.push_str(word);
    }
}

/// Whether a word is a key, or has one behind a sign: `key=sk-…`.
fn is_key(word: &str) -> bool {
    KEY_BEGINNINGS.iter().any(|beginning| {
        word.match_indices(beginning).any(|(at, _)| {
            word.len() - at >= MIN_KEY_CHARS && !word[..at].ends_with(|c: char| c.is_ascii_alphanumeric())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_with_the_name_of_a_secret_is_not_told() {
        for name in [
            "api_key",
            "apiKey",
            "x-api-key",
            "X_API_KEY",
            "authorization",
            "Proxy-Authorization",
            "bearer",
            "cookie",
            "Set-Cookie",
            "credentials",
            "awsCredential",
            "password",
            "db passwd",
            "passwörd-password",
            "client_secret",
            "token",
            "accessToken",
            "private_key",
        ] {
            for value in ["\"hunter2\"", "[\"hunter2\"]", "{\"a\":{\"b\":\"hunter2\"}}", "42", "null"] {
                let body = format!("{{\"x\":[{{\"{name}\":{value},\"kept\":1}}]}}");
                let expected = format!("{{\"x\":[{{\"{name}\":\"[redacted]\",\"kept\":1}}]}}");
                assert_eq!(json(body.as_bytes()).unwrap(), expected);
            }
        }
        // Also when the name is written with escapes.
        assert_eq!(json(br#"{"pass\u0077ord":"hunter2"}"#).unwrap(), r#"{"password":"[redacted]"}"#);
        for name in ["messageId", "text", "key", "author", "pass", "parts"] {
            let body = format!("{{\"{name}\":\"hunter2\"}}");
            assert_eq!(json(body.as_bytes()).unwrap(), body);
        }
    }

    #[test]
    fn a_text_keeps_everything_but_the_secrets_in_it() {
        let cases = [
            ("a plain text, with (signs) and https://example.com/x?y=1", None),
            ("the token is in my head; no password today", None),
            ("sk-1 is no key", None),
            ("use sk-abcdefghijkl now", Some("use [redacted] now")),
            ("(key=AKIAABCDEFGHIJKL)", Some("([redacted])")),
            ("ghp_0123456789abcdef.", Some("[redacted]")),
            ("Bearer hunter2", Some("Bearer [redacted]")),
            ("-H 'Authorization: Bearer hunter2' x", Some("-H 'Authorization: [redacted]' x")),
            ("-H 'Authorization: Basic aHVudGVyMg=='", Some("-H 'Authorization: [redacted]'")),
            (r#"-H \"Authorization: Token hunter2\" x"#, Some(r#"-H \"Authorization: [redacted]\" x"#)),
            ("Authorization: Token hunter2\nHost: a", Some("Authorization: [redacted]\nHost: a")),
            ("authorization=Bearer hunter2", Some("authorization=[redacted]")),
            (
                "Authorization: Digest username=\"me\", response=\"hunter2\"",
                Some("Authorization: [redacted]"),
            ),
            ("Cookie: a=1; session=hunter2\nrest", Some("Cookie: [redacted]\nrest")),
            ("curl --token hunter2 https://a.example", Some("curl --token [redacted] https://a.example")),
            ("x --db-password 'correct horse' y", Some("x --db-password '[redacted]' y")),
            ("x --password=hunter2 y", Some("x --password=[redacted] y")),
            ("PASSWORD=\"correct horse\" run", Some("PASSWORD=\"[redacted]\" run")),
            ("PASSWORD=hunt;er(2) run", Some("PASSWORD=[redacted] run")),
            ("password: correct horse\nrest", Some("password: [redacted]\nrest")),
            (r#"{"password":"correct horse \"battery\"","a":1}"#, Some(r#"{"password":"[redacted]","a":1}"#)),
            (r#"{\"password\":\"correct horse\",\"a\":1}"#, Some(r#"{\"password\":\"[redacted]\",\"a\":1}"#)),
            (r#"{"token": 42, "a": 1}"#, Some(r#"{"token": [redacted], "a": 1}"#)),
            (
                "{\"credentials\": {\n\"x\": [\"hunter2\"]}, \"a\": 1}",
                Some("{\"credentials\": [redacted], \"a\": 1}"),
            ),
            ("my secret:", None),
            (
                "a\n-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\nb",
                Some("a\n[redacted]\nb"),
            ),
            ("a -----BEGIN PRIVATE KEY-----\\nhunter2", Some("a [redacted]")),
            ("-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----", None),
            ("x-api-key: hunter2", Some("x-api-key: [redacted]")),
            ("PASSWORD=hunter2 run", Some("PASSWORD=[redacted] run")),
            ("password = hunter2", Some("password = [redacted]")),
            (
                "https://a.example/?access_token=hunter2&x=1",
                Some("https://a.example/?access_token=[redacted]&x=1"),
            ),
            ("https://me:hunter2@a.example/x", Some("https://[redacted]@a.example/x")),
            ("postgres://hunter2@db", Some("postgres://[redacted]@db")),
            (r#"{"api_key":"hunter2","a":1}"#, Some(r#"{"api_key":"[redacted]","a":1}"#)),
            (r#"{\"api_key\": \"hunter2\"}"#, Some(r#"{\"api_key\": \"[redacted]\"}"#)),
            ("secret:\nhunter2\nrest", Some("secret:\n[redacted]\nrest")),
        ];
        for (text, expected) in cases {
            assert_eq!(masked(text), expected.unwrap_or(text));
            let body = serde_json::json!({"parts": [{"text": text}]}).to_string();
            let expected = serde_json::json!({"parts": [{"text": expected.unwrap_or(text)}]}).to_string();
            assert_eq!(json(body.as_bytes()).unwrap(), expected);
        }
        assert_eq!(json(br#"{"sk-abcdefghijkl":1,"b":2}"#).unwrap(), r#"{"[redacted]":1,"b":2}"#);
    }

    #[test]
    fn what_is_no_json_is_not_written() {
        for body in ["", "{", "hunter2", "{\"a\":1} x", "\u{0}"] {
            assert_eq!(json(body.as_bytes()), None, "{body}");
        }
        assert_eq!(json(&"[".repeat(100_000).into_bytes()), None);
    }
}
