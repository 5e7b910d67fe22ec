//! Modes, models and config options of a session.

use longshore_model::Json;
use serde::Deserialize;

use super::lenient::{choices, json, or_default};

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Modes {
    #[serde(deserialize_with = "or_default")]
    pub current_mode_id: String,
    #[serde(deserialize_with = "choices")]
    pub available_modes: Vec<Mode>,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Mode {
    pub id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub description: Option<String>,
}

/// The agent's own list of models. It is no longer part of ACP, but agents still send it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Models {
    #[serde(deserialize_with = "or_default")]
    pub current_model_id: String,
    #[serde(deserialize_with = "choices")]
    pub available_models: Vec<Model>,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    pub model_id: String,
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    #[serde(default, deserialize_with = "or_default")]
    pub description: Option<String>,
}

/// A setting of a session.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(from = "RawConfigOption")]
pub struct ConfigOption {
    pub id: String,
    pub name: String,
    /// `mode`, `model`, `thought_level` or another word.
    pub category: Option<String>,
    pub current_value: String,
    /// The values to choose from. Empty for a setting that is not a choice.
    pub choices: Vec<ConfigChoice>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigChoice {
    pub value: String,
    pub name: String,
    pub description: Option<String>,
}

/// The option with this role. Agents name the role in the category, or in the id if there is no category.
pub fn option_for<'a>(options: &'a [ConfigOption], role: &str) -> Option<&'a ConfigOption> {
    let has_category = |option: &&ConfigOption| option.category.as_deref() == Some(role);
    let has_id = |option: &&ConfigOption| option.category.is_none() && option.id == role;
    options.iter().find(has_category).or_else(|| options.iter().find(has_id))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawConfigOption {
    id: String,
    #[serde(default, deserialize_with = "or_default")]
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    category: Option<String>,
    #[serde(default, deserialize_with = "json")]
    current_value: Option<Json>,
    #[serde(default, deserialize_with = "choices")]
    options: Vec<RawChoice>,
}

/// A choice, or a group of choices.
#[derive(Deserialize)]
struct RawChoice {
    #[serde(default, deserialize_with = "or_default")]
    value: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    description: Option<String>,
    /// The choices of a group. A group within a group is left out, so that a deeply nested list cannot exhaust the stack.
    #[serde(default, deserialize_with = "choices")]
    options: Vec<GroupedChoice>,
}

#[derive(Deserialize)]
struct GroupedChoice {
    value: String,
    #[serde(default, deserialize_with = "or_default")]
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    description: Option<String>,
}

impl From<RawConfigOption> for ConfigOption {
    fn from(raw: RawConfigOption) -> Self {
        let RawConfigOption { id, name, category, current_value, options } = raw;
        let current_value = current_value.map_or_else(String::new, |value| {
            serde_json::from_str::<String>(value.get()).unwrap_or_else(|_| value.get().to_owned())
        });
        let choices = options
            .into_iter()
            .flat_map(|RawChoice { value, name, description, options }| match value {
                Some(value) => vec![GroupedChoice { value, name, description }],
                None => options,
            })
            .map(|GroupedChoice { value, name, description }| ConfigChoice { value, name, description })
            .collect();
        Self { id, name, category, current_value, choices }
    }
}
