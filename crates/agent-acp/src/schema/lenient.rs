//! Deserializers that skip what they cannot read. They work on text in memory, and copy only what they keep.

use std::fmt;

use longshore_model::Json;
use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The value, or the default if it has another type.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_default())
}

/// How many entries of a list are read. The rest is left out, because an entry of three bytes may need hundreds of bytes in memory.
/// Real agents send up to 60 entries.
const MAX_ENTRIES: usize = 4096;

/// Reads the first entries of a list, without unreadable ones.
pub(crate) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    optional_list(deserializer).map(Option::unwrap_or_default)
}

/// Like [`list`]. `None`: the value is not a list.
pub(super) fn optional_list<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let raw = <&RawValue>::deserialize(deserializer)?;
    let entries = serde_json::from_str::<First<'_>>(raw.get()).ok();
    Ok(entries.map(|First(entries)| {
        entries.iter().filter_map(|entry| serde_json::from_str(entry.get()).ok()).collect()
    }))
}

/// The first entries of a list, as they are.
struct First<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for First<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = First<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut entries: S) -> Result<First<'de>, S::Error> {
                let mut first = Vec::new();
                while let Some(entry) = entries.next_element::<&RawValue>()? {
                    if first.len() < MAX_ENTRIES {
                        first.push(entry);
                    }
                }
                Ok(First(first))
            }
        }
        deserializer.deserialize_seq(Entries)
    }
}

/// How many entries of a list of choices or commands are kept. Callers cannot choose the rest. Real agents send up to 30 entries.
const MAX_CHOICES: usize = 512;

/// How many bytes of JSON the kept entries may have together. Real agents send up to 12 KiB.
const MAX_CHOICES_BYTES: usize = 128 * 1024;

/// Reads the first entries of a list of choices, without unreadable ones.
pub(super) fn choices<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    choices_and_rest(deserializer).map(|(choices, _)| choices)
}

/// The first entries of a list that can be read, and whether they are the whole list.
pub(super) fn choices_and_rest<'de, D, T>(deserializer: D) -> Result<(Vec<T>, bool), D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    let Ok(First(entries)) = serde_json::from_str(raw.get()) else { return Ok((Vec::new(), false)) };
    let sent = entries.len();
    let mut room = MAX_CHOICES_BYTES;
    let fitting = entries.into_iter().take(MAX_CHOICES).take_while(|entry| {
        let rest = room.checked_sub(entry.get().len());
        room = rest.unwrap_or(room);
        rest.is_some()
    });
    let read: Vec<T> = fitting.filter_map(|entry| serde_json::from_str(entry.get()).ok()).collect();
    let is_whole = read.len() == sent;
    Ok((read, is_whole))
}

/// Whether a capability is advertised: its value is an object, possibly an empty one.
pub(super) fn advertised<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(!matches!(raw.get(), "null" | "false"))
}

/// Any JSON except `null`.
pub(super) fn json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok((raw.get() != "null").then(|| Json::from_raw(raw)))
}
