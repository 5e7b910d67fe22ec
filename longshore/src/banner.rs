//! The text that `longshore serve` prints when it is ready, or waits for OpenCode: its URLs, the token, and a first request.

use std::fmt::Write as _;
use std::path::Path;

use longshore_edge::contract::ListedInterface;
use secrecy::{ExposeSecret as _, SecretString};

use crate::config::credentials::{Credential, Login};
use crate::output::shell_quoted as quoted;

pub(crate) const READY: &str = concat!("Longshore ", env!("CARGO_PKG_VERSION"), " is ready.");

/// The facts that go into the banner.
#[derive(Debug)]
pub(crate) struct Banner<'a> {
    pub(crate) workspace: &'a Path,
    /// A description of the OpenCode that the gateway uses.
    pub(crate) agent: &'a str,
    /// The URL for this machine. `None`: the gateway listens on no port.
    pub(crate) local_url: Option<&'a str>,
    /// The URL in the card. `None`: the gateway has only the socket, and no other URL was configured.
    pub(crate) public_url: Option<&'a str>,
    /// The interfaces in the card, the preferred one first.
    pub(crate) interfaces: &'a [ListedInterface],
    /// The unix socket. `None`: the gateway does not listen on one.
    pub(crate) socket: Option<&'a Path>,
    /// The token that Longshore generated, if no credential was configured.
    pub(crate) token: Option<GeneratedToken<'a>>,
    pub(crate) credentials: &'a [Credential],
    /// The id of the message in the first request. It differs for each start, because with the same id a later start would return
    /// the task of an earlier one.
    pub(crate) message_id: &'a str,
}

/// How the banner refers to the generated token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GeneratedToken<'a> {
    /// The token itself, because a person sees the banner.
    Shown(&'a SecretString),
    /// The command that prints the token. Used if the banner goes into a file or a log, where others may read it.
    PrintedBy { program: &'a Path, data_dir: &'a Path },
}

impl GeneratedToken<'_> {
    /// Two texts for the token: one for the banner's line, and one for the request, where it stands in double quotes of a shell.
    fn texts(self) -> (String, String) {
        match self {
            Self::Shown(token) => (token.expose_secret().to_owned(), token.expose_secret().to_owned()),
            Self::PrintedBy { program, data_dir } => {
                let words = [program, data_dir].map(|path| quoted(&path.to_string_lossy()));
                let command = format!("{} token --data-dir {}", words[0], words[1]);
                (format!("printed by {command}"), format!("$({command})"))
            }
        }
    }
}

