//! Reads and changes the limits that the operating system sets for this process.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::config::table;
use crate::output;

/// The number of open files that are reserved for other purposes than connections of callers: the store, its log, the runtime, and
/// the connections to OpenCode.
const OWN_FILES: usize = 256;

/// The least number of connections, even if the system allows fewer files, because the gateway could not serve with less. If the
/// process then reaches its limit of open files, opening another file fails.
const FEWEST: usize = 64;

/// Raises the limit of open files to the maximum. Many systems start with 1,024, and every stream needs an open file.
pub(crate) fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "could not raise the limit of open files");
    }
}

/// Prevents core dumps, and prevents other processes of this user from reading the memory and environment of this process, because
/// these contain tokens and passwords. Programs that this process starts are not affected.
pub(crate) fn refuse_dumps() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};

        if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            output::warn(format_args!("the memory of this process cannot be protected from others: {error}"));
        }
    }
}

/// How many files the process may open. `None`: no limit.
pub(crate) fn open_files() -> Option<usize> {
    getrlimit(Resource::Nofile).current.map(|files| usize::try_from(files).unwrap_or(usize::MAX))
}

/// The number of connections that the system allows, and a warning if it is smaller than the configured number.
pub(crate) fn connections(configured: Option<usize>, open_files: Option<usize>) -> (usize, Option<String>) {
    let most = open_files.map_or(usize::MAX, |files| files.saturating_sub(OWN_FILES).max(FEWEST));
    match (configured, open_files) {
        (Some(configured), Some(files)) if configured > most => {
            let warning = format!(
                "at most {most} connections are accepted at once, not {configured} ({}): this process may open {files} files only \
                 (ulimit -n), and needs {OWN_FILES} for itself",
                table::CONNECTIONS.key
            );
            (most, Some(warning))
        }
        (configured, _) => (configured.unwrap_or(most), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_protected_process_is_not_dumped_and_can_still_read_about_itself() {
        use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};

        refuse_dumps();
        assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
        let process = longshore_meter::process::Process::read();
        set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
        assert!(process.resident_bytes.is_some() && process.open_files.is_some() && process.cpu.is_some());
    }

    #[test]
    fn there_are_never_more_connections_than_open_files() {
        let cases = [
            (Some(8192), Some(20_000), 8192, false),
            (Some(8192), Some(8448), 8192, false),
            (Some(8192), Some(4096), 3840, true),
            (Some(8192), Some(100), 64, true),
            (Some(8192), None, 8192, false),
            // Without a configured limit, the system's limit applies and causes no warning.
            (None, Some(4096), 3840, false),
            (None, None, usize::MAX, false),
        ];
        for (configured, files, expected, is_warned) in cases {
            let (taken, warning) = connections(configured, files);
            assert_eq!((taken, warning.is_some()), (expected, is_warned), "{configured:?} {files:?}");
        }
        let (_, warning) = connections(Some(8192), Some(4096));
        assert_eq!(
            warning.unwrap(),
            "at most 3840 connections are accepted at once, not 8192 (limits.connections): this process may open 4096 files \
             only (ulimit -n), and needs 256 for itself"
        );
    }
}
