//! Sessions: opening them, and what is known about each.

use std::time::Duration;

use longshore_model::Json;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::{CallError, Connection, Pending, Phase, Route};
use crate::schema::{
    self, Command, ConfigAnswer, ConfigOption, McpServer, Models, Modes, SessionAnswer, SessionList, Update,
};
use crate::translate::{Replay, SessionTotals};

/// How many times as long as the start of an agent the opening of an old session may take, if updates come meanwhile: one agent
/// first finishes a turn that broke off. Then the request fails.
const MOST_STARTS: u32 = 10;

/// A session that was opened or opened again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenedSession {
    pub id: String,
    /// The history that the agent repeated. `None` for a new session, and for one that was resumed.
    pub replay: Option<Replay>,
}

/// What can be chosen in a session.
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

/// What is known about a session beside its turns.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionFacts {
    pub modes: Option<Modes>,
    pub models: Option<Models>,
    pub config_options: Vec<ConfigOption>,
    pub commands: Vec<Command>,
    pub title: Option<String>,
    pub totals: SessionTotals,
}

impl SessionFacts {
    pub(super) fn new(totals: SessionTotals) -> Self {
        Self {
            modes: None,
            models: None,
            config_options: Vec::new(),
            commands: Vec::new(),
            title: None,
            totals,
        }
    }

    /// Whether the update is about the session and not about a turn.
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
            Update::Commands(commands) => self.commands.clone_from(commands),
            Update::Mode(mode) => self.set_mode(mode),
            Update::ConfigOptions(options) => self.config_options.clone_from(options),
            Update::Title(Some(title)) => self.title = Some(title.clone()),
            Update::Usage(usage) => self.totals.note(usage),
            _ => {}
        }
    }

    pub(super) fn opened(&mut self, answer: SessionAnswer) {
        self.modes = answer.modes.or(self.modes.take());
        self.models = answer.models.or(self.models.take());
        if !answer.config_options.is_empty() {
            self.config_options = answer.config_options;
        }
    }

    /// The config option that has this role.
    pub fn option_for(&self, role: &str) -> Option<&ConfigOption> {
        schema::option_for(&self.config_options, role)
    }

    /// The current mode or model. `None`: the agent does not say.
    pub fn current(&self, role: Role) -> Option<&str> {
        let own = match role {
            Role::Mode => self.modes.as_ref().map(|modes| modes.current_mode_id.as_str()),
            Role::Model => self.models.as_ref().map(|models| models.current_model_id.as_str()),
        };
        own.or_else(|| Some(self.option_for(role.as_str())?.current_value.as_str()))
    }

    /// The ids of the models that the agent offers. Empty: it offers none, or does not say which.
    pub fn model_ids(&self) -> Vec<&str> {
        schema::model_ids(self.models.as_ref(), &self.config_options)
    }

    fn set_mode(&mut self, mode: &str) {
        if let Some(modes) = &mut self.modes {
            mode.clone_into(&mut modes.current_mode_id);
        }
        self.set_option_for("mode", mode);
    }

    fn set_option_for(&mut self, role: &str, value: &str) {
        let Some(id) = self.option_for(role).map(|option| option.id.clone()) else { return };
        if let Some(option) = self.config_options.iter_mut().find(|option| option.id == id) {
            value.clone_into(&mut option.current_value);
        }
    }
}

impl Connection {
    pub async fn new_session(&self, cwd: &str, servers: &[McpServer]) -> Result<OpenedSession, CallError> {
        let (reply, answer) = oneshot::channel();
        let params = json!({"cwd": cwd, "mcpServers": servers});
        self.request("session/new", &params, self.0.limits.start, Pending::NewSession(reply), answer).await
    }

    /// Opens a session of an earlier process again: resumes it if the agent can, which repeats no history, or else loads it.
    ///
    /// Success does not prove that the session exists: one agent loads any id.
    pub async fn reopen_session(
        &self,
        session: &str,
        cwd: &str,
        servers: &[McpServer],
    ) -> Result<OpenedSession, CallError> {
        if self.offers("session/resume") {
            match self.reopen("session/resume", session, cwd, servers).await {
                Err(error) if error.is_method_absent() => {}
                resumed => return resumed,
            }
        }
        self.load_session(session, cwd, servers).await
    }

