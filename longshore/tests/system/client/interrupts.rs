//! Ctrl-C: once cancels the task, twice leaves it running.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::time::Duration;

use longshore_testkit::fake_opencode::Turn;
use longshore_testkit::gateway::until;
use rustix::process::{Pid, Signal, kill_process};

use super::fixture::{Fixture, finished};

/// A call whose agent never ends its turn, after its first text was printed.
async fn endless_call(fixture: &Fixture) -> Child {
    fixture.fake.answering(|_| Turn::new().text("Begun.\n", 1).silence());
    let mut child = fixture.begin(&["call", "work"]);
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let line = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        line
    });
    assert_eq!(line.await.unwrap(), "Begun.\n");
    child
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_cancels_the_task() {
    let fixture = Fixture::new().await;
    let child = endless_call(&fixture).await;
    interrupt(&child);
    let run = finished(child).await;
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.stderr.contains("Press Ctrl-C again to leave it running."), "{}", run.stderr);
    let task = fixture.task().await;
    let state = fixture.run(&["tasks", "get", &task]).await;
    assert!(state.stderr.contains("state: canceled"), "{state:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_twice_leaves_the_task_running_and_says_how_to_come_back() {
    let fixture = Fixture::new().await;
    let mut child = endless_call(&fixture).await;
    interrupt(&child);
    // The second signal must not be merged with the first.
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let said = tokio::task::spawn_blocking(move || {
        let mut said = String::new();
        while !said.contains("again to leave it running") {
            assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
        }
        (said, stderr)
    });
    let (_, mut stderr) = said.await.unwrap();
    interrupt(&child);
    let rest = tokio::task::spawn_blocking(move || std::io::read_to_string(&mut stderr).unwrap());
    let mut code = None;
    until(Duration::from_secs(30), "the command ends", || {
        code = child.try_wait().unwrap();
        code.is_some()
    })
    .await;
    assert_eq!(code.unwrap().code(), Some(130));
    let task = fixture.task().await;
    assert!(rest.await.unwrap().contains(&format!("longshore tasks watch {task} ")));
    let state = fixture.run(&["tasks", "get", &task]).await;
    assert!(state.stderr.contains("state: working"), "{state:?}");
    let canceled = fixture.run(&["tasks", "cancel", &task]).await;
    assert_eq!(canceled.stderr, format!("The task {task} is canceled.\n"));
}
