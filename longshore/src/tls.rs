//! Reads the files for TLS at the start, and again whenever they change.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use longshore_edge::{ClientAuthority, Tls, TlsParts};
use secrecy::SecretString;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::config::file;
use crate::config::listen::TlsPlan;
use crate::config::setting::Setting;
use crate::config::table;

/// How often the gateway checks whether a file has changed.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// The most bytes of a file. A larger file cannot be a certificate or a key.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The TLS configuration of the listener, and the files from which it was read.
#[derive(Debug)]
pub(crate) struct TlsFiles {
    plan: TlsPlan,
    tls: Tls,
    /// The versions of the files that were read last. Empty if they could not be used: the reason, such as a lack of file
    /// descriptors, may disappear without a change of the files, so they are read again.
    seen: Vec<Option<Version>>,
    /// The last warning, so that each is logged only once.
    warned: Option<String>,
}

/// Identifies the version of a file. The time is that of the last change of content, owner or mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Version {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

/// The contents of the files.
struct Contents {
    certificate: String,
    key: SecretString,
    authorities: Option<String>,
}

impl TlsFiles {
    pub(crate) fn load(plan: &TlsPlan) -> anyhow::Result<Self> {
        // Get the versions before reading the files, so that a change during the reading is noticed later.
        let seen = versions(plan);
        let contents = Contents::read(plan)?;
        let tls = Tls::new(&contents.parts(plan)).context("TLS cannot be used")?;
        Ok(Self { plan: plan.clone(), tls, seen, warned: None })
    }

    /// The file with the certificate of the gateway.
    pub(crate) fn certificate(&self) -> &Path {
        &self.plan.certificate
    }

    pub(crate) fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// Reads the files again whenever they change or `reload` is notified.
    pub(crate) async fn follow(mut self, reload: Arc<Notify>, stopping: CancellationToken) {
        loop {
            let is_asked = tokio::select! {
                () = stopping.cancelled() => return,
                () = reload.notified() => true,
                () = tokio::time::sleep(CHECK_EVERY) => false,
            };
            let checked = tokio::task::spawn_blocking(move || {
                self.check(is_asked);
                self
            });
            let Ok(checked) = checked.await else { return };
            self = checked;
        }
    }

    fn check(&mut self, is_asked: bool) {
        let now = versions(&self.plan);
        if now == self.seen && !is_asked {
            return;
        }
        self.seen = now;
        let problem = self.reload().err().map(|error| format!("{error:#}"));
        match &problem {
            None => tracing::info!("the files for TLS were read again; new connections use them"),
            Some(error) => {
                self.seen.clear();
                if is_asked || self.warned != problem {
                    tracing::warn!(
                        error,
                        "the changed files for TLS cannot be used; new connections use the previous ones"
                    );
                }
            }
        }
        self.warned = problem;
    }

    fn reload(&self) -> anyhow::Result<()> {
        let contents = Contents::read(&self.plan)?;
        Ok(self.tls.replace(&contents.parts(&self.plan))?)
    }
}

impl Contents {
    fn read(plan: &TlsPlan) -> anyhow::Result<Self> {
        let authorities = plan.clients.as_ref().map(|clients| &clients.authorities);
        Ok(Self {
            certificate: read(&table::TLS_CERTIFICATE, &plan.certificate, false)?,
            key: read(&table::TLS_KEY, &plan.key, true)?.into(),
            authorities: authorities.map(|path| read(&table::TLS_CLIENT_CA, path, false)).transpose()?,
        })
    }

    fn parts(&self, plan: &TlsPlan) -> TlsParts<'_> {
        let is_required = plan.clients.as_ref().is_some_and(|clients| clients.are_required);
        TlsParts {
            certificate: &self.certificate,
            key: &self.key,
            clients: self
                .authorities
                .as_deref()
                .map(|certificates| ClientAuthority { certificates, is_required }),
        }
    }
}

/// Reads a file. Fails if others can change it or, if it is secret, can read it.
fn read(setting: &Setting, path: &Path, is_secret: bool) -> anyhow::Result<String> {
    let place = || format!("{} ({})", setting.key, path.display());
    let file = File::open(path).with_context(|| format!("{}: the file cannot be opened", place()))?;
    let metadata = file.metadata().with_context(|| format!("{}: the file cannot be read", place()))?;
    let user = rustix::process::geteuid().as_raw();
    let secret = is_secret.then_some("a private key");
    if let Some(reason) = file::exposed(user, metadata.uid(), metadata.mode(), secret) {
        bail!("{}: the file {reason}", place());
    }
    if metadata.len() > MAX_FILE_BYTES {
        bail!(
            "{}: the file is larger than {MAX_FILE_BYTES} bytes, so it is no certificate and no key",
            place()
        );
    }
    let mut text = String::new();
    let read = file.take(MAX_FILE_BYTES).read_to_string(&mut text);
    read.with_context(|| format!("{}: the file cannot be read as PEM", place()))?;
    Ok(text)
}

fn versions(plan: &TlsPlan) -> Vec<Option<Version>> {
    let authorities = plan.clients.as_ref().map(|clients| &clients.authorities);
    let files = [&plan.certificate, &plan.key].into_iter().chain(authorities);
    let version = |path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Version {
            device: metadata.dev(),
            inode: metadata.ino(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    };
    files.map(version).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use longshore_testkit::certificates::Authority;

    use super::*;

    #[test]
    fn files_that_could_not_be_used_are_read_again_although_they_did_not_change() {
        let directory = tempfile::tempdir().unwrap();
        let plan = TlsPlan {
            certificate: directory.path().join("pem"),
            key: directory.path().join("key"),
            clients: None,
        };
        let identity = Authority::new("test").server();
        for (path, text) in [(&plan.certificate, &identity.certificate), (&plan.key, &identity.key)] {
            std::fs::write(path, text).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        let mut files = TlsFiles::load(&plan).unwrap();
        std::fs::write(&plan.certificate, "broken").unwrap();
        files.check(false);
        assert_ne!(files.seen, versions(&plan));
        std::fs::write(&plan.certificate, &identity.certificate).unwrap();
        files.check(false);
        assert_eq!(files.seen, versions(&plan));
    }
}
