//! JSON that the gateway passes on unparsed: an integer that arrives as `1700000000000` leaves in the same form.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// Any JSON value, kept as its original text.
#[derive(Clone)]
pub struct Json(Arc<RawValue>);

impl Json {
    /// Checks that the text is JSON. `None`: it is not.
    pub fn parse(text: &str) -> Option<Self> {
        RawValue::from_string(text.to_owned()).ok().map(|raw| Self(raw.into()))
    }

    pub fn from_raw(raw: &RawValue) -> Self {
        Self(raw.to_owned().into())
    }

    /// Serializes a value. Panics if that fails, so this may be used only for types that always serialize. For example, all keys of
    /// maps must be strings.
    pub fn from_value(value: &impl Serialize) -> Self {
        Self(serde_json::value::to_raw_value(value).expect("the type serializes to JSON").into())
    }

    pub fn get(&self) -> &str {
        self.0.get()
    }

    pub fn raw(&self) -> &RawValue {
        &self.0
    }

    /// Removes a member if this is an object. Any other value is returned unchanged.
    #[must_use]
    pub fn without(self, member: &str) -> Self {
        if !self.get().contains(member) {
            return self;
        }
        let Ok(mut object) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(self.get())
        else {
            return self;
        };
        match object.shift_remove(member) {
            Some(_) => Self::from_value(&object),
            None => self,
        }
    }

    /// Parses the value. Numbers may lose digits, so the result must only be inspected and never passed on.
    pub fn to_value(&self) -> serde_json::Value {
        serde_json::from_str(self.get()).unwrap_or(serde_json::Value::Null)
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Json {}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.get())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Box::<RawValue>::deserialize(deserializer)?.into()))
    }
}

/// A JSON object, kept as its original text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Json", into = "Json")]
pub struct Metadata(Json);

impl Metadata {
    pub fn get(&self) -> &str {
        self.0.get()
    }

    pub fn json(&self) -> &Json {
        &self.0
    }
}

/// The value is JSON, but not an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAnObject;

impl fmt::Display for NotAnObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be a JSON object")
    }
}

impl std::error::Error for NotAnObject {}

impl TryFrom<Json> for Metadata {
    type Error = NotAnObject;

    fn try_from(json: Json) -> Result<Self, NotAnObject> {
        // A raw value starts at its first token, so the first byte shows its kind.
        if json.get().starts_with('{') { Ok(Self(json)) } else { Err(NotAnObject) }
    }
}

impl From<Metadata> for Json {
    fn from(metadata: Metadata) -> Self {
        metadata.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_removed_and_the_others_keep_their_order() {
        for (text, expected) in [
            (r#"{"b": 1, "x": {"s": 2}, "a": 3}"#, r#"{"b":1,"a":3}"#),
            (r#"{"b": "\"x\""}"#, r#"{"b": "\"x\""}"#),
            (r#"["x"]"#, r#"["x"]"#),
            ("{ }", "{ }"),
        ] {
            assert_eq!(Json::parse(text).unwrap().without("x").get(), expected);
        }
    }
}
