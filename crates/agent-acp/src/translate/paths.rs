//! Finds the files that the input of a tool call names, and where their paths lead.

use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use longshore_model::ToolLocation;
use serde_json::Value;
use url::Url;

use crate::schema::Location;

/// The members of an input that name files, in lower case and without `_` and `-`. Each agent uses other names.
const FILES: [&str; 21] = [
    "absolutepath",
    "destination",
    "destinationpath",
    "file",
    "filename",
    "filepath",
    "filepaths",
    "files",
    "newpath",
    "notebookpath",
    "oldpath",
    "path",
    "paths",
    "relativepath",
    "source",
    "sourcepath",
    "target",
    "targetfile",
    "targetpath",
    "uri",
    "uris",
];

/// The members that name the directory in which a command runs, or on which another tool works.
pub(super) const DIRECTORIES: [&str; 5] = ["cwd", "directory", "workdir", "working_directory", "dir_path"];

/// The members with the file pattern of a search.
const GLOBS: [&str; 3] = ["pattern", "glob", "include"];

/// How many paths of a call are known. Of a call that names more, one more is kept, which says so.
pub(crate) const MAX_PATHS: usize = 64;

/// The longest path that the system takes, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// How many locations of a call are shown, and the longest path of one, in bytes. Others are left out.
const MAX_LOCATIONS: usize = 64;
const MAX_LOCATION_BYTES: usize = 1024;

/// How many components are removed from a path, or links followed, until an existing file or directory is found.
const MAX_STEPS: usize = 256;

/// The different paths of a call, as the agent wrote them: at most one more than [`MAX_PATHS`].
#[derive(Debug, Default)]
pub(super) struct Paths(pub(super) Vec<String>);

impl Paths {
    pub(super) fn add(&mut self, path: &str) {
        if self.0.len() <= MAX_PATHS && !self.0.iter().any(|known| known == path) {
            self.0.push(path.to_owned());
        }
    }
}

/// The paths from which a file that the agent shows may come, as far as the agent names them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilePaths {
    /// Those of the tool call.
    pub of_call: Arc<[PathBuf]>,
    /// That of the file itself.
    pub own: Option<PathBuf>,
}

impl FilePaths {
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        self.of_call.iter().chain(&self.own).map(PathBuf::as_path)
    }
}

/// Only the agent knows where a path leads, or there are too many paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NotKnown;

/// Where the paths of a call may lead.
pub(super) fn all_of_call(paths: &[String], directory: &Path) -> Result<Arc<[PathBuf]>, NotKnown> {
    if paths.len() > MAX_PATHS {
        return Err(NotKnown);
    }
    let mut all = Vec::new();
    for path in paths {
        // Agents write a URI or a path, and a path may look like a URI.
        all.push(in_directory(path, directory)?);
        all.extend(of_uri(path, directory)?.filter(|other| all.last() != Some(other)));
    }
    Ok(all.into())
}

/// The path that a URI names, if it names one.
pub(super) fn of_uri(uri: &str, directory: &Path) -> Result<Option<PathBuf>, NotKnown> {
    match Url::parse(uri) {
        Ok(url) if url.scheme() == "file" => {
            let path = url.to_file_path().map_err(|()| NotKnown)?;
            in_directory(path.to_str().ok_or(NotKnown)?, directory).map(Some)
        }
        Ok(_) => Ok(None),
        // Not a URI, but a path.
        Err(_) => in_directory(uri, directory).map(Some),
    }
}

fn in_directory(path: &str, directory: &Path) -> Result<PathBuf, NotKnown> {
    if path.starts_with('~') || path.len() > MAX_PATH_BYTES {
        return Err(NotKnown);
    }
    Ok(directory.join(path))
}

/// The paths in the input of a call of this kind, as the agent wrote them.
pub(super) fn of_input(input: &Value, kind: Option<&str>, found: &mut Paths) {
    match input {
        Value::Array(values) => values.iter().for_each(|value| of_input(value, kind, found)),
        Value::Object(members) => {
            for (name, value) in members {
                if is_file(name) || (kind != Some("execute") && DIRECTORIES.contains(&name.as_str())) {
                    let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                    let paths = values.iter().filter_map(Value::as_str).filter(|path| !path.is_empty());
                    paths.for_each(|path| found.add(path));
                }
                let glob =
                    value.as_str().filter(|_| kind == Some("search") && GLOBS.contains(&name.as_str()));
                // Other patterns stay below the directory of the search.
                glob.filter(|glob| leaves(glob)).into_iter().for_each(|glob| found.add(glob));
                of_input(value, kind, found);
            }
        }
        _ => {}
    }
}

