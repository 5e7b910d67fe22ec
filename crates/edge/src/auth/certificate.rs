//! Recognizes callers by the client certificate of their TLS connection.

use std::fmt::Write as _;
use std::sync::Arc;

use longshore_model::card::AuthScheme;
use sha2::{Digest, Sha256};
use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::{Caller, Credentials, digest};

/// How a credential recognizes a certificate. The certificate must also be issued by an authority that the listener trusts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CertificateMatch {
    /// The SHA-256 of the certificate, in lower case and without colons.
    Fingerprint(String),
    /// A subject alternative name: a DNS name or a URI.
    Name(String),
}

impl CertificateMatch {
    /// A fingerprint as `openssl x509 -fingerprint -sha256` prints it. Colons and the case of letters do not matter.
    pub fn fingerprint(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|c| *c != ':').map(|c| c.to_ascii_lowercase()).collect();
        let is_sha256 = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_sha256.then_some(Self::Fingerprint(digits))
    }

    /// A DNS name or a URI. The case of a DNS name does not matter.
    pub fn name(text: &str) -> Option<Self> {
        let is_name = !text.is_empty() && text.chars().all(|c| !c.is_whitespace() && !c.is_control());
        is_name.then(|| Self::Name(canonical_name(text)))
    }

    /// The kind and the value, in the form in which the registry of credentials stores them.
    pub fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Fingerprint(digits) => ("fingerprint", digits),
            Self::Name(name) => ("name", name),
        }
    }
}

fn fingerprint_of(certificate: &[u8]) -> String {
    let mut digits = String::with_capacity(64);
    for byte in Sha256::digest(certificate) {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

fn canonical_name(name: &str) -> String {
    if name.contains(':') { name.to_owned() } else { name.to_ascii_lowercase() }
}

impl Credentials {
    /// The caller whose credential matches this certificate, which the listener has verified. `None`: no credential matches, or
    /// the names of the certificate belong to several callers.
    pub(crate) fn of_certificate(&self, certificate: &CertificateDer<'_>) -> Option<Arc<Caller>> {
        let fingerprint = CertificateMatch::Fingerprint(fingerprint_of(certificate));
        if let Some(caller) = self.matching(&fingerprint) {
            return Some(caller);
        }
        let parsed = EndEntityCert::try_from(certificate).ok()?;
        let names = parsed.valid_dns_names().chain(parsed.valid_uri_names());
        let mut callers =
            names.filter_map(|name| self.matching(&CertificateMatch::Name(canonical_name(name))));
        let first = callers.next()?;
        callers.all(|caller| caller == first).then_some(first)
    }

    fn matching(&self, certificate: &CertificateMatch) -> Option<Arc<Caller>> {
        let (kind, value) = certificate.parts();
        self.find(&digest(AuthScheme::MutualTls, kind, value.as_bytes()))
    }
}
