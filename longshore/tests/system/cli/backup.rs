//! `longshore backup` on the command line. `store_faults::backup` tests backups during turns.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

use std::path::Path;

use rustix::process::Signal;

use crate::cli::ATTACHED;
use crate::cli::sandbox::{self, FinishedRun, Sandbox};

/// A sandbox whose data directory was served once.
fn served() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.start(&ATTACHED).end(Signal::TERM);
    sandbox
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn refused(run: &FinishedRun, words: &str) {
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{}", run.stderr);
    // A warning may stand before the error.
    assert!(run.stderr.contains("error: ") && run.stderr.contains(words), "{}", run.stderr);
}

#[test]
fn the_help_describes_the_backup() {
    let run = Sandbox::new().run(&["backup", "--help"]);
    assert_eq!(run.code, Some(0));
    insta::assert_snapshot!(run.stdout);
}

#[test]
fn a_backup_is_a_private_data_directory_that_can_be_served() {
    let sandbox = served();
    let run = sandbox.run(&["backup", "../copy"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    assert!(run.stdout.starts_with("Backed up 0 tasks with 0 events ("), "{}", run.stdout);
    let workspace = sandbox.workspace().canonicalize().unwrap();
    let command = format!("longshore serve --data-dir ../copy --workspace {}\n", workspace.display());
    assert!(run.stdout.ends_with(&command), "{}", run.stdout);
    let copy = sandbox.workspace().join("../copy");
    assert_eq!(names(&copy), ["kind", "longshore.db", "token", "workspace"]);
    assert_eq!(sandbox::readable_by_others(&copy), Vec::<std::path::PathBuf>::new());

    // The copy is served beside the original, with the same token and for the same workspace.
    let first = sandbox.start(&ATTACHED);
    let second = sandbox.start(&[&ATTACHED[..], &["--data-dir", "../copy"]].concat());
    assert_eq!(first.token(), second.token());
    let tasks = sandbox::get(&format!("{}/tasks", second.value("url")), Some(&first.token()));
    assert_eq!(tasks.status, 200, "{}", tasks.body);
    // Both can be backed up while they are served.
    assert_eq!(sandbox.run(&["backup", "--data-dir", "../copy", "../of-the-copy"]).code, Some(0));
    let within_reach = sandbox.run(&["backup", "another"]);
    assert_eq!(within_reach.code, Some(0));
    assert!(
        within_reach.stderr.starts_with("warning: the backup is in the workspace"),
        "{}",
        within_reach.stderr
    );
    assert_eq!(names(&sandbox.workspace()), ["another"]);
}

#[test]
fn an_existing_target_is_not_touched() {
    let sandbox = served();
    sandbox.write("file", "precious");
    std::fs::create_dir(sandbox.workspace().join("empty")).unwrap();
    std::os::unix::fs::symlink("nowhere", sandbox.workspace().join("link")).unwrap();
    for target in ["file", "empty", "link", ".", "/"] {
        refused(&sandbox.run(&["backup", target]), "is there already");
    }
    assert_eq!(names(&sandbox.workspace()), ["empty", "file", "link"]);
    assert_eq!(std::fs::read_to_string(sandbox.workspace().join("file")).unwrap(), "precious");
    refused(&sandbox.run(&["backup", "none/copy"]), "create it with `mkdir -p none`");
}

#[test]
fn a_backup_without_a_store_is_refused() {
    refused(&Sandbox::new().run(&["backup", "copy"]), "there are no stored tasks: ");
    let sandbox = Sandbox::new().env("A2A_TASK_STORE_BACKEND", "memory");
    refused(&sandbox.run(&["backup", "copy"]), "kept in memory only");
    assert_eq!(names(&sandbox.workspace()), Vec::<String>::new());
    let sandbox = Sandbox::new();
    sandbox.write("other.db", &"not a Longshore database ".repeat(100));
    refused(&sandbox.run(&["backup", "--database", "other.db", "copy"]), "no database of the gateway");
    assert_eq!(names(&sandbox.workspace()), ["other.db"]);
}

#[test]
fn the_backup_of_a_database_elsewhere_names_it() {
    let sandbox = Sandbox::new();
    sandbox.start(&[&ATTACHED[..], &["--database", "../tasks.db"]].concat()).end(Signal::TERM);
    let run = sandbox.run(&["backup", "--database", "../tasks.db", "copy"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(
        run.stdout.contains("--data-dir copy --database copy/longshore.db --workspace /"),
        "{}",
        run.stdout
    );
}

#[test]
fn an_interrupted_backup_leaves_nothing_behind() {
    let sandbox = Sandbox::new();
    sandbox.start(&[&ATTACHED[..], &["--data-dir", "../kept"]].concat()).end(Signal::TERM);
    // The backup waits for this lock.
    let holder = rusqlite::Connection::open(sandbox.workspace().join("../kept/longshore.db")).unwrap();
    holder.pragma_update(None, "locking_mode", "exclusive").unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let running = sandbox.begin(&["backup", "--data-dir", "../kept", "copy"]);
        while names(&sandbox.workspace()).is_empty() {
            std::thread::yield_now();
        }
        let run = running.end(signal);
        assert_eq!(names(&sandbox.workspace()), Vec::<String>::new(), "{signal:?}: {}", run.stderr);
        refused(&run, "nothing is left of the backup");
    }
    drop(holder);
    assert_eq!(sandbox.run(&["backup", "--data-dir", "../kept", "copy"]).code, Some(0));
}

#[test]
fn a_backup_that_does_not_fit_fails_and_leaves_nothing_behind() {
    let sandbox = served();
    let run = sandbox.run_limited(80, &["backup", "copy"]);
    refused(&run, "Is the target disk full");
    assert_eq!(names(&sandbox.workspace()), Vec::<String>::new());
}
