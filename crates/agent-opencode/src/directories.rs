//! The directories that OpenCode has open. Each costs OpenCode 50 to 75 MB of memory, and OpenCode closes none by itself. So their
//! number is bounded, for each principal and in total, and idle ones are closed: after a while, and when another needs the room.
//!
//! A directory is idle when the gateway has no call and no turn there, and OpenCode no busy session. A turn that waits for an answer
//! counts as running. The workspace root is always open, and is not counted.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_engine::port::caller;
use longshore_model::{Error, ErrorKind, Principal, Result};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::client::{CallError, Client};
use crate::reader::lock;
use crate::watch::Watch;

/// How long the close of one directory may take. After that it stays open.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How many directories are tried when another needs the room. If none of them can be closed, the caller is refused.
const MAX_TRIED: usize = 4;

/// How long a caller waits for room, and how often it tries. OpenCode works on a turn for a moment after its end.
const ROOM_PATIENCE: Duration = Duration::from_secs(2);
const ROOM_PAUSE: Duration = Duration::from_millis(200);

/// How soon a refused caller may try again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How many directories OpenCode may have open besides the workspace root.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryLimits {
    /// 0: no limit.
    pub total: usize,
    /// 0: no limit.
    pub per_principal: usize,
    /// A directory that was not used for so long is closed. `None`: only when another needs the room.
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
    open: Mutex<OpenDirectories>,
    /// A directory was closed, or could not be.
    closed: Notify,
}

#[derive(Debug, Default)]
struct OpenDirectories {
    /// The process of OpenCode that has them open.
    process: u32,
    by_path: HashMap<String, OpenDirectory>,
}

#[derive(Debug)]
struct OpenDirectory {
    /// When each principal used the directory last.
    users: HashMap<Principal, Instant>,
    used: Instant,
    calls: usize,
    is_closing: bool,
}

/// A directory in use: it is not closed before this is dropped.
#[derive(Debug)]
pub(crate) struct DirectoryUse {
    keeper: Arc<DirectoryKeeper>,
    directory: String,
}

/// There are too many directories.
#[derive(Debug)]
pub(crate) struct Full {
    limit: &'static str,
    max: usize,
    /// The directories to close, the one that was not used for the longest time first.
    candidates: Vec<String>,
}

enum Entered {
    Yes,
    /// The directory is just being closed.
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

    /// Uses a directory for a message, which is refused if there are too many.
    pub(crate) async fn enter(self: &Arc<Self>, directory: &str) -> Result<Option<DirectoryUse>> {
        let refusal = |full: Full| full.refusal(ErrorKind::TooManyRequests);
        self.try_enter(directory).await.map_err(refusal)
    }

    /// The same for a call with the error of a call that finds no room. With that error a task that was accepted waits.
    pub(crate) async fn enter_for_call(self: &Arc<Self>, directory: &str) -> Result<Option<DirectoryUse>> {
        let refusal = |full: Full| full.refusal(ErrorKind::UpstreamBackpressure);
        self.try_enter(directory).await.map_err(refusal)
    }

