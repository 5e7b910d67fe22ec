//! The settings of the listeners: TCP, TLS and the unix socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use url::Url;

use super::problem::Problem;
use super::read::{Port, Reader};
use super::setting::Setting;
use super::{callers, table};

#[derive(Clone, Debug)]
pub struct Listen {
    pub host: String,
    /// The TCP port. `None`: the gateway does not listen on TCP.
    pub port: Option<u16>,
    /// The TLS settings. `None`: plain HTTP.
    pub tls: Option<TlsPlan>,
    /// Whether the gateway refuses to start without TLS if other machines can reach it.
    pub requires_tls: bool,
    pub unix: Option<UnixPlan>,
    /// The gRPC settings. `None`: gRPC is not served.
    pub grpc: Option<GrpcPlan>,
    /// The path for WebSockets. `None`: they are switched off.
    pub websocket: Option<String>,
    /// The longest idle time of a connection over WebSockets. `None`: no limit.
    pub websocket_idle: Option<Duration>,
    /// The path for MCP. `None`: it is switched off.
    pub mcp: Option<String>,
    /// The URL in the card. `None`: the address of the listener.
    pub public_url: Option<Url>,
    /// The sites whose pages may call the gateway, in the form of the header `Origin`.
    pub allowed_origins: Vec<String>,
    /// The host names that requests may use, in lower case. Empty: any.
    pub allowed_hosts: Vec<String>,
    /// The most bytes of a request body. 0: no limit.
    pub max_body_bytes: usize,
    /// The smallest size, in bytes, of a response that is compressed.
    pub gzip_minimum: usize,
    /// How long open requests may continue after SIGTERM.
    pub shutdown_grace: Duration,
    pub body_timeout: Duration,
    pub write_timeout: Duration,
    /// The number of runtime threads. 0: derived from the number of cores.
    pub threads: usize,
}

/// The files for TLS, all in PEM and with absolute paths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsPlan {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Client certificates. `None`: clients are not asked for certificates.
    pub clients: Option<ClientCertificates>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientCertificates {
    pub authorities: PathBuf,
    /// Whether a client without a certificate is refused.
    pub are_required: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GrpcPlan {
    /// The port that serves only gRPC. `None`: gRPC is served only on the other listeners.
    pub port: Option<u16>,
    /// The URL for gRPC in the card. `None`: derived from the gateway's own URL.
    pub public_url: Option<Url>,
    pub reflection: bool,
    pub health: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnixPlan {
    /// The absolute path of the socket.
    pub path: PathBuf,
    /// The permissions of the socket file.
    pub mode: u32,
    /// The principal for processes of the user who runs Longshore. `None`: they need a credential, as elsewhere.
    pub principal: Option<String>,
}

impl Listen {
    /// Whether clients are asked for certificates.
    pub fn asks_for_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.clients.is_some())
    }
}

pub(super) fn read(reader: &mut Reader<'_>, here: &Path) -> Option<Listen> {
    let host = reader.host(&table::HOST);
    let port = reader.port(&table::PORT);
    let tls = tls(reader, here);
    let requires_tls = reader.switch(&table::REQUIRE_TLS);
    let unix = unix(reader, here);
    let grpc = grpc(reader);
    if let (Some(Port::Off), None, Some(written)) = (port, &unix, reader.written(&table::PORT)) {
        let reason =
            format!("without a port the gateway needs a unix socket; set {}", table::UNIX_SOCKET.key);
        reader.problem(Problem::rule(&written.source, &table::PORT, reason));
    }
    let websocket = path_or_off(reader, &table::WEBSOCKET_PATH);
    let mcp = mcp(reader, websocket.as_deref());
    let websocket_idle = reader.seconds_or_off(&table::WEBSOCKET_IDLE);
    let public_url = reader.url(&table::PUBLIC_URL);
    let allowed_origins = names(
        reader,
        &table::ALLOWED_ORIGINS,
        callers::origin,
        "is not a site such as https://app.example.com or http://localhost:3000; list each site, without a path",
    );
    let allowed_hosts = names(
        reader,
        &table::ALLOWED_HOSTS,
        callers::host,
        "is not a host such as example.com, example.com:8000, 127.0.0.1 or *.example.com",
    );
    let max_body_bytes = reader.bytes(&table::MAX_BODY);
    let gzip_minimum = reader.bytes(&table::GZIP_MINIMUM);
    let shutdown_grace = reader.seconds(&table::SHUTDOWN_GRACE);
    let body_timeout = reader.seconds(&table::BODY_TIMEOUT);
    let write_timeout = reader.seconds(&table::WRITE_TIMEOUT);
    let threads = reader.threads(&table::THREADS);
    Some(Listen {
        host: host?,
        port: match port? {
            Port::Number(port) => Some(port),
            Port::Off => None,
        },
        tls,
        requires_tls,
        unix,
        grpc,
        websocket,
        websocket_idle,
        mcp,
        public_url,
        allowed_origins,
        allowed_hosts,
        max_body_bytes: max_body_bytes?,
        gzip_minimum: gzip_minimum?,
        shutdown_grace: shutdown_grace?,
        body_timeout: body_timeout?,
        write_timeout: write_timeout?,
        threads: threads?,
    })
}

