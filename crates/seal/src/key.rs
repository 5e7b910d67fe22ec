//! A sealing key and its id.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::{Generate as _, Key as CipherKey};
use secrecy::{ExposeSecret as _, SecretBox};
use zeroize::{Zeroize as _, Zeroizing};

pub(crate) const KEY_BYTES: usize = 32;

/// The longest id of a key, in bytes.
const MAX_ID: usize = 32;

/// The id of a key. Sealed values and messages contain it. It is not secret.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyId(String);

impl KeyId {
    /// Reads an id of letters, digits, `-` and `_`. `None`: the text is no id.
    pub fn parse(text: &str) -> Option<Self> {
        let is_valid = (1..=MAX_ID).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        is_valid.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A key and its id. Dropping it overwrites the secret in memory, and `Debug` does not show the secret.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) id: KeyId,
    secret: SecretBox<[u8; KEY_BYTES]>,
}

impl Key {
    pub(crate) fn generate() -> Self {
        let random = u64::from_ne_bytes(<[u8; 8]>::generate());
        let mut secret: [u8; KEY_BYTES] = CipherKey::<XChaCha20Poly1305>::generate().into();
        let key = Self { id: KeyId(format!("{random:016x}")), secret: SecretBox::new(Box::new(secret)) };
        secret.zeroize();
        key
    }

    /// Reads a key in the form `id:base64`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (id, encoded) = text.split_once(':')?;
        let bytes = Zeroizing::new(STANDARD.decode(encoded).ok()?);
        let secret = Zeroizing::new(<[u8; KEY_BYTES]>::try_from(bytes.as_slice()).ok()?);
        Some(Self { id: KeyId::parse(id)?, secret: SecretBox::new(Box::new(*secret)) })
    }

    /// Appends the form that [`Self::parse`] reads.
    pub(crate) fn write(&self, text: &mut String) {
        text.push_str(self.id.as_str());
        text.push(':');
        STANDARD.encode_string(self.secret.expose_secret(), text);
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        self.secret.expose_secret()
    }
}
