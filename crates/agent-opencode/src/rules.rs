//! The operator's rules for prompts: defaults, pinned options and allow-lists.
//!
//! The rules apply wherever a caller can name a model or an agent: in messages, native prompts, commands, subtasks, the shell and
//! summaries. They are checked when a request comes, and again when its prompt is built, because the gateway may have been
//! restarted with other rules in between.

use longshore_model::{Error, ModelName, PromptOptions, Result};

use crate::api::control::Command;
use crate::catalog::Fields;

/// The operator's decisions about prompts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PromptRules {
    /// The options of a prompt whose sender chose none. `None` in an option: OpenCode chooses.
    pub defaults: PromptOptions,
    /// Options that callers may not choose.
    pub pinned: Vec<Pin>,
    /// The models that callers may name, besides the default: `provider/model`, where `*` stands for any text. `None`: any.
    pub allowed_models: Option<Vec<String>>,
    /// The agents that callers may name, besides the default, including those of subtasks. `None`: any.
    pub allowed_agents: Option<Vec<String>>,
    /// Whether callers with the capability may run a shell. Checked again before a command runs, because the command may have been
    /// accepted under another configuration.
    pub shell: bool,
}

/// An option that callers may not choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pin {
    Model,
    Agent,
    Variant,
    System,
}

impl Pin {
    pub const ALL: [Self; 4] = [Self::Model, Self::Agent, Self::Variant, Self::System];

    /// The name of this option in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Agent => "agent",
            Self::Variant => "variant",
            Self::System => "system",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pin| pin.as_str() == word)
    }
}

impl PromptRules {
    /// Combines the requested options with the operator's defaults. The operator's system text comes before the caller's.
    pub(crate) fn apply(&self, requested: &PromptOptions) -> PromptOptions {
        let mut options = requested.or(&self.defaults);
        if let (Some(own), Some(added)) = (&self.defaults.system, &requested.system) {
            options.system = Some(format!("{own}\n\n{added}"));
        }
        options
    }

    /// Refuses options that the operator does not let callers choose. Values of further options, which OpenCode does not have, are
    /// ignored, as they always were.
    pub(crate) fn check(&self, requested: &PromptOptions, fields: Fields<'_>) -> Result<()> {
        if requested.mode.is_some() {
            let text =
                "OpenCode has no modes; name one of its agents in metadata.opencode.agent, such as plan.";
            return Err(Error::invalid("metadata.shared.mode", text));
        }
        if requested.model.as_ref().is_some_and(|model| model.provider.is_empty()) {
            let text = "is required together with modelID: a model of OpenCode is named by both";
            return Err(Error::invalid("metadata.shared.model.providerID", text));
        }
        if let Some(model) = &requested.model {
            self.check_model(model, fields.model)?;
        }
        if let Some(agent) = &requested.agent {
            self.check_agent(agent, fields.agent)?;
        }
        let variant = requested.variant.as_deref();
        if variant.is_some() && self.is_pinned(Pin::Variant) && variant != self.defaults.variant.as_deref() {
            return Err(pinned(Pin::Variant, self.defaults.variant.as_deref(), fields.variant));
        }
        if requested.system.is_some() && self.is_pinned(Pin::System) {
            return Err(pinned(Pin::System, None, fields.system));
        }
        Ok(())
    }

    pub(crate) fn check_model(&self, model: &ModelName, field: &str) -> Result<()> {
        let own = self.defaults.model.as_ref().map(full_name);
        self.check_name(Pin::Model, &full_name(model), own.as_deref(), self.allowed_models.as_deref(), field)
    }

    pub(crate) fn check_agent(&self, agent: &str, field: &str) -> Result<()> {
        let own = self.defaults.agent.as_deref();
        self.check_name(Pin::Agent, agent, own, self.allowed_agents.as_deref(), field)
    }

    /// Refuses a command if OpenCode's configuration runs it with an agent or a model that callers may not choose.
    pub(crate) fn check_command(&self, command: &Command, field: &str) -> Result<()> {
        if let Some(model) = command.model.as_deref().and_then(ModelName::parse) {
            self.check_model(&model, field)?;
        }
        command.agent.as_deref().map_or(Ok(()), |agent| self.check_agent(agent, field))
    }

    /// The operator's model. `None`: callers may choose another model.
    pub(crate) fn pinned_model(&self) -> Option<&ModelName> {
        self.defaults.model.as_ref().filter(|_| self.is_pinned(Pin::Model))
    }

    /// Whether there are agents that callers may not name.
    pub(crate) fn restricts_agents(&self) -> bool {
        self.is_pinned(Pin::Agent) || self.allowed_agents.is_some()
    }

    fn check_name(
        &self,
        pin: Pin,
        requested: &str,
        own: Option<&str>,
        allowed: Option<&[String]>,
        field: &str,
    ) -> Result<()> {
        if own == Some(requested) {
            return Ok(());
        }
        if self.is_pinned(pin) {
            return Err(pinned(pin, own, field));
        }
        let Some(allowed) = allowed else { return Ok(()) };
        if allowed.iter().any(|pattern| matches(pattern, requested)) {
            return Ok(());
        }
        let names: Vec<&str> = own.into_iter().chain(allowed.iter().map(String::as_str)).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let text = format!("This gateway does not allow this {}; allowed: {names}.", pin.as_str());
        Err(Error::invalid(field, text))
    }

