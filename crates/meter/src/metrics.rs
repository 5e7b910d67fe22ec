//! Declares every metric once: its field, its type, its name and its help.
//!
//! The names that begin with `a2a_`, `interrupt_`, `tool_call_` and `opencode_stream_` come from earlier gateways and are
//! kept so that dashboards keep working. Names never change: a golden test compares them.

use std::sync::Arc;

use crate::cell::{Counter, Gauge, Info, Peak, Reading, Total, WhenUsed};
use crate::histogram::Histogram;
use crate::label::{
    AbortOutcome, Answered, Binding, ByMethod, ByOperation, Call, CallOutcome, ClaimOutcome, Fate, Limit,
    PeerCall, PerLabel, PerName, ProtocolVersion, StoreThread, TaskState, TurnState, WhyIgnored,
};
use crate::page::{Family, Metric, Page};
use crate::process::Process;
use crate::quantity::{Milliseconds, Seconds, Whole};
use crate::scale::{AppendTime, AskTime, CommitSize, EventDelay, PushLag, QueueLength, ResponseTime};

/// The requests for one operation.
type Requests = PerLabel<ProtocolVersion, PerLabel<Binding, PerLabel<Answered, WhenUsed<Counter>>>>;

macro_rules! metrics {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $name:literal, $help:literal;)*) => {
        /// All metrics of the gateway. See the fields.
        #[derive(Default, Debug)]
        pub struct Metrics {
            $(
                #[doc = $help]
                #[doc = ""]
                #[doc = concat!("On the page: `", $name, "`.")]
                $(#[doc = ""] #[$doc])*
                pub $field: $type,
            )*
        }

        /// The metrics as the page declares them, in its order.
        pub const FAMILIES: &[Family] =
            &[$(Family { name: $name, help: $help, schema: <$type as Metric>::SCHEMA }),*];

        impl Metrics {
            fn write(&self, page: &mut Page<'_>) {
                let mut families = FAMILIES.iter();
                $(
                    if let Some(family) = families.next() {
                        page.family(family, &self.$field);
                    }
                )*
            }
        }
    };
}