impl Banner<'_> {
    /// The text of the banner. `waiting`: why OpenCode is not ready yet, and what to do about it.
    pub(crate) fn text(&self, waiting: Option<&str>) -> String {
        let mut text = String::new();
        if let Some(reason) = waiting {
            let _ = writeln!(text, "Longshore {} is waiting for {}.", env!("CARGO_PKG_VERSION"), self.agent);
            let _ = writeln!(
                text,
                "{reason} When OpenCode responds, Longshore goes on by itself and says that it is ready. Until then requests \
                 are accepted. Each of their tasks waits for OpenCode for up to a minute, and then fails."
            );
        } else {
            let _ = writeln!(text, "{READY}");
        }
        if let Some(public) = self.public_url {
            let _ = writeln!(text, "  url        {public}");
            let _ = writeln!(text, "  card       {public}/.well-known/agent-card.json");
        }
        if let Some(local) = self.local_url.filter(|local| Some(*local) != self.public_url) {
            let _ = writeln!(text, "  listener   {local}");
        }
        if let Some(socket) = self.socket {
            let _ = writeln!(text, "  socket     {}", socket.display());
        }
        for ListedInterface { url, binding, versions } in self.interfaces {
            let versions: Vec<_> = versions.iter().map(|version| version.as_str()).collect();
            let _ = writeln!(text, "  interface  {binding} ({}) {url}", versions.join(", "));
        }
        let _ = writeln!(text, "  workspace  {}", self.workspace.display());
        let _ = writeln!(text, "  agent      {}", self.agent);
        if let Some(token) = self.token {
            let _ = writeln!(text, "  token      {}", token.texts().0);
        }
        let _ = write!(text, "\nA first request:\n\n{}", self.curl());
        text
    }

    /// The first request as a single line with one `curl` command, which works however the terminal wraps it. If it needs a
    /// configured secret, which the banner does not show, a line before it assigns the secret to a variable.
    fn curl(&self) -> String {
        let (before, authorization) = self.authorization();
        format!(
            "{before}curl -sS {} {authorization} -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' -d '{}'\n",
            self.target(),
            format_args!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":{{"messageId":"{}","role":"ROLE_USER","parts":[{{"text":"Say hello."}}]}}}}}}"#,
                self.message_id
            ),
        )
    }

    /// The options that tell `curl` where to connect. With TLS the public URL is used, because the certificate names its host.
    fn target(&self) -> String {
        if let (None, Some(socket)) = (self.local_url, self.socket) {
            let socket = quoted(&socket.to_string_lossy());
            return format!("--unix-socket {socket} {}", quoted("http://localhost/"));
        }
        let plain = self.local_url.filter(|local| !local.starts_with("https:"));
        quoted(&format!("{}/", plain.or(self.public_url).unwrap_or_default()))
    }

    /// The line before the command, if one is needed, and the option of `curl` that authenticates.
    fn authorization(&self) -> (&'static str, String) {
        match (self.token, self.credentials.first().map(|credential| &credential.login)) {
            (Some(token), _) => ("", format!("-H \"Authorization: Bearer {}\"", token.texts().1)),
            (None, Some(Login::Basic { username, .. })) => ("", format!("-u {}", quoted(username))),
            (None, Some(Login::ApiKey { .. })) => {
                ("API_KEY=your-api-key\n", "-H \"X-API-Key: $API_KEY\"".to_owned())
            }
            (None, Some(Login::Certificate { .. })) => ("", "--cert client.pem --key client.key".to_owned()),
            (None, _) => ("TOKEN=your-token\n", "-H \"Authorization: Bearer $TOKEN\"".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use longshore_edge::Rights;
    use longshore_edge::contract::{Deployment, listed_interfaces};

    use super::*;

    fn banner<'a>(token: Option<GeneratedToken<'a>>, credentials: &'a [Credential]) -> Banner<'a> {
        Banner {
            workspace: Path::new("/home/ada/project"),
            agent: "OpenCode (demo model)",
            local_url: Some("http://127.0.0.1:8000"),
            public_url: Some("https://agent.example.com"),
            interfaces: &[],
            socket: None,
            token,
            credentials,
            message_id: "hello-1",
        }
    }

    #[test]
    fn the_banner_shows_a_generated_token() {
        let token = SecretString::from("t0ken");
        let deployment = Deployment {
            public_url: "https://agent.example.com".to_owned(),
            grpc_url: Some("https://agent.example.com".to_owned()),
            ..Deployment::of_opencode()
        };
        let interfaces = listed_interfaces(&deployment);
        let banner = Banner { interfaces: &interfaces, ..banner(Some(GeneratedToken::Shown(&token)), &[]) };
        let text = banner.text(None);
        insta::assert_snapshot!(text.replace(env!("CARGO_PKG_VERSION"), "[version]"));
    }

    #[test]
    fn a_banner_for_a_log_has_the_command_that_prints_the_token() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("a 'program'");
        std::fs::write(&program, "#!/bin/sh\necho \"$1 $2 $3\"\n").unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let token = GeneratedToken::PrintedBy { program: &program, data_dir: Path::new("/data of $HOME's") };
        let banner = banner(Some(token), &[]);
        let script = format!("curl() {{ printf '%s\\n' \"$@\"; }}; {}", banner.curl());
        let printed = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap().stdout;
        let printed = String::from_utf8(printed).unwrap();
        assert!(printed.contains("\nAuthorization: Bearer token --data-dir /data of $HOME's\n"), "{printed}");
        assert!(banner.text(None).contains("  token      printed by '"), "{}", banner.text(None));
    }

    #[test]
    fn a_quoted_text_reaches_the_shell_unchanged() {
        for text in ["http://[::1]:8000/", "it's", "$HOME `id` \"x\" *", ""] {
            let script = format!("printf %s {}", quoted(text));
            let printed = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap().stdout;
            assert_eq!(String::from_utf8(printed).unwrap(), text);
        }
    }

    #[test]
    fn the_first_request_uses_the_token_in_the_line_before_it() {
        let bearer = Login::Bearer { token: SecretString::from("s3cret"), principal: "p".into() };
        let credential = Credential { login: bearer, rights: Rights::default() };
        let commands = banner(None, std::slice::from_ref(&credential)).curl();
        let script =
            format!("curl() {{ printf '%s\\n' \"$@\"; }}\n{}", commands.replace("your-token", "s3cret"));
        let printed = std::process::Command::new("sh").args(["-c", &script]).output().unwrap().stdout;
        let sent = String::from_utf8(printed).unwrap();
        assert!(sent.contains("\nAuthorization: Bearer s3cret\n"), "{sent}");
    }

    #[test]
    fn a_configured_secret_is_not_shown() {
        let secret = || SecretString::from("s3cret");
        let cases = [
            (Login::Bearer { token: secret(), principal: "p".into() }, "\nTOKEN=your-token\ncurl "),
            (Login::Basic { username: "ada".into(), password: secret() }, "-u 'ada'"),
            (Login::ApiKey { key: secret(), principal: "p".into() }, "\nAPI_KEY=your-api-key\ncurl "),
        ];
        for (login, expected) in cases {
            let credential = Credential { login, rights: Rights::default() };
            let text = banner(None, std::slice::from_ref(&credential)).text(None);
            assert!(text.contains(expected), "{text}");
            assert!(!text.contains("s3cret") && !text.contains("  token"), "{text}");
        }
    }
}
