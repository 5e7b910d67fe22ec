//! Sample results for each method: one with all fields, and one with as few as possible.

use std::collections::BTreeMap;

use longshore_model::{
    AgentMessageId, AgentPartId, Catalog, ContextId, ControlResult, FileDiff, ModelInfo, Project,
    ProviderInfo, Revert, Role, SessionId, SessionInfo, SessionStatus, StartedTask, StoredMessage, TaskId,
    Timestamp, Todo, Workspace, WorkspaceId, Worktree,
};

use crate::methods::{Answer, Item, Method};
use crate::opencode::items;

const AT: Timestamp = Timestamp(1_750_000_000_123);

/// A result with all fields. `None`: another module writes the results of this method.
pub(crate) fn full(method: &Method) -> Option<ControlResult> {
    Some(match method.result {
        Answer::Items(item) => items(item)?,
        Answer::Page(_) => {
            ControlResult::Messages { items: vec![message()], next: Some("eyJpZCI6Im1zZ18xIn0".to_owned()) }
        }
        Answer::Catalog(items::PROVIDER) => ControlResult::Providers(catalog(vec![provider()])),
        Answer::Catalog(_) => ControlResult::Models(catalog(vec![model()])),
        Answer::Item(items::MESSAGE) => ControlResult::Message(message()),
        Answer::Item(items::PROJECT) => ControlResult::Project(project()),
        Answer::Item(items::WORKSPACE) | Answer::ItemOrNull(_) => ControlResult::Workspace(Some(workspace())),
        Answer::Item(items::WORKTREE) => ControlResult::Worktree(worktree()),
        Answer::Item(_) => ControlResult::Session(session("ses_1")),
        Answer::ItemOfTask(_) => ControlResult::Answered { message: message(), begun: begun() },
        Answer::Flag => ControlResult::Ok(true),
        Answer::Done => ControlResult::Done { session: session_id("ses_1"), ok: true, begun: None },
        Answer::Begun => ControlResult::Done { session: session_id("ses_1"), ok: true, begun: Some(begun()) },
        Answer::Answered => return None,
    })
}

/// A result with as few fields as possible. `None`: no field can be left out.
pub(crate) fn sparse(method: &Method) -> Option<ControlResult> {
    Some(match full(method)? {
        ControlResult::Statuses(_) => ControlResult::Statuses(vec![SessionStatus {
            session: session_id("ses_2"),
            kind: "busy".to_owned(),
            attempt: None,
            message: None,
            next: None,
        }]),
        ControlResult::Sessions(_) => ControlResult::Sessions(vec![bare_session()]),
        ControlResult::Session(_) => ControlResult::Session(bare_session()),
        ControlResult::Todos(_) => ControlResult::Todos(Vec::new()),
        ControlResult::Diffs(_) => {
            ControlResult::Diffs(vec![FileDiff { patch: None, status: None, message: None, ..diff() }])
        }
        ControlResult::Messages { .. } => ControlResult::Messages { items: Vec::new(), next: None },
        ControlResult::Message(_) => {
            ControlResult::Message(StoredMessage { created: None, error: None, ..message() })
        }
        ControlResult::Providers(_) => ControlResult::Providers(catalog(vec![ProviderInfo {
            source: None,
            default_model: None,
            ..provider()
        }])),
        ControlResult::Models(_) => ControlResult::Models(catalog(vec![ModelInfo {
            status: None,
            context_window: None,
            max_output_tokens: None,
            supports_reasoning: None,
            supports_tool_call: None,
            supports_attachments: None,
            ..model()
        }])),
        ControlResult::Projects(_) => ControlResult::Projects(vec![bare_project()]),
        ControlResult::Project(_) => ControlResult::Project(bare_project()),
        ControlResult::Workspaces(_) => ControlResult::Workspaces(vec![bare_workspace()]),
        ControlResult::Workspace(_) if matches!(method.result, Answer::ItemOrNull(_)) => {
            ControlResult::Workspace(None)
        }
        ControlResult::Workspace(_) => ControlResult::Workspace(Some(bare_workspace())),
        ControlResult::Worktrees(_) => {
            ControlResult::Worktrees(vec![Worktree { branch: None, ..worktree() }])
        }
        ControlResult::Worktree(_) => ControlResult::Worktree(Worktree { branch: None, ..worktree() }),
        ControlResult::Ok(_) => ControlResult::Ok(false),
        ControlResult::Done { session, .. } => ControlResult::Done { session, ok: false, begun: None },
        ControlResult::Answered { .. } => return None,
    })
}

fn items(item: Item) -> Option<ControlResult> {
    Some(match item {
        items::SESSION_STATUS => ControlResult::Statuses(vec![SessionStatus {
            session: session_id("ses_1"),
            kind: "retry".to_owned(),
            attempt: Some(3),
            message: Some("The provider is overloaded".to_owned()),
            next: Some(AT),
        }]),
        items::TASK => ControlResult::Sessions(vec![session("ses_1"), session("ses_2")]),
        items::PLANNED => ControlResult::Todos(["Read it", "Say \"so\""].map(todo).to_vec()),
        items::FILE_DIFF => ControlResult::Diffs(vec![diff()]),
        items::PROJECT => ControlResult::Projects(vec![project()]),
        items::WORKSPACE => ControlResult::Workspaces(vec![workspace()]),
        items::WORKTREE => ControlResult::Worktrees(vec![worktree()]),
        items::MESSAGE | items::SESSION_SUMMARY | items::PROVIDER | items::MODEL => {
            unreachable!("no method lists these without more")
        }
        _ => return None,
    })
}

