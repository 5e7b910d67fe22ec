//! Takes out of JSON what looks like a secret: by the name of the member that holds it, and by how it is written.

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
    let name = name.to_ascii_lowercase().replace(['_', ' '], "-");
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

/// A text without keys, without what follows the name of a secret (`token=…`, `Bearer …`), and without the user and password
/// of a URL. What stands around them is kept. Rather too much is taken than too little.
fn masked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut next = Next::Anything;
    for piece in text.split_inclusive(ends_word) {
        let word = piece.strip_suffix(ends_word).unwrap_or(piece);
        next = mask(word, next, &mut out);
        out.push_str(&piece[word.len()..]);
    }
    out
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || "\"'`<>(){}[],;&?|\\".contains(c)
}

/// What a word may be, by those before it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Anything,
    /// The sign between the name of a secret and its value: `password = x`, `"password": "x"`.
    Sign,
    Secret,
}

/// Writes a word, or what stands for it. Gives what the next one may be.
fn mask(word: &str, expected: Next, out: &mut String) -> Next {
    if word.is_empty() {
        return expected;
    }
    if expected != Next::Anything && word.chars().all(|c| ":=".contains(c)) {
        out.push_str(word);
        return Next::Secret;
    }
    let is_scheme = word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic");
    if expected == Next::Secret && is_scheme || word.eq_ignore_ascii_case("bearer") {
        out.push_str(word);
        return Next::Secret;
    }
    if expected == Next::Secret || is_key(word) {
        out.push_str(REDACTED);
        return Next::Anything;
    }
    if let Some((scheme, rest)) = word.split_once("://")
        && let authority = rest.split('/').next().unwrap_or_default()
        && let Some((user, _)) = authority.rsplit_once('@')
    {
        out.extend([scheme, "://", REDACTED, &rest[user.len()..]]);
        return Next::Anything;
    }
    let at = word.find([':', '=']).unwrap_or(word.len());
    let (name, value) = word.split_at(at);
    if !is_secret(name) {
        out.push_str(word);
        return Next::Anything;
    }
    match value.len() {
        0 => out.push_str(word),
        1 => {
            out.push_str(word);
            return Next::Secret;
        }
        _ => {
            out.extend([name, &value[..1], REDACTED]);
            return Next::Anything;
        }
    }
    Next::Sign
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
            ("-H 'Authorization: Bearer hunter2'", Some("-H 'Authorization: Bearer [redacted]'")),
            ("-H 'Authorization: Basic aHVudGVyMg=='", Some("-H 'Authorization: Basic [redacted]'")),
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
