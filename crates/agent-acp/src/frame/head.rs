//! Finds out from its first bytes which message an overlong line was.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::AgentRequestId;

/// The members at the beginning of a message that is cut off.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Head {
    pub method: Option<String>,
    pub session: Option<String>,
    id: Option<String>,
}

impl Head {
    pub fn read(head: &[u8]) -> Self {
        let mut found = Self::default();
        // Always fails, because the text is cut off. The members before the cut count.
        let _ =
            Members(&mut found, Level::Message).deserialize(&mut serde_json::Deserializer::from_slice(head));
        found
    }

    /// The id of the gateway's request, if the message is a response.
    pub fn answers(&self) -> Option<u64> {
        if self.method.is_some() { None } else { self.id.as_deref()?.parse().ok() }
    }

    /// The id of the agent's request, if the message is a request.
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
