//! Limits the directories that OpenCode has open, for each principal and in total. Each costs OpenCode 50 to 75 MB of memory, and
//! OpenCode itself never closes one. So the gateway closes idle directories: after a while, or when another one needs the room.
//!
//! A directory is idle if the gateway has no call and no turn in it, and OpenCode has no busy session in it. A turn that waits for
//! an answer counts as running. The workspace root is always open and does not count towards the limits.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_engine::port::caller;
use longshore_model::{Error, ErrorKind, Principal, Result};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::client::{CallError, Client};
use crate::outage::LONGEST_BUSY;
use crate::reader::lock;
use crate::watch::Watch;

/// How long a caller waits until a directory is closed. The closing itself continues after that.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How many idle directories the gateway tries to close when another needs the room. If none can be closed, the caller is refused.
const MAX_TRIED: usize = 4;

/// How long a caller waits for room, and how often it tries. A wait helps because OpenCode still works briefly after a turn's end.
const ROOM_PATIENCE: Duration = Duration::from_secs(2);
const ROOM_PAUSE: Duration = Duration::from_millis(200);

/// The retry hint for a refused caller.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How many directories OpenCode may have open besides the workspace root.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryLimits {
    /// The limit for all principals together. 0: no limit.
    pub total: usize,
    /// The limit for one principal. 0: no limit.
    pub per_principal: usize,
    /// How long a directory may be unused before it is closed. `None`: it is closed only when another needs the room.
    pub idle: Option<Duration>,
}

impl Default for DirectoryLimits {
    fn default() -> Self {
        Self { total: 32, per_principal: 16, idle: Some(Duration::from_mins(10)) }
    }
}

/// Opens and closes directories.
#[derive(Debug)]
pub(crate) struct DirectoryKeeper {
    client: Client,
    watch: Arc<Watch>,
    root: String,
    limits: DirectoryLimits,
    tasks: Tasks,
    open: Mutex<OpenDirectories>,
    /// Notified when a directory was closed, or could not be closed.
    closed: Notify,
}

#[derive(Debug, Default)]
struct OpenDirectories {
    /// The OpenCode process that has these directories open.
    process: u32,
    by_path: HashMap<String, OpenDirectory>,
}

#[derive(Debug)]
struct OpenDirectory {
    users: HashMap<Principal, DirectoryUser>,
    used: Instant,
    /// How many calls and turns of the gateway use the directory.
    calls: usize,
    is_closing: bool,
}

#[derive(Debug)]
struct DirectoryUser {
    used: Instant,
    calls: usize,
}

/// A use of a directory. The directory is not closed before this is dropped.
#[derive(Debug)]
pub(crate) struct DirectoryUse {
    keeper: Arc<DirectoryKeeper>,
    directory: String,
    principal: Option<Principal>,
}

/// Why a caller cannot use a directory now.
#[derive(Debug)]
enum Refused {
    Full(Full),
    /// The directory is being closed, which takes long.
    Closing,
}

/// The limit is reached.
#[derive(Debug)]
struct Full {
    limit: &'static str,
    max: usize,
    /// The directories that could be closed, the least recently used first.
    candidates: Vec<String>,
}

enum Entered {
    Yes,
    /// The directory is being closed at this moment.
    Later,
    Full(Full),
}

