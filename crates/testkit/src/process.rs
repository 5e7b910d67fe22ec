//! The resources of a process, read from `/proc`: memory, open files, threads, children.

use std::collections::HashSet;
use std::path::PathBuf;

/// The resources of a process at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessResources {
    /// Anonymous memory in kilobytes: allocated and touched. Pages of files, such as those of the program itself, are not
    /// included, because the kernel loads and drops them as it likes.
    pub memory: u64,
    /// The target of each open file descriptor, sorted.
    pub files: Vec<String>,
    /// How many of them are TCP connections in any state: sockets that do not listen and are not Unix sockets.
    pub connections: usize,
    /// The names of its threads, sorted.
    pub threads: Vec<String>,
    /// Its child processes that run, or that it has not waited for.
    pub children: Vec<u32>,
}

impl ProcessResources {
    /// Panics unless the process is running.
    pub fn of(pid: u32) -> Self {
        let read = |name: String| std::fs::read_to_string(of(pid, &name)).ok();
        let memory = read("status".to_owned()).and_then(|status| anonymous(&status));
        let mut files: Vec<String> = numbers(of(pid, "fd"))
            .filter_map(|file| {
                Some(std::fs::read_link(of(pid, &format!("fd/{file}"))).ok()?.display().to_string())
            })
            .collect();
        files.sort();
        let others = [read("net/unix".to_owned()), read("net/tcp".to_owned())].map(Option::unwrap_or_default);
        let others: HashSet<String> = unix(&others[0]).chain(listening(&others[1])).map(link).collect();
        let is_connection = |file: &&String| file.starts_with("socket:") && !others.contains(*file);
        let connections = files.iter().filter(is_connection).count();
        let mut threads: Vec<String> = numbers(of(pid, "task"))
            .filter_map(|thread| Some(read(format!("task/{thread}/comm"))?.trim_end().to_owned()))
            .collect();
        threads.sort();
        Self {
            memory: memory.unwrap_or_else(|| panic!("process {pid} is not running")),
            files,
            connections,
            threads,
            children: numbers(PathBuf::from("/proc")).filter(|other| parent(*other) == Some(pid)).collect(),
        }
    }
}

/// The running processes that were started with this text in their environment.
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

/// The entries of a directory that are numbers. A directory that is gone has none.
fn numbers(directory: PathBuf) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn link(inode: &str) -> String {
    format!("socket:[{inode}]")
}

/// The inodes in the kernel's list of Unix sockets.
fn unix(list: &str) -> impl Iterator<Item = &str> {
    list.lines().skip(1).filter_map(|line| line.split_whitespace().nth(6))
}

/// The inodes of listening sockets in the kernel's list of TCP sockets. A closed socket whose descriptor is still open is in no
/// list.
fn listening(list: &str) -> impl Iterator<Item = &str> {
    const LISTENS: &str = "0A";
    list.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        let state = fields.nth(3)?;
        fields.nth(5).filter(|_| state == LISTENS)
    })
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(of(pid, "stat")).ok()?;
    // The name is in parentheses and may contain any character; state and parent follow it.
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
    fn resources_are_seen_when_taken_and_gone_when_released() {
        // Other tests of this process may run at the same time, so that only resources of this test can be counted.
        let me = std::process::id();
        let file = tempfile::NamedTempFile::new().unwrap();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let connection = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let path = file.path().display().to_string();
        assert!(ProcessResources::of(me).files.contains(&path));
        let mut child = Command::new("cat").env("FLATNESS", &path).stdin(Stdio::piped()).spawn().unwrap();
        let before = ProcessResources::of(me);
        assert!(before.children.contains(&child.id()));
        assert!(before.threads.len() > 1 && before.connections > 0, "{before:?}");
        drop((listener, connection));
        assert_eq!(with_environment(&path), [child.id()]);
        let much = vec![1_u8; 64 * 1024 * 1024];
        assert!(ProcessResources::of(me).memory > before.memory + 48 * 1024, "{}", much.len());

        drop(child.stdin.take());
        child.wait().unwrap();
        drop((file, much));
        let after = ProcessResources::of(me);
        assert!(!after.children.contains(&child.id()) && !after.files.contains(&path), "{after:?}");
        assert_eq!(with_environment(&path), [0; 0]);
    }
}
