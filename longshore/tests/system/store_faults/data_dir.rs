//! The data directory of a gateway, on a disk that the test can fill.
//!
//! A small tmpfs in its own mount namespace gives a real "no space left". Where the system allows no namespace, a limit
//! on the file size replaces it: SQLite then reports a failed write, and so must the gateway.

use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tempfile::TempDir;

/// Room for a store, and little more.
const SMALL: &str = "6m";

/// Dropping it removes the directory.
pub(crate) struct DataDir {
    root: TempDir,
    data: PathBuf,
    disk: Disk,
    /// A plain disk was filled before the gateway started: processes that start from now on may write nothing.
    is_full: Cell<bool>,
    filler: RefCell<Option<Filler>>,
}

/// Fills a disk again and again: the gateway may give space back.
struct Filler {
    /// The thread ends when this is dropped.
    stop: SyncSender<()>,
    thread: JoinHandle<()>,
}

enum Disk {
    Plain,
    Tmpfs(Namespace),
    /// The data directory is read-only, even for a privileged user.
    WriteProtected,
}

/// A process that only keeps a mount namespace alive.
struct Namespace {
    keeper: Child,
    /// The keeper ends when this is closed.
    stdin: Option<ChildStdin>,
}

impl DataDir {
    /// An ordinary directory. A limit on the file size fills its disk.
    pub(crate) fn plain() -> Self {
        let root = root();
        Self::new(root, Disk::Plain)
    }

    /// A separate disk, if the system allows it.
    pub(crate) fn small_disk() -> Self {
        Self::disk_of(SMALL)
    }

    /// Like [`small_disk`](Self::small_disk), with this size.
    pub(crate) fn disk_of(size: &str) -> Self {
        let root = root();
        let mount = format!("mount -t tmpfs -o size={size},mode=700 none '{}'", data_in(&root).display());
        match Namespace::new(&mount) {
            Some(namespace) => Self::new(root, Disk::Tmpfs(namespace)),
            None => Self::new(root, Disk::Plain),
        }
    }

    /// A data directory that is mounted read-only, if the system allows it.
    pub(crate) fn read_only(prepare: impl FnOnce(&Path)) -> Self {
        let root = root();
        let data = data_in(&root);
        prepare(&data);
        let name = data.display();
        let mount = format!("mount --bind '{name}' '{name}' && mount -o remount,bind,ro '{name}'");
        match Namespace::new(&mount) {
            Some(namespace) => Self::new(root, Disk::Tmpfs(namespace)),
            None => Self::write_protected_at(root),
        }
    }

    /// A data directory that no user can write to.
    pub(crate) fn write_protected(prepare: impl FnOnce(&Path)) -> Self {
        let root = root();
        prepare(&data_in(&root));
        Self::write_protected_at(root)
    }

    fn write_protected_at(root: TempDir) -> Self {
        set_writable(&data_in(&root), false);
        Self::new(root, Disk::WriteProtected)
    }

    fn new(root: TempDir, disk: Disk) -> Self {
        Self { data: data_in(&root), root, disk, is_full: Cell::new(false), filler: RefCell::default() }
    }

    /// A data directory that already exists.
    pub(crate) fn at(data: &Path) -> Self {
        let mut data_dir = Self::plain();
        data.clone_into(&mut data_dir.data);
        data_dir
    }

    /// The path as the gateway sees it.
    pub(crate) fn path(&self) -> PathBuf {
        self.data.clone()
    }

