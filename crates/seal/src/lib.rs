//! Seals the secrets that the gateway must store and read again, such as the credentials for a webhook.
//!
//! A sealed value is encrypted and authenticated with XChaCha20-Poly1305. It names its key, and it is bound to a context, such as the
//! row that holds it: copied to another place it cannot be opened. Nonces are random: with their 192
//! bits, no two values get the same one by chance.
//!
//! The first use makes a key. [`Sealer::rotate`] makes a new one and seals every value again; the old keys stay as long as a value
//! needs them. If a key is lost, its values cannot be opened, and everything else works.

mod key;
mod ring;
mod rotate;
mod sealer;
mod storage;

pub use key::KeyId;
pub use rotate::{Rotation, SealedValue, SealedValues, StoreFailure};
pub use sealer::{Error, Sealer};
pub use storage::{KeyStorage, KeysFromEnvironment, KeysInMemory};
