//! The skills of the card.

use std::fmt::Write as _;

use longshore_model::Offers;
use longshore_model::card::Skill;

use super::card::{Audience, declared_extensions};
use super::deployment::Deployment;
use super::method;
use crate::agent::AgentSurface;
use crate::extension::Extension;
use crate::methods::Method;
use crate::names;

#[derive(Debug)]
pub(crate) struct SkillRow {
    /// The id, which is the same for every agent, because clients look for it.
    pub(crate) id: &'static str,
    /// The name. In the name and the description, `{agent}` stands for the name of the agent.
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// The tags. `{agent}` stands for the key of the agent; the tag is left out if the agent has no key.
    pub(crate) tags: &'static [&'static str],
    /// The input modes. Empty: those of the card.
    pub(crate) input_modes: &'static [&'static str],
    pub(crate) output_modes: &'static [&'static str],
    pub(crate) is_public: bool,
    /// The extension whose methods are listed as examples of the skill.
    pub(crate) extension: Option<Extension>,
    pub(crate) examples: &'static [&'static str],
}

const JSON: &[&str] = &["application/json"];

/// A template for a skill that only callers with a credential see.
pub(crate) const PRIVATE: SkillRow = SkillRow {
    id: "",
    name: "",
    description: "",
    tags: &[],
    input_modes: JSON,
    output_modes: JSON,
    is_public: false,
    extension: None,
    examples: &[],
};

const CHAT: SkillRow = SkillRow {
    id: names::CHAT_SKILL,
    name: "{agent} Chat",
    description: "Reads, explains, writes and runs code in its workspace with the tools of {agent}. Messages with the same \
                  context continue one conversation.",
    tags: &["assistant", "coding", "{agent}", "core-a2a", "portable"],
    input_modes: &[],
    output_modes: &[],
    is_public: true,
    extension: None,
    examples: &[
        "Explain what this project does.",
        "Add a test for the parser and run it.",
        "Find out why the build fails, and fix it.",
    ],
};

const RECOVERY: SkillRow = SkillRow {
    id: names::RECOVERY_SKILL,
    name: "{agent} Interrupt Recovery",
    description: "Lists the open permission requests and questions of the caller's tasks, for example after a lost connection or a \
                  restart.",
    tags: &["interrupt", "permission", "question", "provider-private"],
    extension: Some(Extension::InterruptRecovery),
    ..PRIVATE
};

const CALLBACK: SkillRow = SkillRow {
    id: names::CALLBACK_SKILL,
    name: "Shared Interrupt Callback",
    description: "Answers a permission or a question that a task waits for.",
    tags: &["interrupt", "permission", "question", "shared"],
    input_modes: JSON,
    output_modes: JSON,
    is_public: true,
    extension: None,
    examples: &[
        "Allow the permission request per_1 once (method a2a.interrupt.permission.reply).",
        "Answer the question que_1 with the option yes (method a2a.interrupt.question.reply).",
    ],
};

/// The skills of the card. Only the extended card has examples.
pub(super) fn skills(deployment: &Deployment, audience: Audience, offers: Option<&Offers>) -> Vec<Skill> {
    let declared = declared_extensions(deployment);
    let is_seen = |row: &&SkillRow| {
        let is_there = row.extension.is_none_or(|extension| declared.contains(&extension));
        is_there && (row.is_public || audience == Audience::Authenticated)
    };
    let named = |text: &str| text.replace("{agent}", &deployment.agent_name);
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let skill = |row: &SkillRow| {
        let mut examples = Vec::new();
        if audience == Audience::Authenticated {
            examples = owned(row.examples);
            let project = deployment.project.as_ref().filter(|_| row.id == CHAT.id);
            examples.extend(project.map(|project| format!("Say where to begin in the project {project}.")));
            examples
                .extend(row.extension.into_iter().flat_map(|extension| of_methods(deployment, extension)));
        }
        let mut description = named(row.description);
        if row.id == CHAT.id {
            let _ = write!(description, " Answers are streamed as artifacts: {}.", deployment.streamed());
        }
        Skill {
            id: row.id.to_owned(),
            name: named(row.name),
            description,
            tags: row.tags.iter().filter_map(|tag| tag_of(deployment, tag)).collect(),
            examples,
            input_modes: owned(row.input_modes),
            output_modes: owned(row.output_modes),
        }
    };
    let of_agent = deployment.surface.skills;
    let rows = [&CHAT].into_iter().chain(of_agent).chain([&RECOVERY, &CALLBACK]);
    let mut skills: Vec<Skill> = rows.filter(is_seen).map(skill).collect();
    skills.extend(offers.map(deployment.surface.offered_skills).into_iter().flatten());
    skills
}

/// A tag in the form in which the card has it. `None`: the tag needs the agent's key, and this agent has none.
fn tag_of(deployment: &Deployment, tag: &str) -> Option<String> {
    match tag {
        "{agent}" if *deployment.surface == AgentSurface::PLAIN => None,
        "{agent}" => Some(deployment.surface.key.to_owned()),
        tag => Some(tag.to_owned()),
    }
}

/// The summary of each served method.
fn of_methods(deployment: &Deployment, extension: Extension) -> impl Iterator<Item = String> {
    let example = |method: &Method| {
        let summary = method.summary.trim_end_matches('.');
        format!("{summary} (method {}).", method.name)
    };
    method::of_extension(deployment, extension).map(example)
}
