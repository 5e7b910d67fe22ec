//! Makes a text of an agent, or of its model's provider, safe to show to a caller.
//!
//! Errors contain stack traces, server paths, URLs and request headers. A caller may see what went wrong, but not where the
//! gateway, the agent and the provider run.

/// Maximum length of a public text, in characters. A longer text is cut and ends with an ellipsis.
pub const MAX_CHARS: usize = 512;

const PATH: &str = "<redacted-path>";
const ADDRESS: &str = "<redacted-url>";
const KEY: &str = "<redacted-key>";

/// The beginnings of keys and tokens of model providers and code hosts, which providers may repeat in their errors.
const KEY_BEGINNINGS: [&str; 14] = [
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
    "github_pat_",
    "glpat-",
    "eyJ",
];

/// Minimum length of a key. A shorter word with such a beginning is an ordinary word.
const MIN_KEY_CHARS: usize = 12;

/// Masks absolute paths, URLs and keys, drops a stack trace, extracts the message of a JSON error, and cuts at [`MAX_CHARS`].
pub fn public(text: &str) -> String {
    let sentence = sentence_of(text);
    let sentence = without_stack(&sentence);
    let mut out = String::with_capacity(sentence.len().min(4 * MAX_CHARS));
    for piece in sentence.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end_matches(char::is_whitespace);
        mask(word, &mut out);
        out.push_str(&piece[word.len()..]);
    }
    cut(out.trim())
}

/// Masks keys and changes nothing else. For the gateway's own log.
pub fn keys(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    mask_keys(text, &mut out);
    out
}

/// Cuts at [`MAX_CHARS`] characters and changes nothing else.
pub fn cut(text: &str) -> String {
    cut_at(text, MAX_CHARS)
}

/// Cuts at `max_chars` characters and changes nothing else.
pub fn cut_at(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        None => text.to_owned(),
        Some(_) => text.chars().take(max_chars - 1).chain(['…']).collect(),
    }
}

/// Extracts the message from a provider's error object, which arrives as JSON text. Only the message helps a caller.
fn sentence_of(text: &str) -> String {
    let found = serde_json::from_str::<serde_json::Value>(text).ok().and_then(|value| {
        let inner = value.get("error").unwrap_or(&value);
        ["message", "detail", "error"].iter().find_map(|key| inner.get(key)?.as_str().map(str::to_owned))
    });
    found.unwrap_or_else(|| text.to_owned())
}

fn without_stack(text: &str) -> &str {
    text.find("\n    at ").map_or(text, |start| &text[..start])
}

/// Masks one word. The punctuation around the masked text stays.
fn mask(word: &str, out: &mut String) {
    let lower = word.to_ascii_lowercase();
    let found = ["http://", "https://", "ws://", "wss://", "file://"]
        .iter()
        .filter_map(|scheme| {
            lower.find(scheme).map(|at| (at, if *scheme == "file://" { PATH } else { ADDRESS }))
        })
        .min_by_key(|(at, _)| *at)
        .or_else(|| path_start(word).map(|at| (at, PATH)));
    let Some((start, replacement)) = found else {
        mask_keys(word, out);
        return;
    };
    let tail = word[start..].trim_end_matches(|c: char| !c.is_alphanumeric() && c != '/' && c != '\\');
    mask_keys(&word[..start], out);
    out.push_str(replacement);
    out.push_str(&word[start + tail.len()..]);
}

/// Masks the keys in a text, keeping the characters around them: `(key=sk-...)`.
fn mask_keys(text: &str, out: &mut String) {
    let in_key = |c: char| c.is_ascii_alphanumeric() || "-_.*".contains(c);
    let mut rest = text;
    while let Some(start) = rest.find(in_key) {
        let end = rest[start..].find(|c| !in_key(c)).map_or(rest.len(), |length| start + length);
        // A full stop after a key ends the sentence.
        let run = rest[start..end].trim_end_matches('.');
        let masked =
            run.len() >= MIN_KEY_CHARS && KEY_BEGINNINGS.iter().any(|beginning| run.starts_with(beginning));
        out.push_str(&rest[..start]);
        out.push_str(if masked { KEY } else { run });
        out.push_str(&rest[start + run.len()..end]);
        rest = &rest[end..];
    }
    out.push_str(rest);
}

