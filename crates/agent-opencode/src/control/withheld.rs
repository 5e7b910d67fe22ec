//! Removes the patches of the gateway's own files from results for callers.
//!
//! OpenCode's snapshots contain every file of the workspace that git does not ignore. So a patch may show a token or a password,
//! even from an earlier version of the file.

use std::path::Path;
use std::sync::Arc;

use longshore_engine::ProtectedPaths;
use longshore_engine::port::Session;
use longshore_model::{ControlResult, Error, Result, Revert, SessionInfo};

use crate::OpenCode;

/// The status of a change whose patch is withheld.
const WITHHELD: &str = "withheld";

impl OpenCode {
    /// Removes the patches of protected files from a result. `session`: the session whose changes are in the result.
    pub(super) async fn withhold(
        &self,
        session: Option<&Session>,
        result: ControlResult,
    ) -> Result<ControlResult> {
        let shows_patch = match &result {
            ControlResult::Diffs(diffs) => !diffs.is_empty(),
            ControlResult::Session(session) => has_patch(session),
            ControlResult::Sessions(sessions) => sessions.iter().any(has_patch),
            _ => false,
        };
        if !shows_patch {
            return Ok(result);
        }
        let root = session.map_or(&self.access.root, |session| &session.directory).clone();
        let protected = Arc::clone(&self.access.protected);
        // Runs on a blocking thread, because the check of each path reads the disk.
        let withheld = tokio::task::spawn_blocking(move || withhold(&protected, &root, result));
        withheld.await.map_err(Error::internal)
    }
}

fn has_patch(session: &SessionInfo) -> bool {
    session.revert.as_ref().is_some_and(|revert| revert.diff.is_some())
}

fn withhold(protected: &ProtectedPaths, root: &str, mut result: ControlResult) -> ControlResult {
    match &mut result {
        ControlResult::Diffs(diffs) => {
            for diff in diffs.iter_mut().filter(|diff| is_protected(protected, root, &diff.file)) {
                diff.patch = None;
                diff.status = Some(WITHHELD.to_owned());
            }
        }
        ControlResult::Session(session) => withhold_revert(protected, root, session),
        ControlResult::Sessions(sessions) => {
            for session in sessions {
                withhold_revert(protected, root, session);
            }
        }
        _ => {}
    }
    result
}

fn withhold_revert(protected: &ProtectedPaths, root: &str, session: &mut SessionInfo) {
    let directory = session.directory.as_deref().unwrap_or(root);
    if let Some(Revert { diff, .. }) = &mut session.revert {
        let is_shown =
            |diff: &String| !changed_names(diff).any(|name| is_protected(protected, directory, name));
        *diff = diff.take().filter(is_shown);
    }
}

/// Whether the file may be protected. OpenCode's file names are relative to the top of the repository, which is the directory of
/// the session or any directory above it. So the file is checked relative to each of these.
fn is_protected(protected: &ProtectedPaths, directory: &str, file: &str) -> bool {
    Path::new(directory).ancestors().any(|above| protected.deny(&above.join(file)))
}

/// The file names in the header lines of a patch (`diff --git a/x b/x`). If a name contains a blank, a line can be split in several
/// ways, and the names of all possible splits are returned.
fn changed_names(patch: &str) -> impl Iterator<Item = &str> {
    let headings = patch.lines().filter_map(|line| line.strip_prefix("diff --git "));
    headings.flat_map(|heading| {
        let splits = heading.match_indices(" b/").chain(heading.match_indices(" \"b/"));
        splits.flat_map(|(at, _)| [&heading[..at], &heading[at + 1..]]).map(|name| {
            let name = name.trim_matches('"');
            name.strip_prefix("a/").or_else(|| name.strip_prefix("b/")).unwrap_or(name)
        })
    })
}

#[cfg(test)]
mod tests {
    use longshore_model::{AgentMessageId, FileDiff, SessionId};

    use super::*;

    #[test]
    fn patches_of_protected_files_are_withheld_and_all_others_shown() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join(".longshore")).unwrap();
        std::fs::create_dir_all(root.join("sub")).unwrap();
        for file in [".longshore/token", "longshore.toml", "sub/own.txt"] {
            std::fs::write(root.join(file), "s3cret").unwrap();
        }
        std::fs::hard_link(root.join("longshore.toml"), root.join("sub/hard.toml")).unwrap();
        let protected = ProtectedPaths::new([".longshore", "longshore.toml"].map(|name| root.join(name)));
        let absolute = root.join("longshore.toml");
        let cases = [
            (".longshore/token", true),
            (".longshore/gone/deep", true),
            ("./.longshore//token", true),
            ("sub/../longshore.toml", true),
            ("longshore.toml", true),
            ("sub/hard.toml", true),
            (absolute.to_str().unwrap(), true),
            ("sub/own.txt", false),
            ("longshore.toml.md", false),
            ("sub/gone", false),
        ];
        for directory in [root.clone(), root.join("sub")] {
            for (file, is_withheld) in cases {
                let diff = FileDiff {
                    file: file.to_owned(),
                    patch: Some("+s3cret".to_owned()),
                    status: Some("added".to_owned()),
                    additions: 1,
                    deletions: 0,
                    message: None,
                };
                let result = ControlResult::Diffs(vec![diff]);
                let result = withhold(&protected, directory.to_str().unwrap(), result);
                let ControlResult::Diffs(diffs) = result else { panic!("other result") };
                assert_eq!(diffs[0].patch.is_none(), is_withheld, "{file}");
                assert_eq!(
                    diffs[0].status.as_deref(),
                    Some(if is_withheld { WITHHELD } else { "added" }),
                    "{file}"
                );

                for heading in [
                    format!("diff --git a/{file} b/{file}"),
                    format!("diff --git \"a/{file}\" \"b/{file}\""),
                    format!("diff --git a/x b/x\n+y\ndiff --git a/{file} b/{file}"),
                ] {
                    let session = reverted(&directory, format!("{heading}\n+s3cret\n"));
                    let shown = withhold(&protected, "/", ControlResult::Sessions(vec![session]));
                    let ControlResult::Sessions(shown) = shown else { panic!("other result") };
                    assert_eq!(!has_patch(&shown[0]), is_withheld, "{heading}");
                }
            }
        }
    }

    fn reverted(directory: &Path, diff: String) -> SessionInfo {
        SessionInfo {
            id: SessionId::parse("ses_1").unwrap(),
            title: String::new(),
            project: None,
            directory: directory.to_str().map(str::to_owned),
            parent: None,
            workspace: None,
            version: None,
            share_url: None,
            revert: Some(Revert {
                message: AgentMessageId::parse("msg_1").unwrap(),
                part: None,
                snapshot: None,
                diff: Some(diff),
            }),
            created: None,
            updated: None,
        }
    }
}
