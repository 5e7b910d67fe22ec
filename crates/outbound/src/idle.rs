//! Idle connections that are kept for the next request to the same receiver.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::connection::Connection;
use crate::guard::Scheme;
use crate::spelling::Target;

/// The most idle connections. With more, the oldest one is closed.
const MOST: usize = 64;

/// How long an idle connection is kept. It is shorter than a minute, after which many receivers close theirs.
const LONGEST: Duration = Duration::from_secs(30);

/// The key of an idle connection: it is reused only for the same host name at the same checked address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) scheme: Scheme,
    pub(crate) host: String,
    pub(crate) address: SocketAddr,
}

impl Place {
    pub(crate) fn new(target: &Target, address: SocketAddr) -> Self {
        Self { scheme: target.scheme(), host: target.host().to_owned(), address }
    }
}

/// The idle connections, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Idle(Mutex<VecDeque<(Place, Instant, Connection)>>);

impl Idle {
    pub(crate) fn put(&self, place: Place, connection: Connection) {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= MOST {
            idle.pop_front();
        }
        idle.push_back((place, Instant::now(), connection));
    }

    /// Removes and returns an open connection to the place, if there is one.
    pub(crate) fn take(&self, place: &Place) -> Option<Connection> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while idle.front().is_some_and(|(_, since, _)| since.elapsed() >= LONGEST) {
            idle.pop_front();
        }
        while let Some(at) = idle.iter().rposition(|(there, ..)| there == place) {
            let (_, _, mut connection) = idle.remove(at)?;
            if connection.is_open() {
                return Some(connection);
            }
        }
        None
    }
}
