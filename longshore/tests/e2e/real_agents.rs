//! The real agents that speak ACP, offline: each in a home of its own, with the demo model.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use longshore_demo_model::DemoModel;
use longshore_demo_model::home::demo_home;
use longshore_engine::Tasks;
use longshore_testkit::gateway::{Setup, path_with_tools};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::configured_harness::change_configuration;
use crate::harness::LONGSHORE;

/// An agent, and what differs between the agents.
#[derive(Clone, Debug)]
pub(crate) struct RealAgent {
    pub(crate) preset: &'static str,
    pub(crate) title: &'static str,
    environment: BTreeMap<OsString, OsString>,
    /// The directive with which the model runs a shell command that needs a permission.
    pub(crate) shell: fn(&str) -> String,
    /// A mode that is not the default.
    pub(crate) other_mode: &'static str,
    /// A mode in which the agent asks for no permission to run a command, and whether it then runs the command.
    pub(crate) silent_mode: Option<(&'static str, bool)>,
}

impl RealAgent {
    pub(crate) fn setup(&self) -> Setup {
        Setup::acp(LONGSHORE, self.preset, self.environment.clone())
    }

    /// What `longshore agents check` prints about the agent.
    pub(crate) async fn check(&self, workspace: &Path) -> String {
        let mut command = Command::new(LONGSHORE);
        command
            .args(["agents", "check", self.preset])
            .current_dir(workspace)
            .env_clear()
            .env("PATH", path_with_tools())
            .envs(&self.environment)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = command.output().await.expect("the check can be started");
        let printed = String::from_utf8(output.stdout).expect("the check prints UTF-8");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {printed}{errors}", self.title);
        printed
    }
}

/// An empty directory for everything, and a model that outlives the gateway.
pub(crate) async fn prepare() -> (tempfile::TempDir, DemoModel) {
    let model = DemoModel::start(SocketAddr::from(([127, 0, 0, 1], 0)), &Tasks::new()).await;
    let root = tempfile::tempdir().expect("a test can make a temporary directory");
    (root, model.expect("a free port on loopback"))
}

pub(crate) fn opencode(root: &Path, model: &DemoModel) -> RealAgent {
    opencode_with(root, model, |_| {})
}

/// `change` changes OpenCode's configuration before OpenCode reads it.
pub(crate) fn opencode_with(root: &Path, model: &DemoModel, change: impl FnOnce(&mut Value)) -> RealAgent {
    let home = root.join("agent-home");
    let environment = demo_home(&home, &model.base_url(), &path_with_tools()).expect("a home can be made");
    change_configuration(&home, change);
    RealAgent {
        preset: "opencode-acp",
        title: "OpenCode over ACP",
        environment,
        shell: |command| format!("scn:bash cmd=\"{command}\""),
        other_mode: "plan",
        silent_mode: None,
    }
}

pub(crate) fn qwen(root: &Path, model: &DemoModel) -> RealAgent {
    let home = root.join("agent-home");
    let settings = json!({
        "$version": 3,
        "general": {"enableAutoUpdate": false, "disableAutoUpdate": true},
        "privacy": {"usageStatisticsEnabled": false},
        "telemetry": {"enabled": false},
        "security": {"auth": {"selectedType": "openai"}},
    });
    write(&home.join(".qwen/settings.json"), &settings.to_string());
    RealAgent {
        preset: "qwen",
        title: "Qwen Code",
        environment: environment(
            &home,
            &[
                ("OPENAI_BASE_URL", &model.base_url()),
                ("OPENAI_API_KEY", "none-needed"),
                ("OPENAI_MODEL", "demo"),
            ],
        ),
        shell: |command| {
            let args = json!({"command": command, "is_background": false});
            format!("scn:tool name=run_shell_command args={args}")
        },
        other_mode: "plan",
        silent_mode: Some(("yolo", true)),
    }
}

pub(crate) fn claude(root: &Path, model: &DemoModel) -> RealAgent {
    let home = root.join("agent-home");
    let config = home.join("claude-config");
    RealAgent {
        preset: "claude",
        title: "Claude Agent",
        environment: environment(
            &home,
            &[
                ("ANTHROPIC_BASE_URL", model.base_url().trim_end_matches("/v1")),
                ("ANTHROPIC_API_KEY", "none-needed"),
                ("CLAUDE_CONFIG_DIR", text(&config)),
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
                ("DISABLE_AUTOUPDATER", "1"),
                ("DISABLE_TELEMETRY", "1"),
                ("DISABLE_ERROR_REPORTING", "1"),
            ],
        ),
        shell: |command| format!("scn:tool name=Bash args={}", json!({ "command": command })),
        other_mode: "plan",
        silent_mode: Some(("dontAsk", false)),
    }
}

/// Not with `MISTRAL_API_KEY`: with that variable Vibe asks Mistral for its connectors.
pub(crate) fn vibe(root: &Path, model: &DemoModel) -> RealAgent {
    let home = root.join("agent-home");
    let config = home.join("vibe");
    let settings = format!(
        r#"active_model = "demo"
enable_telemetry = false
enable_update_checks = false
enable_auto_update = false

[[providers]]
name = "local"
api_base = "{}"
api_key_env_var = "MISTRAL_DEMO_KEY"
api_style = "openai"
backend = "generic"

[[models]]
name = "demo"
provider = "local"
alias = "demo"
"#,
        model.base_url()
    );
    write(&config.join("config.toml"), &settings);
    RealAgent {
        preset: "vibe",
        title: "Mistral Vibe",
        environment: environment(&home, &[("VIBE_HOME", text(&config)), ("MISTRAL_DEMO_KEY", "none-needed")]),
        shell: |command| format!("scn:tool name=bash args={}", json!({ "command": command })),
        other_mode: "ask",
        silent_mode: Some(("auto-approve", true)),
    }
}

/// The environment of an agent that keeps everything in a home of its own.
fn environment(home: &Path, variables: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
    std::fs::create_dir_all(home).expect("a directory can be made");
    let own = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    own.chain([("HOME".into(), home.into())]).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of a test is UTF-8")
}

/// Writes a file of an agent's home.
fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a file has a directory")).expect("a directory can be made");
    std::fs::write(path, text).expect("a file can be written");
}
