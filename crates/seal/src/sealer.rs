//! Seals and opens values with the keys of a storage.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use secrecy::{ExposeSecret as _, SecretSlice};

use crate::key::KeyId;
use crate::ring::KeyRing;
use crate::storage::KeyStorage;

/// Why a value could not be sealed or opened. Only [`Error::Keys`] affects other values too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The keys cannot be read or written. The value is the reason.
    Keys(String),
    /// The value was sealed with a key that no longer exists.
    UnknownKey(KeyId),
    /// The value was changed, or is opened with another context.
    Damaged,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keys(reason) => write!(f, "the keys for stored secrets cannot be used: {reason}"),
            Self::UnknownKey(id) => write!(
                f,
                "a stored secret was sealed with the key {id}, which is missing; put the key back, or set the secret again"
            ),
            Self::Damaged => f.write_str("a stored secret is damaged; set it again"),
        }
    }
}

impl std::error::Error for Error {}

/// Seals and opens values. Reads the keys at the first use, so that a lost or broken key does not prevent the start.
#[derive(Debug)]
pub struct Sealer {
    storage: Box<dyn KeyStorage>,
    ring: Mutex<Option<KeyRing>>,
}

impl Sealer {
    pub fn new(storage: impl KeyStorage + 'static) -> Self {
        Self { storage: Box::new(storage), ring: Mutex::new(None) }
    }

    /// Seals a secret. The first use makes a key. `context`: the place of the value, such as the id of its row. Opening the value
    /// needs the same context.
    pub fn seal(&self, context: &[u8], secret: &[u8]) -> Result<Vec<u8>, Error> {
        let mut ring = self.lock();
        let ring = match &mut *ring {
            Some(ring) => ring,
            none => none.insert(self.load_or_make()?),
        };
        ring.seal(context, secret)
    }

    pub fn open(&self, context: &[u8], sealed: &[u8]) -> Result<SecretSlice<u8>, Error> {
        let mut ring = self.lock();
        if let Some(ring) = &*ring {
            match ring.open(context, sealed) {
                // Load the keys again below: the operator may have restored the missing one.
                Err(Error::UnknownKey(_)) => {}
                done => return done,
            }
        }
        let Some(loaded) = self.load()? else {
            return Err(crate::ring::key_of(sealed).map_or(Error::Damaged, Error::UnknownKey));
        };
        ring.insert(loaded).open(context, sealed)
    }

    pub(crate) fn storage(&self) -> &dyn KeyStorage {
        &*self.storage
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<KeyRing>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn save(&self, ring: &KeyRing) -> Result<(), Error> {
        self.storage.save(&ring.write()).map_err(Error::Keys)
    }

    pub(crate) fn load(&self) -> Result<Option<KeyRing>, Error> {
        let text = self.storage.load().map_err(Error::Keys)?;
        text.map(|text| KeyRing::parse(text.expose_secret())).transpose()
    }

    fn load_or_make(&self) -> Result<KeyRing, Error> {
        if let Some(ring) = self.load()? {
            return Ok(ring);
        }
        let ring = KeyRing::generate();
        // Save the key before it seals the first value. Otherwise a crash could lose the key of a stored value.
        self.save(&ring)?;
        Ok(ring)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use secrecy::SecretString;

    use super::*;
    use crate::storage::{KeysFromEnvironment, KeysInMemory};

    /// A storage that a test can change while a sealer uses it.
    #[derive(Clone, Debug, Default)]
    struct Shared(Arc<KeysInMemory>);

    impl KeyStorage for Shared {
        fn load(&self) -> Result<Option<SecretString>, String> {
            self.0.load()
        }

        fn save(&self, text: &SecretString) -> Result<(), String> {
            self.0.save(text)
        }
    }

    #[test]
    fn the_first_use_makes_a_key_that_the_next_start_reads() {
        let storage = Shared::default();
        let first = Sealer::new(storage.clone());
        assert!(storage.load().unwrap().is_none(), "a key was made before it was needed");
        let sealed = first.seal(b"a", b"secret").unwrap();
        let next = Sealer::new(storage);
        assert_eq!(next.open(b"a", &sealed).unwrap().expose_secret(), b"secret");
    }

    #[test]
    fn a_lost_key_fails_its_own_values_only_and_works_when_it_is_back() {
        let storage = Shared::default();
        let sealed = Sealer::new(storage.clone()).seal(b"a", b"secret").unwrap();
        let keys = storage.load().unwrap().unwrap();
        let next = Sealer::new(Shared::default());
        let error = next.open(b"a", &sealed).unwrap_err();
        assert!(
            matches!(error, Error::UnknownKey(_)) && error.to_string().contains("which is missing"),
            "{error}"
        );
        let other = next.seal(b"b", b"other").unwrap();
        assert!(matches!(next.open(b"a", &sealed), Err(Error::UnknownKey(_))));
        assert_eq!(next.open(b"b", &other).unwrap().expose_secret(), b"other");
        next.storage().save(&keys).unwrap();
        assert_eq!(next.open(b"a", &sealed).unwrap().expose_secret(), b"secret");
    }

    #[test]
    fn broken_keys_are_an_error_of_each_use_and_are_never_replaced() {
        let sealer = Sealer::new(KeysFromEnvironment::new("nonsense".into()));
        for error in [sealer.seal(b"", b"x").unwrap_err(), sealer.open(b"", b"x").unwrap_err()] {
            assert!(matches!(&error, Error::Keys(_)) && !error.to_string().contains("nonsense"), "{error}");
        }
    }
}
