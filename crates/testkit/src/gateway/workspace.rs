//! A small git repository for the agent to work in: OpenCode names a project by its first commit.

use std::path::Path;
use std::process::Command;

/// The files. Tests read, search and edit them.
const FILES: [(&str, &str); 3] = [
    ("README.md", "# Harbour\n\nA place for ships.\n"),
    ("ships/log.txt", "day 1: left port\nday 2: fair wind\nday 3: becalmed\n"),
    ("ships/crew.txt", "captain\nmate\ncook\n"),
];

/// Creates the repository in `directory`, unless an earlier start has created it.
pub(super) fn create(directory: &Path) {
    if directory.exists() {
        return;
    }
    for (name, content) in FILES {
        let file = directory.join(name);
        std::fs::create_dir_all(file.parent().expect("a file lies in a directory"))
            .expect("a directory can be made");
        std::fs::write(file, content).expect("a file can be written");
    }
    git(directory, &["init", "--quiet", "--initial-branch=main"]);
    git(directory, &["add", "."]);
    git(directory, &["commit", "--quiet", "--message=Lay the first stone"]);
}

fn git(directory: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(directory);
    // Neither the user's settings nor the clock may make a difference.
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for role in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{role}_NAME"), "Ada")
            .env(format!("GIT_{role}_EMAIL"), "ada@example.com")
            .env(format!("GIT_{role}_DATE"), "2026-01-01T00:00:00Z");
    }
    let output = command.output().expect("git is installed");
    assert!(output.status.success(), "git {arguments:?} failed: {}", String::from_utf8_lossy(&output.stderr));
}
