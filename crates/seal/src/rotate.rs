//! Replaces the key that seals values.

use std::collections::BTreeSet;

use secrecy::ExposeSecret as _;

use crate::key::KeyId;
use crate::ring::{KeyRing, key_of};
use crate::sealer::Sealer;

/// A sealed value and its context.
#[derive(Clone, Copy, Debug)]
pub struct SealedValue<'a> {
    /// The context with which the value was sealed.
    pub context: &'a [u8],
    pub sealed: &'a [u8],
}

/// Why a store could not replace its values.
pub type StoreFailure = Box<dyn std::error::Error + Send + Sync>;

/// A store with sealed values.
pub trait SealedValues {
    /// Calls `reseal` for every sealed value. `Some`: stores the result in place of the value. `None`: leaves the value. When this
    /// returns, the new values survive a loss of power.
    fn replace_each(
        &mut self,
        reseal: &mut dyn FnMut(SealedValue<'_>) -> Option<Vec<u8>>,
    ) -> Result<(), StoreFailure>;
}

/// The result of a rotation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rotation {
    /// The key that seals values from now on.
    pub active: KeyId,
    pub resealed: usize,
    /// The number of values that no key can open. They stay unchanged.
    pub unreadable: usize,
    /// The keys that no value needs any more. They were removed. If the operator manages the keys, the operator can remove them.
    pub unused: Vec<KeyId>,
}

