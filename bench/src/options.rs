//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::micro::Case;
use crate::phases::Phase;

/// Measures Longshore beside its peer, on a stand-in for OpenCode.
#[derive(Debug, Parser)]
#[command(name = "longshore-bench")]
pub struct Options {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run phases on Longshore and its peer, keep what was measured, and write the report.
    Run(Run),
    /// Write the report of a run again.
    Report(Report),
    /// Serve the stand-in for OpenCode until standard input ends.
    StandIn {
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// Drive a server that runs already, with streams at a rate, and say what came.
    Drive(Drive),
    /// Send as fast as the answers come, for a while. A part of a run.
    #[command(hide = true)]
    Flood(Flood),
    /// Do the work of a micro-benchmark so many times, for a profiler; with --callgrind, count its instructions.
    Count {
        #[arg(value_enum)]
        case: Option<Case>,
        #[arg(default_value_t = 1000)]
        times: u64,
        /// Run valgrind for each case (or the one that is named), and say how many instructions one time takes.
        #[arg(long)]
        callgrind: bool,
    },
}

#[derive(Debug, Args)]
pub struct Run {
    /// The program `longshore`, as it is to be measured.
    #[arg(long)]
    pub longshore: PathBuf,
    /// The program `opencode-a2a`. Without it the peer is not measured.
    #[arg(long)]
    pub peer: Option<PathBuf>,
    /// Everything short: to see that it works, not to measure.
    #[arg(long)]
    pub quick: bool,
    /// Go on with the full run whose results are kept: what is missing or failed is measured, or with --only those again.
    #[arg(long, conflicts_with = "quick")]
    pub resume: bool,
    /// Only these phases.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<Phase>,
    /// Where what was measured is kept, and where servers have their data meanwhile.
    #[arg(long, default_value = "target/bench")]
    pub out: PathBuf,
    /// The directory of the report. Only a full run writes it.
    #[arg(long)]
    pub docs: Option<PathBuf>,
    /// Why budgets are missed, by the keys of the rows; it becomes part of the report.
    #[arg(long)]
    pub reasons: Option<PathBuf>,
    #[arg(long, default_value = "")]
    pub date: String,
    #[arg(long, default_value = "")]
    pub commit: String,
}

#[derive(Debug, Args)]
pub struct Report {
    #[arg(long, default_value = "target/bench/results.json")]
    pub from: PathBuf,
    #[arg(long, default_value = "docs")]
    pub docs: PathBuf,
    #[arg(long)]
    pub reasons: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Flood {
    #[arg(long)]
    pub server: SocketAddr,
    #[arg(long)]
    pub token: String,
    #[arg(long)]
    pub clients: u64,
    #[arg(long)]
    pub seconds: u64,
    /// Where it says what came of it.
    #[arg(long)]
    pub out: PathBuf,
}

#[derive(Debug, Args)]
pub struct Drive {
    /// The address of the server, which must use the stand-in.
    #[arg(long)]
    pub server: SocketAddr,
    #[arg(long)]
    pub token: String,
    /// Speak A2A 0.3.
    #[arg(long)]
    pub v03: bool,
    #[arg(long, default_value_t = 32)]
    pub streams: u64,
    #[arg(long, default_value_t = 10)]
    pub rate: u64,
    #[arg(long, default_value_t = 24)]
    pub size: usize,
    /// Deltas of each stream.
    #[arg(long, default_value_t = 100)]
    pub deltas: u64,
}
