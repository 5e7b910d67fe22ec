//! Finds the agent that a command calls: the agent at a URL, or the gateway of this directory.

use std::path::{Path, PathBuf};

use longshore_client::{
    Binding, Client, Credential, Error, ErrorKind, Guard, Interface, ProtocolVersion, Settings,
};
use secrecy::SecretString;
use url::Url;

use super::exit::{Code, Failure};
use crate::cli::client::Target;
use crate::config::credentials::Login;
use crate::config::{self, Plan};
use crate::listeners::SOCKET_PREFIX;
use crate::{data_dir, output};

/// The extensions that the commands activate: they add output that the commands print (block kinds, usage, asks), or are needed by
/// options. Other agents ignore them.
const EXTENSIONS: [&str; 4] = [
    "urn:opencode-a2a:extension:session-binding:v1",
    "urn:opencode-a2a:extension:model-selection:v1",
    "urn:opencode-a2a:extension:stream-hints:v1",
    "urn:opencode-a2a:extension:interactive-interrupt:v1",
];

/// The largest file with a secret that is read, in bytes.
const MAX_TOKEN_FILE: u64 = 64 * 1024;

/// A client of the agent, and what is needed to name the agent in another command.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) client: Client,
    /// The flags that select this agent, such as ` --url http://...`. Empty for the gateway of this directory.
    pub(crate) flags: String,
    /// Whether the agent runs on this machine, so that both have the same paths.
    pub(crate) is_local: bool,
}

/// Finds the agent. `place`: the URL from the command's own argument, if it has one.
pub(crate) async fn find(target: &Target, place: Option<&str>) -> Result<Agent, Failure> {
    let url = match (place, target.url.as_deref()) {
        (Some(_), Some(_)) => return Err(Failure::usage("the URL of the agent is given twice")),
        (place, url) => place.or(url),
    };
    let Some(url) = url else { return own(target) };
    let settings = settings(target)?;
    let flags = format!(" --url {}{}", output::shell_word(url), token_flag(target));
    let client = Client::connect(url, settings).await?;
    Ok(Agent { client, flags, is_local: false })
}

/// The settings for an agent that is named by its URL.
pub(crate) fn settings(target: &Target) -> Result<Settings, Failure> {
    let context = crate::context()?;
    let mut settings = config::load_client(target.config.config.as_deref(), &context)?;
    if let Some(file) = &target.token_file {
        settings.credential = Some(Credential::Bearer(secret_in(file)?));
    }
    settings.extensions = EXTENSIONS.map(str::to_owned).to_vec();
    Ok(settings)
}

fn token_flag(target: &Target) -> String {
    let file = target.token_file.as_deref();
    file.map(|file| format!(" --token-file {}", output::shell_word(&file.to_string_lossy())))
        .unwrap_or_default()
}

/// Reads the secret in a file, without the white space around it.
pub(crate) fn secret_in(file: &Path) -> Result<SecretString, Failure> {
    let cannot =
        |why: String| Failure::usage(format!("the token in {} cannot be used: {why}", file.display()));
    let size = file.metadata().map_err(|error| cannot(error.to_string()))?.len();
    if size > MAX_TOKEN_FILE {
        return Err(cannot("the file is too large".to_owned()));
    }
    let text = std::fs::read_to_string(file).map_err(|error| cannot(error.to_string()))?;
    match text.trim() {
        "" => Err(cannot("the file is empty".to_owned())),
        token => Ok(SecretString::from(token)),
    }
}

/// The gateway of this directory. Its address and its token are read from its data directory.
fn own(target: &Target) -> Result<Agent, Failure> {
    let plan = crate::plan(&target.settings.0, &target.config)?;
    let Local { url, mut settings } = running(&plan)?;
    if let Some(file) = &target.token_file {
        settings.credential = Some(Credential::Bearer(secret_in(file)?));
    }
    settings.extensions = EXTENSIONS.map(str::to_owned).to_vec();
    settings.resends = true;
    let flags = flags(target);
    let interface =
        Interface { url, binding: Binding::JsonRpc, version: ProtocolVersion::V1, tenant: String::new() };
    Ok(Agent { client: Client::at(interface, settings)?, flags, is_local: true })
}

