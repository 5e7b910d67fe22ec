//! Where the gateway keeps its data. The agent and its snapshots reach everything in the workspace, so data there needs a switch.

use std::path::Path;

use longshore_engine::leads_into;

use super::plan::StorePlan;
use super::problem::{Problem, Source};
use super::read::Reader;
use super::setting::Setting;
use super::table;

/// Why the data must not be kept there, if it must not.
pub(super) fn check(
    reader: &mut Reader<'_>,
    workspace: Option<&Path>,
    data_dir: Option<&Path>,
    store: Option<&StorePlan>,
) -> Option<Problem> {
    let is_allowed = reader.switch(&table::DATA_DIR_IN_WORKSPACE);
    let (workspace, data_dir) = (workspace?, data_dir?);
    if leads_into(data_dir, workspace) && !is_allowed {
        let is_default = reader.written(&table::DATA_DIR).is_none();
        if !is_default || !data_dir.join("workspace").exists() {
            return Some(refusal(reader, &table::DATA_DIR, data_dir));
        }
        reader.warn(format!(
            "the data directory {0} is in the workspace, where an earlier version put it. It is used, and kept from callers and \
             from OpenCode's snapshots. To move it, end the gateway, run `longshore stop --data-dir {0}`, move the directory \
             out of the workspace, and name its new place with --data-dir. Delete the file `token` in it to get a new token: \
             old snapshots may show the old one",
            data_dir.display()
        ));
    }
    match store {
        Some(StorePlan::Sqlite { path, .. })
            if leads_into(path, workspace) && !leads_into(path, data_dir) =>
        {
            if !is_allowed {
                return Some(refusal(reader, &table::DATABASE, path));
            }
            reader.warn(format!(
                "the database {} is in the workspace but not in the data directory, so OpenCode's snapshots copy it at each \
                 step of the agent; list it in .gitignore, or move it",
                path.display()
            ));
            None
        }
        _ => None,
    }
}

fn refusal(reader: &mut Reader<'_>, setting: &Setting, path: &Path) -> Problem {
    let source = reader.written(setting).map_or(Source::Default, |written| written.source);
    let reason = format!(
        "{} is in the workspace, where the agent and its snapshots reach it; choose a place outside and move existing data \
         there, or allow this one with --data-dir-in-workspace",
        path.display()
    );
    Problem::rule(&source, setting, reason)
}
