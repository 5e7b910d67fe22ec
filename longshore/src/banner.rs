//! What `longshore serve` shows when it is ready: where it is, how to get in, and a first request.

use std::fmt::Write as _;
use std::path::Path;

use secrecy::{ExposeSecret as _, SecretString};

use crate::config::credentials::{Credential, Login};

/// The facts of a start.
#[derive(Debug)]
pub(crate) struct Banner<'a> {
    pub(crate) workspace: &'a Path,
    /// Which OpenCode answers, in words.
    pub(crate) agent: &'a str,
    /// Where this machine reaches the gateway.
    pub(crate) local_url: &'a str,
    /// Where the card says that it is.
    pub(crate) public_url: &'a str,
    /// The token that Longshore made, if no credential was configured.
    pub(crate) token: Option<&'a SecretString>,
    pub(crate) credentials: &'a [Credential],
    /// Makes the first request of each start a new one: the same message again would lead to the same task.
    pub(crate) message_id: &'a str,
}

impl Banner<'_> {
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "Longshore {} is ready.", env!("CARGO_PKG_VERSION"));
        let _ = writeln!(text, "  url        {}", self.public_url);
        let _ = writeln!(text, "  card       {}/.well-known/agent-card.json", self.public_url);
        let _ = writeln!(text, "  workspace  {}", self.workspace.display());
        let _ = writeln!(text, "  agent      {}", self.agent);
        if let Some(token) = self.token {
            let _ = writeln!(text, "  token      {}", token.expose_secret());
        }
        let _ = write!(text, "\nA first request:\n\n{}", self.curl());
        text
    }

    /// One command that works when it is pasted, whatever the line breaks of the terminal.
    fn curl(&self) -> String {
        format!(
            "curl -sS {} {} -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' -d '{}'\n",
            quoted(&format!("{}/", self.local_url)),
            self.authorization(),
            format_args!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":{{"messageId":"{}","role":"ROLE_USER","parts":[{{"text":"Say hello."}}]}}}}}}"#,
                self.message_id
            ),
        )
    }

    /// A secret that somebody configured is theirs to know: it is not shown.
    fn authorization(&self) -> String {
        match (self.token, self.credentials.first().map(|credential| &credential.login)) {
            (Some(token), _) => format!("-H 'Authorization: Bearer {}'", token.expose_secret()),
            (None, Some(Login::Basic { username, .. })) => {
                format!("-u {}", quoted(username))
            }
            (None, Some(Login::ApiKey { .. })) => "-H \"X-API-Key: $API_KEY\"".to_owned(),
            (None, _) => "-H \"Authorization: Bearer $A2A_BEARER_TOKEN\"".to_owned(),
        }
    }
}

/// As one word of a shell, whatever is in it: the brackets of an IPv6 address are a pattern to some.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use longshore_edge::Rights;

    use super::*;

    fn banner<'a>(token: Option<&'a SecretString>, credentials: &'a [Credential]) -> Banner<'a> {
        Banner {
            workspace: Path::new("/home/ada/project"),
            agent: "OpenCode (demo model)",
            local_url: "http://127.0.0.1:8000",
            public_url: "https://agent.example.com",
            token,
            credentials,
            message_id: "hello-1",
        }
    }

    #[test]
    fn what_is_shown_with_a_token_of_our_own() {
        let token = SecretString::from("t0ken");
        let text = banner(Some(&token), &[]).text();
        insta::assert_snapshot!(text.replace(env!("CARGO_PKG_VERSION"), "[version]"));
    }

    #[test]
    fn a_word_of_a_shell_is_what_it_was() {
        for text in ["http://[::1]:8000/", "it's", "$HOME `id` \"x\" *", ""] {
            let script = format!("printf %s {}", quoted(text));
            let said = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap().stdout;
            assert_eq!(String::from_utf8(said).unwrap(), text);
        }
    }

    #[test]
    fn a_configured_secret_is_not_shown() {
        let secret = || SecretString::from("s3cret");
        let cases = [
            (Login::Bearer { token: secret(), principal: "p".into() }, "Bearer $A2A_BEARER_TOKEN\""),
            (Login::Basic { username: "ada".into(), password: secret() }, "-u 'ada'"),
            (Login::ApiKey { key: secret(), principal: "p".into() }, "X-API-Key: $API_KEY\""),
        ];
        for (login, expected) in cases {
            let credential = Credential { login, rights: Rights::default() };
            let text = banner(None, std::slice::from_ref(&credential)).text();
            assert!(text.contains(expected), "{text}");
            assert!(!text.contains("s3cret") && !text.contains("  token"), "{text}");
        }
    }
}