    fn is_pinned(&self, pin: Pin) -> bool {
        self.pinned.contains(&pin)
    }
}

fn full_name(model: &ModelName) -> String {
    format!("{}/{}", model.provider, model.model)
}

/// The error for a pinned option. The operator's system text is not shown.
fn pinned(pin: Pin, own: Option<&str>, field: &str) -> Error {
    let allowed = own.map(|own| format!("; allowed: {own}")).unwrap_or_default();
    let what = if pin == Pin::System { "system text" } else { pin.as_str() };
    Error::invalid(
        field,
        format!("The operator of this gateway chose the {what}; leave this field out{allowed}."),
    )
}

/// Whether a name has the form of a pattern, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(head) else { return false };
    (0..=name.len()).filter(|at| name.is_char_boundary(*at)).any(|at| matches(rest, &name[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(model: &str, agent: &str, variant: &str, system: &str) -> PromptOptions {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        PromptOptions {
            model: ModelName::parse(model),
            agent: text(agent),
            variant: text(variant),
            system: text(system),
            ..PromptOptions::default()
        }
    }

    #[test]
    fn callers_choose_only_what_the_operator_leaves_to_them() {
        const MODEL: &str = Fields::OF_MESSAGE.model;
        const AGENT: &str = Fields::OF_MESSAGE.agent;
        let defaults = options("p/m", "plan", "low", "Be polite.");
        let list = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        let open = PromptRules { defaults: defaults.clone(), ..PromptRules::default() };
        let closed = PromptRules { pinned: Pin::ALL.to_vec(), ..open.clone() };
        let unset = PromptRules { defaults: PromptOptions::default(), ..closed.clone() };
        let listed = PromptRules {
            allowed_models: list(&["q/*", "*/x-*-z"]),
            allowed_agents: list(&["build"]),
            ..open.clone()
        };
        let none = PromptRules { allowed_models: list(&[]), ..PromptRules::default() };
        let further =
            PromptOptions { config: [("effort".to_owned(), "max".to_owned())].into(), ..Default::default() };
        for (rules, requested, expected) in [
            (&closed, further, None),
            (&open, options("q/n", "build", "high", "Be rude."), None),
            (&closed, PromptOptions::default(), None),
            (&closed, options("p/m", "plan", "low", ""), None),
            (&closed, options("q/n", "", "", ""), Some((MODEL, "allowed: p/m"))),
            (&closed, options("", "build", "", ""), Some((AGENT, "allowed: plan"))),
            (&closed, options("", "", "high", ""), Some((Fields::OF_MESSAGE.variant, "allowed: low"))),
            (
                &closed,
                options("", "", "", "Be rude."),
                Some((Fields::OF_MESSAGE.system, "leave this field out.")),
            ),
            (&unset, options("q/n", "", "", ""), Some((MODEL, "leave this field out."))),
            (&listed, options("q/n", "build", "high", "Be brief."), None),
            (&listed, options("p/m", "plan", "", ""), None),
            (&listed, options("r/x-y-z", "", "", ""), None),
            (&listed, options("r/x-y", "", "", ""), Some((MODEL, "allowed: p/m, q/*, */x-*-z."))),
            (&listed, options("qq/n", "", "", ""), Some((MODEL, "allowed: p/m"))),
            (&listed, options("", "general", "", ""), Some((AGENT, "allowed: plan, build."))),
            (&listed, options("", "builder", "", ""), Some((AGENT, "allowed"))),
            (&none, options("q/n", "general", "", ""), Some((MODEL, "allowed: none."))),
        ] {
            let about = format!("{requested:?}");
            match (rules.check(&requested, Fields::OF_MESSAGE), expected) {
                (Ok(()), None) => {}
                (Err(error), Some((field, text))) => {
                    let violation = &error.violations()[0];
                    assert_eq!(violation.field, field, "{about}");
                    assert!(violation.description.contains(text), "{about}: {}", violation.description);
                    assert!(!violation.description.contains("polite"), "{}", violation.description);
                }
                (checked, _) => panic!("{about}: {checked:?}"),
            }
        }
    }

    #[test]
    fn the_system_text_of_the_operator_comes_before_the_caller_s() {
        let rules = PromptRules { defaults: options("p/m", "", "", "Be polite."), ..PromptRules::default() };
        let system = |rules: &PromptRules, system| rules.apply(&options("", "", "", system)).system;
        assert_eq!(system(&rules, "Be brief.").unwrap(), "Be polite.\n\nBe brief.");
        assert_eq!(system(&rules, "").unwrap(), "Be polite.");
        assert_eq!(system(&PromptRules::default(), "Be brief.").unwrap(), "Be brief.");
        assert_eq!(rules.apply(&PromptOptions::default()).model, ModelName::parse("p/m"));
    }
}
