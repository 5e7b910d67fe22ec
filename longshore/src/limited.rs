//! Converts the limits of the plan into the limits of the edge. "No limit" is `None` in the plan, but mostly 0 in the edge.

use std::net::IpAddr;

use longshore_edge::{self as edge, Rate};
use url::Host;

use crate::config::limits::{Counts, Limits};
use crate::config::plan::Plan;
use crate::config::table;

/// The limits for an edge that listens on `listens_on`.
pub(crate) fn edge_limits(plan: &Plan, listens_on: IpAddr, connections: usize) -> edge::Limits {
    let limits = &plan.limits;
    let is_counted = limits.counts.applies(is_loopback(listens_on));
    let rate = |count: Option<usize>| count.filter(|_| is_counted).map(|count| rate(count, limits));
    edge::Limits {
        rate: rate(limits.requests),
        failed_logins: rate(limits.failed_logins),
        streams: limits.streams.unwrap_or(0),
        streams_per_principal: limits.streams_per_principal.unwrap_or(0),
        stream_bytes: limits.stream_bytes.unwrap_or(0) as u64,
        stream_duration: limits.stream_duration,
        stream_idle: limits.stream_idle,
        connections,
        connections_per_address: limits.connections_per_address.unwrap_or(0),
        requests_per_connection: limits.requests_per_connection.unwrap_or(0),
        body_bytes: limits.body_bytes.unwrap_or(0),
        allowed_origins: plan.listen.allowed_origins.clone(),
        allowed_hosts: plan.listen.allowed_hosts.clone(),
    }
}

/// A warning if requests are not counted although a proxy seems to forward them.
pub(crate) fn warning(plan: &Plan, listens_on: IpAddr) -> Option<String> {
    let public_url = plan.listen.public_url.as_ref()?;
    let is_local_url = match public_url.host()? {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => is_loopback(address.into()),
    };
    let is_automatic = plan.limits.counts == Counts::WhenOthersCanCall;
    (is_automatic && is_loopback(listens_on) && !is_local_url).then(|| {
        format!(
            "requests and wrong credentials are not counted, because {} is auto and the gateway listens on this machine only; \
             but the public URL {public_url} is not on this machine; behind a proxy set it to on, and let the proxy count wrong \
             credentials",
            table::RATE_LIMIT.key
        )
    })
}

fn rate(count: usize, limits: &Limits) -> Rate {
    Rate { requests: u32::try_from(count).unwrap_or(u32::MAX), window: limits.window }
}

