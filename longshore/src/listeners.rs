//! Opens the listeners of the plan: TCP, with or without TLS, and the unix socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use anyhow::bail;
use longshore_edge::Listeners;
use tokio::net::TcpListener;
use url::Url;

use crate::config::Plan;
use crate::config::table;
use crate::data_dir::NotedAddress;
use crate::output;
use crate::tls::TlsFiles;
use crate::unix_socket::{self, SocketFile};

/// The URL that stands for a gateway without a port. Clients of a unix socket may use any host.
const NAME_WITHOUT_PORT: &str = "http://localhost";

/// The prefix of the recorded address of a gateway without a port.
pub(crate) const SOCKET_PREFIX: &str = "unix:";

/// The open listeners, and the values that must live as long as they do.
#[derive(Debug)]
pub(crate) struct OpenListeners {
    /// The recorded address, for commands that call the gateway. It is the first field, so that it is dropped before the listeners.
    pub(crate) noted: Option<NotedAddress>,
    pub(crate) listeners: Listeners,
    pub(crate) addresses: Addresses,
    /// The address of the TCP listener, or else of the listener for only gRPC. If both exist, they have the same host.
    pub(crate) bound: Option<SocketAddr>,
    pub(crate) tls_files: Option<TlsFiles>,
    pub(crate) socket_file: Option<SocketFile>,
}

/// The URLs of the gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Addresses {
    /// The URL for clients on this machine. `None`: the gateway listens on no port.
    pub(crate) local: Option<String>,
    /// The URL in the card.
    pub(crate) public: String,
    /// The URL for gRPC in the card, without a path. `None`: the card lists no gRPC.
    pub(crate) grpc: Option<String>,
    /// Whether the URL in the card only stands for the unix socket, so that clients cannot use it.
    is_placeholder: bool,
}

impl Addresses {
    /// The URL in the card. `None`: clients cannot use it.
    pub(crate) fn shown(&self) -> Option<&str> {
        (!self.is_placeholder).then_some(self.public.as_str())
    }
}

impl OpenListeners {
    /// No listeners, for a gateway on standard input and output.
    pub(crate) fn none() -> Self {
        let public = NAME_WITHOUT_PORT.to_owned();
        let addresses = Addresses { local: None, public, grpc: None, is_placeholder: true };
        Self {
            listeners: Listeners::default(),
            addresses,
            bound: None,
            tls_files: None,
            socket_file: None,
            noted: None,
        }
    }

    /// Opens the listeners. From here on connections wait in the kernel's queue, so a client that connects while the agent starts
    /// waits instead of failing.
    pub(crate) async fn open(plan: &Plan) -> anyhow::Result<Self> {
        let listen = &plan.listen;
        let tls_files = listen.tls.as_ref().map(TlsFiles::load).transpose()?;
        let tcp = match listen.port {
            Some(port) => Some(bind(&listen.host, port).await?),
            None => None,
        };
        let bound = tcp.as_ref().map(TcpListener::local_addr).transpose()?;
        let grpc = match listen.grpc.as_ref().and_then(|grpc| grpc.port) {
            Some(port) => Some(bind(&listen.host, port).await?),
            None => None,
        };
        let grpc_bound = grpc.as_ref().map(TcpListener::local_addr).transpose()?;
        let any_bound = any_bound(bound, grpc_bound);
        if let Some(bound) = any_bound {
            check_encryption(plan, bound)?;
        }
        let unix = match &listen.unix {
            Some(unix) => Some(unix_socket::bind(unix).await?),
            None => None,
        };
        let (unix, socket_file) = unix.unzip();
        let addresses = addresses(bound, grpc_bound, plan);
        let listeners = Listeners { tcp, grpc, tls: tls_files.as_ref().map(TlsFiles::tls), unix };
        Ok(Self { noted: None, listeners, addresses, bound: any_bound, tls_files, socket_file })
    }

    /// The address that decides about limits. On a unix socket it is loopback, because all clients are on this machine.
    pub(crate) fn address(&self) -> IpAddr {
        address_for_limits(self.bound, None)
    }

    /// The address to record for commands on this machine: a URL, followed by a line with the file of the certificate if TLS is
    /// used; or `unix:` and the path of the socket.
    pub(crate) fn local(&self) -> Option<String> {
        let Some(url) = &self.addresses.local else {
            return self.socket_path().map(|path| format!("{SOCKET_PREFIX}{}", path.display()));
        };
        Some(match &self.tls_files {
            Some(files) => format!("{url}\n{}", files.certificate().display()),
            None => url.clone(),
        })
    }

