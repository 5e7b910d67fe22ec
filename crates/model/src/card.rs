//! The content of the agent card, independent of the protocol version.

use crate::json::Json;

/// The media types that a message may contain, as the card lists them. A deployment may accept more.
pub const INPUT_MODES: [&str; 13] = [
    "text/plain",
    "text/markdown",
    "application/json",
    "application/yaml",
    "application/xml",
    "image/png",
    "image/jpeg",
    "image/gif",
    "image/webp",
    "audio/wav",
    "audio/mpeg",
    "application/pdf",
    "application/octet-stream",
];

/// The media types of an agent's output. A request that accepts none of them is refused before anything runs.
pub const OUTPUT_MODES: [&str; 2] = ["text/plain", "application/json"];

/// The content of a card, public or extended, taken from the running configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    pub name: String,
    pub description: String,
    pub version: String,
    pub documentation_url: Option<String>,
    pub interfaces: Vec<Interface>,
    pub streaming: bool,
    pub push: bool,
    /// Whether callers with a credential can get the extended card.
    pub extended: bool,
    /// The extensions that callers may activate, in the order of the card.
    pub extensions: Vec<CardExtension>,
    pub schemes: Vec<AuthScheme>,
    pub input_modes: Vec<String>,
    pub output_modes: Vec<String>,
    pub skills: Vec<Skill>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    pub url: String,
    pub binding: Binding,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Binding {
    JsonRpc,
    Rest,
    Grpc,
    /// JSON-RPC in the messages of a WebSocket.
    WebSocket,
    /// JSON-RPC on the standard input and output.
    Stdio,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum AuthScheme {
    Bearer,
    Basic,
    ApiKey,
    /// A client certificate.
    MutualTls,
}

/// An extension of the protocol that callers may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CardExtension {
    pub uri: String,
    pub description: String,
    /// Whether a caller that does not activate the extension is refused.
    pub required: bool,
    /// A JSON object with the extension's parameters.
    pub params: Option<Json>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skill {
    pub id: String,
    pub name: String,
    pub description: String,
    pub tags: Vec<String>,
    pub examples: Vec<String>,
    /// The input modes of this skill. Empty: those of the card.
    pub input_modes: Vec<String>,
    /// The output modes of this skill. Empty: those of the card.
    pub output_modes: Vec<String>,
}
