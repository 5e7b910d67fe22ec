//! Strategies for property tests: any value that the gateway could hold.
//!
//! Ids follow the rule for ids. Free JSON contains numbers that lose digits when they are parsed, because the gateway must keep
//! JSON as text. Ids of artifacts and asks come from a small set, so that updates often meet an existing one.

use longshore_model::{
    Artifact, ArtifactId, ArtifactUpdate, Ask, AskKind, AskOption, AskOptions, BlockKind, Closed, ContextId,
    Cost, Expired, Hops, Interrupt, InterruptNote, InterruptPhase, Json, Message, MessageId, Metadata,
    ModelName, NativePrompt, NativePromptPart, Notes, OptionKind, OutputModes, Parent, Part, PartContent,
    PermissionReply, Principal, Progress, ProgressKind, PromptId, PromptOptions, Question, RequestId,
    Resolution, Role, SessionId, SessionNote, StatusUpdate, Subtask, TaskEvent, TaskId, TaskOptions,
    TaskState, TaskStatus, Timestamp, Usage,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Any text: control characters, quotes and line breaks included.
pub fn text() -> impl Strategy<Value = String> {
    "(?s).{0,16}"
}

/// The text of any identifier.
pub fn id() -> impl Strategy<Value = String> {
    "[A-Za-z0-9_.:-]{1,16}"
}

macro_rules! ids {
    ($($(#[$doc:meta])* $function:ident -> $id:ident;)*) => {
        $(
            $(#[$doc])*
            pub fn $function() -> impl Strategy<Value = $id> {
                id().prop_map(|id| $id::parse(&id).expect("the pattern follows the rule for ids"))
            }
        )*
    };
}

ids! {
    task_id -> TaskId;
    context_id -> ContextId;
    message_id -> MessageId;
    session_id -> SessionId;
    prompt_id -> PromptId;
}

/// One of three, so that two updates often concern the same artifact.
pub fn artifact_id() -> impl Strategy<Value = ArtifactId> {
    select(vec!["prt_1", "prt_2", "prt_3"]).prop_map(|id| ArtifactId::parse(id).expect("the ids are fixed"))
}

/// One of three, so that an ask is often opened again, or closed.
pub fn request_id() -> impl Strategy<Value = RequestId> {
    select(vec!["per_1", "per_2", "que_1"]).prop_map(|id| RequestId::parse(id).expect("the ids are fixed"))
}

pub fn principal() -> impl Strategy<Value = Principal> {
    "(?s).{1,16}".prop_map(|name| Principal::new(&name))
}

/// A moment between the years 1 and 9999: the range of RFC 3339.
pub fn timestamp() -> impl Strategy<Value = Timestamp> {
    (-62_135_596_800_000..=253_402_300_799_999_i64).prop_map(Timestamp)
}

pub fn json() -> impl Strategy<Value = Json> {
    json_text().prop_map(|text| Json::parse(&text).expect("the strategy writes JSON"))
}

pub fn metadata() -> impl Strategy<Value = Metadata> {
    object_text(json_text()).prop_map(|text| {
        let json = Json::parse(&text).expect("the strategy writes JSON");
        Metadata::try_from(json).expect("the text is an object")
    })
}

/// JSON that is an object.
pub fn object() -> impl Strategy<Value = Json> {
    metadata().prop_map(Json::from)
}

pub fn part() -> impl Strategy<Value = Part> {
    let content = prop_oneof![
        4 => text().prop_map(PartContent::Text),
        1 => vec(any::<u8>(), 0..16).prop_map(PartContent::Raw),
        1 => text().prop_map(PartContent::Url),
        1 => json().prop_map(PartContent::Data),
    ];
    let described = (rarely(text()), rarely(text()), rarely(metadata()));
    (content, described).prop_map(|(content, (media_type, filename, metadata))| Part {
        content,
        media_type,
        filename,
        metadata,
    })
}

pub fn message() -> impl Strategy<Value = Message> {
    let spoken = (message_id(), select(vec![Role::User, Role::Agent]), vec(part(), 1..4));
    let about = (option::of(context_id()), option::of(task_id()), vec(task_id(), 0..2));
    (spoken, about, vec(text(), 0..2), rarely(metadata())).prop_map(
        |((id, role, parts), (context_id, task_id, reference_task_ids), extensions, metadata)| Message {
            id,
            role,
            parts,
            context_id,
            task_id,
            reference_task_ids,
            extensions,
            metadata,
        },
    )
}

/// A status in one of `states`.
pub fn status(states: Vec<TaskState>) -> impl Strategy<Value = TaskStatus> {
    (select(states), timestamp(), rarely(message())).prop_map(|(state, at, message)| TaskStatus {
        state,
        at,
        message,
    })
}

pub fn status_update(states: Vec<TaskState>) -> impl Strategy<Value = StatusUpdate> {
    let joining = (rarely(message()), rarely(message_id()), rarely(prompt_options()));
    (status(states), any::<bool>(), rarely(metadata()), notes(), joining).prop_map(
        |(status, repeats, metadata, notes, (joined, withdrawn, prompt))| StatusUpdate {
            status,
            repeats,
            metadata,
            notes,
            joined,
            withdrawn,
            prompt: prompt.map(Box::new),
        },
    )
}

pub fn notes() -> impl Strategy<Value = Notes> {
    let session = (session_id(), option::of(text())).prop_map(|(id, title)| SessionNote { id, title });
    let progress = (progress_kind(), rarely(object())).prop_map(|(kind, details)| Progress { kind, details });
    let status = (rarely(session), rarely(usage()), rarely(progress));
    (status, option::of(interrupt_note()), rarely(text())).prop_map(
        |((session, usage, progress), interrupt, sub_agent_model)| Notes {
            session,
            usage,
            progress,
            interrupt,
            sub_agent_model,
        },
    )
}

pub fn usage() -> impl Strategy<Value = Usage> {
    any::<[u64; 7]>().prop_map(|[input, output, total, reasoning, cache_read, cache_write, cost]| Usage {
        input,
        output,
        total,
        reasoning,
        cache_read,
        cache_write,
        cost: Cost(cost),
    })
}

pub fn interrupt_note() -> impl Strategy<Value = InterruptNote> {
    let phase = prop_oneof![
        Just(InterruptPhase::Asked),
        select(Resolution::ALL.to_vec()).prop_map(InterruptPhase::Resolved),
    ];
    let expired = (timestamp(), select(PermissionReply::ALL.to_vec()), rarely(text()))
        .prop_map(|(deadline, answer, call)| Expired { deadline, answer, call });
    (request_id(), ask_kind(), phase, rarely(object()), ask_options(), rarely(expired)).prop_map(
        |(request_id, kind, phase, details, options, expired)| InterruptNote {
            request_id,
            kind,
            phase,
            details,
            options,
            expired,
        },
    )
}

fn ask_options() -> impl Strategy<Value = AskOptions> {
    let option = (text(), text(), select(OptionKind::ALL.to_vec())).prop_map(|(id, name, kind)| AskOption {
        id,
        name,
        kind,
    });
    vec(option, 0..3).prop_map(AskOptions::new)
}

pub fn ask() -> impl Strategy<Value = Ask> {
    let question = (text(), vec(text(), 0..3), any::<bool>())
        .prop_map(|(text, options, multiple)| Question { text, options, multiple, custom: !multiple });
    let content = (text(), object(), vec(question, 0..2), ask_options());
    (request_id(), ask_kind(), session_id(), content, rarely(text())).prop_map(
        |(request_id, kind, session, (summary, details, questions, options), call)| Ask {
            request_id,
            kind,
            session,
            summary,
            details,
            questions,
            call,
            permission: None,
            options,
        },
    )
}

/// An open ask.
pub fn interrupt() -> impl Strategy<Value = Interrupt> {
    let times = (timestamp(), option::of(timestamp()));
    (ask(), principal(), task_id(), context_id(), times).prop_map(
        |(ask, owner, task, context, (asked_at, expires_at))| Interrupt {
            ask,
            owner,
            task,
            context,
            asked_at,
            expires_at,
            closed: None,
        },
    )
}

pub fn closed() -> impl Strategy<Value = Closed> {
    let by = option::of(principal());
    (select(Resolution::ALL.to_vec()), timestamp(), by, option::of(text()))
        .prop_map(|(resolution, at, by, how)| Closed { resolution, at, by, how })
}

pub fn ask_kind() -> impl Strategy<Value = AskKind> {
    select(vec![AskKind::Permission, AskKind::Question])
}

fn progress_kind() -> impl Strategy<Value = ProgressKind> {
    use ProgressKind::{Compaction, Retry, Settings, StepFinished, StepStarted, Todos};
    select(vec![StepStarted, StepFinished, Retry, Compaction, Todos, Settings])
}

pub fn artifact() -> impl Strategy<Value = Artifact> {
    let kind = select(vec![BlockKind::Text, BlockKind::Reasoning, BlockKind::ToolCall, BlockKind::File]);
    let origin = (artifact_id(), kind, rarely(message_id()));
    let described = (rarely(text()), rarely(text()), rarely(text()), rarely(metadata()));
    (origin, vec(part(), 1..3), described).prop_map(
        |((id, kind, source_message), parts, (name, description, extension, metadata))| Artifact {
            id,
            kind,
            source_message,
            name,
            description,
            parts,
            extensions: extension.into_iter().collect(),
            metadata,
        },
    )
}

pub fn artifact_update() -> impl Strategy<Value = ArtifactUpdate> {
    (artifact(), any::<bool>(), any::<bool>(), rarely(metadata())).prop_map(
        |(artifact, append, last_chunk, metadata)| ArtifactUpdate { artifact, append, last_chunk, metadata },
    )
}

/// The first event of a log.
pub fn submitted() -> impl Strategy<Value = TaskEvent> {
    (context_id(), message(), timestamp(), options(), rarely(parent())).prop_map(
        |(context_id, message, at, options, parent)| TaskEvent::Submitted {
            context_id,
            message,
            at,
            options: Box::new(options),
            parent: parent.map(Box::new),
        },
    )
}

pub fn options() -> impl Strategy<Value = TaskOptions> {
    let sessions = (rarely(session_id()), rarely(text()));
    (output_modes(), prompt_options(), rarely(order()), sessions, any::<bool>()).prop_map(
        |(output, prompt, order, (native_prompt_session, session_title), adopted)| TaskOptions {
            output,
            prompt,
            order,
            native_prompt_session,
            adopted,
            session_title,
        },
    )
}

pub fn order() -> impl Strategy<Value = NativePrompt> {
    let subtask = (text(), text(), text(), rarely(model_name()), rarely(text())).prop_map(
        |(prompt, description, agent, model, command)| Subtask { prompt, description, agent, model, command },
    );
    let part = prop_oneof![
        Just(NativePromptPart::Content),
        text().prop_map(NativePromptPart::Agent),
        subtask.prop_map(NativePromptPart::Subtask),
    ];
    prop_oneof![
        (vec(part, 0..3), btree_set(text(), 0..2))
            .prop_map(|(parts, withheld)| NativePrompt::Prompt { parts, withheld }),
        (text(), text(), any::<bool>()).prop_map(|(name, arguments, may_run)| NativePrompt::Command {
            name,
            arguments,
            may_run,
        }),
    ]
}

pub fn model_name() -> impl Strategy<Value = ModelName> {
    (text(), text()).prop_map(|(provider, model)| ModelName { provider, model })
}

pub fn output_modes() -> impl Strategy<Value = OutputModes> {
    let mode = prop_oneof![
        4 => select(vec!["text/plain", "application/json", "image/*", "*/*"]).prop_map(str::to_owned),
        1 => text(),
    ];
    vec(mode, 0..3).prop_map(|modes| OutputModes::new(modes.iter().map(String::as_str)))
}

pub fn prompt_options() -> impl Strategy<Value = PromptOptions> {
    let config = btree_map(text(), text(), 0..2);
    (rarely(model_name()), rarely(text()), config, rarely(text()), rarely(text()), rarely(text())).prop_map(
        |(model, mode, config, agent, variant, system)| PromptOptions {
            model,
            mode,
            config,
            agent,
            variant,
            system,
            hops: Hops::default(),
            may_run: false,
        },
    )
}

pub fn parent() -> impl Strategy<Value = Parent> {
    let named = (rarely(text()), rarely(text()));
    (task_id(), task_id(), option::of(text()), 1..4_u32, session_id(), named).prop_map(
        |(root, task, call, depth, session, (kind, model))| Parent {
            root,
            task,
            call,
            depth,
            session,
            kind,
            model,
        },
    )
}

/// What may follow the first event: events that are not terminal, and perhaps a terminal one at the end.
pub fn events_of_a_turn(at_most: usize) -> impl Strategy<Value = Vec<TaskEvent>> {
    let (terminal, running): (Vec<_>, Vec<_>) = TaskState::ALL.into_iter().partition(|s| s.is_terminal());
    let event = prop_oneof![
        3 => artifact_update().prop_map(TaskEvent::Artifact),
        1 => status_update(running).prop_map(status_event),
    ];
    let end = option::of(status_update(terminal).prop_map(status_event));
    (vec(event, 0..at_most), end).prop_map(|(mut events, end)| {
        events.extend(end);
        events
    })
}

fn status_event(update: StatusUpdate) -> TaskEvent {
    TaskEvent::Status(Box::new(update))
}

/// Mostly `None`, so that values stay small enough to read when a test fails.
fn rarely<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    option::weighted(0.15, value)
}

fn json_text() -> BoxedStrategy<String> {
    let leaf = prop_oneof![
        select(vec!["null", "true", "1700000000000", "1.0", "-0", "1e400", "123456789012345678901234567890"])
            .prop_map(str::to_owned),
        text().prop_map(|text| quoted(&text)),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(","))),
            object_text(inner),
        ]
    })
    .boxed()
}

fn object_text(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    vec((text(), value), 0..3).prop_map(|fields| {
        let fields: Vec<_> =
            fields.into_iter().map(|(name, value)| format!("{}: {value}", quoted(&name))).collect();
        format!("{{{}}}", fields.join(", "))
    })
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
