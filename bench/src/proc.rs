//! The costs of a process, from `/proc`: processor time of all its threads, memory, open files. Child processes do not count.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// The state of a connection that neither side has closed, in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";

/// The processor time of each thread, in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CpuSample {
    threads: BTreeMap<u32, u64>,
    /// The time of the process in ticks of 10 ms, which includes threads that have ended.
    ticks: u64,
}

/// The memory of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Allocated and touched memory, in kilobytes.
    pub anonymous_kb: u64,
    /// The same with the pages of files, such as those of the program itself.
    pub resident_kb: u64,
    /// The maximum of the resident memory.
    pub peak_kb: u64,
}

impl CpuSample {
    pub fn of(pid: u32) -> Result<Self> {
        let mut threads = BTreeMap::new();
        for thread in numbers(of(pid, "task")) {
            // A thread may end after it was listed.
            if let Ok(text) = std::fs::read_to_string(of(pid, &format!("task/{thread}/schedstat"))) {
                threads.insert(thread, first_number(&text).unwrap_or_default());
            }
        }
        let stat = std::fs::read_to_string(of(pid, "stat")).context("the process has ended")?;
        Ok(Self { threads, ticks: ticks(&stat).unwrap_or_default() })
    }

    /// Nanoseconds of processor time since an earlier sample. The time of a thread that has ended is only in the ticks, which
    /// are used if they exceed the exact times by more than rounding can explain.
    pub fn since(&self, earlier: &Self) -> u64 {
        let used = |(thread, now): (&u32, &u64)| {
            now.saturating_sub(earlier.threads.get(thread).copied().unwrap_or_default())
        };
        let exact: u64 = self.threads.iter().map(used).sum();
        let counted = self.ticks.saturating_sub(earlier.ticks) * 10_000_000;
        if counted > exact + exact / 10 + 100_000_000 { counted } else { exact }
    }
}

impl Memory {
    pub fn of(pid: u32) -> Result<Self> {
        let status = std::fs::read_to_string(of(pid, "status")).context("the process has ended")?;
        Ok(Self {
            anonymous_kb: kilobytes(&status, "RssAnon:"),
            resident_kb: kilobytes(&status, "VmRSS:"),
            peak_kb: kilobytes(&status, "VmHWM:"),
        })
    }
}

/// How many files and sockets the process has open.
pub fn open_files(pid: u32) -> u64 {
    u64::try_from(numbers(of(pid, "fd")).count()).unwrap_or_default()
}

/// Bytes that a server on this port has written and its clients have not received: the number of open connections with such
/// bytes, and the bytes in total. Connections that the server has closed do not count.
pub fn unsent(port: u16) -> (u64, u64) {
    waiting(&std::fs::read_to_string("/proc/net/tcp").unwrap_or_default(), port)
}

fn waiting(list: &str, port: u16) -> (u64, u64) {
    let (mut sockets, mut bytes) = (0, 0);
    for line in list.lines().skip(1) {
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, local, _, state, queues, ..] = words.as_slice() else { continue };
        let hex = |text: Option<&str>| u64::from_str_radix(text.unwrap_or_default(), 16).unwrap_or_default();
        if *state != ESTABLISHED || hex(local.rsplit(':').next()) != u64::from(port) {
            continue;
        }
        let held = hex(queues.split(':').next());
        sockets += u64::from(held > 0);
        bytes += held;
    }
    (sockets, bytes)
}

fn of(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

fn numbers(directory: PathBuf) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn first_number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

fn ticks(stat: &str) -> Option<u64> {
    // The name is in parentheses and may contain any character. The times are the 12th and 13th word after it.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut time = || words.next()?.parse::<u64>().ok();
    Some(time()? + time()?)
}

fn kilobytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(first_number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_work_uses_processor_time() {
        let me = std::process::id();
        let before = CpuSample::of(me).unwrap();
        let start = crate::clock::monotonic_ns();
        let mut sum = 0_u64;
        while crate::clock::monotonic_ns() < start + 30_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        let used = CpuSample::of(me).unwrap().since(&before);
        // Other processes may use the processor meanwhile, so that this loop need not get all of the time.
        assert!(used > 1_000_000, "{used} ns for a loop of 30 ms");
        let now = CpuSample::of(me).unwrap();
        assert_eq!(now.since(&now), 0);
    }

    #[test]
    fn unsent_bytes_are_counted_by_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr\n\
                     0: 0100007F:1F90 0100007F:9C40 01 00000400:00000000 00:0\n\
                     1: 0100007F:1F90 0100007F:9C41 01 00000000:00000010 00:0\n\
                     2: 0100007F:1F90 0100007F:9C42 01 00000001:00000000 00:0\n\
                     3: 0100007F:9C40 0100007F:1F90 01 00000400:00000000 00:0\n\
                     4: 0100007F:1F90 0100007F:9C43 04 00000400:00000000 00:0\n";
        assert_eq!(waiting(table, 8080), (2, 1025));
        assert_eq!(waiting(table, 8081), (0, 0));
    }

    #[test]
    fn a_thread_that_ended_counts_by_its_ticks() {
        let sample =
            |threads: &[(u32, u64)], ticks| CpuSample { threads: threads.iter().copied().collect(), ticks };
        let before = sample(&[(1, 10), (2, 1_000_000_000)], 100);
        assert_eq!(sample(&[(1, 30), (3, 5)], 100).since(&before), 25);
        assert_eq!(sample(&[(1, 30)], 200).since(&before), 1_000_000_000);
    }

    #[test]
    fn the_files_of_proc_are_read() {
        let stat = "42 (a) b) R 1 1 1 0 -1 4194304 100 0 0 0 250 50 7 8 20 0 3 0 100";
        assert_eq!(ticks(stat), Some(300));
        assert_eq!(kilobytes("VmHWM:\t  300 kB\nRssAnon:\t   12 kB\n", "RssAnon:"), 12);
        let memory = Memory::of(std::process::id()).unwrap();
        assert!(memory.anonymous_kb > 0 && memory.resident_kb >= memory.anonymous_kb, "{memory:?}");
        assert!(open_files(std::process::id()) > 2);
        assert!(Memory::of(u32::MAX).is_err());
    }
}
