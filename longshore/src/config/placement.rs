//! Checks the location of the gateway's data. The agent and its snapshots reach everything in the workspace and in the allowed
//! roots, so data there must be allowed with `--data-dir-in-workspace`.

use std::path::{Path, PathBuf};

use longshore_engine::leads_into;

use super::plan::StorePlan;
use super::problem::{Problem, Source};
use super::read::Reader;
use super::table;

/// The directories in which the agent works for callers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach<'a> {
    pub(super) workspace: &'a Path,
    pub(super) allowed_roots: &'a [PathBuf],
}

impl Reach<'_> {
    /// The directory that contains the path, in words. `None`: none of them does.
    pub(super) fn contains(self, path: &Path) -> Option<&'static str> {
        if leads_into(path, self.workspace) {
            return Some("in the workspace");
        }
        let is_in_root = self.allowed_roots.iter().any(|root| leads_into(path, root));
        is_in_root.then_some("in an allowed root (opencode.allowed_roots)")
    }
}

/// Checks the location of the data. Returns a problem if the data must not be kept there. Only warns about locations that an
/// earlier version or `opencode-a2a` uses.
pub(super) fn check(
    reader: &mut Reader<'_>,
    reach: Option<Reach<'_>>,
    data_dir: Option<&Path>,
    store: Option<&StorePlan>,
) -> Option<Problem> {
    let is_allowed = reader.switch(&table::DATA_DIR_IN_WORKSPACE);
    let (reach, data_dir) = (reach?, data_dir?);
    if let Some(place) = reach.contains(data_dir).filter(|_| !is_allowed) {
        let is_default = reader.written(&table::DATA_DIR).is_none();
        if !is_default || !data_dir.join("workspace").exists() {
            return Some(refusal(reader, data_dir, place));
        }
        reader.warn(format!(
            "the data directory {0} is {place}, where an earlier version put it. It is used, and kept from callers and \
             from OpenCode's snapshots. To move it, end the gateway, run `longshore stop --data-dir {0}`, move the directory \
             to a place outside, and name its new place with --data-dir. Delete the file `token` in it to get a new token: \
             old snapshots may show the old one",
            data_dir.display()
        ));
    }
    if let Some(StorePlan::Sqlite { path, .. }) = store
        && let Some(place) = reach.contains(path)
        && !leads_into(path, data_dir)
    {
        // Only a warning: `opencode-a2a` documents such a path, and a deployment that moves from it to Longshore must start.
        reader.warn(format!(
                "the database {} is {place} but not in the data directory, so OpenCode's snapshots copy it at each \
                 step of the agent; it is kept from callers; list it in .gitignore, or move it",
                path.display()
            ));
    }
    None
}

fn refusal(reader: &mut Reader<'_>, path: &Path, place: &str) -> Problem {
    let setting = &table::DATA_DIR;
    let source = reader.written(setting).map_or(Source::Default, |written| written.source);
    let reason = format!(
        "{} is {place}, where the agent and its snapshots reach it; choose a place outside and move existing data \
         there, or allow this one with --data-dir-in-workspace",
        path.display()
    );
    Problem::rule(&source, setting, reason)
}
