//! Writes projects, workspaces and worktrees. In 1.0 they have only names. In 0.3 they have those fields of OpenCode that concern
//! callers.

use longshore_model::{Project, Workspace, Worktree};

use super::session::write_millis;
use crate::json::{ObjectWriter, write_text};
use crate::surface::ProtocolVersion;

pub(super) fn write_project(out: &mut Vec<u8>, info: &Project, version: ProtocolVersion) {
    let mut item = ObjectWriter::begin(out);
    item.text("id", &info.id);
    item.some_text("name", info.name.as_deref());
    item.some_text("vcs", info.vcs.as_deref());
    if version == ProtocolVersion::V03 {
        item.some_text("worktree", info.worktree.as_deref());
        item.texts("sandboxes", &info.sandboxes);
        item.object("time", |time| {
            write_millis(time, "created", info.created);
            write_millis(time, "updated", info.updated);
            write_millis(time, "initialized", info.initialized);
        });
    }
    item.end();
}

pub(super) fn write_workspace(out: &mut Vec<u8>, info: &Workspace, version: ProtocolVersion) {
    let mut item = ObjectWriter::begin(out);
    item.text("id", info.id.as_str());
    item.some_text("type", info.kind.as_deref());
    item.some_text("name", info.name.as_deref());
    item.some_text("branch", info.branch.as_deref());
    if version == ProtocolVersion::V03 {
        item.some_text("directory", info.directory.as_deref());
        item.some_text("projectID", info.project.as_deref());
        write_millis(&mut item, "timeUsed", info.used);
    }
    item.end();
}

/// Writes a worktree in a list. In 0.3 this is only its directory.
pub(super) fn write_listed_worktree(out: &mut Vec<u8>, info: &Worktree, version: ProtocolVersion) {
    match version {
        ProtocolVersion::V1 => write_worktree(out, info, version),
        ProtocolVersion::V03 => write_text(out, &info.directory),
    }
}

pub(super) fn write_worktree(out: &mut Vec<u8>, info: &Worktree, version: ProtocolVersion) {
    let Worktree { name, branch, directory } = info;
    let mut item = ObjectWriter::begin(out);
    item.text("name", name);
    item.some_text("branch", branch.as_deref());
    if version == ProtocolVersion::V03 {
        item.text("directory", directory);
    }
    item.end();
}
