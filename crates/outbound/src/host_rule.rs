//! Host names in settings.

/// A host name, or `*.` with a name, which stands for all subdomains of that name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostRule {
    name: String,
    only_subdomains: bool,
}

impl HostRule {
    /// Parses a rule. `None`: the text is no host name.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        let (only_subdomains, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text.as_str()),
        };
        is_host_name(name).then(|| Self { name: name.to_owned(), only_subdomains })
    }

    /// Whether the rule contains the host. `host`: in lower case.
    pub fn matches(&self, host: &str) -> bool {
        match host.strip_suffix(self.name.as_str()) {
            Some("") => !self.only_subdomains,
            Some(rest) => self.only_subdomains && rest.ends_with('.'),
            None => false,
        }
    }
}

/// Whether the text consists of labels of lower-case letters, digits, `-` and `_`. A final dot is refused, because it would give
/// the same host a second spelling.
pub(crate) fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_'))
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_matches_the_name_or_its_subdomains_but_never_both() {
        let cases = [
            ("hooks.example", "hooks.example", true),
            ("Hooks.Example", "hooks.example", true),
            ("hooks.example", "a.hooks.example", false),
            ("hooks.example", "xhooks.example", false),
            ("hooks.example", "hooks.example.evil", false),
            ("*.example", "hooks.example", true),
            ("*.example", "a.hooks.example", true),
            ("*.example", "example", false),
            ("*.example", "xexample", false),
        ];
        for (rule, host, expected) in cases {
            assert_eq!(HostRule::parse(rule).unwrap().matches(host), expected, "{rule} {host}");
        }
        for text in ["", "*", "*.", "a..b", "a.", "a b", "a/b", "a:1", "[::1]", "http://a", "é.example"] {
            assert_eq!(HostRule::parse(text), None, "{text}");
        }
    }
}
