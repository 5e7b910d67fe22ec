//! Sets up the log on standard error at the configured level. Audit lines are logged at every level.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use crate::config::plan::{Log, LogLevel};

/// The log target of the audit lines, which the edge writes about calls that change something.
const AUDIT: &str = "longshore::audit";

/// Starts the log of this process. A second call changes nothing.
pub(crate) fn start(log: &Log) {
    let level = match log.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let filter = filter(level);
    let layer = fmt::layer().with_writer(std::io::stderr);
    let layer = if log.json { layer.json().boxed() } else { layer.with_ansi(false).boxed() };
    let _ = tracing_subscriber::registry().with(layer.with_filter(filter)).try_init();
}

/// The filter of the log. It limits libraries to warnings and errors, because some of them print headers and bodies at lower
/// levels. The MCP library prints them even in warnings.
fn filter(level: LevelFilter) -> Targets {
    Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target("rmcp", level.min(LevelFilter::ERROR))
        .with_target("longshore", level)
        .with_target(AUDIT, LevelFilter::INFO)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn audit_lines_are_written_at_every_level() {
        for level in [LevelFilter::ERROR, LevelFilter::WARN, LevelFilter::INFO, LevelFilter::TRACE] {
            let filter = filter(level);
            assert!(filter.would_enable(AUDIT, &Level::INFO), "{level}");
            assert!(!filter.would_enable(AUDIT, &Level::DEBUG), "{level}");
            assert_eq!(filter.would_enable("longshore_edge::reply", &Level::INFO), level >= Level::INFO);
            assert!(!filter.would_enable("hyper", &Level::INFO), "{level}");
            assert!(!filter.would_enable("rmcp::service", &Level::WARN), "{level}");
        }
    }
}
