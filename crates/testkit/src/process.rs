//! What processes hold, as `/proc` tells: memory, open files, threads, children.

use std::collections::HashSet;
use std::path::PathBuf;

/// What a process holds at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holdings {
    /// Memory of its own, in kilobytes: what it has allocated and touched. The pages of files, such as those of the
    /// program itself, come and go as the kernel likes, and are not in it.
    pub memory: u64,
    /// What each open file descriptor leads to, sorted.
    pub files: Vec<String>,
    /// How many of them are TCP connections, whatever their state: sockets that do not listen and are no Unix sockets.
    pub connections: usize,
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
        let others = [read("net/unix".to_owned()), read("net/tcp".to_owned())].map(Option::unwrap_or_default);
        let others: HashSet<String> = unix(&others[0]).chain(listening(&others[1])).map(link).collect();
        let is_connection = |file: &&String| file.starts_with("socket:") && !others.contains(*file);
        let connections = files.iter().filter(is_connection).count();
        let mut threads: Vec<String> = numbers(of(pid, "task"))
            .filter_map(|thread| Some(read(format!("task/{thread}/comm"))?.trim_end().to_owned()))
            .collect();
        threads.sort();
        Self {
            memory: memory.unwrap_or_else(|| panic!("process {pid} does not run")),
            files,
            connections,
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

fn link(inode: &str) -> String {
    format!("socket:[{inode}]")
}

/// The inodes in the kernel's list of sockets that never leave the machine.
fn unix(list: &str) -> impl Iterator<Item = &str> {
    list.lines().skip(1).filter_map(|line| line.split_whitespace().nth(6))
}

/// The inodes of those that listen, in the kernel's list of TCP sockets. One that is closed and was not given back stands in
/// no list.
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
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let connection = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let path = place.path().display().to_string();
        assert!(Holdings::of(me).files.contains(&path));
        let mut child = Command::new("cat").env("FLATNESS", &path).stdin(Stdio::piped()).spawn().unwrap();
        let before = Holdings::of(me);
        assert!(before.children.contains(&child.id()));
        assert!(before.threads.len() > 1 && before.connections > 0, "{before:?}");
        drop((listener, connection));
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
