//! Facts about a session that do not belong to one turn.

use std::collections::BTreeMap;

use longshore_model::{Choice, ChoiceList, Choices, Error, Result, SessionOption, redact};

use crate::schema::{
    self, Command, Commands, ConfigChoice, ConfigOption, Mode, Model, Models, Modes, SessionAnswer, Update,
};
use crate::translate::SessionTotals;

/// The longest option id that is quoted in an error, in characters.
const MAX_ID: usize = 128;

/// A setting that a message can choose for its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Mode,
    Model,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mode => "mode",
            Self::Model => "model",
        }
    }
}

/// A mode, a model and values of other options. `None`: the agent offers no choice, or does not report the current one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chosen {
    pub mode: Option<String>,
    pub model: Option<String>,
    /// The values by the ids of the options.
    pub options: BTreeMap<String, String>,
}

impl Chosen {
    pub fn get(&self, role: Role) -> Option<&str> {
        match role {
            Role::Mode => self.mode.as_deref(),
            Role::Model => self.model.as_deref(),
        }
    }
}

/// The facts about a session that do not belong to one turn.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionFacts {
    /// The directory that the session works in.
    pub directory: String,
    pub modes: Option<Modes>,
    pub models: Option<Models>,
    pub config_options: Vec<ConfigOption>,
    /// `None`: the agent has not named them yet, or has none.
    pub commands: Option<Commands>,
    /// What the session had when it was opened, before anybody chose something else.
    pub initial: Chosen,
    pub title: Option<String>,
    pub totals: SessionTotals,
}

impl SessionFacts {
    pub(super) fn new(directory: String, totals: SessionTotals) -> Self {
        Self {
            directory,
            modes: None,
            models: None,
            config_options: Vec::new(),
            commands: None,
            initial: Chosen::default(),
            title: None,
            totals,
        }
    }

    /// Whether the update concerns the session and not a turn.
    pub(super) fn concerns(update: &Update) -> bool {
        matches!(
            update,
            Update::Commands(_)
                | Update::Mode(_)
                | Update::ConfigOptions(_)
                | Update::Title(_)
                | Update::Usage(_)
        )
    }

    pub(super) fn note(&mut self, update: &Update) {
        match update {
            Update::Commands(commands) => self.commands = Some(commands.clone()),
            Update::Mode(mode) => self.set(Role::Mode, mode),
            Update::ConfigOptions(options) => self.set_options(options.clone()),
            Update::Title(Some(title)) => self.title = Some(title.clone()),
            Update::Usage(usage) => self.totals.note(usage),
            _ => {}
        }
    }

    /// Records the response with which the agent opened the session.
    pub(super) fn opened(&mut self, answer: SessionAnswer) {
        self.modes = answer.modes.or(self.modes.take());
        self.models = answer.models.or(self.models.take());
        if !answer.config_options.is_empty() {
            self.config_options = answer.config_options;
        }
        let current = |role| self.current(role).filter(|word| !word.is_empty()).map(str::to_owned);
        let options = self.other_options().map(|option| (option.id.clone(), option.current_value.clone()));
        self.initial =
            Chosen { mode: current(Role::Mode), model: current(Role::Model), options: options.collect() };
    }

    /// Records the config options. The options for the mode and the model then replace the agent's own lists of modes and models,
    /// because with one of its models, one agent removes a mode only from the option.
    pub(super) fn set_options(&mut self, options: Vec<ConfigOption>) {
        if options.is_empty() {
            return;
        }
        self.config_options = options;
        for role in [Role::Mode, Role::Model] {
            let Some(option) = self.option_for(role).cloned().filter(|option| !option.choices.is_empty())
            else {
                continue;
            };
            let ConfigOption { current_value, choices, .. } = option;
            match role {
                Role::Mode => self.modes.iter_mut().for_each(|modes| {
                    modes.current_mode_id.clone_from(&current_value);
                    modes.available_modes = choices.iter().cloned().map(Mode::from).collect();
                }),
                Role::Model => self.models.iter_mut().for_each(|models| {
                    models.current_model_id.clone_from(&current_value);
                    models.available_models = choices.iter().cloned().map(Model::from).collect();
                }),
            }
        }
    }

    pub(super) fn set(&mut self, role: Role, word: &str) {
        match role {
            Role::Mode => self.modes.iter_mut().for_each(|modes| word.clone_into(&mut modes.current_mode_id)),
            Role::Model => {
                self.models.iter_mut().for_each(|models| word.clone_into(&mut models.current_model_id));
            }
        }
        let Some(id) = self.option_for(role).map(|option| option.id.clone()) else { return };
        self.set_current_value(&id, word);
    }

    /// Records the value of a config option, which may be the option for the mode or the model.
    pub(super) fn set_value(&mut self, option: &str, value: &str) {
        let is_it = |role: &Role| self.option_for(*role).is_some_and(|known| known.id == option);
        match [Role::Mode, Role::Model].into_iter().find(is_it) {
            Some(role) => self.set(role, value),
            None => self.set_current_value(option, value),
        }
    }

