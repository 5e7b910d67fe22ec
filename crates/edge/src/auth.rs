//! Authenticates callers: a registry of credentials, each with a principal and its rights.
//!
//! The registry keeps digests only. A presented secret is hashed, looked up by a prefix of its digest, and compared
//! in constant time. The timing of the lookup may reveal something about the digest, but nothing about the secret.
//!
//! If a request has an `Authorization` header, only that header decides, whether its credential is valid or not. `X-API-Key` is
//! used only without `Authorization`. So a request with `Authorization` never acts for a principal that this header does not
//! name. The credential of the connection (a client certificate, or the user of a process at the other end of a unix socket) is
//! used only for requests without either header.

mod certificate;
mod rights;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use longshore_model::card::AuthScheme;
use longshore_model::{Error, ErrorKind, Principal};
use longshore_wire::v1::card::API_KEY_HEADER;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

pub use certificate::CertificateMatch;
pub use rights::{Capabilities, Capability, Rights};

/// All credentials of the gateway. Holds digests and no secrets.
#[derive(Clone)]
pub struct Credentials {
    by_prefix: HashMap<[u8; PREFIX], Vec<Known>>,
    schemes: BTreeSet<AuthScheme>,
    /// The users of this machine, by user id, whose processes need no other credential on a unix socket.
    local_users: HashMap<u32, Arc<Caller>>,
}

/// How many leading bytes of a digest select its bucket in the registry. With eight bytes, two secrets in one bucket are
/// practically impossible. If it happens, both are compared.
const PREFIX: usize = 8;

#[derive(Clone)]
struct Known {
    digest: [u8; 32],
    caller: Arc<Caller>,
}

/// The sender of a request, and the rights of its credential.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    pub principal: Principal,
    pub rights: Rights,
}

impl Caller {
    pub fn may(&self, capability: Capability) -> bool {
        self.rights.capabilities.contains(capability)
    }
}

impl Credentials {
    pub fn builder() -> CredentialsBuilder {
        CredentialsBuilder::default()
    }

    /// The schemes that at least one credential uses, in a fixed order.
    pub fn schemes(&self) -> Vec<AuthScheme> {
        self.schemes.iter().copied().collect()
    }

    /// The value of `WWW-Authenticate`.
    pub fn challenge(&self) -> String {
        let words: Vec<&str> = self.schemes.iter().map(|scheme| challenge(*scheme)).collect();
        words.join(", ")
    }

    /// The caller that the headers of a request authenticate.
    pub fn authenticate(&self, headers: &HeaderMap) -> Result<Arc<Caller>, Error> {
        presented(headers).and_then(|digest| self.find(&digest)).ok_or_else(|| {
            let problem = if has_none(headers) { "Send a credential" } else { "This credential is not valid" };
            let text = format!(
                "{problem}; WWW-Authenticate lists the schemes. The operator of this gateway prints a generated token with \
                 `longshore token`, run in the directory that the gateway serves."
            );
            Error::new(ErrorKind::Unauthenticated, text)
        })
    }

    /// The caller for a process of this user on a unix socket. `None`: the user is not configured.
    pub(crate) fn of_local_user(&self, user: u32) -> Option<Arc<Caller>> {
        self.local_users.get(&user).cloned()
    }

    fn find(&self, digest: &[u8; 32]) -> Option<Arc<Caller>> {
        let bucket = self.by_prefix.get(&prefix(digest))?;
        let known = bucket.iter().find(|known| bool::from(known.digest.ct_eq(digest)))?;
        Some(Arc::clone(&known.caller))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: usize = self.by_prefix.values().map(Vec::len).sum();
        f.debug_struct("Credentials")
            .field("schemes", &self.schemes)
            .field("count", &count)
            .finish_non_exhaustive()
    }
}

/// One credential, not validated yet.
#[derive(Clone)]
pub struct Credential {
    scheme: AuthScheme,
    /// The user name for `Basic`, the kind of match for `MutualTls`, and empty for the other schemes.
    username: String,
    secret: SecretString,
    principal: String,
    rights: Rights,
}

