//! `longshore mcp`.

use longshore_client::{Credential, Settings, carry_mcp};
use tokio::io::BufReader;
use url::Url;

use super::exit::{Code, Failure};
use super::target::{self, Local};
use crate::cli::client::{Mcp, Target};
use crate::config::table;

pub(crate) async fn mcp(options: &Mcp) -> Result<Code, Failure> {
    let (url, settings) = gateway(&options.target)?;
    carry_mcp(&url, &settings, BufReader::new(tokio::io::stdin()), tokio::io::stdout()).await?;
    Ok(Code::Completed)
}

/// The URL of the gateway's MCP path, and the settings for calling it.
fn gateway(target: &Target) -> Result<(Url, Settings), Failure> {
    if let Some(url) = &target.url {
        let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let url = url.ok_or_else(|| {
            Failure::usage("--url must be the URL of a gateway, such as http://127.0.0.1:8000")
        })?;
        let is_bare = url.path() == "/";
        return Ok((if is_bare { at(url, "/mcp") } else { url }, target::settings(target)?));
    }
    let plan = crate::plan(&target.settings.0, &target.config)?;
    let Local { url, mut settings } = target::running(&plan)?;
    if let Some(file) = &target.token_file {
        settings.credential = Some(Credential::Bearer(target::secret_in(file)?));
    }
    let path = plan.listen.mcp.as_deref().ok_or_else(|| {
        Failure::usage(format!("this gateway does not serve MCP; {} is off", table::MCP_PATH.key))
    })?;
    Ok((at(url, path), settings))
}

fn at(mut url: Url, path: &str) -> Url {
    url.set_path(path);
    url
}
