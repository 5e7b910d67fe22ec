//! Finds the files that the input of a tool call names, and where their paths lead.

use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use longshore_model::ToolLocation;
use serde_json::Value;

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

/// How many locations of a call are shown, and how many bytes the path of one may have. Others are left out.
const MAX_LOCATIONS: usize = 64;
const MAX_LOCATION_BYTES: usize = 1024;

/// How many components are removed from a path, or links followed, until an existing file or directory is found.
const MAX_STEPS: usize = 256;

/// Collects the paths in the input of a call of this kind, as the agent wrote them.
pub(super) fn of_input(input: &Value, kind: Option<&str>, found: &mut Vec<String>) {
    match input {
        Value::Array(values) => values.iter().for_each(|value| of_input(value, kind, found)),
        Value::Object(members) => {
            for (name, value) in members {
                if is_file(name) || (kind != Some("execute") && DIRECTORIES.contains(&name.as_str())) {
                    let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                    let paths = values.iter().filter_map(Value::as_str).filter(|path| !path.is_empty());
                    found.extend(paths.map(str::to_owned));
                }
                let glob =
                    value.as_str().filter(|_| kind == Some("search") && GLOBS.contains(&name.as_str()));
                // Other patterns cannot leave the directory of the search.
                found.extend(glob.filter(|glob| leaves(glob)).map(str::to_owned));
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
            let mut found = Vec::new();
            of_input(&input, Some(kind), &mut found);
            // Sorted, because it depends on the build whether JSON keeps the order of members.
            found.sort_unstable();
            assert_eq!(found, expected, "{kind} {input}");
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
