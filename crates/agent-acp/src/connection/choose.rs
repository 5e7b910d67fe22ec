//! Sets the mode, the model and the config options of a session.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::{CallError, Connection, Role, Route, SessionFacts};
use crate::schema::{self, Commands, ConfigAnswer};

impl Connection {
    pub fn facts(&self, session: &str) -> Option<SessionFacts> {
        self.lock().sessions.get(session).map(|route| route.facts.clone())
    }

    /// Waits until the agent has named the commands of a session, which it may do shortly after it has opened the session.
    pub async fn wait_for_commands(&self, session: &str, patience: Duration) {
        let mut named = self.0.commands_named.subscribe();
        let is_unknown = || self.facts(session).is_some_and(|facts| facts.commands.is_none());
        // An error means a timeout, and then the commands stay unknown.
        let _ = timeout(patience, async { while is_unknown() && named.changed().await.is_ok() {} }).await;
    }

    /// The commands that the agent named for a session, or else for the other sessions in the same directory. Empty: it named none
    /// yet.
    pub fn commands_of(&self, session: &str) -> Vec<Commands> {
        let state = self.lock();
        let Some(Route { facts, .. }) = state.sessions.get(session) else { return Vec::new() };
        if let Some(own) = &facts.commands {
            return vec![own.clone()];
        }
        let all = state.sessions.values().map(|route| &route.facts);
        all.filter(|other| other.directory == facts.directory)
            .filter_map(|other| other.commands.clone())
            .collect()
    }

    /// Sets the mode or the model: by the method for it if the agent has its own list, or else by the config option. Checks the
    /// word first, because two agents accept any.
    pub async fn choose(&self, session: &str, role: Role, word: &str) -> Result<(), CallError> {
        let facts = self.facts(session).ok_or(CallError::NoSession)?;
        let choices = facts.choices(role);
        if !choices.is_empty() && choices.iter().all(|choice| choice.id != word) {
            let choices = choices.into_iter().map(|choice| choice.id).collect();
            return Err(CallError::NoSuchChoice { what: role.as_str(), word: word.to_owned(), choices });
        }
        let (has_list, method, params) = match role {
            Role::Mode => {
                (facts.modes.is_some(), "session/set_mode", json!({"sessionId": session, "modeId": word}))
            }
            Role::Model => {
                (facts.models.is_some(), "session/set_model", json!({"sessionId": session, "modelId": word}))
            }
        };
        if has_list && !self.lock().absent.contains(method) {
            match self.call(method, &params, self.0.limits.call).await {
                Err(error) if error.is_method_absent() => {}
                answer => {
                    answer?;
                    self.change(session, |facts| facts.set(role, word));
                    return Ok(());
                }
            }
        }
        let option = facts.option_for(role).ok_or(CallError::Unsupported(match role {
            Role::Mode => "a choice of modes",
            Role::Model => "a choice of models",
        }))?;
        self.set_config_option(session, &option.id, word).await
    }

    pub async fn set_config_option(&self, session: &str, option: &str, value: &str) -> Result<(), CallError> {
        let params = json!({"sessionId": session, "configId": option, "value": value});
        let answer = self.call("session/set_config_option", &params, self.0.limits.call).await?;
        let ConfigAnswer { config_options } = schema::read(&answer).unwrap_or_default();
        self.change(session, |facts| {
            facts.set_value(option, value);
            // If the response contains the options, they take precedence.
            facts.set_options(config_options);
        });
        Ok(())
    }

    pub(super) fn change(&self, session: &str, change: impl FnOnce(&mut SessionFacts)) {
        if let Some(route) = self.lock().sessions.get_mut(session) {
            change(&mut route.facts);
        }
    }
}
