//! The names of sites and hosts, as they are written in headers and lists.

use std::net::{IpAddr, Ipv6Addr};

/// A host as somebody called it: `example.com`, `Example.com.:8000`, `[::1]:8000`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Named {
    pub(super) host: Host,
    pub(super) port: Option<u16>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Host {
    Address(IpAddr),
    /// In small letters, without a dot at its end.
    Name(String),
}

/// A host of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Allowed {
    host: AllowedHost,
    /// `None`: any.
    port: Option<u16>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum AllowedHost {
    One(Host),
    /// Every name that ends so and has something before it. Begins with a dot.
    Under(String),
}

impl Named {
    /// `None`: nothing that a request can be for.
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

    /// `port`: nothing, or a colon and a number. An empty number is none.
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

impl Allowed {
    /// `None`: nothing that could ever match.
    pub(super) fn parse(entry: &str) -> Option<Self> {
        let entry = entry.trim();
        // Without brackets there is no port behind it.
        if let Ok(address) = entry.parse::<Ipv6Addr>() {
            return Some(Self { host: AllowedHost::One(Host::Address(address.into())), port: None });
        }
        let Some(under) = entry.strip_prefix("*.") else {
            let Named { host, port } = Named::parse(entry)?;
            return Some(Self { host: AllowedHost::One(host), port });
        };
        match Named::parse(under)? {
            Named { host: Host::Name(name), port } => {
                Some(Self { host: AllowedHost::Under(format!(".{name}")), port })
            }
            Named { host: Host::Address(_), .. } => None,
        }
    }

    pub(super) fn has(&self, named: &Named) -> bool {
        let is_host = match (&self.host, &named.host) {
            (AllowedHost::One(one), host) => one == host,
            (AllowedHost::Under(end), Host::Name(name)) => {
                name.len() > end.len() && name.ends_with(end.as_str())
            }
            (AllowedHost::Under(_), Host::Address(_)) => false,
        };
        is_host && self.has_port_of(named)
    }

    /// Whether it is a name of this machine, where `named` is another one.
    pub(super) fn is_loopback_as(&self, named: &Named) -> bool {
        match &self.host {
            AllowedHost::One(host) => {
                Named { host: host.clone(), port: None }.is_loopback() && self.has_port_of(named)
            }
            AllowedHost::Under(_) => false,
        }
    }

    fn has_port_of(&self, named: &Named) -> bool {
        self.port.is_none() || self.port == named.port
    }
}

/// An origin as it is compared: small letters, no slash at its end, no port that its scheme implies. What is no origin stays
/// as it is, and so does `null`.
pub(super) fn canonical_origin(text: &str) -> String {
    let text = text.trim().to_ascii_lowercase();
    let text = text.strip_suffix('/').unwrap_or(&text);
    let Some((scheme, site)) = text.split_once("://") else { return text.to_owned() };
    // A dot at the end makes another site of it for browsers, so it is not dropped.
    if site.ends_with('.') || site.contains(".:") {
        return text.to_owned();
    }
    let Some(Named { host, port }) = Named::parse(site) else { return text.to_owned() };
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

/// The number of a port with its colon: digits and nothing else.
fn number(text: &str) -> Option<u16> {
    let digits = text.strip_prefix(':')?;
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}
