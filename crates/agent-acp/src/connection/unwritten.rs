//! The bound of the bytes that wait to be written to an agent.
//!
//! A prompt with files can have more than a hundred megabytes, and an agent reads as slowly as it likes. So a line takes its share of
//! the bound before it is queued, and frees it when it is written. A line that is longer than the bound waits until no other long
//! line does. Short lines take no share: their number is bounded, and an answer or a cancel must not wait behind a prompt.

use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, TryAcquireError};

/// The longest line that takes no share, in bytes.
pub(super) const SHORT_LINE: usize = 16 * 1024;

/// A share of the bound, maybe an empty one. Freed on drop.
pub(crate) type Room = OwnedSemaphorePermit;

/// See the module. Clones share the bound.
#[derive(Clone)]
pub(super) struct Unwritten {
    most: usize,
    free: Arc<Semaphore>,
}

impl Unwritten {
    pub(super) fn new(most: usize) -> Self {
        Self { most, free: Arc::new(Semaphore::new(most)) }
    }

    /// Waits until a line with so many bytes may be queued. Fails if the connection is over.
    pub(super) async fn room(&self, bytes: usize) -> Result<Room, AcquireError> {
        Arc::clone(&self.free).acquire_many_owned(self.share(bytes)).await
    }

    pub(super) fn try_room(&self, bytes: usize) -> Result<Room, TryAcquireError> {
        Arc::clone(&self.free).try_acquire_many_owned(self.share(bytes))
    }

    /// Tells those who wait for room that the connection is over.
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
