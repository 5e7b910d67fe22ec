//! The credential registry in the Python gateway's JSON, plus the scheme `api_key`.
//!
//! Read by hand instead of by a derive, so that a wrong key is named exactly and no message can quote a secret.

use longshore_model::card::AuthScheme;
use secrecy::SecretString;
use serde_json::{Map, Value};

use super::{CredentialsError, Given};

const PLACE: &str = "A2A_STATIC_AUTH_CREDENTIALS";

/// `credential_id` and `capabilities` are read and checked so that the peer's registries are taken as they are;
/// no operation that is served today is gated by a capability.
const KEYS: [&str; 8] =
    ["scheme", "token", "username", "password", "principal", "credential_id", "capabilities", "enabled"];

pub(super) fn parse(text: &str) -> Result<Vec<Given>, CredentialsError> {
    // The parser's own message is about positions only: a `Value` has no type to miss, so nothing is quoted.
    let value: Value = serde_json::from_str(text)
        .map_err(|error| CredentialsError::new(PLACE, format!("is no JSON: {error}")))?;
    let Value::Array(entries) = value else {
        return Err(CredentialsError::new(PLACE, "must be a JSON array of credentials"));
    };
    let mut given = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        given.extend(Reader::new(index, entry)?.credential()?);
    }
    if given.is_empty() {
        return Err(CredentialsError::new(PLACE, "needs at least one enabled credential"));
    }
    Ok(given)
}

struct Reader<'a> {
    index: usize,
    entry: &'a Map<String, Value>,
}

impl<'a> Reader<'a> {
    fn new(index: usize, entry: &'a Value) -> Result<Self, CredentialsError> {
        let Value::Object(entry) = entry else {
            return Err(CredentialsError::new(format!("{PLACE}[{index}]"), "must be a JSON object"));
        };
        let reader = Self { index, entry };
        match entry.keys().find(|key| !KEYS.contains(&key.as_str())) {
            Some(key) => {
                Err(reader.wrong(key, format!("is no key of a credential; allowed are {}", KEYS.join(", "))))
            }
            None => Ok(reader),
        }
    }

    /// `None`: the entry is switched off. A switched-off entry is checked all the same.
    fn credential(&self) -> Result<Option<Given>, CredentialsError> {
        let enabled = match self.entry.get("enabled") {
            None | Some(Value::Null) => true,
            Some(Value::Bool(enabled)) => *enabled,
            Some(_) => return Err(self.wrong("enabled", "must be true or false")),
        };
        self.text("credential_id")?;
        self.capabilities()?;
        let given = match self.required("scheme", "bearer, basic or api_key")?.to_ascii_lowercase().as_str() {
            "bearer" => self.token(AuthScheme::Bearer)?,
            "api_key" => self.token(AuthScheme::ApiKey)?,
            "basic" => self.basic()?,
            _ => return Err(self.wrong("scheme", "must be bearer, basic or api_key")),
        };
        Ok(enabled.then_some(given))
    }

    fn token(&self, scheme: AuthScheme) -> Result<Given, CredentialsError> {
        self.absent("username", "belongs to the scheme basic only")?;
        self.absent("password", "belongs to the scheme basic only")?;
        let secret = SecretString::from(self.required("token", "the secret")?);
        let principal = self.required("principal", "whom the token stands for")?;
        Ok(Given { scheme, username: String::new(), secret, principal })
    }

    fn basic(&self) -> Result<Given, CredentialsError> {
        self.absent("token", "belongs to the schemes bearer and api_key only")?;
        self.absent("principal", "must not be given: the principal of basic is the username")?;
        let username = self.required("username", "the user")?;
        let secret = SecretString::from(self.required("password", "the secret")?);
        Ok(Given { scheme: AuthScheme::Basic, principal: username.clone(), username, secret })
    }

    fn required(&self, key: &str, meaning: &str) -> Result<String, CredentialsError> {
        self.text(key)?.ok_or_else(|| self.wrong(key, format!("is required: {meaning}")))
    }

    fn absent(&self, key: &str, why: &str) -> Result<(), CredentialsError> {
        match self.text(key)? {
            None => Ok(()),
            Some(_) => Err(self.wrong(key, why)),
        }
    }

    /// The trimmed text of a key. `None` when it is missing, null or blank.
    fn text(&self, key: &str) -> Result<Option<String>, CredentialsError> {
        match self.entry.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => {
                Ok(Some(text.trim()).filter(|text| !text.is_empty()).map(Into::into))
            }
            Some(_) => Err(self.wrong(key, "must be a string")),
        }
    }

    fn capabilities(&self) -> Result<(), CredentialsError> {
        match self.entry.get("capabilities") {
            None | Some(Value::Null) => Ok(()),
            Some(Value::Array(names)) if names.iter().all(Value::is_string) => Ok(()),
            Some(_) => Err(self.wrong("capabilities", "must be an array of strings")),
        }
    }

    fn wrong(&self, key: &str, what: impl Into<String>) -> CredentialsError {
        CredentialsError::new(format!("{PLACE}[{}].{key}", self.index), what)
    }
}
