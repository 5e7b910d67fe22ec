//! Projects, workspaces and worktrees. On 1.0 they have names only; on 0.3 they are as OpenCode tells them, as far as that
//! concerns callers.

use longshore_model::{Project, Workspace, Worktree};

use super::session::write_millis;
use crate::json::{ObjectWriter, write_text};
use crate::surface::ProtocolVersion;

pub(super) fn write_project(out: &mut Vec<u8>, told: &Project, version: ProtocolVersion) {
    let mut item = ObjectWriter::begin(out);
    item.text("id", &told.id);
    item.some_text("name", told.name.as_deref());
    item.some_text("vcs", told.vcs.as_deref());
    if version == ProtocolVersion::V03 {
        item.some_text("worktree", told.worktree.as_deref());
        item.texts("sandboxes", &told.sandboxes);
        item.object("time", |time| {
            write_millis(time, "created", told.created);
            write_millis(time, "updated", told.updated);
            write_millis(time, "initialized", told.initialized);
        });
    }
    item.end();
}

pub(super) fn write_workspace(out: &mut Vec<u8>, told: &Workspace, version: ProtocolVersion) {
    let mut item = ObjectWriter::begin(out);
    item.text("id", told.id.as_str());
    item.some_text("type", told.kind.as_deref());
    item.some_text("name", told.name.as_deref());
    item.some_text("branch", told.branch.as_deref());
    if version == ProtocolVersion::V03 {
        item.some_text("directory", told.directory.as_deref());
        item.some_text("projectID", told.project.as_deref());
        write_millis(&mut item, "timeUsed", told.used);
    }
    item.end();
}

/// On 0.3 a list of worktrees is one of directories.
pub(super) fn write_listed_worktree(out: &mut Vec<u8>, told: &Worktree, version: ProtocolVersion) {
    match version {
        ProtocolVersion::V1 => write_worktree(out, told, version),
        ProtocolVersion::V03 => write_text(out, &told.directory),
    }
}

pub(super) fn write_worktree(out: &mut Vec<u8>, told: &Worktree, version: ProtocolVersion) {
    let Worktree { name, branch, directory } = told;
    let mut item = ObjectWriter::begin(out);
    item.text("name", name);
    item.some_text("branch", branch.as_deref());
    if version == ProtocolVersion::V03 {
        item.text("directory", directory);
    }
    item.end();
}
