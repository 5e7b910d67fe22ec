//! The secrets of a data directory: the token of its gateway, and the keys that seal the secrets in the store.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use longshore_seal::KeyStorage;
use rand::distr::{Alphanumeric, SampleString as _};
use secrecy::{ExposeSecret as _, SecretString};

use super::files::{cannot_write, read, write_private};

/// The length of a generated token. 43 characters out of an alphabet of 62 hold 256 bits.
const TOKEN_LENGTH: usize = 43;

/// The file with the generated token.
pub(super) const TOKEN: &str = "token";

/// The file with the keys that seal the secrets in the store.
pub(super) const KEYS: &str = "keys";

/// The token of a data directory that exists. Generated if there is none yet.
pub(crate) fn token(path: &Path) -> anyhow::Result<SecretString> {
    if let Some(token) = existing_token(path)? {
        return Ok(token);
    }
    let file = path.join(TOKEN);
    let token = Alphanumeric.sample_string(&mut rand::rng(), TOKEN_LENGTH);
    write_private(&file, &token).with_context(|| cannot_write(&file))?;
    Ok(token.into())
}

/// The token of a data directory, if it has one.
pub(crate) fn existing_token(path: &Path) -> anyhow::Result<Option<SecretString>> {
    let token = read(&path.join(TOKEN))?;
    Ok(token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()).map(Into::into))
}

/// The keys of a data directory, in a file that only its owner can read.
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
}
