//! The secrets of a data directory: the token of its gateway, the keys that seal the secrets in the store, and the secret from
//! which keys for other purposes are derived.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use longshore_seal::KeyStorage;
use rand::distr::{Alphanumeric, SampleString as _};
use secrecy::{ExposeSecret as _, SecretString};

use super::files::{cannot_write, read, write_private};

/// The length of a generated token. 43 characters out of 62 possible ones hold 256 bits.
const TOKEN_LENGTH: usize = 43;

/// The file with the generated token.
pub(super) const TOKEN: &str = "token";

/// The file with the keys that seal the secrets in the store.
pub(super) const KEYS: &str = "keys";

/// The file with the secret from which keys are derived.
pub(super) const SECRET: &str = "secret";

/// The token of an existing data directory. Generates it if there is none.
pub(crate) fn token(path: &Path) -> anyhow::Result<SecretString> {
    if let Some(token) = existing_token(path)? {
        return Ok(token);
    }
    let file = path.join(TOKEN);
    let token = Alphanumeric.sample_string(&mut rand::rng(), TOKEN_LENGTH);
    write_private(&file, &token).with_context(|| cannot_write(&file))?;
    Ok(token.into())
}

/// The token of a data directory. `None`: none was generated yet.
pub(crate) fn existing_token(path: &Path) -> anyhow::Result<Option<SecretString>> {
    let token = read(&path.join(TOKEN))?;
    Ok(token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()).map(Into::into))
}

/// The secret of a data directory. Generates it on first use. Keys for different purposes are derived from it with different
/// labels.
pub(crate) fn secret(path: &Path) -> anyhow::Result<[u8; 32]> {
    let file = path.join(SECRET);
    if let Some(text) = read(&file)? {
        let digits = text.trim();
        let byte = |index: usize| u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..32).map(byte).collect();
        let bytes = bytes.filter(|_| digits.len() == 64).and_then(|bytes| bytes.try_into().ok());
        return bytes
            .with_context(|| format!("{} does not hold 64 hexadecimal digits; remove it", file.display()));
    }
    let secret: [u8; 32] = rand::random();
    let digits = secret.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let text: String = digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect();
    write_private(&file, &text).with_context(|| cannot_write(&file))?;
    Ok(secret)
}

/// The file with the sealing keys of a data directory. Only its owner can read it.
#[derive(Debug)]
pub(crate) struct KeyFile(PathBuf);

impl KeyFile {
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self(data_dir.join(KEYS))
    }
}

impl KeyStorage for KeyFile {
    fn load(&self) -> Result<Option<SecretString>, String> {
        let text = read(&self.0).map_err(|error| format!("{error:#}"))?;
        Ok(text.map(SecretString::from))
    }

    fn save(&self, text: &SecretString) -> Result<(), String> {
        let written = write_private(&self.0, text.expose_secret().trim_end());
        written.map_err(|error| format!("{}: {error}", cannot_write(&self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_dir::DataDir;
    use crate::data_dir::tests::mode;

    #[test]
    fn a_token_is_generated_once_and_kept_private() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        drop(DataDir::take(&path).unwrap());
        assert!(existing_token(&path).unwrap().is_none());
        let made = token(&path).unwrap();
        assert_eq!(made.expose_secret().len(), TOKEN_LENGTH);
        assert_eq!(token(&path).unwrap().expose_secret(), made.expose_secret());
        assert_eq!(mode(&path.join("token")), 0o600);
        std::fs::write(path.join("token"), "\n").unwrap();
        assert_ne!(token(&path).unwrap().expose_secret(), made.expose_secret());
    }

    #[test]
    fn the_secret_of_a_data_directory_is_private_and_stays_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let made = secret(directory.path()).unwrap();
        assert_eq!(secret(directory.path()).unwrap(), made);
        assert_eq!(mode(&directory.path().join(SECRET)), 0o600);
        std::fs::write(directory.path().join(SECRET), "short").unwrap();
        assert!(secret(directory.path()).is_err());
    }
}
