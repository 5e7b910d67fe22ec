//! The `longshore` program. All of its code is in the library, so that tests can call it.

use std::process::ExitCode;

/// The allocator of the program. The one of the C library returns freed memory to the system at once, and requests it again with
/// the next group of commits. Under load, the store's thread spent half of its time on that.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    longshore::main()
}