    pub async fn load_session(
        &self,
        session: &str,
        cwd: &str,
        servers: &[McpServer],
    ) -> Result<OpenedSession, CallError> {
        if !self.offers("session/load") {
            return Err(CallError::Unsupported("a way to open an old session again"));
        }
        self.reopen("session/load", session, cwd, servers).await
    }

    async fn reopen(
        &self,
        method: &'static str,
        session: &str,
        cwd: &str,
        servers: &[McpServer],
    ) -> Result<OpenedSession, CallError> {
        {
            let mut state = self.lock();
            let facts = || SessionFacts::new(SessionTotals::of_old_session());
            let route = state
                .sessions
                .entry(session.to_owned())
                .or_insert_with(|| Route { facts: facts(), phase: Phase::Idle });
            if !matches!(route.phase, Phase::Idle) {
                return Err(CallError::Busy);
            }
            route.phase = Phase::Loading(Replay::default());
        }
        let (reply, answer) = oneshot::channel();
        let is_replayed = method == "session/load";
        let pending = Pending::OldSession { session: session.to_owned(), is_replayed, reply };
        let params = json!({"sessionId": session, "cwd": cwd, "mcpServers": servers});
        let limit = self.0.limits.start;
        tokio::select! {
            biased;
            opened = self.request(method, &params, limit * MOST_STARTS, pending, answer) => opened,
            () = self.replay_stalls(session, limit) => Err(CallError::TimedOut { method, after: limit }),
        }
    }

    /// Waits until no update of a session that is being opened again has come for this long.
    async fn replay_stalls(&self, session: &str, limit: Duration) {
        let mut seen = 0;
        loop {
            sleep(limit).await;
            let now = match self.lock().sessions.get(session).map(|route| &route.phase) {
                Some(Phase::Loading(replay)) => replay.updates,
                _ => 0,
            };
            if now == seen {
                return;
            }
            seen = now;
        }
    }

    /// Makes a copy of a session.
    pub async fn fork_session(
        &self,
        session: &str,
        cwd: &str,
        servers: &[McpServer],
    ) -> Result<OpenedSession, CallError> {
        self.require("session/fork", "copies of sessions")?;
        let (reply, answer) = oneshot::channel();
        let params = json!({"sessionId": session, "cwd": cwd, "mcpServers": servers});
        self.request("session/fork", &params, self.0.limits.start, Pending::NewSession(reply), answer).await
    }

    /// One page of the agent's sessions.
    pub async fn list_sessions(
        &self,
        cwd: Option<&str>,
        cursor: Option<&str>,
    ) -> Result<SessionList, CallError> {
        self.require("session/list", "a list of sessions")?;
        let mut params = json!({});
        for (name, value) in [("cwd", cwd), ("cursor", cursor)] {
            if let Some(value) = value {
                params[name] = value.into();
            }
        }
        let answer = self.call("session/list", &params, self.0.limits.call).await?;
        schema::read(&answer).ok_or(CallError::Unreadable)
    }

    /// Closes a session, which can be opened again. After any other error than that the agent lacks the method, the session counts
    /// as closed too.
    pub async fn close_session(&self, session: &str) -> Result<(), CallError> {
        self.require("session/close", "a way to close sessions")?;
        // Forgotten at once: nothing can be prompted in a session that is being closed.
        let route = {
            let mut state = self.lock();
            match state.sessions.remove(session) {
                Some(route @ Route { phase: Phase::Idle, .. }) => route,
                Some(busy) => {
                    state.sessions.insert(session.to_owned(), busy);
                    return Err(CallError::Busy);
                }
                None => return Err(CallError::NoSession),
            }
        };
        let params = json!({"sessionId": session});
        let closed = self.call("session/close", &params, self.0.limits.call).await;
        if closed.as_ref().is_err_and(CallError::is_method_absent) {
            self.lock().sessions.entry(session.to_owned()).or_insert(route);
        }
        closed.map(drop)
    }

    pub fn facts(&self, session: &str) -> Option<SessionFacts> {
        self.lock().sessions.get(session).map(|route| route.facts.clone())
    }

