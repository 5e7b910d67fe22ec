//! Watches the free space of the disk that holds the file.
//!
//! The write-ahead log must never take the space that its own copy needs: nothing could then be written any more, and a restart
//! would not help. So the log may take only a share of the space. If other programs fill the disk nevertheless, the store deletes a
//! reserve file. Then the log can be copied and the gateway can start.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longshore_meter::label::{Label as _, Limit};
use longshore_model::{Error, ErrorKind, Result};

use super::schema::PRIVATE;

/// How long a measured free space is used. Measuring it again takes a microsecond.
const FRESH: Duration = Duration::from_millis(100);

/// How often the store tries to make a missing reserve again.
const RESTORE_EVERY: Duration = Duration::from_mins(1);

/// The size of the reserve: this share of the free space, but not more than the log usually needs.
const RESERVE_SHARE: u64 = 8;
const MAX_RESERVE: u64 = 16 * MIB;
/// The least useful size of the reserve.
const MIN_RESERVE: u64 = 128 * 1024;

/// If the free space is less than this plus the size of the log, a start deletes the reserve.
pub(super) const START_ROOM: u64 = MIB / 2;

/// With more free space than this, the disk is not watched closely.
const PLENTY: u64 = 512 * MIB;

/// The wait before the next attempt that a refused caller is told.
const RETRY_AFTER: Duration = Duration::from_mins(1);

const MIB: u64 = 1024 * 1024;

/// The settings for watching the disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskRules {
    /// A function that returns the free bytes of the disk that holds a path, or `None` if the system does not report them. Without
    /// this function, the store does not watch its disk.
    pub free_space: Option<fn(&Path) -> Option<u64>>,
    /// The least free space, in bytes, with which new tasks are accepted. 0: no limit.
    pub floor: u64,
}

pub(super) struct Room {
    path: PathBuf,
    free_space: fn(&Path) -> Option<u64>,
    floor: u64,
    state: Mutex<State>,
}

struct State {
    looked: Option<(Instant, Space)>,
    /// When the store last made the reserve, or tried to.
    restored: Option<Instant>,
}

/// A measurement of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Space {
    pub(super) free: u64,
    /// The size of the log's file.
    pub(super) log: u64,
    /// The size of the database's file.
    pub(super) file: u64,
}

impl Space {
    /// The space that the log and its copy may share.
    pub(super) fn for_log(self) -> u64 {
        self.free.saturating_add(self.log)
    }

    pub(super) fn is_plenty(self) -> bool {
        self.free >= PLENTY
    }
}

impl Room {
    /// Starts to watch the disk. `None`: the rules have no function for the free space.
    pub(super) fn new(path: &Path, rules: DiskRules) -> Option<Arc<Self>> {
        let state = Mutex::new(State { looked: None, restored: None });
        let free_space = rules.free_space?;
        Some(Arc::new(Self { path: path.to_owned(), free_space, floor: rules.floor, state }))
    }

    /// The space now or up to [`FRESH`] ago. `None`: unknown.
    pub(super) fn space(&self) -> Option<Space> {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, space)) = state.looked
            && now.saturating_duration_since(at) < FRESH
        {
            return Some(space);
        }
        let size = |suffix| fs::metadata(self.beside(suffix)).map_or(0, |file| file.len());
        // Ask for the directory, because the file may not exist yet.
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let free = (self.free_space)(directory.unwrap_or(Path::new(".")))?;
        let space = Space { free, log: size("-wal"), file: size("") };
        state.looked = Some((now, space));
        Some(space)
    }

    /// Measures the space now.
    pub(super) fn space_now(&self) -> Option<Space> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).looked = None;
        self.space()
    }

    /// Fails if there is too little space for new work.
    pub(super) fn check_new_work(&self) -> Result<()> {
        if self.floor == 0 || self.space().is_none_or(|space| space.free >= self.floor) {
            return Ok(());
        }
        let limit = Limit::MinFreeDisk;
        let text = "The disk that holds the gateway's store is nearly full, so the gateway accepts no new work; running work goes \
                    on. The operator can free some space, or set data.min_free_disk. Try again later.";
        Err(Error::new(ErrorKind::Unavailable, text)
            .detail("limit", Limit::VALUES[limit.index()])
            .detail("min", self.floor.to_string())
            .after(RETRY_AFTER))
    }

    /// Call this before the file is opened. Deletes the reserve if there is too little space to open the file and to copy its log.
    pub(super) fn prepare_start(&self) {
        if let Some(space) = self.space_now()
            && space.free < space.log.saturating_add(START_ROOM)
        {
            self.give_up_reserve();
        }
    }

    /// Deletes the reserve. Returns whether there was one.
    pub(super) fn give_up_reserve(&self) -> bool {
        let removed = ["-reserve", "-reserve-new"].map(|suffix| fs::remove_file(self.beside(suffix)).is_ok());
        if removed == [false, false] {
            return false;
        }
        tracing::warn!("the disk of the store is full; gave up the reserve to recover");
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.looked, state.restored) = (None, Some(Instant::now()));
        true
    }

    /// Makes the reserve again if it is missing and there is room. Tries this at most every [`RESTORE_EVERY`].
    pub(super) fn restore_reserve(&self) {
        let Some(space) = self.space() else { return };
        {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.restored.is_some_and(|at| at.elapsed() < RESTORE_EVERY) {
                return;
            }
            state.restored = Some(Instant::now());
        }
        let (path, size) = (self.beside("-reserve"), (space.free / RESERVE_SHARE).min(MAX_RESERVE));
        let is_low = self.floor > 0 && space.free < self.floor.saturating_add(size);
        if size < MIN_RESERVE || is_low || path.exists() {
            return;
        }
        // Write a draft and rename it, so that a partial file after a crash does not count as a reserve.
        let draft = self.beside("-reserve-new");
        if let Err(error) = write_zeros(&draft, size).and_then(|()| fs::rename(&draft, &path)) {
            tracing::warn!(%error, "the store has no reserve for a full disk");
            // Remove the partial draft, which only takes space.
            let _ = fs::remove_file(&draft);
        }
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(suffix);
        name.into()
    }
}

/// Writes zeros. Setting only the length would make a file with holes, which reserves nothing.
fn write_zeros(path: &Path, size: u64) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE).open(path)?;
    let piece = vec![0; 256 * 1024];
    let mut left = usize::try_from(size).unwrap_or(usize::MAX);
    while left > 0 {
        let length = left.min(piece.len());
        file.write_all(&piece[..length])?;
        left -= length;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
