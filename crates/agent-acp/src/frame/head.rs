//! The first bytes of a line that is too long: which message was it?

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::AgentRequestId;

/// The members that were found in the head of a message, before it breaks off.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Head {
    pub method: Option<String>,
    pub session: Option<String>,
    id: Option<String>,
}

impl Head {
    pub fn read(head: &[u8]) -> Self {
        let mut found = Self::default();
        // The text breaks off, so this always fails; what was found before counts.
        let _ =
            Members(&mut found, Level::Message).deserialize(&mut serde_json::Deserializer::from_slice(head));
        found
    }

    /// The id of our request that the message answers.
    pub fn answers(&self) -> Option<u64> {
        if self.method.is_some() { None } else { self.id.as_deref()?.parse().ok() }
    }

    /// The id of the request that the message is.
    pub fn request(&self) -> Option<AgentRequestId> {
        self.method.as_ref().and(self.id.as_deref()).and_then(AgentRequestId::parse)
    }
}

#[derive(Clone, Copy)]
enum Level {
    Message,
    Params,
}

struct Members<'h>(&'h mut Head, Level);

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(head, level) = self;
        while let Some(key) = map.next_key::<String>()? {
            match (level, key.as_str()) {
                (Level::Message, "id") => head.id = Some(map.next_value::<Box<RawValue>>()?.get().to_owned()),
                (Level::Message, "method") => head.method = Some(map.next_value()?),
                (Level::Message, "params") => map.next_value_seed(Members(head, Level::Params))?,
                (Level::Params, "sessionId") => head.session = Some(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}
