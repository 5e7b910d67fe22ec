//! Finds the addresses of a host.

use std::fmt::Debug;
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::BoxFuture;

/// How many names are looked up at the same time. Each lookup occupies a thread, until the system's resolver gives up. Further ones
/// wait; that counts against the connect timeout of their call.
const MAX_LOOKUPS: usize = 64;

pub trait Resolver: Send + Sync + Debug {
    /// All addresses of a host name, in the order in which they should be tried.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// Asks the system (`getaddrinfo`), as the other programs of the machine do.
#[derive(Clone, Debug)]
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)) }
    }
}

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let (lookups, host) = (Arc::clone(&self.lookups), host.to_owned());
        Box::pin(async move {
            let slot = lookups.acquire_owned().await.map_err(io::Error::other)?;
            let lookup = move || {
                // The lookup goes on when its caller has given up, so it keeps the slot.
                let _slot = slot;
                (host.as_str(), 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect())
            };
            tokio::task::spawn_blocking(lookup).await.map_err(io::Error::other)?
        })
    }
}