impl DirectoryKeeper {
    pub(crate) fn new(
        client: &Client,
        watch: &Arc<Watch>,
        root: &str,
        limits: DirectoryLimits,
        tasks: &Tasks,
    ) -> Arc<Self> {
        let keeper = Arc::new(Self {
            client: client.for_cleanup(),
            watch: Arc::clone(watch),
            root: root.to_owned(),
            limits,
            tasks: tasks.clone(),
            open: Mutex::default(),
            closed: Notify::new(),
        });
        if let Some(idle) = limits.idle {
            let (keeper, stop) = (Arc::clone(&keeper), tasks.stopping().clone());
            tasks.spawn("opencode-directories", async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = keeper.close_idle(idle) => {}
                }
            });
        }
        keeper
    }

    /// Uses a directory for a message. Fails if too many directories are open.
    pub(crate) async fn enter(self: &Arc<Self>, directory: &str) -> Result<Option<DirectoryUse>> {
        let entered = self.try_enter(directory, self.limits).await;
        entered.map_err(|refused| refused.into_error(ErrorKind::TooManyRequests))
    }

    /// Like [`Self::enter`], for a call. The error is that of a call without a free slot, for which an accepted task waits.
    pub(crate) async fn enter_for_call(self: &Arc<Self>, directory: &str) -> Result<Option<DirectoryUse>> {
        let entered = self.try_enter(directory, self.limits).await;
        entered.map_err(|refused| refused.into_error(ErrorKind::UpstreamBackpressure))
    }

    /// Like [`Self::enter`], for a turn that already runs in the directory: it is counted, but no limit applies to it.
    pub(crate) async fn enter_running(self: &Arc<Self>, directory: &str) -> Result<Option<DirectoryUse>> {
        let limits = DirectoryLimits { total: 0, per_principal: 0, ..self.limits };
        let entered = self.try_enter(directory, limits).await;
        entered.map_err(|refused| refused.into_error(ErrorKind::UpstreamBackpressure))
    }

    async fn try_enter(
        self: &Arc<Self>,
        directory: &str,
        limits: DirectoryLimits,
    ) -> Result<Option<DirectoryUse>, Refused> {
        if directory == self.root {
            return Ok(None);
        }
        let (principal, begun) = (caller(), Instant::now());
        loop {
            let mut closed = pin!(self.closed.notified());
            closed.as_mut().enable();
            match self.note_use(directory, principal.as_ref(), limits) {
                Entered::Yes => {
                    let (keeper, directory) = (Arc::clone(self), directory.to_owned());
                    return Ok(Some(DirectoryUse { keeper, directory, principal }));
                }
                Entered::Later => {
                    let closed = timeout_at(begun + CLOSE_TIMEOUT, closed).await;
                    closed.map_err(|_| Refused::Closing)?;
                }
                Entered::Full(full) => {
                    let mut is_closed = false;
                    let idle = full.candidates.iter().filter(|candidate| self.watch.is_idle(candidate));
                    for candidate in idle.take(MAX_TRIED) {
                        is_closed = self.close(candidate).await;
                        if is_closed {
                            break;
                        }
                    }
                    if !is_closed {
                        if begun.elapsed() + ROOM_PAUSE >= ROOM_PATIENCE {
                            return Err(Refused::Full(full));
                        }
                        sleep(ROOM_PAUSE).await;
                    }
                }
            }
        }
    }

    fn note_use(&self, directory: &str, principal: Option<&Principal>, limits: DirectoryLimits) -> Entered {
        let mut open = self.lock();
        let now = Instant::now();
        if open.by_path.get(directory).is_some_and(|found| found.is_closing) {
            return Entered::Later;
        }
        let is_user = |found: &OpenDirectory| principal.is_some_and(|user| found.users.contains_key(user));
        let is_known_user = open.by_path.get(directory).is_some_and(is_user);
        if let Some(principal) = principal.filter(|_| !is_known_user)
            && let Err(full) = open.make_room_for(principal, limits.per_principal)
        {
            return Entered::Full(full);
        }
        let known = open.by_path.get(directory);
        if known.is_none_or(|found| found.calls == 0 && found.users.is_empty()) {
            let (others, max) = (open.by_path.len() - usize::from(known.is_some()), limits.total);
            if max > 0 && others >= max {
                let mut candidates = open.oldest(|_| true);
                candidates.retain(|candidate| candidate != directory);
                return Entered::Full(Full { limit: "directories", max, candidates });
            }
        }
        let found = open.by_path.entry(directory.to_owned()).or_insert_with(|| OpenDirectory::new(now));
        (found.used, found.calls) = (now, found.calls + 1);
        if let Some(principal) = principal {
            let unused = DirectoryUser { used: now, calls: 0 };
            let user = found.users.entry(principal.clone()).or_insert(unused);
            (user.used, user.calls) = (now, user.calls + 1);
        }
        Entered::Yes
    }

    /// Counts the directories that are open because they are watched. After a start of the gateway, no caller has used them yet.
    pub(crate) fn count_watched(&self, directories: HashSet<String>) {
        let is_counted = |directory: &String| *directory != self.root && self.watch.watches(directory);
        let watched: Vec<_> = directories.into_iter().filter(is_counted).collect();
        let (mut open, now) = (self.lock(), Instant::now());
        for directory in watched {
            open.by_path.entry(directory).or_insert_with(|| OpenDirectory::new(now));
        }
    }

    /// Closes a directory if it is idle. Returns whether it was closed in time. The closing continues if nobody waits for it any
    /// more. Nobody can enter the directory before the closing has ended, because OpenCode would abort the new turn.
    async fn close(self: &Arc<Self>, directory: &str) -> bool {
        let Some(closing) = Closing::begin(self, directory) else { return false };
        let closed = self.tasks.spawn("opencode-close", closing.run());
        matches!(timeout(CLOSE_TIMEOUT, closed).await, Ok(Ok(true)))
    }

    /// Closes the directories that were unused for this long. A watched directory stays open.
    async fn close_idle(self: Arc<Self>, idle: Duration) {
        loop {
            sleep(idle / 4).await;
            let is_old = |found: &OpenDirectory| found.used.elapsed() >= idle;
            let old = self.lock().oldest(is_old);
            for directory in old.into_iter().filter(|directory| !self.watch.watches(directory)) {
                if self.watch.is_idle(&directory) {
                    self.close(&directory).await;
                } else if let Some(found) = self.lock().by_path.get_mut(&directory) {
                    // A turn runs in the directory.
                    found.used = Instant::now();
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenDirectories> {
        let mut open = lock(&self.open);
        let process = self.client.address().process();
        if open.process != process {
            // A new process has no directory open.
            open.process = process;
            open.by_path.retain(|_, found| found.calls > 0 || found.is_closing);
        }
        open
    }
}

impl OpenDirectory {
    fn new(used: Instant) -> Self {
        Self { users: HashMap::new(), used, calls: 0, is_closing: false }
    }
}

impl OpenDirectories {
    /// The directories without calls, the least recently used first.
    fn oldest(&self, wanted: impl Fn(&OpenDirectory) -> bool) -> Vec<String> {
        let is_free = |found: &&OpenDirectory| found.calls == 0 && !found.is_closing && wanted(found);
        let mut free: Vec<_> = self.by_path.iter().filter(|(_, found)| is_free(found)).collect();
        free.sort_unstable_by_key(|(_, found)| found.used);
        free.into_iter().map(|(directory, _)| directory.clone()).collect()
    }

    /// Makes room for another directory of this principal. A directory that other principals use too is no longer counted for this
    /// principal, unless a call or a turn of the principal runs in it.
    fn make_room_for(&mut self, principal: &Principal, max: usize) -> Result<(), Full> {
        let count = self.by_path.values().filter(|found| found.users.contains_key(principal)).count();
        if max == 0 || count < max {
            return Ok(());
        }
        let shared = self.by_path.values_mut().filter(|found| found.users.len() > 1);
        let is_left =
            |found: &&mut OpenDirectory| found.users.get(principal).is_some_and(|user| user.calls == 0);
        let own_time = |found: &&mut OpenDirectory| found.users.get(principal).map(|user| user.used);
        let oldest = shared.filter(is_left).min_by_key(own_time);
        if let Some(oldest) = oldest {
            oldest.users.remove(principal);
            return Ok(());
        }
        let candidates = self.oldest(|found| found.users.contains_key(principal));
        Err(Full { limit: "directories_per_principal", max, candidates })
    }
}

impl Refused {
    /// The error for the caller. `kind`: its kind if too many directories are open.
    fn into_error(self, kind: ErrorKind) -> Error {
        let Self::Full(Full { limit, max, .. }) = self else {
            let text = "The agent is closing this directory, which was idle. Try again in a few seconds.";
            return Error::new(ErrorKind::UpstreamBackpressure, text).after(RETRY_AFTER);
        };
        let whose = if limit == "directories" { "The agent's" } else { "Your" };
        let text = format!(
            "{whose} limit of open directories ({max}) is reached, and none of them is idle. Try again when a task there has ended, \
             or use one of these directories."
        );
        Error::new(kind, text).detail("limit", limit).detail("max", max.to_string()).after(RETRY_AFTER)
    }
}

impl Drop for DirectoryUse {
    fn drop(&mut self) {
        let mut open = lock(&self.keeper.open);
        let Some(found) = open.by_path.get_mut(&self.directory) else { return };
        let now = Instant::now();
        (found.used, found.calls) = (now, found.calls.saturating_sub(1));
        if let Some(user) = self.principal.as_ref().and_then(|principal| found.users.get_mut(principal)) {
            (user.used, user.calls) = (now, user.calls.saturating_sub(1));
        }
    }
}

/// A directory that is being closed. Nobody can enter it until this is dropped.
struct Closing {
    keeper: Arc<DirectoryKeeper>,
    directory: String,
    state: CloseState,
}

enum CloseState {
    Open,
    /// OpenCode was asked to close the directory, and may do so at any time.
    Requested,
    Closed,
}

impl Closing {
    fn begin(keeper: &Arc<DirectoryKeeper>, directory: &str) -> Option<Self> {
        let mut open = keeper.lock();
        let found = open.by_path.get_mut(directory).filter(|found| found.calls == 0 && !found.is_closing)?;
        found.is_closing = true;
        Some(Self { keeper: Arc::clone(keeper), directory: directory.to_owned(), state: CloseState::Open })
    }

    /// Closes the directory. Returns whether it was closed.
    async fn run(mut self) -> bool {
        let stop = self.keeper.tasks.stopping().clone();
        let closed = tokio::select! {
            biased;
            closed = self.close_if_idle() => closed,
            () = stop.cancelled() => return false,
        };
        let directory = &self.directory;
        match closed {
            Ok(true) => tracing::info!(directory, "closed an idle directory of OpenCode"),
            Ok(false) => {}
            Err(cause) => tracing::debug!(directory, %cause, "could not close a directory of OpenCode"),
        }
        matches!(self.state, CloseState::Closed)
    }

    async fn close_if_idle(&mut self) -> Result<bool, CallError> {
        let DirectoryKeeper { client, watch, .. } = &*self.keeper;
        // Another client of OpenCode may have a turn in the directory, which the closing would abort.
        let statuses = timeout(CLOSE_TIMEOUT, client.unshared_statuses(&self.directory)).await;
        let is_idle = statuses.unwrap_or(Err(CallError::NoAnswer))?.is_empty();
        let was_watched = watch.watches(&self.directory);
        if !is_idle || !watch.release(&self.directory) {
            return Ok(false);
        }
        self.state = CloseState::Requested;
        let closed = client.dispose(&self.directory, LONGEST_BUSY).await;
        if let Err(CallError::Cut(_) | CallError::Ended | CallError::NoAnswer) | Ok(()) = &closed {
            // Even without a response, OpenCode has probably closed the directory. If not, the next use counts it again.
            self.state = CloseState::Closed;
        } else {
            self.state = CloseState::Open;
            if was_watched {
                watch.watch_again(&self.directory);
            }
        }
        closed.map(|()| true)
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let mut open = lock(&self.keeper.open);
        match self.state {
            CloseState::Open => {
                if let Some(found) = open.by_path.get_mut(&self.directory) {
                    found.is_closing = false;
                }
            }
            // The gateway is stopping.
            CloseState::Requested => return,
            CloseState::Closed => {
                open.by_path.remove(&self.directory);
            }
        }
        drop(open);
        self.keeper.closed.notify_waiters();
    }
}
