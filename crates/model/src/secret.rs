//! Secrets that the gateway must read again, such as the credentials for a webhook.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};

/// A secret of a caller. `Debug` does not show it, there is no `Display` and no `Serialize`, and its memory is cleared on drop.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(SecretString::from(text.into()))
    }

    /// The secret itself. It may be encrypted or sent, but must never be in a response or a log line.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
