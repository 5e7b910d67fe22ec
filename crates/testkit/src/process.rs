//! What processes hold, as `/proc` tells: memory, open files, threads, children.

use std::path::PathBuf;

/// What a process holds at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holdings {
    /// Memory of its own, in kilobytes: what it has allocated and touched. The pages of files, such as those of the
    /// program itself, come and go as the kernel likes, and are not in it.
    pub memory: u64,
    /// What each open file descriptor leads to, sorted.
    pub files: Vec<String>,
    /// The names of its threads, sorted.
    pub threads: Vec<String>,
    /// Those that it started, and that have not ended or that it has not waited for.
    pub children: Vec<u32>,
}

impl Holdings {
    /// The process must run.
    pub fn of(pid: u32) -> Self {
        let read = |name: String| std::fs::read_to_string(of(pid, &name)).ok();
        let memory = read("status".to_owned()).and_then(|status| anonymous(&status));
        let mut files: Vec<String> = numbers(of(pid, "fd"))
            .filter_map(|file| {
                Some(std::fs::read_link(of(pid, &format!("fd/{file}"))).ok()?.display().to_string())
            })
            .collect();
        files.sort();
        let mut threads: Vec<String> = numbers(of(pid, "task"))
            .filter_map(|thread| Some(read(format!("task/{thread}/comm"))?.trim_end().to_owned()))
            .collect();
        threads.sort();
        Self {
            memory: memory.unwrap_or_else(|| panic!("process {pid} does not run")),
            files,
            threads,
            children: numbers(PathBuf::from("/proc")).filter(|other| parent(*other) == Some(pid)).collect(),
        }
    }
}

/// The processes that were started with this text somewhere in their environment, and that have not ended.
pub fn with_environment(text: &str) -> Vec<u32> {
    let has = |pid: &u32| {
        let environment = std::fs::read(of(*pid, "environ")).unwrap_or_default();
        environment.windows(text.len()).any(|window| window == text.as_bytes())
    };
    numbers(PathBuf::from("/proc")).filter(has).collect()
}

fn of(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

/// The entries of a directory that are numbers. What has gone meanwhile has none.
fn numbers(directory: PathBuf) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(of(pid, "stat")).ok()?;
    // The name stands in parentheses and may itself hold any character; state and parent follow it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn anonymous(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_a_process_takes_is_seen_and_so_is_that_it_gave_it_back() {
        // Other tests of this process may run beside this one, so that only what is this test's can be counted.
        let me = std::process::id();
        let place = tempfile::NamedTempFile::new().unwrap();
        let path = place.path().display().to_string();
        assert!(Holdings::of(me).files.contains(&path));
        let mut child = Command::new("cat").env("FLATNESS", &path).stdin(Stdio::piped()).spawn().unwrap();
        let before = Holdings::of(me);
        assert!(before.children.contains(&child.id()));
        assert!(before.threads.len() > 1, "{before:?}");
        assert_eq!(with_environment(&path), [child.id()]);
        let much = vec![1_u8; 64 * 1024 * 1024];
        assert!(Holdings::of(me).memory > before.memory + 48 * 1024, "{}", much.len());

        drop(child.stdin.take());
        child.wait().unwrap();
        drop((place, much));
        let after = Holdings::of(me);
        assert!(!after.children.contains(&child.id()) && !after.files.contains(&path), "{after:?}");
        assert_eq!(with_environment(&path), [0; 0]);
    }
}
