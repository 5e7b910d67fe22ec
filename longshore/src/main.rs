//! The `longshore` program. Everything is in the library beside it, so that tests can reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    longshore::main()
}
