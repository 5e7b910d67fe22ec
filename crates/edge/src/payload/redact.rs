//! Takes out of JSON what looks like a secret: by the name of the member that holds it, and by how it is written.

mod ends;

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

use self::ends::{
    Quote, end_in_quotes, end_of_brackets, end_of_line, end_of_value, is_quote, one_value, quoted,
};

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
    let (mut at, mut quotes) = (0, Quotes::default());
    while at < text.len() {
        let rest = &text[at..];
        let word = &rest[..rest.find(ends_word).unwrap_or(rest.len())];
        let user = user_of_url(rest, word);
        // A name within the user of a URL is a part of the user.
        let named = user.as_ref().map_or(word, |user| &word[..user.start]);
        if let Some(secret) = behind_name(&text, at, named, &quotes) {
            let name = named[..named.len().min(secret.start)].trim_end_matches(SIGNS);
            mask_word(name, &mut out);
            out.extend([&rest[name.len()..secret.start], REDACTED]);
            at += secret.end;
            quotes.last = None;
        } else if let Some(user) = user {
            mask_word(&rest[..user.start], &mut out);
            out.push_str(REDACTED);
            at += user.end;
        } else {
            mask_word(word, &mut out);
            at += word.len();
            if let Some(c) = text[at..].chars().next() {
                quotes.pass(c, !word.is_empty());
                out.push(c);
                at += c.len_utf8();
            }
        }
    }
    out
}

/// The quotes of a line up to a word.
#[derive(Debug, Default)]
struct Quotes {
    /// What has begun and not ended.
    open: Vec<Quote>,
    /// The one that stands right before the word.
    last: Option<Quote>,
    escapes: usize,
}

impl Quotes {
    /// Takes in what stands between two words.
    fn pass(&mut self, c: char, is_behind_word: bool) {
        let escapes = if is_behind_word { 0 } else { self.escapes };
        self.last = Quote::new(c, escapes);
        self.escapes = if c == '\\' { escapes + 1 } else { 0 };
        if let Some(quote) = self.last {
            match self.open.iter().position(|open| *open == quote) {
                Some(begun) => self.open.truncate(begun),
                None => self.open.push(quote),
            }
        } else if c == '\n' {
            self.open.clear();
        }
    }
}