/// Reads a path that the gateway does not already use. `None`: it is off, or a problem was found.
fn path_or_off(reader: &mut Reader<'_>, setting: &Setting) -> Option<String> {
    let path = reader.text(setting)?;
    if path == "off" {
        return None;
    }
    if !longshore_edge::is_free_path(&path)
        && let Some(written) = reader.written(setting)
    {
        let reason = "must be off or a path such as /ws that the gateway does not serve otherwise".to_owned();
        reader.problem(Problem::rule(&written.source, setting, reason));
    }
    Some(path)
}

/// Reads the path for MCP. `websocket`: the path for WebSockets, which MCP must not use.
fn mcp(reader: &mut Reader<'_>, websocket: Option<&str>) -> Option<String> {
    let path = path_or_off(reader, &table::MCP_PATH)?;
    if Some(path.as_str()) != websocket {
        return Some(path);
    }
    match reader.written(&table::MCP_PATH) {
        Some(written) => {
            let reason = format!("must not be the path of WebSockets, {}", table::WEBSOCKET_PATH.key);
            reader.problem(Problem::rule(&written.source, &table::MCP_PATH, reason));
        }
        // A configuration from before MCP may use this path for WebSockets, so this is only a warning.
        None => reader.warn(format!(
            "MCP is not served, because {} is {path}; set {} to another path",
            table::WEBSOCKET_PATH.key,
            table::MCP_PATH.key
        )),
    }
    None
}

fn tls(reader: &mut Reader<'_>, here: &Path) -> Option<TlsPlan> {
    let [certificate, key, authorities] = [&table::TLS_CERTIFICATE, &table::TLS_KEY, &table::TLS_CLIENT_CA]
        .map(|setting| reader.path(setting).map(|path| here.join(path)));
    let clients = reader.choice(&table::TLS_CLIENT_CERTIFICATES);
    needs(reader, &table::TLS_CERTIFICATE, &table::TLS_KEY, key.is_some());
    needs(reader, &table::TLS_KEY, &table::TLS_CERTIFICATE, certificate.is_some());
    needs(reader, &table::TLS_CLIENT_CA, &table::TLS_CERTIFICATE, certificate.is_some());
    needs(reader, &table::TLS_CLIENT_CERTIFICATES, &table::TLS_CLIENT_CA, authorities.is_some());
    let are_required = clients? == "required";
    let clients = authorities.map(|authorities| ClientCertificates { authorities, are_required });
    Some(TlsPlan { certificate: certificate?, key: key?, clients })
}

fn unix(reader: &mut Reader<'_>, here: &Path) -> Option<UnixPlan> {
    let path = reader.path(&table::UNIX_SOCKET).map(|path| here.join(path));
    let mode = reader.file_mode(&table::UNIX_SOCKET_MODE);
    let principal = reader.text(&table::UNIX_SOCKET_PRINCIPAL);
    for setting in [&table::UNIX_SOCKET_MODE, &table::UNIX_SOCKET_PRINCIPAL] {
        needs(reader, setting, &table::UNIX_SOCKET, path.is_some());
    }
    Some(UnixPlan { path: path?, mode: mode?, principal })
}

fn grpc(reader: &mut Reader<'_>) -> Option<GrpcPlan> {
    let is_on = reader.switch(&table::GRPC);
    let port = reader.port(&table::GRPC_PORT);
    let public_url = reader.url(&table::GRPC_PUBLIC_URL);
    if public_url.as_ref().is_some_and(|url| !url.path().trim_matches('/').is_empty())
        && let Some(written) = reader.written(&table::GRPC_PUBLIC_URL)
    {
        let reason = "has a path, which gRPC does not use; leave the path out".to_owned();
        reader.problem(Problem::rule(&written.source, &table::GRPC_PUBLIC_URL, reason));
    }
    let port = match port? {
        Port::Number(port) => Some(port),
        Port::Off => None,
    };
    let (reflection, health) = (reader.switch(&table::GRPC_REFLECTION), reader.switch(&table::GRPC_HEALTH));
    for setting in [&table::GRPC_PORT, &table::GRPC_PUBLIC_URL, &table::GRPC_REFLECTION, &table::GRPC_HEALTH]
    {
        needs(reader, setting, &table::GRPC, is_on);
    }
    is_on.then_some(GrpcPlan { port, public_url, reflection, health })
}

/// Adds a problem if `setting` is set but `other`, without which it has no effect, is not.
fn needs(reader: &mut Reader<'_>, setting: &Setting, other: &Setting, is_other_set: bool) {
    if !is_other_set && let Some(written) = reader.written(setting) {
        let reason = format!("has no effect without {}; set both", other.key);
        reader.problem(Problem::rule(&written.source, setting, reason));
    }
}

/// Reads a list of names, converted by `parse`. The first invalid name is a problem.
pub(super) fn names(
    reader: &mut Reader<'_>,
    setting: &Setting,
    parse: fn(&str) -> Option<String>,
    reason: &str,
) -> Vec<String> {
    let words = reader.list(setting);
    if let Some(wrong) = words.iter().find(|word| parse(word).is_none())
        && let Some(written) = reader.written(setting)
    {
        reader.problem(Problem::rule(&written.source, setting, format!("{wrong:?} {reason}")));
    }
    words.iter().filter_map(|word| parse(word)).collect()
}
