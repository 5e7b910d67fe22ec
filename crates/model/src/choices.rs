//! What an agent offers for a message: modes, models and commands.

/// What the agent offers, as far as it has said. The agent's own code bounds the lists.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Choices {
    pub modes: ChoiceList,
    pub models: ChoiceList,
    /// Other settings of a session.
    pub options: Vec<SessionOption>,
    /// A message whose text begins with `/` and the id of a command runs it.
    pub commands: Vec<Choice>,
}

/// Choices of which each turn has one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChoiceList {
    /// The id of the choice for a message that names none. `None`: not known.
    pub default: Option<String>,
    pub choices: Vec<Choice>,
}

/// A setting of a session, and its possible values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionOption {
    pub option: Choice,
    /// The value for a message that names none. `None`: not known.
    pub default: Option<String>,
    /// Empty: not known.
    pub choices: Vec<Choice>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    pub id: String,
    /// For people. The id, if the agent gives no name.
    pub name: String,
    pub description: Option<String>,
}
