//! Reads credentials and local users: `A2A_STATIC_AUTH_CREDENTIALS` in the format of `opencode-a2a`, or `[[auth.credentials]]`.

use std::collections::BTreeMap;

use longshore_edge::{Capabilities, Capability, CertificateMatch, Exposure, Rights};
use longshore_model::card::AuthScheme;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::problem::Problem;
use super::read::{Reader, Written};
use super::table::{CREDENTIALS, TLS_CLIENT_CA, UNIX_SOCKET};

/// The principal of the generated token, and of a bearer token without a principal. It must never change, so that tasks stay
/// visible when the token changes.
pub const DEFAULT_PRINCIPAL: &str = "default";

/// A login with the rights of its caller.
#[derive(Clone, Debug)]
pub struct Credential {
    pub login: Login,
    pub rights: Rights,
}

/// The secret that a caller sends, and the principal that it stands for.
#[derive(Clone, Debug)]
pub enum Login {
    Bearer { token: SecretString, principal: String },
    Basic { username: String, password: SecretString },
    ApiKey { key: SecretString, principal: String },
    Certificate { certificate: CertificateMatch, principal: String },
}

/// A user of this machine, whose processes need no other credential on the unix socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalUser {
    pub uid: u32,
    pub principal: String,
    pub rights: Rights,
}

/// The enabled entries of the list.
#[derive(Default, Debug)]
pub struct Listed {
    pub credentials: Vec<Credential>,
    pub users: Vec<LocalUser>,
}

impl Credential {
    /// The bearer token of the gateway's owner, who has all rights.
    pub fn of_owner(token: SecretString) -> Self {
        let principal = DEFAULT_PRINCIPAL.to_owned();
        Self { login: Login::Bearer { token, principal }, rights: Rights::of_owner() }
    }

    /// Like [`Self::of_owner`], but with an API key.
    pub fn of_owner_with_key(key: SecretString) -> Self {
        let principal = DEFAULT_PRINCIPAL.to_owned();
        Self { login: Login::ApiKey { key, principal }, rights: Rights::of_owner() }
    }

