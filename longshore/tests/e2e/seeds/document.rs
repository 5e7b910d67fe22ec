//! Finds the examples in the text of a seed. The seeds are not part of this repository.

use std::path::Path;

use serde_json::Value;

/// The two seeds with examples, by the number in their file name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seed {
    /// The guide of a gateway for OpenCode, of A2A 0.3.
    Guide,
    /// The reference of a server of A2A 1.0.
    Reference,
}

#[derive(Clone, Debug)]
pub(super) struct Example {
    /// The JSON-RPC method, or the verb and path, or the first key of JSON, or the first word.
    pub(super) calls: String,
    /// The text of the example.
    pub(super) text: String,
    line: usize,
}

impl Seed {
    /// All lines of the seed.
    pub(super) fn lines(self) -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/seeds");
        assert!(
            folder.is_dir(),
            "the seeds are not in ../shared/seeds beside the checkout; `make test` leaves these tests out then, and says so"
        );
        let prefix = match self {
            Self::Guide => "000_",
            Self::Reference => "002_",
        };
        let mut files = std::fs::read_dir(&folder).expect("the folder can be read").flatten();
        let file = files.find(|file| file.file_name().to_string_lossy().starts_with(prefix));
        let file = file.unwrap_or_else(|| panic!("no seed {prefix} in {}", folder.display()));
        let text = std::fs::read_to_string(file.path()).expect("a seed is a text");
        text.lines().map(str::to_owned).collect()
    }
}

impl Example {
    /// The JSON of the example: the body of a command, or the whole text.
    pub(super) fn body(&self) -> Value {
        serde_json::from_str(self.json()).expect("the JSON of the example is whole")
    }

    /// The text of the JSON.
    pub(super) fn json(&self) -> &str {
        let begin = self.text.find('{').expect("the example has JSON");
        let end = self.text.rfind('}').expect("the example has JSON");
        &self.text[begin..=end]
    }

    /// The last of these headings before the example.
    pub(super) fn heading<'a>(&self, lines: &[String], headings: &[&'a str]) -> &'a str {
        let mut before = lines[..self.line].iter().rev();
        let found = before.find_map(|line| headings.iter().find(|heading| line == **heading));
        found.copied().unwrap_or_default()
    }
}

/// All examples in the order of the text: commands, JSON, settings, single names, and requests that a sentence spells
/// with verb and path.
pub(super) fn examples(lines: &[String]) -> Vec<Example> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let length = length(&lines[at..]);
        let text = lines[at..at + length.max(1)].join("\n");
        if length > 0 {
            found.push(Example { calls: calls(&text), text, line: at });
        } else {
            let spelled = requests(&lines[at]);
            found.extend(spelled.map(|request| Example { calls: request.clone(), text: request, line: at }));
        }
        at += length.max(1);
    }
    found
}

/// The number of lines of the example that begins here; 0: none.
fn length(lines: &[String]) -> usize {
    let first = lines[0].as_str();
    let run = |is_part: fn(&str) -> bool| lines.iter().take_while(|line| is_part(line)).count();
    if first == "{" {
        return json(lines);
    }
    if is_command(first) {
        return run(|line| !line.trim().is_empty());
    }
    if is_setting(first) {
        return run(is_setting);
    }
    usize::from(first.starts_with("GET ") || first.starts_with("urn:"))
}

/// The number of lines of a JSON object. Its indentation may be lost, so only a parser finds its end.
fn json(lines: &[String]) -> usize {
    let text = lines.join("\n");
    let mut values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    values.next().expect("a brace").expect("what begins with a brace on its own line is JSON");
    text[..values.byte_offset()].lines().count()
}

/// A program with arguments, or variables before one.
fn is_command(line: &str) -> bool {
    let is_variable = line.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    });
    is_variable || line.starts_with("curl ") || line.starts_with("opencode ")
}

/// `key: value` and nothing else.
fn is_setting(line: &str) -> bool {
    line.split_once(": ").is_some_and(|(key, value)| {
        key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') && !value.contains(' ')
    })
}

fn calls(text: &str) -> String {
    let quoted = |after: &str| text.split_once(after)?.1.split('"').nth(1);
    let method = quoted("\"method\":");
    let path = text.strip_prefix("curl -sS http://127.0.0.1:8000").and_then(|rest| rest.split(' ').next());
    let key = text.strip_prefix('{').and_then(|rest| rest.split('"').nth(1));
    let word = text.split([' ', '=', ':']).next();
    let urn = text.starts_with("urn:").then_some(text);
    if text.starts_with("GET ") {
        return text.split(' ').take(2).collect::<Vec<_>>().join(" ");
    }
    method.or(path).or(key).or(urn).or(word).unwrap_or_default().to_owned()
}

/// The requests that a sentence spells, without `/` alone.
fn requests(line: &str) -> impl Iterator<Item = String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let pairs: Vec<_> = words.windows(2).map(|pair| (pair[0].trim_start_matches('('), pair[1])).collect();
    let pairs = pairs.into_iter().filter(|(verb, _)| matches!(*verb, "GET" | "POST"));
    let pairs = pairs.map(|(verb, path)| (verb, path.trim_end_matches([')', '.', ','])));
    let pairs = pairs.filter(|(_, path)| path.starts_with('/') && path.len() > 1);
    pairs.map(|(verb, path)| format!("{verb} {path}")).collect::<Vec<_>>().into_iter()
}