metrics! {
    stream_requests: Counter = "a2a_stream_requests_total",
        "Streaming sends that began.";
    /// Increase this with [`Metrics::hold`], and keep the guard in the body of the response.
    stream_active: Gauge = "a2a_stream_active",
        "Streaming sends whose stream is open now.";
    /// [`Metrics::refused`] tells which limit was reached.
    stream_budget_rejected: Counter = "a2a_stream_budget_rejected_total",
        "Streams that were ended because they reached a limit of bytes, duration or idle time.";
    rate_limit_rejected: Counter = "a2a_rate_limit_rejected_total",
        "Requests that were refused by the rate limit.";
    stream_retries: Counter = "opencode_stream_retries_total",
        "Times that the event stream of OpenCode broke and was opened again.";
    tool_chunks: Counter = "tool_call_chunks_emitted_total",
        "Updates about tool calls that were sent to callers.";
    interrupt_requests: Counter = "interrupt_requests_total",
        "Permissions and questions that the agent asked.";
    interrupt_resolved: Counter = "interrupt_resolved_total",
        "Permission requests and questions that were closed, for any reason.";
    interrupt_open: Gauge = "interrupt_open",
        "Permissions and questions that wait for an answer now.";
    /// Set at each scrape. Zero when no ask is open.
    interrupt_oldest_age: Reading<Seconds> = "interrupt_oldest_age_seconds",
        "How long the oldest open permission or question has waited.";
    /// Counted when the permission request or question is closed.
    interrupt_waited: Histogram<AskTime> = "interrupt_open_seconds",
        "How long permission requests and questions were open.";
    cancel_requests: Counter = "a2a_cancel_requests_total",
        "Requests to cancel a task.";
    abort_attempts: Counter = "a2a_cancel_abort_attempt_total",
        "Aborts that were sent to the agent because of a cancel.";
    abort_successes: Counter = "a2a_cancel_abort_success_total",
        "Aborts that the agent confirmed.";
    abort_timeouts: Counter = "a2a_cancel_abort_timeout_total",
        "Aborts that the agent did not confirm in time.";
    abort_errors: Counter = "a2a_cancel_abort_error_total",
        "Aborts that could not be sent to the agent, or that it refused.";
    cancel_errors: Counter = "a2a_cancel_errors_total",
        "Cancels that failed in the gateway.";
    cancel_duration: PerLabel<AbortOutcome, Reading<Milliseconds>> = "a2a_cancel_duration_ms",
        "How long the last cancel of this outcome took, in milliseconds.";
    /// The names come from the table of operations. Two more names stand for all other requests.
    http_requests: PerName<ByOperation, Requests> =
        "longshore_http_requests_total",
        "Requests that were answered, by operation, protocol version, binding, and OK or the kind of error.";
    refused: PerLabel<Limit, Counter> = "longshore_refused_total",
        "Requests, streams and connections that were refused or ended by a limit, by the setting of the limit.";
    failed_logins: Counter = "longshore_failed_logins_total",
        "Requests with a wrong credential.";
    /// Increase this with [`Metrics::hold`] while the connection is open.
    connections: Gauge = "longshore_connections",
        "Connections of callers that are open now.";
    tasks: PerLabel<TaskState, Counter> = "longshore_tasks_total",
        "Changes of tasks to this state.";
    tasks_unfinished: Gauge = "longshore_tasks_unfinished",
        "Tasks that have not ended yet.";
    turns: PerLabel<TurnState, Gauge> = "longshore_turns",
        "Turns of the agent that run, and that wait for a place to run.";
    /// Measured from the first waiting event until its bytes are handed to the connection.
    event_delay: Histogram<EventDelay> = "longshore_event_delay_seconds",
        "How long an event took through the gateway, from the agent's line to the connection of a reader that waited for it.";
    store_append: Histogram<AppendTime> = "longshore_store_append_seconds",
        "How long an append to the log took, the wait for the writer included.";
    store_group: Histogram<CommitSize> = "longshore_store_group_size",
        "Writes that one commit of the store held: appends, new tasks and other changes.";
    /// Changed by [`Metrics::job_queued`] and [`Metrics::jobs_taken`].
    store_queue_depth: PerLabel<StoreThread, Gauge> = "longshore_store_queue_depth",
        "Jobs that wait for a thread of the store now.";
    store_queue_peak: PerLabel<StoreThread, Peak> = "longshore_store_queue_depth_max",
        "The most jobs that waited at once for a thread of the store since the start.";
    store_queue_ahead: PerLabel<StoreThread, Histogram<QueueLength>> = "longshore_store_queue_ahead",
        "Jobs that waited already when another was queued for a thread of the store.";
    opencode_request: PerLabel<Call, WhenUsed<Histogram<ResponseTime>>> = "opencode_request_seconds",
        "How long OpenCode took to answer, failures included.";
    /// The edge sets the names from the method table.
    control_calls: PerName<ByMethod, PerLabel<CallOutcome, WhenUsed<Counter>>> = "longshore_control_calls_total",
        "Calls of extension methods, by method and outcome.";
    adopted_turns: Counter = "longshore_adopted_turns_total",
        "External turns that became tasks: another client started them in a session that a principal owns.";
    unwatched_sessions: Counter = "longshore_unwatched_sessions_total",
        "Times that a session could not be watched for external turns, because all watched directories were in use.";
    session_claims: PerLabel<ClaimOutcome, Counter> = "longshore_session_claims_total",
        "Attempts of control calls to claim an unowned session, by outcome.";
    opencode_events: PerLabel<Fate, Counter> = "opencode_events_total",
        "Events of OpenCode, by what was done with them.";
    opencode_event_queue_depth: Gauge = "opencode_event_queue_depth",
        "Events of OpenCode that are queued for a turn.";
    push_delivered: Counter = "longshore_push_delivered_total",
        "Push notifications that their receivers accepted.";
    push_retried: Counter = "longshore_push_retried_total",
        "Attempts to deliver a push notification that failed and are repeated.";
    push_dead: Counter = "longshore_push_dead_total",
        "Push notifications that were given up. `longshore push dead` lists them.";
    push_lag: Histogram<PushLag> = "longshore_push_lag_seconds",
        "How long after a change of a task's status its receiver had accepted the push notification.";
    acp_ignored: PerLabel<WhyIgnored, Counter> = "longshore_acp_ignored_total",
        "Pieces of the output of an ACP agent that were ignored, or understood in part, by the reason. The log names each kind once.";
    peer_calls: PerLabel<PeerCall, WhenUsed<Counter>> = "longshore_peer_calls_total",
        "Calls of the agent to other agents, by how they ended, and those that were refused.";
    spans_sent: Counter = "longshore_spans_sent_total",
        "Spans that the trace collector accepted.";
    spans_dropped: Counter = "longshore_spans_dropped_total",
        "Spans of traces that were dropped because the collector was away, refused them, or was too slow.";
    /// [`Metrics::note_process`] sets this and the next two.
    process_resident_memory: Reading<Whole> = "process_resident_memory_bytes",
        "Resident memory of the gateway, in bytes.";
    process_open_fds: Reading<Whole> = "process_open_fds",
        "Open files of the gateway, sockets among them.";
    process_cpu: Total<Seconds> = "process_cpu_seconds_total",
        "CPU time of the gateway, in seconds.";
    build_info: Info = "longshore_build_info",
        "Always 1, with the version of the gateway.";
}

