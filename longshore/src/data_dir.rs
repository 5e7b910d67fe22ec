//! Locks and reads the data directory. One gateway at a time uses it, and only the owner can read its files.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use longshore_seal::KeyStorage;
use rand::distr::{Alphanumeric, SampleString as _};
use rustix::fs::{FlockOperation, flock};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use crate::acp_upstream;
use crate::config::Plan;
use crate::config::paths::DEMO_SUFFIX;
use crate::config::plan::AgentPlan;
use crate::output;

/// How often the lock is tried. The kernel does not notify when a lock becomes free.
const RETRY_EVERY: Duration = Duration::from_millis(100);

/// The shortest wait for a lock: another command may only be looking whether it is free.
const GLANCE: Duration = Duration::from_millis(300);

/// The length of a generated token. 43 characters out of an alphabet of 62 hold 256 bits.
const TOKEN_LENGTH: usize = 43;

/// The file with the generated token.
const TOKEN: &str = "token";

/// The file with the keys that seal the secrets in the store.
const KEYS: &str = "keys";

/// The file with the address at which this machine reaches the gateway. Only a gateway that runs holds a lock on it.
const ADDRESS: &str = "address";

/// The content of the file `kind` of a demo.
const DEMO: &str = "demo";

/// The file that names the store that was used last.
const STORE_NOTE: &str = "store";

/// The file with the secret from which keys are derived.
const SECRET: &str = "secret";

/// The files of the directory beside the store. Each is first written to a file with the extension `new`.
const OWN_FILES: [&str; 13] = [
    STORE_NOTE,
    "kind",
    "workspace",
    "token",
    KEYS,
    "lock",
    ADDRESS,
    ".gitignore",
    acp_upstream::RECORDS,
    SECRET,
    longshore_calling::SOCKET,
    longshore_calling::PLUGIN,
    longshore_calling::CONFIGURATION,
];

/// A data directory that this process holds locked until the value is dropped.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    /// The open lock file. Closing it releases the lock, however the process ends.
    _lock: File,
}

impl DataDir {
    /// Creates the directory if necessary, and locks it for the workspace of the plan. If another process holds the lock, waits as
    /// long as the plan says. Fails if the directory was made for another workspace or another agent: see [`Self::check_owner`].
    pub(crate) async fn take_for(plan: &Plan) -> anyhow::Result<Self> {
        let path = &plan.data_dir;
        let data_dir = Self::take_within(path, plan.lock_wait)
            .await?
            .check_owner(&kind(&plan.agent), &plan.workspace)?;
        if plan.agent_reaches_data_dir {
            // With this file, git and OpenCode's snapshots leave out everything in the directory, the file itself included.
            let ignore = path.join(".gitignore");
            // A `.gitignore` of the project stays as it is.
            if !ignore.exists() && *path != plan.workspace && !plan.allowed_roots.contains(path) {
                write_private(&ignore, "*").with_context(|| cannot_write(&ignore))?;
            }
        }
        Ok(data_dir)
    }

    /// Creates the directory if necessary, and locks it. Fails if another process still holds the lock after this time.
    async fn take_within(path: &Path, patience: Duration) -> anyhow::Result<Self> {
        let lock = lock_file(path)?;
        if !try_lock(&lock, path)? && !lock_within(GLANCE, &lock, path).await? {
            if patience.is_zero() {
                bail!(
                    "a gateway{} already uses the data directory {}; end it first, let this one wait for it with \
                     --lock-wait SECONDS, or choose another directory with --data-dir",
                    holder(path),
                    path.display()
                );
            }
            output::print(format_args!(
                "Waiting up to {patience:?} for the gateway{} that uses the data directory ...",
                holder(path)
            ));
            if !lock_within(patience, &lock, path).await? {
                bail!(
                    "a gateway{} still uses the data directory {} after {patience:?}; end it first, or choose another \
                     directory with --data-dir",
                    holder(path),
                    path.display()
                );
            }
        }
        Ok(Self::locked(lock, path))
    }

