//! Labels: closed sets of values, and one metric for each value.
//!
//! Some labels repeat an enum of another crate (states of tasks, kinds of errors), because this crate depends on no other. A crate
//! that knows both enums converts one into the other, by a `match` or by name with a test, so that no value is missing.

use std::fmt;
use std::marker::PhantomData;
use std::sync::OnceLock;

use crate::page::{Labels, Metric, MetricSchema, Page};

/// A label with a fixed set of values.
pub trait Label: Copy + 'static {
    /// The name of the label.
    const NAME: &'static str;
    /// All values, in the order of the variants.
    const VALUES: &'static [&'static str];
    /// All variants, in the same order.
    const ALL: &'static [Self];
    /// One `M` for each value.
    type Row<M>: AsRef<[M]>;

    /// Creates a row.
    fn row<M>(make: impl FnMut() -> M) -> Self::Row<M>;

    /// The index of this value in a row.
    fn index(self) -> usize;

    /// The variant of a value.
    fn parse(value: &str) -> Option<Self> {
        Self::VALUES.iter().position(|known| *known == value).map(|index| Self::ALL[index])
    }
}

/// One metric for each value of a label. Metrics with several labels nest these.
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
    const SCHEMA: MetricSchema = MetricSchema {
        labels: Some(&Labels { name: L::NAME, values: L::VALUES, inner: M::SCHEMA.labels }),
        ..M::SCHEMA
    };

    fn write(&self, page: &mut Page<'_>) {
        for (value, metric) in L::VALUES.iter().zip(self.0.as_ref()) {
            page.labelled(L::NAME, value, |page| metric.write(page));
        }
    }
}

