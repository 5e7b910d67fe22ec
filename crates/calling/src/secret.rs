//! The secret of the data directory, from which all tokens and proofs are derived.

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// A secret key that signs and derives keys.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A key for one purpose, in hexadecimal digits.
    pub(crate) fn derived_key(&self, purpose: &str) -> String {
        let bytes = self.hmac(&[purpose]).finalize().into_bytes();
        bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }

    /// A signature that only the gateway can make.
    pub(crate) fn sign(&self, words: &[&str]) -> String {
        BASE64.encode(self.hmac(words).finalize().into_bytes())
    }

    /// Whether the signature is valid. The comparison takes the same time for every wrong signature.
    pub(crate) fn verifies(&self, words: &[&str], signature: &str) -> bool {
        verifies(self.hmac(words), signature)
    }

    fn hmac(&self, words: &[&str]) -> Hmac<Sha256> {
        hmac(&self.0, words)
    }
}

/// Like [`Secret::verifies`], but with a derived key. The plugin in OpenCode signs with such a key.
pub(crate) fn verifies_with(key: &str, words: &[&str], signature: &str) -> bool {
    verifies(hmac(key.as_bytes(), words), signature)
}

#[cfg(test)]
pub(crate) fn sign_with(key: &str, words: &[&str]) -> String {
    BASE64.encode(hmac(key.as_bytes(), words).finalize().into_bytes())
}

fn hmac(key: &[u8], words: &[&str]) -> Hmac<Sha256> {
    let mut hmac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for word in words {
        hmac.update(word.as_bytes());
        // The zero byte ends each word, so that no two lists of words have the same signature.
        hmac.update(&[0]);
    }
    hmac
}

fn verifies(hmac: Hmac<Sha256>, signature: &str) -> bool {
    BASE64.decode(signature).is_ok_and(|bytes| hmac.verify_slice(&bytes).is_ok())
}

/// Prints nothing of the key.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