/// The start of an absolute path in a word: `/a`, `C:\a`, `\\host`. A slash inside a word (`and/or`, `text/plain`, `../x`) does not
/// start a path.
fn path_start(word: &str) -> Option<usize> {
    let bytes = word.as_bytes();
    let opens = |at: usize| {
        at == 0 || !(bytes[at - 1].is_ascii_alphanumeric() || b"./\\_-~".contains(&bytes[at - 1]))
    };
    (0..bytes.len()).find(|&at| match &bytes[at..] {
        [b'/', next, ..] => opens(at) && (next.is_ascii_alphanumeric() || b"._$@~".contains(next)),
        [b'~', b'/', ..] => opens(at),
        [drive, b':', b'\\' | b'/', ..] => opens(at) && drive.is_ascii_alphabetic(),
        [b'\\', b'\\', next, ..] => opens(at) && next.is_ascii_alphanumeric(),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_and_other_text_is_kept() {
        let cases = [
            ("Incorrect API key provided", "Incorrect API key provided"),
            ("cannot open /home/me/project/a.rs: denied", "cannot open <redacted-path>: denied"),
            ("cannot open '/home/me/a.rs'.", "cannot open '<redacted-path>'."),
            ("path=/etc/passwd", "path=<redacted-path>"),
            ("(C:\\Users\\me\\x.txt)", "(<redacted-path>)"),
            ("\\\\host\\share", "<redacted-path>"),
            ("~/secret", "<redacted-path>"),
            ("see file:///srv/x", "see <redacted-path>"),
            ("POST https://api.example.com/v1/chat failed", "POST <redacted-url> failed"),
            ("(http://127.0.0.1:4999/v1)", "(<redacted-url>)"),
            ("either/or text/plain ../up ./here a/b 1 / 2", "either/or text/plain ../up ./here a/b 1 / 2"),
            (
                "ProviderModelNotFoundError: Model not found: nope/nope.\n    at <anonymous> (/$bunfs/x.js:1:2)",
                "ProviderModelNotFoundError: Model not found: nope/nope.",
            ),
            ("{\"message\":\"model melted\",\"type\":\"odd\"}", "model melted"),
            ("{\"error\":{\"message\":\"at /srv/x\"}}", "at <redacted-path>"),
            ("{\"code\":4}", "{\"code\":4}"),
            (
                "Incorrect API key provided: sk-proj-0123456789abcdef.",
                "Incorrect API key provided: <redacted-key>.",
            ),
            ("(key=\"AIzaSyA0123456789\")", "(key=\"<redacted-key>\")"),
            ("invalid token ghp_0123456789abcdef, sorry", "invalid token <redacted-key>, sorry"),
            ("sk-proj-********************cdef at https://x.y/z", "<redacted-key> at <redacted-url>"),
            (
                "the sk-learn task, a risk-free sk-1 and gsk_ too",
                "the sk-learn task, a risk-free sk-1 and gsk_ too",
            ),
            ("two\nlines  kept", "two\nlines  kept"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(public(text), expected, "{text:?}");
        }
    }

    #[test]
    fn redacting_twice_changes_nothing() {
        for text in ["cannot open /home/me/a.rs: https://x.y/z", "C:\\a b", "sk-proj-0123456789"] {
            let once = public(text);
            assert_eq!(public(&once), once);
        }
    }

    #[test]
    fn overlong_texts_are_cut_at_characters() {
        let long = "é".repeat(MAX_CHARS + 1);
        let public = public(&long);
        assert_eq!(public.chars().count(), MAX_CHARS);
        assert!(public.ends_with('…'));
        assert_eq!(super::public(&"é".repeat(MAX_CHARS)).chars().count(), MAX_CHARS);
        assert!(!super::public(&"é".repeat(MAX_CHARS)).contains('…'));
    }
}
