//! The keys, and sealing and opening with them.

use chacha20poly1305::aead::{Aead as _, Generate as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use secrecy::{SecretSlice, SecretString};
use zeroize::Zeroizing;

use crate::key::{Key, KeyId};
use crate::sealer::Error;

/// The version, which is the first byte of a sealed value. After it come the length of the key's id, the id, the nonce, and the
/// encrypted value with its tag.
const VERSION: u8 = 1;

const NONCE_BYTES: usize = 24;

/// The keys. The first one seals, all of them open. There is always at least one.
#[derive(Debug)]
pub(crate) struct KeyRing(Vec<Key>);

impl KeyRing {
    pub(crate) fn generate() -> Self {
        Self(vec![Key::generate()])
    }

    /// Reads keys as `id:base64`, separated by spaces, commas or line breaks.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
        let keys: Option<Vec<Key>> = words.map(Key::parse).collect();
        let keys = keys.filter(|keys| !keys.is_empty()).ok_or_else(|| {
            Error::Keys("they are not written as id:key, with the base64 of 32 bytes as key".to_owned())
        })?;
        for (index, key) in keys.iter().enumerate() {
            if keys[..index].iter().any(|other| other.id == key.id) {
                return Err(Error::Keys(format!("two keys have the id {}", key.id)));
            }
        }
        Ok(Self(keys))
    }

    /// Writes the keys in the form that [`Self::parse`] reads.
    pub(crate) fn write(&self) -> SecretString {
        // Reserve enough for all keys: a reallocation would leave a copy of key material in memory.
        let mut text = String::with_capacity(self.0.len() * 96);
        for key in &self.0 {
            key.write(&mut text);
            text.push('\n');
        }
        text.into()
    }

    pub(crate) fn active(&self) -> &KeyId {
        &self.0[0].id
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &KeyId> {
        self.0.iter().map(|key| &key.id)
    }

    /// Adds a new key, with which all values are sealed from now on.
    pub(crate) fn add(&mut self) {
        self.0.insert(0, Key::generate());
    }

    /// Removes all keys except the active one and those for which `is_needed` returns true.
    pub(crate) fn retain(&mut self, is_needed: impl Fn(&KeyId) -> bool) {
        let active = self.active().clone();
        self.0.retain(|key| key.id == active || is_needed(&key.id));
    }

    pub(crate) fn seal(&self, context: &[u8], secret: &[u8]) -> Result<Vec<u8>, Error> {
        let key = &self.0[0];
        let mut sealed = header(&key.id);
        let nonce = XNonce::generate();
        let bound = bound_data(&sealed, context);
        sealed.extend_from_slice(&nonce);
        let encrypted = cipher(key).encrypt(&nonce, Payload { msg: secret, aad: &bound });
        sealed.extend_from_slice(&encrypted.map_err(|_| Error::Damaged)?);
        Ok(sealed)
    }

    pub(crate) fn open(&self, context: &[u8], sealed: &[u8]) -> Result<SecretSlice<u8>, Error> {
        let id = key_of(sealed).ok_or(Error::Damaged)?;
        let header = header(&id);
        let key = self.0.iter().find(|key| key.id == id).ok_or(Error::UnknownKey(id))?;
        let rest = sealed.get(header.len()..).unwrap_or_default();
        let (nonce, encrypted) = rest.split_at_checked(NONCE_BYTES).ok_or(Error::Damaged)?;
        let nonce = XNonce::try_from(nonce).map_err(|_| Error::Damaged)?;
        let bound = bound_data(&header, context);
        let opened = cipher(key).decrypt(&nonce, Payload { msg: encrypted, aad: &bound });
        Ok(opened.map_err(|_| Error::Damaged)?.into())
    }
}

/// The id of the key that sealed a value. `None`: the value does not have our format.
pub(crate) fn key_of(sealed: &[u8]) -> Option<KeyId> {
    let (&[VERSION, length], rest) = sealed.split_first_chunk()? else { return None };
    KeyId::parse(std::str::from_utf8(rest.get(..usize::from(length))?).ok()?)
}

fn header(id: &KeyId) -> Vec<u8> {
    let id = id.as_str().as_bytes();
    let mut header = vec![VERSION, u8::try_from(id.len()).unwrap_or(u8::MAX)];
    header.extend_from_slice(id);
    header
}

/// The header and the context of a value, which are authenticated with the value: nobody can change them unnoticed.
fn bound_data(header: &[u8], context: &[u8]) -> Vec<u8> {
    [header, context].concat()
}

fn cipher(key: &Key) -> XChaCha20Poly1305 {
    let bytes = Zeroizing::new(*key.bytes());
    XChaCha20Poly1305::new((&*bytes).into())
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn a_value_opens_only_unchanged_in_its_own_context_and_with_its_key() {
        let ring = KeyRing::generate();
        let sealed = ring.seal(b"row 1", b"secret").unwrap();
        assert_eq!(ring.open(b"row 1", &sealed).unwrap().expose_secret(), b"secret");
        assert_eq!(ring.open(b"row 2", &sealed).unwrap_err(), Error::Damaged);
        for index in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[index] ^= 1;
            let error = ring.open(b"row 1", &changed).unwrap_err();
            assert!(matches!(error, Error::Damaged | Error::UnknownKey(_)), "byte {index}: {error}");
        }
        for length in 0..sealed.len() {
            ring.open(b"row 1", &sealed[..length]).unwrap_err();
        }
        let error = KeyRing::generate().open(b"row 1", &sealed).unwrap_err();
        assert_eq!(error, Error::UnknownKey(ring.active().clone()));
    }

    #[test]
    fn a_secret_sealed_twice_looks_different_each_time() {
        let ring = KeyRing::generate();
        let all: std::collections::BTreeSet<_> =
            (0..100).map(|_| ring.seal(b"", b"secret").unwrap()).collect();
        assert_eq!(all.len(), 100);
        assert!(all.iter().all(|sealed| !sealed.windows(6).any(|part| part == b"secret")));
    }

    #[test]
    fn written_keys_are_read_again_and_never_shown() {
        let mut ring = KeyRing::generate();
        let sealed = ring.seal(b"", b"old").unwrap();
        ring.add();
        let text = ring.write();
        let read = KeyRing::parse(text.expose_secret()).unwrap();
        assert_eq!(read.active(), ring.active());
        assert_eq!(read.open(b"", &sealed).unwrap().expose_secret(), b"old");
        let shown = format!("{ring:?}");
        let secret = text.expose_secret().split(':').nth(1).unwrap()[..20].to_owned();
        assert!(!shown.contains(&secret) && shown.contains("REDACTED"), "{shown}");
    }

    #[test]
    fn text_that_is_no_list_of_keys_is_refused_without_repeating_it() {
        let key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
        for text in [
            "",
            "  ",
            key,
            "a:MDEy",
            "a:!",
            &format!("a b:{key}"),
            &format!("a:{key},a:{key}"),
            &format!(":{key}"),
        ] {
            let error = KeyRing::parse(text).unwrap_err().to_string();
            assert!(!error.contains("MDEy"), "{error}");
        }
        KeyRing::parse(&format!("a:{key}, b-2:{key}\n")).unwrap();
    }
}
