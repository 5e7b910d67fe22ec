//! The fake's project: providers and models, agents, worktrees and workspaces.
//!
//! The shapes are OpenCode's, with the secrets that OpenCode shows and a gateway must not pass on.

use serde_json::{Value, json};

use super::worktrees::WorktreeReport;

/// A provider's API key as OpenCode shows it. It must not leave a gateway.
pub const PROVIDER_KEY: &str = "sk-fake-0123456789abcdef";

/// The text of agents' prompts and command templates. It must not leave a gateway either.
pub const PRIVATE_PROMPT: &str = "You are an agent with a prompt that is nobody's business.";

/// The project of the root and its worktrees.
pub(super) const PROJECT_ID: &str = "9b4c0d";

/// The answers to questions about the project. A test may change any of them.
#[derive(Clone, Debug)]
pub struct Project {
    /// The models of the one provider, `scripted`.
    pub models: Vec<Model>,
    /// The first agent answers prompts that name none.
    pub agents: Vec<Agent>,
    pub commands: Vec<Command>,
    /// `provider/model`.
    pub model: Option<String>,
    /// Directories.
    pub worktrees: Vec<String>,
    pub sandboxes: Vec<String>,
    /// Ids and directories.
    pub workspaces: Vec<(String, String)>,
    /// What OpenCode reports about the next worktrees.
    pub news: WorktreeReport,
    /// `OPENCODE_EXPERIMENTAL_WORKSPACES` is set.
    pub has_workspaces: bool,
    /// The types of workspace that OpenCode can create. The real one has others only with a plugin.
    pub adapters: Vec<&'static str>,
    pub sharing: Sharing,
    /// Directories of other projects that this OpenCode knows.
    pub elsewhere: Vec<String>,
    /// The descriptions of the workspaces that requests created.
    made: Vec<Value>,
}

#[derive(Clone, Debug)]
pub struct Model {
    pub name: String,
    /// Of `image`, `audio`, `video` and `pdf`.
    pub takes: Vec<&'static str>,
    pub variants: Vec<&'static str>,
}

#[derive(Clone, Debug)]
pub struct Agent {
    pub name: String,
    pub mode: &'static str,
    pub hidden: bool,
    pub description: Option<String>,
    /// A model of `scripted`.
    pub model: Option<String>,
}

/// What happens to a request to share a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    Works,
    /// `OPENCODE_DISABLE_SHARE`: OpenCode reports success and shares nothing.
    Off,
    /// `share: disabled` in its configuration.
    Forbidden,
    /// The server for shared sessions cannot be reached.
    Offline,
}

/// A command: a prompt with a name.
#[derive(Clone, Debug)]
pub struct Command {
    pub name: String,
    pub description: String,
    /// The prompt, with `$ARGUMENTS` where the caller's arguments go.
    pub template: String,
    pub agent: Option<String>,
    /// The command runs in a session of its own.
    pub subtask: bool,
    /// The command is a prompt of an MCP server, whose template OpenCode does not show.
    pub is_mcp: bool,
}

impl Default for Project {
    fn default() -> Self {
        let model = |name: &str, takes: &[&'static str], variants: &[&'static str]| Model {
            name: name.to_owned(),
            takes: takes.to_vec(),
            variants: variants.to_vec(),
        };
        let agent = |name: &str, mode, hidden| Agent {
            name: name.to_owned(),
            mode,
            hidden,
            description: (!hidden).then(|| format!("What {name} is for.")),
            model: None,
        };
        let command = |name: &str, agent: Option<&str>, subtask| Command {
            name: name.to_owned(),
            description: format!("What {name} does."),
            template: format!("{name}: $ARGUMENTS\n{PRIVATE_PROMPT}"),
            agent: agent.map(str::to_owned),
            subtask,
            is_mcp: false,
        };
        Self {
            models: vec![
                model("scripted", &[], &["high", "low"]),
                model("vision", &["image", "pdf"], &[]),
                model("vendor/deep", &[], &[]),
            ],
            agents: vec![
                agent("build", "primary", false),
                agent("explore", "subagent", false),
                agent("plan", "primary", false),
                agent("title", "primary", true),
                agent("general", "subagent", false),
                agent("compaction", "primary", true),
            ],
            commands: vec![
                command("init", None, false),
                command("review", None, false),
                command("survey", Some("general"), true),
            ],
            model: Some("scripted/scripted".to_owned()),
            worktrees: Vec::new(),
            sandboxes: Vec::new(),
            workspaces: Vec::new(),
            news: WorktreeReport::default(),
            has_workspaces: true,
            adapters: vec!["worktree"],
            sharing: Sharing::Works,
            elsewhere: Vec::new(),
            made: Vec::new(),
        }
    }
}

