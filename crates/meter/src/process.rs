//! Memory, files and processor time of this process, read from the kernel on request.

use std::fs;
use std::time::Duration;

/// The resources of a process. A value that the system does not report, as without `/proc`, is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Process {
    /// Resident memory, in bytes.
    pub resident_bytes: Option<u64>,
    /// Open files, sockets included.
    pub open_files: Option<u64>,
    /// Processor time of all threads, in user and system mode together.
    pub cpu: Option<Duration>,
}

/// The unit of the times in `stat`. The kernel reports hundredths of a second to programs on every platform
/// that Rust's standard library supports, whatever its internal clock is.
const TICK: Duration = Duration::from_millis(10);

impl Process {
    /// Reads the current values: three small reads if the kernel reports the number of open files, else one more for each
    /// open file.
    pub fn read() -> Self {
        let text = |name: &str| fs::read_to_string(name).unwrap_or_default();
        Self { open_files: open_files(), ..Self::parse(&text("/proc/self/stat"), &text("/proc/self/status")) }
    }

    /// Parses the texts of `/proc/<pid>/stat` and `/proc/<pid>/status`. They do not contain the number of open files.
    pub fn parse(stat: &str, status: &str) -> Self {
        Self { resident_bytes: resident(status), open_files: None, cpu: cpu(stat) }
    }
}

fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

fn cpu(stat: &str) -> Option<Duration> {
    // The name of the program is in parentheses, and may contain spaces and parentheses itself.
    let (_, after_name) = stat.rsplit_once(')')?;
    // The state, which comes next, is field 3 of the manual; the times are 14 and 15.
    let mut fields = after_name.split_ascii_whitespace().skip(14 - 3);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(TICK * user + TICK * system)
}

/// Linux reports the number as the size of the directory since 6.2. Before that the entries are counted, without the one of
/// the directory that is being read.
fn open_files() -> Option<u64> {
    const FILES: &str = "/proc/self/fd";
    match fs::metadata(FILES).ok()?.len() {
        0 => u64::try_from(fs::read_dir(FILES).ok()?.count().saturating_sub(1)).ok(),
        number => Some(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str =
        "Name:\tlongshore\nVmPeak:\t  900000 kB\nVmRSS:\t   21504 kB\nRssAnon:\t    9000 kB\n";

    fn stat(name: &str) -> String {
        format!(
            "4242 ({name}) S 1 4242 4242 0 -1 4194560 5120 0 3 0 150 25 7 9 20 0 9 0 123456 880000000 5376 18446744\n"
        )
    }

    #[test]
    fn the_texts_of_the_kernel_are_parsed() {
        let process = Process::parse(&stat("longshore"), STATUS);
        let expected = Process {
            resident_bytes: Some(22_020_096),
            open_files: None,
            cpu: Some(Duration::from_millis(1_750)),
        };
        assert_eq!(process, expected);
    }

    #[test]
    fn the_name_of_a_program_may_look_like_fields() {
        for name in ["a b", "x) S 1 2 3 4 5 6 7 8 9 10 99 99", "(("] {
            assert_eq!(cpu(&stat(name)), Some(Duration::from_millis(1_750)), "{name}");
        }
    }

    #[test]
    fn unreadable_values_are_unknown() {
        assert_eq!(Process::parse("", ""), Process::default());
        assert_eq!(cpu("1 (a) S 1 1 1 0 -1 0 0 0 0 0 12"), None);
        assert_eq!(cpu("1 (a) S 1 1 1 0 -1 0 0 0 0 0 12 -3 0"), None);
        assert_eq!(resident("VmRSS:\t12 MB\n"), None);
        assert_eq!(resident("VmRSS:\tmany kB\n"), None);
        assert_eq!(resident("VmRSS:\t18446744073709551615 kB\n"), None);
        assert_eq!(resident("Name:\tVmRSS: 1 kB\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory_files_and_time() {
        let files: Vec<_> = (0..50).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        let process = Process::read();
        assert!(process.resident_bytes.unwrap() > 100_000, "{process:?}");
        let open = process.open_files.unwrap();
        assert!((50..10_000).contains(&open), "{process:?}");
        assert!(process.cpu.is_some());
        drop(files);
    }
}
