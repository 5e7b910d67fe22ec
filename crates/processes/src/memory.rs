//! How much memory processes use.

use crate::Process;

/// The memory of these processes that only they use: without the code that they share with others. Processes that have ended use
/// none.
pub fn memory_bytes<'a>(processes: impl IntoIterator<Item = &'a Process>) -> u64 {
    let statuses = processes.into_iter().filter_map(|process| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid)).ok()?;
        process.is_alive().then_some(status)
    });
    statuses.map(|status| bytes_in(&status)).sum()
}

/// The anonymous and the shared memory in a `/proc/PID/status`.
fn bytes_in(status: &str) -> u64 {
    let kilobytes = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let all = ["RssAnon:", "RssShmem:"].into_iter().filter_map(kilobytes);
    all.sum::<u64>() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_this_process_grows_with_what_it_uses() {
        let me = [Process::find(std::process::id()).unwrap()];
        let before = memory_bytes(&me);
        let used = std::hint::black_box(vec![1_u8; 32 * 1024 * 1024]);
        let more = memory_bytes(&me) - before;
        assert!(more > 24 * 1024 * 1024, "{more} of {} bytes", used.len());
        let gone = [Process { start_time: 0, ..me[0] }];
        assert_eq!(memory_bytes(&gone), 0, "another process with the same id");
    }
}
