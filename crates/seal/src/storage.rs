//! Where the keys are kept.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

use secrecy::{ExposeSecret as _, SecretString};

/// Holds the text of the keys. The errors are for the operator: what failed, and what to do.
pub trait KeyStorage: Send + Sync + Debug {
    /// `None`: there are no keys yet.
    fn load(&self) -> Result<Option<SecretString>, String>;

    /// Replaces the text at once: after a crash the old or the new text is there, as a whole.
    fn save(&self, text: &SecretString) -> Result<(), String>;

    /// Whether the gateway may make and remove keys.
    fn is_writable(&self) -> bool {
        true
    }
}

/// Keys that the operator sets and replaces.
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

/// Keys that end with the process, for a store that does too.
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
