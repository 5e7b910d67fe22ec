//! The command `longshore-bench`: see [`longshore_bench::options`].

use std::io::Read as _;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;

use anyhow::{Context as _, Result, bail};
use clap::Parser as _;
use longshore_bench::options::{Command, Options};
use longshore_bench::{count, micro, output, phases, process, report, run, stand_in};
use longshore_engine::Tasks;
use tokio::net::TcpListener;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> Result<()> {
    process::allow_open_files();
    match Options::parse().command {
        Command::Run(options) => on_one_thread(interruptible(run::run(options))),
        Command::Drive(options) => on_one_thread(interruptible(run::drive(options))),
        Command::StandIn { listen, acp: false } => on_one_thread(stand_in(listen)),
        Command::StandIn { listen, acp: true } => on_one_thread(acp_stand_in(listen)),
        Command::Report(options) => {
            report::write(&run::read(&options.from)?, &options.docs, options.reasons.as_deref())
        }
        Command::Flood(options) => on_one_thread(interruptible(phases::flood(options))),
        Command::Count { case, callgrind: true, .. } => count::callgrind(case),
        Command::Count { case, times, callgrind: false } => {
            micro::run(case.with_context(|| format!("name the case to run {times} times"))?, times);
            Ok(())
        }
    }
}

/// The bench shares the machine with the measured server, so that it uses one thread.
fn on_one_thread(work: impl Future<Output = Result<()>>) -> Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

async fn stand_in(listen: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(listen).await?;
    output::say(format_args!("listening on {}", listener.local_addr()?));
    let tasks = Tasks::new();
    let stdin = tokio::task::spawn_blocking(|| std::io::stdin().lock().read_to_end(&mut Vec::new()));
    tokio::select! {
        () = stand_in::serve(listener, &tasks) => {}
        // The process that started this one has ended.
        _ = stdin => {}
    }
    Ok(())
}

async fn acp_stand_in(listen: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(listen).await?;
    let input = pipe::Receiver::from_owned_fd(std::io::stdin().as_fd().try_clone_to_owned()?)?;
    let output = pipe::Sender::from_owned_fd(std::io::stdout().as_fd().try_clone_to_owned()?)?;
    stand_in::serve_acp(listener, input, output, &Tasks::new()).await;
    Ok(())
}

/// Ends properly on SIGINT and SIGTERM: every started process is stopped when its owner is dropped.
async fn interruptible(work: impl Future<Output = Result<()>>) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = work => done,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
    }
}