    async fn try_enter(self: &Arc<Self>, directory: &str) -> Result<Option<DirectoryUse>, Full> {
        if directory == self.root {
            return Ok(None);
        }
        let (principal, deadline) = (caller(), Instant::now() + ROOM_PATIENCE);
        loop {
            let mut closed = pin!(self.closed.notified());
            closed.as_mut().enable();
            match self.note_use(directory, principal.as_ref()) {
                Entered::Yes => {
                    let (keeper, directory) = (Arc::clone(self), directory.to_owned());
                    return Ok(Some(DirectoryUse { keeper, directory }));
                }
                Entered::Later => closed.await,
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
                        if Instant::now() + ROOM_PAUSE >= deadline {
                            return Err(full);
                        }
                        sleep(ROOM_PAUSE).await;
                    }
                }
            }
        }
    }

    fn note_use(&self, directory: &str, principal: Option<&Principal>) -> Entered {
        let mut open = self.lock();
        let now = Instant::now();
        if open.by_path.get(directory).is_some_and(|found| found.is_closing) {
            return Entered::Later;
        }
        let is_user = |found: &OpenDirectory| principal.is_some_and(|user| found.users.contains_key(user));
        let is_known_user = open.by_path.get(directory).is_some_and(is_user);
        if let Some(principal) = principal.filter(|_| !is_known_user)
            && let Err(full) = open.make_room_for(principal, self.limits.per_principal)
        {
            return Entered::Full(full);
        }
        if !open.by_path.contains_key(directory) {
            let max = self.limits.total;
            if max > 0 && open.by_path.len() >= max {
                let candidates = open.oldest(|_| true);
                return Entered::Full(Full { limit: "directories", max, candidates });
            }
        }
        let found = open.by_path.entry(directory.to_owned()).or_insert_with(|| OpenDirectory {
            users: HashMap::new(),
            used: now,
            calls: 0,
            is_closing: false,
        });
        (found.used, found.calls) = (now, found.calls + 1);
        if let Some(principal) = principal {
            found.users.insert(principal.clone(), now);
        }
        Entered::Yes
    }

    /// Closes a directory if it is idle. Returns whether it was closed.
    async fn close(&self, directory: &str) -> bool {
        let Some(mut closing) = Closing::begin(self, directory) else { return false };
        if !self.watch.release(directory) {
            return false;
        }
        let closed = timeout(CLOSE_TIMEOUT, self.close_if_idle(directory)).await;
        match closed.unwrap_or(Err(CallError::NoAnswer)) {
            Ok(is_closed) => {
                closing.is_closed = is_closed;
                if is_closed {
                    tracing::info!(directory, "closed an idle directory of OpenCode");
                }
                is_closed
            }
            Err(cause) => {
                tracing::debug!(directory, %cause, "could not close a directory of OpenCode");
                false
            }
        }
    }

    /// Another client of OpenCode may have a turn there, which the close would abort.
    async fn close_if_idle(&self, directory: &str) -> Result<bool, CallError> {
        if !self.client.unshared_statuses(directory).await?.is_empty() {
            return Ok(false);
        }
        self.client.dispose(directory).await?;
        Ok(true)
    }

    /// Closes directories that were not used for so long. A watched directory stays open.
    async fn close_idle(&self, idle: Duration) {
        loop {
            sleep(idle / 4).await;
            let is_old = |found: &OpenDirectory| found.used.elapsed() >= idle;
            let old = self.lock().oldest(is_old);
            for directory in old.into_iter().filter(|directory| !self.watch.watches(directory)) {
                if self.watch.is_idle(&directory) {
                    self.close(&directory).await;
                } else if let Some(found) = self.lock().by_path.get_mut(&directory) {
                    // A turn runs there.
                    found.used = Instant::now();
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenDirectories> {
        let mut open = lock(&self.open);
        let process = self.client.address().process();
        if open.process != process {
            // The next process has opened none yet.
            open.process = process;
            open.by_path.retain(|_, found| found.calls > 0);
        }
        open
    }
}

impl OpenDirectories {
    /// The directories without calls, the one that was not used for the longest time first.
    fn oldest(&self, wanted: impl Fn(&OpenDirectory) -> bool) -> Vec<String> {
        let is_free = |found: &&OpenDirectory| found.calls == 0 && !found.is_closing && wanted(found);
        let mut free: Vec<_> = self.by_path.iter().filter(|(_, found)| is_free(found)).collect();
        free.sort_unstable_by_key(|(_, found)| found.used);
        free.into_iter().map(|(directory, _)| directory.clone()).collect()
    }

    /// Another directory for this principal. A directory that others use too is left to them.
    fn make_room_for(&mut self, principal: &Principal, max: usize) -> Result<(), Full> {
        let count = self.by_path.values().filter(|found| found.users.contains_key(principal)).count();
        if max == 0 || count < max {
            return Ok(());
        }
        let shared = self.by_path.values_mut().filter(|found| found.users.len() > 1);
        let own_time = |found: &&mut OpenDirectory| found.users.get(principal).copied();
        let oldest = shared.filter(|found| found.users.contains_key(principal)).min_by_key(own_time);
        if let Some(oldest) = oldest {
            oldest.users.remove(principal);
            return Ok(());
        }
        let candidates = self.oldest(|found| found.users.contains_key(principal));
        Err(Full { limit: "directories_per_principal", max, candidates })
    }
}

impl Full {
    fn refusal(self, kind: ErrorKind) -> Error {
        let Self { limit, max, .. } = self;
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
        if let Some(found) = open.by_path.get_mut(&self.directory) {
            (found.used, found.calls) = (Instant::now(), found.calls.saturating_sub(1));
        }
    }
}

/// A directory that is being closed. Nobody enters it meanwhile.
struct Closing<'a> {
    keeper: &'a DirectoryKeeper,
    directory: &'a str,
    is_closed: bool,
}

impl<'a> Closing<'a> {
    fn begin(keeper: &'a DirectoryKeeper, directory: &'a str) -> Option<Self> {
        let mut open = keeper.lock();
        let found = open.by_path.get_mut(directory).filter(|found| found.calls == 0 && !found.is_closing)?;
        found.is_closing = true;
        Some(Self { keeper, directory, is_closed: false })
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut open = lock(&self.keeper.open);
        if self.is_closed {
            open.by_path.remove(self.directory);
        } else if let Some(found) = open.by_path.get_mut(self.directory) {
            found.is_closing = false;
        }
        drop(open);
        self.keeper.closed.notify_waiters();
    }
}
