//! Checks that a request comes from an allowed web page and uses an allowed host name. Runs before all other checks, for every
//! path and verb.
//!
//! Browsers send requests on behalf of any open page, and the page can choose a host name that resolves to this gateway.
//! `Origin` names the site of the page; `Host`, or the authority of the URI, names the host that the client called. Programs
//! send no `Origin`. The gateway never sends a CORS header that would let a page read a response.
//!
//! On a unix socket only the origin is checked. No host name resolves to the socket, so the host says nothing. But a proxy may
//! pass the requests of browsers on to the socket.

mod name;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use longshore_meter::Metrics;
use longshore_meter::label::Limit;
use longshore_model::{Error, ErrorKind, Result};

use self::name::{AllowedHost, HostPort, canonical_origin};
use crate::Limits;
use crate::arrival::Arrival;

#[derive(Debug)]
pub(crate) struct Guard {
    /// The allowed origins in canonical form, including the gateway's own origin.
    origins: HashSet<String>,
    /// The allowed hosts. `None`: any host. A list without a valid entry allows no host.
    hosts: Option<Vec<AllowedHost>>,
    /// Whether a request must name its host. Set if the operator configured a list of hosts.
    requires_host: bool,
    /// The gateway's own address, if it listens on a loopback address.
    loopback: Option<LoopbackSite>,
    metrics: Arc<Metrics>,
}

/// The address on which the gateway listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// The TCP address. `None`: the gateway does not listen on TCP.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) has_tls: bool,
}

#[derive(Clone, Copy, Debug)]
struct LoopbackSite {
    port: u16,
    has_tls: bool,
}

impl Guard {
    /// `urls`: the URLs by which clients reach the gateway.
    pub(crate) fn new<'a>(
        limits: &Limits,
        urls: impl Iterator<Item = &'a str> + Clone,
        bound: Bound,
        metrics: Arc<Metrics>,
    ) -> Self {
        let own = urls.clone().filter_map(own_origin);
        let loopback = bound.address.filter(|address| is_loopback(*address));
        Self {
            origins: limits
                .allowed_origins
                .iter()
                .map(|origin| canonical_origin(origin))
                .chain(own)
                .collect(),
            hosts: if !limits.allowed_hosts.is_empty() {
                Some(limits.allowed_hosts.iter().filter_map(|host| AllowedHost::parse(host)).collect())
            } else if loopback.is_some() {
                // A web page can make any name of its own domain resolve to a loopback address, so only loopback names are allowed.
                // One loopback name stands for all of them.
                Some(
                    AllowedHost::parse("localhost").into_iter().chain(urls.filter_map(public_host)).collect(),
                )
            } else {
                None
            },
            requires_host: !limits.allowed_hosts.is_empty(),
            loopback: loopback.map(|address| LoopbackSite { port: address.port(), has_tls: bound.has_tls }),
            metrics,
        }
    }

    pub(crate) fn check(&self, parts: &Parts) -> Result<()> {
        let is_on_unix_socket = Arrival::of(parts).is_some_and(|arrival| arrival.is_on_unix_socket);
        if !is_on_unix_socket && !self.is_host_allowed(parts) {
            self.metrics.refused.of(Limit::AllowedHosts).increment();
            return Err(refusal(
                "Host not allowed; call the gateway by the host of its public URL or one of its allowed hosts. The operator \
                 of this gateway sets these with A2A_PUBLIC_URL and A2A_ALLOWED_HOSTS.",
            ));
        }
        if !self.is_origin_allowed(&parts.headers) {
            self.metrics.refused.of(Limit::AllowedOrigins).increment();
            return Err(refusal(
                "Cross-origin request rejected: the header Origin names a site whose pages may not call this gateway. The \
                 operator of this gateway can allow the site with A2A_ALLOWED_ORIGINS. The gateway sends no CORS headers; if a \
                 page of the site must read the responses, a proxy must add these headers.",
            ));
        }
        Ok(())
    }

    fn is_origin_allowed(&self, headers: &HeaderMap) -> bool {
        match single_header(headers, &ORIGIN) {
            SingleHeader::Missing => true,
            SingleHeader::Text(origin) => {
                let origin = canonical_origin(origin);
                self.origins.contains(&origin) || self.is_loopback_origin(&origin)
            }
            SingleHeader::Invalid => false,
        }
    }

    /// Whether this is an origin on the gateway's own loopback port. All loopback names count as one site, because no other machine
    /// can reach the port.
    fn is_loopback_origin(&self, origin: &str) -> bool {
        let Some(LoopbackSite { port, has_tls }) = self.loopback else { return false };
        let (scheme, implied) = if has_tls { ("https://", 443) } else { ("http://", 80) };
        let Some(site) = origin.strip_prefix(scheme) else { return false };
        HostPort::parse(site)
            .is_some_and(|named| named.is_loopback() && named.port.unwrap_or(implied) == port)
    }

    fn is_host_allowed(&self, parts: &Parts) -> bool {
        let Some(allowed) = &self.hosts else { return true };
        // In HTTP/2 the authority is in the head of the request, and in HTTP/1 it may be there. If there is also a `Host` header,
        // both must be allowed, because a backend behind a proxy may use either.
        let authority = parts.uri.authority().map(|authority| self.matches_host(allowed, authority.as_str()));
        match (authority, single_header(&parts.headers, &HOST)) {
            (None, SingleHeader::Missing) => !self.requires_host,
            (_, SingleHeader::Invalid) => false,
            (Some(is_allowed), SingleHeader::Missing) => is_allowed,
            (authority, SingleHeader::Text(host)) => {
                authority.unwrap_or(true) && self.matches_host(allowed, host)
            }
        }
    }

    fn matches_host(&self, allowed: &[AllowedHost], authority: &str) -> bool {
        HostPort::parse(authority)
            .is_some_and(|named| is_name_allowed(allowed.iter(), &named, self.loopback.is_some()))
    }
}

