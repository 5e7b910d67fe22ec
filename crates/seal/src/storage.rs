//! Stores the sealing keys.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

use secrecy::{ExposeSecret as _, SecretString};

/// Stores the text of the keys. The errors are for the operator: what failed, and what to do about it.
pub trait KeyStorage: Send + Sync + Debug {
    /// The stored keys. `None`: there are none yet.
    fn load(&self) -> Result<Option<SecretString>, String>;

    /// Replaces the text atomically: after a crash, either the old or the new text is stored.
    fn save(&self, text: &SecretString) -> Result<(), String>;

    /// Whether the gateway may make and remove keys.
    fn is_writable(&self) -> bool {
        true
    }
}

/// Keys that the operator provides and replaces.
#[derive(Debug)]
pub struct KeysFromEnvironment(SecretString);

impl KeysFromEnvironment {
    pub fn new(text: SecretString) -> Self {
        Self(text)
    }
}

impl KeyStorage for KeysFromEnvironment {
    fn load(&self) -> Result<Option<SecretString>, String> {
        Ok(Some(self.0.clone()))
    }

    fn save(&self, _text: &SecretString) -> Result<(), String> {
        Err("the keys come from the configuration, so change them there".to_owned())
    }

    fn is_writable(&self) -> bool {
        false
    }
}

/// Keys that are lost when the process ends, for a store that is too.
#[derive(Debug, Default)]
pub struct KeysInMemory(Mutex<Option<SecretString>>);

impl KeyStorage for KeysInMemory {
    fn load(&self) -> Result<Option<SecretString>, String> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn save(&self, text: &SecretString) -> Result<(), String> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.expose_secret().to_owned().into());
        Ok(())
    }
}
