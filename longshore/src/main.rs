//! The `longshore` program. All of its code is in the library, so that tests can call it.

use std::process::ExitCode;

/// Replaces the allocator of the C library, which returns freed memory to the system at once and requests it again with the next
/// group of commits. Under load, the store's thread spent half of its time on that.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    longshore::main()
}
