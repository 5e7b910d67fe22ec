//! Decides which certificates of receivers are trusted.

use std::fmt;
use std::sync::Arc;

use rustls_platform_verifier::Verifier;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

/// The trusted certificate authorities: those of the system and those of the operator.
#[derive(Clone)]
pub struct Trust {
    /// The TLS settings. `Err`: why no receiver can be called over TLS.
    connector: Result<TlsConnector, String>,
}

/// An error: the text is no list of certificates in PEM.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidAuthorities;

impl fmt::Display for InvalidAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the file has no certificate in PEM, or one that cannot be read")
    }
}

impl std::error::Error for InvalidAuthorities {}

impl Trust {
    /// `authorities`: certificates in PEM to trust in addition to those of the system. If the system has none, this does not fail;
    /// each call over TLS does.
    pub fn new(authorities: Option<&str>) -> Result<Self, InvalidAuthorities> {
        let mut extra = Vec::new();
        for certificate in
            authorities.into_iter().flat_map(|pem| CertificateDer::pem_slice_iter(pem.as_bytes()))
        {
            extra.push(certificate.map_err(|_| InvalidAuthorities)?);
        }
        if authorities.is_some() && extra.is_empty() {
            return Err(InvalidAuthorities);
        }
        let mut readable = tokio_rustls::rustls::RootCertStore::empty();
        let (_, broken) = readable.add_parsable_certificates(extra.iter().cloned());
        if broken > 0 {
            return Err(InvalidAuthorities);
        }
        Ok(Self { connector: connector(extra).map_err(|error| error.to_string()) })
    }

    pub(crate) fn connector(&self) -> Result<&TlsConnector, &str> {
        self.connector.as_ref().map_err(String::as_str)
    }
}

fn connector(extra: Vec<CertificateDer<'static>>) -> Result<TlsConnector, tokio_rustls::rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Verifier::new_with_extra_roots(extra, Arc::clone(&provider))?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").field("usable", &self.connector.is_ok()).finish()
    }
}