    /// Fails if a demo made the directory and this gateway is not a demo, or the other way round: a demo has its sessions in
    /// another OpenCode home. Also fails if the directory was made for another agent or another workspace: its tasks, its sessions,
    /// and an OpenCode that was left running belong to these.
    fn check_owner(self, kind: &str, workspace: &Path) -> anyhow::Result<Self> {
        let path = &self.path;
        let (kind_file, workspace_file) = (path.join("kind"), path.join("workspace"));
        let (old_kind, old_workspace) = (read(&kind_file)?, read(&workspace_file)?);
        if let Some(old) = old_kind.as_deref().filter(|old| *old != kind) {
            let made = match old.split_once(' ') {
                Some((_, agent)) => format!("for the agent {agent}; serve that agent"),
                None if old == DEMO => "with --demo; add --demo".to_owned(),
                None if kind == DEMO => "without --demo; leave --demo out".to_owned(),
                None => "for OpenCode; leave --agent out".to_owned(),
            };
            let path = path.display();
            bail!("the data directory {path} was made {made}, or choose another one with --data-dir");
        }
        if let Some(old) = old_workspace.as_deref().filter(|old| Path::new(old) != workspace) {
            bail!(
                "the data directory {} belongs to the workspace {old}, not to {}; serve that workspace with --workspace {}, \
                 or choose another data directory with --data-dir",
                path.display(),
                workspace.display(),
                output::shell_word(old)
            );
        }
        if old_kind.is_none() {
            write_private(&kind_file, kind).with_context(|| cannot_write(&kind_file))?;
        }
        if old_workspace.is_none() {
            // The plan accepts only a workspace whose path is UTF-8, so nothing is lost.
            write_private(&workspace_file, &workspace.to_string_lossy())
                .with_context(|| cannot_write(&workspace_file))?;
        }
        Ok(self)
    }

    /// Creates the directory if necessary, and locks it. Fails if another process holds the lock.
    pub(crate) fn take(path: &Path) -> anyhow::Result<Self> {
        let lock = lock_file(path)?;
        if !try_lock(&lock, path)? {
            bail!(
                "a gateway{} already uses the data directory {}; end it first, or choose another directory with --data-dir",
                holder(path),
                path.display()
            );
        }
        Ok(Self::locked(lock, path))
    }