/// One metric for each name in a table of another crate, which sets the names at the start. Names are static, so no caller can
/// create a series.
#[derive(Debug)]
pub struct PerName<L, M>(OnceLock<Box<[(&'static str, M)]>>, PhantomData<L>);

/// The label of a [`PerName`].
pub trait NameLabel {
    /// The name of the label.
    const NAME: &'static str;
}

/// The label of the extension methods.
#[derive(Debug)]
pub struct ByMethod;

impl NameLabel for ByMethod {
    const NAME: &'static str = "method";
}

/// The label of the operations.
#[derive(Debug)]
pub struct ByOperation;

impl NameLabel for ByOperation {
    const NAME: &'static str = "operation";
}

impl<L, M: Default> PerName<L, M> {
    /// Sets all names, in the order of the page. Only the first call has an effect.
    pub fn set_names(&self, names: impl IntoIterator<Item = &'static str>) {
        self.0.get_or_init(|| names.into_iter().map(|name| (name, M::default())).collect());
    }
}

impl<L, M> PerName<L, M> {
    /// The metric of this name. `None`: no such name was set.
    pub fn of(&self, name: &str) -> Option<&M> {
        self.0.get()?.iter().find(|(known, _)| *known == name).map(|(_, metric)| metric)
    }
}

impl<L, M> Default for PerName<L, M> {
    fn default() -> Self {
        Self(OnceLock::new(), PhantomData)
    }
}

impl<L: NameLabel, M: Metric> Metric for PerName<L, M> {
    const SCHEMA: MetricSchema = MetricSchema {
        labels: Some(&Labels { name: L::NAME, values: &[], inner: M::SCHEMA.labels }),
        ..M::SCHEMA
    };

    fn write(&self, page: &mut Page<'_>) {
        for (name, metric) in self.0.get().into_iter().flatten() {
            page.labelled(L::NAME, name, |page| metric.write(page));
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
                $(
                    $(#[$value_doc])*
                    #[doc = concat!("On the page: `", $word, "`.")]
                    $value,
                )*
            }

            impl Label for $label {
                const NAME: &'static str = $name;
                const VALUES: &'static [&'static str] = &[$($word),*];
                const ALL: &'static [Self] = &[$(Self::$value),*];
                type Row<M> = [M; [$($word),*].len()];

                fn row<M>(mut make: impl FnMut() -> M) -> Self::Row<M> {
                    std::array::from_fn(|_| make())
                }

                fn index(self) -> usize {
                    self as usize
                }
            }
        )*
    };
}

labels! {
    /// The outcome of aborting the agent's turn when its task was canceled.
    AbortOutcome = "abort_outcome" {
        /// The agent confirmed the abort.
        Success = "success",
        /// The agent did not answer in time.
        Timeout = "timeout",
        /// The agent answered with an error, or could not be reached.
        Error = "error",
        /// The turn had no session yet.
        NoSessionBinding = "no_session_binding",
        /// The task had no turn that ran.
        NoRunningTask = "no_running_task",
        /// No abort was sent to the agent.
        NotAttempted = "not_attempted",
        /// The request names no task.
        InvalidRequestContext = "invalid_request_context",
        /// The cancel itself failed.
        CancelError = "cancel_error",
    }

    /// A thread of the store, by the last word of its name.
    StoreThread = "thread" {
        Writer = "writer",
        /// Runs reads of bounded size, such as some events of a log.
        Quick = "quick",
        /// Reads whole tasks, and parts of files.
        Whole = "whole",
        /// Reads lists.
        Lists = "lists",
    }

    /// The purpose of a call to OpenCode.
    Call = "call" {
        /// Opens its event stream: the time to the first byte.
        Events = "events",
        CreateSession = "create_session",
        /// Starts a turn.
        Prompt = "prompt",
        /// Stops a turn.
        Abort = "abort",
        /// Answers an ask.
        Answer = "answer",
        Health = "health",
        /// Reads one session.
        Session = "session",
        /// Lists the busy sessions.
        Statuses = "statuses",
        /// Lists the open permission requests.
        Permissions = "permissions",
        /// Lists the open questions.
        Questions = "questions",
        /// Lists the child sessions of a session.
        Children = "children",
        /// Reads messages of a session; each page is a call.
        Messages = "messages",
        /// Reads models, agents, projects, or the configuration.
        Catalog = "catalog",
        /// Reads or changes something for the caller of an extension method.
        Control = "control",
    }

    /// How an event of OpenCode was handled.
    Fate = "fate" {
        /// Delivered to the turn that runs in its session.
        Routed = "routed",
        /// Ignored: its session is not the gateway's, or it has none.
        Foreign = "foreign",
        /// Could not be parsed.
        Unread = "unread",
        /// Dropped, because its turn is too far behind. The turn queries OpenCode for what it missed.
        Dropped = "dropped",
    }

    /// Why a piece of the output of an ACP agent was ignored.
    WhyIgnored = "reason" {
        /// Its kind is not known: an update, a method, or content.
        Unknown = "unknown",
        /// It could not be parsed.
        Unread = "unread",
        /// Nothing waited for the output: a response without a request, or an update outside of a turn.
        Unexpected = "unexpected",
        /// The output exceeded a limit.
        TooMuch = "too_much",
    }

    /// How a call of the agent to another agent ended.
    PeerCall = "outcome" {
        Completed = "completed",
        Failed = "failed",
        Canceled = "canceled",
        /// The gateway does not know whether the other agent has the message, or how its task ended.
        Unknown = "unknown",
        /// A limit, the address guard or the list of peers refused it.
        Refused = "refused",
    }

    /// The outcome of claiming an unowned session.
    ClaimOutcome = "outcome" {
        /// The session belongs to the caller now.
        Taken = "taken",
        /// Another claim of the session was pending, or too many claims were.
        Refused = "refused",
        /// Another caller claimed the session first.
        Lost = "lost",
    }

    /// The outcome of a call of an extension method.
    CallOutcome = "outcome" {
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
        /// The agent refused the call.
        UpstreamHttpError = "upstream_http_error",
        /// The agent could not be reached.
        UpstreamUnreachable = "upstream_unreachable",
        /// Too many calls to the agent are in flight.
        UpstreamBackpressure = "upstream_backpressure",
        /// The agent's response cannot be parsed.
        UpstreamPayloadError = "upstream_payload_error",
        /// The gateway failed, or was shutting down.
        InternalError = "internal_error",
    }

    /// The state of a turn that has not ended.
    TurnState = "state" {
        /// The agent works on the turn, or the turn waits for an answer of its caller.
        Running = "running",
        /// The turn waits for the turn limiter.
        Waiting = "waiting",
    }

    /// A state of a task.
    TaskState = "state" {
        /// Stored, and waits for its turn.
        Submitted = "submitted",
        Working = "working",
        /// The agent waits for an answer.
        InputRequired = "input_required",
        /// The agent needs credentials.
        AuthRequired = "auth_required",
        Completed = "completed",
        Failed = "failed",
        Canceled = "canceled",
        /// Refused before its turn began.
        Rejected = "rejected",
    }

    /// The protocol version of a request.
    ProtocolVersion = "line" {
        V1 = "1.0",
        V03 = "0.3",
        /// The request was refused before its protocol version was known, or is not an operation.
        None = "none",
    }

    /// The protocol binding of a request.
    Binding = "binding" {
        JsonRpc = "jsonrpc",
        Rest = "rest",
        Grpc = "grpc",
        /// A message of a WebSocket.
        WebSocket = "websocket",
        Stdio = "stdio",
        /// The request was refused before its binding was known, or is not an operation.
        None = "none",
    }

    /// The result of a request: OK, or the kind of its error.
    Answered = "kind" {
        Ok = "OK",
        Parse = "PARSE",
        InvalidRequest = "INVALID_REQUEST",
        MethodNotFound = "METHOD_NOT_FOUND",
        InvalidParams = "INVALID_PARAMS",
        Internal = "INTERNAL",
        TaskNotFound = "TASK_NOT_FOUND",
        TaskNotCancelable = "TASK_NOT_CANCELABLE",
        PushNotSupported = "PUSH_NOT_SUPPORTED",
        UnsupportedOperation = "UNSUPPORTED_OPERATION",
        ContentTypeNotSupported = "CONTENT_TYPE_NOT_SUPPORTED",
        InvalidAgentResponse = "INVALID_AGENT_RESPONSE",
        ExtendedCardNotConfigured = "EXTENDED_CARD_NOT_CONFIGURED",
        ExtensionRequired = "EXTENSION_REQUIRED",
        VersionNotSupported = "VERSION_NOT_SUPPORTED",
        Unauthenticated = "UNAUTHENTICATED",
        PermissionDenied = "PERMISSION_DENIED",
        RouteNotFound = "ROUTE_NOT_FOUND",
        VerbNotAllowed = "VERB_NOT_ALLOWED",
        WrongBinding = "WRONG_BINDING",
        BodyTooLarge = "BODY_TOO_LARGE",
        TooManyRequests = "TOO_MANY_REQUESTS",
        Unavailable = "UNAVAILABLE",
        AgentUnavailable = "AGENT_UNAVAILABLE",
        SessionGone = "SESSION_GONE",
        SessionBusy = "SESSION_BUSY",
        InterruptNotFound = "INTERRUPT_NOT_FOUND",
        InterruptExpired = "INTERRUPT_EXPIRED",
        InterruptTypeMismatch = "INTERRUPT_TYPE_MISMATCH",
        ExtensionNotActivated = "EXTENSION_NOT_ACTIVATED",
        StreamBudgetExceeded = "STREAM_BUDGET_EXCEEDED",
        UpstreamBackpressure = "UPSTREAM_BACKPRESSURE",
        SessionNotFound = "SESSION_NOT_FOUND",
        SessionForbidden = "SESSION_FORBIDDEN",
        UpstreamUnreachable = "UPSTREAM_UNREACHABLE",
        UpstreamHttpError = "UPSTREAM_HTTP_ERROR",
        UpstreamPayloadError = "UPSTREAM_PAYLOAD_ERROR",
        AuthorizationForbidden = "AUTHORIZATION_FORBIDDEN",
        MethodDisabled = "METHOD_DISABLED",
    }

    /// The limit that a request or stream exceeded. It has the name of its setting, if there is one, so that an operator knows
    /// what to change.
    Limit = "limit" {
        /// Requests of a principal in a time window.
        RateRequests = "rate_requests",
        /// Wrong credentials from an address in a time window.
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
        /// Open connections in all.
        Connections = "connections",
        /// Open connections of an address.
        ConnectionsPerAddress = "connections_per_address",
        /// Open requests of a connection that carries several.
        RequestsPerConnection = "requests_per_connection",
        /// The time for which a client reads none of the bytes that wait for it.
        WriteTimeout = "write_timeout",
        /// Bytes of request bodies that have not arrived completely.
        BodyBytes = "body_bytes",
        /// Concurrent calls to OpenCode.
        UpstreamCalls = "upstream_calls",
        /// Tasks of a context that have not ended.
        UnfinishedPerContext = "unfinished_per_context",
        /// Tasks of a principal that have not ended.
        UnfinishedPerPrincipal = "unfinished_per_principal",
        /// Tasks in all that have not ended.
        Unfinished = "unfinished",
        /// Bytes of a principal's tasks that have not ended.
        UnfinishedBytesPerPrincipal = "unfinished_bytes_per_principal",
        /// Bytes of all tasks that have not ended.
        UnfinishedBytes = "unfinished_bytes",
        /// Bytes of a principal in the store.
        StoredBytesPerPrincipal = "stored_bytes_per_principal",
        /// Bytes in the store.
        StoredBytes = "stored_bytes",
        /// Bytes of one task.
        TaskBytes = "task_bytes",
        /// Push configurations of a task.
        PushConfigsPerTask = "push_configs_per_task",
        /// Push configurations of a principal.
        PushConfigsPerPrincipal = "push_configs_per_principal",
        /// Push configurations in all.
        PushConfigs = "push_configs",
        /// Bytes of a message beside its content.
        MaxMetadataBytes = "max_metadata_bytes",
        /// Extensions that a message names.
        MaxExtensions = "max_extensions",
        /// Tasks that a message refers to.
        MaxReferences = "max_references",
        /// Messages that are joining a running turn. Has no setting.
        JoiningPerTask = "joining_per_task",
        /// Messages of one task. Has no setting.
        MessagesPerTask = "messages_per_task",
        /// Bytes of a request's body.
        MaxRequestBodyBytes = "max_request_body_bytes",
        /// Free space of the disk that holds the store.
        MinFreeDisk = "min_free_disk",
        /// Origins whose web pages may call the gateway.
        AllowedOrigins = "allowed_origins",
        /// Host names by which the gateway may be called.
        AllowedHosts = "allowed_hosts",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Counter, WhenUsed};
    use crate::page::{Family, Kind};

    fn check<L: Label + PartialEq + fmt::Debug>() {
        assert_eq!(L::ALL.len(), L::VALUES.len());
        for (index, value) in L::ALL.iter().enumerate() {
            assert_eq!(value.index(), index, "{value:?}");
            assert_eq!(L::parse(L::VALUES[index]), Some(*value));
        }
        assert_eq!(L::row(|| ()).as_ref().len(), L::VALUES.len());
    }

    #[test]
    fn every_value_has_the_index_of_its_word() {
        check::<AbortOutcome>();
        check::<StoreThread>();
        check::<Call>();
        check::<Fate>();
        check::<WhyIgnored>();
        check::<ClaimOutcome>();
        check::<PeerCall>();
        check::<CallOutcome>();
        check::<TurnState>();
        check::<TaskState>();
        check::<ProtocolVersion>();
        check::<Binding>();
        check::<Answered>();
        check::<Limit>();
    }

    #[test]
    fn a_method_is_counted_under_its_name_once_the_names_are_set() {
        let calls = PerName::<ByMethod, Counter>::default();
        assert!(calls.of("a.b").is_none());
        calls.set_names(["a.b", "a.a"]);
        calls.set_names(["c"]);
        calls.of("a.a").unwrap().add(2);
        assert!(calls.of("c").is_none(), "only the first names count");
        let schema = <PerName<ByMethod, Counter> as Metric>::SCHEMA;
        let mut text = String::new();
        Page::new(&mut text).family(&Family { name: "a_total", help: "A.", schema }, &calls);
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(lines, ["a_total{method=\"a.b\"} 0", "a_total{method=\"a.a\"} 2"]);
    }

    #[test]
    fn a_value_is_counted_under_its_own_word() {
        let events = PerLabel::<Fate, Counter>::default();
        events.of(Fate::Foreign).add(2);
        events.of(Fate::Unread).increment();
        let family =
            Family { name: "a_total", help: "A.", schema: <PerLabel<Fate, Counter> as Metric>::SCHEMA };
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
    fn labels_nest() {
        type Requests = PerLabel<ProtocolVersion, PerLabel<Binding, WhenUsed<Counter>>>;
        let requests = Requests::default();
        requests.of(ProtocolVersion::V03).of(Binding::Rest).increment();
        let schema = Requests::SCHEMA;
        assert_eq!(schema.kind, Kind::Counter);
        let outer = schema.labels.unwrap();
        assert_eq!((outer.name, outer.inner.unwrap().name), ("line", "binding"));
        let mut text = String::new();
        Page::new(&mut text).family(&Family { name: "a_total", help: "A.", schema }, &requests);
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(lines, ["a_total{line=\"0.3\",binding=\"rest\"} 1"]);
    }
}
