//! The labels: closed sets of words, and a metric for each word.
//!
//! What another crate has an enum for (a state of a task, a kind of error) stands here once more, because this crate
//! knows no other. A `match` where the two meet keeps them together: the compiler sees when one is missing.

use std::fmt;

use crate::page::{Labels, Metric, Page, Shape};

/// A label with all that it can be.
pub trait Label: Copy + 'static {
    /// The name of the label.
    const NAME: &'static str;
    /// All its values, in the order of the variants.
    const VALUES: &'static [&'static str];
    /// One `M` for each value.
    type Row<M>: AsRef<[M]>;

    /// Makes a row.
    fn row<M>(make: impl FnMut() -> M) -> Self::Row<M>;

    /// Its place in a row.
    fn index(self) -> usize;
}

/// One metric for each value of a label. Several labels are several of these, one inside the other.
pub struct PerLabel<L: Label, M>(L::Row<M>);

impl<L: Label, M> PerLabel<L, M> {
    /// The metric of this value.
    pub fn of(&self, value: L) -> &M {
        &self.0.as_ref()[value.index()]
    }
}

impl<L: Label, M: Default> Default for PerLabel<L, M> {
    fn default() -> Self {
        Self(L::row(M::default))
    }
}

impl<L: Label, M: fmt::Debug> fmt::Debug for PerLabel<L, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(L::VALUES.iter().zip(self.0.as_ref())).finish()
    }
}

impl<L: Label, M: Metric> Metric for PerLabel<L, M> {
    const SHAPE: Shape = Shape {
        labels: Some(&Labels { name: L::NAME, values: L::VALUES, inner: M::SHAPE.labels }),
        ..M::SHAPE
    };

    fn write(&self, page: &mut Page<'_>) {
        for (value, metric) in L::VALUES.iter().zip(self.0.as_ref()) {
            page.labelled(L::NAME, value, |page| metric.write(page));
        }
    }
}