/// Whether only this machine can reach the address.
fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Flags, ProcessContext, load};

    type Variables<'a> = &'a [(&'a str, &'a str)];

    fn plan(variables: Variables<'_>) -> Plan {
        let directory = tempfile::tempdir().unwrap();
        let environment = variables.iter().copied().chain([("HOME", "/home/ada")]).collect();
        let directory = directory.path().canonicalize().unwrap();
        load(&Flags::new(), None, &ProcessContext { directory, environment }).unwrap().plan
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn requests_are_counted_where_others_can_call() {
        let auto = plan(&[]);
        for here in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            let limits = edge_limits(&auto, address(here), 1);
            assert_eq!((limits.rate, limits.failed_logins), (None, None), "{here}");
        }
        for open in ["0.0.0.0", "::", "192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"] {
            let limits = edge_limits(&auto, address(open), 1);
            assert_eq!(limits.rate, Some(edge::Limits::RATE), "{open}");
            assert_eq!(limits.failed_logins, Some(edge::Limits::FAILED_LOGINS), "{open}");
        }
        let none = plan(&[("A2A_RATE_LIMIT_ENABLED", "on"), ("A2A_RATE_LIMIT_MAX_REQUESTS", "0")]);
        let limits = edge_limits(&none, address("127.0.0.1"), 1);
        assert_eq!((limits.rate, limits.failed_logins), (None, Some(edge::Limits::FAILED_LOGINS)));
    }

    #[test]
    fn a_gateway_that_seems_to_be_behind_a_proxy_warns_that_requests_are_not_counted() {
        let public = |url| ("A2A_PUBLIC_URL", url);
        let warned = "requests and wrong credentials are not counted, because limits.rate_limit is auto and the gateway \
                      listens on this machine only; but the public URL https://agent.example.com/ is not on this machine; \
                      behind a proxy set it to on, and let the proxy count wrong credentials";
        let url = public("https://agent.example.com");
        let cases: [(Variables<'_>, &str, Option<&str>); 9] = [
            (&[url], "127.0.0.1", Some(warned)),
            (&[url], "::1", Some(warned)),
            (&[url], "0.0.0.0", None),
            (&[url, ("A2A_RATE_LIMIT_ENABLED", "on")], "127.0.0.1", None),
            (&[url, ("A2A_RATE_LIMIT_ENABLED", "off")], "127.0.0.1", None),
            (&[], "127.0.0.1", None),
            (&[public("http://localhost:8000")], "127.0.0.1", None),
            (&[public("http://127.9.9.9:8000")], "127.0.0.1", None),
            (&[public("http://[::1]:8000")], "127.0.0.1", None),
        ];
        for (variables, listens_on, expected) in cases {
            let found = warning(&plan(variables), address(listens_on));
            assert_eq!(found.as_deref(), expected, "{variables:?} {listens_on}");
        }
    }

    #[test]
    fn the_edge_gets_the_configured_limits() {
        let given = plan(&[
            ("A2A_RATE_LIMIT_ENABLED", "true"),
            ("A2A_RATE_LIMIT_MAX_REQUESTS", "9999999999"),
            ("A2A_RATE_LIMIT_WINDOW_SECONDS", "2"),
            ("LONGSHORE_FAILED_LOGINS", "3"),
            ("LONGSHORE_MAX_STREAMS", "4"),
            ("LONGSHORE_MAX_STREAMS_PER_PRINCIPAL", "5"),
            ("A2A_STREAM_MAX_BYTES", "6"),
            ("A2A_STREAM_MAX_DURATION_SECONDS", "7"),
            ("A2A_STREAM_IDLE_TIMEOUT_SECONDS", "8"),
            ("LONGSHORE_MAX_CONNECTIONS_PER_ADDRESS", "10"),
            ("LONGSHORE_MAX_REQUESTS_PER_CONNECTION", "12"),
            ("LONGSHORE_MAX_BODY_BYTES", "11"),
            ("A2A_ALLOWED_ORIGINS", "https://a.example"),
            ("A2A_ALLOWED_HOSTS", "b.example"),
        ]);
        let window = Duration::from_secs(2);
        let expected = edge::Limits {
            rate: Some(Rate { requests: u32::MAX, window }),
            failed_logins: Some(Rate { requests: 3, window }),
            streams: 4,
            streams_per_principal: 5,
            stream_bytes: 6,
            stream_duration: Some(Duration::from_secs(7)),
            stream_idle: Some(Duration::from_secs(8)),
            connections: 9,
            connections_per_address: 10,
            requests_per_connection: 12,
            body_bytes: 11,
            allowed_origins: vec!["https://a.example".to_owned()],
            allowed_hosts: vec!["b.example".to_owned()],
        };
        assert_eq!(edge_limits(&given, address("127.0.0.1"), 9), expected);
        let off = plan(&[
            ("LONGSHORE_MAX_STREAMS", "0"),
            ("LONGSHORE_MAX_STREAMS_PER_PRINCIPAL", "0"),
            ("A2A_STREAM_MAX_BYTES", "0"),
            ("A2A_STREAM_MAX_DURATION_SECONDS", "0"),
            ("A2A_STREAM_IDLE_TIMEOUT_SECONDS", "0"),
            ("LONGSHORE_MAX_CONNECTIONS_PER_ADDRESS", "0"),
            ("LONGSHORE_MAX_REQUESTS_PER_CONNECTION", "0"),
            ("LONGSHORE_MAX_BODY_BYTES", "0"),
        ]);
        let expected = edge::Limits {
            streams: 0,
            streams_per_principal: 0,
            stream_bytes: 0,
            stream_duration: None,
            stream_idle: None,
            connections: 9,
            connections_per_address: 0,
            requests_per_connection: 0,
            body_bytes: 0,
            ..edge::Limits::default()
        };
        assert_eq!(edge_limits(&off, address("127.0.0.1"), 9), expected);
    }
}
