//! Reads one level of a JSON object or array.
//!
//! All fields are located first and read later. So the order of keys does not matter, the last of two equal keys wins, and unknown
//! keys are only skipped. Nested values stay raw text until a reader needs them. There is no recursion, so deeply nested input
//! cannot exhaust the stack.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::fault::{Fault, Read};
use super::scalar::is_null;

/// The fields that a reader knows, as raw text.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    known: &'static [&'static str],
    fields: Vec<Field<'a>>,
}

#[derive(Debug)]
struct Field<'a> {
    name: &'static str,
    /// The key as the caller wrote it, for the path of a fault.
    spelled: Cow<'a, str>,
    raw: &'a RawValue,
}

impl<'a> Object<'a> {
    /// Parses a complete text. `known`: the names of the fields, in camelCase.
    pub(crate) fn parse(json: &'a str, known: &'static [&'static str]) -> serde_json::Result<Self> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let object = Fields { known }.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(object)
    }

    pub(crate) fn read(raw: &'a RawValue, known: &'static [&'static str]) -> Read<Self> {
        if !raw.get().starts_with('{') {
            return Err(Fault::new("must be an object"));
        }
        // Raw text is already well-formed JSON, so parsing fails only if a key contains half of a surrogate pair.
        Self::parse(raw.get(), known).map_err(|_| Fault::new("has a key that is no Unicode text"))
    }

    /// Reads a field that may be absent. `null` counts as absent, as in ProtoJSON.
    pub(crate) fn optional<T>(
        &self,
        name: &str,
        read: impl FnOnce(&'a RawValue) -> Read<T>,
    ) -> Read<Option<T>> {
        match self.raw(name) {
            Some(raw) if !is_null(raw) => self.within(name, || read(raw)).map(Some),
            _ => Ok(None),
        }
    }

    pub(crate) fn required<T>(&self, name: &str, read: impl FnOnce(&'a RawValue) -> Read<T>) -> Read<T> {
        let value = self.optional(name, read)?;
        value.ok_or_else(|| Fault::new("is required").under(self.spelling(name)))
    }

    /// Reads an array field. An absent field counts as an empty array.
    pub(crate) fn list<T>(&self, name: &str, read: impl FnMut(&'a RawValue) -> Read<T>) -> Read<Vec<T>> {
        Ok(self.optional(name, |raw| list(raw, read))?.unwrap_or_default())
    }

    /// Reads an array field that must have at least one element.
    pub(crate) fn filled_list<T>(
        &self,
        name: &str,
        read: impl FnMut(&'a RawValue) -> Read<T>,
    ) -> Read<Vec<T>> {
        let values = self.required(name, |raw| list(raw, read))?;
        self.within(name, || {
            if values.is_empty() { Err(Fault::new("must have at least one element")) } else { Ok(values) }
        })
    }

    /// The raw value of a field, including `null`.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        debug_assert!(self.known.contains(&name), "{name} is not in the list of known fields");
        self.fields.iter().find(|field| field.name == name).map(|field| field.raw)
    }

    fn within<T>(&self, name: &str, read: impl FnOnce() -> Read<T>) -> Read<T> {
        read().map_err(|fault| fault.under(self.spelling(name)))
    }

    fn spelling<'s>(&'s self, name: &'s str) -> &'s str {
        self.fields.iter().find(|field| field.name == name).map_or(name, |field| &field.spelled)
    }
}

/// Reads an array element by element. ProtoJSON permits no `null` element, so `read` must refuse `null`.
pub(crate) fn list<'a, T>(raw: &'a RawValue, mut read: impl FnMut(&'a RawValue) -> Read<T>) -> Read<Vec<T>> {
    if !raw.get().starts_with('[') {
        return Err(Fault::new("must be an array"));
    }
    let mut fault = None;
    let mut deserializer = serde_json::Deserializer::from_str(raw.get());
    let elements = Elements { read: &mut read, fault: &mut fault }.deserialize(&mut deserializer);
    match (fault, elements) {
        (Some(fault), _) => Err(fault),
        (None, Ok(values)) => Ok(values),
        (None, Err(_)) => Err(Fault::new("must be an array")),
    }
}

/// The members of an object by their exact names. Of two equal names, the last one counts. Used for requests in which unknown names
/// and other spellings are errors.
pub(crate) fn members(json: &str) -> Read<BTreeMap<String, &RawValue>> {
    if !json.starts_with('{') {
        return Err(Fault::new("must be an object"));
    }
    serde_json::from_str(json).map_err(|_| Fault::new("has a key that is no Unicode text"))
}

/// The text of a JSON string, borrowed if it has no escapes.
pub(crate) fn text_of(json: &str) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Text<'_>>(json).ok().map(|text| text.0)
}

/// Whether `key` is the field `name` (in camelCase), spelled in camelCase or in the `snake_case` of the proto file.
fn spells(key: &str, name: &str) -> bool {
    if key == name {
        return true;
    }
    let mut key = key.bytes();
    name.bytes().all(|byte| {
        if byte.is_ascii_uppercase() {
            key.next() == Some(b'_') && key.next() == Some(byte.to_ascii_lowercase())
        } else {
            key.next() == Some(byte)
        }
    }) && key.next().is_none()
}

struct Fields {
    known: &'static [&'static str],
}

impl<'de> DeserializeSeed<'de> for Fields {
    type Value = Object<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Object<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
        let mut fields: Vec<Field<'de>> = Vec::new();
        while let Some(Text(spelled)) = map.next_key::<Text<'de>>()? {
            let Some(name) = self.known.iter().copied().find(|name| spells(&spelled, name)) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let field = Field { name, spelled, raw: map.next_value()? };
            match fields.iter_mut().find(|earlier| earlier.name == name) {
                Some(earlier) => *earlier = field,
                None => fields.push(field),
            }
        }
        Ok(Object { known: self.known, fields })
    }
}

struct Elements<'s, R> {
    read: &'s mut R,
    fault: &'s mut Option<Fault>,
}