    pub(crate) fn socket_path(&self) -> Option<&Path> {
        self.socket_file.as_ref().map(SocketFile::path)
    }
}

/// The address of either listener, because both have the same host.
fn any_bound(tcp: Option<SocketAddr>, grpc: Option<SocketAddr>) -> Option<SocketAddr> {
    tcp.or(grpc)
}

fn address_for_limits(tcp: Option<SocketAddr>, grpc: Option<SocketAddr>) -> IpAddr {
    any_bound(tcp, grpc).map_or(Ipv4Addr::LOCALHOST.into(), |bound| bound.ip())
}

async fn bind(host: &str, port: u16) -> anyhow::Result<TcpListener> {
    TcpListener::bind((host, port)).await.map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::AddrInUse => "another program uses this port; end that program, or".to_owned(),
            _ => format!("{error};"),
        };
        anyhow::anyhow!(
            "cannot listen on {host} port {port}: {why} choose another port with --port (0 takes a free one), or another \
             address with --host"
        )
    })
}

/// Refuses or warns if credentials of callers would travel without TLS, because everybody on the way could read them.
fn check_encryption(plan: &Plan, bound: SocketAddr) -> anyhow::Result<()> {
    let is_local = bound.ip().to_canonical().is_loopback();
    if is_local || plan.listen.tls.is_some() {
        return Ok(());
    }
    let (certificate, key) = (table::TLS_CERTIFICATE.key, table::TLS_KEY.key);
    if plan.listen.requires_tls {
        let setting = table::REQUIRE_TLS.key;
        bail!(
            "{setting} is set, and the gateway would listen on {bound} without TLS; set {certificate} and {key}"
        );
    }
    let has_proxy = plan.listen.public_url.as_ref().is_some_and(|url| url.scheme() == "https");
    if !has_proxy {
        output::warn(format_args!(
            "the gateway listens on {bound} without TLS, so others on the network can read credentials and conversations; set \
             {certificate} and {key}, or use a proxy with TLS and set {} to its https URL",
            table::PUBLIC_URL.key
        ));
    }
    Ok(())
}

