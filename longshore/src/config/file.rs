//! Reads `longshore.toml`: each value becomes text under the key of its setting, with its line number.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::nearest::did_you_mean;
use super::problem::{Problem, Source};
use super::setting::{Kind, Setting};
use super::{DEFAULT_FILE, table};

/// The values of the file, by key.
pub type FileSettings = BTreeMap<&'static str, FileValue>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileValue {
    pub text: String,
    pub source: Source,
}

/// The name of a file, for messages, and its content.
#[derive(Debug)]
pub struct Found {
    pub name: String,
    pub text: String,
}

/// Reads the named file, or the default one if it exists.
pub fn find(named: Option<&Path>, directory: &Path) -> Result<Option<Found>, Problem> {
    let path = named.unwrap_or(Path::new(DEFAULT_FILE));
    match std::fs::read_to_string(directory.join(path)) {
        Ok(text) => Ok(Some(Found { name: path.display().to_string(), text })),
        Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Problem(format!("{}: cannot be read: {error}", path.display()))),
    }
}

/// Parses the file. Problems are added to `problems`.
pub fn parse(name: &str, text: &str, problems: &mut Vec<Problem>) -> FileSettings {
    let (document, errors) = DeTable::parse_recoverable(text);
    let lines = Lines { name, text };
    if !errors.is_empty() {
        problems.extend(errors.iter().map(|error| {
            let line = error.span().map_or(1, |span| lines.number(span.start));
            Problem(format!("{name} line {line}: {}", error.message()))
        }));
        return FileSettings::new();
    }
    let mut walk = Walk { lines, problems, found: FileSettings::new() };
    walk.table("", document.get_ref());
    walk.found
}

struct Lines<'a> {
    name: &'a str,
    text: &'a str,
}

impl Lines<'_> {
    fn number(&self, offset: usize) -> usize {
        self.text.get(..offset).map_or(1, |before| before.matches('\n').count() + 1)
    }

    fn source(&self, offset: usize) -> Source {
        Source::File { name: self.name.to_owned(), line: self.number(offset) }
    }
}

struct Walk<'a> {
    lines: Lines<'a>,
    problems: &'a mut Vec<Problem>,
    found: FileSettings,
}

impl Walk<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let key = if prefix.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{prefix}.{}", name.get_ref())
            };
            let source = self.lines.source(name.span().start);
            if let Some(setting) = table::by_key(&key) {
                match text(setting.kind, value) {
                    Some(text) => {
                        self.found.insert(setting.key, FileValue { text, source });
                    }
                    None => self.problems.push(wrong_type(&source, setting, value)),
                }
                continue;
            }
            match value.get_ref() {
                DeValue::Table(inner) if is_section(&key) => self.table(&key, inner),
                _ => self.problems.push(Problem(format!(
                    "{source} ({key}): there is no such setting{}",
                    did_you_mean(&key, table::ALL.iter().map(|setting| setting.key))
                ))),
            }
        }
    }
}

/// Whether there are settings under this key.
fn is_section(key: &str) -> bool {
    table::ALL.iter().any(|setting| setting.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')))
}

/// The value as text in the form of the other sources, if its type fits the setting.
fn text(kind: Kind, value: &Spanned<DeValue<'_>>) -> Option<String> {
    match (kind, value.get_ref()) {
        (
            Kind::Port
            | Kind::Bytes
            | Kind::Threshold
            | Kind::Size
            | Kind::Count
            | Kind::CountOrNone
            | Kind::Threads
            | Kind::Ratio
            | Kind::Seconds
            | Kind::SecondsOrNone
            | Kind::SecondsOrOff,
            DeValue::Integer(number),
        ) => Some(number.as_str().to_owned()),
        (Kind::Ratio | Kind::Seconds | Kind::SecondsOrNone | Kind::SecondsOrOff, DeValue::Float(number)) => {
            Some(number.as_str().to_owned())
        }
        (Kind::Switch, DeValue::Boolean(on)) => Some(on.to_string()),
        (Kind::Choice(choices), DeValue::Boolean(on)) if choices.contains(&"true") => Some(on.to_string()),
        (Kind::Credentials | Kind::List, DeValue::Array(_)) => Some(json(value.get_ref()).to_string()),
        (
            Kind::Text
            | Kind::Secret
            | Kind::Host
            | Kind::BaseUrl
            | Kind::Link
            | Kind::Path
            | Kind::Database
            | Kind::Model
            | Kind::List
            | Kind::Choice(_),
            DeValue::String(text),
        ) => Some(text.to_string()),
        _ => None,
    }
}

/// A list of credentials in the form of the environment variable.
fn json(value: &DeValue<'_>) -> serde_json::Value {
    match value {
        DeValue::String(text) => text.to_string().into(),
        DeValue::Integer(number) => {
            number.as_str().parse::<i64>().map_or_else(|_| number.as_str().into(), Into::into)
        }
        DeValue::Float(number) => number.as_str().into(),
        DeValue::Boolean(on) => (*on).into(),
        DeValue::Datetime(datetime) => datetime.to_string().into(),
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(table) => table
            .iter()
            .map(|(name, value)| (name.get_ref().to_string(), json(value.get_ref())))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

fn wrong_type(source: &Source, setting: &Setting, value: &Spanned<DeValue<'_>>) -> Problem {
    Problem::rule(
        source,
        setting,
        format!(
            "{} is not allowed here; it takes {}",
            article(value.get_ref().type_str()),
            setting.kind.allowed()
        ),
    )
}

fn article(noun: &str) -> String {
    let vowel = noun.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {noun}", if vowel { "an" } else { "a" })
}
