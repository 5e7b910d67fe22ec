//! Limits the bytes that wait to be written to an agent.
//!
//! A prompt with files can have more than a hundred megabytes, and the agent may read slowly. So a line takes a share of the limit
//! before it is queued, and returns it when it is written. A line longer than the limit waits until no other long line waits. Short
//! lines take no share: their number is limited already, and an answer or a cancel must not wait behind a prompt.

use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, TryAcquireError};

/// The longest line, in bytes, that takes no share of the limit.
pub(super) const SHORT_LINE: usize = 16 * 1024;

/// A share of the limit, which is empty for a short line. Dropping it returns the share.
pub(crate) type Room = OwnedSemaphorePermit;

/// The limit: see the module. Clones share it.
#[derive(Clone)]
pub(super) struct Unwritten {
    most: usize,
    free: Arc<Semaphore>,
}

impl Unwritten {
    pub(super) fn new(most: usize) -> Self {
        Self { most, free: Arc::new(Semaphore::new(most)) }
    }

    /// Waits until a line of this many bytes may be queued. Fails if the connection is over.
    pub(super) async fn room(&self, bytes: usize) -> Result<Room, AcquireError> {
        Arc::clone(&self.free).acquire_many_owned(self.share(bytes)).await
    }

    pub(super) fn try_room(&self, bytes: usize) -> Result<Room, TryAcquireError> {
        Arc::clone(&self.free).try_acquire_many_owned(self.share(bytes))
    }

    /// Makes all waits for room fail, because the connection is over.
    pub(super) fn close(&self) {
        self.free.close();
    }

    fn share(&self, bytes: usize) -> u32 {
        if bytes <= SHORT_LINE {
            return 0;
        }
        u32::try_from(bytes.min(self.most)).unwrap_or(u32::MAX)
    }
}
