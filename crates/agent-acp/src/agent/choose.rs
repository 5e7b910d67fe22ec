//! Sets the mode, the model and the other options of a turn. Each comes from the message, or else from the configuration, or else
//! is the value with which the agent opened the session.
//!
//! They are set before each turn, so that no turn inherits the choices of an earlier message.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use longshore_model::{Choice, Error, ErrorKind, ModelName, PromptOptions, Result, redact};

use super::AcpAgent;
use crate::connection::{CallError, Chosen, Connection, Role, SessionFacts};

/// The order in which they are set. The model is first, because one agent offers other modes with another model.
const ROLES: [Role; 2] = [Role::Model, Role::Mode];

/// For how many directories the agent's own defaults are remembered. Beyond that, a reopened session of a forgotten directory uses
/// the mode and the model with which the agent reopens it.
const MAX_DIRECTORIES: usize = 256;

/// The mode and the model of new sessions, by directory. A reopened session may still have the choice of an earlier message, so its
/// values are not used as defaults.
#[derive(Debug, Default)]
pub(super) struct Defaults(Mutex<HashMap<String, Chosen>>);

impl Defaults {
    /// Records the defaults of a new session.
    pub(super) fn note_new(&self, connection: &Connection, session: &str) {
        let Some(SessionFacts { directory, initial, .. }) = connection.facts(session) else { return };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < MAX_DIRECTORIES || known.contains_key(&directory) {
            known.insert(directory, initial);
        }
    }

    fn of(&self, session: &SessionFacts) -> Chosen {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&session.directory).unwrap_or(&session.initial).clone()
    }
}

/// The limit of sessions in [`ChosenOptions`]. Beyond it, the session with the oldest choice is forgotten, and its agent keeps the
/// chosen values.
const MAX_CHOSEN: usize = 1024;

/// For each session, the options that its last message chose, with the values from before that choice. They are kept when a session
/// is closed or the process ends, because an agent may reopen the session with the values of its last turn.
#[derive(Debug, Default)]
pub(super) struct ChosenOptions(Mutex<VecDeque<(String, BTreeMap<String, String>)>>);

impl ChosenOptions {
    fn of(&self, session: &str) -> BTreeMap<String, String> {
        let known = self.lock();
        known.iter().find(|(id, _)| id == session).map(|(_, options)| options.clone()).unwrap_or_default()
    }

    /// Records the value of an option before a message chooses it. Only the value before the first choice is kept.
    fn note(&self, session: &str, option: &str, before: &str) {
        self.change(session, |options| {
            options.entry(option.to_owned()).or_insert_with(|| before.to_owned());
        });
    }

    /// Forgets an option that has its original value again.
    fn forget_option(&self, session: &str, option: &str) {
        self.change(session, |options| drop(options.remove(option)));
    }

    pub(super) fn forget(&self, session: &str) {
        self.change(session, BTreeMap::clear);
    }

    /// Copies the record when the agent has copied a session, because the copy has the same options.
    pub(super) fn copy(&self, from: &str, to: &str) {
        let copied = self.of(from);
        self.change(to, |options| *options = copied);
    }

