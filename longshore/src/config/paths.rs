//! Default paths, and checks of configured ones.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use sha2::{Digest, Sha256};

use super::environment::Environment;

/// The suffix of the data directory of a demo.
pub const DEMO_SUFFIX: &str = "-demo";

/// The directory of Longshore's configuration. `None`: the environment names no directory for a user's configuration.
pub(super) fn config_dir(environment: &Environment) -> Option<PathBuf> {
    let base = absolute(environment, "XDG_CONFIG_HOME");
    Some(base.or_else(|| Some(absolute(environment, "HOME")?.join(".config")))?.join("longshore"))
}

/// The directory for data of this user's programs. `None`: the environment names none.
fn data_home(environment: &Environment) -> Option<PathBuf> {
    match absolute(environment, "XDG_DATA_HOME") {
        Some(data) => Some(data),
        None if cfg!(target_os = "macos") => {
            Some(absolute(environment, "HOME")?.join("Library/Application Support"))
        }
        None => Some(absolute(environment, "HOME")?.join(".local/share")),
    }
}

/// The files of this user's OpenCode that hold credentials, and the conversations of all its clients.
pub(super) fn opencode_secrets(environment: &Environment) -> Vec<PathBuf> {
    // OpenCode uses the XDG directories on macOS too.
    let data = absolute(environment, "XDG_DATA_HOME")
        .or_else(|| Some(absolute(environment, "HOME")?.join(".local/share")));
    let inside = ["auth.json", "mcp-auth.json", "opencode.db", "opencode.db-wal"];
    data.into_iter().flat_map(|data| inside.map(|name| data.join("opencode").join(name))).collect()
}

fn absolute(environment: &Environment, name: &str) -> Option<PathBuf> {
    environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// The path of a program. A bare name stays, to be searched on the PATH; any other path is relative to the gateway's start
/// directory.
pub(super) fn program(here: &Path, program: PathBuf) -> PathBuf {
    if program.components().count() > 1 { here.join(program) } else { program }
}

/// Finds the file of a program. `None`: it does not exist, or cannot be executed.
pub fn find_program(environment: &Environment, here: &Path, program: &Path) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.components().count() > 1 {
        return Some(here.join(program)).filter(is_program);
    }
    let directories = environment.get("PATH").unwrap_or_default();
    std::env::split_paths(directories).map(|directory| here.join(directory).join(program)).find(is_program)
}

/// The default data directory of a workspace. Its name is readable in a listing, and different for each workspace.
///
/// The demo has a different directory, because its sessions are in another OpenCode home. So has each agent that is not OpenCode.
/// `None`: the environment names no directory for a user's data.
pub(super) fn default_data_dir(environment: &Environment, workspace: &Path, suffix: &str) -> Option<PathBuf> {
    Some(data_home(environment)?.join("longshore").join(directory_name(workspace, suffix)))
}

fn directory_name(workspace: &Path, suffix: &str) -> String {
    let last = workspace.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut name: String = last
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '-' })
        // Forty characters are enough to recognize the workspace, and short enough for every file system.
        .take(40)
        .collect();
    name.push('-');
    // Six bytes of the hash are enough to distinguish the workspaces of one user, and it need not be secret.
    for byte in &Sha256::digest(workspace.as_os_str().as_encoded_bytes())[..6] {
        let _ = write!(name, "{byte:02x}");
    }
    name.push_str(suffix);
    name
}

/// Why OpenCode cannot work in a directory: it decodes percent signs in the path. `None`: it can.
pub(super) fn unusable(directory: &Path) -> Option<&'static str> {
    let Some(text) = directory.to_str() else {
        return Some("is not UTF-8, which OpenCode cannot handle; choose another directory");
    };
    let escape =
        |bytes: &[u8]| matches!(bytes, [b'%', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    text.as_bytes().windows(3).any(escape).then_some(
        "has a percent sign before two hexadecimal digits, which OpenCode would misread; choose another directory",
    )
}

/// Why a path cannot be used as a directory. `found`: the path without symbolic links, or the error of resolving it.
pub(super) fn no_directory(path: &Path, found: io::Result<PathBuf>) -> String {
    let path = path.display();
    match found {
        Ok(_) => format!("this is a file, not a directory ({path}); give the path of a directory"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            format!("there is no such directory ({path}); correct the path, or create the directory")
        }
        Err(error) => {
            format!("this directory cannot be opened ({path}): {error}; correct the path or its permissions")
        }
    }
}

/// Parses the path of an SQLite database, which may be a URL in the format of `opencode-a2a`.
///
/// In a `SQLAlchemy` URL, three slashes precede a relative path and four an absolute one.
pub(super) fn database_path(text: &str) -> Option<PathBuf> {
    let text = text.trim();
    let path = match text.split_once("://") {
        None => text,
        Some(("sqlite" | "sqlite+aiosqlite", rest)) => rest.strip_prefix('/')?,
        Some(_) => return None,
    };
    // Refuse options, and refuse an in-memory database, for which there is the setting `data.store`.
    let plain = !path.is_empty()
        && !path.contains(['?', '#'])
        && !path.starts_with(':')
        && !path.starts_with("file:");
    plain.then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_directory_follows_xdg_and_home() {
        type Variables = &'static [(&'static str, &'static str)];
        let workspace = Path::new("/home/ada/my project");
        let name = directory_name(workspace, "");
        assert!(name.starts_with("my-project-"), "{name}");
        let cases: [(Variables, Option<&str>); 4] = [
            (&[("XDG_DATA_HOME", "/data"), ("HOME", "/home/ada")], Some("/data/longshore")),
            (&[("HOME", "/home/ada")], Some("/home/ada/.local/share/longshore")),
            (
                &[("XDG_DATA_HOME", "relative"), ("HOME", "/home/ada")],
                Some("/home/ada/.local/share/longshore"),
            ),
            (&[], None),
        ];
        if cfg!(target_os = "macos") {
            return;
        }
        for (variables, expected) in cases {
            let environment = variables.iter().copied().collect();
            let expected = expected.map(|base| Path::new(base).join(&name));
            assert_eq!(default_data_dir(&environment, workspace, ""), expected, "{variables:?}");
        }
    }

    #[test]
    fn each_workspace_and_the_demo_have_their_own_data_directory() {
        let names = [
            directory_name(Path::new("/a/x"), ""),
            directory_name(Path::new("/b/x"), ""),
            directory_name(Path::new("/a/x"), DEMO_SUFFIX),
        ];
        assert_ne!(names[0], names[1]);
        assert_ne!(names[0], names[2]);
        assert_eq!(names[0], directory_name(Path::new("/a/x"), ""));
    }

    #[test]
    fn only_sqlite_files_are_accepted_as_databases() {
        let cases = [
            ("tasks.db", Some("tasks.db")),
            ("/var/lib/tasks.db", Some("/var/lib/tasks.db")),
            ("sqlite:///tasks.db", Some("tasks.db")),
            ("sqlite+aiosqlite:///./tasks.db", Some("./tasks.db")),
            ("sqlite:////var/tasks.db", Some("/var/tasks.db")),
            ("sqlite://", None),
            ("sqlite:///", None),
            ("sqlite:///:memory:", None),
            ("sqlite:///tasks.db?mode=ro", None),
            ("sqlite+pysqlite:///tasks.db", None),
            ("postgresql://localhost/tasks", None),
            ("file:tasks.db", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(database_path(text), expected.map(PathBuf::from), "{text}");
        }
    }
}
