//! Builds calls from checked parameters.

use std::collections::{BTreeMap, BTreeSet};

use longshore_model::{
    AgentMessageId, AgentPartId, Control, ControlCommand, ControlQuery, ControlRequest, Hops, MessageId,
    ModelName, NativePrompt, NativePromptPart, NativePromptRequest, NewWorkspace, NewWorktree, Page, Part,
    PartContent, PromptOptions, RequestedDirectory, RequestedLocation, SessionId, SessionQuery, ShellCommand,
    Subtask, Timestamp, WorkspaceId, WorktreeRef,
};

use crate::methods::{Arg, Args, CHECKED, Call};
use crate::names::DIRECTORY_FIELD;

pub(super) fn query(args: &Args, query: ControlQuery) -> Call {
    Call::Control(ControlRequest { control: Control::Query(query), location: location(args) })
}

pub(super) fn mutation(args: &Args, command: ControlCommand) -> Call {
    Call::Control(ControlRequest { control: Control::Command(command), location: location(args) })
}

pub(super) fn session(args: &Args) -> SessionId {
    args.text("session_id").and_then(|id| SessionId::parse(id).ok()).expect(CHECKED)
}

pub(super) fn message(args: &Args, name: &str) -> Option<AgentMessageId> {
    args.text(name).map(|id| AgentMessageId::parse(id).expect(CHECKED))
}

pub(super) fn message_of(args: &Args) -> ControlQuery {
    ControlQuery::Message { session: session(args), message: message(args, "message_id").expect(CHECKED) }
}

pub(super) fn sessions(args: &Args) -> ControlQuery {
    ControlQuery::Sessions(SessionQuery {
        limit: limit(args),
        roots: args.flag("roots"),
        start: args.int("start").map(Timestamp),
        search: owned(args, "search").filter(|text| !text.trim().is_empty()),
    })
}

pub(super) fn messages(args: &Args) -> ControlQuery {
    let page = Page { limit: limit(args), before: owned(args, "before") };
    ControlQuery::Messages { session: session(args), page }
}

pub(super) fn prompt(args: &Args) -> Call {
    let request = args.object("request").expect(CHECKED);
    let mut content = Vec::new();
    let parts = request.list("parts").iter().map(|part| order_part(part, &mut content)).collect();
    let withheld = match request.get("tools") {
        Some(Arg::Names(names)) => names.iter().cloned().collect(),
        _ => BTreeSet::new(),
    };
    let order = order_request(args, request, NativePrompt::Prompt { parts, withheld }, content);
    let is_note = request.flag("noReply").unwrap_or(false);
    let control = if is_note { Control::Note(order) } else { Control::NativePrompt(order) };
    Call::Control(ControlRequest { control, location: location(args) })
}

pub(super) fn command(args: &Args) -> Call {
    let request = args.object("request").expect(CHECKED);
    let mut content = Vec::new();
    for part in request.list("parts") {
        order_part(part, &mut content);
    }
    let order = NativePrompt::Command {
        name: required(request, "command"),
        arguments: required(request, "arguments"),
        // The engine sets this later, according to the rights of the caller.
        may_run: false,
    };
    let control = Control::NativePrompt(order_request(args, request, order, content));
    Call::Control(ControlRequest { control, location: location(args) })
}

pub(super) fn fork(args: &Args) -> ControlCommand {
    let before = args.object("request").and_then(|request| message(request, "messageID"));
    ControlCommand::Fork { session: session(args), before }
}

pub(super) fn summarize(args: &Args) -> ControlCommand {
    let request = args.object("request");
    ControlCommand::Summarize {
        session: session(args),
        model: request.and_then(model_of),
        auto: request.and_then(|request| request.flag("auto")).unwrap_or(false),
    }
}

pub(super) fn revert(args: &Args) -> ControlCommand {
    let request = args.object("request").expect(CHECKED);
    ControlCommand::Revert {
        session: session(args),
        message: message(request, "messageID").expect(CHECKED),
        part: request.text("partID").map(|id| AgentPartId::parse(id).expect(CHECKED)),
    }
}

pub(super) fn shell(args: &Args) -> ControlCommand {
    let request = args.object("request").expect(CHECKED);
    let order = ShellCommand {
        agent: required(request, "agent"),
        command: required(request, "command"),
        model: model(request),
    };
    ControlCommand::Shell { session: session(args), order }
}

