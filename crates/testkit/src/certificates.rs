//! Certificates for tests of TLS, made when a test needs them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};

/// An authority that only tests trust.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// In PEM.
    pub certificate: String,
}

/// A certificate and its key, both in PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = named(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).expect("the parameters are valid").pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// A certificate for a server on this machine.
    pub fn server(&self) -> Identity {
        let params = named("server", &["localhost", "127.0.0.1", "::1"]);
        self.issue(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A client certificate with these DNS names and URIs.
    pub fn client(&self, names: &[&str]) -> Identity {
        self.issue(named("client", names), ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A client certificate that was valid until the year 2000.
    pub fn expired_client(&self, names: &[&str]) -> Identity {
        let mut params = named("client", names);
        (params.not_before, params.not_after) = (date_time_ymd(1999, 1, 1), date_time_ymd(2000, 1, 1));
        self.issue(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(&self, mut params: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Identity {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("the parameters are valid");
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Identity {
    /// The certificate in DER.
    pub fn der(&self) -> Vec<u8> {
        let lines: String = self.certificate.lines().filter(|line| !line.starts_with("-----")).collect();
        STANDARD.decode(lines).expect("the certificate is PEM")
    }
}

/// Names with `://` are URIs; the others are DNS names and addresses.
fn named(common: &str, names: &[&str]) -> CertificateParams {
    let (uris, others): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.contains("://"));
    let others: Vec<String> = others.into_iter().map(str::to_owned).collect();
    let mut params = CertificateParams::new(others).expect("the names are valid");
    let uri = |uri: &str| SanType::URI(uri.try_into().expect("the URI is ASCII"));
    params.subject_alt_names.extend(uris.into_iter().map(uri));
    params.distinguished_name.push(DnType::CommonName, common);
    params
}
