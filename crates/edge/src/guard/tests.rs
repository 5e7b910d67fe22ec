use http::Request;

use super::*;

const LOCAL: &str = "127.0.0.1:8000";
const OPEN: &str = "0.0.0.0:8000";

fn guard(origins: &[&str], hosts: &[&str], public_url: &str, bound: &str) -> Guard {
    let bound = Bound { address: Some(bound.parse().unwrap()), has_tls: false };
    Guard::new(&limits(origins, hosts), std::iter::once(public_url), bound, Arc::default())
}

fn limits(origins: &[&str], hosts: &[&str]) -> Limits {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Limits { allowed_origins: owned(origins), allowed_hosts: owned(hosts), ..Limits::default() }
}

fn parts(uri: &str, headers: &[(&str, &[u8])]) -> Parts {
    let mut request = Request::options(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn takes_origins(guard: &Guard, origins: &[&str]) -> bool {
    let headers: Vec<_> = origins.iter().map(|origin| ("origin", origin.as_bytes())).collect();
    guard.check(&parts("/", &headers)).is_ok()
}

#[test]
fn only_the_own_and_the_listed_origins_are_allowed() {
    let public = "https://Agent.Example.com:443/base/";
    let listed =
        ["https://app.example.com", "HTTP://Other.example:80/", "http://x.example:8080", "http://[0:0::1]:7"];
    let guard = guard(&listed, &[], public, OPEN);
    let cases: &[(&[&str], bool)] = &[
        (&[], true),
        // The gateway's own origin.
        (&["https://agent.example.com"], true),
        (&["https://agent.example.com:443"], true),
        (&["https://AGENT.example.com/"], true),
        (&["http://agent.example.com"], false),
        (&["https://agent.example.com:444"], false),
        (&["https://agent.example.com./"], false),
        (&["https://agent.example.com.evil.example"], false),
        (&["https://evil-agent.example.com"], false),
        (&["https://agent.example.com@evil.example"], false),
        (&["https://agent.example.com/base"], false),
        // Configured origins.
        (&["https://app.example.com"], true),
        (&["http://other.example"], true),
        (&["http://other.example:80"], true),
        (&["https://other.example"], false),
        (&["http://x.example:8080"], true),
        (&["http://x.example"], false),
        (&["http://[::1]:7"], true),
        (&["http://[::1]:8"], false),
        (&["http://[::1"], false),
        // On an address that other machines can reach, a loopback name has no special meaning.
        (&["http://localhost:8000"], false),
        (&["http://127.0.0.1:8000"], false),
        (&["null"], false),
        (&["NULL"], false),
        (&[""], false),
        (&["*"], false),
        (&["nonsense"], false),
        (&["https://"], false),
        (&["file://"], false),
        // More than one origin is refused, even if all are allowed.
        (&["https://app.example.com", "https://app.example.com"], false),
        (&["https://app.example.com", "https://evil.example"], false),
        (&["https://evil.example", "https://app.example.com"], false),
        (&["https://app.example.com, https://evil.example"], false),
        (&["https://app.example.com https://evil.example"], false),
    ];
    for (origins, is_allowed) in cases {
        assert_eq!(takes_origins(&guard, origins), *is_allowed, "{origins:?}");
    }
    let refused = guard.check(&parts("/", &[("origin", b"https://\xff")])).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    assert!(refused.message().starts_with("Cross-origin request rejected"), "{refused}");
    assert_eq!(guard.metrics.refused.of(Limit::AllowedHosts).get(), 0);
    let expected = cases.iter().filter(|(_, is_allowed)| !is_allowed).count() as u64 + 1;
    assert_eq!(guard.metrics.refused.of(Limit::AllowedOrigins).get(), expected);
}

#[test]
fn null_is_an_allowed_origin_only_if_it_is_listed() {
    let guard = guard(&["null"], &[], "http://127.0.0.1:8000", LOCAL);
    assert!(takes_origins(&guard, &["null"]));
    assert!(!takes_origins(&guard, &["nul"]));
}

#[test]
fn on_a_loopback_address_all_loopback_names_are_one_origin() {
    let own = [
        "http://localhost:8000",
        "http://LocalHost:8000/",
        "http://127.0.0.1:8000",
        "http://127.8.9.10:8000",
        "http://[::1]:8000",
        "http://[0:0:0:0:0:0:0:1]:8000",
        "http://[::ffff:127.0.0.1]:8000",
    ];
    let foreign = [
        "http://localhost",
        "http://localhost:8001",
        "https://localhost:8000",
        "http://localhost.example:8000",
        "http://127.0.0.1.example:8000",
        "http://128.0.0.1:8000",
        "http://[::2]:8000",
        "null",
    ];
    for bound in [LOCAL, "[::1]:8000", "[::ffff:127.0.0.1]:8000"] {
        let guard = guard(&[], &[], "https://agent.example", bound);
        for origin in own {
            assert!(takes_origins(&guard, &[origin]), "{bound} {origin}");
        }
        for origin in foreign {
            assert!(!takes_origins(&guard, &[origin]), "{bound} {origin}");
        }
    }
    // Clients leave the default port out.
    let guard = guard(&[], &[], "https://agent.example", "127.0.0.1:80");
    assert!(takes_origins(&guard, &["http://localhost"]));
    assert!(!takes_origins(&guard, &["http://localhost:8000"]));
}

fn takes_host(guard: &Guard, host: &str) -> bool {
    guard.check(&parts("/", &[("host", host.as_bytes())])).is_ok()
}

#[test]
fn only_listed_hosts_are_allowed() {
    let listed = [
        "Example.com",
        "api.example.org:8443",
        "*.wild.example",
        "*.port.example:81",
        "::1",
        "[fe80::1]:9",
        "10.0.0.7.",
    ];
    let guard = guard(&[], &listed, "https://example.com", OPEN);
    let cases = [
        ("example.com", true),
        ("EXAMPLE.com:8000", true),
        ("example.com.", true),
        ("example.com.:80", true),
        ("example.com:", true),
        ("sub.example.com", false),
        ("example.com.evil.example", false),
        ("evilexample.com", false),
        // An entry with a port allows that port only.
        ("api.example.org:8443", true),
        ("api.example.org.:8443", true),
        ("api.example.org:8444", false),
        ("api.example.org", false),
        // A wildcard matches neither the domain itself nor a part of a label.
        ("a.wild.example", true),
        ("a.b.Wild.example.:1", true),
        ("wild.example", false),
        (".wild.example", false),
        ("evilwild.example", false),
        ("*.wild.example", false),
        ("a.port.example:81", true),
        ("a.port.example", false),
        // IPv6 addresses need brackets.
        ("[::1]", true),
        ("[::1]:8000", true),
        ("[0:0::0:1]:8000", true),
        ("::1", false),
        ("[::1", false),
        ("[::1]x", false),
        ("[::1%25eth0]", false),
        ("[fe80::1]:9", true),
        ("[fe80::1]", false),
        ("10.0.0.7", true),
        ("10.0.0.8", false),
        // Texts that are not a host.
        ("", false),
        (":80", false),
        (".", false),
        ("*", false),
        ("user@example.com", false),
        ("example.com:x", false),
        ("example.com:99999", false),
        ("example.com:+80", false),
        ("example.com/path", false),
        ("example.com, example.com", false),
        ("example..com", false),
        // On an address that other machines can reach, a loopback name has no special meaning.
        ("localhost", false),
        ("127.0.0.1", false),
    ];
    for (host, is_allowed) in cases {
        assert_eq!(takes_host(&guard, host), is_allowed, "{host:?}");
    }
    let refused = guard.check(&parts("/", &[])).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    assert!(refused.message().starts_with("Host not allowed"), "{refused}");
    let twice: [(&str, &[u8]); 2] = [("host", b"example.com"), ("host", b"example.com")];
    assert!(guard.check(&parts("/", &twice)).is_err());
    assert!(guard.check(&parts("/", &[("host", b"ex\xe4mple.com")])).is_err());
    let expected = cases.iter().filter(|(_, is_allowed)| !is_allowed).count() as u64 + 3;
    assert_eq!(guard.metrics.refused.of(Limit::AllowedHosts).get(), expected);
}

#[test]
fn the_authority_of_the_uri_replaces_the_host_header() {
    let guard = guard(&[], &["example.com"], "https://example.com", OPEN);
    let cases: [(&str, Option<&str>, bool); 6] = [
        ("http://example.com/", None, true),
        ("http://example.com:8000/", None, true),
        ("http://evil.example/", None, false),
        ("http://evil.example/", Some("example.com"), false),
        ("http://example.com/", Some("example.com"), true),
        ("http://example.com/", Some("evil.example"), false),
    ];
    for (uri, host, is_allowed) in cases {
        let headers: Vec<_> = host.iter().map(|host| ("host", host.as_bytes())).collect();
        assert_eq!(guard.check(&parts(uri, &headers)).is_ok(), is_allowed, "{uri} {host:?}");
    }
}

#[test]
fn on_a_loopback_address_one_allowed_loopback_name_allows_all() {
    let any_port = guard(&[], &["localhost"], "http://localhost:8000", LOCAL);
    let one_port = guard(&[], &["127.0.0.1:8000"], "http://localhost:8000", LOCAL);
    let elsewhere = guard(&[], &["example.com"], "http://localhost:8000", LOCAL);
    for host in ["localhost:8000", "127.0.0.1:8000", "127.1.1.1:8000", "[::1]:8000"] {
        assert!(takes_host(&any_port, host), "{host}");
        assert!(takes_host(&one_port, host), "{host}");
        assert!(!takes_host(&elsewhere, host), "{host}");
    }
    assert!(takes_host(&any_port, "localhost:1"));
    assert!(!takes_host(&one_port, "localhost:1"));
    assert!(!takes_host(&any_port, "example.com"));
}

#[test]
fn without_a_list_a_loopback_address_answers_to_loopback_names_and_the_public_host() {
    let cases = [
        ("localhost", true),
        ("LocalHost.:8000", true),
        ("localhost:1", true),
        ("127.0.0.1:8000", true),
        ("127.200.3.4", true),
        ("[::1]:8000", true),
        ("[::ffff:127.0.0.1]:8000", true),
        ("agent.example.com", true),
        ("Agent.Example.com:443", true),
        ("agent.example.com:9", true),
        // Names that a web page can make resolve to this machine.
        ("rebound.example", false),
        ("localhost.example", false),
        ("127.0.0.1.example:8000", false),
        ("sub.agent.example.com", false),
        ("0.0.0.0:8000", false),
        ("10.0.0.1", false),
        ("", false),
        ("localhost, localhost", false),
    ];
    for bound in [LOCAL, "[::1]:8000", "127.3.2.1:8000"] {
        let guard = guard(&[], &[], "https://agent.example.com/base", bound);
        for (host, is_allowed) in cases {
            assert_eq!(takes_host(&guard, host), is_allowed, "{bound} {host:?}");
            let twice: [(&str, &[u8]); 2] = [("host", host.as_bytes()), ("host", b"localhost")];
            assert!(guard.check(&parts("/", &twice)).is_err(), "{bound} {host:?} twice");
        }
        // A client that sends no host is no browser.
        assert!(guard.check(&parts("/", &[])).is_ok());
        assert!(guard.check(&parts("http://rebound.example/", &[])).is_err());
        assert!(guard.check(&parts("http://rebound.example/", &[("host", b"localhost")])).is_err());
        assert!(guard.check(&parts("http://localhost:8000/", &[])).is_ok());
    }
}

#[test]
fn on_another_address_an_empty_list_allows_every_host_and_a_list_of_invalid_entries_none() {
    let any = guard(&[], &[], "https://example.com", OPEN);
    assert!(takes_host(&any, "whatever"));
    assert!(any.check(&parts("/", &[])).is_ok());
    let none = guard(&[], &["*"], "https://example.com", OPEN);
    assert!(!takes_host(&none, "example.com"));
}

#[test]
fn questionable_origins_and_hosts_are_reported_to_the_operator() {
    type Words = &'static [&'static str];

    let none: Words = &[];
    // The columns: origins, hosts, the public URL, the listening address, and the expected warnings.
    let cases: &[(Words, Words, &str, &str, Words)] = &[
        (none, none, "http://127.0.0.1:8000", LOCAL, none),
        (none, &["example.com"], "https://example.com", OPEN, none),
        // On a loopback address all loopback names count as one.
        (none, &["localhost"], "http://127.0.0.1:8000", LOCAL, none),
        (
            none,
            &["localhost"],
            "http://127.0.0.1:8000",
            OPEN,
            &["the allowed hosts do not have the host of the public URL http://127.0.0.1:8000"],
        ),
        (&["https://a.example", "null"], &["*.example.com"], "https://a.example.com/x", OPEN, none),
        (
            none,
            none,
            "https://example.com",
            OPEN,
            &[
                "the gateway listens on 0.0.0.0:8000 and answers to any name; list its names in the allowed hosts",
            ],
        ),
        (
            none,
            &["*.example.com"],
            "https://example.com",
            OPEN,
            &["the allowed hosts do not have the host of the public URL https://example.com"],
        ),
        (
            &["https://A.example:443/", "a.example", "https://a.example/x"],
            &["*", "example.com"],
            "https://example.com",
            OPEN,
            &[
                "the allowed origin \"https://A.example:443/\" is taken for \"https://a.example\"",
                "the allowed origin \"a.example\" is no origin and matches nothing; write https://example.com",
                "the allowed origin \"https://a.example/x\" is no origin and matches nothing; write https://example.com",
                "the allowed host \"*\" is no host and matches nothing; write example.com, example.com:8000 or *.example.com",
            ],
        ),
    ];
    for (origins, hosts, public_url, bound, expected) in cases {
        let warnings = limits(origins, hosts).warnings(public_url, None, bound.parse().unwrap());
        assert_eq!(warnings, *expected);
    }
}

#[test]
fn the_url_of_grpc_may_have_a_host_of_its_own() {
    let address = Some("127.0.0.1:8000".parse().unwrap());
    let urls = ["https://agent.example.com", "https://grpc.example.com"];
    let guard =
        Guard::new(&Limits::default(), urls.into_iter(), Bound { address, has_tls: false }, Arc::default());
    for (host, expected) in
        [("agent.example.com", true), ("grpc.example.com", true), ("other.example.com", false)]
    {
        assert_eq!(guard.check(&parts("/", &[("host", host.as_bytes())])).is_ok(), expected, "{host}");
    }
    let limits = limits(&[], &["agent.example.com"]);
    let warnings = limits.warnings(urls[0], Some(urls[1]), "127.0.0.1:8000".parse().unwrap());
    assert_eq!(
        warnings,
        ["the allowed hosts do not have the host of the public URL of gRPC https://grpc.example.com"]
    );
}
