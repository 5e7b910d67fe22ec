//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::drive::Binding;
use crate::micro::Case;
use crate::phases::Phase;

/// Measures Longshore beside the Python peer, on a stand-in for OpenCode.
#[derive(Debug, Parser)]
#[command(name = "longshore-bench")]
pub struct Options {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run phases on Longshore and the peer, store the results, and write the report.
    Run(Run),
    /// Write the report of a run again.
    Report(Report),
    /// Serve the stand-in for OpenCode until standard input ends.
    StandIn {
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// Be an ACP agent on the standard input and output, which must be pipes. Only the bench's own requests are served on the
        /// address.
        #[arg(long)]
        acp: bool,
    },
    /// Run streams at a rate on a server that is already running, and print the results.
    Drive(Drive),
    /// Send as fast as answers come, for a while. Used by a run.
    #[command(hide = true)]
    Flood(Flood),
    /// Repeat the work of a micro-benchmark, for a profiler; with --callgrind, count its instructions.
    Count {
        #[arg(value_enum)]
        case: Option<Case>,
        #[arg(default_value_t = 1000)]
        times: u64,
        /// Run valgrind for each case (or the named one), and print the instructions per item.
        #[arg(long)]
        callgrind: bool,
    },
}

#[derive(Debug, Args)]
pub struct Run {
    /// The program `longshore` to measure.
    #[arg(long)]
    pub longshore: PathBuf,
    /// The program `opencode-a2a`. Without it the peer is not measured.
    #[arg(long)]
    pub peer: Option<PathBuf>,
    /// Make everything short: to see that it works, not to measure.
    #[arg(long)]
    pub quick: bool,
    /// Continue the full run whose results are stored: measure missing and failed phases, or with --only those phases again.
    #[arg(long, conflicts_with = "quick")]
    pub resume: bool,
    /// Only these phases.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<Phase>,
    /// The directory of the results, and of the servers' data during the run.
    #[arg(long, default_value = "target/bench")]
    pub out: PathBuf,
    /// The directory of the report. Only a full run writes it.
    #[arg(long)]
    pub docs: Option<PathBuf>,
    /// The reasons for missed budgets, by the keys of the rows; they become part of the report.
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
    /// The file for the counts.
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
    /// How the clients stream. Version 0.3 can only be spoken over JSON-RPC.
    #[arg(long, value_enum, default_value = "json-rpc", conflicts_with = "v03")]
    pub binding: Binding,
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