    fn locked(mut lock: File, path: &Path) -> Self {
        // The process id is only for error messages; the lock itself does not depend on it.
        let written = lock
            .set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        if let Err(error) = written {
            tracing::warn!(%error, "could not write the process id into the lock file of the data directory");
        }
        Self { path: path.to_owned(), _lock: lock }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Fails if the store would be in a file that the gateway uses for something else.
    fn check_name(&self, store: &Path) -> anyhow::Result<()> {
        let name = store.file_name().unwrap_or_default();
        let draft = Path::new(name).with_extension("");
        let is_taken = store.parent() == Some(&self.path)
            && OWN_FILES.iter().any(|own| {
                name == *own || (draft == Path::new(own) && store.extension() == Some("new".as_ref()))
            });
        if is_taken {
            bail!(
                "the gateway keeps another file at {}; choose another name with --database",
                store.display()
            );
        }
        Ok(())
    }

    /// Fails if this directory's gateway has used this store before and the store's file is missing or empty now. A new store in
    /// its place would hide that all tasks are lost.
    pub(crate) fn check_store(&self, store: &Path) -> anyhow::Result<()> {
        self.check_name(store)?;
        let note = self.path.join(STORE_NOTE);
        if read(&note)?.as_deref() != Some(&*self.store_name(store)) {
            return Ok(());
        }
        let what = match store.metadata() {
            Ok(metadata) if metadata.len() == 0 => "empty",
            Err(error) if error.kind() == io::ErrorKind::NotFound => "missing",
            // Any other problem is reported when the store is opened.
            _ => return Ok(()),
        };
        bail!(
            "the store {} is {what}, and a gateway has kept tasks in it before; restore it from a backup, or remove {} to start \
             with an empty store",
            store.display(),
            note.display()
        )
    }

    /// Writes down which store is in use, for [`Self::check_store`]. A failure does not prevent the start, because only that check
    /// becomes weaker. The disk may be full.
    pub(crate) fn note_store(&self, store: &Path) {
        let (note, name) = (self.path.join(STORE_NOTE), self.store_name(store));
        if read(&note).is_ok_and(|noted| noted.as_deref() == Some(&*name)) {
            return;
        }
        if let Err(error) = write_private(&note, &name) {
            tracing::warn!(%error, "could not note in the data directory which store is in use");
        }
    }

    /// Writes down the address of the gateway, for commands that call it. A failure does not prevent the start: the disk may be
    /// full, and these commands take a URL too.
    pub(crate) fn note_address(&self, address: &str) -> Option<NotedAddress> {
        let path = self.path.join(ADDRESS);
        let noted = write_private_with(&path, address, |file| {
            Ok(flock(file, FlockOperation::NonBlockingLockExclusive)?)
        });
        match noted {
            Ok(file) => Some(NotedAddress { path, _lock: file }),
            Err(error) => {
                tracing::warn!(%error, "could not note the address of the gateway in the data directory");
                None
            }
        }
    }

    /// The path of the store. It is relative if the store is in the data directory, because the directory may be moved.
    fn store_name<'a>(&self, store: &'a Path) -> std::borrow::Cow<'a, str> {
        store.strip_prefix(&self.path).unwrap_or(store).to_string_lossy()
    }
}

/// The address of this gateway, in its data directory. Dropped before the gateway closes its listeners: afterwards another program
/// can listen there, and must not get the token.
#[derive(Debug)]
pub(crate) struct NotedAddress {
    path: PathBuf,
    /// The locked file. The kernel releases the lock when the process is killed.
    _lock: File,
}

impl Drop for NotedAddress {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(%error, "could not remove the address of the gateway from the data directory");
        }
    }
}

/// The token of a data directory that exists. Generated if there is none yet.
pub(crate) fn token(path: &Path) -> anyhow::Result<SecretString> {
    if let Some(token) = existing_token(path)? {
        return Ok(token);
    }
    let file = path.join(TOKEN);
    let token = Alphanumeric.sample_string(&mut rand::rng(), TOKEN_LENGTH);
    write_private(&file, &token).with_context(|| cannot_write(&file))?;
    Ok(token.into())
}

/// The token of a data directory, if it has one.
pub(crate) fn existing_token(path: &Path) -> anyhow::Result<Option<SecretString>> {
    let token = read(&path.join(TOKEN))?;
    Ok(token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty()).map(Into::into))
}

/// The secret of a data directory, made on first use. Keys for different purposes are derived from it with different labels.
pub(crate) fn secret(path: &Path) -> anyhow::Result<[u8; 32]> {
    let file = path.join(SECRET);
    if let Some(text) = read(&file)? {
        let digits = text.trim();
        let byte = |index: usize| u8::from_str_radix(digits.get(2 * index..2 * index + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..32).map(byte).collect();
        let bytes = bytes.filter(|_| digits.len() == 64).and_then(|bytes| bytes.try_into().ok());
        return bytes
            .with_context(|| format!("{} does not hold 64 hexadecimal digits; remove it", file.display()));
    }
    let secret: [u8; 32] = rand::random();
    let digits = secret.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let text: String = digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect();
    write_private(&file, &text).with_context(|| cannot_write(&file))?;
    Ok(secret)
}

/// The keys of a data directory, in a file that only its owner can read.
#[derive(Debug)]
pub(crate) struct KeyFile(PathBuf);

impl KeyFile {
    pub(crate) fn of(data_dir: &Path) -> Self {
        Self(data_dir.join(KEYS))
    }
}

impl KeyStorage for KeyFile {
    fn load(&self) -> Result<Option<SecretString>, String> {
        let text = read(&self.0).map_err(|error| format!("{error:#}"))?;
        Ok(text.map(SecretString::from))
    }

    fn save(&self, text: &SecretString) -> Result<(), String> {
        let written = write_private(&self.0, text.expose_secret().trim_end());
        written.map_err(|error| format!("{}: {error}", cannot_write(&self.0)))
    }
}

/// The address of the gateway that serves a data directory now. `None`: none does.
pub(crate) fn address(path: &Path) -> anyhow::Result<Option<String>> {
    let path = path.join(ADDRESS);
    let cannot_read = || format!("cannot read {}", path.display());
    let mut file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.with_context(cannot_read)?,
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => {}
        // A gateway that was killed left the file behind.
        Ok(()) => return Ok(None),
        Err(error) => return Err(error).with_context(cannot_read),
    }
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(cannot_read)?;
    Ok(Some(text.strip_suffix('\n').unwrap_or(&text).to_owned()))
}