fn is_file(name: &str) -> bool {
    let name = name.replace(['_', '-'], "").to_ascii_lowercase();
    FILES.contains(&name.as_str())
}

fn leaves(glob: &str) -> bool {
    glob.starts_with(['/', '~']) || glob.split('/').any(|part| part == "..")
}

/// The locations for callers: only those in the directory of the session.
pub(super) fn located(locations: &[Location], directory: Option<&str>) -> Vec<ToolLocation> {
    let location = |Location { path, line }: &Location| {
        let path = below(path, directory?).filter(|path| path.len() <= MAX_LOCATION_BYTES)?;
        Some(ToolLocation { path, line: *line })
    };
    locations.iter().filter_map(location).take(MAX_LOCATIONS).collect()
}

/// The path relative to the directory. Links are not followed, so the result shows only what the agent wrote. `None`: the path is
/// not in the directory, or its beginning is not known.
fn below(path: &str, directory: &str) -> Option<String> {
    let is_elsewhere =
        path.is_empty() || path.starts_with('~') || (has_scheme(path) && !path.starts_with('/'));
    let whole = without_dots(&Path::new(directory).join(path));
    let below = whole.strip_prefix(directory).ok().filter(|_| !is_elsewhere)?.to_str()?;
    Some(if below.is_empty() { ".".to_owned() } else { below.to_owned() })
}

/// Where a path leads, with links resolved, starting from the directory of the session. Agents disagree about `..` after a link, so
/// a path may lead to two places. A place that does not begin with `/` is unknown.
pub(crate) fn places(path: &str, directory: Option<&str>) -> Vec<String> {
    let is_known = !path.is_empty() && !path.starts_with('~') && !path.contains('$') && !has_scheme(path);
    let path = match directory {
        Some(directory) if is_known => Path::new(directory).join(path),
        None if is_known && path.starts_with('/') => PathBuf::from(path),
        _ => return vec![path.to_owned()],
    };
    let mut places = vec![place(&path)];
    if path.components().any(|part| part == Component::ParentDir) {
        let place = place(&without_dots(&path));
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

fn has_scheme(path: &str) -> bool {
    let is_scheme = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_alphabetic())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    };
    path.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme))
}

fn without_dots(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            part => out.push(part),
        }
    }
    out
}

fn place(path: &Path) -> String {
    let real = real(path).and_then(|real| real.into_os_string().into_string().ok());
    real.unwrap_or_else(|| format!("unresolved:{}", path.display()))
}

