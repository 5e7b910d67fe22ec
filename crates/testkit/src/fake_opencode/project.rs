//! What the fake says of its project: providers and models, agents, worktrees and workspaces.
//!
//! The shapes are those of the real one, with the keys that it shows and that nobody may pass on.

use serde_json::{Value, json};

/// A key as the real one shows it among its providers. It must not come out of a gateway anywhere.
pub const PROVIDER_KEY: &str = "sk-fake-0123456789abcdef";

/// The answers to questions about the project. A test changes what it likes.
#[derive(Clone, Debug)]
pub struct Project {
    /// The models of the one provider, `scripted`.
    pub models: Vec<Model>,
    /// The first one answers when none is named.
    pub agents: Vec<Agent>,
    /// `provider/model`.
    pub model: Option<String>,
    /// Directories.
    pub worktrees: Vec<String>,
    pub sandboxes: Vec<String>,
    /// Ids and directories.
    pub workspaces: Vec<(String, String)>,
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
    /// A model of `scripted`.
    pub model: Option<String>,
}

impl Default for Project {
    fn default() -> Self {
        let model = |name: &str, takes: &[&'static str], variants: &[&'static str]| Model {
            name: name.to_owned(),
            takes: takes.to_vec(),
            variants: variants.to_vec(),
        };
        let agent = |name: &str, mode, hidden| Agent { name: name.to_owned(), mode, hidden, model: None };
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
            ],
            model: Some("scripted/scripted".to_owned()),
            worktrees: Vec::new(),
            sandboxes: Vec::new(),
            workspaces: Vec::new(),
        }
    }
}

impl Project {
    /// `None`: this is no question about the project.
    pub(super) fn answer(&self, path: &[&str], directory: &str) -> Option<Value> {
        Some(match path {
            ["config", "providers"] => self.providers(),
            ["config"] => self.config(),
            ["agent"] => self.agents.iter().map(Agent::listed).collect(),
            ["experimental", "worktree"] => json!(self.worktrees),
            ["experimental", "workspace"] => self.workspaces.iter().map(workspace).collect(),
            ["project", "current"] => json!({
                "id": "9b4c0d", "worktree": directory, "vcs": "git", "time": {"created": 1, "updated": 2},
                "sandboxes": self.sandboxes,
            }),
            _ => return None,
        })
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
        });
        if let Some(model) = &self.model {
            listed["model"] = json!({"providerID": "scripted", "modelID": model});
        }
        listed
    }
}

fn workspace((id, directory): &(String, String)) -> Value {
    json!({
        "id": id, "type": "worktree", "name": "eager-moon", "branch": null, "directory": directory, "extra": null,
        "projectID": "9b4c0d", "timeUsed": 1,
    })
}