impl Credential {
    pub fn bearer(token: SecretString, principal: impl Into<String>) -> Self {
        Self::new(AuthScheme::Bearer, String::new(), token, principal.into())
    }

    /// The principal of a basic credential is its username.
    pub fn basic(username: impl Into<String>, password: SecretString) -> Self {
        let username = username.into();
        Self::new(AuthScheme::Basic, username.clone(), password, username)
    }

    pub fn api_key(key: SecretString, principal: impl Into<String>) -> Self {
        Self::new(AuthScheme::ApiKey, String::new(), key, principal.into())
    }

    /// A client certificate. It counts only on a listener that requests client certificates.
    pub fn certificate(certificate: &CertificateMatch, principal: impl Into<String>) -> Self {
        let (kind, value) = certificate.parts();
        Self::new(AuthScheme::MutualTls, kind.to_owned(), value.into(), principal.into())
    }

    /// Replaces the default rights of the credential's scheme.
    #[must_use]
    pub fn with_rights(self, rights: Rights) -> Self {
        Self { rights, ..self }
    }

    fn new(scheme: AuthScheme, username: String, secret: SecretString, principal: String) -> Self {
        Self { scheme, username, secret, principal, rights: Rights::default_for_scheme(scheme) }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("scheme", &self.scheme)
            .field("principal", &self.principal)
            .field("rights", &self.rights)
            .finish_non_exhaustive()
    }
}

/// Collects credentials. [`CredentialsBuilder::build`] validates them.
#[derive(Default)]
pub struct CredentialsBuilder {
    given: Vec<Credential>,
    local_users: Vec<(u32, Caller)>,
}

impl CredentialsBuilder {
    #[must_use]
    pub fn with(mut self, credential: Credential) -> Self {
        self.given.push(credential);
        self
    }

    #[must_use]
    pub fn bearer(self, token: SecretString, principal: impl Into<String>) -> Self {
        self.with(Credential::bearer(token, principal))
    }

    #[must_use]
    pub fn basic(self, username: impl Into<String>, password: SecretString) -> Self {
        self.with(Credential::basic(username, password))
    }

    #[must_use]
    pub fn api_key(self, key: SecretString, principal: impl Into<String>) -> Self {
        self.with(Credential::api_key(key, principal))
    }

    /// Lets processes of this user (by user id) act for the principal on a unix socket.
    #[must_use]
    pub fn local_user(mut self, user: u32, principal: &str, rights: Rights) -> Self {
        self.local_users.push((user, Caller { principal: Principal::new(principal), rights }));
        self
    }

    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    pub fn build(self) -> Result<Credentials, CredentialsError> {
        let mut credentials =
            Credentials { by_prefix: HashMap::new(), schemes: BTreeSet::new(), local_users: HashMap::new() };
        for (user, caller) in self.local_users {
            let known = credentials.local_users.entry(user).or_insert_with(|| Arc::new(caller.clone()));
            if **known != caller {
                let refused = "is listed twice, with different principals or rights; keep one of them";
                return Err(CredentialsError::new(format!("the user {user}"), refused));
            }
        }
        for (index, given) in self.given.into_iter().enumerate() {
            let refused = |what| CredentialsError::new(format!("credential {}", index + 1), what);
            check(&given).map_err(refused)?;
            let digest = digest(given.scheme, &given.username, given.secret.expose_secret().as_bytes());
            let caller = Caller { principal: Principal::new(&given.principal), rights: given.rights };
            match credentials.find(&digest) {
                Some(other) if *other == caller => continue,
                Some(other) if other.principal == caller.principal => {
                    return Err(refused(
                        "has the same secret as another one with other rights; keep one of them",
                    ));
                }
                Some(_) => {
                    return Err(refused(
                        "has the same secret as another principal's; give each a secret of its own",
                    ));
                }
                None => {}
            }
            credentials.schemes.insert(given.scheme);
            let known = Known { digest, caller: Arc::new(caller) };
            credentials.by_prefix.entry(prefix(&digest)).or_default().push(known);
        }
        if credentials.by_prefix.is_empty() {
            return Err(CredentialsError::new("credentials", "needs at least one that is enabled"));
        }
        Ok(credentials)
    }
}