/// The running gateway of the plan. Fails if none runs.
pub(crate) fn running(plan: &Plan) -> Result<Local, Failure> {
    local(plan)?.ok_or_else(|| {
        Failure::new(
            Code::Unreachable,
            format!(
                "no gateway runs for {}. Start one with `longshore serve`, name the served directory with --workspace or its data \
                 directory with --data-dir, or give the URL of an agent.",
                plan.workspace.display()
            ),
        )
    })
}

/// The flags of this command that selected the gateway.
fn flags(target: &Target) -> String {
    let mut flags = String::new();
    if let Some(file) = &target.config.config {
        flags.extend([" --config ", &output::shell_word(&file.to_string_lossy())]);
    }
    for (key, text) in &target.settings.0 {
        if let Some(flag) = config::table::by_key(key).and_then(|setting| setting.flag) {
            flags.extend([" --", flag, "=", &output::shell_word(text)]);
        }
    }
    flags.push_str(&token_flag(target));
    flags
}

/// A gateway on this machine.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) url: Url,
    /// The settings, with the gateway's credential, which is sent only as long as this gateway runs.
    pub(crate) settings: Settings,
}

/// The running gateway that serves the directory of the plan. If none runs with the plan's choice of `--demo`, tries the other
/// choice. `None`: no gateway runs.
pub(crate) fn local(plan: &Plan) -> Result<Option<Local>, Failure> {
    let other = data_dir::of_other_kind(&plan.data_dir);
    let places = std::iter::once(&plan.data_dir).chain(&other);
    for (index, place) in places.enumerate() {
        let Some(address) = data_dir::address(place)? else { continue };
        if address.starts_with(SOCKET_PREFIX) {
            let text = "the gateway of this directory listens on a unix socket only, and these commands need a port: serve with \
                        --port too";
            return Err(Failure::new(Code::Unreachable, text));
        }
        let (url, certificate) = address.split_once('\n').unzip();
        let url = Url::parse(url.unwrap_or(&address)).map_err(|_| {
            Failure::new(Code::Failed, "the address in the data directory is damaged; restart the gateway")
        })?;
        let credential = match &plan.credentials {
            Some(configured) if index == 0 => {
                configured.iter().find_map(|credential| credential_of(&credential.login))
            }
            _ => data_dir::existing_token(place)?.map(Credential::Bearer),
        };
        let certificate = certificate.map(|file| certificate_in(Path::new(file))).transpose()?;
        let guard = Some(guard(place.clone(), address));
        return Ok(Some(Local {
            url,
            settings: Settings { credential, guard, certificate, ..plan.client.clone() },
        }));
    }
    Ok(None)
}

/// Reads the certificate of the gateway. The client accepts exactly this certificate, so its names need not match the address on
/// this machine, and its authority need not be trusted here.
fn certificate_in(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| {
        let text = format!("the certificate of the gateway in {} cannot be read: {error}", file.display());
        Failure::new(Code::Failed, text)
    })
}

/// A guard that allows requests as long as the gateway of the data directory has this address. It fails with an error that the
/// client retries, because a gateway that is restarting may get the address back.
fn guard(data_dir: PathBuf, address: String) -> Guard {
    Guard::new(move || match data_dir::address(&data_dir) {
        Ok(Some(now)) if now == address => Ok(()),
        _ => Err(Error::new(ErrorKind::Unreachable, "The gateway has ended, or it has another address now.")),
    })
}

/// The credential for a login. `None`: the login is a client certificate, which these commands cannot present.
fn credential_of(login: &Login) -> Option<Credential> {
    Some(match login {
        Login::Bearer { token, .. } => Credential::Bearer(token.clone()),
        Login::Basic { username, password } => {
            Credential::Basic { username: username.clone(), password: password.clone() }
        }
        Login::ApiKey { key, .. } => Credential::ApiKey(key.clone()),
        Login::Certificate { .. } => return None,
    })
}