impl Project {
    /// `None`: this path is not about the project.
    pub(super) fn answer(&self, path: &[&str], root: &str, directory: &str) -> Option<Value> {
        Some(match path {
            ["config", "providers"] => self.providers(),
            ["config"] => self.config(),
            ["provider"] => self.all_providers(),
            ["agent"] => self.agents.iter().map(Agent::listed).collect(),
            ["command"] => self.commands.iter().map(Command::listed).collect(),
            ["experimental", "worktree"] => json!(self.worktrees),
            ["experimental", "workspace"] if !self.has_workspaces => json!([]),
            ["experimental", "workspace"] => {
                self.workspaces.iter().map(|known| self.described(known)).collect()
            }
            ["project"] => self.projects(root),
            ["project", "current"] => self.current(root, directory),
            _ => return None,
        })
    }

    /// The path of a directory within the project. `None`: the directory belongs to another project, or to none.
    pub(super) fn path_of<'a>(&self, root: &str, directory: &'a str) -> Option<&'a str> {
        let mut workspaces = self.workspaces.iter().map(|(_, directory)| directory);
        let copies = self.worktrees.iter().chain(&self.sandboxes);
        if directory == root || copies.into_iter().any(|copy| copy == directory) {
            return Some("");
        }
        if workspaces.any(|workspace| workspace == directory) {
            return Some("");
        }
        directory.strip_prefix(root)?.strip_prefix('/')
    }

    /// The directory of a workspace.
    pub(super) fn workspace(&self, id: &str) -> Option<&str> {
        let found = self.workspaces.iter().find(|(known, _)| known == id);
        found.map(|(_, directory)| directory.as_str())
    }

    pub(super) fn keep_workspace(&mut self, id: &str, directory: &str, details: Value) {
        self.workspaces.push((id.to_owned(), directory.to_owned()));
        self.made.push(details);
    }

    pub(super) fn forget_workspace(&mut self, id: &str) -> Option<Value> {
        let index = self.workspaces.iter().position(|(known, _)| known == id)?;
        let details = self.described(&self.workspaces[index]);
        self.workspaces.remove(index);
        Some(details)
    }

    fn described(&self, known: &(String, String)) -> Value {
        let made = self.made.iter().find(|details| details["id"] == known.0.as_str());
        made.cloned().unwrap_or_else(|| workspace(known))
    }

    /// The project of a directory. Its root is the same for all its directories.
    pub(super) fn current(&self, root: &str, directory: &str) -> Value {
        if self.path_of(root, directory).is_none() {
            return no_project();
        }
        let mut current = project(PROJECT_ID, root);
        current["sandboxes"] = json!(self.sandboxes);
        current
    }

    fn projects(&self, root: &str) -> Value {
        let others = self.elsewhere.iter().enumerate();
        let others = others.map(|(number, directory)| project(&format!("elsewhere{number}"), directory));
        std::iter::once(self.current(root, root)).chain(others).chain([no_project()]).collect()
    }

    /// All known providers, including those that lack a key.
    fn all_providers(&self) -> Value {
        let mut all = self.providers()["providers"].take();
        let far = Model { name: "far".to_owned(), takes: Vec::new(), variants: Vec::new() };
        let mut listed = far.listed();
        listed["providerID"] = "distant".into();
        if let Some(all) = all.as_array_mut() {
            all.push(json!({
                "id": "distant", "name": "Distant", "source": "custom", "env": ["DISTANT_KEY"],
                "options": {"headers": {"authorization": PROVIDER_KEY}}, "models": {"far": listed},
            }));
        }
        let default = json!({"scripted": self.models.last().map(|model| &model.name), "distant": "far"});
        json!({"all": all, "default": default, "connected": ["scripted"]})
    }

    fn providers(&self) -> Value {
        let models = self.models.iter().map(|model| (model.name.clone(), model.listed()));
        let models: serde_json::Map<String, Value> = models.collect();
        json!({
            "providers": [{
                "id": "scripted", "name": "Scripted", "source": "config", "env": ["SCRIPTED_KEY"], "key": PROVIDER_KEY,
                "options": {"baseURL": "http://127.0.0.1:4999/v1", "apiKey": PROVIDER_KEY}, "models": models,
            }],
            "default": {"scripted": self.models.last().map(|model| &model.name)},
        })
    }

    fn config(&self) -> Value {
        let mut config = json!({
            "provider": {"scripted": {"options": {"apiKey": PROVIDER_KEY}}}, "agent": {}, "mode": {}, "username": "me",
        });
        if let Some(model) = &self.model {
            config["model"] = model.as_str().into();
        }
        config
    }
}

