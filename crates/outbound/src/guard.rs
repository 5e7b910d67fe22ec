//! The rules for URLs that callers of the gateway provide.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;

use crate::address;
use crate::host_rule::HostRule;
use crate::spelling::{Target, TargetHost};

/// Top-level domains that only the local network or this machine can resolve.
const LOCAL_NAMES: &[&str] = &[
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "lan",
    "home",
    "corp",
    "private",
    "arpa",
    "onion",
    "alt",
];

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    Https,
    Http,
}

impl Scheme {
    pub(crate) fn default_port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }
}

/// The URLs that callers may provide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    pub schemes: Vec<Scheme>,
    pub ports: Vec<RangeInclusive<u16>>,
    /// The allowed hosts. Empty: all. If there are any, an address as host is refused unless it is in `internal_networks`.
    pub hosts: Vec<HostRule>,
    /// Hosts whose names may resolve to private and loopback addresses. They may not resolve to link-local addresses or other
    /// special ranges, where clouds keep their metadata.
    pub internal_hosts: Vec<HostRule>,
    /// Networks with special addresses that may be called under any name.
    pub internal_networks: Vec<IpNet>,
}

impl Default for Rules {
    /// Allows only the public Internet over HTTPS.
    fn default() -> Self {
        Self {
            schemes: vec![Scheme::Https],
            ports: vec![80..=80, 443..=443, 1024..=u16::MAX],
            hosts: Vec::new(),
            internal_hosts: Vec::new(),
            internal_networks: Vec::new(),
        }
    }
}

/// Why a URL is refused. The text is for the caller who provided the URL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    Spelling(&'static str),
    /// The scheme of the URL is not allowed.
    Scheme,
    Port,
    /// The operator has allowed other hosts only.
    Host,
    /// The host name belongs to the local network.
    LocalName,
    /// The host is an address of this kind, or its name resolves to one.
    Address(&'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spelling(reason) => write!(f, "the URL cannot be used: {reason}"),
            Self::Scheme => f.write_str("the URL cannot be used: use https"),
            Self::Port => f.write_str("the gateway does not call this port; use 443"),
            Self::Host => f.write_str("the gateway's operator does not allow this host"),
            // Both have the same text, so that the answer does not reveal the address of a name in the local network.
            Self::LocalName | Self::Address(_) => f.write_str(
                "the gateway calls only hosts on the public Internet, and those that its operator allows",
            ),
        }
    }
}

impl std::error::Error for Refusal {}

/// Decides which URLs may be called. The crate's documentation lists the stages.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    rules: Rules,
}

impl Guard {
    pub fn new(rules: Rules) -> Self {
        Self { rules }
    }

    /// Makes all checks that need no resolver: of the spelling, scheme, port and host. If the host is an address, checks it too.
    pub fn read(&self, url: &str) -> Result<Target, Refusal> {
        let target = Target::read(url)?;
        if !self.rules.schemes.contains(&target.scheme()) {
            return Err(Refusal::Scheme);
        }
        if !self.rules.ports.iter().any(|range| range.contains(&target.port())) {
            return Err(Refusal::Port);
        }
        match target.target_host() {
            TargetHost::Address(address) => {
                if !self.rules.hosts.is_empty() && !self.is_in_internal_network(*address) {
                    return Err(Refusal::Host);
                }
                self.check_addresses(&target, &[*address])?;
            }
            TargetHost::Name(name) => {
                let is_listed = |rules: &[HostRule]| rules.iter().any(|rule| rule.matches(name));
                let is_internal = is_listed(&self.rules.internal_hosts);
                if !self.rules.hosts.is_empty() && !is_listed(&self.rules.hosts) && !is_internal {
                    return Err(Refusal::Host);
                }
                // If internal networks are allowed, the name may resolve to one of them, so its addresses decide later.
                if is_local(name) && !is_internal && self.rules.internal_networks.is_empty() {
                    return Err(Refusal::LocalName);
                }
            }
        }
        Ok(target)
    }

    /// Checks the addresses of a target. If one is not allowed, all are refused, because the resolver's answer cannot be trusted.
    pub fn check_addresses(&self, target: &Target, addresses: &[IpAddr]) -> Result<(), Refusal> {
        let name = match target.target_host() {
            TargetHost::Name(name) => Some(name),
            TargetHost::Address(_) => None,
        };
        let is_internal_host =
            name.is_some_and(|name| self.rules.internal_hosts.iter().any(|rule| rule.matches(name)));
        for address in addresses {
            if self.is_in_internal_network(*address) {
                continue;
            }
            match address::special(*address) {
                Some("private" | "loopback" | "carrier-grade NAT") if is_internal_host => {}
                Some(kind) => return Err(Refusal::Address(kind)),
                // A name of the local network should not resolve to a public address.
                None if name.is_some_and(|name| is_local(name)) && !is_internal_host => {
                    return Err(Refusal::LocalName);
                }
                None => {}
            }
        }
        Ok(())
    }

    fn is_in_internal_network(&self, address: IpAddr) -> bool {
        self.rules.internal_networks.iter().any(|network| network.contains(&address))
    }
}

/// Whether a name belongs to the local network. A name without a dot does.
fn is_local(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    !name.contains('.') || LOCAL_NAMES.contains(&last)
}
