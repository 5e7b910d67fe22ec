//! Parses the names of origins and hosts in headers and in configured lists.

use std::net::{IpAddr, Ipv6Addr};

/// A host and port as a client wrote them: `example.com`, `Example.com.:8000`, `[::1]:8000`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct HostPort {
    pub(super) host: Host,
    pub(super) port: Option<u16>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Host {
    Address(IpAddr),
    /// A DNS name in lower case, without a trailing dot.
    Name(String),
}

/// An entry of the list of allowed hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct AllowedHost {
    host: HostPattern,
    /// The allowed port. `None`: any port.
    port: Option<u16>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum HostPattern {
    Exact(Host),
    /// All subdomains of a name. Begins with a dot.
    Subdomains(String),
}

impl HostPort {
    /// Parses an authority. `None`: the text is not a valid host.
    pub(super) fn parse(authority: &str) -> Option<Self> {
        if let Some(rest) = authority.strip_prefix('[') {
            let (address, port) = rest.split_once(']')?;
            let host = Host::Address(address.parse::<Ipv6Addr>().ok()?.into());
            return Self::with_port(host, port);
        }
        let colon = authority.find(':').unwrap_or(authority.len());
        let (host, port) = authority.split_at(colon);
        Self::with_port(Host::parse(host)?, port)
    }

    /// Adds a port to a host. `port`: empty, or a colon and a number. A colon without a number means no port.
    fn with_port(host: Host, port: &str) -> Option<Self> {
        let port = if matches!(port, "" | ":") { None } else { Some(number(port)?) };
        Some(Self { host, port })
    }

    pub(super) fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Address(address) => address.to_canonical().is_loopback(),
            Host::Name(name) => name == "localhost",
        }
    }
}

impl Host {
    fn parse(text: &str) -> Option<Self> {
        let name = text.trim_end_matches('.');
        if let Ok(address) = name.parse::<IpAddr>() {
            return Some(Self::Address(address));
        }
        let is_name = name.split('.').all(|label| {
            !label.is_empty()
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        });
        is_name.then(|| Self::Name(name.to_ascii_lowercase()))
    }
}

impl AllowedHost {
    /// An entry for this host with any port.
    pub(super) fn exact(host: Host) -> Self {
        Self { host: HostPattern::Exact(host), port: None }
    }

    /// Parses an entry. `None`: the entry could never match.
    pub(super) fn parse(entry: &str) -> Option<Self> {
        let entry = entry.trim();
        // An IPv6 address without brackets has no port.
        if let Ok(address) = entry.parse::<Ipv6Addr>() {
            return Some(Self::exact(Host::Address(address.into())));
        }
        let Some(under) = entry.strip_prefix("*.") else {
            let HostPort { host, port } = HostPort::parse(entry)?;
            return Some(Self { host: HostPattern::Exact(host), port });
        };
        match HostPort::parse(under)? {
            HostPort { host: Host::Name(name), port } => {
                Some(Self { host: HostPattern::Subdomains(format!(".{name}")), port })
            }
            HostPort { host: Host::Address(_), .. } => None,
        }
    }

    pub(super) fn matches(&self, named: &HostPort) -> bool {
        let is_host = match (&self.host, &named.host) {
            (HostPattern::Exact(one), host) => one == host,
            (HostPattern::Subdomains(end), Host::Name(name)) => {
                name.len() > end.len() && name.ends_with(end.as_str())
            }
            (HostPattern::Subdomains(_), Host::Address(_)) => false,
        };
        is_host && self.matches_port(named)
    }

    /// Whether the entry is a loopback name with the port of `named`, which is another loopback name.
    pub(super) fn is_loopback_like(&self, named: &HostPort) -> bool {
        match &self.host {
            HostPattern::Exact(host) => {
                HostPort { host: host.clone(), port: None }.is_loopback() && self.matches_port(named)
            }
            HostPattern::Subdomains(_) => false,
        }
    }

    fn matches_port(&self, named: &HostPort) -> bool {
        self.port.is_none() || self.port == named.port
    }
}

/// The canonical form of an origin for comparison: lower case, no trailing slash, no default port. Text that is not an origin is
/// returned unchanged, and so is `null`.
pub(super) fn canonical_origin(text: &str) -> String {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix('/').unwrap_or(&text);
    let Some((scheme, site)) = text.split_once("://") else { return text.to_owned() };
    // Browsers treat a host with a trailing dot as another site, so the dot is kept.
    if site.ends_with('.') || site.contains(".:") {
        return text.to_owned();
    }
    let Some(HostPort { host, port }) = HostPort::parse(site) else { return text.to_owned() };
    let host = match host {
        Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
        Host::Address(address) => address.to_string(),
        Host::Name(name) => name,
    };
    let implied = match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    };
    match port {
        Some(port) if Some(port) != implied => format!("{scheme}://{host}:{port}"),
        _ => format!("{scheme}://{host}"),
    }
}

/// The port number after a colon: digits and nothing else.
fn number(text: &str) -> Option<u16> {
    let digits = text.strip_prefix(':')?;
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}
