//! The address of OpenCode, and its password there.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

use secrecy::SecretString;
use url::Url;

/// The address of an OpenCode server. All clones share one address: if another program takes the port of a managed
/// OpenCode while OpenCode is down, OpenCode restarts on another port, and every holder of a clone uses that port from
/// then on.
#[derive(Clone)]
pub struct Address(Arc<RwLock<Location>>);

/// A URL with its password. Both change together.
#[derive(Clone)]
pub(crate) struct Location {
    pub(crate) url: Url,
    /// `None`: the server never moved, and has its configured password.
    pub(crate) password: Option<SecretString>,
}

impl Address {
    pub fn url(&self) -> Url {
        self.location().url
    }

    pub(crate) fn location(&self) -> Location {
        // Nothing that holds the lock can panic half-way through a change.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn move_to(&self, url: Url, password: SecretString) {
        let location = Location { url, password: Some(password) };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = location;
    }
}

impl From<Url> for Address {
    fn from(url: Url) -> Self {
        Self(Arc::new(RwLock::new(Location { url, password: None })))
    }
}

impl FromStr for Address {
    type Err = url::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Url::parse(text).map(Self::from)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest may contain credentials.
        f.debug_tuple("Address").field(&self.url().host_str()).finish()
    }
}
