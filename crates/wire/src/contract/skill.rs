//! The skills of the card.

use std::fmt::Write as _;

use longshore_model::Offers;
use longshore_model::card::Skill;

use super::card::{Audience, declared_extensions};
use super::deployment::Deployment;
use super::{method, offer};
use crate::extension::Extension;
use crate::methods::Method;

struct Row {
    /// Stays the same for every agent, because clients look for it.
    id: &'static str,
    /// Here and in the description, `{agent}` stands for the name of the agent.
    name: &'static str,
    description: &'static str,
    tags: &'static [&'static str],
    /// Empty: the modes of the card.
    input_modes: &'static [&'static str],
    output_modes: &'static [&'static str],
    is_public: bool,
    /// The extension whose methods are the examples of the skill.
    extension: Option<Extension>,
    examples: &'static [&'static str],
}

const JSON: &[&str] = &["application/json"];

const PRIVATE: Row = Row {
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

const TABLE: [Row; 6] = [
    Row {
        id: CHAT,
        name: "{agent} Chat",
        description: "Reads, explains, writes and runs code in its workspace with the tools of {agent}. Messages with the same \
                      context continue one conversation.",
        tags: &["assistant", "coding", "opencode", "core-a2a", "portable"],
        input_modes: &[],
        output_modes: &[],
        is_public: true,
        extension: None,
        examples: &[
            "Explain what this project does.",
            "Add a test for the parser and run it.",
            "Find out why the build fails, and fix it.",
        ],
    },
    Row {
        id: "opencode.sessions.management",
        name: "OpenCode Session Management",
        description: "Reads OpenCode sessions with their messages and changes, modifies them, and runs the agent in \
                      them.",
        tags: &["opencode", "sessions", "history", "provider-private"],
        extension: Some(Extension::SessionManagement),
        ..PRIVATE
    },
    Row {
        id: "opencode.providers.query",
        name: "OpenCode Provider Catalog",
        description: "Lists the providers and models that OpenCode knows.",
        tags: &["opencode", "providers", "models", "provider-private"],
        extension: Some(Extension::ProviderDiscovery),
        ..PRIVATE
    },
    Row {
        id: "opencode.workspace.control",
        name: "OpenCode Workspace Control",
        description: "Reads projects, workspaces and worktrees, and changes them if the operator allows it.",
        tags: &["opencode", "project", "workspace", "worktree", "provider-private"],
        extension: Some(Extension::WorkspaceControl),
        ..PRIVATE
    },
    Row {
        id: "opencode.interrupt.recovery",
        name: "{agent} Interrupt Recovery",
        description: "Lists the open permission requests and questions of the caller's tasks, for example after a lost connection or a \
                      restart.",
        tags: &["interrupt", "permission", "question", "provider-private"],
        extension: Some(Extension::InterruptRecovery),
        ..PRIVATE
    },
    Row {
        id: "opencode.interrupt.callback",
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
    },
];

const CHAT: &str = "opencode.chat";

/// The skills of the card. Only the extended card has examples.
pub(super) fn skills(deployment: &Deployment, audience: Audience, offers: Option<&Offers>) -> Vec<Skill> {
    let declared = declared_extensions(deployment);
    let is_seen = |row: &&Row| {
        let is_there = row.extension.is_none_or(|extension| declared.contains(&extension));
        is_there && (row.is_public || audience == Audience::Authenticated)
    };
    let named = |text: &str| text.replace("{agent}", deployment.agent_name());
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let skill = |row: &Row| {
        let mut examples = Vec::new();
        if audience == Audience::Authenticated {
            examples = owned(row.examples);
            let project = deployment.project.as_ref().filter(|_| row.id == CHAT);
            examples.extend(project.map(|project| format!("Say where to begin in the project {project}.")));
            examples
                .extend(row.extension.into_iter().flat_map(|extension| of_methods(deployment, extension)));
        }
        let mut description = named(row.description);
        if row.id == CHAT {
            let _ = write!(description, " Answers are streamed as artifacts: {}.", deployment.streamed());
        }
        let mut tags = owned(row.tags);
        if deployment.other_agent.is_some() {
            tags.retain(|tag| tag != "opencode");
        }
        Skill {
            id: row.id.to_owned(),
            name: named(row.name),
            description,
            tags,
            examples,
            input_modes: owned(row.input_modes),
            output_modes: owned(row.output_modes),
        }
    };
    let mut skills: Vec<Skill> = TABLE.iter().filter(is_seen).map(skill).collect();
    skills.extend(offers.map(offer::skills).into_iter().flatten());
    skills
}

/// The summary of each served method.
fn of_methods(deployment: &Deployment, extension: Extension) -> impl Iterator<Item = String> {
    let example = |method: &Method| {
        let summary = method.summary.trim_end_matches('.');
        format!("{summary} (method {}).", method.name)
    };
    method::of_extension(deployment, extension).map(example)
}
