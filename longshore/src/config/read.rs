//! Picks the source with the highest priority for each setting, and checks its value against the setting's kind.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use longshore_engine::MAX_TASK_BYTES;
use secrecy::SecretString;
use url::Url;

use super::environment::Environment;
use super::file::FileSettings;
use super::limits::Counts;
use super::problem::{Problem, Source};
use super::setting::{Fallback, Kind, LONGEST, MOST_THREADS, Setting};
use super::{Flags, paths, table};

/// Reads settings and collects problems.
///
/// A reader never stops at a problem. It continues with the default, so that all problems are shown at once.
#[derive(Debug)]
pub struct Reader<'a> {
    flags: &'a Flags,
    environment: &'a Environment,
    file: &'a FileSettings,
    problems: Vec<Problem>,
    warnings: Vec<String>,
    read_keys: BTreeSet<&'static str>,
}

/// The port of a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Port {
    /// The listener is switched off.
    Off,
    Number(u16),
}

/// A value as it was written in its source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    pub text: String,
    pub source: Source,
}

impl<'a> Reader<'a> {
    pub fn new(
        flags: &'a Flags,
        environment: &'a Environment,
        file: &'a FileSettings,
        problems: Vec<Problem>,
    ) -> Self {
        Self { flags, environment, file, problems, warnings: Vec::new(), read_keys: BTreeSet::new() }
    }

    pub fn finish(self) -> (Vec<Problem>, Vec<String>) {
        (self.problems, self.warnings)
    }

