//! `longshore mcp` as the MCP server that the gateway's own agent starts.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Context as _;
use longshore_calling::{SOCKET_VARIABLE, TOKEN_VARIABLE, bridge};

use crate::cli::client::Target;

/// The socket and the token that the gateway has put into the environment. `None`: the gateway's agent did not start this process.
pub(crate) fn from_environment() -> Option<(OsString, String)> {
    Some((std::env::var_os(SOCKET_VARIABLE)?, std::env::var(TOKEN_VARIABLE).ok()?))
}

/// Warns about flags that have no effect because the environment already names the gateway.
pub(crate) fn warn_of_ignored(target: &Target) {
    let Target { token_file, config, settings, .. } = target;
    if token_file.is_some() || config.config.is_some() || !settings.0.is_empty() {
        crate::output::warn(format!(
            "{SOCKET_VARIABLE} and {TOKEN_VARIABLE} are set, so this is the MCP server of the agent of that gateway, and the other \
             flags have no effect; --url names another gateway"
        ));
    }
}

/// Runs until the agent closes standard input.
pub(crate) async fn run(socket: OsString, token: String) -> anyhow::Result<()> {
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    bridge(Path::new(&socket), &token, input, output).await.context("cannot serve the tools")
}
