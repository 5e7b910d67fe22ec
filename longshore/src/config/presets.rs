//! The ACP agents that Longshore knows by name: their commands, and the variables that they may read.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// An agent that `--agent` accepts by name.
#[derive(Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    /// The name of the agent for people.
    pub title: &'static str,
    /// The program and its arguments.
    pub command: &'static [&'static str],
    /// The variables that the agent gets from the gateway's environment, besides those that every agent gets. `*` at the end of a
    /// name stands for any rest of the name.
    pub variables: &'static [&'static str],
    /// The paths of the agent's credentials and conversations, which no caller may read. Each path begins with a variable of the
    /// agent, and is used only if that variable is set.
    pub private: &'static [&'static str],
    /// The command that installs the agent. `None`: no command was tested.
    pub install: Option<&'static str>,
    /// Whether Longshore's tests run the real agent.
    pub is_tested: bool,
}

impl Preset {
    /// Whether the agent may read a variable.
    pub fn takes(&self, variable: &str) -> bool {
        self.variables.iter().any(|name| match name.strip_suffix('*') {
            Some(prefix) => variable.starts_with(prefix),
            None => variable == *name,
        })
    }

    /// The private paths. `environment`: the environment of the agent. `directory`: the directory in which the agent is started.
    pub fn private_paths(
        &self,
        environment: &BTreeMap<OsString, OsString>,
        directory: &Path,
    ) -> Vec<PathBuf> {
        let set = |name: &str| environment.get(OsStr::new(name)).filter(|value| !value.is_empty());
        let path = |text: &&str| {
            let (variable, rest) = text.trim_start_matches('$').split_once('/').unwrap_or((&text[1..], ""));
            let value = Path::new(set(variable)?);
            // Some agents replace `~` by the user's home.
            let base = match (value.strip_prefix("~"), set("HOME")) {
                (Ok(below), Some(home)) => Path::new(home).join(below),
                _ => directory.join(value),
            };
            Some(if rest.is_empty() { base } else { base.join(rest) })
        };
        self.private.iter().filter_map(path).collect()
    }
}

pub const ALL: &[Preset] = &[
    Preset {
        name: "opencode-acp",
        title: "OpenCode over ACP",
        command: &["opencode", "acp"],
        // `OPENCODE_AUTH_PASSWORD` is left out, because it belongs to the gateway.
        variables: &[
            "OPENCODE_API_KEY",
            "OPENCODE_AUTH_CONTENT",
            "OPENCODE_CONFIG*",
            "OPENCODE_DISABLE_*",
            "OPENCODE_ENABLE_*",
            "OPENCODE_EXPERIMENTAL*",
            "OPENCODE_MODELS_*",
            "OPENCODE_PERMISSION",
            // The password of the HTTP server that OpenCode opens beside ACP.
            "OPENCODE_SERVER_PASSWORD",
            "OPENCODE_SERVER_USERNAME",
            "ANTHROPIC_*",
            "GEMINI_*",
            "GOOGLE_*",
            "MISTRAL_*",
            "OPENAI_*",
        ],
        private: &[
            "$HOME/.config/opencode",
            "$HOME/.local/share/opencode",
            "$HOME/.local/state/opencode",
            "$XDG_CONFIG_HOME/opencode",
            "$XDG_DATA_HOME/opencode",
            "$XDG_STATE_HOME/opencode",
            "$OPENCODE_CONFIG",
            "$OPENCODE_CONFIG_DIR",
        ],
        install: Some("npm install -g opencode-ai"),
        is_tested: true,
    },
    Preset {
        name: "qwen",
        title: "Qwen Code",
        command: &["qwen", "--acp"],
        variables: &["OPENAI_*", "QWEN_*", "DASHSCOPE_*", "BAILIAN_*"],
        private: &["$HOME/.qwen", "$QWEN_HOME", "$QWEN_RUNTIME_DIR"],
        install: Some("npm install -g @qwen-code/qwen-code"),
        is_tested: true,
    },
    Preset {
        name: "claude",
        title: "Claude Agent",
        command: &["claude-agent-acp"],
        variables: &[
            "ANTHROPIC_*",
            "CLAUDE_*",
            "DISABLE_AUTOUPDATER",
            "DISABLE_ERROR_REPORTING",
            "DISABLE_TELEMETRY",
        ],
        private: &[
            "$HOME/.claude",
            "$HOME/.claude.json",
            "$CLAUDE_CONFIG_DIR",
            "$CLAUDE_SECURESTORAGE_CONFIG_DIR",
        ],
        install: Some("npm install -g @agentclientprotocol/claude-agent-acp"),
        is_tested: true,
    },
    Preset {
        name: "vibe",
        title: "Mistral Vibe",
        command: &["vibe-acp"],
        variables: &["MISTRAL_*", "VIBE_*"],
        private: &["$HOME/.vibe", "$VIBE_HOME"],
        install: Some("pip install mistral-vibe"),
        is_tested: true,
    },
    Preset {
        name: "gemini",
        title: "Gemini CLI",
        command: &["gemini", "--experimental-acp"],
        variables: &["GEMINI_*", "GOOGLE_*"],
        private: &["$HOME/.gemini", "$GEMINI_CLI_HOME/.gemini"],
        install: None,
        is_tested: false,
    },
    Preset {
        name: "codex",
        title: "Codex",
        command: &["codex-acp"],
        variables: &["CODEX_*", "OPENAI_*"],
        private: &["$HOME/.codex", "$CODEX_HOME"],
        install: None,
        is_tested: false,
    },
    Preset {
        name: "goose",
        title: "Goose",
        command: &["goose", "acp"],
        variables: &["GOOSE_*", "ANTHROPIC_*", "GOOGLE_*", "OPENAI_*"],
        private: &[
            "$HOME/.config/goose",
            "$HOME/.local/share/goose",
            "$XDG_CONFIG_HOME/goose",
            "$XDG_DATA_HOME/goose",
        ],
        install: None,
        is_tested: false,
    },
];

/// Finds a preset by its name.
pub fn find(name: &str) -> Option<&'static Preset> {
    ALL.iter().find(|preset| preset.name == name)
}

/// Finds the preset of a command line: the command line begins with the preset's command. The program may be at any path.
pub fn of_command(words: &[String]) -> Option<&'static Preset> {
    let (program, arguments) = words.split_first()?;
    let program = std::path::Path::new(program).file_name()?.to_str()?;
    ALL.iter().find(|preset| {
        preset.command[0] == program
            && arguments.len() >= preset.command.len() - 1
            && preset.command[1..].iter().zip(arguments).all(|(own, given)| own == given)
    })
}

/// The names of all presets, for messages.
pub fn names() -> String {
    ALL.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ")
}
