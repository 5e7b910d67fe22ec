//! Finds and reads `longshore.toml`. Each value becomes text under the key of its setting, with its line number.
//!
//! The file decides who may call and as whom, and may contain secrets. So it is read only if nobody else could have written it.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use longshore_model::nearest::did_you_mean;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, Source};
use super::setting::{Kind, Setting};
use super::{DEFAULT_FILE, Plan, ProcessContext, agents, paths, peers, syntax, table};

/// The values of the file, by key.
pub type FileSettings = BTreeMap<&'static str, FileValue>;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileValue {
    pub text: String,
    pub source: Source,
}

/// A file that was read but not parsed.
#[derive(Debug)]
pub struct Found {
    /// The name for messages.
    name: String,
    pub path: PathBuf,
    /// The metadata of the file itself, because `path` may be a symbolic link.
    metadata: Metadata,
    text: String,
}

/// Reads the named file, or the default one if it exists.
pub fn find(named: Option<&Path>, context: &ProcessContext) -> Result<Option<Found>, Problem> {
    let path = match named {
        Some(named) => named.to_owned(),
        None => match paths::config_dir(&context.environment) {
            Some(directory) => directory.join(DEFAULT_FILE),
            None => return Ok(None),
        },
    };
    let name = path.display().to_string();
    let path = context.directory.join(path);
    match read(&path) {
        Ok((metadata, text)) => Ok(Some(Found { name, path, metadata, text })),
        Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(&name, &path, &error)),
    }
}

fn unreadable(name: &str, path: &Path, error: &io::Error) -> Problem {
    let path = path.display();
    Problem(match error.kind() {
        ErrorKind::NotFound => format!(
            "{name}: there is no such file ({path}); correct the path after --config, or leave --config out to start with \
             the default configuration"
        ),
        ErrorKind::PermissionDenied => format!(
            "{name}: the user who runs Longshore may not read this file ({path}); change its owner or mode, or run \
             Longshore as another user"
        ),
        ErrorKind::IsADirectory => {
            format!("{name}: this is a directory ({path}); give the path of a file with --config")
        }
        ErrorKind::InvalidData => {
            format!("{name}: the file is not a text in UTF-8 ({path}); save it as UTF-8")
        }
        _ => format!("{name}: the file {path} cannot be read: {error}"),
    })
}

fn read(path: &Path) -> io::Result<(Metadata, String)> {
    let mut file = File::open(path)?;
    let (metadata, mut text) = (file.metadata()?, String::new());
    file.read_to_string(&mut text)?;
    Ok((metadata, text))
}

impl Found {
    /// The settings in the file. Problems are added to `problems`.
    pub fn settings(&self, problems: &mut Vec<Problem>) -> FileSettings {
        let settings = parse(&self.name, &self.text, problems);
        let is_secret = |(key, value): &(&&str, &FileValue)| {
            table::by_key(key).is_some_and(|setting| match setting.kind {
                Kind::Agents => agents::holds_secret(&value.text),
                Kind::Peers => peers::holds_secret(&value.text),
                kind => kind.is_secret(),
            })
        };
        let secret = settings.iter().find(is_secret).map(|(key, _)| *key);
        let user = rustix::process::geteuid().as_raw();
        if let Some(reason) = exposed(user, self.metadata.uid(), self.metadata.mode(), secret) {
            problems.push(Problem(format!("{}: {reason}", self.name)));
        }
        settings
    }
}

/// Checks the permissions of the file. Returns the reason if others can change it, or can read a secret in it. `user`: the user of
/// this process. `secret`: the key of a setting in the file that holds a secret.
pub(crate) fn exposed(user: u32, owner: u32, mode: u32, secret: Option<&str>) -> Option<String> {
    const ROOT: u32 = 0;
    if owner != user && owner != ROOT {
        return Some(format!(
            "belongs to another user (id {owner}), who could change it; give it to the user who runs Longshore (chown)"
        ));
    }
    if mode & 0o022 != 0 {
        let mode = mode & 0o777;
        return Some(format!("other users can change it (mode {mode:o}); run `chmod go-w` on it"));
    }
    // If root owns the file, the file's group may read it: a service that runs as another user can read it in no other way.
    let readers = if owner == user { 0o044 } else { 0o004 };
    let (mode, secret) = (mode & 0o777, secret.filter(|_| mode & readers != 0)?);
    let remedy = if owner == user { "chmod 600" } else { "chmod o-r" };
    Some(format!(
        "holds a secret ({secret}) and other users can read it (mode {mode:o}); run `{remedy}` on it"
    ))
}

/// Warnings about files that an earlier version would have read but this one does not read.
pub fn unread(plan: &Plan, context: &ProcessContext) -> Vec<String> {
    let mut files = vec![context.directory.join(DEFAULT_FILE), plan.workspace.join(DEFAULT_FILE)];
    files.dedup();
    let is_read = |file: &PathBuf| plan.config_file.as_ref().is_some_and(|read| is_same(read, file));
    files.retain(|file| file.exists() && !is_read(file));
    let place = match paths::config_dir(&context.environment) {
        Some(directory) => format!(", or move it to {}", directory.join(DEFAULT_FILE).display()),
        None => String::new(),
    };
    let say = |file: PathBuf| {
        let file = file.display();
        format!(
            "{file} is not read: a file in the workspace could come from anybody; to use it, add --config {file}{place}"
        )
    };
    files.into_iter().map(say).collect()
}

fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Parses the file. Problems are added to `problems`.
pub fn parse(name: &str, text: &str, problems: &mut Vec<Problem>) -> FileSettings {
    let (document, errors) = DeTable::parse_recoverable(text);
    let lines = Lines { name, text };
    // Report only the first error, because later ones are often its consequences.
    if let Some(error) = errors.iter().min_by_key(|error| error.span().map_or(0, |span| span.start)) {
        let (line, column) = lines.position(error.span().map_or(0, |span| span.start));
        problems.push(Problem(format!(
            "{name} line {line}, column {column}: not valid TOML: {}",
            syntax::plain_words(error)
        )));
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
    /// The line and the column of an offset, counted from 1.
    fn position(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
    }

    fn source(&self, offset: usize) -> Source {
        Source::File { name: self.name.to_owned(), line: self.position(offset).0 }
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

/// Whether there are settings whose key begins with this section.
fn is_section(key: &str) -> bool {
    table::ALL.iter().any(|setting| setting.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('.')))
}

/// Converts a value to the text form that the other sources use. `None`: its type does not fit the setting.
fn text(kind: Kind, value: &Spanned<DeValue<'_>>) -> Option<String> {
    match (kind, value.get_ref()) {
        (
            Kind::Port
            | Kind::FileMode
            | Kind::Bytes
            | Kind::Threshold
            | Kind::Size
            | Kind::TaskSize
            | Kind::Count
            | Kind::AtLeastOne
            | Kind::CountOrNone
            | Kind::Threads
            | Kind::Ratio
            | Kind::Factor
            | Kind::Seconds
            | Kind::SecondsOrNone
            | Kind::SecondsOrOff,
            DeValue::Integer(number),
        ) => Some(number.as_str().to_owned()),
        (
            Kind::Ratio | Kind::Factor | Kind::Seconds | Kind::SecondsOrNone | Kind::SecondsOrOff,
            DeValue::Float(number),
        ) => Some(number.as_str().to_owned()),
        (Kind::Switch, DeValue::Boolean(on)) => Some(on.to_string()),
        (Kind::Choice(choices), DeValue::Boolean(on)) if choices.contains(&"true") => Some(on.to_string()),
        (Kind::Credentials | Kind::Agents | Kind::Peers | Kind::List | Kind::Paths, DeValue::Array(_)) => {
            Some(json(value.get_ref()).to_string())
        }
        (
            Kind::Text
            | Kind::Secret
            | Kind::Host
            | Kind::Port
            | Kind::FileMode
            | Kind::BaseUrl
            | Kind::Link
            | Kind::Path
            | Kind::Database
            | Kind::Model
            | Kind::List
            | Kind::Paths
            | Kind::Choice(_),
            DeValue::String(text),
        ) => Some(text.to_string()),
        _ => None,
    }
}

/// Converts a list of tables to the JSON form of the environment variable.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_others_can_change_or_whose_secret_others_can_read_is_refused() {
        let (secret, none) = (Some("auth.bearer_token"), None);
        let (own, root, other) = (1000, 0, 1001);
        let cases = [
            // Each case: the owner of the file, its mode, whether it holds a secret, and the text of the refusal.
            (own, 0o600, secret, None),
            (own, 0o400, secret, None),
            (own, 0o644, none, None),
            (own, 0o755, none, None),
            (
                own,
                0o644,
                secret,
                Some("holds a secret (auth.bearer_token) and other users can read it (mode 644)"),
            ),
            (own, 0o640, secret, Some("other users can read it (mode 640); run `chmod 600`")),
            (own, 0o604, secret, Some("other users can read it (mode 604)")),
            (own, 0o664, none, Some("other users can change it (mode 664); run `chmod go-w`")),
            (own, 0o602, none, Some("other users can change it")),
            (own, 0o620, secret, Some("other users can change it")),
            // A file of root, such as a mounted secret, which a service reads through its group.
            (root, 0o644, none, None),
            (root, 0o640, secret, None),
            (root, 0o440, secret, None),
            (root, 0o644, secret, Some("other users can read it (mode 644); run `chmod o-r`")),
            (root, 0o660, none, Some("other users can change it")),
            (other, 0o600, none, Some("belongs to another user (id 1001)")),
            (other, 0o644, secret, Some("belongs to another user (id 1001)")),
        ];
        for (owner, mode, secret, expected) in cases {
            let found = exposed(own, owner, 0o100_000 | mode, secret);
            let is_expected = match expected {
                None => found.is_none(),
                Some(words) => found.as_deref().is_some_and(|found| found.contains(words)),
            };
            assert!(is_expected, "{owner} {mode:o} {secret:?}: {found:?}");
        }
        assert!(exposed(root, root, 0o640, secret).is_some(), "root needs no group to read its file");
    }
}
