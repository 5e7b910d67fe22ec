//! What the operating system lets this process have.

use rustix::process::{Resource, getrlimit, setrlimit};

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
