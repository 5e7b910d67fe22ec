//! The results of a run, as stored under `target/bench` and read by the report.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::drive::Totals;
use crate::histogram::Delays;
use crate::phases::Flooded;
use crate::proc::Memory;

/// One run, on one machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    pub date: String,
    pub commit: String,
    pub machine: Machine,
    /// A short run, which is no measurement.
    pub quick: bool,
    /// Every phase was to be measured: a missing result means that its phase failed.
    #[serde(default)]
    pub full: bool,
    pub longshore: Measured,
    pub peer: Option<Measured>,
    /// Instructions per item, if they were counted.
    #[serde(default)]
    pub instructions: BTreeMap<String, f64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    pub cores: usize,
    pub memory_kb: u64,
    /// The load average of the last minute at the start of the run.
    pub load: String,
}

/// The results of one server.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    pub start: Option<Start>,
    pub unary: Vec<Unary>,
    /// Many streams at 10 deltas/s each.
    pub streams: Vec<Streams>,
    /// 32 streams at 100 deltas/s each.
    pub fast: Option<Streams>,
    /// The same as one point of the streams, with version 0.3.
    pub v03: Option<Streams>,
    pub length: Vec<Length>,
    pub acp: Option<Acp>,
    pub bindings: Option<Bindings>,
    pub stalled: Option<Stalled>,
    pub overload: Option<Overload>,
    pub flood: Vec<Flood>,
    pub push: Option<Push>,
    pub scrape: Option<Scrape>,
    pub soak: Vec<SoakSample>,
    /// Phases that could not be measured, and why.
    pub failed: BTreeMap<String, String>,
    /// When and how long each phase was measured.
    pub ran: BTreeMap<String, Ran>,
}

