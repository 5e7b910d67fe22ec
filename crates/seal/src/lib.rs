//! Encrypts the secrets that the gateway must store and read again, such as the credentials for a webhook.
//!
//! A sealed value is encrypted and authenticated with XChaCha20-Poly1305. It contains the id of its key, and is bound to a context,
//! such as the row that stores it: a copy in another row cannot be opened. Nonces are random. They have 192 bits, so two values
//! practically never get the same one.
//!
//! The first use makes a key. [`Sealer::rotate`] makes a new key and seals every value again; it removes an old key once no value
//! needs it. If a key is lost, the values sealed with it cannot be opened, and everything else works.

mod key;
mod ring;
mod rotate;
mod sealer;
mod storage;

pub use key::KeyId;
pub use rotate::{Rotation, SealedValue, SealedValues, StoreFailure};
pub use sealer::{Error, Sealer};
pub use storage::{KeyStorage, KeysFromEnvironment, KeysInMemory};
