//! Reads a URL, and refuses spellings in which another parser could find another host.

use std::fmt;
use std::net::IpAddr;

use url::{Host, Position, Url};

use crate::guard::{Refusal, Scheme};
use crate::host_rule::is_host_name;

/// The longest accepted URL, in bytes.
const LONGEST: usize = 2048;

/// A URL whose spelling, scheme, port and host were checked, but not the addresses of the host.
///
/// `Debug` and `Display` show only the host and the port, because the path and the query may hold a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
    host: TargetHost,
    port: u16,
    scheme: Scheme,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TargetHost {
    /// A host name in lower case.
    Name(String),
    Address(IpAddr),
}

impl Target {
    /// Reads a URL. The host must have the form in which every parser would write it: no decimal or octal addresses, no percent
    /// signs, no user info, no characters that some parsers replace.
    pub(crate) fn read(text: &str) -> Result<Self, Refusal> {
        let refused = |reason| Err(Refusal::Spelling(reason));
        if text.len() > LONGEST {
            return refused("it is too long");
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return refused(
                "it has a space, a control character or a letter outside ASCII; percent-encode these",
            );
        }
        if text.contains('\\') {
            return refused("it has a backslash");
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return refused("it must begin with https:// or http://");
        };
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            _ => return refused("it must begin with https:// or http://"),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return refused("it has a user name or a password; give credentials apart from the URL");
        }
        let Ok(url) = Url::parse(text) else { return refused("it cannot be read") };
        let (host, port) = split_port(authority)?;
        // The parser has normalized the host. If the host changed, its spelling was unusual.
        if url.host_str() != Some(host.to_ascii_lowercase().as_str()) {
            return refused(
                "its host is not written in the usual form, such as hooks.example.com or 203.0.113.7",
            );
        }
        let host = match url.host() {
            Some(Host::Domain(name)) if name.ends_with('.') => return refused("its host ends with a dot"),
            Some(Host::Domain(name)) if is_host_name(name) => TargetHost::Name(name.to_owned()),
            Some(Host::Ipv4(address)) => TargetHost::Address(address.into()),
            Some(Host::Ipv6(address)) => TargetHost::Address(address.into()),
            _ => return refused("its host is no host name"),
        };
        Ok(Self { port: port.unwrap_or(scheme.default_port()), url, host, scheme })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host in the form of URLs: an IPv6 address is in brackets.
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    pub(crate) fn target_host(&self) -> &TargetHost {
        &self.host
    }

    /// The value of the header `Host`.
    pub(crate) fn authority(&self) -> &str {
        &self.url[Position::BeforeHost..Position::AfterPort]
    }

    pub(crate) fn path_and_query(&self) -> &str {
        &self.url[Position::BeforePath..Position::AfterQuery]
    }
}

/// Splits an authority without user info into host and port.
fn split_port(authority: &str) -> Result<(&str, Option<u16>), Refusal> {
    let end_of_address = authority.rfind(']').map_or(0, |end| end + 1);
    let Some(colon) = authority[end_of_address..].find(':').map(|at| at + end_of_address) else {
        return Ok((authority, None));
    };
    let (host, port) = (&authority[..colon], &authority[colon + 1..]);
    let number: Option<u16> = port.parse().ok().filter(|number| *number != 0);
    match number {
        // Refuses other spellings of a number, such as `+80` and `080`.
        Some(number) if number.to_string() == port => Ok((host, Some(number))),
        _ => Err(Refusal::Spelling("its port is no number from 1 to 65535")),
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host(), self.port)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_url_keeps_its_host_port_path_and_query() {
        let cases = [
            ("https://hooks.example.com", "hooks.example.com", 443, "hooks.example.com", "/"),
            (
                "https://hooks.example.com:443/a?b=c#d",
                "hooks.example.com",
                443,
                "hooks.example.com",
                "/a?b=c",
            ),
            ("HTTPS://Hooks.Example.COM/A%20b", "hooks.example.com", 443, "hooks.example.com", "/A%20b"),
            ("http://a_b.example:8080?x", "a_b.example", 8080, "a_b.example:8080", "/?x"),
            ("http://8.8.8.8:1/x@y", "8.8.8.8", 1, "8.8.8.8:1", "/x@y"),
            ("http://[2606:4700::1]:8443/", "[2606:4700::1]", 8443, "[2606:4700::1]:8443", "/"),
            ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443, "xn--bcher-kva.example", "/"),
        ];
        for (text, host, port, authority, path) in cases {
            let target = Target::read(text).unwrap();
            let read = (target.host(), target.port(), target.authority(), target.path_and_query());
            assert_eq!(read, (host, port, authority, path), "{text}");
        }
    }

    #[test]
    fn a_target_is_shown_without_its_path_and_query() {
        let target = Target::read("https://hooks.example.com/secret-path?token=secret").unwrap();
        assert_eq!(format!("{target} {target:?}"), "hooks.example.com:443 Target(hooks.example.com:443)");
    }
}