impl Model {
    fn listed(&self) -> Value {
        let takes = |kind| self.takes.contains(&kind);
        let input = json!({
            "text": true, "image": takes("image"), "audio": takes("audio"), "video": takes("video"), "pdf": takes("pdf"),
        });
        let variants: serde_json::Map<String, Value> =
            self.variants.iter().map(|name| ((*name).to_owned(), json!({"reasoningEffort": name}))).collect();
        json!({
            "id": self.name, "providerID": "scripted", "name": self.name, "family": "",
            "api": {"id": self.name, "url": "http://127.0.0.1:4999/v1", "npm": "@ai-sdk/openai-compatible"},
            "capabilities": {
                "temperature": false, "reasoning": true, "attachment": true, "toolcall": true, "input": input,
                "output": {"text": true, "image": false, "audio": false, "video": false, "pdf": false},
                "interleaved": false,
            },
            "cost": {"input": 1, "output": 2, "cache": {"read": 0, "write": 0}},
            "limit": {"context": 200_000, "output": 8192}, "status": "active", "options": {},
            "headers": {"x-key": PROVIDER_KEY}, "release_date": "", "variants": variants,
        })
    }
}

impl Agent {
    fn listed(&self) -> Value {
        let mut listed = json!({
            "name": self.name, "mode": self.mode, "native": true, "hidden": self.hidden, "permission": [], "options": {},
            "prompt": PRIVATE_PROMPT,
        });
        if let Some(description) = &self.description {
            listed["description"] = description.as_str().into();
        }
        if let Some(model) = &self.model {
            listed["model"] = json!({"providerID": "scripted", "modelID": model});
        }
        listed
    }
}

impl Command {
    fn listed(&self) -> Value {
        let (source, template) =
            if self.is_mcp { ("mcp", json!({})) } else { ("command", self.template.as_str().into()) };
        // OpenCode lists unset fields as null.
        json!({
            "name": self.name, "description": self.description, "agent": self.agent, "model": null,
            "source": source, "template": template, "subtask": self.subtask.then_some(true),
            "hints": ["$ARGUMENTS"],
        })
    }
}

/// A project, with the start command that its owner configured.
fn project(id: &str, directory: &str) -> Value {
    json!({
        "id": id, "worktree": directory, "vcs": "git", "icon": {"color": "pink"},
        "commands": {"start": PRIVATE_PROMPT}, "time": {"created": 1, "updated": 2}, "sandboxes": [],
    })
}

/// The project of directories that belong to none.
fn no_project() -> Value {
    json!({"id": "global", "worktree": "/", "time": {"created": 1, "updated": 2}, "sandboxes": []})
}

fn workspace((id, directory): &(String, String)) -> Value {
    json!({
        "id": id, "type": "worktree", "name": "eager-moon", "branch": null, "directory": directory, "extra": null,
        "projectID": PROJECT_ID, "timeUsed": 1,
    })
}
