//! Chooses which directories are watched.
//!
//! Each watched directory costs OpenCode memory, so their number is limited. When another one is needed, the least recently used
//! directory is evicted: the one whose sessions no caller has used for the longest time. The workspace is never evicted, and
//! neither is a directory in which a turn runs. The sessions of an evicted directory are remembered, and watched again when a
//! caller uses one of them.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::reader::{Readers, WatchQueue};

/// Maximum number of sessions that are remembered for all evicted directories together. Beyond it, the directories that were
/// evicted first are forgotten.
const MAX_EVICTED_SESSIONS: usize = 10_000;

#[derive(Debug)]
pub(super) struct Directories {
    /// The workspace root.
    root: String,
    max: usize,
    watched: HashMap<String, Slot>,
    /// Evicted directories with their sessions, in order of eviction.
    evicted: VecDeque<(String, Vec<String>)>,
    now: u64,
    /// Whether the lack of a slot was logged. So there is one log line each time the slots run out, and not one per session.
    is_full: bool,
}

#[derive(Debug)]
struct Slot {
    used: u64,
    is_active: Arc<AtomicBool>,
}

/// The result of a request for a slot.
#[derive(Debug)]
pub(super) enum WatchSlot {
    /// Watching is disabled.
    Disabled,
    /// All slots are taken, and none can be freed.
    Full,
    /// The directory was already watched.
    Existing,
    New {
        queue: WatchQueue,
        /// The watcher sets this while the directory must not be evicted.
        is_active: Arc<AtomicBool>,
    },
}

impl Directories {
    pub(super) fn new(root: String, max: usize) -> Self {
        Self { root, max, watched: HashMap::new(), evicted: VecDeque::new(), now: 0, is_full: false }
    }

    /// A logical time. Directories that are named at the same time do not evict each other.
    pub(super) fn now(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    pub(super) fn contains(&self, directory: &str) -> bool {
        self.watched.contains_key(directory)
    }

    pub(super) fn take(&mut self, directory: &str, now: u64, readers: &Arc<Readers>) -> WatchSlot {
        if let Some(slot) = self.watched.get_mut(directory) {
            slot.used = now;
            return WatchSlot::Existing;
        }
        if self.max == 0 {
            return WatchSlot::Disabled;
        }
        if !self.has_room(directory) && !self.evict_oldest(now, readers) {
            self.warn_full();
            return WatchSlot::Full;
        }
        self.is_full = false;
        let is_active = Arc::<AtomicBool>::default();
        self.watched.insert(directory.to_owned(), Slot { used: now, is_active: Arc::clone(&is_active) });
        let queue = readers.watch(directory);
        if let Some(at) = self.evicted.iter().position(|(evicted, _)| evicted == directory)
            && let Some((_, sessions)) = self.evicted.remove(at)
        {
            for session in sessions {
                readers.watch_session(directory, &session, false);
            }
        }
        WatchSlot::New { queue, is_active }
    }

    pub(super) fn remove(&mut self, gone: &str, readers: &Readers) {
        let is_gone = |directory: &str| directory != self.root && Path::new(directory).starts_with(gone);
        let watched: Vec<_> = self.watched.keys().filter(|directory| is_gone(directory)).cloned().collect();
        self.evicted.retain(|(directory, _)| !Path::new(directory).starts_with(gone));
        for directory in watched {
            self.watched.remove(&directory);
            readers.unwatch(&directory);
        }
    }

    /// Whether no turn runs in the directory, as far as is known.
    pub(super) fn is_idle(&self, directory: &str, readers: &Readers) -> bool {
        let is_active = |slot: &Slot| slot.is_active.load(Ordering::Acquire);
        // The order matters: an entry that is no longer pending was handled, and `is_active` shows the result.
        readers.is_idle(directory) && !self.watched.get(directory).is_some_and(is_active)
    }

    /// How many sessions of evicted directories are remembered.
    #[cfg(test)]
    pub(super) fn evicted_sessions(&self) -> usize {
        self.evicted.iter().map(|(_, sessions)| sessions.len()).sum()
    }

    fn has_room(&self, directory: &str) -> bool {
        let others = self.watched.keys().filter(|known| **known != self.root).count();
        directory == self.root || others + 1 < self.max
    }

    /// Stops watching the directory if it is idle. Returns whether it was idle.
    pub(super) fn release(&mut self, directory: &str, readers: &Readers) -> bool {
        if directory == self.root || !self.is_idle(directory, readers) {
            return false;
        }
        if self.watched.contains_key(directory) {
            self.evict(directory.to_owned(), readers);
        }
        true
    }

    /// Evicts the least recently used directory. Returns whether one could be evicted.
    fn evict_oldest(&mut self, now: u64, readers: &Readers) -> bool {
        let is_evictable = |(directory, slot): &(&String, &Slot)| {
            **directory != self.root && slot.used < now && self.is_idle(directory, readers)
        };
        let oldest = self.watched.iter().filter(is_evictable).min_by_key(|(_, slot)| slot.used);
        let Some(oldest) = oldest.map(|(directory, _)| directory.clone()) else { return false };
        tracing::info!(
            directory = oldest,
            most = self.max,
            "stopped watching a directory because another one needs its slot"
        );
        self.evict(oldest, readers);
        true
    }

    fn evict(&mut self, directory: String, readers: &Readers) {
        self.watched.remove(&directory);
        let sessions = readers.unwatch(&directory);
        self.evicted.push_back((directory, sessions));
        while self.evicted.iter().map(|(_, sessions)| sessions.len()).sum::<usize>() > MAX_EVICTED_SESSIONS {
            self.evicted.pop_front();
        }
    }

    fn warn_full(&mut self) {
        // With a single slot, which the workspace needs, the operator does not want other directories to be watched.
        if self.max > 1 && !std::mem::replace(&mut self.is_full, true) {
            tracing::warn!(
                most = self.max,
                "prompts of other clients in one more directory are not noticed: the maximum number of directories is \
                 watched, and none can be evicted now; raise control.watch_directories to watch more"
            );
        }
    }
}
