//! The hot path in pieces: work that can be repeated, for criterion, for a profiler and for counting instructions.

mod acp;
mod agent;
mod append;
mod apply;
mod encode;
mod events;
mod fan_out;
mod line;

use std::fmt;

use clap::ValueEnum;

/// A piece of the way of a delta through the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Case {
    /// A line of OpenCode's event stream to a report: a delta of text.
    LineDelta,
    /// The same for the output of a tool, 4 KB.
    LineTool,
    /// A line of an ACP agent to a report: a delta of text, through the connection that all sessions share.
    AcpDelta,
    /// An event folded into a new task.
    ApplyShort,
    /// The same for a task with 10 000 deltas.
    ApplyLong,
    /// An event of each of so many tasks appended at once, to SQLite.
    Append1,
    Append16,
    Append256,
    /// The same for one task, in memory.
    AppendMemory,
    /// An event as a frame of 1.0, and of 0.3.
    EncodeV1,
    EncodeV03,
    /// From a report to so many readers, in memory. All readers share each frame.
    FanOut1,
    FanOut10,
    FanOut100,
    FanOut1000,
}

impl Case {
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Prepares everything that is not to be measured.
    pub fn prepare(self) -> Work {
        match self {
            Self::LineDelta => line::deltas(),
            Self::LineTool => line::tool_outputs(),
            Self::AcpDelta => acp::deltas(),
            Self::ApplyShort => apply::work(0),
            Self::ApplyLong => apply::work(10_000),
            Self::Append1 => append::sqlite(1),
            Self::Append16 => append::sqlite(16),
            Self::Append256 => append::sqlite(256),
            Self::AppendMemory => append::memory(),
            Self::EncodeV1 => encode::v1(),
            Self::EncodeV03 => encode::v03(),
            Self::FanOut1 => fan_out::work(1),
            Self::FanOut10 => fan_out::work(10),
            Self::FanOut100 => fan_out::work(100),
            Self::FanOut1000 => fan_out::work(1000),
        }
    }
}

/// Work that can be repeated.
pub struct Work {
    /// How many items one repetition processes.
    pub items: u64,
    once: Box<dyn FnMut() -> u64>,
}

impl Work {
    fn new(items: u64, once: impl FnMut() -> u64 + 'static) -> Self {
        Self { items, once: Box::new(once) }
    }

    /// Does the work once, and returns how many items were processed: as many as [`Self::items`].
    pub fn once(&mut self) -> u64 {
        (self.once)()
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("items", &self.items).finish_non_exhaustive()
    }
}

/// Repeats the work of a case.
pub fn run(case: Case, times: u64) {
    let mut work = case.prepare();
    for _ in 0..times {
        std::hint::black_box(work.once());
    }
}

/// A minimal runtime with one thread.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("cannot start a runtime")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_processes_all_its_items() {
        for case in Case::value_variants() {
            let mut work = case.prepare();
            for _ in 0..2 {
                assert_eq!(work.once(), work.items, "{case:?}");
            }
        }
    }
}
