//! The engine's settings.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_model::PushEvents;

use crate::port::PushLimits;
use crate::protected::ProtectedPaths;

/// The upper limit for [`EngineConfig::task_bytes`]. JSON may encode one byte as six, and an SQLite row holds at most a billion
/// bytes.
pub const MAX_TASK_BYTES: u64 = 128 * 1024 * 1024;

#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// How long a turn may run before it is aborted and its task fails. `None`: no limit.
    pub turn_timeout: Option<Duration>,
    /// How long a turn that was not prompted yet waits for an agent that cannot be reached, before it fails.
    pub start_patience: Duration,
    /// How long a turn waits while another client of the agent occupies the session with work that is not a turn. (An external
    /// turn would become a task of its own and go first.) `None`: no limit.
    pub wait_for_others: Option<Duration>,
    /// How long the gateway waits for the agent to confirm the abort of a turn whose task has ended.
    pub cancel_abort_timeout: Duration,
    /// How long the gateway recognizes a repeated send as the same send.
    pub idempotency_window: Duration,
    /// Whether the gateway, after a restore from a backup, prompts tasks that the original gateway may have prompted since the
    /// backup.
    pub resume_restored: bool,
    /// How many turns may run at once. Further turns wait, and the turn limiter starts them fairly among principals. 0: no limit.
    pub turns: usize,
    /// How many turns of one principal may run at once. 0: no limit.
    pub turns_per_principal: usize,
    /// How many tasks may be unfinished. Further messages are refused, so that clients that send faster than the agent works
    /// notice it. 0: no limit.
    pub unfinished: usize,
    /// How many tasks of one context may be unfinished. 0: no limit.
    pub unfinished_per_context: usize,
    /// How many tasks of one principal may be unfinished, in all its contexts together. 0: no limit.
    pub unfinished_per_principal: usize,
    /// How many bytes the unfinished tasks may have together. A message that would exceed the limit is refused. The output of
    /// running turns counts too, but never ends a turn. 0: no limit.
    pub unfinished_bytes: u64,
    /// How many bytes the unfinished tasks of one principal may have together. 0: no limit.
    pub unfinished_bytes_per_principal: u64,
    /// How many bytes the store may hold before messages are refused. 0: no limit.
    pub stored_bytes: u64,
    /// How many bytes the store may hold for one principal before its messages are refused. 0: no limit.
    pub stored_bytes_per_principal: u64,
    /// How many bytes one task may have, with its messages and the output of its turn. A larger task fails. At most
    /// [`MAX_TASK_BYTES`].
    pub task_bytes: u64,
    pub asks: AskConfig,
    pub intake: IntakeRules,
    pub files: FileRules,
    pub retention: RetentionRules,
    pub control: ControlRules,
    pub names: WireNames,
}

/// Names that callers see and that belong to the protocol, not to the engine.
#[derive(Clone, Copy, Debug)]
pub struct WireNames {
    /// The id of the context that always stands for a session is this prefix followed by the session id.
    pub session_context_prefix: &'static str,
    /// The field in which a caller names a directory.
    pub directory_field: &'static str,
}

impl Default for WireNames {
    fn default() -> Self {
        Self { session_context_prefix: "ctx:session:", directory_field: "metadata.directory" }
    }
}

/// The rules about which callers may read and change the agent's sessions outside of turns.
#[derive(Clone, Copy, Debug)]
pub struct ControlRules {
    pub session_guard: SessionGuard,
    /// How long an unowned session stays reserved for a caller while the call runs that will make the caller its owner.
    pub claim_ttl: Duration,
}

impl Default for ControlRules {
    fn default() -> Self {
        Self { session_guard: SessionGuard::default(), claim_ttl: Duration::from_secs(30) }
    }
}

/// Which callers may use a session. Tasks always belong to their owner alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SessionGuard {
    /// Only the owner may use a session. An unowned session may be used by every caller that may claim sessions.
    #[default]
    Owner,
    /// Every caller may read a session, and only its owner may change it.
    SharedReads,
    /// Every caller may read and change a session, but only its owner may start turns in it.
    Shared,
}

impl SessionGuard {
    pub const ALL: [Self; 3] = [Self::Owner, Self::SharedReads, Self::Shared];

    /// The word for this value in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::SharedReads => "shared-reads",
            Self::Shared => "shared",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|guard| guard.as_str() == word)
    }
}

/// How long finished tasks are kept.
#[derive(Clone, Copy, Debug)]
pub struct RetentionRules {
    /// How long after its end the log of a task is folded to the last event. The task itself stays. `None`: never.
    pub fold_after: Option<Duration>,
    /// How long after its end a task is deleted with all its data, but not before repeated sends of its messages are no longer
    /// recognized. `None`: never.
    pub keep_tasks: Option<Duration>,
}

impl Default for RetentionRules {
    fn default() -> Self {
        let days = |days: u64| Some(Duration::from_hours(days * 24));
        Self { fold_after: days(7), keep_tasks: days(90) }
    }
}

/// Limits and defaults for push notification configurations.
#[derive(Clone, Copy, Debug)]
pub struct PushRules {
    pub limits: PushLimits,
    /// The largest size of a token, and of credentials.
    pub max_secret_bytes: usize,
    /// Which events are sent, if the request does not say.
    pub events: PushEvents,
}

impl Default for PushRules {
    fn default() -> Self {
        Self {
            limits: PushLimits { per_task: 10, per_principal: 1_000, in_all: 100_000 },
            max_secret_bytes: 4096,
            events: PushEvents::default(),
        }
    }
}

