//! Adds the agent's choices for a message to the extended card: modes, models and options beside the choice of a model, and
//! commands as skills.

use longshore_model::card::{Card, Skill};
use longshore_model::{Choice, ChoiceList, Choices, Json, SessionOption};
use serde_json::{Value, json};

use crate::extension::Extension;

/// The longest description. A longer one is cut.
const MAX_DESCRIPTION: usize = 1024;

/// Adds the known choices of the agent. Empty lists are left out.
pub fn add_choices(card: &mut Card, choices: &Choices) {
    let Choices { modes, models, options, commands } = choices;
    let is_selection = |uri: &str| Extension::parse(uri) == Some(Extension::ModelSelection);
    for entry in card.extensions.iter_mut().filter(|entry| is_selection(&entry.uri)) {
        let mut params = entry.params.as_ref().map_or_else(|| json!({}), Json::to_value);
        for (key, list) in [("modes", modes), ("models", models)] {
            if !list.choices.is_empty() {
                params[key] = offered(list);
            }
        }
        if !options.is_empty() {
            params["config_options"] = options.iter().map(option).collect();
        }
        entry.params = Some(Json::from_value(&params));
    }
    card.skills.extend(commands.iter().map(command));
}

/// A description for the card. `None`: there is none.
pub(crate) fn description(text: Option<&str>) -> Option<String> {
    let text = text.map(str::trim).filter(|text| !text.is_empty())?;
    if text.len() <= MAX_DESCRIPTION {
        return Some(text.to_owned());
    }
    let mut cut = text[..text.floor_char_boundary(MAX_DESCRIPTION)].trim_end().to_owned();
    cut.push('…');
    Some(cut)
}

fn offered(ChoiceList { default, choices }: &ChoiceList) -> Value {
    let mut list = json!({"choices": choices.iter().map(choice).collect::<Value>()});
    if let Some(default) = default {
        list["default"] = json!(default);
    }
    list
}

fn choice(Choice { id, name, description: text }: &Choice) -> Value {
    let mut choice = json!({"id": id, "name": name});
    if let Some(text) = description(text.as_deref()) {
        choice["description"] = json!(text);
    }
    choice
}

fn option(SessionOption { option, default, choices }: &SessionOption) -> Value {
    let mut shown = choice(option);
    if let Some(default) = default {
        shown["default"] = json!(default);
    }
    shown["choices"] = choices.iter().map(choice).collect();
    shown
}

fn command(Choice { id, description: text, .. }: &Choice) -> Skill {
    Skill {
        id: format!("command.{id}"),
        name: format!("/{id}"),
        description: description(text.as_deref())
            .unwrap_or_else(|| format!("The command /{id} of the agent.")),
        tags: ["command", "provider-private"].map(str::to_owned).to_vec(),
        examples: vec![format!("/{id}")],
        input_modes: Vec::new(),
        output_modes: Vec::new(),
    }
}
