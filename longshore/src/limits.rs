//! What the operating system lets this process have.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::config::table;

/// Files that are no connection of a caller's: the store, its log, the runtime, and the connections to OpenCode.
const OWN_FILES: usize = 256;

/// With fewer nobody could be served. A process that may open no more files than its own fails when it opens one more.
const FEWEST: usize = 64;

/// Lets the process open as many files as it may. Many systems start with 1,024, and every stream is one.
pub(crate) fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// How many files the process may open. `None`: any number.
pub(crate) fn open_files() -> Option<usize> {
    getrlimit(Resource::Nofile).current.map(|files| usize::try_from(files).unwrap_or(usize::MAX))
}

/// How many connections there may be of those that are wished for, and what to say if that is fewer.
pub(crate) fn connections(wished: Option<usize>, open_files: Option<usize>) -> (usize, Option<String>) {
    let most = open_files.map_or(usize::MAX, |files| files.saturating_sub(OWN_FILES).max(FEWEST));
    match (wished, open_files) {
        (Some(wished), Some(files)) if wished > most => {
            let warning = format!(
                "at most {most} connections are taken at once, not {wished} ({}): this process may open {files} files only \
                 (ulimit -n), and needs {OWN_FILES} for itself",
                table::CONNECTIONS.key
            );
            (most, Some(warning))
        }
        (wished, _) => (wished.unwrap_or(most), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_connections_than_files() {
        let cases = [
            (Some(8192), Some(20_000), 8192, false),
            (Some(8192), Some(8448), 8192, false),
            (Some(8192), Some(4096), 3840, true),
            (Some(8192), Some(100), 64, true),
            (Some(8192), None, 8192, false),
            // No limit of ours is that of the system, and nobody asked for more.
            (None, Some(4096), 3840, false),
            (None, None, usize::MAX, false),
        ];
        for (wished, files, expected, is_said) in cases {
            let (taken, warning) = connections(wished, files);
            assert_eq!((taken, warning.is_some()), (expected, is_said), "{wished:?} {files:?}");
        }
        let (_, warning) = connections(Some(8192), Some(4096));
        assert_eq!(
            warning.unwrap(),
            "at most 3840 connections are taken at once, not 8192 (limits.connections): this process may open 4096 files \
             only (ulimit -n), and needs 256 for itself"
        );
    }
}
