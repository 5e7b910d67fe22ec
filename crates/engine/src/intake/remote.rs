//! `http` and `https` URLs that are passed on to the agent. The gateway itself never fetches them.

use url::{Host, Url};

/// Parses the URL and checks that the operator allows its host. The error is a text for the caller.
///
/// Returns the parsed URL and not the text that the caller wrote, so that no later parser can find another host in the
/// text.
pub(super) fn admit(written: &str, hosts: &[String]) -> Result<String, &'static str> {
    let url = Url::parse(written).map_err(|_| "is no URL that can be read")?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL holds a user name or a password; leave them out");
    }
    let known = url.host().is_some_and(|host| hosts.iter().any(|rule| matches(rule, &host)));
    if !known {
        return Err(
            "the gateway does not fetch URLs, and this host is none whose URLs it hands on; send the file \
                    itself, in the part or as a data: URL, or put it in the workspace and send its file:// URL",
        );
    }
    Ok(url.into())
}

/// A rule is a host, or `*.` and a name for all its subdomains.
fn matches(rule: &str, host: &Host<&str>) -> bool {
    let (below, rule) = match rule.trim().strip_prefix("*.") {
        Some(name) => (true, name),
        None => (false, rule.trim()),
    };
    // The rule is parsed like the host of a URL, so that case, a final dot and international names do not matter.
    let Ok(rule) = Host::parse(without_dot(rule)) else { return false };
    match (rule, host) {
        (Host::Domain(rule), Host::Domain(host)) => {
            let host = without_dot(host);
            let parent = host.strip_suffix(rule.as_str());
            match parent {
                Some("") => !below,
                Some(parent) => below && parent.len() > 1 && parent.ends_with('.'),
                None => false,
            }
        }
        (Host::Ipv4(rule), Host::Ipv4(host)) => !below && rule == *host,
        (Host::Ipv6(rule), Host::Ipv6(host)) => !below && rule == *host,
        _ => false,
    }
}

fn without_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_allowed_hosts_are_passed_on() {
        let table: &[(&str, &str, bool)] = &[
            ("files.example.com", "https://files.example.com/a.png", true),
            ("files.example.com", "http://FILES.example.com.:8080/a.png", true),
            ("Files.Example.com.", "https://files.example.com/a.png", true),
            ("files.example.com", "https://files.example.com.evil.example/", false),
            ("files.example.com", "https://a.files.example.com/", false),
            ("files.example.com", "https://xfiles.example.com/", false),
            ("files.example.com", "https://evil.example/files.example.com", false),
            ("files.example.com", "https://evil.example\\@files.example.com/", false),
            ("files.example.com", "https://evil.example#files.example.com", false),
            ("files.example.com", "https://files.example.com@evil.example/", false),
            ("*.example.com", "https://a.b.example.com/", true),
            ("*.Example.com.", "https://a.example.com./", true),
            ("*.example.com", "https://example.com/", false),
            ("*.example.com", "https://.example.com/", false),
            ("*.example.com", "https://badexample.com/", false),
            ("bücher.example", "https://xn--bcher-kva.example/", true),
            ("xn--bcher-kva.example", "https://bücher.example/", true),
            ("127.0.0.1", "http://127.0.0.1:1/", true),
            ("127.0.0.1", "http://0x7f.1/", true),
            ("*.0.0.1", "http://127.0.0.1/", false),
            ("[::1]", "http://[::1]/", true),
            ("[::1]", "http://[::2]/", false),
            ("*", "https://example.com/", false),
            ("*.", "https://example.com/", false),
            ("", "https://example.com/", false),
        ];
        for (rule, url, expected) in table {
            assert_eq!(admit(url, &[(*rule).to_owned()]).is_ok(), *expected, "{rule} and {url}");
        }
        assert!(admit("https://example.com/", &[]).is_err_and(|text| text.contains("does not fetch")));
    }

    #[test]
    fn credentials_are_not_passed_on() {
        for url in ["https://a@example.com/", "https://a:b@example.com/", "https://:b@example.com/"] {
            let text = admit(url, &["example.com".to_owned()]).expect_err(url);
            assert!(text.contains("user name"), "{url}: {text}");
        }
    }

    #[test]
    fn the_parsed_url_is_passed_on() {
        let table = [
            ("https:\\\\example.com\\a", "https://example.com/a"),
            ("https:example.com/a\tb", "https://example.com/ab"),
            ("HTTPS://@EXAMPLE.com/../a b?c#d", "https://example.com/a%20b?c#d"),
        ];
        for (url, expected) in table {
            assert_eq!(admit(url, &["example.com".to_owned()]).as_deref(), Ok(expected), "{url}");
        }
    }

    proptest! {
        #[test]
        fn no_url_makes_the_parser_panic(rest in ".*", rule in ".*") {
            let hosts = ["example.com".to_owned(), rule];
            let _ = admit(&format!("https:{rest}"), &hosts);
            let _ = admit(&rest, &hosts);
        }
    }
}