pub(crate) fn session(id: &str) -> SessionInfo {
    SessionInfo {
        id: session_id(id),
        title: "Mend the parser".to_owned(),
        project: Some("prj_1".to_owned()),
        directory: Some("/repo".to_owned()),
        parent: Some(session_id("ses_0")),
        workspace: Some(WorkspaceId::parse("wrk_1").unwrap()),
        version: Some("1.18.33".to_owned()),
        share_url: Some("https://share.example/s/1".to_owned()),
        revert: Some(Revert {
            message: AgentMessageId::parse("msg_1").unwrap(),
            part: Some(AgentPartId::parse("prt_1").unwrap()),
            snapshot: Some("4b825dc6".to_owned()),
            diff: Some("--- a\n+++ b\n".to_owned()),
        }),
        created: Some(Timestamp(0)),
        updated: Some(AT),
    }
}

fn bare_session() -> SessionInfo {
    SessionInfo {
        id: session_id("ses_2"),
        title: String::new(),
        project: None,
        directory: None,
        parent: None,
        workspace: None,
        version: None,
        share_url: None,
        revert: None,
        created: Some(AT),
        updated: None,
    }
}

fn message() -> StoredMessage {
    StoredMessage {
        id: AgentMessageId::parse("msg_1").unwrap(),
        session: session_id("ses_1"),
        role: Role::Agent,
        text: " It is done.\n".to_owned(),
        created: Some(AT),
        error: Some("The provider refused.".to_owned()),
    }
}

fn begun() -> StartedTask {
    StartedTask { task: TaskId::parse("task-1").unwrap(), context: ContextId::parse("ctx-1").unwrap() }
}

fn todo(content: &str) -> Todo {
    Todo { content: content.to_owned(), status: "pending".to_owned(), priority: "high".to_owned() }
}

fn diff() -> FileDiff {
    FileDiff {
        file: "src/lib.rs".to_owned(),
        patch: Some("@@ -1 +1 @@\n-a\n+b\n".to_owned()),
        status: Some("modified".to_owned()),
        additions: 1,
        deletions: 0,
        message: Some(AgentMessageId::parse("msg_1").unwrap()),
    }
}

fn catalog<T>(items: Vec<T>) -> Catalog<T> {
    Catalog {
        items,
        default_by_provider: BTreeMap::from([("acme".to_owned(), "large".to_owned())]),
        connected: vec!["acme".to_owned()],
    }
}

fn provider() -> ProviderInfo {
    ProviderInfo {
        id: "acme".to_owned(),
        name: "Acme".to_owned(),
        connected: true,
        model_count: 2,
        source: Some("config".to_owned()),
        default_model: Some("large".to_owned()),
    }
}

fn model() -> ModelInfo {
    ModelInfo {
        provider: "acme".to_owned(),
        id: "large".to_owned(),
        name: "Large".to_owned(),
        is_default: true,
        connected: true,
        status: Some("active".to_owned()),
        context_window: Some(200_000),
        max_output_tokens: Some(8_192),
        supports_reasoning: Some(true),
        supports_tool_call: Some(true),
        supports_attachments: Some(false),
    }
}

fn project() -> Project {
    Project {
        id: "prj_1".to_owned(),
        name: Some("harbour".to_owned()),
        vcs: Some("git".to_owned()),
        worktree: Some("/repo".to_owned()),
        sandboxes: vec!["/repo-feat".to_owned()],
        created: Some(AT),
        updated: Some(AT),
        initialized: Some(AT),
    }
}

fn bare_project() -> Project {
    Project {
        id: "prj_2".to_owned(),
        name: None,
        vcs: None,
        worktree: None,
        sandboxes: Vec::new(),
        created: None,
        updated: None,
        initialized: None,
    }
}

fn workspace() -> Workspace {
    Workspace {
        id: WorkspaceId::parse("wrk_1").unwrap(),
        kind: Some("worktree".to_owned()),
        name: Some("feat".to_owned()),
        branch: Some("opencode/feat".to_owned()),
        directory: Some("/repo-feat".to_owned()),
        project: Some("prj_1".to_owned()),
        used: Some(AT),
    }
}

fn bare_workspace() -> Workspace {
    Workspace {
        id: WorkspaceId::parse("wrk_2").unwrap(),
        kind: None,
        name: None,
        branch: None,
        directory: None,
        project: None,
        used: None,
    }
}

fn worktree() -> Worktree {
    Worktree {
        name: "feat".to_owned(),
        branch: Some("opencode/feat".to_owned()),
        directory: "/repo-feat".to_owned(),
    }
}

fn session_id(id: &str) -> SessionId {
    SessionId::parse(id).unwrap()
}
