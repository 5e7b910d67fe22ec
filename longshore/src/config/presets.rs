//! The ACP agents that Longshore knows by name: how each is started, and which variables it may read.

/// An agent that `--agent` takes by name.
#[derive(Debug, PartialEq, Eq)]
pub struct Preset {
    pub name: &'static str,
    /// What people call the agent.
    pub title: &'static str,
    /// The program and its arguments.
    pub command: &'static [&'static str],
    /// The variables that the agent gets from the gateway's environment, besides those that every agent gets. A name that ends
    /// with `*` stands for all names that begin so.
    pub variables: &'static [&'static str],
    /// Where the agent keeps its credentials and conversations, below the home of its user. No caller may read these.
    pub private: &'static [&'static str],
    /// The command that installs the agent, if it was tried.
    pub install: Option<&'static str>,
    /// The tests of Longshore drive the real agent.
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
}

pub const ALL: &[Preset] = &[
    Preset {
        name: "opencode-acp",
        title: "OpenCode over ACP",
        command: &["opencode", "acp"],
        // Not `OPENCODE_AUTH_PASSWORD`, which is the gateway's own.
        variables: &[
            "OPENCODE_API_KEY",
            "OPENCODE_AUTH_CONTENT",
            "OPENCODE_CONFIG*",
            "OPENCODE_DISABLE_*",
            "OPENCODE_ENABLE_*",
            "OPENCODE_EXPERIMENTAL*",
            "OPENCODE_MODELS_*",
            "OPENCODE_PERMISSION",
            "ANTHROPIC_*",
            "GEMINI_*",
            "GOOGLE_*",
            "MISTRAL_*",
            "OPENAI_*",
        ],
        private: &[".local/share/opencode"],
        install: Some("npm install -g opencode-ai"),
        is_tested: true,
    },
    Preset {
        name: "qwen",
        title: "Qwen Code",
        command: &["qwen", "--acp"],
        variables: &["OPENAI_*", "QWEN_*", "DASHSCOPE_*", "BAILIAN_*"],
        private: &[".qwen"],
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
        private: &[".claude", ".claude.json"],
        install: Some("npm install -g @agentclientprotocol/claude-agent-acp"),
        is_tested: true,
    },
    Preset {
        name: "vibe",
        title: "Mistral Vibe",
        command: &["vibe-acp"],
        variables: &["MISTRAL_*", "VIBE_*"],
        private: &[".vibe"],
        install: Some("pip install mistral-vibe"),
        is_tested: true,
    },
    Preset {
        name: "gemini",
        title: "Gemini CLI",
        command: &["gemini", "--experimental-acp"],
        variables: &["GEMINI_*", "GOOGLE_*"],
        private: &[".gemini"],
        install: None,
        is_tested: false,
    },
    Preset {
        name: "codex",
        title: "Codex",
        command: &["codex-acp"],
        variables: &["CODEX_*", "OPENAI_*"],
        private: &[".codex"],
        install: None,
        is_tested: false,
    },
    Preset {
        name: "goose",
        title: "Goose",
        command: &["goose", "acp"],
        variables: &["GOOSE_*", "ANTHROPIC_*", "GOOGLE_*", "OPENAI_*"],
        private: &[".config/goose", ".local/share/goose"],
        install: None,
        is_tested: false,
    },
];

/// The preset of a name.
pub fn find(name: &str) -> Option<&'static Preset> {
    ALL.iter().find(|preset| preset.name == name)
}

/// The preset whose command a command line begins with, wherever its program is installed.
pub fn of_command(words: &[String]) -> Option<&'static Preset> {
    let (program, arguments) = words.split_first()?;
    let program = std::path::Path::new(program).file_name()?.to_str()?;
    ALL.iter().find(|preset| {
        preset.command[0] == program
            && arguments.len() >= preset.command.len() - 1
            && preset.command[1..].iter().zip(arguments).all(|(own, given)| own == given)
    })
}

/// The names, for messages.
pub fn names() -> String {
    ALL.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ")
}
