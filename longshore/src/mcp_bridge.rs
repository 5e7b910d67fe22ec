//! `longshore mcp` as the MCP server of the gateway's own agent.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Context as _;
use longshore_calling::{SOCKET_VARIABLE, TOKEN_VARIABLE, bridge};

use crate::cli::client::Target;

/// What the gateway put into the environment of its agent's MCP server. `None`: this process was not started by the gateway's agent.
pub(crate) fn from_environment() -> Option<(OsString, String)> {
    Some((std::env::var_os(SOCKET_VARIABLE)?, std::env::var(TOKEN_VARIABLE).ok()?))
}

/// Warns of flags that have no effect, because the environment names the gateway.
pub(crate) fn warn_of_ignored(target: &Target) {
    let Target { token_file, config, settings, .. } = target;
    if token_file.is_some() || config.config.is_some() || !settings.0.is_empty() {
        crate::output::warn(format!(
            "{SOCKET_VARIABLE} and {TOKEN_VARIABLE} are set, so this is the MCP server of the agent of that gateway, and the other \
             flags have no effect; --url names another gateway"
        ));
    }
}

/// Runs until the agent closes the standard input.
pub(crate) async fn run(socket: OsString, token: String) -> anyhow::Result<()> {
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    bridge(Path::new(&socket), &token, input, output).await.context("cannot serve the tools")
}