macro_rules! labels {
    ($(
        $(#[$doc:meta])*
        $label:ident = $name:literal { $($(#[$value_doc:meta])* $value:ident = $word:literal,)* }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
            pub enum $label {
                $($(#[$value_doc])* $value,)*
            }

            impl Label for $label {
                const NAME: &'static str = $name;
                const VALUES: &'static [&'static str] = &[$($word),*];
                type Row<M> = [M; [$($word),*].len()];

                fn row<M>(mut make: impl FnMut() -> M) -> Self::Row<M> {
                    std::array::from_fn(|_| make())
                }

                fn index(self) -> usize {
                    self as usize
                }
            }

            impl $label {
                /// The value of this word.
                pub fn named(word: &str) -> Option<Self> {
                    [$(Self::$value),*].into_iter().find(|value| Self::VALUES[value.index()] == word)
                }
            }

            #[cfg(test)]
            impl tests::AllValues for $label {
                const ALL: &'static [Self] = &[$(Self::$value),*];
            }
        )*
    };
}

labels! {
    /// What became of the agent's turn when its task was canceled.
    AbortOutcome = "abort_outcome" {
        /// The agent was told, and stopped.
        Success = "success",
        /// The agent did not answer in time.
        Timeout = "timeout",
        /// The agent answered with an error, or could not be reached.
        Error = "error",
        /// The turn had no session yet.
        NoSessionBinding = "no_session_binding",
        /// The task had no turn that ran.
        NoRunningTask = "no_running_task",
        /// The agent was not told.
        NotAttempted = "not_attempted",
        /// The request does not say which task.
        InvalidRequestContext = "invalid_request_context",
        /// The cancel itself failed.
        CancelError = "cancel_error",
    }

    /// A thread of the store, by the last word of its name.
    StoreThread = "thread" {
        /// It writes.
        Writer = "writer",
        /// It reads what is small.
        Quick = "quick",
        /// It reads whole tasks and logs.
        Whole = "whole",
        /// It reads lists.
        Lists = "lists",
    }

    /// What OpenCode is called for.
    Call = "call" {
        /// To open its stream of events: the time to its first byte.
        Events = "events",
        /// To make a session.
        CreateSession = "create_session",
        /// To begin a turn.
        Prompt = "prompt",
        /// To stop a turn.
        Abort = "abort",
        /// To answer an ask.
        Answer = "answer",
        /// To see whether it is well.
        Health = "health",
        /// To look a session up.
        Session = "session",
        /// To see which sessions are busy.
        Statuses = "statuses",
        /// To list the permissions that it asks for.
        Permissions = "permissions",
        /// To list its questions.
        Questions = "questions",
        /// To list the sessions that a session began.
        Children = "children",
        /// To read messages of a session; each page is a call.
        Messages = "messages",
        /// To see what it can do: models, agents, projects, its configuration.
        Catalog = "catalog",
        /// To look at or change something for a caller who controls it.
        Control = "control",
    }

    /// What was done with an event of OpenCode.
    Fate = "fate" {
        /// It is of a session that a turn runs in, and went there.
        Routed = "routed",
        /// It is of a session that is none of ours, or of none.
        Foreign = "foreign",
        /// It could not be read.
        Unread = "unread",
        /// It is of a turn that is too far behind, and that asks for what it missed.
        Dropped = "dropped",
    }

    /// What became of the try to take a session that is nobody's.
    ClaimOutcome = "outcome" {
        /// It is the caller's now.
        Taken = "taken",
        /// Somebody else was about to take it, or too many were about to be taken.
        Refused = "refused",
        /// Somebody else took it meanwhile.
        Lost = "lost",
    }

    /// A method of an extension, by its name on the wire.
    Method = "method" {
        /// Gives or refuses a permission.
        PermissionReply = "a2a.interrupt.permission.reply",
        /// Answers a question.
        QuestionReply = "a2a.interrupt.question.reply",
        /// Refuses to answer a question.
        QuestionReject = "a2a.interrupt.question.reject",
        /// Which sessions are busy.
        SessionsStatus = "opencode.sessions.status",
        /// Lists sessions.
        SessionsList = "opencode.sessions.list",
        /// Lists the messages of a session.
        SessionsMessagesList = "opencode.sessions.messages.list",
        /// Gets a session.
        SessionsGet = "opencode.sessions.get",
        /// Lists the sessions below one.
        SessionsChildren = "opencode.sessions.children",
        /// What is to be done in a session.
        SessionsTodo = "opencode.sessions.todo",
        /// What a session changed.
        SessionsDiff = "opencode.sessions.diff",
        /// Gets a message.
        SessionsMessagesGet = "opencode.sessions.messages.get",
        /// Prompts a session.
        SessionsPromptAsync = "opencode.sessions.prompt_async",
        /// Has a session carry out a command.
        SessionsCommand = "opencode.sessions.command",
        /// Copies a session.
        SessionsFork = "opencode.sessions.fork",
        /// Shares a session.
        SessionsShare = "opencode.sessions.share",
        /// Shares a session no more.
        SessionsUnshare = "opencode.sessions.unshare",
        /// Summarizes a session.
        SessionsSummarize = "opencode.sessions.summarize",
        /// Takes a session back.
        SessionsRevert = "opencode.sessions.revert",
        /// Takes that back.
        SessionsUnrevert = "opencode.sessions.unrevert",
        /// Runs a shell command in a session.
        SessionsShell = "opencode.sessions.shell",
        /// Lists providers.
        ProvidersList = "opencode.providers.list",
        /// Lists models.
        ModelsList = "opencode.models.list",
        /// Lists projects.
        ProjectsList = "opencode.projects.list",
        /// Gets the project.
        ProjectsCurrent = "opencode.projects.current",
        /// Lists workspaces.
        WorkspacesList = "opencode.workspaces.list",
        /// Makes a workspace.
        WorkspacesCreate = "opencode.workspaces.create",
        /// Removes a workspace.
        WorkspacesRemove = "opencode.workspaces.remove",
        /// Lists worktrees.
        WorktreesList = "opencode.worktrees.list",
        /// Makes a worktree.
        WorktreesCreate = "opencode.worktrees.create",
        /// Removes a worktree.
        WorktreesRemove = "opencode.worktrees.remove",
        /// Resets a worktree.
        WorktreesReset = "opencode.worktrees.reset",
        /// Lists the permissions that are asked for.
        PermissionsList = "opencode.permissions.list",
        /// Lists the questions that are asked.
        QuestionsList = "opencode.questions.list",
    }

    /// What became of a call of a method of an extension.
    CallOutcome = "outcome" {
        /// It was done.
        Success = "success",
        /// The parameters break a rule, or the extension was not activated.
        InvalidParams = "invalid_params",
        /// The method is switched off.
        Disabled = "disabled",
        /// The credential lacks a capability.
        AuthorizationForbidden = "authorization_forbidden",
        /// The session is not the caller's.
        Forbidden = "forbidden",
        /// The session is busy, or a limit was reached.
        Busy = "busy",
        /// The agent has no such session.
        NotFound = "upstream_404",
        /// The agent refused it.
        UpstreamHttpError = "upstream_http_error",
        /// The agent was not reached.
        UpstreamUnreachable = "upstream_unreachable",
        /// Too many calls of the agent are under way.
        UpstreamBackpressure = "upstream_backpressure",
        /// The agent's answer cannot be read.
        UpstreamPayloadError = "upstream_payload_error",
        /// The gateway broke, or was about to end.
        InternalError = "internal_error",
    }

    /// Where a turn is that has not ended.
    TurnState = "state" {
        /// The agent works on it, or it waits for an answer of its caller.
        Running = "running",
        /// It waits for its place.
        Waiting = "waiting",
    }

    /// A state of a task.
    TaskState = "state" {
        /// It is kept, and waits for its turn.
        Submitted = "submitted",
        /// The agent works on it.
        Working = "working",
        /// The agent asks something.
        InputRequired = "input_required",
        /// The agent needs credentials.
        AuthRequired = "auth_required",
        /// The agent is done.
        Completed = "completed",
        /// It broke.
        Failed = "failed",
        /// Somebody stopped it.
        Canceled = "canceled",
        /// It was not begun.
        Rejected = "rejected",
    }

    /// The version of the protocol that a request speaks.
    ProtocolVersion = "line" {
        /// 1.0.
        V1 = "1.0",
        /// 0.3.
        V03 = "0.3",
        /// It was refused before that was known, or is for the gateway itself.
        None = "none",
    }

    /// The form of the protocol that a request has.
    Binding = "binding" {
        /// JSON-RPC.
        JsonRpc = "jsonrpc",
        /// REST.
        Rest = "rest",
        /// It was refused before that was known, or is for the gateway itself.
        None = "none",
    }

    /// How a request was answered: well, or with which kind of error.
    Answered = "kind" {
        /// Well.
        Ok = "OK",
        /// The body is no JSON.
        Parse = "PARSE",
        /// JSON, but no request of the binding.
        InvalidRequest = "INVALID_REQUEST",
        /// There is no such method.
        MethodNotFound = "METHOD_NOT_FOUND",
        /// A parameter breaks a rule.
        InvalidParams = "INVALID_PARAMS",
        /// The gateway broke.
        Internal = "INTERNAL",
        /// There is no such task for the caller.
        TaskNotFound = "TASK_NOT_FOUND",
        /// The task cannot be canceled any more.
        TaskNotCancelable = "TASK_NOT_CANCELABLE",
        /// Push is not supported.
        PushNotSupported = "PUSH_NOT_SUPPORTED",
        /// The operation is not supported here.
        UnsupportedOperation = "UNSUPPORTED_OPERATION",
        /// The kind of content is not supported.
        ContentTypeNotSupported = "CONTENT_TYPE_NOT_SUPPORTED",
        /// The agent answered with something that cannot be read.
        InvalidAgentResponse = "INVALID_AGENT_RESPONSE",
        /// There is no extended card.
        ExtendedCardNotConfigured = "EXTENDED_CARD_NOT_CONFIGURED",
        /// An extension must be activated first.
        ExtensionRequired = "EXTENSION_REQUIRED",
        /// The version is not spoken here.
        VersionNotSupported = "VERSION_NOT_SUPPORTED",
        /// There is no credential, or a wrong one.
        Unauthenticated = "UNAUTHENTICATED",
        /// The credential does not allow it.
        PermissionDenied = "PERMISSION_DENIED",
        /// There is no such path.
        RouteNotFound = "ROUTE_NOT_FOUND",
        /// The path does not take this verb.
        VerbNotAllowed = "VERB_NOT_ALLOWED",
        /// A request of JSON-RPC at a path of REST.
        WrongBinding = "WRONG_BINDING",
        /// The body is too large.
        BodyTooLarge = "BODY_TOO_LARGE",
        /// A limit of the gateway was reached.
        TooManyRequests = "TOO_MANY_REQUESTS",
        /// The gateway or its store cannot serve now.
        Unavailable = "UNAVAILABLE",
        /// The agent cannot be reached.
        AgentUnavailable = "AGENT_UNAVAILABLE",
        /// The agent no longer knows the session.
        SessionGone = "SESSION_GONE",
        /// Another turn has the session.
        SessionBusy = "SESSION_BUSY",
        /// No such ask is open for the caller.
        InterruptNotFound = "INTERRUPT_NOT_FOUND",
        /// The ask was not answered in time.
        InterruptExpired = "INTERRUPT_EXPIRED",
        /// The answer is for another kind of ask.
        InterruptTypeMismatch = "INTERRUPT_TYPE_MISMATCH",
        /// The extension was not activated.
        ExtensionNotActivated = "EXTENSION_NOT_ACTIVATED",
        /// A stream reached a limit of its own.
        StreamBudgetExceeded = "STREAM_BUDGET_EXCEEDED",
        /// Too many calls of the agent are under way.
        UpstreamBackpressure = "UPSTREAM_BACKPRESSURE",
        /// The agent has no such session.
        SessionNotFound = "SESSION_NOT_FOUND",
        /// The session is not the caller's.
        SessionForbidden = "SESSION_FORBIDDEN",
        /// A call for a caller did not reach the agent.
        UpstreamUnreachable = "UPSTREAM_UNREACHABLE",
        /// The agent refused a call for a caller.
        UpstreamHttpError = "UPSTREAM_HTTP_ERROR",
        /// The agent answered a call for a caller with something that cannot be read.
        UpstreamPayloadError = "UPSTREAM_PAYLOAD_ERROR",
        /// The credential lacks a capability.
        AuthorizationForbidden = "AUTHORIZATION_FORBIDDEN",
        /// The method is switched off.
        MethodDisabled = "METHOD_DISABLED",
    }

    /// The limit that something was refused by, as its setting is called, if it has one: whoever sees it knows what to change.
    Limit = "limit" {
        /// Requests of a principal in a while.
        RateRequests = "rate_requests",
        /// Wrong credentials from an address in a while.
        FailedLogins = "failed_logins",
        /// Open streams in all.
        Streams = "streams",
        /// Open streams of a principal.
        StreamsPerPrincipal = "streams_per_principal",
        /// Bytes of a stream.
        StreamBytes = "stream_bytes",
        /// The time that a stream is open.
        StreamDuration = "stream_duration",
        /// The time that a stream is without an event.
        StreamIdle = "stream_idle",
        /// Calls of OpenCode at once.
        UpstreamCalls = "upstream_calls",
        /// Tasks of a context that have not ended.
        UnfinishedPerContext = "unfinished_per_context",
        /// Tasks of a principal that have not ended.
        UnfinishedPerPrincipal = "unfinished_per_principal",
        /// Tasks in all that have not ended.
        Unfinished = "unfinished",
        /// Messages on their way to a turn that runs. Has no setting.
        JoiningPerTask = "joining_per_task",
        /// Messages of one task. Has no setting.
        MessagesPerTask = "messages_per_task",
        /// Bytes of a request's body.
        MaxRequestBodyBytes = "max_request_body_bytes",
        /// Sites whose pages may call.
        AllowedOrigins = "allowed_origins",
        /// Names by which the gateway may be called.
        AllowedHosts = "allowed_hosts",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Counter, WhenUsed};
    use crate::page::{Family, Kind};

    pub(super) trait AllValues: Label {
        const ALL: &'static [Self];
    }

    fn check<L: AllValues + fmt::Debug>() {
        assert_eq!(L::ALL.len(), L::VALUES.len());
        for (place, value) in L::ALL.iter().enumerate() {
            assert_eq!(value.index(), place, "{value:?}");
        }
        assert_eq!(L::row(|| ()).as_ref().len(), L::VALUES.len());
    }

    #[test]
    fn every_value_has_the_place_of_its_word() {
        check::<AbortOutcome>();
        check::<StoreThread>();
        check::<Call>();
        check::<Fate>();
        check::<ClaimOutcome>();
        check::<Method>();
        check::<CallOutcome>();
        check::<TurnState>();
        check::<TaskState>();
        check::<ProtocolVersion>();
        check::<Binding>();
        check::<Answered>();
        check::<Limit>();
    }

    #[test]
    fn a_value_is_found_by_its_word() {
        assert_eq!(Method::named("opencode.sessions.fork"), Some(Method::SessionsFork));
        assert_eq!(CallOutcome::named("upstream_404"), Some(CallOutcome::NotFound));
        assert_eq!(Method::named("opencode.sessions"), None);
    }

    #[test]
    fn a_value_is_counted_under_its_own_word() {
        let events = PerLabel::<Fate, Counter>::default();
        events.of(Fate::Foreign).add(2);
        events.of(Fate::Unread).increment();
        let family =
            Family { name: "a_total", help: "A.", shape: <PerLabel<Fate, Counter> as Metric>::SHAPE };
        let mut text = String::new();
        Page::new(&mut text).family(&family, &events);
        let lines: Vec<_> = text.lines().skip(1).collect();
        let expected = [
            "# TYPE a_total counter",
            "a_total{fate=\"routed\"} 0",
            "a_total{fate=\"foreign\"} 2",
            "a_total{fate=\"unread\"} 1",
            "a_total{fate=\"dropped\"} 0",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn labels_stand_inside_one_another() {
        type Requests = PerLabel<ProtocolVersion, PerLabel<Binding, WhenUsed<Counter>>>;
        let requests = Requests::default();
        requests.of(ProtocolVersion::V03).of(Binding::Rest).increment();
        let shape = Requests::SHAPE;
        assert_eq!(shape.kind, Kind::Counter);
        let outer = shape.labels.unwrap();
        assert_eq!((outer.name, outer.inner.unwrap().name), ("line", "binding"));
        let mut text = String::new();
        Page::new(&mut text).family(&Family { name: "a_total", help: "A.", shape }, &requests);
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(lines, ["a_total{line=\"0.3\",binding=\"rest\"} 1"]);
    }
}
