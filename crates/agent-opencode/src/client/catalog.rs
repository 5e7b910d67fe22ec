//! Calls that read the models, agents, worktrees and workspaces that OpenCode offers.

use longshore_meter::label::Call;
use serde::de::DeserializeOwned;

use super::{Client, Result, without_session};
use crate::api::{Agent, Config, Project, Providers, Workspace};

impl Client {
    pub(crate) async fn providers(&self, directory: &str) -> Result<Providers> {
        self.get_catalog("config/providers", directory).await
    }

    pub(crate) async fn agents(&self, directory: &str) -> Result<Vec<Agent>> {
        self.get_catalog("agent", directory).await
    }

    pub(crate) async fn config(&self, directory: &str) -> Result<Config> {
        self.get_catalog("config", directory).await
    }

    /// The worktrees that OpenCode made for the project of this directory.
    pub(crate) async fn worktrees(&self, directory: &str) -> Result<Vec<String>> {
        self.get_catalog("experimental/worktree", directory).await
    }

    pub(crate) async fn workspaces(&self, directory: &str) -> Result<Vec<Workspace>> {
        self.get_catalog("experimental/workspace", directory).await
    }

    pub(crate) async fn project(&self, directory: &str) -> Result<Project> {
        self.get_catalog("project/current", directory).await
    }

    pub(super) async fn get_catalog<T: DeserializeOwned>(&self, path: &str, directory: &str) -> Result<T> {
        self.get(Call::Catalog, path, directory, "").await.map_err(without_session)
    }
}
