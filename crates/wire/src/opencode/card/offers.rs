//! OpenCode's agents and commands in the extended card. Their prompts are never shown.

use longshore_model::card::Skill;
use longshore_model::{OfferedAgent, OfferedCommand, Offers};

use crate::contract::description;

/// Converts the agents and commands into skills, so that clients that do not know OpenCode see them too.
pub(in crate::opencode) fn skills(offers: &Offers) -> Vec<Skill> {
    offers.agents.iter().map(agent).chain(offers.commands.iter().map(command)).collect()
}

fn agent(agent: &OfferedAgent) -> Skill {
    let OfferedAgent { name, mode, description: text } = agent;
    let mut tags = vec!["opencode", "agent", "provider-private"];
    tags.extend(mode.as_deref());
    Skill {
        id: format!("opencode.agent.{name}"),
        name: name.clone(),
        description: description(text.as_deref()).unwrap_or_else(|| format!("The agent {name} of OpenCode.")),
        tags: tags.into_iter().map(str::to_owned).collect(),
        examples: vec![format!("Have {name} answer (metadata.opencode.agent of a message).")],
        input_modes: Vec::new(),
        output_modes: Vec::new(),
    }
}

fn command(command: &OfferedCommand) -> Skill {
    let name = &command.name;
    let text = description(command.description.as_deref());
    Skill {
        id: format!("opencode.command.{name}"),
        name: format!("/{name}"),
        description: text.unwrap_or_else(|| format!("The command /{name} of OpenCode.")),
        tags: ["opencode", "command", "provider-private"].map(str::to_owned).to_vec(),
        examples: vec![format!("Run /{name} in a session (method opencode.sessions.command).")],
        input_modes: vec!["application/json".to_owned()],
        output_modes: vec!["application/json".to_owned()],
    }
}