impl Metrics {
    /// Creates metrics without any counts.
    pub fn new(version: &str) -> Self {
        let metrics = Self::default();
        metrics.build_info.state(version);
        metrics
    }

    /// Appends the page to `text`. Values that are only read at a scrape must be set before: those of the process, and the age
    /// of the oldest ask.
    pub fn render(&self, text: &mut String) {
        self.write(&mut Page::new(text));
    }

    /// Records what the process uses.
    pub fn note_process(&self, process: &Process) {
        match process.resident_bytes {
            Some(bytes) => self.process_resident_memory.set(bytes),
            None => self.process_resident_memory.forget(),
        }
        match process.open_files {
            Some(files) => self.process_open_fds.set(files),
            None => self.process_open_fds.forget(),
        }
        match process.cpu {
            Some(time) => self.process_cpu.set(time),
            None => self.process_cpu.forget(),
        }
    }

    /// Adds one to a gauge until the guard is dropped. The guard borrows nothing, so it can live in a task or a body.
    pub fn hold(self: &Arc<Self>, gauge: fn(&Self) -> &Gauge) -> GaugeGuard {
        gauge(self).add(1);
        GaugeGuard { metrics: Arc::clone(self), gauge }
    }

    /// Records a job that was queued for a thread of the store.
    pub fn job_queued(&self, thread: StoreThread) {
        let depth = self.store_queue_depth.of(thread).add(1);
        self.store_queue_peak.of(thread).reach(depth);
        // `depth` may be 0: the thread may have taken the job and counted that before this line.
        let ahead = u64::try_from(depth - 1).unwrap_or(0);
        self.store_queue_ahead.of(thread).observe(ahead);
    }

    /// Records jobs that a thread of the store took out of its queue.
    pub fn jobs_taken(&self, thread: StoreThread, jobs: usize) {
        let jobs = i64::try_from(jobs).unwrap_or(i64::MAX);
        self.store_queue_depth.of(thread).add(-jobs);
    }
}

