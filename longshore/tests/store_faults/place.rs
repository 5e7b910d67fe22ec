//! Where the data of a gateway is, so that its disk can be filled.
//!
//! A small tmpfs in a mount namespace of its own gives the real "no space left". Where the system allows no namespace, a limit
//! on the size of files takes its place: SQLite then says that a write failed, and the gateway must do the same.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tempfile::TempDir;

/// Room for a store, and little more.
const TMPFS: &str = "size=6m,mode=700";

/// Dropping it removes everything.
pub(crate) struct Place {
    root: TempDir,
    data: PathBuf,
    disk: Disk,
}

enum Disk {
    Plain,
    Tmpfs(Namespace),
}

/// A process that does nothing but keep a mount namespace.
struct Namespace {
    keeper: Child,
    /// The keeper ends when this is closed.
    stdin: Option<ChildStdin>,
}

impl Place {
    /// An ordinary directory. Its disk is filled by a limit.
    pub(crate) fn plain() -> Self {
        let root = root();
        Self { data: data_in(&root), root, disk: Disk::Plain }
    }

    /// A disk of its own, if the system allows that.
    pub(crate) fn small_disk() -> Self {
        let root = root();
        let mount = format!("mount -t tmpfs -o {TMPFS} none '{}'", data_in(&root).display());
        match Namespace::new(&mount) {
            Some(namespace) => Self { data: data_in(&root), root, disk: Disk::Tmpfs(namespace) },
            None => Self { data: data_in(&root), root, disk: Disk::Plain },
        }
    }

    /// A data directory that is mounted read-only, or, where the system allows no namespace, that nobody may write to.
    pub(crate) fn read_only(prepare: impl FnOnce(&Path)) -> Self {
        let root = root();
        let data = data_in(&root);
        prepare(&data);
        let name = data.display();
        let mount = format!("mount --bind '{name}' '{name}' && mount -o remount,bind,ro '{name}'");
        if let Some(namespace) = Namespace::new(&mount) {
            return Self { data, root, disk: Disk::Tmpfs(namespace) };
        }
        let mut rights = data.metadata().expect("the directory is there").permissions();
        rights.set_readonly(true);
        std::fs::set_permissions(&data, rights).expect("the test owns the directory");
        let writable = std::fs::write(data.join("probe"), "").is_ok();
        assert!(!writable, "this test needs a mount namespace, or a user who may not write everywhere");
        Self { data, root, disk: Disk::Plain }
    }

    /// A data directory that is there already.
    pub(crate) fn at(data: &Path) -> Self {
        Self { root: root(), data: data.to_owned(), disk: Disk::Plain }
    }

    /// As the gateway names it.
    pub(crate) fn data(&self) -> PathBuf {
        self.data.clone()
    }

    /// The same directory as this process can reach it.
    pub(crate) fn reachable_data(&self) -> PathBuf {
        match &self.disk {
            Disk::Plain => self.data(),
            Disk::Tmpfs(namespace) => namespace.path(&self.data()),
        }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    pub(crate) fn is_a_disk(&self) -> bool {
        matches!(self.disk, Disk::Tmpfs(_))
    }

    /// `program` as it has to be started to see the data.
    pub(crate) fn command(&self, program: &str) -> Command {
        match &self.disk {
            Disk::Plain => Command::new(program),
            Disk::Tmpfs(namespace) => {
                let mut command = Command::new("nsenter");
                let keeper = namespace.keeper.id().to_string();
                command.args(["--target", &keeper, "--user", "--mount", "--preserve-credentials", "--"]);
                command.arg(program);
                command
            }
        }
    }

    /// From here on nothing more fits. `gateway`: the process that is to feel it.
    pub(crate) fn fill(&self, gateway: Option<u32>) {
        match (&self.disk, gateway) {
            (Disk::Tmpfs(_), _) => {
                let mut ballast =
                    std::fs::File::create(self.ballast()).expect("the disk has room for a name");
                let mut piece = vec![0; 1024 * 1024];
                // What does not fit whole may fit in smaller pieces.
                while !piece.is_empty() {
                    if ballast.write_all(&piece).is_err() {
                        piece.truncate(piece.len() / 2);
                    }
                }
            }
            (Disk::Plain, Some(pid)) => limit(pid, Some(1)),
            (Disk::Plain, None) => {}
        }
    }

    /// There is room again.
    pub(crate) fn free(&self, gateway: Option<u32>) {
        match (&self.disk, gateway) {
            (Disk::Tmpfs(_), _) => std::fs::remove_file(self.ballast()).expect("the ballast is there"),
            (Disk::Plain, Some(pid)) => limit(pid, None),
            (Disk::Plain, None) => {}
        }
    }

    fn ballast(&self) -> PathBuf {
        self.reachable_data().join("ballast")
    }
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
        // An end without a line: one of the steps was refused.
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
    // Without links, since it is compared with what a process says.
    root.path().canonicalize().expect("it was just made").join("data")
}