    /// The identity that the caller proves (kind, user name, secret), and its principal.
    fn identity(&self) -> ((&'static str, &str, &str), &str) {
        match &self.login {
            Login::Bearer { token, principal } => (("bearer token", "", token.expose_secret()), principal),
            Login::Basic { username, password } => {
                (("user name and password", username, password.expose_secret()), username)
            }
            Login::ApiKey { key, principal } => (("API key", "", key.expose_secret()), principal),
            Login::Certificate { certificate, principal } => {
                let (kind, value) = certificate.parts();
                (("client certificate", kind, value), principal)
            }
        }
    }
}

impl Login {
    fn scheme(&self) -> AuthScheme {
        match self {
            Self::Bearer { .. } => AuthScheme::Bearer,
            Self::Basic { .. } => AuthScheme::Basic,
            Self::ApiKey { .. } => AuthScheme::ApiKey,
            Self::Certificate { .. } => AuthScheme::MutualTls,
        }
    }
}

/// All fields of an entry.
const FIELDS: [&str; 13] = [
    "scheme",
    "token",
    "key",
    "username",
    "password",
    "fingerprint",
    "san",
    "uid",
    "principal",
    "credential_id",
    "capabilities",
    "thinking_exposure",
    "enabled",
];

/// Reads the enabled entries of the list. Empty if there is no list.
pub fn read(reader: &mut Reader<'_>) -> Listed {
    let Some(written) = reader.written(&CREDENTIALS) else { return Listed::default() };
    let list = match serde_json::from_str(&written.text) {
        Ok(Value::Array(list)) if !list.is_empty() => list,
        // Do not show the parse error, because it could contain a part of a secret.
        Ok(_) => {
            reader.problem(Problem::rule(
                &written.source,
                &CREDENTIALS,
                "must be a list with at least one entry",
            ));
            return Listed::default();
        }
        Err(error) => {
            let reason = format!("is not JSON (line {}, column {})", error.line(), error.column());
            reader.problem(Problem::rule(&written.source, &CREDENTIALS, reason));
            return Listed::default();
        }
    };
    let mut listed = Listed::default();
    let mut disabled = 0;
    for (index, value) in list.iter().enumerate() {
        let mut entry = Entry { reader, written: &written, index, ok: true };
        let given = entry.given(value);
        match given.filter(|_| entry.ok) {
            Some(_) if is_disabled(value) => disabled += 1,
            Some(Given::Credential(credential)) => listed.credentials.push(credential),
            Some(Given::User(user)) => listed.users.push(user),
            None => {}
        }
    }
    if disabled == list.len() {
        let reason = "every entry is disabled; enable one, or remove the list to have a token generated";
        reader.problem(Problem::rule(&written.source, &CREDENTIALS, reason));
    }
    listed
}

/// Checks that no two credentials look the same. Returns the reason if two do.
pub fn ambiguous(credentials: &[Credential]) -> Option<String> {
    let mut seen = BTreeMap::new();
    credentials.iter().find_map(|credential| {
        let (presented, principal) = credential.identity();
        let (before, rights) = *seen.entry(presented).or_insert((principal, &credential.rights));
        let what = presented.0;
        if before != principal {
            Some(format!("two principals have the same {what}; each needs its own"))
        } else if *rights != credential.rights {
            Some(format!("two entries have the same {what} but different rights; keep one of them"))
        } else {
            None
        }
    })
}

/// If clients are not asked for certificates, returns why a certificate credential can never be used.
pub fn unusable_certificate(credentials: &[Credential]) -> Option<String> {
    let is_certificate = |credential: &Credential| matches!(credential.login, Login::Certificate { .. });
    credentials.iter().any(is_certificate).then(|| {
        let setting = TLS_CLIENT_CA.key;
        format!(
            "an entry names a client certificate, but clients are not asked for certificates; set {setting}"
        )
    })
}

/// Checks the local users. Returns the reason if two are the same, or if they can never connect because there is no unix socket.
pub fn unusable_users(users: &[LocalUser], has_socket: bool) -> Option<String> {
    let mut seen = BTreeMap::new();
    if users.iter().any(|user| *seen.entry(user.uid).or_insert(user) != user) {
        return Some(
            "two entries name the same user with different principals or rights; keep one of them".to_owned(),
        );
    }
    (!users.is_empty() && !has_socket).then(|| {
        let setting = UNIX_SOCKET.key;
        format!("an entry names a user of this machine, who is known on a unix socket only; set {setting}")
    })
}

/// The allowed values of an exposure, for error messages.
pub const EXPOSURES: &str = "must be none, all, or a list of raw_thinking, tool_trace";

/// Reads an exposure from its words. `None`: there are no words, unknown ones, or ones that exclude each other.
pub fn exposure<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<Exposure> {
    let none = Exposure { raw_thinking: false, tool_trace: false };
    let words: Vec<String> =
        words.into_iter().map(|word| word.trim().to_ascii_lowercase().replace('-', "_")).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => None,
        ["none"] => Some(none),
        ["all"] => Some(Exposure { raw_thinking: true, tool_trace: true }),
        words => words.iter().try_fold(none, |shown, word| match *word {
            "raw_thinking" => Some(Exposure { raw_thinking: true, ..shown }),
            "tool_trace" => Some(Exposure { tool_trace: true, ..shown }),
            _ => None,
        }),
    }
}

fn is_disabled(entry: &Value) -> bool {
    entry.get("enabled") == Some(&Value::Bool(false))
}

/// The result of an entry.
enum Given {
    Credential(Credential),
    User(LocalUser),
}

