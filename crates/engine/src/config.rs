//! The engine's settings.

use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// How long a turn may run before it is aborted and its task fails. `None`: for ever.
    pub turn_timeout: Option<Duration>,
    /// How long an agent that cannot be reached is waited for before a turn fails that it was not prompted for.
    pub start_patience: Duration,
    /// How long a turn waits for work of somebody else in its session that is no turn, and so does not become a task that goes
    /// first. `None`: for as long as it takes.
    pub wait_for_others: Option<Duration>,
    /// How long the abort of a turn that has ended here is waited for.
    pub cancel_abort_timeout: Duration,
    /// For how long the same send is known to be the same.
    pub idempotency_window: Duration,
    /// How many turns may run at once. Others wait, and are let in by turns of their principals. 0: any number.
    pub turns: usize,
    /// The same for the turns of one principal.
    pub turns_per_principal: usize,
    /// How many tasks may be unfinished. One more is refused: clients that send faster than the agent works must notice.
    /// 0: any number.
    pub unfinished: usize,
    /// The same for the tasks of one context.
    pub unfinished_per_context: usize,
    /// The same for all contexts of a principal together.
    pub unfinished_per_principal: usize,
    pub asks: AskConfig,
    pub intake: IntakeRules,
    pub files: FileRules,
    pub retention: RetentionRules,
    pub control: ControlRules,
}

/// Who may look at the agent's sessions and change them beside turns.
#[derive(Clone, Copy, Debug)]
pub struct ControlRules {
    pub session_guard: SessionGuard,
    /// For how long a session that is nobody's is kept from others while a call is under way that makes it the caller's.
    pub claim_ttl: Duration,
}

impl Default for ControlRules {
    fn default() -> Self {
        Self { session_guard: SessionGuard::default(), claim_ttl: Duration::from_secs(30) }
    }
}

/// Whom a session is for. Tasks are their owner's whatever is said here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SessionGuard {
    /// Its owner. One that is nobody's: whoever may claim sessions.
    #[default]
    Owner,
    /// Everybody may look at it, and only its owner may change it.
    SharedReads,
    /// Everybody, but for turns: those are its owner's.
    Shared,
}

impl SessionGuard {
    pub const ALL: [Self; 3] = [Self::Owner, Self::SharedReads, Self::Shared];

    /// As the configuration writes it.
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

/// How long what is over is kept.
#[derive(Clone, Copy, Debug)]
pub struct RetentionRules {
    /// After this long the log of a task that is over is folded to its last event. The task itself stays. `None`: never.
    pub fold_after: Option<Duration>,
    /// After this long a task that is over goes, with all that belongs to it, but not while the same send is known to be
    /// the same. `None`: never.
    pub keep_tasks: Option<Duration>,
}

impl Default for RetentionRules {
    fn default() -> Self {
        Self { fold_after: Some(Duration::from_hours(7 * 24)), keep_tasks: None }
    }
}

/// What a message may hold.
#[derive(Clone, Debug)]
pub struct IntakeRules {
    /// Files of the workspace may be referred to, those outside may not. Resolved.
    pub root: PathBuf,
    /// Data parts are taken, as JSON text.
    pub data_parts: bool,
    /// Media types that are text, beside `text/*` and those that everybody knows.
    pub text_types: Vec<String>,
    /// Media types of other files that are taken, beside images, audio, PDF and plain bytes. Types, and ranges such as
    /// `video/*`.
    pub media_types: Vec<String>,
    /// The largest text or data, wherever it comes from.
    pub max_text_bytes: u64,
    /// The largest file that comes with the message.
    pub max_inline_bytes: u64,
    /// The largest file of the workspace that is referred to.
    pub max_file_bytes: u64,
    /// Hosts whose `http` and `https` URLs are handed on: names, and `*.` for every name below. Empty: none.
    pub remote_hosts: Vec<String>,
}

impl Default for IntakeRules {
    fn default() -> Self {
        Self {
            root: PathBuf::from("/nowhere"),
            data_parts: true,
            text_types: Vec::new(),
            media_types: Vec::new(),
            max_text_bytes: 1024 * 1024,
            max_inline_bytes: 5 * 1024 * 1024,
            max_file_bytes: 25 * 1024 * 1024,
            remote_hosts: Vec::new(),
        }
    }
}

/// What becomes of files that an agent hands over.
#[derive(Clone, Debug)]
pub struct FileRules {
    /// What stands before a file's id in its URL.
    pub base_url: String,
    /// A larger file is not kept; the task tells of it.
    pub max_bytes: u64,
    /// One task keeps so many files. More are not kept; the task tells of the first of them.
    pub max_per_task: usize,
}

impl Default for FileRules {
    fn default() -> Self {
        Self { base_url: "/artifacts/".to_owned(), max_bytes: 25 * 1024 * 1024, max_per_task: 100 }
    }
}

/// What becomes of asks that nobody answers.
#[derive(Clone, Copy, Debug)]
pub struct AskConfig {
    /// How long an ask can be answered. `None`: as long as its turn runs.
    pub time_to_live: Option<Duration>,
    /// For how long an answer that comes too late is told so. After that, the ask was never there.
    pub tombstone: Duration,
    /// What the gateway answers at the deadline, so that no turn waits for ever.
    pub at_deadline: AtDeadline,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtDeadline {
    /// Permissions and questions are rejected.
    Reject,
    /// Permissions are given once; questions, to which there is no such answer, are rejected.
    Once,
}

impl Default for AskConfig {
    fn default() -> Self {
        Self {
            time_to_live: Some(Duration::from_hours(3)),
            tombstone: Duration::from_mins(10),
            at_deadline: AtDeadline::Reject,
        }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            turn_timeout: Some(Duration::from_mins(15)),
            start_patience: Duration::from_mins(1),
            wait_for_others: Some(Duration::from_mins(2)),
            cancel_abort_timeout: Duration::from_secs(2),
            idempotency_window: Duration::from_mins(10),
            turns: 256,
            turns_per_principal: 128,
            unfinished: 10_000,
            unfinished_per_context: 100,
            unfinished_per_principal: 2000,
            asks: AskConfig::default(),
            intake: IntakeRules::default(),
            files: FileRules::default(),
            retention: RetentionRules::default(),
            control: ControlRules::default(),
        }
    }
}
