//! Counts content of an agent that was ignored or only partly understood, by name. The agent chooses many of these names, so their
//! number is limited.

use std::collections::{BTreeMap, HashMap};

use longshore_meter::label::WhyIgnored;

/// How many different names are counted separately. All further names share one count for each reason.
pub const MAX_NAMES: usize = 64;

/// The longest name, in characters. The rest is cut.
const MAX_NAME_CHARS: usize = 100;

/// The counts: see the module.
#[derive(Debug, Default)]
pub struct Ignored(HashMap<(WhyIgnored, String), u64>);

impl Ignored {
    /// Counts a name. If it is new, returns the name under which it is counted.
    pub(crate) fn add(&mut self, why: WhyIgnored, name: &str, count: u64) -> Option<String> {
        let mut key = (why, name.chars().take(MAX_NAME_CHARS).collect::<String>());
        if !self.0.contains_key(&key) && self.0.len() >= MAX_NAMES {
            "other".clone_into(&mut key.1);
        }
        let first = (!self.0.contains_key(&key)).then(|| key.1.clone());
        *self.0.entry(key).or_default() += count;
        first
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (WhyIgnored, &str, u64)> {
        self.0.iter().map(|((why, name), count)| (*why, name.as_str(), *count))
    }

    /// The counts by name.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for (_, name, count) in self.iter() {
            *counts.entry(name.to_owned()).or_default() += count;
        }
        counts
    }
}