/// The default data directory of the same workspace with `--demo`, or without it if `path` is that of a demo. `None`: it was
/// never served so.
pub(crate) fn of_other_kind(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let other = match name.strip_suffix(DEMO_SUFFIX) {
        Some(own) => own.to_owned(),
        None => format!("{name}{DEMO_SUFFIX}"),
    };
    Some(path.with_file_name(other)).filter(|other| other.join(TOKEN).exists())
}

/// Whether a demo made the directory, and for which workspace.
pub(crate) fn owner(path: &Path) -> anyhow::Result<(bool, Option<String>)> {
    Ok((read(&path.join("kind"))?.as_deref() == Some(DEMO), read(&path.join("workspace"))?))
}

/// Copies the files that identify the owner of a data directory (kind, workspace, token), the keys of the secrets in its store, and
/// the secret to a new one. Missing files are left out.
pub(crate) fn copy_owner_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    for name in ["kind", "workspace", TOKEN, KEYS, SECRET] {
        if let Some(text) = read(&from.join(name))? {
            let file = to.join(name);
            write_private(&file, &text).with_context(|| cannot_write(&file))?;
        }
    }
    Ok(())
}

/// The agent whose sessions the tasks of a directory belong to.
fn kind(agent: &AgentPlan) -> String {
    match agent {
        AgentPlan::Attached { .. } | AgentPlan::Managed { .. } => "own".to_owned(),
        AgentPlan::Demo { .. } => DEMO.to_owned(),
        AgentPlan::Acp(agent) => format!("acp {}", agent.name),
    }
}

fn cannot_write(file: &Path) -> String {
    format!(
        "cannot write {}; the gateway needs a data directory that it owns, on a disk that is writable and has free space \
         (choose another with --data-dir)",
        file.display()
    )
}

fn create(path: &Path) -> anyhow::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot create the data directory {}", path.display()))?;
    Ok(())
}

fn warn_if_open_to_others(path: &Path) -> io::Result<()> {
    let mode = path.metadata()?.permissions().mode() & 0o777;
    // The directory's mode is not changed, because other users may need access to it. The files in it are private anyway.
    if mode & 0o077 != 0 {
        output::warn(format_args!(
            "the data directory {} is open to other users (mode {mode:o}); `chmod 700` closes it",
            path.display()
        ));
    }
    Ok(())
}

/// Reads a text that [`write_private`] wrote. `None`: there is no such file.
fn read(file: &Path) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text.strip_suffix('\n').unwrap_or(&text).to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Writes the file atomically, readable by the owner only.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    write_private_with(path, text, |_| Ok(())).map(drop)
}

