//! A gateway whose OpenCode has another configuration than the demo, with a model that outlives the gateway.

use std::net::SocketAddr;
use std::path::Path;

use longshore_demo_model::DemoModel;
use longshore_demo_model::home::demo_home;
use longshore_engine::Tasks;
use longshore_testkit::gateway::{Gateway, Setup, path_with_tools};
use serde_json::Value;

use crate::client::Client;
use crate::harness::{Harness, LONGSHORE};

impl Harness {
    /// `longshore serve` with these flags. `change` changes OpenCode's configuration before OpenCode reads it.
    pub(crate) async fn configured(flags: &[&str], change: impl FnOnce(&mut Value)) -> (Self, DemoModel) {
        Self::configured_with(|setup| flags.iter().fold(setup, Setup::flag), change).await
    }

    /// The same, with a setup that `prepare` changes.
    pub(crate) async fn configured_with(
        prepare: impl FnOnce(Setup) -> Setup,
        change: impl FnOnce(&mut Value),
    ) -> (Self, DemoModel) {
        let model = DemoModel::start(SocketAddr::from(([127, 0, 0, 1], 0)), &Tasks::new()).await;
        let model = model.expect("a free port on loopback");
        let root = tempfile::tempdir().expect("a test can make a temporary directory");
        let home = root.path().join("opencode-home");
        let environment =
            demo_home(&home, &model.base_url(), &path_with_tools()).expect("a home can be made");
        change_configuration(&home, change);
        let gateway = Gateway::start_in(root, prepare(Setup::managed(LONGSHORE, environment))).await;
        let opencode = gateway.opencode().await;
        (Self { client: Client::of(&gateway), gateway, opencode }, model)
    }
}

/// Changes the configuration of the OpenCode that has this home.
pub(crate) fn change_configuration(home: &Path, change: impl FnOnce(&mut Value)) {
    let file = home.join("config").join("opencode").join("opencode.json");
    let text = std::fs::read(&file).expect("the home has a configuration");
    let mut configuration = serde_json::from_slice(&text).expect("the configuration is JSON");
    change(&mut configuration);
    std::fs::write(&file, configuration.to_string()).expect("a configuration can be written");
}
