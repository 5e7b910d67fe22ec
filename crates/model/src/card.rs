//! What the agent card says, before a line spells it.

/// The facts of the public card, taken from the running configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    pub name: String,
    pub description: String,
    pub version: String,
    pub documentation_url: Option<String>,
    pub interfaces: Vec<Interface>,
    pub streaming: bool,
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

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Skill {
    pub id: String,
    pub name: String,
    pub description: String,
    pub tags: Vec<String>,
    pub examples: Vec<String>,
}
