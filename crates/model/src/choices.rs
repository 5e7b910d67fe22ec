//! The choices that an agent offers for a message: modes, models and commands.

/// The choices that the agent has reported so far. The agent's driver limits the lists.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Choices {
    pub modes: ChoiceList,
    pub models: ChoiceList,
    /// Other settings of a session.
    pub options: Vec<SessionOption>,
    /// The commands. A message whose text begins with `/` and the id of a command runs that command.
    pub commands: Vec<Choice>,
}

/// A list of choices, of which each turn has exactly one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChoiceList {
    /// The id of the choice for a message that names none. `None`: it is not known.
    pub default: Option<String>,
    pub choices: Vec<Choice>,
}

/// A setting of a session, and its possible values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionOption {
    pub option: Choice,
    /// The value for a message that names none. `None`: it is not known.
    pub default: Option<String>,
    /// The possible values. Empty: they are not known.
    pub choices: Vec<Choice>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    pub id: String,
    /// The name for people. If the agent gives no name, this is the id.
    pub name: String,
    pub description: Option<String>,
}