    /// The keys that were read. A test uses them to check that every setting is used.
    pub fn read_keys(&self) -> &BTreeSet<&'static str> {
        &self.read_keys
    }

    pub fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// The value of a setting from the source with the highest priority that has one. Defaults do not count.
    ///
    /// An empty variable counts as not set, because shells and container files often set a variable to nothing instead of unsetting
    /// it.
    pub fn written(&mut self, setting: &Setting) -> Option<Written> {
        self.read_keys.insert(setting.key);
        if let Some(text) = self.flags.get(setting.key) {
            let flag = setting.flag.unwrap_or(setting.key);
            return Some(Written { text: text.clone(), source: Source::Flag(flag) });
        }
        // An exception: in the Python gateway `opencode-a2a`, an empty value of this setting means "no limit".
        let empty_counts = setting.key == table::TURN_TIMEOUT.key;
        for name in table::variables(setting) {
            if let Some(text) = self.environment.get(name)
                && (empty_counts || !text.trim().is_empty())
            {
                return Some(Written { text: text.to_owned(), source: Source::Environment(name) });
            }
        }
        self.file
            .get(setting.key)
            .map(|value| Written { text: value.text.clone(), source: value.source.clone() })
    }

    pub fn text(&mut self, setting: &Setting) -> Option<String> {
        self.parsed(setting, |text| non_empty(text).map(str::to_owned))
    }

    pub fn secret(&mut self, setting: &Setting) -> Option<SecretString> {
        self.parsed(setting, |text| non_empty(text.trim()).map(SecretString::from))
    }

    pub fn host(&mut self, setting: &Setting) -> Option<String> {
        self.parsed(setting, parse_host)
    }

    pub fn port(&mut self, setting: &Setting) -> Option<Port> {
        self.parsed(setting, |text| {
            if text.trim().eq_ignore_ascii_case("off") {
                return Some(Port::Off);
            }
            text.trim().parse().ok().map(Port::Number)
        })
    }

    /// Reads file permissions. They must allow the owner to read and write.
    pub fn file_mode(&mut self, setting: &Setting) -> Option<u32> {
        self.parsed(setting, |text| {
            u32::from_str_radix(text.trim(), 8).ok().filter(|mode| *mode <= 0o777 && mode & 0o600 == 0o600)
        })
    }

    pub fn url(&mut self, setting: &Setting) -> Option<Url> {
        let whole = setting.kind == Kind::Link;
        self.parsed(setting, |text| {
            parse_url(text).filter(|url| whole || (url.query().is_none() && url.fragment().is_none()))
        })
    }

    pub fn path(&mut self, setting: &Setting) -> Option<PathBuf> {
        self.parsed(setting, |text| non_empty(text).map(PathBuf::from))
    }

    pub fn database(&mut self, setting: &Setting) -> Option<PathBuf> {
        self.parsed(setting, paths::database_path)
    }

    pub fn model(&mut self, setting: &Setting) -> Option<String> {
        self.parsed(setting, |text| {
            let (provider, model) = text.trim().split_once('/')?;
            (!provider.is_empty() && !model.is_empty()).then(|| text.trim().to_owned())
        })
    }

    pub fn bytes(&mut self, setting: &Setting) -> Option<usize> {
        self.parsed(setting, |text| text.trim().parse().ok())
    }

    /// Reads a size of at least 1.
    pub fn size(&mut self, setting: &Setting) -> Option<u64> {
        self.parsed(setting, |text| text.trim().parse().ok().filter(|size| *size > 0))
    }

    /// Reads a size of at least 1 and at most what the store can hold.
    pub fn task_size(&mut self, setting: &Setting) -> Option<u64> {
        let is_possible = |size: &u64| (1..=MAX_TASK_BYTES).contains(size);
        self.parsed(setting, |text| text.trim().parse().ok().filter(is_possible))
    }

    /// Reads a number for which 0 means "no limit", which becomes `None`. `None` can also mean a problem.
    pub fn count(&mut self, setting: &Setting) -> Option<usize> {
        self.parsed(setting, |text| text.trim().parse().ok()).filter(|count| *count > 0)
    }

    /// Reads a number for which 0 means 0.
    pub fn count_or_none(&mut self, setting: &Setting) -> Option<usize> {
        self.parsed(setting, |text| text.trim().parse().ok())
    }

    /// Reads a number of threads. 0 stays 0.
    pub fn threads(&mut self, setting: &Setting) -> Option<usize> {
        self.parsed(setting, |text| text.trim().parse().ok().filter(|count| *count <= MOST_THREADS))
    }

    pub fn ratio(&mut self, setting: &Setting) -> Option<f64> {
        self.parsed(setting, |text| text.trim().parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)))
    }

    /// Reads a factor of at least 1.
    pub fn factor(&mut self, setting: &Setting) -> Option<f64> {
        let is_possible = |factor: &f64| factor.is_finite() && *factor >= 1.0;
        self.parsed(setting, |text| text.trim().parse().ok().filter(is_possible))
    }

    /// Reads a list. Leaves out blank entries.
    pub fn list(&mut self, setting: &Setting) -> Vec<String> {
        self.parsed(setting, parse_list).unwrap_or_default()
    }

    /// Reads a list of paths, without resolving them.
    pub fn paths(&mut self, setting: &Setting) -> Vec<PathBuf> {
        let parse = |text: &str| {
            if text.trim_start().starts_with('[') {
                return Some(parse_list(text)?.into_iter().map(PathBuf::from).collect());
            }
            Some(std::env::split_paths(text.trim()).filter(|path| !path.as_os_str().is_empty()).collect())
        };
        self.parsed(setting, parse).unwrap_or_default()
    }

    pub fn seconds(&mut self, setting: &Setting) -> Option<Duration> {
        self.parsed(setting, |text| {
            let duration = parse_seconds(text.trim())?;
            (setting.kind == Kind::SecondsOrNone || !duration.is_zero()).then_some(duration)
        })
    }

    /// Reads a duration for which 0 means "no limit", which becomes `None`. `None` can also mean a problem.
    pub fn seconds_or_off(&mut self, setting: &Setting) -> Option<Duration> {
        self.parsed(setting, |text| {
            if text.trim().is_empty() { Some(Duration::ZERO) } else { parse_seconds(text.trim()) }
        })
        .filter(|duration| !duration.is_zero())
    }

    pub fn choice(&mut self, setting: &Setting) -> Option<&'static str> {
        let Kind::Choice(choices) = setting.kind else { return None };
        self.parsed(setting, |text| {
            choices.iter().copied().find(|choice| choice.eq_ignore_ascii_case(text.trim()))
        })
    }

    pub fn switch(&mut self, setting: &Setting) -> bool {
        self.parsed(setting, parse_switch).unwrap_or(false)
    }

    /// Reads a switch that can also be `auto`.
    pub fn counts(&mut self, setting: &Setting) -> Option<Counts> {
        self.parsed(setting, |text| {
            if text.trim().eq_ignore_ascii_case("auto") {
                return Some(Counts::WhenOthersCanCall);
            }
            parse_switch(text).map(|on| if on { Counts::Always } else { Counts::Never })
        })
    }

    /// Parses the value of a setting, or its default. If the value cannot be parsed, records a problem and returns `None`.
    fn parsed<T>(&mut self, setting: &Setting, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let Some(written) = self.written(setting) else {
            let Fallback::Value(text) = setting.fallback else { return None };
            return parse(text);
        };
        let value = parse(&written.text);
        if value.is_none() {
            self.problem(Problem::value(&written.source, setting, &written.text));
        }
        value
    }
}

fn non_empty(text: &str) -> Option<&str> {
    (!text.trim().is_empty()).then_some(text)
}

pub(super) fn parse_switch(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

pub(super) fn parse_list(text: &str) -> Option<Vec<String>> {
    let words: Vec<String> = if text.trim_start().starts_with('[') {
        serde_json::from_str(text).ok()?
    } else {
        text.split(',').map(str::to_owned).collect()
    };
    let words = words.into_iter().map(|word| word.trim().to_owned());
    Some(words.filter(|word| !word.is_empty()).collect())
}

/// Parses a host name or an IP address. Removes the brackets of an IPv6 address.
fn parse_host(text: &str) -> Option<String> {
    let text = text.trim();
    let text = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if text.parse::<std::net::IpAddr>().is_ok() {
        return Some(text.to_owned());
    }
    let name = !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    // A text of only digits and dots is a wrong address, not a host name.
    let address = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    (name && !address).then(|| text.to_owned())
}

/// Parses a URL without credentials. Credentials have their own settings, because URLs appear in logs and cards.
fn parse_url(text: &str) -> Option<Url> {
    let url = Url::parse(text.trim()).ok()?;
    let plain = url.username().is_empty() && url.password().is_none();
    (matches!(url.scheme(), "http" | "https") && url.has_host() && plain).then_some(url)
}

fn parse_seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok().filter(|duration| *duration <= LONGEST)
}