/// An entry that is being checked.
struct Entry<'r, 'a> {
    reader: &'r mut Reader<'a>,
    written: &'r Written,
    index: usize,
    /// Whether no problem was found so far.
    ok: bool,
}

impl Entry<'_, '_> {
    /// Reads the credential or the user. `None`: a required field of its scheme is missing, or another problem was found.
    fn given(&mut self, value: &Value) -> Option<Given> {
        let Value::Object(fields) = value else {
            self.wrong("", "must be a table of fields");
            return None;
        };
        for name in fields.keys().filter(|name| !FIELDS.contains(&name.as_str())) {
            self.wrong(
                name,
                &format!("is not a field of a credential; the fields are {}", FIELDS.join(", ")),
            );
        }
        if fields.get("enabled").is_some_and(|enabled| !enabled.is_boolean() && !enabled.is_null()) {
            self.wrong("enabled", "must be true or false");
        }
        let (capabilities, exposure) = (self.capabilities(fields), self.exposure(fields));
        let credential_id = self.text(fields, "credential_id");
        let login = match self.text(fields, "scheme").as_deref() {
            Some("bearer") => self.bearer(fields),
            Some("basic") => self.basic(fields),
            Some("api_key") => self.api_key(fields),
            Some("mtls") => self.certificate(fields),
            Some("unix_user") => {
                let (uid, principal) = self.unix_user(fields)?;
                let capabilities = capabilities.unwrap_or(Capabilities::NONE);
                let rights = Rights { capabilities, exposure, credential_id };
                return Some(Given::User(LocalUser { uid, principal, rights }));
            }
            Some(_) => {
                self.wrong("scheme", "must be bearer, basic, api_key, mtls or unix_user");
                None
            }
            None => {
                self.missing("scheme");
                None
            }
        }?;
        let capabilities = capabilities.unwrap_or_else(|| Capabilities::default_for_scheme(login.scheme()));
        Some(Given::Credential(Credential {
            login,
            rights: Rights { capabilities, exposure, credential_id },
        }))
    }

    /// Reads the capabilities. `None`: the default ones of the scheme. An empty list: no capability.
    fn capabilities(&mut self, fields: &Map<String, Value>) -> Option<Capabilities> {
        let words = self.words(fields, "capabilities")?;
        let known: Option<Capabilities> = words.iter().map(|word| Capability::parse(word)).collect();
        if known.is_none() {
            let all = Capability::ALL.map(Capability::as_str).join(", ");
            self.wrong("capabilities", &format!("must be a list of {all}"));
        }
        known
    }

    /// Reads the exposure. `None`: the gateway's setting applies.
    fn exposure(&mut self, fields: &Map<String, Value>) -> Option<Exposure> {
        const FIELD: &str = "thinking_exposure";

        let words = self.words(fields, FIELD)?;
        let exposure = exposure(words.iter().map(String::as_str));
        if exposure.is_none() {
            self.wrong(FIELD, EXPOSURES);
        }
        exposure
    }

    /// Reads a list of words, or a text with a single word.
    fn words(&mut self, fields: &Map<String, Value>, name: &str) -> Option<Vec<String>> {
        let list = match fields.get(name)? {
            Value::Null => return None,
            Value::Array(list) => list.as_slice(),
            word => std::slice::from_ref(word),
        };
        let words: Option<Vec<String>> =
            list.iter().map(|word| word.as_str().map(|word| word.trim().to_owned())).collect();
        if words.is_none() {
            self.wrong(name, "must be a list of words");
        }
        words
    }

    fn bearer(&mut self, fields: &Map<String, Value>) -> Option<Login> {
        self.refuse(fields, "bearer", &["username", "password", "key", "fingerprint", "san", "uid"]);
        let (token, principal) = (self.required(fields, "token"), self.required(fields, "principal"));
        Some(Login::Bearer { token: token?.into(), principal: principal? })
    }

