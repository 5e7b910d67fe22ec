//! The smallest piece of content in a message or an artifact.

use serde::{Deserialize, Serialize};

use crate::json::{Json, Metadata};

/// When text is appended to a part, its buffer grows by at least this many bytes.
const MIN_GROWTH: usize = 64;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    pub content: PartContent,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

/// The content of a part, which is of exactly one kind.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartContent {
    Text(String),
    /// The decoded bytes of a file.
    #[serde(with = "raw_bytes")]
    Raw(Vec<u8>),
    /// The URL of a file.
    Url(String),
    /// Any JSON value.
    Data(Json),
}

impl Part {
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(PartContent::Text(text.into()))
    }

    pub fn data(data: Json) -> Self {
        Self::new(PartContent::Data(data))
    }

    pub fn new(content: PartContent) -> Self {
        Self { content, media_type: None, filename: None, metadata: None }
    }

    /// The number of content bytes.
    pub fn weight(&self) -> usize {
        match &self.content {
            PartContent::Text(text) | PartContent::Url(text) => text.len(),
            PartContent::Raw(bytes) => bytes.len(),
            PartContent::Data(data) => data.get().len(),
        }
    }

    /// The number of bytes in the part other than its content.
    pub fn overhead(&self) -> usize {
        let texts = self.media_type.iter().chain(&self.filename).map(String::len).sum::<usize>();
        texts + self.metadata.as_ref().map_or(0, |metadata| metadata.get().len())
    }

    /// The text, if this is a text part.
    pub fn as_text(&self) -> Option<&str> {
        match &self.content {
            PartContent::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Appends `next` to this part if both are text with the same attributes. Returns whether it did.
    ///
    /// Streams send text in many small parts, and a task that kept them separate would contain thousands of parts.
    pub fn try_join(&mut self, next: &Self) -> bool {
        if self.media_type != next.media_type
            || self.filename != next.filename
            || self.metadata != next.metadata
        {
            return false;
        }
        match (&mut self.content, &next.content) {
            (PartContent::Text(text), PartContent::Text(more)) => {
                // Reserves an eighth instead of doubling, because thousands of tasks may each hold a growing text.
                if text.capacity() - text.len() < more.len() {
                    text.reserve_exact(more.len().max(text.len() / 8).max(MIN_GROWTH));
                }
                text.push_str(more);
                true
            }
            _ => false,
        }
    }
}

/// Encodes bytes in the log as lower-case hexadecimal. This is simple, and files in messages are rare.
mod raw_bytes {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            text.push(char::from_digit(u32::from(byte >> 4), 16).expect("a nibble is a hexadecimal digit"));
            text.push(char::from_digit(u32::from(byte & 15), 16).expect("a nibble is a hexadecimal digit"));
        }
        serializer.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
        let digits = digits.ok_or_else(|| D::Error::custom("not hexadecimal"))?;
        let (pairs, rest) = digits.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(D::Error::custom("an odd number of digits"));
        }
        pairs.iter().map(|[high, low]| u8::try_from(high * 16 + low).map_err(D::Error::custom)).collect()
    }
}