fn addresses(bound: Option<SocketAddr>, grpc: Option<SocketAddr>, plan: &Plan) -> Addresses {
    let scheme = if plan.listen.tls.is_some() { "https" } else { "http" };
    let url = |bound: SocketAddr| {
        let reachable = match bound.ip() {
            ip if !ip.is_unspecified() => ip,
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        format!("{scheme}://{}", SocketAddr::new(reachable, bound.port()))
    };
    let local = bound.map(url);
    let configured = plan.listen.public_url.as_ref().map(|url| url.as_str().trim_end_matches('/').to_owned());
    if let (None, Some(local)) = (&configured, &local)
        && bound.is_some_and(|bound| bound.ip().is_unspecified())
    {
        output::warn(format_args!(
            "the agent card says {local}, which only this machine can reach; set --public-url (A2A_PUBLIC_URL)"
        ));
    }
    let known = configured.or_else(|| local.clone());
    let is_placeholder = known.is_none();
    let public = known.unwrap_or_else(|| NAME_WITHOUT_PORT.to_owned());
    let grpc = plan.listen.grpc.as_ref().and_then(|settings| match (&settings.public_url, grpc) {
        (Some(configured), _) => Some(configured.as_str().trim_end_matches('/').to_owned()),
        // Use the host of the public URL, because clients cannot reach an address like 0.0.0.0.
        (None, Some(bound)) => {
            let public = plan.listen.public_url.as_ref();
            Some(
                public.and_then(|public| at_port(public, scheme, bound.port())).unwrap_or_else(|| url(bound)),
            )
        }
        (None, None) => without_path(&public),
    });
    Addresses { local, public, grpc, is_placeholder }
}

/// The host of a URL, with another scheme and port and no path. A proxy in front of the URL is not in front of the port.
fn at_port(url: &Url, scheme: &str, port: u16) -> Option<String> {
    let mut url = url.clone();
    url.set_scheme(scheme).ok()?;
    url.set_port(Some(port)).ok()?;
    url.set_path("");
    Some(url.as_str().trim_end_matches('/').to_owned())
}

/// The address for gRPC at a URL. `None`: the URL has a path, which gRPC cannot have.
fn without_path(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    (!rest.contains('/')).then(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, ProcessContext, load};
    use crate::limited::edge_limits;

    /// A plan for a gateway at this address, with its own port or with a unix socket.
    fn plan(directory: &Path, host: &str, has_port: bool, has_grpc_port: bool) -> Plan {
        let (port, grpc) = (if has_port { "0" } else { "off" }, if has_grpc_port { "0" } else { "off" });
        let socket = directory.join("socket");
        let mut given = vec![("A2A_HOST", host), ("A2A_PORT", port), ("LONGSHORE_GRPC_PORT", grpc)];
        if !has_port {
            given.push(("LONGSHORE_UNIX_SOCKET", socket.to_str().unwrap()));
        }
        plan_of(directory, &given)
    }

    fn plan_of(directory: &Path, given: &[(&str, &str)]) -> Plan {
        let environment = given.iter().copied().chain([("HOME", "/home/ada")]).collect();
        let context = ProcessContext { directory: directory.to_owned(), environment };
        load(&Flags::new(), None, &context).unwrap().plan
    }

    #[test]
    fn requests_are_counted_on_whichever_port_others_can_reach() {
        let cases = [
            ("0.0.0.0", true, false, true),
            ("0.0.0.0", false, true, true),
            ("0.0.0.0", true, true, true),
            ("0.0.0.0", false, false, false),
            ("127.0.0.1", true, false, false),
            ("127.0.0.1", false, true, false),
        ];
        for (host, has_port, has_grpc_port, expected) in cases {
            let directory = tempfile::tempdir().unwrap();
            let plan = plan(&directory.path().canonicalize().unwrap(), host, has_port, has_grpc_port);
            // No address is bound, because tests listen only on loopback.
            let at = |is_there: bool| is_there.then(|| SocketAddr::new(host.parse().unwrap(), 7));
            let limits = edge_limits(&plan, address_for_limits(at(has_port), at(has_grpc_port)), 1);
            let are_counted = (limits.rate.is_some(), limits.failed_logins.is_some());
            assert_eq!(are_counted, (expected, expected), "{host} {has_port} {has_grpc_port}");
        }
    }
    #[test]
    fn the_address_of_grpc_follows_from_the_port_and_the_public_urls() {
        /// The settings, both ports, and the expected address for gRPC.
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<u16>, Option<u16>, Option<&'a str>);

        let (port, grpc_port) = (Some(8000), Some(50051));
        let public = [("A2A_PUBLIC_URL", "https://a.example/agent")];
        let without_path = [("A2A_PUBLIC_URL", "https://a.example:8443/")];
        let of_grpc = [public[0], ("LONGSHORE_GRPC_PUBLIC_URL", "https://grpc.example/")];
        let ipv6 = [("A2A_PUBLIC_URL", "http://[2001:db8::1]:8000")];
        let socket = [("A2A_PORT", "off"), ("LONGSHORE_UNIX_SOCKET", "s")];
        let tls = [("LONGSHORE_TLS_CERTIFICATE", "c"), ("LONGSHORE_TLS_KEY", "k")];
        let public_tls = [public[0], tls[0], tls[1]];
        let ipv6_tls = [ipv6[0], tls[0], tls[1]];
        let cases: [Case<'_>; 13] = [
            (&[], port, None, Some("http://127.0.0.1:8000")),
            (&[], port, grpc_port, Some("http://127.0.0.1:50051")),
            (&public, port, None, None),
            (&public, port, grpc_port, Some("http://a.example:50051")),
            (&public, port, Some(80), Some("http://a.example")),
            (&public_tls, port, grpc_port, Some("https://a.example:50051")),
            (&without_path, port, None, Some("https://a.example:8443")),
            (&without_path, port, Some(443), Some("http://a.example:443")),
            (&ipv6, port, grpc_port, Some("http://[2001:db8::1]:50051")),
            (&ipv6_tls, port, grpc_port, Some("https://[2001:db8::1]:50051")),
            (&of_grpc, port, grpc_port, Some("https://grpc.example")),
            (&[("LONGSHORE_GRPC", "false")], port, None, None),
            (&socket, None, None, Some("http://localhost")),
        ];
        for (given, port, grpc_port, expected) in cases {
            let directory = tempfile::tempdir().unwrap();
            let plan = plan_of(&directory.path().canonicalize().unwrap(), given);
            let at = |port: Option<u16>| port.map(|port| SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port));
            let addresses = addresses(at(port), at(grpc_port), &plan);
            assert_eq!(addresses.grpc.as_deref(), expected, "{given:?} {port:?} {grpc_port:?}");
        }
    }
}
