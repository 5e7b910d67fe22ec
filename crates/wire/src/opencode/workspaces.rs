//! The methods for projects, workspaces and worktrees. They always concern the project in which the gateway works.

use longshore_model::{ControlCommand, ControlQuery, ErrorKind};

use super::errors::UPSTREAM;
use super::location::ROUTING;
use super::{build, ids, items};
use crate::extension::Extension;
use crate::methods::{
    Answer, DIRECTORY_QUERY, Effect, Kind, LINES, Method, NAME, Param, Stability, Switch, Upstream,
};

/// The largest `extra` object of a new workspace, in bytes.
const MAX_EXTRA: usize = 16 * 1024;
/// The longest name of a worktree.
const MAX_WORKTREE: usize = 64;

const METADATA: Param = Param::optional(
    "metadata",
    Kind::Metadata { routed: Some(&ROUTING) },
    "Checked but ignored: these methods concern the gateway's own project.",
);

const QUERY: Method = Method {
    name: "",
    key: "",
    extension: Extension::WorkspaceControl,
    summary: "",
    params: &[METADATA],
    first: 0,
    paged: false,
    result: Answer::Flag,
    effect: Effect::Read,
    switch: None,
    upstream: &[],
    errors: UPSTREAM,
    stability: Stability::Experimental,
    build: |args| build::query(args, ControlQuery::Projects),
};

const MUTATION: Method = Method {
    effect: Effect::Mutate,
    switch: Some(Switch::WorkspaceMutations),
    errors: &[
        ErrorKind::AuthorizationForbidden,
        ErrorKind::UpstreamUnreachable,
        ErrorKind::UpstreamHttpError,
        ErrorKind::UpstreamPayloadError,
        ErrorKind::UpstreamBackpressure,
    ],
    build: |args| build::mutation(args, build::create_worktree(args)),
    ..QUERY
};

/// The errors of methods that remove or reset a directory in which a session may be working.
const UNUSED: &[ErrorKind] = &[
    ErrorKind::AuthorizationForbidden,
    ErrorKind::SessionBusy,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];

/// The errors of methods that remove sessions as well.
const OWN_AND_UNUSED: &[ErrorKind] = &[
    ErrorKind::AuthorizationForbidden,
    ErrorKind::SessionForbidden,
    ErrorKind::SessionBusy,
    ErrorKind::UpstreamUnreachable,
    ErrorKind::UpstreamHttpError,
    ErrorKind::UpstreamPayloadError,
    ErrorKind::UpstreamBackpressure,
];

const WHICH_WORKTREE: Param = Param::required(
    "request",
    Kind::OneOf(&[
        Param::optional("directory", Kind::Directory, "The directory of the worktree."),
        Param::optional("name", Kind::FileName { max: 255 }, "The last segment of that directory."),
    ]),
    "The worktree: one that OpenCode lists, and not the root of the workspace.",
);

pub(super) static METHODS: [Method; 9] = [
    Method {
        name: "opencode.projects.list",
        key: "list_projects",
        summary: "Lists the projects that OpenCode knows.",
        result: Answer::Items(items::PROJECT),
        upstream: &[Upstream::get("/project", DIRECTORY_QUERY)],
        stability: Stability::Stable,
        ..QUERY
    },
    Method {
        name: "opencode.projects.current",
        key: "get_current_project",
        summary: "Reads the gateway's own project.",
        result: Answer::Item(items::PROJECT),
        upstream: &[Upstream::get("/project/current", DIRECTORY_QUERY)],
        stability: Stability::Stable,
        build: |args| build::query(args, ControlQuery::Project),
        ..QUERY
    },
    Method {
        name: "opencode.workspaces.list",
        key: "list_workspaces",
        summary: "Lists the workspaces of the project.",
        result: Answer::Items(items::WORKSPACE),
        upstream: &[Upstream::get("/experimental/workspace", DIRECTORY_QUERY)],
        build: |args| build::query(args, ControlQuery::Workspaces),
        ..QUERY
    },
    Method {
        name: "opencode.workspaces.create",
        key: "create_workspace",
        summary: "Creates a workspace, and returns when it is ready.",
        params: &[
            Param::required(
                "request",
                Kind::Object(&[
                    Param::required(
                        "type",
                        NAME,
                        "The adapter of OpenCode that creates the workspace, such as worktree.",
                    ),
                    Param::optional("id", Kind::Id(ids::WORKSPACE), "The id of the workspace."),
                    Param::optional(
                        "branch",
                        Kind::Branch,
                        "The branch; the adapter worktree creates a new one with this name.",
                    ),
                    Param::optional(
                        "extra",
                        Kind::Json { max: MAX_EXTRA },
                        "Further parameters of the adapter.",
                    ),
                ]),
                "The new workspace.",
            ),
            METADATA,
        ],
        result: Answer::Item(items::WORKSPACE),
        upstream: &[Upstream::post("/experimental/workspace")],
        build: |args| build::mutation(args, build::create_workspace(args)),
        ..MUTATION
    },
    Method {
        name: "opencode.workspaces.remove",
        key: "remove_workspace",
        summary: "Removes a workspace with its sessions, which must belong to the caller. The result is null if there was none.",
        params: &[
            Param::required("workspace_id", Kind::Id(ids::WORKSPACE), "The workspace of OpenCode."),
            METADATA,
        ],
        result: Answer::ItemOrNull(items::WORKSPACE),
        upstream: &[Upstream::delete("/experimental/workspace/{id}")],
        errors: OWN_AND_UNUSED,
        build: |args| build::mutation(args, build::remove_workspace(args)),
        ..MUTATION
    },
    Method {
        name: "opencode.worktrees.list",
        key: "list_worktrees",
        summary: "Lists the worktrees of the project's repository, without the root of the workspace.",
        result: Answer::Items(items::WORKTREE),
        upstream: &[Upstream::get("/experimental/worktree", DIRECTORY_QUERY)],
        build: |args| build::query(args, ControlQuery::Worktrees),
        ..QUERY
    },
    Method {
        name: "opencode.worktrees.create",
        key: "create_worktree",
        summary: "Creates a worktree with a branch of its own, and returns when it is ready.",
        params: &[
            Param::optional(
                "request",
                Kind::Object(&[
                    Param::optional(
                        "name",
                        Kind::FileName { max: MAX_WORKTREE },
                        "The name; OpenCode extends a name that is taken.",
                    ),
                    Param::optional(
                        "startCommand",
                        LINES,
                        "A shell command to run in the new worktree. Its result is not reported.",
                    )
                    .only_with(Switch::SessionShell),
                ]),
                "The new worktree.",
            ),
            METADATA,
        ],
        result: Answer::Item(items::WORKTREE),
        upstream: &[Upstream::post("/experimental/worktree")],
        ..MUTATION
    },
    Method {
        name: "opencode.worktrees.remove",
        key: "remove_worktree",
        summary: "Removes a worktree and its branch.",
        params: &[WHICH_WORKTREE, METADATA],
        upstream: &[Upstream::delete("/experimental/worktree")],
        errors: UNUSED,
        build: |args| build::mutation(args, ControlCommand::RemoveWorktree(build::worktree(args))),
        ..MUTATION
    },
    Method {
        name: "opencode.worktrees.reset",
        key: "reset_worktree",
        summary: "Resets a worktree to the default branch; uncommitted changes are lost.",
        params: &[WHICH_WORKTREE, METADATA],
        upstream: &[Upstream::post("/experimental/worktree/reset")],
        errors: UNUSED,
        build: |args| build::mutation(args, ControlCommand::ResetWorktree(build::worktree(args))),
        ..MUTATION
    },
];
