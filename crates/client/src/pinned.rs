//! TLS verification that accepts exactly one server certificate.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, SignatureScheme,
};

use crate::Result;
use crate::error::{Error, ErrorKind};

/// TLS settings for a client that accepts only this certificate. The names, the issuer and the expiry of the certificate are not
/// checked; the server must only prove that it has the certificate's key.
pub(crate) fn tls(pem: &str) -> Result<ClientConfig> {
    let unusable = || {
        Error::new(
            ErrorKind::Input,
            "The file with the certificate of the server holds no certificate in PEM.",
        )
    };
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| unusable())?;
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Pinned { certificate, provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config =
        config.map_err(|error| Error::new(ErrorKind::Input, format!("Cannot set up TLS: {error}.")))?;
    Ok(config.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth())
}

#[derive(Debug)]
struct Pinned {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if *end_entity == self.certificate {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(TlsError::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// An explanation of a TLS failure, if its cause is one that a person can remove.
pub(crate) fn explain(cause: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    use tokio_rustls::rustls::AlertDescription;

    let mut cause = cause;
    // Unwrap first: `source()` of such an error skips the wrapped error and returns the wrapped error's source.
    while let Some(wrapped) = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
        cause = wrapped;
    }
    match cause.downcast_ref::<TlsError>()? {
        TlsError::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => Some(
            "it shows another certificate than that in the file of the gateway, which may have changed since the gateway read it",
        ),
        TlsError::AlertReceived(AlertDescription::CertificateRequired) => {
            Some("it requires a client certificate, and these commands have none")
        }
        _ => None,
    }
}
