//! Parses allowed origins (sites whose pages may call) and allowed hosts (names that a request may use).

use url::{Host, Url};

/// Parses a site, and returns it in the form of the header `Origin`: in lower case, without the default port. `None`: not a site.
pub(super) fn origin(written: &str) -> Option<String> {
    let written = written.trim().to_ascii_lowercase();
    if written == "null" {
        return Some(written);
    }
    let (scheme, host) = written.split_once("://")?;
    let host = host.strip_suffix('/').unwrap_or(host);
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    let is_bare = !host.is_empty() && !host.contains(['/', '?', '#', '@', '*', '\\']);
    if !is_scheme || !is_bare || host.contains(char::is_whitespace) {
        return None;
    }
    if matches!(scheme, "http" | "https") {
        return Some(Url::parse(&written).ok()?.origin().ascii_serialization());
    }
    // This can also be the origin of an application, such as `vscode-webview://id`.
    host.is_ascii().then(|| format!("{scheme}://{host}"))
}

/// Parses a host: a name or an address, with or without a port, or `*.` and a name for all its subdomains. `None`: not a host.
pub(super) fn host(written: &str) -> Option<String> {
    let written = written.trim().to_ascii_lowercase();
    if let Some(above) = written.strip_prefix("*.") {
        let (host, port) = parsed(above)?;
        return matches!(host, Host::Domain(_)).then(|| format!("*.{}", shown(&host, port)));
    }
    let (host, port) = parsed(&written)?;
    Some(shown(&host, port))
}

fn shown(host: &Host, port: Option<u16>) -> String {
    port.map_or_else(|| host.to_string(), |port| format!("{host}:{port}"))
}

fn parsed(written: &str) -> Option<(Host, Option<u16>)> {
    // An IPv6 address without a port may be written without brackets, because it is unambiguous.
    let bare = written.parse::<std::net::Ipv6Addr>().ok().map(|address| (Host::Ipv6(address), None));
    if bare.is_some() {
        return bare;
    }
    let (host, port) = match written.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (written, None),
    };
    let port = match port {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(digits.parse().ok()?),
        Some(_) => return None,
        None => None,
    };
    if host.contains(['/', '?', '#', '@', '*', '\\', '%']) {
        return None;
    }
    Some((Host::parse(host.trim_end_matches('.')).ok()?, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_normalized_to_the_form_of_browsers() {
        let cases = [
            ("https://example.com", Some("https://example.com")),
            (" HTTPS://Example.com/ ", Some("https://example.com")),
            ("https://example.com:443", Some("https://example.com")),
            ("http://example.com:80/", Some("http://example.com")),
            ("https://example.com:8443", Some("https://example.com:8443")),
            ("http://[::1]:3000", Some("http://[::1]:3000")),
            ("https://bücher.example", Some("https://xn--bcher-kva.example")),
            ("vscode-webview://Abc", Some("vscode-webview://abc")),
            ("null", Some("null")),
            ("", None),
            ("*", None),
            ("https://*.example.com", None),
            ("example.com", None),
            ("https://", None),
            ("https://example.com/path", None),
            ("https://example.com?x", None),
            ("https://ada@example.com", None),
            ("https://exa mple.com", None),
            ("https://example.com:port", None),
            ("://example.com", None),
        ];
        for (written, expected) in cases {
            assert_eq!(origin(written).as_deref(), expected, "{written:?}");
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address_with_or_without_a_port() {
        let cases = [
            ("Example.COM", Some("example.com")),
            ("example.com.", Some("example.com")),
            ("example.com:8000", Some("example.com:8000")),
            ("*.Example.com", Some("*.example.com")),
            ("*.example.com:8000", Some("*.example.com:8000")),
            ("127.0.0.1", Some("127.0.0.1")),
            ("127.0.0.1:8000", Some("127.0.0.1:8000")),
            ("::1", Some("[::1]")),
            ("[::1]", Some("[::1]")),
            ("[::1]:8000", Some("[::1]:8000")),
            ("my_host", Some("my_host")),
            ("", None),
            ("*", None),
            ("*.", None),
            ("*.127.0.0.1", None),
            ("a.*.example.com", None),
            ("https://example.com", None),
            ("example.com/", None),
            ("example.com:", None),
            ("example.com:80000", None),
            ("example.com:http", None),
            ("exa mple.com", None),
            (":8000", None),
        ];
        for (written, expected) in cases {
            assert_eq!(host(written).as_deref(), expected, "{written:?}");
        }
    }
}