/// The user and password of a URL that a text begins with.
fn user_of_url(text: &str, word: &str) -> Option<Range<usize>> {
    let start = word.find("://")? + "://".len();
    let ends = |c: char| c.is_whitespace() || is_quote(c) || "/?#<>\\".contains(c);
    let authority = text[start..].split(ends).next()?;
    Some(start..start + authority.rfind('@')?)
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || is_quote(c) || "<>(){}[],;&?|\\".contains(c)
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
        if title.contains("PRIVATE KEY") {
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

/// Where the secret is, counted from a word that is the name of one.
fn behind_name(whole: &str, at: usize, word: &str, quotes: &Quotes) -> Option<Range<usize>> {
    let text = &whole[at..];
    let behind_word = &text[word.len()..];
    let name_end = secret_name_end(word)?;
    let name = Name { whole, at, text: &word[..name_end], is_quoted: false, quotes };
    if let Some(sign) = word[name_end..].find(SIGNS) {
        return name.value(name_end + sign);
    }
    let at_sign = text.len()
        - behind_word.trim_start_matches(|c| c == '\\' || is_quote(c) || c == ' ' || c == '\t').len();
    if text[at_sign..].starts_with(SIGNS) {
        let is_quoted = behind_word.trim_start_matches('\\').starts_with(is_quote);
        return Name { text: word, is_quoted, ..name }.value(at_sign);
    }
    if word.eq_ignore_ascii_case("bearer") || word.starts_with('-') {
        let start = text.len() - behind_word.trim_start().len();
        return Some(one_value(text, start, &quotes.open)).filter(|secret| !secret.is_empty());
    }
    None
}

const SIGNS: [char; 2] = [':', '='];

/// The name of a secret, as it stands in a text.
struct Name<'a> {
    whole: &'a str,
    at: usize,
    text: &'a str,
    /// As in JSON: it is in quotes itself.
    is_quoted: bool,
    /// Those before it.
    quotes: &'a Quotes,
}

impl Name<'_> {
    /// Where its value is, behind a sign. Counted from the name, as the sign is.
    fn value(&self, at_sign: usize) -> Option<Range<usize>> {
        let text = &self.whole[self.at..];
        let behind = text[at_sign..].trim_start_matches(SIGNS);
        let start = text.len() - behind.trim_start().len();
        let is_close = text[at_sign..].starts_with('=') && behind.len() == text.len() - start;
        if start == text.len() {
            return None;
        }
        // A header has several words and parts.
        let is_line = !self.is_quoted && (!is_close || is_header(self.text));
        let secret = if is_line {
            start..self.end_of_lines(start, text[at_sign..start].contains('\n'))
        } else if !self.is_quoted {
            one_value(text, start, &self.quotes.open)
        } else if let Some(quoted) = quoted(text, start) {
            let behind = text[quoted.end..].trim_start_matches('\\');
            let behind = behind.strip_prefix(is_quote).unwrap_or(behind).trim_start_matches([' ', '\t']);
            // It may be put together from several.
            if behind.is_empty() || behind.starts_with(|c| ",}]);\\\n\r".contains(c)) {
                quoted
            } else {
                start..end_of_line(text, quoted.end)
            }
        } else if text[start..].starts_with(['{', '[']) {
            start..end_of_brackets(text, start, |_| false)
        } else if text[start..].starts_with(BLOCKS) {
            start..self.end_of_lines(start, false)
        } else {
            start..text[start..].find([',', '}', ']', '\n']).map_or(text.len(), |end| start + end)
        };
        // The quote that ends it may be an escaped one.
        let kept = text[secret.clone()].trim_end_matches('\\').len();
        Some(secret.start..secret.start + kept)
    }

    /// Where a value ends that has its line for itself, and maybe some that follow.
    fn end_of_lines(&self, start: usize, is_below: bool) -> usize {
        let text = &self.whole[self.at..];
        let end = match self.quotes.last.filter(|_| !self.is_quoted) {
            Some(quote) => end_in_quotes(text, start, quote),
            // What is in quotes or brackets may go on in the next line.
            None if quoted(text, start).is_some() => {
                end_of_line(text, end_of_value(text, start, &self.quotes.open))
            }
            None => end_of_line(text, start),
        };
        let value = &text[start..end];
        if value.starts_with(['{', '[']) {
            return end.max(end_of_brackets(text, start, |_| false));
        }
        let ends_in_block = value.split_whitespace().next_back().is_some_and(|word| {
            word.starts_with(BLOCKS) && word[1..].chars().all(|c| c.is_ascii_digit() || "+-".contains(c))
        });
        let is_block = is_below || ends_in_block || value.starts_with(BLOCKS);
        if is_block { self.end_of_block(end) } else { end }
    }

    /// Where the lines end that follow and belong to the name's line, as they are further in.
    fn end_of_block(&self, first_end: usize) -> usize {
        let mut end = self.at + first_end;
        let Some(below) = self.whole[end..].trim_start_matches('\r').strip_prefix('\n') else {
            return first_end;
        };
        let line_start = self.whole[..self.at].rfind('\n').map_or(0, |newline| newline + 1);
        let indent = indent_of(&self.whole[line_start..]);
        let mut at = self.whole.len() - below.len();
        for line in below.split_inclusive('\n') {
            let is_empty = line.trim().is_empty();
            if !is_empty && indent_of(line) <= indent {
                break;
            }
            if !is_empty {
                end = at + line.trim_end_matches(['\n', '\r']).len();
            }
            at += line.len();
        }
        end - self.at
    }
}

/// How blocks of YAML begin.
const BLOCKS: [char; 2] = ['|', '>'];

/// How far in a line begins. The signs of lists and of diffs are as good as spaces.
fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '\t', '+', '-']).len()
}

fn is_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("authorization") || name.ends_with("cookie")
}

/// Writes a word, or what stands for it.
fn mask_word(word: &str, out: &mut String) {
    out.push_str(if is_key(word) { REDACTED } else { word });
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
mod tests;