    /// Sets the mode, by `session/set_mode` or by the config option for modes.
    pub async fn set_mode(&self, session: &str, mode: &str) -> Result<(), CallError> {
        let facts = self.facts(session).ok_or(CallError::NoSession)?;
        let choices = facts
            .modes
            .as_ref()
            .map(|modes| modes.available_modes.iter().map(|mode| mode.id.clone()).collect());
        let params = json!({"sessionId": session, "modeId": mode});
        self.choose(session, &facts, ("mode", mode), choices, ("session/set_mode", params)).await?;
        self.change(session, |facts| facts.set_mode(mode));
        Ok(())
    }

    /// Sets the model, by `session/set_model` or by the config option for models.
    pub async fn set_model(&self, session: &str, model: &str) -> Result<(), CallError> {
        let facts = self.facts(session).ok_or(CallError::NoSession)?;
        let choices = facts
            .models
            .as_ref()
            .map(|models| models.available_models.iter().map(|model| model.model_id.clone()).collect());
        let params = json!({"sessionId": session, "modelId": model});
        self.choose(session, &facts, ("model", model), choices, ("session/set_model", params)).await?;
        self.change(session, |facts| {
            if let Some(models) = &mut facts.models {
                model.clone_into(&mut models.current_model_id);
            }
            facts.set_option_for("model", model);
        });
        Ok(())
    }

    pub async fn set_config_option(&self, session: &str, option: &str, value: &str) -> Result<(), CallError> {
        let params = json!({"sessionId": session, "configId": option, "value": value});
        let answer = self.call("session/set_config_option", &params, self.0.limits.call).await?;
        let ConfigAnswer { config_options } = schema::read(&answer).unwrap_or_default();
        self.change(session, |facts| {
            if !config_options.is_empty() {
                facts.config_options = config_options;
            }
        });
        Ok(())
    }

    /// Sets one of `choices` with the method, or else a value of the config option for the role. Checks the word first: two agents
    /// accept any.
    async fn choose(
        &self,
        session: &str,
        facts: &SessionFacts,
        (role, word): (&'static str, &str),
        choices: Option<Vec<String>>,
        (method, params): (&'static str, serde_json::Value),
    ) -> Result<(), CallError> {
        let check = |choices: &[String]| {
            let is_known = choices.is_empty() || choices.iter().any(|choice| choice == word);
            let unknown =
                || CallError::NoSuchChoice { what: role, word: word.to_owned(), choices: choices.to_vec() };
            if is_known { Ok(()) } else { Err(unknown()) }
        };
        let is_absent = self.lock().absent.contains(method);
        if let Some(choices) = choices.filter(|_| !is_absent) {
            check(&choices)?;
            let answer: Result<Json, CallError> = self.call(method, &params, self.0.limits.call).await;
            match answer {
                Err(error) if error.is_method_absent() => {}
                answer => return answer.map(drop),
            }
        }
        let option = facts.option_for(role).ok_or(CallError::Unsupported(if role == "mode" {
            "a choice of modes"
        } else {
            "a choice of models"
        }))?;
        let choices: Vec<String> = option.choices.iter().map(|choice| choice.value.clone()).collect();
        check(&choices)?;
        self.set_config_option(session, &option.id, word).await
    }

    fn change(&self, session: &str, change: impl FnOnce(&mut SessionFacts)) {
        if let Some(route) = self.lock().sessions.get_mut(session) {
            change(&mut route.facts);
        }
    }

    /// Whether the agent advertises a method and was not found to lack it.
    pub fn offers(&self, method: &str) -> bool {
        let state = self.lock();
        let sessions = &state.capabilities.session_capabilities;
        let is_advertised = match method {
            "session/load" => state.capabilities.load_session,
            "session/resume" => sessions.resume,
            "session/list" => sessions.list,
            "session/fork" => sessions.fork,
            "session/close" => sessions.close,
            "session/delete" => sessions.delete,
            _ => false,
        };
        is_advertised && !state.absent.contains(method)
    }

    /// Whether the agent advertises a way to open a session of an earlier process, or a closed one.
    pub fn can_reopen(&self) -> bool {
        self.offers("session/load") || self.offers("session/resume")
    }

    fn require(&self, method: &str, what: &'static str) -> Result<(), CallError> {
        if self.offers(method) { Ok(()) } else { Err(CallError::Unsupported(what)) }
    }
}