impl Limits {
    /// Warnings for the operator about the lists of allowed origins and hosts.
    pub fn warnings(&self, public_url: &str, grpc_url: Option<&str>, bound: SocketAddr) -> Vec<String> {
        let mut warnings = Vec::new();
        for origin in &self.allowed_origins {
            let canonical = canonical_origin(origin);
            let is_site = canonical == "null"
                || canonical.split_once("://").is_some_and(|(_, site)| HostPort::parse(site).is_some());
            if !is_site {
                warnings.push(format!("the allowed origin {origin:?} is no origin and matches nothing; write https://example.com"));
            } else if canonical != *origin {
                warnings.push(format!("the allowed origin {origin:?} is taken for {canonical:?}"));
            }
        }
        let hosts: Vec<_> = self.allowed_hosts.iter().map(|host| (host, AllowedHost::parse(host))).collect();
        for (host, _) in hosts.iter().filter(|(_, allowed)| allowed.is_none()) {
            warnings.push(format!(
                "the allowed host {host:?} is no host and matches nothing; write example.com, example.com:8000 or *.example.com"
            ));
        }
        if hosts.is_empty() {
            if !is_loopback(bound) {
                warnings.push(format!(
                    "the gateway listens on {bound} and answers to any name; list its names in the allowed hosts"
                ));
            }
            return warnings;
        }
        let urls = [
            ("public URL", Some(public_url)),
            ("public URL of gRPC", grpc_url.filter(|url| *url != public_url)),
        ];
        for (name, url) in urls.into_iter().filter_map(|(name, url)| Some((name, url?))) {
            let allowed = hosts.iter().filter_map(|(_, allowed)| allowed.as_ref());
            let is_covered =
                own_site(url).is_none_or(|own| is_name_allowed(allowed, &own, is_loopback(bound)));
            if !is_covered {
                warnings.push(format!("the allowed hosts do not have the host of the {name} {url}"));
            }
        }
        warnings
    }
}

/// Whether an entry allows the name. On a loopback address all loopback names count as one.
fn is_name_allowed<'a>(
    mut allowed: impl Iterator<Item = &'a AllowedHost>,
    named: &HostPort,
    is_loopback_only: bool,
) -> bool {
    let is_loopback = is_loopback_only && named.is_loopback();
    allowed.any(|allowed| allowed.matches(named) || is_loopback && allowed.is_loopback_like(named))
}

/// The origin of a URL.
fn own_origin(public_url: &str) -> Option<String> {
    let (scheme, rest) = public_url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    Some(canonical_origin(&format!("{scheme}://{authority}")))
}

/// The host and port of a URL.
fn own_site(public_url: &str) -> Option<HostPort> {
    own_origin(public_url)?.split_once("://").and_then(|(_, site)| HostPort::parse(site))
}

/// The host of a URL, with any port.
fn public_host(public_url: &str) -> Option<AllowedHost> {
    own_site(public_url).map(|HostPort { host, .. }| AllowedHost::exact(host))
}

fn is_loopback(bound: SocketAddr) -> bool {
    bound.ip().to_canonical().is_loopback()
}

fn refusal(text: &str) -> Error {
    Error::new(ErrorKind::PermissionDenied, text)
}

/// The value of a header that may occur only once.
enum SingleHeader<'a> {
    Missing,
    Text(&'a str),
    /// The header occurs several times or is not text, so its meaning is unclear.
    Invalid,
}

fn single_header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> SingleHeader<'a> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => SingleHeader::Missing,
        (Some(value), None) => value.to_str().map_or(SingleHeader::Invalid, SingleHeader::Text),
        (Some(_), Some(_)) => SingleHeader::Invalid,
    }
}

#[cfg(test)]
mod tests;
