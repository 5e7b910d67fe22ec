//! The skills of the card.

use std::fmt::Write as _;

use longshore_model::card::Skill;

use super::card::Audience;
use super::deployment::Deployment;

struct Row {
    id: &'static str,
    name: &'static str,
    description: &'static str,
    tags: &'static [&'static str],
    /// Empty: those of the card.
    input_modes: &'static [&'static str],
    output_modes: &'static [&'static str],
    is_public: bool,
    examples: &'static [&'static str],
}

const JSON: &[&str] = &["application/json"];

const TABLE: [Row; 3] = [
    Row {
        id: CHAT,
        name: "OpenCode Chat",
        description: "Reads, explains, writes and runs code in its workspace with the tools of OpenCode. Messages with the same \
                      context continue one conversation.",
        tags: &["assistant", "coding", "opencode", "core-a2a", "portable"],
        input_modes: &[],
        output_modes: &[],
        is_public: true,
        examples: &[
            "Explain what this project does.",
            "Add a test for the parser and run it.",
            "Find out why the build fails, and mend it.",
        ],
    },
    Row {
        id: "opencode.interrupt.recovery",
        name: "OpenCode Interrupt Recovery",
        description: "Lists the permissions and questions that the caller's tasks wait for, after a lost connection or a \
                      restart.",
        tags: &["interrupt", "permission", "question", "provider-private"],
        input_modes: JSON,
        output_modes: JSON,
        is_public: false,
        examples: &[
            "List the open permissions (method opencode.permissions.list).",
            "List the open questions (method opencode.questions.list).",
        ],
    },
    Row {
        id: "opencode.interrupt.callback",
        name: "Shared Interrupt Callback",
        description: "Answers a permission or a question that a task waits for.",
        tags: &["interrupt", "permission", "question", "shared"],
        input_modes: JSON,
        output_modes: JSON,
        is_public: true,
        examples: &[
            "Allow once what per_1 asks (method a2a.interrupt.permission.reply).",
            "Answer the question que_1 with the option yes (method a2a.interrupt.question.reply).",
        ],
    },
];

const CHAT: &str = "opencode.chat";

/// The examples are on the extended card only.
pub(super) fn skills(deployment: &Deployment, audience: Audience) -> Vec<Skill> {
    let is_seen = |row: &&Row| row.is_public || audience == Audience::Authenticated;
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let skill = |row: &Row| {
        let mut examples = Vec::new();
        if audience == Audience::Authenticated {
            examples = owned(row.examples);
            let project = deployment.project.as_ref().filter(|_| row.id == CHAT);
            examples.extend(project.map(|project| format!("Say where to begin in the project {project}.")));
        }
        let mut description = row.description.to_owned();
        if row.id == CHAT {
            let _ = write!(description, " Answers are streamed as artifacts: {}.", deployment.streamed());
        }
        Skill {
            id: row.id.to_owned(),
            name: row.name.to_owned(),
            description,
            tags: owned(row.tags),
            examples,
            input_modes: owned(row.input_modes),
            output_modes: owned(row.output_modes),
        }
    };
    TABLE.iter().filter(is_seen).map(skill).collect()
}