/// The same, and returns the open file. `prepare` gets it before it has its name.
fn write_private_with(
    path: &Path,
    text: &str,
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<File> {
    let draft = path.with_extension("new");
    // A draft that a crash left behind may have other permissions.
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    prepare(&file)?;
    std::fs::rename(draft, path)?;
    // The new name must survive a loss of power: a key may seal secrets from now on.
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(file)
}

/// Opens the file that is locked. Creates it and its directory if necessary.
fn lock_file(path: &Path) -> anyhow::Result<File> {
    create(path)?;
    warn_if_open_to_others(path)?;
    let file = path.join("lock");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(&file).with_context(|| cannot_write(&file))
}

/// Tries to lock the file. False: another process holds the lock.
fn try_lock(lock: &File, path: &Path) -> anyhow::Result<bool> {
    match flock(lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// Tries to lock the file until the time is up. Returns false if another process still holds the lock then.
async fn lock_within(patience: Duration, lock: &File, path: &Path) -> anyhow::Result<bool> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        tokio::time::sleep_until(deadline.min(Instant::now() + RETRY_EVERY)).await;
        if try_lock(lock, path)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The process that holds a data directory, as " (process 123)", if the lock file names it.
fn holder(path: &Path) -> String {
    match std::fs::read_to_string(path.join("lock")) {
        Ok(text) if text.trim().parse::<u32>().is_ok() => format!(" (process {})", text.trim()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn take_for(path: &Path, kind: &str, workspace: &Path) -> anyhow::Result<DataDir> {
        DataDir::take(path)?.check_owner(kind, workspace)
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_secret_of_a_data_directory_is_private_and_stays_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let made = secret(directory.path()).unwrap();
        assert_eq!(secret(directory.path()).unwrap(), made);
        assert_eq!(mode(&directory.path().join(SECRET)), 0o600);
        std::fs::write(directory.path().join(SECRET), "short").unwrap();
        assert!(secret(directory.path()).is_err());
    }

    #[test]
    fn only_one_process_at_a_time_holds_a_data_directory() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let first = DataDir::take(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&path.join("lock")), 0o600);
        let refused = DataDir::take(&path).unwrap_err().to_string();
        let expected = format!("a gateway (process {}) already uses the data directory", std::process::id());
        assert!(refused.starts_with(&expected), "{refused}");
        drop(first);
        DataDir::take(&path).unwrap();
    }

    #[tokio::test]
    async fn a_start_waits_for_a_command_that_only_looks_at_the_lock() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let looking = DataDir::take(&path).unwrap();
        let (taken, ()) = tokio::join!(DataDir::take_within(&path, Duration::ZERO), async { drop(looking) });
        let serving = taken.unwrap();
        let refused = DataDir::take_within(&path, Duration::ZERO).await.unwrap_err().to_string();
        assert!(refused.contains("already uses the data directory"), "{refused}");
        drop(serving);
    }

    #[test]
    fn only_the_address_of_a_gateway_that_runs_is_known() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let known = || address(&path).unwrap();
        assert_eq!(known(), None);
        let data_dir = DataDir::take(&path).unwrap();
        let noted = data_dir.note_address("http://127.0.0.1:1").unwrap();
        for _ in 0..2 {
            assert_eq!(known().as_deref(), Some("http://127.0.0.1:1"), "asking changes nothing");
        }
        assert_eq!(mode(&path.join(ADDRESS)), 0o600);
        drop(noted);
        assert!(!path.join(ADDRESS).exists());
        // As a killed gateway, and one of an earlier version, leave it. Another command holds the lock of the directory.
        write_private(&path.join(ADDRESS), "http://127.0.0.1:2").unwrap();
        assert_eq!(known(), None);
        let _noted = data_dir.note_address("http://127.0.0.1:3").unwrap();
        assert_eq!(known().as_deref(), Some("http://127.0.0.1:3"));
    }

    #[test]
    fn two_agents_never_share_a_data_directory() {
        let parent = tempfile::tempdir().unwrap();
        let cases = [
            (DEMO, "own", "was made with --demo; add --demo, or"),
            ("own", DEMO, "was made without --demo; leave --demo out, or"),
            ("own", "acp qwen", "was made for OpenCode; leave --agent out, or"),
            ("acp qwen", "own", "was made for the agent qwen; serve that agent, or"),
            ("acp qwen", "acp vibe", "was made for the agent qwen; serve that agent, or"),
        ];
        for (index, (old, new, expected)) in cases.into_iter().enumerate() {
            let path = parent.path().join(index.to_string());
            drop(take_for(&path, old, Path::new("/a")).unwrap());
            let refused = take_for(&path, new, Path::new("/a")).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
            drop(take_for(&path, old, Path::new("/a")).unwrap());
        }
    }

    #[test]
    fn a_data_directory_serves_only_the_workspace_that_it_was_made_for() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let ours = Path::new("/home/ada/ours \n");
        drop(take_for(&path, "own", ours).unwrap());
        for (other, allowed) in [(Path::new("/home/ada/ours"), false), (Path::new("/"), false), (ours, true)]
        {
            match take_for(&path, "own", other) {
                Ok(_) => assert!(allowed, "{} was accepted", other.display()),
                Err(refused) => {
                    let expected =
                        format!("belongs to the workspace {}, not to {};", ours.display(), other.display());
                    assert!(!allowed && refused.to_string().contains(&expected), "{refused}");
                }
            }
        }
        assert_eq!(mode(&path.join("workspace")), 0o600);
    }

    #[test]
    fn a_store_does_not_take_the_name_of_another_file_of_the_directory() {
        let parent = tempfile::tempdir().unwrap();
        let data_dir = DataDir::take(&parent.path().join("data")).unwrap();
        for name in ["store", "store.new", "token", "lock", "kind", "workspace", "address", ".gitignore"] {
            let refused = data_dir.check_store(&data_dir.path().join(name)).unwrap_err().to_string();
            assert!(refused.contains("choose another name with --database"), "{name}: {refused}");
        }
        for path in [data_dir.path().join("longshore.db"), parent.path().join("store")] {
            data_dir.check_store(&path).unwrap();
        }
    }

    #[test]
    fn a_refused_start_leaves_the_data_directory_unchanged() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        drop(DataDir::take(&path).unwrap());
        write_private(&path.join("kind"), DEMO).unwrap();
        take_for(&path, "own", Path::new("/a")).unwrap_err();
        assert!(!path.join("workspace").exists(), "a refused start wrote into the directory");
    }

    #[test]
    fn a_store_that_was_used_and_is_missing_or_empty_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let data_dir = DataDir::take(&parent.path().join("data")).unwrap();
        let (inside, outside) = (data_dir.path().join("longshore.db"), parent.path().join("tasks.db"));
        for store in [&inside, &outside] {
            data_dir.check_store(store).unwrap();
            // A first start that crashed.
            std::fs::write(store, "").unwrap();
            data_dir.check_store(store).unwrap();
            data_dir.note_store(store);
            let refused = data_dir.check_store(store).unwrap_err().to_string();
            assert!(refused.contains("is empty, and a gateway has kept tasks in it before"), "{refused}");
            std::fs::remove_file(store).unwrap();
            let refused = data_dir.check_store(store).unwrap_err().to_string();
            assert!(refused.contains("is missing, and a gateway"), "{refused}");
            std::fs::write(store, "something").unwrap();
            data_dir.check_store(store).unwrap();
        }
        // Another store may be new.
        std::fs::remove_file(&inside).unwrap();
        data_dir.check_store(&inside).unwrap();
    }

    #[test]
    fn a_token_is_generated_once_and_kept_private() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        drop(DataDir::take(&path).unwrap());
        assert!(existing_token(&path).unwrap().is_none());
        let made = token(&path).unwrap();
        assert_eq!(made.expose_secret().len(), TOKEN_LENGTH);
        assert_eq!(token(&path).unwrap().expose_secret(), made.expose_secret());
        assert_eq!(mode(&path.join("token")), 0o600);
        std::fs::write(path.join("token"), "\n").unwrap();
        assert_ne!(token(&path).unwrap().expose_secret(), made.expose_secret());
    }
}
