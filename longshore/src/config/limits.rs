//! Reads the limits for callers.

use std::time::Duration;

use super::read::Reader;
use super::table;

/// The limits. `None` always means that there is no limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Whether requests and wrong credentials are counted.
    pub counts: Counts,
    /// The most requests of a caller in a window.
    pub requests: Option<usize>,
    /// The most wrong credentials of an address in a window.
    pub failed_logins: Option<usize>,
    pub window: Duration,
    pub streams: Option<usize>,
    pub streams_per_principal: Option<usize>,
    pub stream_bytes: Option<usize>,
    pub stream_duration: Option<Duration>,
    pub stream_idle: Option<Duration>,
    pub turns: Option<usize>,
    pub turns_per_principal: Option<usize>,
    pub upstream_calls: Option<usize>,
    pub directories: Option<usize>,
    pub directories_per_principal: Option<usize>,
    pub directory_idle: Option<Duration>,
    pub unfinished: Option<usize>,
    pub unfinished_per_principal: Option<usize>,
    pub unfinished_per_context: Option<usize>,
    pub connections: Option<usize>,
    pub connections_per_address: Option<usize>,
    pub requests_per_connection: Option<usize>,
    pub body_bytes: Option<usize>,
    pub unfinished_bytes: Option<usize>,
    pub unfinished_bytes_per_principal: Option<usize>,
    pub stored_bytes: Option<usize>,
    pub stored_bytes_per_principal: Option<usize>,
    /// The most bytes of a task. This limit cannot be switched off.
    pub task_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counts {
    Always,
    Never,
    /// Count, unless only this machine can reach the gateway.
    WhenOthersCanCall,
}

impl Counts {
    pub fn applies(self, only_this_machine: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::WhenOthersCanCall => !only_this_machine,
        }
    }
}

/// Reads all limits. `None`: a problem was added to the reader.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Limits> {
    let counts = reader.counts(&table::RATE_LIMIT);
    let window = reader.seconds(&table::RATE_WINDOW);
    let mut limits = Limits {
        counts: Counts::WhenOthersCanCall,
        requests: reader.count(&table::RATE_REQUESTS),
        failed_logins: reader.count(&table::FAILED_LOGINS),
        window: Duration::ZERO,
        streams: reader.count(&table::STREAMS),
        streams_per_principal: reader.count(&table::STREAMS_PER_PRINCIPAL),
        stream_bytes: reader.count(&table::STREAM_BYTES),
        stream_duration: reader.seconds_or_off(&table::STREAM_DURATION),
        stream_idle: reader.seconds_or_off(&table::STREAM_IDLE),
        turns: reader.count(&table::MAX_TURNS),
        turns_per_principal: reader.count(&table::TURNS_PER_PRINCIPAL),
        upstream_calls: reader.count(&table::UPSTREAM_CALLS),
        directories: reader.count(&table::DIRECTORIES),
        directories_per_principal: reader.count(&table::DIRECTORIES_PER_PRINCIPAL),
        directory_idle: reader.seconds_or_off(&table::DIRECTORY_IDLE),
        unfinished: reader.count(&table::UNFINISHED),
        unfinished_per_principal: reader.count(&table::UNFINISHED_PER_PRINCIPAL),
        unfinished_per_context: reader.count(&table::UNFINISHED_PER_CONTEXT),
        connections: reader.count(&table::CONNECTIONS),
        connections_per_address: reader.count(&table::CONNECTIONS_PER_ADDRESS),
        requests_per_connection: reader.count(&table::REQUESTS_PER_CONNECTION),
        body_bytes: reader.count(&table::BODY_BYTES),
        unfinished_bytes: reader.count(&table::UNFINISHED_BYTES),
        unfinished_bytes_per_principal: reader.count(&table::UNFINISHED_BYTES_PER_PRINCIPAL),
        stored_bytes: reader.count(&table::STORED_BYTES),
        stored_bytes_per_principal: reader.count(&table::STORED_BYTES_PER_PRINCIPAL),
        task_bytes: 0,
    };
    limits.task_bytes = reader.task_size(&table::TASK_BYTES)?;
    limits.counts = counts?;
    limits.window = window?;
    Some(limits)
}
