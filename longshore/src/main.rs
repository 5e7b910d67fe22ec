//! The `longshore` program. Everything is in the library beside it, so that tests can reach it.

use std::process::ExitCode;

/// The C library gives what a thread has freed back to the system at once, and asks for it again with the next group of
/// commits: under load the store's thread spent half of its time on that.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    longshore::main()
}