    fn basic(&mut self, fields: &Map<String, Value>) -> Option<Login> {
        self.refuse(fields, "basic", &["token", "key", "fingerprint", "san", "uid"]);
        if self.text(fields, "principal").is_some() {
            self.wrong("principal", "must not be given for basic: it is the username");
        }
        let (username, password) = (self.required(fields, "username"), self.required(fields, "password"));
        let username = username?;
        if username.contains(':') {
            self.wrong(
                "username",
                "must not contain a colon: basic authentication separates the password with one",
            );
        }
        Some(Login::Basic { username, password: password?.into() })
    }

    fn api_key(&mut self, fields: &Map<String, Value>) -> Option<Login> {
        self.refuse(fields, "api_key", &["username", "password", "token", "fingerprint", "san", "uid"]);
        let (key, principal) = (self.required(fields, "key"), self.required(fields, "principal"));
        Some(Login::ApiKey { key: key?.into(), principal: principal? })
    }

    fn certificate(&mut self, fields: &Map<String, Value>) -> Option<Login> {
        self.refuse(fields, "mtls", &["username", "password", "token", "key", "uid"]);
        let certificate = match (self.text(fields, "fingerprint"), self.text(fields, "san")) {
            (Some(text), None) => {
                let fingerprint = CertificateMatch::fingerprint(&text);
                if fingerprint.is_none() {
                    self.wrong("fingerprint", "must be the SHA-256 of a certificate: 64 hexadecimal digits");
                }
                fingerprint
            }
            (None, Some(text)) => {
                let name = CertificateMatch::name(&text);
                if name.is_none() {
                    self.wrong("san", "must be a DNS name or a URI");
                }
                name
            }
            (Some(_), Some(_)) => {
                self.wrong("san", "must not be given together with fingerprint; keep one of them");
                None
            }
            (None, None) => {
                self.wrong("fingerprint", "is required, or san");
                None
            }
        };
        let principal = self.required(fields, "principal");
        Some(Login::Certificate { certificate: certificate?, principal: principal? })
    }

    fn unix_user(&mut self, fields: &Map<String, Value>) -> Option<(u32, String)> {
        self.refuse(fields, "unix_user", &["username", "password", "token", "key", "fingerprint", "san"]);
        let uid = match fields.get("uid") {
            None | Some(Value::Null) => {
                self.missing("uid");
                None
            }
            Some(value) => {
                let uid = value.as_u64().and_then(|uid| u32::try_from(uid).ok());
                if uid.is_none() {
                    self.wrong("uid", "must be the number of a user, as `id -u` prints it");
                }
                uid
            }
        };
        let principal = self.required(fields, "principal");
        Some((uid?, principal?))
    }

    fn refuse(&mut self, fields: &Map<String, Value>, scheme: &str, names: &[&str]) {
        let is_given = |name: &&&str| match fields.get(**name) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.trim().is_empty(),
            Some(_) => true,
        };
        for name in names.iter().filter(is_given) {
            self.wrong(name, &format!("must not be given for {scheme}"));
        }
    }

    fn required(&mut self, fields: &Map<String, Value>, name: &str) -> Option<String> {
        let text = self.text(fields, name);
        if text.is_none() && self.ok {
            self.missing(name);
        }
        text
    }

    /// Reads a field as trimmed text. An empty text counts as missing.
    fn text(&mut self, fields: &Map<String, Value>, name: &str) -> Option<String> {
        match fields.get(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            Some(_) => {
                self.wrong(name, "must be a text");
                None
            }
        }
    }

    fn missing(&mut self, name: &str) {
        self.wrong(name, "is required");
    }

    fn wrong(&mut self, name: &str, reason: &str) {
        self.ok = false;
        let dot = if name.is_empty() { "" } else { "." };
        let problem =
            format!("{} ({}[{}]{dot}{name}): {reason}", self.written.source, CREDENTIALS.key, self.index);
        self.reader.problem(Problem(problem));
    }
}