impl Sealer {
    /// Makes a new key, unless the operator manages the keys, and seals all values again with the active key. After a crash at any
    /// point, all values can still be opened, and the next rotation completes the work.
    ///
    /// Only the process that holds the lock of the store may call this: another process would continue to seal with a key that is
    /// removed here. Other uses of this sealer wait until the rotation is over.
    pub fn rotate(&self, values: &mut dyn SealedValues) -> Result<Rotation, StoreFailure> {
        let mut slot = self.lock();
        // Even a rotation that fails may have replaced the stored keys, so the next use must read them again.
        *slot = None;
        let is_writable = self.storage().is_writable();
        let mut ring = match self.load()? {
            Some(mut ring) => {
                if is_writable {
                    ring.add();
                }
                ring
            }
            None => KeyRing::generate(),
        };
        if is_writable {
            // Save the key before a value is sealed with it.
            self.save(&ring)?;
        }
        let (mut resealed, mut unreadable, mut needed) = (0, 0, BTreeSet::new());
        values.replace_each(&mut |value| {
            let key = key_of(value.sealed);
            if key.as_ref() == Some(ring.active()) {
                return None;
            }
            let opened = ring.open(value.context, value.sealed);
            let again = opened.and_then(|secret| ring.seal(value.context, secret.expose_secret()));
            if let Ok(sealed) = again {
                resealed += 1;
                Some(sealed)
            } else {
                unreadable += 1;
                needed.extend(key);
                None
            }
        })?;
        let active = ring.active().clone();
        let unused = ring.ids().filter(|id| **id != active && !needed.contains(*id)).cloned().collect();
        if is_writable {
            ring.retain(|id| needed.contains(id));
            self.save(&ring)?;
        }
        *slot = Some(ring);
        Ok(Rotation { active, resealed, unreadable, unused })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use secrecy::SecretString;

    use super::*;
    use crate::sealer::Error;
    use crate::storage::{KeyStorage, KeysFromEnvironment, KeysInMemory};

    #[derive(Debug, Default)]
    struct Rows {
        rows: BTreeMap<Vec<u8>, Vec<u8>>,
        /// Fails after this many rows, like a full disk.
        room: Option<usize>,
    }

    impl Rows {
        fn put(&mut self, sealer: &Sealer, name: &str) {
            self.rows.insert(name.into(), sealer.seal(name.as_bytes(), b"secret").unwrap());
        }

        fn check(&self, sealer: &Sealer) {
            for (name, sealed) in &self.rows {
                assert_eq!(sealer.open(name, sealed).unwrap().expose_secret(), b"secret");
            }
        }
    }

    impl SealedValues for Rows {
        fn replace_each(
            &mut self,
            reseal: &mut dyn FnMut(SealedValue<'_>) -> Option<Vec<u8>>,
        ) -> Result<(), StoreFailure> {
            for (index, (context, sealed)) in self.rows.iter_mut().enumerate() {
                if self.room == Some(index) {
                    return Err("the disk is full".into());
                }
                if let Some(again) = reseal(SealedValue { context, sealed }) {
                    *sealed = again;
                }
            }
            Ok(())
        }
    }

    /// Replaces the keys. From the second time on it still reports a failure, as if the directory could not be synced.
    #[derive(Clone, Debug, Default)]
    struct FailsAfterSaving(Arc<KeysInMemory>, Arc<AtomicUsize>);

    impl KeyStorage for FailsAfterSaving {
        fn load(&self) -> Result<Option<SecretString>, String> {
            self.0.load()
        }

        fn save(&self, text: &SecretString) -> Result<(), String> {
            self.0.save(text)?;
            let saved = self.1.fetch_add(1, Ordering::Relaxed);
            if saved < 2 { Ok(()) } else { Err("the directory cannot be synced".to_owned()) }
        }
    }

    fn keys(sealer: &Sealer) -> usize {
        sealer.storage().load().unwrap().unwrap().expose_secret().lines().count()
    }

    #[test]
    fn a_rotation_seals_every_value_with_a_new_key_and_removes_the_old_one() {
        let (sealer, mut rows) = (Sealer::new(KeysInMemory::default()), Rows::default());
        rows.put(&sealer, "a");
        rows.put(&sealer, "b");
        let before = rows.rows.clone();
        let first = sealer.rotate(&mut rows).unwrap();
        assert_eq!((first.resealed, first.unreadable, first.unused.len(), keys(&sealer)), (2, 0, 1, 1));
        rows.check(&sealer);
        assert!(rows.rows.values().all(|sealed| key_of(sealed).as_ref() == Some(&first.active)));
        for (name, sealed) in &before {
            assert!(
                matches!(sealer.open(name, sealed), Err(Error::UnknownKey(_))),
                "the old key is still there"
            );
        }
        assert_ne!(sealer.rotate(&mut rows).unwrap().active, first.active);
        rows.check(&sealer);
    }

    #[test]
    fn a_rotation_that_fails_in_the_middle_loses_nothing_and_the_next_completes_it() {
        let (sealer, mut rows) = (Sealer::new(KeysInMemory::default()), Rows::default());
        rows.put(&sealer, "a");
        rows.put(&sealer, "b");
        rows.room = Some(1);
        assert_eq!(sealer.rotate(&mut rows).unwrap_err().to_string(), "the disk is full");
        assert_eq!(keys(&sealer), 2);
        rows.check(&sealer);
        rows.put(&sealer, "c");
        rows.room = None;
        let rotation = sealer.rotate(&mut rows).unwrap();
        assert_eq!((rotation.resealed, rotation.unused.len(), keys(&sealer)), (3, 2, 1));
        rows.check(&sealer);
    }

    #[test]
    fn a_value_that_is_sealed_after_a_rotation_failed_at_its_end_survives_a_restart() {
        let storage = FailsAfterSaving::default();
        let (sealer, mut rows) = (Sealer::new(storage.clone()), Rows::default());
        rows.put(&sealer, "a");
        assert!(sealer.rotate(&mut rows).unwrap_err().to_string().contains("the directory cannot be synced"));
        rows.put(&sealer, "b");
        rows.check(&Sealer::new(storage));
    }

    #[test]
    fn values_that_cannot_be_opened_stay_and_keep_their_key() {
        let (sealer, mut rows) = (Sealer::new(KeysInMemory::default()), Rows::default());
        rows.put(&sealer, "a");
        rows.put(&sealer, "moved");
        let moved = rows.rows.remove(&b"moved"[..]).unwrap();
        rows.rows.insert(b"elsewhere".into(), moved.clone());
        rows.rows.insert(b"junk".into(), b"junk".into());
        let rotation = sealer.rotate(&mut rows).unwrap();
        assert_eq!(
            (rotation.resealed, rotation.unreadable, rotation.unused.len(), keys(&sealer)),
            (1, 2, 0, 2)
        );
        assert_eq!(rows.rows[&b"elsewhere"[..]], moved);
        assert_eq!(sealer.open(b"moved", &moved).unwrap().expose_secret(), b"secret");
    }

    #[test]
    fn keys_of_the_operator_are_used_but_not_changed() {
        let key = |letter: &str| format!("{letter}:{}", "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=");
        let sealer = |keys: &str| Sealer::new(KeysFromEnvironment::new(keys.to_owned().into()));
        let mut rows = Rows::default();
        rows.put(&sealer(&key("old")), "a");
        let both = sealer(&format!("{},{}", key("new"), key("old")));
        let rotation = both.rotate(&mut rows).unwrap();
        assert_eq!((rotation.active.as_str(), rotation.resealed), ("new", 1));
        assert_eq!(rotation.unused, [KeyId::parse("old").unwrap()]);
        rows.check(&sealer(&key("new")));
    }

    #[test]
    fn a_rotation_before_the_first_secret_makes_a_key() {
        let sealer = Sealer::new(KeysInMemory::default());
        sealer.rotate(&mut Rows::default()).unwrap();
        assert_eq!(keys(&sealer), 1);
    }
}