    fn change(&self, session: &str, change: impl FnOnce(&mut BTreeMap<String, String>)) {
        let mut known = self.lock();
        let at = known.iter().position(|(id, _)| id == session);
        let mut options = at.and_then(|at| known.remove(at)).map(|(_, options)| options).unwrap_or_default();
        change(&mut options);
        if options.is_empty() {
            return;
        }
        if known.len() == MAX_CHOSEN {
            known.pop_front();
        }
        known.push_back((session.to_owned(), options));
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(String, BTreeMap<String, String>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AcpAgent {
    /// The default mode and model of a turn, for a message that chooses none.
    pub(super) fn defaults_of(&self, session: &SessionFacts) -> Chosen {
        let Chosen { mode, model, options } = self.defaults.of(session);
        let (own_mode, own_model) = (self.config.mode.clone(), self.config.model.clone());
        Chosen { mode: own_mode.or(mode), model: own_model.or(model), options }
    }

    /// Sets the mode, the model and the other options of the next turn.
    pub(super) async fn choose(
        &self,
        connection: &Connection,
        session: &str,
        options: &PromptOptions,
    ) -> Result<()> {
        self.choose_roles(connection, session, options).await?;
        self.choose_options(connection, session, options).await
    }

    /// Sets the chosen options. Does not touch an option that no message chose: the agent itself, or a command, may have changed
    /// it.
    async fn choose_options(
        &self,
        connection: &Connection,
        session: &str,
        options: &PromptOptions,
    ) -> Result<()> {
        for (id, value) in self.chosen.of(session) {
            // The facts are read again for each option, because setting one may change another.
            let Some(facts) = connection.facts(session) else { return Ok(()) };
            // An option that the agent does not offer now, for example because of another model, is reset when the agent offers it
            // again.
            if options.config.contains_key(&id) || facts.check_option(&id, &value).is_err() {
                continue;
            }
            set_option(connection, session, &id, &value).await?;
            self.chosen.forget_option(session, &id);
        }
        for (id, value) in &options.config {
            let Some(facts) = connection.facts(session) else { return Ok(()) };
            facts.check_option(id, value)?;
            if let Some(option) = facts.config_options.iter().find(|option| option.id == *id) {
                self.chosen.note(session, id, &option.current_value);
            }
            set_option(connection, session, id, value).await?;
        }
        Ok(())
    }

    async fn choose_roles(
        &self,
        connection: &Connection,
        session: &str,
        options: &PromptOptions,
    ) -> Result<()> {
        for role in ROLES {
            let Some(facts) = connection.facts(session) else { return Ok(()) };
            let requested = requested(options, role, &facts.choices(role));
            let is_requested = requested.is_some();
            let Some(word) = requested.or_else(|| self.defaults_of(&facts).get(role).map(str::to_owned))
            else {
                continue;
            };
            if facts.current(role) == Some(word.as_str()) {
                continue;
            }
            let Err(cause) = connection.choose(session, role, &word).await else { continue };
            let is_absent = matches!(cause, CallError::NoSuchChoice { .. } | CallError::Unsupported(_));
            let is_configured = match role {
                Role::Mode => self.config.mode.is_some(),
                Role::Model => self.config.model.is_some(),
            };
            match (is_requested, is_configured) {
                (true, _) => return Err(cause.into_error(&format!("use the requested {}", role.as_str()))),
                (false, true) => {
                    let error = cause.into_error(&format!("use the configured {}", role.as_str()));
                    // The value comes from the configuration, so the caller cannot correct it.
                    return Err(if is_absent {
                        error.with_kind(ErrorKind::AgentUnavailable).permanent()
                    } else {
                        error
                    });
                }
                // The agent no longer offers its own earlier value, so its new choice stays.
                (false, false) if is_absent => {}
                (false, false) => {
                    let what =
                        format!("go back to the {} `{word}`, with which the session began", role.as_str());
                    return Err(cause.into_error(&what));
                }
            }
        }
        Ok(())
    }

    /// Refuses a mode, a model or an option that the agent is known to lack. The offers may differ between directories, and the
    /// modes also between models. If the offers for the turn are not known yet, the check is made when the turn starts.
    pub(super) fn check_known(
        &self,
        options: &PromptOptions,
        known: &SessionFacts,
        directory: &str,
    ) -> Result<()> {
        if known.directory != directory {
            return Ok(());
        }
        for role in ROLES {
            let choices = known.choices(role);
            let Some(word) = requested(options, role, &choices) else { continue };
            if role == Role::Mode
                && self.model_of_turn(options, known).as_deref() != known.current(Role::Model)
            {
                continue;
            }
            let (field, what) = (format!("metadata.shared.{}", role.as_str()), role.as_str());
            if choices.is_empty() {
                if known.current(role).is_none() {
                    let text =
                        format!("The agent does not let callers choose a {what}; leave this field out.");
                    return Err(Error::invalid(field, text));
                }
            } else if choices.iter().all(|choice| choice.id != word) {
                let ids: Vec<&str> = choices.iter().map(|choice| choice.id.as_str()).collect();
                let text = format!("The agent has no {what} `{word}`. Choose one of: {}.", ids.join(", "));
                return Err(Error::invalid(field, redact::cut(&text)));
            }
        }
        // With another model, the agent may offer other options.
        if self.model_of_turn(options, known).as_deref() == known.current(Role::Model) {
            for (id, value) in &options.config {
                known.check_option(id, value)?;
            }
        }
        Ok(())
    }

    /// The model that a turn with these options has in this session.
    fn model_of_turn(&self, options: &PromptOptions, session: &SessionFacts) -> Option<String> {
        let requested = requested(options, Role::Model, &session.choices(Role::Model));
        requested.or_else(|| self.defaults_of(session).model)
    }
}

async fn set_option(connection: &Connection, session: &str, id: &str, value: &str) -> Result<()> {
    let facts = connection.facts(session);
    let is_set = |facts: SessionFacts| {
        facts.config_options.iter().any(|option| option.id == id && option.current_value == value)
    };
    if facts.is_some_and(is_set) {
        return Ok(());
    }
    let what = || redact::cut(&format!("set the option `{id}` to `{value}`"));
    connection.set_config_option(session, id, value).await.map_err(|cause| cause.into_error(&what()))
}

/// Refuses choices that the operator has reserved.
pub(super) fn refuse_pinned(options: &PromptOptions, pinned: &[Role], pins_config: bool) -> Result<()> {
    if pins_config && !options.config.is_empty() {
        let text = "This gateway does not let callers choose options of the agent; leave this field out.";
        return Err(Error::invalid("metadata.shared.config", text));
    }
    for role in pinned {
        let is_named = match role {
            Role::Mode => options.mode.is_some(),
            Role::Model => options.model.is_some(),
        };
        if is_named {
            let (field, what) = (format!("metadata.shared.{}", role.as_str()), role.as_str());
            let text = format!("This gateway does not let callers choose the {what}; leave this field out.");
            return Err(Error::invalid(field, text));
        }
    }
    Ok(())
}

/// The id of the mode or the model that the message requests.
fn requested(options: &PromptOptions, role: Role, choices: &[Choice]) -> Option<String> {
    match role {
        Role::Mode => options.mode.clone(),
        Role::Model => options.model.as_ref().map(|model| model_id(model, choices)),
    }
}

/// The id of the model among the agent's models. Callers name a provider and a model, and an agent may use one word for both.
fn model_id(name: &ModelName, choices: &[Choice]) -> String {
    let both = name.to_string();
    let is_known = |id: &str| choices.iter().any(|choice| choice.id == id);
    if !is_known(&both) && is_known(&name.model) { name.model.clone() } else { both }
}
