//! Which directories have a place among those that are watched.
//!
//! Each costs OpenCode memory, so there are only so many. When one more is needed, the one goes whose sessions were named longest
//! ago: never the root, and none where something is going on. Its sessions are remembered, and watched again with the next one
//! that is named there.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::reader::{WatchQueue, Readers};

/// Sessions of directories that are not watched any more, of all of them together. Those that were left first are forgotten.
const MAX_LEFT_SESSIONS: usize = 10_000;

#[derive(Debug)]
pub(super) struct Directories {
    root: String,
    most: usize,
    watched: HashMap<String, Slot>,
    /// Each with its sessions, the one first that was left first.
    left: VecDeque<(String, Vec<String>)>,
    now: u64,
    /// One line for each time that there is no place, not one for each session.
    is_full: bool,
}

#[derive(Debug)]
struct Slot {
    used: u64,
    is_active: Arc<AtomicBool>,
}

/// A directory's place.
#[derive(Debug)]
pub(super) enum WatchSlot {
    /// Nothing is watched here.
    Off,
    /// There is none for one more.
    None,
    /// It had it before.
    Old,
    New {
        queue: WatchQueue,
        /// To be set while the directory is not to be left.
        is_active: Arc<AtomicBool>,
    },
}

impl Directories {
    pub(super) fn new(root: String, most: usize) -> Self {
        Self { root, most, watched: HashMap::new(), left: VecDeque::new(), now: 0, is_full: false }
    }

    /// For those that are named together: they do not drive each other out.
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
            return WatchSlot::Old;
        }
        if self.most == 0 {
            return WatchSlot::Off;
        }
        if !self.has_room(directory) && !self.make_room(now, readers) {
            self.note_full();
            return WatchSlot::None;
        }
        self.is_full = false;
        let is_active = Arc::<AtomicBool>::default();
        self.watched.insert(directory.to_owned(), Slot { used: now, is_active: Arc::clone(&is_active) });
        let queue = readers.watch(directory);
        if let Some(at) = self.left.iter().position(|(left, _)| left == directory)
            && let Some((_, sessions)) = self.left.remove(at)
        {
            for session in sessions {
                readers.watch_session(directory, &session, false);
            }
        }
        WatchSlot::New { queue, is_active }
    }

    pub(super) fn leave(&mut self, gone: &str, readers: &Readers) {
        let is_gone = |directory: &str| directory != self.root && Path::new(directory).starts_with(gone);
        let watched: Vec<_> = self.watched.keys().filter(|directory| is_gone(directory)).cloned().collect();
        self.left.retain(|(directory, _)| !Path::new(directory).starts_with(gone));
        for directory in watched {
            self.watched.remove(&directory);
            readers.unwatch(&directory);
        }
    }

    /// Whether nothing is going on there, as far as is known.
    pub(super) fn is_at_rest(&self, directory: &str, readers: &Readers) -> bool {
        let is_active = |slot: &Slot| slot.is_active.load(Ordering::Acquire);
        // In this order: what waits no more was looked at, and that can be seen of the slot.
        readers.is_at_rest(directory) && !self.watched.get(directory).is_some_and(is_active)
    }

    /// How many sessions of directories that were left are remembered.
    #[cfg(test)]
    pub(super) fn left(&self) -> usize {
        self.left.iter().map(|(_, sessions)| sessions.len()).sum()
    }

    fn has_room(&self, directory: &str) -> bool {
        let others = self.watched.keys().filter(|known| **known != self.root).count();
        directory == self.root || others + 1 < self.most
    }

    /// Says whether one could be left.
    fn make_room(&mut self, now: u64, readers: &Readers) -> bool {
        let can_be_left = |(directory, slot): &(&String, &Slot)| {
            **directory != self.root && slot.used < now && self.is_at_rest(directory, readers)
        };
        let oldest = self.watched.iter().filter(can_be_left).min_by_key(|(_, slot)| slot.used);
        let Some(oldest) = oldest.map(|(directory, _)| directory.clone()) else { return false };
        self.watched.remove(&oldest);
        tracing::info!(
            directory = oldest,
            most = self.most,
            "a directory is not watched any more, because another one is"
        );
        let sessions = readers.unwatch(&oldest);
        self.left.push_back((oldest, sessions));
        while self.left.iter().map(|(_, sessions)| sessions.len()).sum::<usize>() > MAX_LEFT_SESSIONS {
            self.left.pop_front();
        }
        true
    }

    fn note_full(&mut self) {
        // With a place for the root alone it is what the operator wants.
        if self.most > 1 && !std::mem::replace(&mut self.is_full, true) {
            tracing::warn!(
                most = self.most,
                "what others prompt in one more directory is not noticed: as many as may be are watched, and none can be left \
                 now; control.watch_directories can be raised"
            );
        }
    }
}
