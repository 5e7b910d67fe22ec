//! Calls that ask OpenCode what it has to offer.

use longshore_meter::label::Call;
use reqwest::Method;
use serde::de::DeserializeOwned;

use super::{Client, Result, of_a_directory};
use crate::api::{Agent, Config, Project, Providers, Workspace};

impl Client {
    pub(crate) async fn providers(&self, directory: &str) -> Result<Providers> {
        self.look_up("config/providers", directory).await
    }

    pub(crate) async fn agents(&self, directory: &str) -> Result<Vec<Agent>> {
        self.look_up("agent", directory).await
    }

    pub(crate) async fn config(&self, directory: &str) -> Result<Config> {
        self.look_up("config", directory).await
    }

    /// The worktrees that OpenCode made for the project of this directory.
    pub(crate) async fn worktrees(&self, directory: &str) -> Result<Vec<String>> {
        self.look_up("experimental/worktree", directory).await
    }

    pub(crate) async fn workspaces(&self, directory: &str) -> Result<Vec<Workspace>> {
        self.look_up("experimental/workspace", directory).await
    }

    pub(crate) async fn project(&self, directory: &str) -> Result<Project> {
        self.look_up("project/current", directory).await
    }

    async fn look_up<T: DeserializeOwned>(&self, path: &str, directory: &str) -> Result<T> {
        self.json(Call::Catalog, self.request(Method::GET, path, directory, "")?)
            .await
            .map_err(of_a_directory)
    }
}
