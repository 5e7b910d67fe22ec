//! Whether a request comes from a page and to a name that the operator allows. Looked at first, for every path and verb.
//!
//! Browsers send requests for whatever page is open, and a name of the page's choice may lead to this gateway. `Origin` says
//! which site the page is of; `Host`, or the authority that stands in its place, by which name we were called. Programs send
//! no `Origin`. Nothing here says to a browser that a page may read an answer.

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

use self::name::{Allowed, Named, canonical_origin};
use crate::Limits;

#[derive(Debug)]
pub(crate) struct Guard {
    /// In their canonical form, the gateway's own among them.
    origins: HashSet<String>,
    /// `None`: any. A list in which nothing can be read allows nothing.
    hosts: Option<Vec<Allowed>>,
    /// The port of a gateway that only its own machine can reach.
    loopback: Option<u16>,
    metrics: Arc<Metrics>,
}

impl Guard {
    /// `bound`: the address that is listened on.
    pub(crate) fn new(limits: &Limits, public_url: &str, bound: SocketAddr, metrics: Arc<Metrics>) -> Self {
        let own = own_origin(public_url);
        Self {
            origins: limits
                .allowed_origins
                .iter()
                .map(|origin| canonical_origin(origin))
                .chain(own)
                .collect(),
            hosts: if limits.allowed_hosts.is_empty() {
                None
            } else {
                Some(limits.allowed_hosts.iter().filter_map(|host| Allowed::parse(host)).collect())
            },
            loopback: is_loopback(bound).then_some(bound.port()),
            metrics,
        }
    }

    pub(crate) fn check(&self, parts: &Parts) -> Result<()> {
        if !self.is_host_allowed(parts) {
            self.metrics.refused.of(Limit::AllowedHosts).increment();
            return Err(refusal("Host not allowed; call the gateway by a name that its allowed hosts have."));
        }
        if !self.is_origin_allowed(&parts.headers) {
            self.metrics.refused.of(Limit::AllowedOrigins).increment();
            return Err(refusal(
                "Cross-origin request rejected; pages may call from the gateway's own site and its allowed origins.",
            ));
        }
        Ok(())
    }

    fn is_origin_allowed(&self, headers: &HeaderMap) -> bool {
        match only(headers, &ORIGIN) {
            Only::None => true,
            Only::Text(origin) => {
                let origin = canonical_origin(origin);
                self.origins.contains(&origin) || self.is_loopback_origin(&origin)
            }
            Only::Nonsense => false,
        }
    }

    /// All names of this machine are one site, if nobody else can come to this port.
    fn is_loopback_origin(&self, origin: &str) -> bool {
        let (Some(port), Some(site)) = (self.loopback, origin.strip_prefix("http://")) else { return false };
        Named::parse(site).is_some_and(|named| named.is_loopback() && named.port.unwrap_or(80) == port)
    }

    fn is_host_allowed(&self, parts: &Parts) -> bool {
        let Some(allowed) = &self.hosts else { return true };
        // HTTP/2 has the authority in the head of the request, and so may HTTP/1. It counts more than the header; one that is
        // there as well must be as good, for whoever is behind us may look at the other.
        let authority = parts.uri.authority().map(|authority| self.is_host_of(allowed, authority.as_str()));
        match (authority, only(&parts.headers, &HOST)) {
            (None, Only::None) | (_, Only::Nonsense) => false,
            (Some(is_allowed), Only::None) => is_allowed,
            (authority, Only::Text(host)) => authority.unwrap_or(true) && self.is_host_of(allowed, host),
        }
    }

    fn is_host_of(&self, allowed: &[Allowed], authority: &str) -> bool {
        Named::parse(authority)
            .is_some_and(|named| is_name_allowed(allowed.iter(), &named, self.loopback.is_some()))
    }
}

impl Limits {
    /// What an operator should know about the lists of origins and hosts, in sentences.
    pub fn doubts(&self, public_url: &str, bound: SocketAddr) -> Vec<String> {
        let mut doubts = Vec::new();
        for origin in &self.allowed_origins {
            let canonical = canonical_origin(origin);
            let is_site = canonical == "null"
                || canonical.split_once("://").is_some_and(|(_, site)| Named::parse(site).is_some());
            if !is_site {
                doubts.push(format!("the allowed origin {origin:?} is no origin and matches nothing; write https://example.com"));
            } else if canonical != *origin {
                doubts.push(format!("the allowed origin {origin:?} is taken for {canonical:?}"));
            }
        }
        let hosts: Vec<_> = self.allowed_hosts.iter().map(|host| (host, Allowed::parse(host))).collect();
        for (host, _) in hosts.iter().filter(|(_, allowed)| allowed.is_none()) {
            doubts.push(format!(
                "the allowed host {host:?} is no host and matches nothing; write example.com, example.com:8000 or *.example.com"
            ));
        }
        if hosts.is_empty() {
            if !is_loopback(bound) {
                doubts.push(format!(
                    "the gateway listens on {bound} and answers to any name; list its names in the allowed hosts"
                ));
            }
            return doubts;
        }
        let own = own_origin(public_url);
        let own =
            own.as_deref().and_then(|own| own.split_once("://")).and_then(|(_, site)| Named::parse(site));
        let allowed = hosts.iter().filter_map(|(_, allowed)| allowed.as_ref());
        let is_covered = own.is_none_or(|own| is_name_allowed(allowed, &own, is_loopback(bound)));
        if !is_covered {
            doubts.push(format!("the allowed hosts do not have the host of the public URL {public_url}"));
        }
        doubts
    }
}

/// Whether one of these allows the name. Where only this machine can call, all its names are one.
fn is_name_allowed<'a>(
    mut allowed: impl Iterator<Item = &'a Allowed>,
    named: &Named,
    is_only_here: bool,
) -> bool {
    let is_here = is_only_here && named.is_loopback();
    allowed.any(|allowed| allowed.has(named) || is_here && allowed.is_loopback_as(named))
}

/// The site of a URL.
fn own_origin(public_url: &str) -> Option<String> {
    let (scheme, rest) = public_url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    Some(canonical_origin(&format!("{scheme}://{authority}")))
}

fn is_loopback(bound: SocketAddr) -> bool {
    bound.ip().to_canonical().is_loopback()
}

fn refusal(text: &str) -> Error {
    Error::new(ErrorKind::PermissionDenied, text)
}

/// What a header says that may be there once.
enum Only<'a> {
    None,
    Text(&'a str),
    /// It is there twice, or is no text: nobody could say what is meant.
    Nonsense,
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Only<'a> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Only::None,
        (Some(value), None) => value.to_str().map_or(Only::Nonsense, Only::Text),
        (Some(_), Some(_)) => Only::Nonsense,
    }
}

#[cfg(test)]
mod tests;
