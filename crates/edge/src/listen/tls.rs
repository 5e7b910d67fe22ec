//! TLS: the certificate of the gateway, the rules for client certificates, and the handshake.
//!
//! Supports TLS 1.2 and 1.3 with the default cipher suites of rustls. The certificate can be replaced while the gateway serves: new
//! connections use the new certificate, and open connections continue.

use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use secrecy::{ExposeSecret as _, SecretString};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::BUFFER_BYTES;
use super::socket::Socket;

/// The protocols that clients may select, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The contents of the TLS files.
#[derive(Debug)]
pub struct TlsParts<'a> {
    /// The certificate of the gateway, followed by the intermediate certificates, in PEM.
    pub certificate: &'a str,
    /// The private key, in PEM.
    pub key: &'a SecretString,
    /// The issuers of client certificates. `None`: clients are not asked for certificates.
    pub clients: Option<ClientAuthority<'a>>,
}

/// The issuers whose client certificates are accepted.
#[derive(Debug)]
pub struct ClientAuthority<'a> {
    /// The certificates of the issuers, in PEM.
    pub certificates: &'a str,
    /// Whether a client without a certificate is refused.
    pub is_required: bool,
}

/// The TLS of a listener. Clones share one state.
#[derive(Clone)]
pub struct Tls {
    current: Arc<RwLock<Arc<ServerConfig>>>,
}

/// The reason why the TLS files cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TlsError {
    /// This file contains no PEM certificate, or an unreadable one.
    Certificate(String),
    Key(String),
    ClientAuthority(String),
    /// Certificate and key do not belong together.
    Mismatch,
}

impl Tls {
    pub fn new(parts: &TlsParts<'_>) -> Result<Self, TlsError> {
        Ok(Self { current: Arc::new(RwLock::new(server_config(parts)?)) })
    }

    /// Uses other certificates for new connections. After an error the old ones stay in use.
    pub fn replace(&self, parts: &TlsParts<'_>) -> Result<(), TlsError> {
        let config = server_config(parts)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// Does the handshake.
    pub(super) async fn accept(&self, socket: Socket) -> io::Result<Box<TlsStream<Socket>>> {
        let config = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner));
        let limited = TlsAcceptor::from(config).accept_with(socket, |connection| {
            // This is the additional memory of a stalled reader. The default of rustls is 64 KB.
            connection.set_buffer_limit(Some(BUFFER_BYTES));
        });
        Ok(Box::new(limited.await?))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(reason) => write!(f, "the file of the certificate cannot be used: {reason}"),
            Self::Key(reason) => write!(f, "the file of the private key cannot be used: {reason}"),
            Self::ClientAuthority(reason) => {
                write!(f, "the file of the client authorities cannot be used: {reason}")
            }
            Self::Mismatch => f.write_str("the private key does not belong to the certificate"),
        }
    }
}

impl std::error::Error for TlsError {}

/// The client's certificate, verified in the handshake.
pub(super) fn client_certificate(stream: &TlsStream<Socket>) -> Option<&CertificateDer<'static>> {
    stream.get_ref().1.peer_certificates()?.first()
}

fn server_config(parts: &TlsParts<'_>) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let chain = certificates(parts.certificate).map_err(TlsError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(parts.key.expose_secret().as_bytes())
        .map_err(|error| TlsError::Key(format!("it holds no private key in PEM ({error})")))?;
    let certified = CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
        Error::InconsistentKeys(_) => TlsError::Mismatch,
        Error::InvalidCertificate(_) => TlsError::Certificate(error.to_string()),
        error => TlsError::Key(error.to_string()),
    })?;
    let mut config = {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Key(error.to_string()))?;
        let builder = match &parts.clients {
            None => builder.with_no_client_auth(),
            Some(clients) => builder.with_client_cert_verifier(verifier(clients, &provider)?),
        };
        let resolver = tokio_rustls::rustls::sign::SingleCertAndKey::from(certified);
        builder.with_cert_resolver(Arc::new(resolver))
    };
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    if parts.clients.is_some() {
        // A resumed session would skip the check of the client's certificate, which may have expired since.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(Arc::new(config))
}

fn verifier(
    clients: &ClientAuthority<'_>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(clients.certificates).map_err(TlsError::ClientAuthority)? {
        roots.add(certificate).map_err(|error| TlsError::ClientAuthority(error.to_string()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = if clients.is_required { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|error| TlsError::ClientAuthority(error.to_string()))
}

/// The certificates in a PEM file. Fails if there is none.
fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match read {
        Ok(certificates) if certificates.is_empty() => Err("it holds no certificate in PEM".to_owned()),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(format!("it holds a certificate that cannot be read ({error})")),
    }
}