    fn set_current_value(&mut self, option: &str, value: &str) {
        if let Some(option) = self.config_options.iter_mut().find(|known| known.id == option) {
            value.clone_into(&mut option.current_value);
        }
    }

    /// The config options other than those for the mode and the model. An agent may have several options for the mode or the model.
    /// All of them are left out, because pinning the mode or the model pins all of them.
    pub fn other_options(&self) -> impl Iterator<Item = &ConfigOption> {
        self.config_options.iter().filter(|option| role_of(option).is_none())
    }

    /// Fails if the agent does not offer this value for the option. The error lists the offered values.
    pub fn check_option(&self, id: &str, value: &str) -> Result<()> {
        let refusal = |text: &str| {
            let field = format!("metadata.shared.config.{}", redact::cut_at(id, MAX_ID));
            Err(Error::invalid(field, redact::cut(text)))
        };
        if let Some(role) = self.config_options.iter().filter(|option| option.id == id).find_map(role_of) {
            let what = role.as_str();
            return refusal(&format!("A message chooses the {what} by metadata.shared.{what}."));
        }
        let Some(option) = self.other_options().find(|option| option.id == id) else {
            let ids: Vec<&str> = self.other_options().map(|option| option.id.as_str()).collect();
            return refusal(&match ids.as_slice() {
                [] => "The agent offers no options; leave this field out.".to_owned(),
                ids => format!("The agent has no option `{id}`. Choose one of: {}.", ids.join(", ")),
            });
        };
        if option.choices.is_empty() || option.choices.iter().any(|choice| choice.value == value) {
            return Ok(());
        }
        let values: Vec<&str> = option.choices.iter().map(|choice| choice.value.as_str()).collect();
        refusal(&format!("The option `{id}` has no value `{value}`. Choose one of: {}.", values.join(", ")))
    }

    /// The config option that has this role.
    pub fn option_for(&self, role: Role) -> Option<&ConfigOption> {
        schema::option_for(&self.config_options, role.as_str())
    }

    /// The current mode or model. `None`: the agent does not report it.
    pub fn current(&self, role: Role) -> Option<&str> {
        let own = match role {
            Role::Mode => self.modes.as_ref().map(|modes| modes.current_mode_id.as_str()),
            Role::Model => self.models.as_ref().map(|models| models.current_model_id.as_str()),
        };
        own.or_else(|| Some(self.option_for(role)?.current_value.as_str()))
    }

    /// The modes or models that the agent offers. Empty: it offers none, or does not name them.
    pub fn choices(&self, role: Role) -> Vec<Choice> {
        let own: Vec<Choice> = match role {
            Role::Mode => {
                let modes = self.modes.iter().flat_map(|modes| &modes.available_modes);
                modes.map(|mode| choice(&mode.id, &mode.name, mode.description.as_deref())).collect()
            }
            Role::Model => {
                let models = self.models.iter().flat_map(|models| &models.available_models);
                models
                    .map(|model| choice(&model.model_id, &model.name, model.description.as_deref()))
                    .collect()
            }
        };
        if own.is_empty() { self.option_for(role).map(choices_of).unwrap_or_default() } else { own }
    }

    /// Everything that the agent offers in this session. `defaults`: the settings of a turn whose message chooses none.
    pub fn offered(&self, defaults: &Chosen) -> Choices {
        let list =
            |role| ChoiceList { default: defaults.get(role).map(str::to_owned), choices: self.choices(role) };
        let command = |command: &Command| choice(&command.name, "", Some(&command.description));
        Choices {
            modes: list(Role::Mode),
            models: list(Role::Model),
            options: self
                .other_options()
                .map(|option| SessionOption {
                    option: choice(&option.id, &option.name, None),
                    default: defaults.options.get(&option.id).filter(|value| !value.is_empty()).cloned(),
                    choices: choices_of(option),
                })
                .collect(),
            commands: self.commands.iter().flat_map(|commands| &commands.entries).map(command).collect(),
        }
    }
}

/// The role of a config option, according to its category or its id.
fn role_of(option: &ConfigOption) -> Option<Role> {
    let names = [option.category.as_deref(), Some(option.id.as_str())];
    [Role::Mode, Role::Model].into_iter().find(|role| names.contains(&Some(role.as_str())))
}

/// A choice for callers. If it has no name, its id is used as the name.
fn choice(id: &str, name: &str, description: Option<&str>) -> Choice {
    let present = |text: &&str| !text.trim().is_empty();
    Choice {
        id: id.to_owned(),
        name: Some(name).filter(present).unwrap_or(id).to_owned(),
        description: description.filter(present).map(str::to_owned),
    }
}

fn choices_of(option: &ConfigOption) -> Vec<Choice> {
    let of_value = |value: &ConfigChoice| choice(&value.value, &value.name, value.description.as_deref());
    option.choices.iter().map(of_value).collect()
}

impl From<ConfigChoice> for Mode {
    fn from(ConfigChoice { value, name, description }: ConfigChoice) -> Self {
        Self { id: value, name, description }
    }
}

impl From<ConfigChoice> for Model {
    fn from(ConfigChoice { value, name, description }: ConfigChoice) -> Self {
        Self { model_id: value, name, description }
    }
}
