//! Changes of the mode, the model and the other settings of a session during a turn.

use std::collections::BTreeMap;

use longshore_model::{AgentEvent, Json, Progress, ProgressKind};
use serde_json::{Map, Value, json};

use crate::schema::{ConfigOption, option_for};

/// The settings of a session, as the agent last reported them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    mode: Option<String>,
    model: Option<String>,
    /// The values of the other config options by their ids.
    options: BTreeMap<String, String>,
}

impl Settings {
    pub fn new(mode: Option<&str>, model: Option<&str>, options: &[ConfigOption]) -> Self {
        let mut settings = Self::default();
        settings.set_options(options);
        settings.mode = mode.map(str::to_owned).or(settings.mode);
        settings.model = model.map(str::to_owned).or(settings.model);
        settings
    }

    /// Records the agent's new mode. Returns an event if it has changed.
    pub(super) fn mode_changed(&mut self, mode: &str) -> Option<AgentEvent> {
        let before = self.clone();
        self.mode = Some(mode.to_owned());
        self.changes_since(&before)
    }

    /// Records the agent's config options. Returns an event with those that have changed.
    pub(super) fn options_changed(&mut self, options: &[ConfigOption]) -> Option<AgentEvent> {
        let before = self.clone();
        self.set_options(options);
        self.changes_since(&before)
    }

    fn set_options(&mut self, options: &[ConfigOption]) {
        let id_for = |role| option_for(options, role).map(|option| option.id.as_str());
        let (mode, model) = (id_for("mode"), id_for("model"));
        self.options.clear();
        for ConfigOption { id, current_value, .. } in options {
            let value = current_value.clone();
            if mode == Some(id) {
                self.mode = Some(value);
            } else if model == Some(id) {
                self.model = Some(value);
            } else {
                self.options.insert(id.clone(), value);
            }
        }
    }

    fn changes_since(&self, before: &Self) -> Option<AgentEvent> {
        let Self { mode, model, options } = self;
        let mut details = Map::new();
        for (name, now, before) in [("mode", mode, &before.mode), ("model", model, &before.model)] {
            if let Some(now) = now.as_ref().filter(|_| now != before) {
                details.insert(name.to_owned(), now.as_str().into());
            }
        }
        let changed = options.iter().filter(|(id, value)| before.options.get(*id) != Some(value));
        let changed: Map<String, Value> =
            changed.map(|(id, value)| (id.clone(), value.as_str().into())).collect();
        if !changed.is_empty() {
            details.insert("options".to_owned(), changed.into());
        }
        if details.is_empty() {
            return None;
        }
        details.insert("type".to_owned(), json!("settings"));
        let details = Some(Json::from_value(&Value::Object(details)));
        Some(AgentEvent::Progress(Progress { kind: ProgressKind::Settings, details }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::ConfigChoice;

    fn option(id: &str, category: &str, value: &str) -> ConfigOption {
        let choices = vec![ConfigChoice { value: value.to_owned(), name: String::new(), description: None }];
        let (id, category) = (id.to_owned(), Some(category.to_owned()));
        ConfigOption { id, name: String::new(), category, current_value: value.to_owned(), choices }
    }

    fn told(event: Option<AgentEvent>) -> Value {
        match event {
            Some(AgentEvent::Progress(Progress { kind: ProgressKind::Settings, details })) => {
                details.expect("it says what changed").to_value()
            }
            None => Value::Null,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_changed_is_told() {
        let options = |mode: &str, model: &str, effort: &str| {
            [
                option("m", "mode", mode),
                option("llm", "model", model),
                option("effort", "thought_level", effort),
            ]
        };
        let mut settings = Settings::new(Some("ask"), None, &options("", "a", "low"));
        assert_eq!(told(settings.mode_changed("ask")), Value::Null);
        assert_eq!(told(settings.mode_changed("plan")), json!({"type": "settings", "mode": "plan"}));
        assert_eq!(told(settings.options_changed(&options("plan", "a", "low"))), Value::Null);
        assert_eq!(
            told(settings.options_changed(&options("ask", "b", "max"))),
            json!({"type": "settings", "mode": "ask", "model": "b", "options": {"effort": "max"}})
        );
        // With another model, an option may disappear.
        assert_eq!(
            told(settings.options_changed(&options("ask", "a", "max")[..2])),
            json!({"type": "settings", "model": "a"})
        );
    }
}
