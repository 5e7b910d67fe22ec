//! The list of credentials: `A2A_STATIC_AUTH_CREDENTIALS` as `opencode-a2a` has it, or `[[auth.credentials]]`.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::problem::Problem;
use super::read::{Reader, Written};
use super::table::CREDENTIALS;

/// The principal of a bearer token that comes without one, and of the token that Longshore makes.
/// It never changes, so that tasks stay visible when the token does.
pub const DEFAULT_PRINCIPAL: &str = "default";

/// One way in, and who comes through it.
#[derive(Clone, Debug)]
pub enum Credential {
    Bearer { token: SecretString, principal: String },
    Basic { username: String, password: SecretString },
    ApiKey { key: SecretString, principal: String },
}

impl Credential {
    /// What the caller presents, and who that makes it.
    fn claim(&self) -> ((&'static str, &str, &str), &str) {
        match self {
            Self::Bearer { token, principal } => (("bearer token", "", token.expose_secret()), principal),
            Self::Basic { username, password } => {
                (("user name and password", username, password.expose_secret()), username)
            }
            Self::ApiKey { key, principal } => (("API key", "", key.expose_secret()), principal),
        }
    }
}

/// Every field that an entry may have.
const FIELDS: [&str; 9] = [
    "scheme",
    "token",
    "key",
    "username",
    "password",
    "principal",
    "credential_id",
    "capabilities",
    "enabled",
];

/// The enabled entries of the list, if there is one.
pub fn read(reader: &mut Reader<'_>) -> Vec<Credential> {
    let Some(written) = reader.written(&CREDENTIALS) else { return Vec::new() };
    let list = match serde_json::from_str(&written.text) {
        Ok(Value::Array(list)) if !list.is_empty() => list,
        // The text of a parse error could show a part of a secret, so it says only where.
        Ok(_) => {
            reader.problem(Problem::rule(
                &written.source,
                &CREDENTIALS,
                "must be a list with at least one entry",
            ));
            return Vec::new();
        }
        Err(error) => {
            let reason = format!("is no JSON (line {}, column {})", error.line(), error.column());
            reader.problem(Problem::rule(&written.source, &CREDENTIALS, reason));
            return Vec::new();
        }
    };
    let mut credentials = Vec::new();
    let mut disabled = 0;
    for (index, value) in list.iter().enumerate() {
        let mut entry = Entry { reader, written: &written, index, ok: true };
        let credential = entry.credential(value);
        if entry.ok && is_disabled(value) {
            disabled += 1;
        } else if entry.ok {
            credentials.extend(credential);
        }
    }
    if disabled == list.len() {
        let reason = "every entry is disabled; enable one, or remove the list to have a token made";
        reader.problem(Problem::rule(&written.source, &CREDENTIALS, reason));
    }
    credentials
}

/// What two credentials share that would make one caller two principals.
pub fn ambiguous(credentials: &[Credential]) -> Option<&'static str> {
    let mut seen = BTreeMap::new();
    credentials.iter().map(Credential::claim).find_map(|(presented, principal)| {
        let before = *seen.entry(presented).or_insert(principal);
        (before != principal).then_some(presented.0)
    })
}

fn is_disabled(entry: &Value) -> bool {
    entry.get("enabled") == Some(&Value::Bool(false))
}

/// One entry, while it is checked.
struct Entry<'r, 'a> {
    reader: &'r mut Reader<'a>,
    written: &'r Written,
    index: usize,
    /// Whether nothing was wrong so far.
    ok: bool,
}

impl Entry<'_, '_> {
    /// The credential, if every field of its scheme is there.
    fn credential(&mut self, value: &Value) -> Option<Credential> {
        let Value::Object(fields) = value else {
            self.wrong("", "must be a table of fields");
            return None;
        };
        for name in fields.keys().filter(|name| !FIELDS.contains(&name.as_str())) {
            self.wrong(name, &format!("is no field of a credential; there are {}", FIELDS.join(", ")));
        }
        if fields.get("enabled").is_some_and(|enabled| !enabled.is_boolean() && !enabled.is_null()) {
            self.wrong("enabled", "must be true or false");
        }
        self.without_effect(fields);
        match self.text(fields, "scheme").as_deref() {
            Some("bearer") => self.bearer(fields),
            Some("basic") => self.basic(fields),
            Some("api_key") => self.api_key(fields),
            Some(_) => {
                self.wrong("scheme", "must be bearer, basic or api_key");
                None
            }
            None => {
                self.missing("scheme");
                None
            }
        }
    }

    fn bearer(&mut self, fields: &Map<String, Value>) -> Option<Credential> {
        self.refuse(fields, "bearer", &["username", "password", "key"]);
        let (token, principal) = (self.required(fields, "token"), self.required(fields, "principal"));
        Some(Credential::Bearer { token: token?.into(), principal: principal? })
    }

    fn basic(&mut self, fields: &Map<String, Value>) -> Option<Credential> {
        self.refuse(fields, "basic", &["token", "key"]);
        if self.text(fields, "principal").is_some() {
            self.wrong("principal", "must not be given for basic: it is the username");
        }
        let (username, password) = (self.required(fields, "username"), self.required(fields, "password"));
        let username = username?;
        if username.contains(':') {
            self.wrong("username", "must not hold a colon: the header could not be read back");
        }
        Some(Credential::Basic { username, password: password?.into() })
    }

    fn api_key(&mut self, fields: &Map<String, Value>) -> Option<Credential> {
        self.refuse(fields, "api_key", &["username", "password", "token"]);
        let (key, principal) = (self.required(fields, "key"), self.required(fields, "principal"));
        Some(Credential::ApiKey { key: key?.into(), principal: principal? })
    }

    /// A field that is known but changes nothing yet is said, not swallowed.
    fn without_effect(&mut self, fields: &Map<String, Value>) {
        if fields.get("capabilities").is_some_and(|value| !matches!(value, Value::Null | Value::Array(_))) {
            self.wrong("capabilities", "must be a list");
        }
        self.text(fields, "credential_id");
        for name in ["capabilities", "credential_id"] {
            let given = fields.get(name).is_some_and(|value| {
                !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty())
            });
            if given {
                self.reader.warn(format!(
                    "auth.credentials[{}].{name} is not supported by this version and has no effect",
                    self.index
                ));
            }
        }
    }

    fn refuse(&mut self, fields: &Map<String, Value>, scheme: &str, names: &[&str]) {
        for name in names {
            if self.text(fields, name).is_some() {
                self.wrong(name, &format!("must not be given for {scheme}"));
            }
        }
    }

    fn required(&mut self, fields: &Map<String, Value>, name: &str) -> Option<String> {
        let text = self.text(fields, name);
        if text.is_none() && self.ok {
            self.missing(name);
        }
        text
    }

    /// A field as trimmed text. Empty counts as not given.
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