/// The path with its links resolved. The last components need not exist.
fn real(path: &Path) -> Option<PathBuf> {
    let mut existing = path.to_owned();
    let mut missing = Vec::new();
    for _ in 0..MAX_STEPS {
        match fs::canonicalize(&existing) {
            Ok(mut real) => {
                real.extend(missing.iter().rev());
                return Some(real);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(_) => return None,
        }
        let parent = existing.parent()?.to_owned();
        if let Ok(target) = fs::read_link(&existing) {
            existing = parent.join(target);
        } else {
            missing.push(existing.file_name()?.to_owned());
            existing = parent;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    #[test]
    fn an_input_names_files() {
        for (kind, input, expected) in [
            ("read", json!({"filepath": "a", "content": "b"}), &["a"][..]),
            ("read", json!({"paths": ["/etc/passwd", 1]}), &["/etc/passwd"]),
            ("edit", json!({"edits": [{"file_path": "a"}, {"filePath": "b"}]}), &["a", "b"]),
            ("move", json!({"source": "a", "destination": "b"}), &["a", "b"]),
            ("execute", json!({"command": "ls", "cwd": "/etc"}), &[]),
            ("search", json!({"dir_path": "/etc"}), &["/etc"]),
            ("search", json!({"path": "/w", "pattern": "/etc/**"}), &["/etc/**", "/w"]),
            ("search", json!({"pattern": "../*"}), &["../*"]),
            ("search", json!({"pattern": "**/*.rs"}), &[]),
            ("edit", json!({"path": ""}), &[]),
        ] {
            let mut found = Paths::default();
            of_input(&input, Some(kind), &mut found);
            let Paths(mut found) = found;
            // Whether JSON keeps the order of members depends on the build.
            found.sort_unstable();
            assert_eq!(found, expected, "{kind} {input}");
        }
    }

    #[test]
    fn a_call_has_a_bounded_number_of_different_paths() {
        let mut found = Paths::default();
        let many: Vec<_> = (0..1000).map(|at| format!("{}", at / 2)).collect();
        of_input(&json!({"paths": &many[..2 * MAX_PATHS]}), None, &mut found);
        assert_eq!(found.0.len(), MAX_PATHS);
        assert_eq!(all_of_call(&found.0, Path::new("/w")).unwrap().len(), MAX_PATHS);
        of_input(&json!({"paths": many}), None, &mut found);
        assert_eq!((found.0.len(), all_of_call(&found.0, Path::new("/w"))), (MAX_PATHS + 1, Err(NotKnown)));
    }

    #[test]
    fn the_paths_of_a_file_are_known_or_not() {
        let long = "x".repeat(MAX_PATH_BYTES + 1);
        for (path, of_call, own) in [
            ("a", Ok(&["/w/a"][..]), Ok(Some("/w/a"))),
            ("/a/../b", Ok(&["/a/../b"]), Ok(Some("/a/../b"))),
            ("file:///a%62", Ok(&["/w/file:///a%62", "/ab"]), Ok(Some("/ab"))),
            ("FILE:///a", Ok(&["/w/FILE:///a", "/a"]), Ok(Some("/a"))),
            ("https://e.org/a", Ok(&["/w/https://e.org/a"]), Ok(None)),
            ("file://host/a", Err(NotKnown), Err(NotKnown)),
            ("~/a", Err(NotKnown), Err(NotKnown)),
            (&long, Err(NotKnown), Err(NotKnown)),
        ] {
            let directory = Path::new("/w");
            let found = all_of_call(&[path.to_owned()], directory);
            let expected = of_call.map(|paths| paths.iter().map(PathBuf::from).collect());
            assert_eq!(found, expected, "{path}");
            assert_eq!(of_uri(path, directory), own.map(|own| own.map(PathBuf::from)), "{path}");
        }
    }

    #[test]
    fn locations_are_shown_from_the_directory_of_the_session_on() {
        let long = format!("/w/{}", "x".repeat(MAX_LOCATION_BYTES + 1));
        for (path, expected) in [
            ("/w/a/b", Some("a/b")),
            ("a/$id.rs", Some("a/$id.rs")),
            ("/w/./a/../b:c", Some("b:c")),
            ("/w", Some(".")),
            ("", None),
            ("/w2/a", None),
            ("/etc/passwd", None),
            ("../w2/a", None),
            ("/w/../etc/passwd", None),
            ("~/a", None),
            ("file:///w/a", None),
            (&long, None),
        ] {
            let location = Location { path: path.to_owned(), line: Some(3) };
            let expected = expected.map(|path| ToolLocation { path: path.to_owned(), line: Some(3) });
            assert_eq!(located(&[location], Some("/w")), Vec::from_iter(expected), "{path}");
        }
        let many = vec![Location { path: "a".to_owned(), line: None }; MAX_LOCATIONS + 1];
        assert_eq!(located(&many, Some("/w")).len(), MAX_LOCATIONS);
        assert_eq!(located(&many, None), [], "only the agent knows where they begin");
    }

    #[test]
    fn links_are_followed() {
        let holder = tempfile::tempdir().unwrap();
        let root = holder.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path).to_str().unwrap().to_owned();
        for directory in ["w", "w/d", "etc", "etc/d"] {
            fs::create_dir(at(directory)).unwrap();
        }
        for (target, link) in
            [("etc", "w/link"), ("etc/new", "w/nowhere"), ("etc/d", "w/deep"), ("w/x", "w/x")]
        {
            symlink(at(target), at(link)).unwrap();
        }
        for (path, expected) in [
            ("a", vec![at("w/a")]),
            ("d/new/a", vec![at("w/d/new/a")]),
            ("link/passwd", vec![at("etc/passwd")]),
            ("link/new/passwd", vec![at("etc/new/passwd")]),
            ("nowhere", vec![at("etc/new")]),
            ("nowhere/a", vec![at("etc/new/a")]),
            ("d/../a", vec![at("w/a")]),
            ("deep/../a", vec![at("etc/a"), at("w/a")]),
            ("x", vec![format!("unresolved:{}", at("w/x"))]),
            ("~/a", vec!["~/a".to_owned()]),
            ("$HOME/a", vec!["$HOME/a".to_owned()]),
            ("file:/etc/passwd", vec!["file:/etc/passwd".to_owned()]),
        ] {
            assert_eq!(places(path, Some(&at("w"))), expected, "{path}");
        }
        assert_eq!(places(&at("w/link/a"), None), [at("etc/a")]);
        assert_eq!(places("a", None), ["a"], "only the agent knows where it begins");
    }
}
