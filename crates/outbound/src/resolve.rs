//! Finds the addresses of a host.

use std::collections::HashSet;
use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::BoxFuture;

/// The most names that are resolved at the same time. Each lookup occupies a thread until the system's resolver gives up. Further
/// lookups wait, which counts against the connect timeout of their call.
const MAX_LOOKUPS: usize = 64;

/// The most lookups at the same time of names that are not known to resolve quickly. Further ones wait in the same way.
const MAX_UNPROVEN: usize = 32;

/// The time within which a lookup counts as quick. Slow lookups are limited, because many of them at once would take all threads.
const QUICK: Duration = Duration::from_secs(1);

/// The most names that are remembered as quick. Further names count as unknown.
const MAX_PROVEN: usize = 4096;

pub trait Resolver: Send + Sync + Debug {
    /// All addresses of a host name, in the order in which to try them.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// Resolves names with the system's resolver (`getaddrinfo`), like other programs on the machine.
#[derive(Clone, Debug, Default)]
pub struct SystemResolver {
    lookups: Arc<Lookups>,
}

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let lookup =
            |host: &str| (host, 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect());
        Box::pin(Arc::clone(&self.lookups).run(host.to_owned(), lookup))
    }
}

/// Limits the lookups. Callers choose the names, so names that do not resolve must leave threads for the others.
#[derive(Debug)]
struct Lookups {
    all: Arc<Semaphore>,
    unproven: Arc<Semaphore>,
    /// The names whose last lookup was quick.
    proven: Mutex<HashSet<String>>,
}

impl Default for Lookups {
    fn default() -> Self {
        Self {
            all: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            unproven: Arc::new(Semaphore::new(MAX_UNPROVEN)),
            proven: Mutex::default(),
        }
    }
}

impl Lookups {
    async fn run<F>(self: Arc<Self>, host: String, lookup: F) -> io::Result<Vec<IpAddr>>
    where
        F: FnOnce(&str) -> io::Result<Vec<IpAddr>> + Send + 'static,
    {
        let is_proven = self.proven().contains(&host);
        let share = if is_proven {
            None
        } else {
            Some(Arc::clone(&self.unproven).acquire_owned().await.map_err(io::Error::other)?)
        };
        let slot = Arc::clone(&self.all).acquire_owned().await.map_err(io::Error::other)?;
        let lookup = move || {
            // The lookup cannot be aborted. It keeps its permits even if its caller has given up.
            let _held = (share, slot);
            let begun = Instant::now();
            let found = lookup(&host);
            self.note(host, found.is_ok() && begun.elapsed() < QUICK);
            found
        };
        tokio::task::spawn_blocking(lookup).await.map_err(io::Error::other)?
    }

    fn note(&self, host: String, is_proven: bool) {
        let mut proven = self.proven();
        if !is_proven {
            proven.remove(&host);
        } else if proven.len() < MAX_PROVEN {
            proven.insert(host);
        }
    }

    fn proven(&self) -> MutexGuard<'_, HashSet<String>> {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn names_that_do_not_resolve_leave_room_for_those_that_did() {
        let lookups = Arc::new(Lookups::default());
        let good = || Arc::clone(&lookups).run("good".to_owned(), |_| Ok(vec![Ipv4Addr::LOCALHOST.into()]));
        good().await.unwrap();
        let (release, silent) = mpsc::sync_channel::<()>(0);
        let silent = Arc::new(Mutex::new(silent));
        let mut hanging: Vec<_> = (0..MAX_LOOKUPS)
            .map(|number| {
                let silent = Arc::clone(&silent);
                Box::pin(Arc::clone(&lookups).run(format!("bad-{number}"), move |_| {
                    let _ = silent.lock().unwrap().recv();
                    Err(io::ErrorKind::TimedOut.into())
                }))
            })
            .collect();
        // Poll each lookup once, so that it takes a slot or waits for one.
        assert!(hanging.iter_mut().all(|lookup| lookup.now_or_never().is_none()));
        tokio::time::timeout(Duration::from_secs(10), good()).await.expect("there is room").unwrap();
        drop(release);
    }
}