pub(super) fn create_workspace(args: &Args) -> ControlCommand {
    let request = args.object("request").expect(CHECKED);
    let extra = match request.get("extra") {
        Some(Arg::Json(extra)) => Some(extra.clone()),
        _ => None,
    };
    ControlCommand::CreateWorkspace(NewWorkspace {
        kind: required(request, "type"),
        id: workspace(request, "id"),
        branch: owned(request, "branch"),
        extra,
    })
}

pub(super) fn remove_workspace(args: &Args) -> ControlCommand {
    ControlCommand::RemoveWorkspace(workspace(args, "workspace_id").expect(CHECKED))
}

pub(super) fn create_worktree(args: &Args) -> ControlCommand {
    let new = args.object("request").map(|request| NewWorktree {
        name: owned(request, "name"),
        start_command: owned(request, "startCommand"),
    });
    ControlCommand::CreateWorktree(new.unwrap_or_default())
}

pub(super) fn worktree(args: &Args) -> WorktreeRef {
    let request = args.object("request").expect(CHECKED);
    match owned(request, "directory") {
        Some(directory) => WorktreeRef::Directory(directory),
        None => WorktreeRef::Name(required(request, "name")),
    }
}

pub(super) fn owned(args: &Args, name: &str) -> Option<String> {
    args.text(name).map(str::to_owned)
}

fn required(args: &Args, name: &str) -> String {
    owned(args, name).expect(CHECKED)
}

fn limit(args: &Args) -> u32 {
    args.int("limit").and_then(|limit| u32::try_from(limit).ok()).expect(CHECKED)
}

fn workspace(args: &Args, name: &str) -> Option<WorkspaceId> {
    args.text(name).map(|id| WorkspaceId::parse(id).expect(CHECKED))
}

/// The location that a call requests. A workspace takes precedence over all directories, and the parameter `directory` over the
/// directory in the metadata.
fn location(args: &Args) -> RequestedLocation {
    let metadata = match args.get("metadata") {
        Some(Arg::Location(location)) => Some(location),
        _ => None,
    };
    if let Some(workspace) = metadata.and_then(|location| location.workspace.clone()) {
        return RequestedLocation { directory: None, workspace: Some(workspace) };
    }
    let own = owned(args, "directory").map(|path| RequestedDirectory { path, field: "directory" });
    let directory = own.or_else(|| {
        let path = metadata?.directory.clone()?;
        Some(RequestedDirectory { path, field: DIRECTORY_FIELD })
    });
    RequestedLocation { directory, workspace: None }
}

fn model(args: &Args) -> Option<ModelName> {
    args.object("model").and_then(model_of)
}

fn model_of(names: &Args) -> Option<ModelName> {
    Some(ModelName { provider: owned(names, "providerID")?, model: owned(names, "modelID")? })
}

fn order_request(
    args: &Args,
    request: &Args,
    order: NativePrompt,
    content: Vec<Part>,
) -> Box<NativePromptRequest> {
    Box::new(NativePromptRequest {
        session: session(args),
        order,
        content,
        options: PromptOptions {
            model: model(request),
            mode: None,
            config: BTreeMap::new(),
            agent: owned(request, "agent"),
            variant: owned(request, "variant"),
            system: owned(request, "system"),
            hops: Hops::default(),
            may_run: false,
        },
        message: request.text("messageID").map(|id| MessageId::parse(id).expect(CHECKED)),
    })
}

/// Converts a part of a prompt. Texts and files are appended to `content`, and the returned part marks their position among the
/// other parts.
fn order_part(part: &Arg, content: &mut Vec<Part>) -> NativePromptPart {
    let Arg::Tagged(tag, fields) = part else { unreachable!("{CHECKED}") };
    match *tag {
        "agent" => NativePromptPart::Agent(required(fields, "name")),
        "subtask" => NativePromptPart::Subtask(Subtask {
            prompt: required(fields, "prompt"),
            description: required(fields, "description"),
            agent: required(fields, "agent"),
            model: model(fields),
            command: owned(fields, "command"),
        }),
        "file" => {
            content.push(Part {
                media_type: owned(fields, "mime"),
                filename: owned(fields, "filename"),
                ..Part::new(PartContent::Url(required(fields, "url")))
            });
            NativePromptPart::Content
        }
        _ => {
            content.push(Part::text(required(fields, "text")));
            NativePromptPart::Content
        }
    }
}
