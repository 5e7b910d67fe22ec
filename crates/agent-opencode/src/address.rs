//! Where OpenCode is, and the password that it has there.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

use secrecy::SecretString;
use url::Url;

/// The address of an OpenCode server. All clones are one: a managed OpenCode whose port was taken by somebody else while
/// it was down moves to another, and whoever talks to it goes along.
#[derive(Clone)]
pub struct Address(Arc<RwLock<Place>>);

/// One is never seen with the password of another.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) url: Url,
    /// `None`: it never moved, and has the password that it always had.
    pub(crate) password: Option<SecretString>,
}

impl Address {
    pub fn url(&self) -> Url {
        self.place().url
    }

    pub(crate) fn place(&self) -> Place {
        // Nothing that holds the lock can panic half-way through a change.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn move_to(&self, url: Url, password: SecretString) {
        let place = Place { url, password: Some(password) };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = place;
    }
}

impl From<Url> for Address {
    fn from(url: Url) -> Self {
        Self(Arc::new(RwLock::new(Place { url, password: None })))
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
        // The rest may carry credentials of its own.
        f.debug_tuple("Address").field(&self.url().host_str()).finish()
    }
}