/// The limits for a message.
#[derive(Clone, Debug)]
pub struct IntakeRules {
    /// Messages may refer to files in this directory and in the directory of their context only. The path must contain no
    /// symbolic links.
    pub root: PathBuf,
    /// Messages may not refer to these files, wherever they are.
    pub protected: Arc<ProtectedPaths>,
    /// Whether data parts are accepted. The agent gets them as JSON text.
    pub data_parts: bool,
    /// Media types that are text, in addition to `text/*` and the well-known ones.
    pub text_types: Vec<String>,
    /// Media types of other files that are accepted, in addition to images, audio, PDF and plain bytes. An entry is a type or a
    /// range such as `video/*`.
    pub media_types: Vec<String>,
    /// The largest text or data part, whatever its source.
    pub max_text_bytes: u64,
    /// The largest file inside a message.
    pub max_inline_bytes: u64,
    /// The largest workspace file that a message refers to.
    pub max_file_bytes: u64,
    /// The most bytes of a message apart from its content: metadata, names, media types, extensions and accepted output modes.
    pub max_metadata_bytes: u64,
    /// How many extensions a message may name. 0: no limit.
    pub max_extensions: usize,
    /// How many tasks a message may refer to. 0: no limit.
    pub max_references: usize,
    /// Hosts whose `http` and `https` URLs are passed on to the agent: names, and `*.` for every subdomain. Empty: none.
    pub remote_hosts: Vec<String>,
}

impl Default for IntakeRules {
    fn default() -> Self {
        Self {
            root: PathBuf::from("/nowhere"),
            protected: Arc::default(),
            data_parts: true,
            text_types: Vec::new(),
            media_types: Vec::new(),
            max_text_bytes: 1024 * 1024,
            max_inline_bytes: 5 * 1024 * 1024,
            max_file_bytes: 25 * 1024 * 1024,
            max_metadata_bytes: 256 * 1024,
            max_extensions: 64,
            max_references: 64,
            remote_hosts: Vec::new(),
        }
    }
}

/// The rules for files that an agent produces.
#[derive(Clone, Debug)]
pub struct FileRules {
    /// The URL of a file up to its id.
    pub base_url: String,
    /// The largest file that is stored. The task reports a larger file as text.
    pub max_bytes: u64,
    /// How many files one task may store. Further files are not stored, and the task reports this once.
    pub max_per_task: usize,
    /// For a gateway whose URLs no client can fetch: how many bytes of files one task may hold inside its artifacts. Further files
    /// are stored, and the task says so. `None`: every file is stored and has a URL.
    pub inline_per_task: Option<u64>,
}

impl Default for FileRules {
    fn default() -> Self {
        Self {
            base_url: "/artifacts/".to_owned(),
            max_bytes: 25 * 1024 * 1024,
            max_per_task: 100,
            inline_per_task: None,
        }
    }
}

/// The rules for asks that are not answered in time.
#[derive(Clone, Copy, Debug)]
pub struct AskConfig {
    /// How long an ask can be answered. `None`: until its turn ends.
    pub time_to_live: Option<Duration>,
    /// How long a late answer is refused with the error "expired". After that, the ask counts as unknown.
    pub tombstone: Duration,
    /// How the gateway answers an ask at its deadline, so that no turn waits for ever.
    pub at_deadline: DeadlinePolicy,
    /// Where the answer `always` to a permission request applies.
    pub always: AlwaysScope,
}

/// Where the answer `always` to a permission request applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AlwaysScope {
    /// `always` applies to the principal that answered, in the session of the root turn and in the sessions of its sub-agents,
    /// whichever of them asked. The gateway keeps the approval and answers later asks that the approval covers.
    #[default]
    Session,
    /// The agent decides where `always` applies: perhaps in all sessions of the directory, for every principal, until it ends.
    Agent,
}

impl AlwaysScope {
    /// The word for this value in the audit log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Agent => "agent",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadlinePolicy {
    /// Permissions and questions are rejected.
    Reject,
    /// Permissions are granted once. Questions are rejected, because `once` is no answer to a question.
    Once,
}

impl Default for AskConfig {
    fn default() -> Self {
        Self {
            time_to_live: Some(Duration::from_hours(3)),
            tombstone: Duration::from_mins(10),
            at_deadline: DeadlinePolicy::Reject,
            always: AlwaysScope::Session,
        }
    }
}

const GIB: u64 = 1024 * 1024 * 1024;

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            turn_timeout: Some(Duration::from_mins(15)),
            start_patience: Duration::from_mins(1),
            wait_for_others: Some(Duration::from_mins(2)),
            cancel_abort_timeout: Duration::from_secs(2),
            resume_restored: false,
            idempotency_window: Duration::from_mins(10),
            turns: 256,
            turns_per_principal: 128,
            unfinished: 10_000,
            unfinished_per_context: 100,
            unfinished_per_principal: 2000,
            unfinished_bytes: 2 * GIB,
            unfinished_bytes_per_principal: GIB,
            stored_bytes: 64 * GIB,
            stored_bytes_per_principal: 32 * GIB,
            task_bytes: MAX_TASK_BYTES,
            asks: AskConfig::default(),
            intake: IntakeRules::default(),
            files: FileRules::default(),
            retention: RetentionRules::default(),
            control: ControlRules::default(),
            names: WireNames::default(),
        }
    }
}