/// Keeps a gauge increased by one until this is dropped.
#[must_use = "the gauge is decreased when this is dropped"]
#[derive(Debug)]
pub struct GaugeGuard {
    metrics: Arc<Metrics>,
    gauge: fn(&Metrics) -> &Gauge,
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        (self.gauge)(&self.metrics).add(-1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The samples of one metric.
    fn samples(metrics: &Metrics, name: &str) -> Vec<String> {
        let mut text = String::new();
        metrics.render(&mut text);
        let of = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        text.lines().filter(of).map(str::to_owned).collect()
    }

    #[test]
    fn a_gauge_is_increased_while_its_guard_lives() {
        let metrics = Arc::new(Metrics::new("1"));
        let stream = metrics.hold(|metrics| &metrics.stream_active);
        let turn = metrics.hold(|metrics| metrics.turns.of(TurnState::Running));
        let other = metrics.hold(|metrics| &metrics.stream_active);
        assert_eq!(metrics.stream_active.get(), 2);
        assert_eq!(metrics.turns.of(TurnState::Running).get(), 1);
        assert_eq!(metrics.turns.of(TurnState::Waiting).get(), 0);
        std::thread::spawn(move || drop(other)).join().unwrap();
        assert_eq!(metrics.stream_active.get(), 1);
        drop((stream, turn));
        assert_eq!(metrics.stream_active.get(), 0);
        assert_eq!(metrics.turns.of(TurnState::Running).get(), 0);
    }

    #[test]
    fn a_queue_reports_its_length_its_peak_and_the_length_that_each_job_found() {
        let metrics = Metrics::new("1");
        for _ in 0..3 {
            metrics.job_queued(StoreThread::Writer);
        }
        metrics.jobs_taken(StoreThread::Writer, 2);
        metrics.job_queued(StoreThread::Quick);
        let writer = |name| samples(&metrics, name).into_iter().next().unwrap();
        let queue = "longshore_store_queue";
        assert_eq!(writer("longshore_store_queue_depth"), format!("{queue}_depth{{thread=\"writer\"}} 1"));
        assert_eq!(
            writer("longshore_store_queue_depth_max"),
            format!("{queue}_depth_max{{thread=\"writer\"}} 3")
        );
        let ahead = samples(&metrics, "longshore_store_queue_ahead_bucket");
        assert_eq!(ahead[0], format!("{queue}_ahead_bucket{{thread=\"writer\",le=\"0\"}} 1"));
        assert_eq!(ahead[1], format!("{queue}_ahead_bucket{{thread=\"writer\",le=\"1\"}} 2"));
        assert_eq!(ahead[2], format!("{queue}_ahead_bucket{{thread=\"writer\",le=\"4\"}} 3"));
    }

    #[test]
    fn a_job_that_is_taken_before_it_is_counted_causes_no_underflow() {
        let metrics = Metrics::new("1");
        metrics.jobs_taken(StoreThread::Lists, 1);
        metrics.job_queued(StoreThread::Lists);
        assert_eq!(metrics.store_queue_depth.of(StoreThread::Lists).get(), 0);
        assert_eq!(metrics.store_queue_peak.of(StoreThread::Lists).get(), 0);
        assert_eq!(metrics.store_queue_ahead.of(StoreThread::Lists).count(), 1);
    }

    #[test]
    fn process_values_are_shown_only_where_they_are_known() {
        let metrics = Metrics::new("1");
        let names = ["process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total"];
        let shown =
            |metrics: &Metrics| names.iter().flat_map(|name| samples(metrics, name)).collect::<Vec<_>>();
        assert!(shown(&metrics).is_empty());
        metrics.note_process(&Process {
            resident_bytes: Some(4_096),
            open_files: Some(12),
            cpu: Some(Duration::from_millis(1_230)),
        });
        let known =
            ["process_resident_memory_bytes 4096", "process_open_fds 12", "process_cpu_seconds_total 1.23"];
        assert_eq!(shown(&metrics), known);
        metrics.note_process(&Process::default());
        assert!(shown(&metrics).is_empty());
    }

    #[test]
    fn the_page_is_appended_to_the_text() {
        let metrics = Metrics::new("1");
        let mut text = String::from("# before\n");
        metrics.render(&mut text);
        assert!(text.starts_with("# before\n# HELP a2a_stream_requests_total "), "{text}");
        assert!(text.ends_with("\nlongshore_build_info{version=\"1\"} 1\n"), "{text}");
    }
}