/// When a phase was run, whatever its result.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Ran {
    pub seconds: f64,
    pub date: String,
    pub commit: String,
    /// The load average of the last minute at the start of the phase.
    pub load: String,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Start {
    /// From the start of the process to the first answer with the card, for each run.
    pub card_ms: Vec<f64>,
    pub rest: Memory,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Unary {
    pub clients: u64,
    pub turns: u64,
    pub per_second: f64,
    pub cpu_ms_per_turn: f64,
    pub delays: Delays,
    /// Turns that were refused, or ended with a wrong text.
    pub wrong: u64,
    pub costs: Costs,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Streams {
    pub streams: u64,
    pub rate: u64,
    pub size: usize,
    pub window_s: f64,
    /// Deltas that should have arrived in the window, and those that did.
    pub expected: u64,
    pub delivered: u64,
    pub frames: u64,
    pub cpu_us_per_delta: f64,
    pub delays: Delays,
    pub completed: u64,
    /// Streams whose text is that of the stand-in; and for some tasks, whether the stored text is.
    pub equal: u64,
    pub kept: u64,
    pub kept_equal: u64,
    pub other_ends: BTreeMap<String, u64>,
    pub rest: Memory,
    pub live: Memory,
    pub open_files: u64,
    pub costs: Costs,
    pub source: Totals,
}

/// Processor time in a window, in milliseconds: of the server, and of the bench.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Costs {
    pub window_s: f64,
    pub server_ms: f64,
    pub driver_ms: f64,
    pub stand_in_ms: f64,
}

impl Costs {
    pub fn add(&mut self, other: &Self) {
        self.window_s += other.window_s;
        self.server_ms += other.server_ms;
        self.driver_ms += other.driver_ms;
        self.stand_in_ms += other.stand_in_ms;
    }
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Length {
    pub deltas: u64,
    pub streams: u64,
    pub waves: u64,
    pub rate: u64,
    /// Including the start and the end of the turns.
    pub cpu_us_per_delta: f64,
    /// In the first and in the last tenth of the deltas, if there is only one wave.
    pub first_tenth_us: Option<f64>,
    pub last_tenth_us: Option<f64>,
    pub delays: Delays,
    pub completed: u64,
    pub equal: u64,
    pub costs: Costs,
}

/// Longshore before a stand-in for an ACP agent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Acp {
    /// The same streams in turns: over OpenCode's HTTP, and over ACP.
    pub http: Vec<Streams>,
    pub acp: Vec<Streams>,
    /// Many sessions on one process.
    pub sessions: Option<Streams>,
}

/// The same streams in turns over each binding.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Bindings {
    pub json_rpc: Vec<Streams>,
    pub rest: Vec<Streams>,
    pub websocket: Vec<Streams>,
    pub grpc: Vec<Streams>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Stalled {
    pub readers: u64,
    /// Readers with bytes waiting in the kernel, when the buffers were full and still at the end; and the bytes in total when
    /// the buffers were full.
    pub stuck: u64,
    pub kernel_bytes: u64,
    pub healthy: u64,
    /// The healthy streams of all runs that received all of their deltas.
    #[serde(default)]
    pub whole: u64,
    /// Runs without stalled readers, and one with them.
    pub before: Vec<Delays>,
    pub during: Delays,
    /// Before the readers connected, with full buffers, and a while later.
    pub empty: Memory,
    pub filled: Memory,
    pub later: Memory,
    pub seconds: f64,
    /// Each second, in kilobytes.
    pub anonymous_kb: Vec<u64>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Overload {
    pub capacity_per_second: f64,
    pub offered_per_second: f64,
    pub seconds: f64,
    pub offered: u64,
    pub accepted: u64,
    /// By status, code and reason.
    pub refused: BTreeMap<String, u64>,
    /// Refusals without `Retry-After`.
    pub without_retry_after: u64,
    /// Answers that were neither a task nor a typed refusal.
    pub untyped: BTreeMap<String, u64>,
    pub completed: u64,
    /// Turns whose text is that of the stand-in.
    pub equal: u64,
    /// Tasks that did not complete, by their states.
    pub lost: BTreeMap<String, u64>,
    /// From the last offer until all accepted turns were checked, and until the speed was measured again.
    pub settled_s: f64,
    pub later_s: f64,
    pub before: Delays,
    pub after: Delays,
    pub before_per_second: f64,
    pub after_per_second: f64,
    pub memory_before: Memory,
    pub memory_after: Memory,
}

/// One round: the quiet principal alone and during a flood, and both again on another server with a rate limit.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Flood {
    pub calm: Quiet,
    pub flooded: Quiet,
    pub flood: Flooded,
    /// Older results have none.
    #[serde(default)]
    pub rated_calm: Quiet,
    pub rated: Quiet,
    pub rated_flood: Flooded,
}

/// The results of the quiet principal.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Quiet {
    pub turns: Delays,
    pub wrong: u64,
    pub deltas: Delays,
    /// Deltas that should have arrived in the window.
    #[serde(default)]
    pub expected: u64,
    #[serde(default)]
    pub streams: u64,
    /// Streams that received all of their deltas.
    #[serde(default)]
    pub whole: u64,
}

/// Push notifications in turns without and with dead receivers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Push {
    pub without: Vec<PushRun>,
    pub with: Vec<PushRun>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PushRun {
    pub tasks: u64,
    pub webhooks: u64,
    /// Webhooks on hosts that refuse, or that never answer.
    pub dead: u64,
    /// Ends of tasks that the other webhooks should have got, and those that they did get.
    pub expected: u64,
    pub delivered: u64,
    /// Notifications that came more than once.
    pub repeated: u64,
    /// Attempts that failed.
    pub retried: u64,
    /// From the end of the task, by the gateway's clock, to the receiver.
    pub lag: Delays,
    /// While the tasks ended.
    pub costs: Costs,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Scrape {
    pub per_second: f64,
    pub bytes: u64,
    pub delays: Delays,
    pub without: Costs,
    pub with: Costs,
    /// Processor time of one scrape, under load.
    pub cpu_ms: f64,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SoakSample {
    pub at_s: f64,
    /// How many streams of ten seconds run at the same time.
    #[serde(default)]
    pub streams: u64,
    pub memory: Memory,
    pub open_files: u64,
    pub database_bytes: u64,
    pub turns: u64,
    pub wrong: u64,
    pub delays: Delays,
}