impl fmt::Debug for CredentialsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialsBuilder").field("count", &self.given.len()).finish_non_exhaustive()
    }
}

/// An error in a configured credential. Never contains a secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CredentialsError {
    subject: String,
    problem: String,
}

impl CredentialsError {
    fn new(subject: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { subject: subject.into(), problem: problem.into() }
    }
}

impl fmt::Display for CredentialsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.subject, self.problem)
    }
}

impl std::error::Error for CredentialsError {}

fn challenge(scheme: AuthScheme) -> &'static str {
    match scheme {
        AuthScheme::Bearer => "Bearer",
        AuthScheme::Basic => "Basic realm=\"longshore\"",
        AuthScheme::ApiKey => "ApiKey",
        AuthScheme::MutualTls => "ClientCertificate",
    }
}

fn check(given: &Credential) -> Result<(), &'static str> {
    if given.secret.expose_secret().is_empty() {
        return Err("has an empty secret");
    }
    if given.secret.expose_secret().trim() != given.secret.expose_secret()
        && given.scheme != AuthScheme::Basic
    {
        // The value of a header is trimmed before it is compared, so such a secret could never match.
        return Err("has white space around its secret");
    }
    if given.principal.is_empty() {
        return Err("has an empty principal");
    }
    if given.scheme == AuthScheme::Basic && given.username.contains(':') {
        return Err("has a ':' in its username, which basic authentication cannot carry");
    }
    Ok(())
}

/// Whether the headers of a request contain no credential.
pub(crate) fn has_none(headers: &HeaderMap) -> bool {
    !headers.contains_key(AUTHORIZATION) && !headers.contains_key(API_KEY_HEADER)
}

/// The digest of the secret that the request presents. `None`: there is no secret, or the header is malformed.
fn presented(headers: &HeaderMap) -> Option<[u8; 32]> {
    if headers.contains_key(AUTHORIZATION) {
        return presented_authorization(single(headers, AUTHORIZATION.as_str())?);
    }
    let key = single(headers, API_KEY_HEADER)?.trim_ascii();
    if key.is_empty() { None } else { Some(digest(AuthScheme::ApiKey, "", key)) }
}

fn presented_authorization(value: &[u8]) -> Option<[u8; 32]> {
    let value = value.trim_ascii();
    let end = value.iter().position(|byte| *byte == b' ')?;
    let (scheme, rest) = (&value[..end], value[end..].trim_ascii());
    if rest.is_empty() {
        return None;
    }
    if scheme.eq_ignore_ascii_case(b"bearer") {
        Some(digest(AuthScheme::Bearer, "", rest))
    } else if scheme.eq_ignore_ascii_case(b"basic") {
        let decoded = String::from_utf8(STANDARD.decode(rest).ok()?).ok()?;
        let (username, password) = decoded.split_once(':')?;
        if username.is_empty() || password.is_empty() {
            return None;
        }
        Some(digest(AuthScheme::Basic, username, password.as_bytes()))
    } else {
        None
    }
}

/// The only value of a header. A header that occurs twice is malformed, because it is unclear which value counts.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    if values.next().is_some() { None } else { Some(first.as_bytes()) }
}

/// The digest of a secret. It covers the scheme too, so that a token is not accepted as an API key or a password.
fn digest(scheme: AuthScheme, username: &str, secret: &[u8]) -> [u8; 32] {
    let tag: &[u8] = match scheme {
        AuthScheme::Bearer => b"bearer\0",
        AuthScheme::Basic => b"basic\0",
        AuthScheme::ApiKey => b"api_key\0",
        AuthScheme::MutualTls => b"certificate\0",
    };
    let mut hash = Sha256::new();
    hash.update(tag);
    hash.update(username.as_bytes());
    hash.update(b"\0");
    hash.update(secret);
    hash.finalize().into()
}

fn prefix(digest: &[u8; 32]) -> [u8; PREFIX] {
    let mut prefix = [0; PREFIX];
    prefix.copy_from_slice(&digest[..PREFIX]);
    prefix
}

#[cfg(test)]
mod tests;
