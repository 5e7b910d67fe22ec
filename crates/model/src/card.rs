//! What the agent card says, before a line spells it.

use crate::json::Json;

/// The media types of what a message may hold: those that the card lists by name. A deployment may take more.
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

/// The media types of what an agent says. A caller that accepts none of them is told so before anything runs.
pub const OUTPUT_MODES: [&str; 2] = ["text/plain", "application/json"];

/// The facts of a card, public or extended, taken from the running configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    pub name: String,
    pub description: String,
    pub version: String,
    pub documentation_url: Option<String>,
    pub interfaces: Vec<Interface>,
    pub streaming: bool,
    /// Who has a credential gets a card that says more.
    pub extended: bool,
    /// What callers may activate, in the order in which it is listed.
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
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum AuthScheme {
    Bearer,
    Basic,
    ApiKey,
}

/// An extension of the protocol that callers may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CardExtension {
    pub uri: String,
    pub description: String,
    /// Whoever does not activate it is refused.
    pub required: bool,
    /// An object, when there is more to say about it.
    pub params: Option<Json>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skill {
    pub id: String,
    pub name: String,
    pub description: String,
    pub tags: Vec<String>,
    pub examples: Vec<String>,
    /// What goes in, where that is not what the card says for all skills.
    pub input_modes: Vec<String>,
    /// The same for what comes out.
    pub output_modes: Vec<String>,
}
