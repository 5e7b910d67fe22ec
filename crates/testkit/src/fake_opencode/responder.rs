//! The agent and the model that answer a prompt: the named ones, or the defaults.

use serde_json::{Value, json};

use super::project::Project;
use super::state::State;
use super::world::text;

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Responder {
    pub(super) agent: String,
    pub(super) provider: String,
    pub(super) model: String,
    pub(super) variant: Option<String>,
}

impl Default for Responder {
    fn default() -> Self {
        let scripted = || "scripted".to_owned();
        Self { agent: "build".to_owned(), provider: scripted(), model: scripted(), variant: None }
    }
}

impl Responder {
    /// The agent and the model for this request. OpenCode notices an unknown model later. An unknown agent is an error here, with
    /// OpenCode's text.
    pub(super) fn for_request(state: &State, session: &str, body: &Value) -> Result<Self, String> {
        let project = &state.project;
        let default = project.agents.first().map_or("build", |agent| agent.name.as_str());
        let wanted = body["agent"].as_str().unwrap_or(default);
        let Some(agent) = project.agents.iter().find(|agent| agent.name == wanted) else {
            return Err(unknown_agent(project, wanted));
        };
        let of_agent = agent.model.as_ref().map(|model| ("scripted".to_owned(), model.clone()));
        let info = state.world.session(session).unwrap_or(&Value::Null);
        let (provider, model) = named(&body["model"])
            .or(of_agent)
            .or_else(|| named(&info["model"]))
            .or_else(|| project.model.as_deref().and_then(split))
            .unwrap_or_else(|| ("scripted".to_owned(), "scripted".to_owned()));
        let variant = body["variant"].as_str().map(str::to_owned);
        Ok(Self { agent: wanted.to_owned(), provider, model, variant })
    }

    /// OpenCode's error text for an unknown model.
    pub(super) fn unknown_model(&self, project: &Project) -> Option<String> {
        let is_known =
            self.provider == "scripted" && project.models.iter().any(|model| model.name == self.model);
        (!is_known).then(|| format!("Model not found: {}/{}.", self.provider, self.model))
    }

    /// Makes these the agent and the model of the session from now on.
    pub(super) fn keep_in_session(&self, state: &mut State, session: &str) {
        let variant = self.variant.as_deref().unwrap_or("default");
        let model = json!({"id": self.model, "providerID": self.provider, "variant": variant});
        state.world.patch_session(session, &json!({"agent": self.agent, "model": model}));
    }
}

pub(super) fn unknown_agent(project: &Project, name: &str) -> String {
    let shown = project.agents.iter().filter(|agent| !agent.hidden).map(|agent| agent.name.as_str());
    let mut shown: Vec<&str> = shown.collect();
    shown.sort_unstable();
    format!("Agent not found: \"{name}\". Available agents: {}", shown.join(", "))
}

/// Reads a model as prompts, sessions and commands name it.
fn named(model: &Value) -> Option<(String, String)> {
    if let Some(model) = model.as_str() {
        return split(model);
    }
    let id = model["modelID"].as_str().or(model["id"].as_str())?;
    Some((text(model, "providerID").to_owned(), id.to_owned()))
}

fn split(model: &str) -> Option<(String, String)> {
    let (provider, model) = model.split_once('/')?;
    Some((provider.to_owned(), model.to_owned()))
}
