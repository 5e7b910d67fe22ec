//! The log: to standard error, as much as the configuration asks for.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use crate::config::plan::{Log, LogLevel};

/// Sets up the log of this process. A second call changes nothing.
pub(crate) fn start(log: &Log) {
    let level = match log.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // Libraries never say more than a warning: at lower levels some of them print headers and bodies.
    let filter = Targets::new().with_default(level.min(LevelFilter::WARN)).with_target("longshore", level);
    let layer = fmt::layer().with_writer(std::io::stderr);
    let layer = if log.json { layer.json().boxed() } else { layer.with_ansi(false).boxed() };
    let _ = tracing_subscriber::registry().with(layer.with_filter(filter)).try_init();
}
