//! The environment as a map, so that tests need no real environment.

use std::collections::BTreeMap;

use longshore_model::nearest::did_you_mean;

use super::opencode_variables::is_of_opencode;
use super::table;
use super::unsupported::NOT_SUPPORTED;

/// The variables of a process.
///
/// Names that could be settings are stored in upper case, because `opencode-a2a` ignores the case of its variables. If a name is
/// set in several cases, the upper-case one has priority.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, String>);

/// The prefixes of the variables of Longshore, `opencode-a2a`, `iac-code` and OpenCode.
const PREFIXES: [&str; 4] = ["A2A_", "LONGSHORE_", "IACCODE_", "OPENCODE_"];

/// A variable that Longshore sets for the OpenCode that it starts. The tools of that OpenCode inherit it.
const MANAGED_MARKER: &str = "LONGSHORE_MANAGED";

impl Environment {
    /// The variables of this process. Leaves out variables whose value is not UTF-8, because no setting has such a value.
    pub fn of_process() -> Self {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect()
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// Shows only names, because values may be secrets.
impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let mut exact = BTreeMap::new();
        let mut other_case = BTreeMap::new();
        for (name, value) in variables {
            let (name, value) = (name.into(), value.into());
            let capitals = name.to_ascii_uppercase();
            if capitals != name && PREFIXES.iter().any(|prefix| capitals.starts_with(prefix)) {
                other_case.insert(capitals, value);
            } else {
                exact.insert(name, value);
            }
        }
        for (name, value) in other_case {
            exact.entry(name).or_insert(value);
        }
        Self(exact)
    }
}

/// Warns about variables that have no effect.
pub fn warnings(environment: &Environment) -> Vec<String> {
    let known = || table::ALL.iter().flat_map(|setting| table::variables(setting));
    environment
        .names()
        .filter(|name| !known().any(|known| known == *name) && *name != MANAGED_MARKER)
        .filter_map(|name| {
            if NOT_SUPPORTED.contains(&name) {
                return Some(format!("{name} is not supported by this version and has no effect"));
            }
            if is_of_opencode(name) || !PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
                return None;
            }
            let suggestion = did_you_mean(name, known());
            Some(format!("{name} is not known and has no effect{suggestion}"))
        })
        .collect()
}