    /// The path of the same directory for this process.
    pub(crate) fn reachable_path(&self) -> PathBuf {
        match &self.disk {
            Disk::Plain | Disk::WriteProtected => self.path(),
            Disk::Tmpfs(namespace) => namespace.path(&self.path()),
        }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    pub(crate) fn is_own_disk(&self) -> bool {
        matches!(self.disk, Disk::Tmpfs(_))
    }

    /// A command for `program` that sees the data.
    pub(crate) fn command(&self, program: &str) -> Command {
        match &self.disk {
            Disk::Plain if self.is_full.get() => {
                let mut command = Command::new("sh");
                command.args(["-c", "ulimit -f 0 && exec \"$@\"", "sh", program]);
                command
            }
            // A privileged user ignores the permissions, unless that privilege is dropped.
            Disk::WriteProtected if is_writable(&self.data) => {
                let mut command = Command::new("setpriv");
                command.args(["--bounding-set", "-dac_override,-dac_read_search", "--", program]);
                command
            }
            Disk::Plain | Disk::WriteProtected => Command::new(program),
            Disk::Tmpfs(namespace) => {
                let mut command = Command::new("nsenter");
                let keeper = namespace.keeper.id().to_string();
                command.args(["--target", &keeper, "--user", "--mount", "--preserve-credentials", "--"]);
                command.arg(program);
                command
            }
        }
    }

    /// Fills the disk. `gateway`: the process that a limit applies to.
    pub(crate) fn fill(&self, gateway: Option<u32>) {
        match (&self.disk, gateway) {
            (Disk::Tmpfs(_), _) => self.fill_but(0),
            (_, Some(pid)) => limit(pid, Some(1)),
            (_, None) => self.is_full.set(true),
        }
    }

    /// Like [`fill`](Self::fill), and takes the space that the gateway gives back, until [`free`](Self::free).
    pub(crate) fn keep_full(&self, gateway: u32) {
        self.fill(Some(gateway));
        if !self.is_own_disk() {
            return;
        }
        let (path, (stop, stopped)) = (self.ballast(), sync_channel(1));
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(Duration::from_millis(10)) == Err(RecvTimeoutError::Timeout) {
                fill_up(&path);
            }
        });
        *self.filler.borrow_mut() = Some(Filler { stop, thread });
    }

    /// Removes the reserve of the store.
    pub(crate) fn remove_reserve(&self) {
        let _ = std::fs::remove_file(self.reachable_path().join("longshore.db-reserve"));
    }

    /// Fills a separate disk, except for this many bytes.
    pub(crate) fn fill_but(&self, left: u64) {
        let ballast = fill_up(&self.ballast());
        let filled = ballast.metadata().expect("the ballast is there").len();
        ballast.set_len(filled.saturating_sub(left)).expect("the ballast can be shortened");
    }

    fn stop_filler(&self) {
        if let Some(Filler { stop, thread }) = self.filler.take() {
            drop(stop);
            let _ = thread.join();
        }
    }

    /// Makes room again.
    pub(crate) fn free(&self, gateway: Option<u32>) {
        self.stop_filler();
        match (&self.disk, gateway) {
            (Disk::Tmpfs(_), _) => std::fs::remove_file(self.ballast()).expect("the ballast is there"),
            (_, Some(pid)) => limit(pid, None),
            (_, None) => self.is_full.set(false),
        }
    }

    fn ballast(&self) -> PathBuf {
        self.reachable_path().join("ballast")
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        self.stop_filler();
        if matches!(self.disk, Disk::WriteProtected) {
            // Otherwise the directory could not be removed.
            set_writable(&self.data, true);
        }
    }
}

/// Appends to the file until the disk is full.
fn fill_up(path: &Path) -> File {
    let ballast = OpenOptions::new().create(true).append(true).open(path);
    let mut ballast = ballast.expect("there is room for a name");
    let mut piece = vec![0; 1024 * 1024];
    // Smaller pieces may still fit.
    while !piece.is_empty() {
        if ballast.write_all(&piece).is_err() {
            piece.truncate(piece.len() / 2);
        }
    }
    ballast
}

fn set_writable(directory: &Path, is_writable: bool) {
    let mode = if is_writable { 0o700 } else { 0o500 };
    std::fs::set_permissions(directory, Permissions::from_mode(mode)).expect("the test owns the directory");
}

fn is_writable(directory: &Path) -> bool {
    let probe = directory.join("probe");
    std::fs::write(&probe, "").and_then(|()| std::fs::remove_file(&probe)).is_ok()
}

/// Limits the size of the files that a process may write.
fn limit(pid: u32, bytes: Option<u64>) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None })
        .expect("the test started the process");
}

impl Namespace {
    /// `None`: the system does not allow it.
    fn new(mount: &str) -> Option<Self> {
        let script = format!("{mount} && echo mounted && cat");
        let mut keeper = Command::new("unshare")
            .args(["--map-root-user", "--mount", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let stdin = keeper.stdin.take();
        let mut line = String::new();
        // The process ended without a line: one of the steps was refused.
        BufReader::new(keeper.stdout.take()?).read_line(&mut line).ok()?;
        let namespace = Self { keeper, stdin };
        (line.trim() == "mounted").then_some(namespace)
    }

    fn path(&self, path: &Path) -> PathBuf {
        let inside = path.strip_prefix("/").expect("a temporary directory has an absolute path");
        Path::new("/proc").join(self.keeper.id().to_string()).join("root").join(inside)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.keeper.wait();
    }
}

fn root() -> TempDir {
    let root = tempfile::tempdir().expect("a test can make a temporary directory");
    for directory in [data_in(&root), root.path().join("home")] {
        std::fs::create_dir(directory).expect("a directory can be made");
    }
    root
}

fn data_in(root: &TempDir) -> PathBuf {
    // Without symbolic links, because it is compared with output of the gateway.
    root.path().canonicalize().expect("it was just made").join("data")
}
