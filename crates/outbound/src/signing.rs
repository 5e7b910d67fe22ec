//! Signs a request according to [Standard Webhooks](https://www.standardwebhooks.com), with a secret that both sides know.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretSlice};
use sha2::Sha256;

pub const ID_HEADER: &str = "webhook-id";
/// The header with the time of the signature, in seconds since 1970.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
pub const SIGNATURE_HEADER: &str = "webhook-signature";

/// The prefix of a secret.
const PREFIX: &str = "whsec_";

/// The lengths that the specification allows for a secret, in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 24..=64;

/// The secret of one receiver.
#[derive(Clone, Debug)]
pub struct SigningSecret(SecretSlice<u8>);

/// An error: the text is no secret of Standard Webhooks. The error does not contain the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidSecret;

impl fmt::Display for InvalidSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the secret must be whsec_ and the base64 of 24 to 64 bytes")
    }
}

impl std::error::Error for InvalidSecret {}

impl SigningSecret {
    /// Reads a secret in the form `whsec_…`.
    pub fn parse(text: &str) -> Result<Self, InvalidSecret> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(InvalidSecret)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| InvalidSecret)?;
        if !LENGTHS.contains(&bytes.len()) {
            return Err(InvalidSecret);
        }
        Ok(Self(bytes.into()))
    }

    /// The value of [`SIGNATURE_HEADER`]. `id` and `timestamp` must be the values of [`ID_HEADER`] and [`TIMESTAMP_HEADER`], and
    /// `body` must be exactly the body that is sent.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.0.expose_secret()).expect("HMAC takes keys of any length");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_matches_the_example_of_the_specification() {
        let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature =
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_has_the_prefix_and_24_to_64_bytes_and_is_never_shown() {
        let of = |length: usize| format!("whsec_{}", STANDARD.encode(vec![7; length]));
        for text in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!!", &of(23), &of(65)] {
            assert_eq!(SigningSecret::parse(text).err(), Some(InvalidSecret), "{text}");
        }
        for length in [24, 64] {
            let secret = SigningSecret::parse(&of(length)).unwrap();
            let shown = format!("{secret:?}");
            assert!(!shown.contains('7') && !shown.contains("Bwc"), "{shown}");
        }
    }
}