impl<'de, T, R: FnMut(&'de RawValue) -> Read<T>> DeserializeSeed<'de> for Elements<'_, R> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<T>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T, R: FnMut(&'de RawValue) -> Read<T>> Visitor<'de> for Elements<'_, R> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(raw) = seq.next_element::<&'de RawValue>()? {
            match (self.read)(raw) {
                Ok(value) => values.push(value),
                Err(fault) => {
                    // The first invalid element ends the reading.
                    *self.fault = Some(fault.at(values.len()));
                    return Ok(Vec::new());
                }
            }
        }
        Ok(values)
    }
}

struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_in_camel_case_and_in_snake_case() {
        for (key, name, expected) in [
            ("messageId", "messageId", true),
            ("message_id", "messageId", true),
            ("id", "id", true),
            ("task_push_notification_config", "taskPushNotificationConfig", true),
            ("message_Id", "messageId", false),
            ("messageid", "messageId", false),
            ("message_id_", "messageId", false),
            ("message_i", "messageId", false),
            ("", "id", false),
        ] {
            assert_eq!(spells(key, name), expected, "{key} for {name}");
        }
    }

    #[test]
    fn the_last_of_two_equal_keys_wins_in_either_spelling() {
        let object = Object::parse(r#"{"pageSize":1,"other":[{}],"page_size":2}"#, &["pageSize"]).unwrap();
        assert_eq!(object.raw("pageSize").map(RawValue::get), Some("2"));
    }

    #[test]
    fn deep_nesting_is_skipped_without_recursion() {
        let deep = format!(r#"{{"skip":{}{},"a":1}}"#, "[".repeat(200_000), "]".repeat(200_000));
        let object = Object::parse(&deep, &["a"]).unwrap();
        assert_eq!(object.raw("a").map(RawValue::get), Some("1"));
    }
}
