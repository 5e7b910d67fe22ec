//! Tests of the life cycle of a managed OpenCode, with a small program in place of OpenCode.

use std::os::unix::fs::PermissionsExt;

use longshore_engine::Tasks;
use longshore_processes::{Process, process_tree};
use rustix::process::Signal;
use secrecy::ExposeSecret;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::timeout;

use super::liveness::LivenessCheck;
use super::*;

/// The longest wait of a test. Nothing here takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A data directory and a workspace. Dropping it kills the processes of the test.
struct Fixture {
    dir: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("workspace")).unwrap();
        Self { dir }
    }

    fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A configuration. The words in `FAKE_OPENCODE` control the behaviour of the program.
    fn config(&self, words: &str) -> ManagedConfig {
        ManagedConfig {
            program: concat!(env!("CARGO_MANIFEST_DIR"), "/src/managed/fake_opencode.py").into(),
            data_dir: self.data_dir(),
            workspace: self.dir.path().join("workspace"),
            env: BTreeMap::from([("FAKE_OPENCODE".into(), words.into())]),
            env_clear: false,
            configured: None,
            start_timeout: PATIENCE,
        }
    }

    async fn start(&self, words: &str) -> Managed {
        Managed::start(self.config(words)).await.unwrap()
    }

    fn record(&self) -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(self.data_dir().join("managed.json")).unwrap()).unwrap()
    }

    fn change_record(&self, change: impl FnOnce(&mut serde_json::Value)) {
        let mut record = self.record();
        change(&mut record);
        std::fs::write(self.data_dir().join("managed.json"), record.to_string()).unwrap();
    }

    fn output(&self) -> String {
        std::fs::read_to_string(self.data_dir().join("opencode.log")).unwrap()
    }

    /// The tool that the program started.
    fn tool(&self) -> Process {
        let pid = std::fs::read_to_string(self.dir.path().join("workspace/tool.pid")).unwrap();
        Process::find(pid.trim().parse().unwrap()).expect("the tool runs")
    }
}

/// Kills the processes, so that a failing test leaves none running.
impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(record) = Record::read(&self.data_dir()) {
            for process in process_tree(record.running_process(), &record.marker) {
                process.signal(Signal::KILL);
            }
        }
    }
}

fn process(managed: &Managed) -> Process {
    Process::find(managed.pid().unwrap()).expect("OpenCode runs")
}

async fn gone(process: Process) {
    timeout(PATIENCE, async {
        while process.is_alive() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the process still runs");
}

async fn until(states: &mut watch::Receiver<State>, wanted: impl FnMut(&State) -> bool) -> State {
    timeout(PATIENCE, states.wait_for(wanted)).await.expect("the state does not occur").unwrap().clone()
}

#[tokio::test]
async fn opencode_gets_its_own_process_group_and_its_files_are_private() {
    let fixture = Fixture::new();
    let managed = fixture.start("").await;
    assert!(!managed.is_adopted());
    assert_eq!(managed.version(), "0.0.0-fake");
    let pid = managed.pid().unwrap();
    let group =
        rustix::process::getpgid(rustix::process::Pid::from_raw(i32::try_from(pid).unwrap())).unwrap();
    assert_eq!(u32::try_from(group.as_raw_nonzero().get()).unwrap(), pid);

    let endpoint = managed.endpoint();
    let record = fixture.record();
    assert_eq!(record["pid"], pid);
    assert_eq!(record["port"], endpoint.base_url.url().port().unwrap());
    assert_eq!(record["password"], endpoint.password.as_ref().unwrap().expose_secret());
    assert_eq!(record["version"], "0.0.0-fake");
    assert!(record["password"].as_str().unwrap().len() >= 32);
    assert!(
        !format!("{managed:?}").contains(record["password"].as_str().unwrap()),
        "the password can be logged"
    );
    for file in ["managed.json", "managed.lock", "opencode.log"] {
        let mode = fixture.data_dir().join(file).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert!(fixture.output().contains("some words before"));
    assert_eq!(stop(&fixture.data_dir()).await.unwrap(), 1);
}

#[tokio::test]
async fn no_request_is_sent_before_opencode_reports_that_it_listens() {
    let fixture = Fixture::new();
    fixture.start("early").await;
    assert!(!fixture.output().contains("EARLY"), "{}", fixture.output());
}

#[tokio::test]
async fn the_next_start_adopts_a_running_opencode() {
    let fixture = Fixture::new();
    let first = fixture.start("").await;
    let (pid, endpoint) = (first.pid(), first.endpoint());
    drop(first);
    let second = fixture.start("exit").await;
    assert!(second.is_adopted() && !second.is_outdated());
    assert_eq!(second.pid(), pid);
    assert_eq!(second.version(), "0.0.0-fake");
    assert_eq!(second.endpoint().base_url.url(), endpoint.base_url.url());
    assert_eq!(
        second.endpoint().password.unwrap().expose_secret(),
        endpoint.password.unwrap().expose_secret()
    );
}

#[tokio::test]
async fn an_opencode_with_another_configuration_is_adopted_as_outdated() {
    let fixture = Fixture::new();
    drop(fixture.start("").await);
    let config = ManagedConfig { configured: Some("peers".to_owned()), ..fixture.config("exit") };
    let adopted = Managed::start(config).await.unwrap();
    assert!(adopted.is_adopted() && adopted.is_outdated());
}

#[tokio::test]
async fn an_opencode_that_cannot_be_adopted_is_terminated_and_replaced() {
    for (what, change) in [
        ("another password", (|record| record["password"] = "other".into()) as fn(&mut serde_json::Value)),
        ("another workspace", |record| record["workspace"] = "/elsewhere".into()),
        ("a start that never finished", |record| record["version"] = serde_json::Value::Null),
    ] {
        let fixture = Fixture::new();
        let old = process(&fixture.start("tool").await);
        let tool = fixture.tool();
        fixture.change_record(change);
        let managed = fixture.start("").await;
        assert!(!managed.is_adopted(), "{what}");
        assert_ne!(process(&managed), old, "{what}");
        assert!(!old.is_alive() && !tool.is_alive(), "{what}: the old process still runs");
    }
}

#[tokio::test]
async fn a_foreign_process_with_a_reused_id_is_left_alone() {
    let fixture = Fixture::new();
    let old = process(&fixture.start("").await);
    stop(&fixture.data_dir()).await.unwrap();
    gone(old).await;
    let mut foreign = tokio::process::Command::new("sleep").arg("1000").kill_on_drop(true).spawn().unwrap();
    let reused = Process::find(foreign.id().unwrap()).unwrap();

    for change in [
        // Another process got the id.
        (|record, reused| record["start_time"] = (reused.start_time - 1).into())
            as fn(&mut serde_json::Value, Process),
        // The id and the start time are the same, but the machine was restarted in between.
        |record, _| record["boot"] = "another".into(),
    ] {
        let managed = fixture.start("").await;
        let real = process(&managed);
        fixture.change_record(|record| {
            record["pid"] = reused.pid.into();
            record["start_time"] = reused.start_time.into();
            change(record, reused);
        });
        let replacement = fixture.start("").await;
        assert!(!replacement.is_adopted());
        assert!(!real.is_alive(), "the marker identifies the real process");
        assert_eq!(stop(&fixture.data_dir()).await.unwrap(), 1);
        assert!(foreign.try_wait().unwrap().is_none(), "a foreign process was killed");
    }
    foreign.kill().await.unwrap();
}

#[tokio::test]
async fn stop_terminates_opencode_and_the_tools_that_it_left_running() {
    for words in ["tool", "orphan", "tool stubborn"] {
        let fixture = Fixture::new();
        let opencode = process(&fixture.start(words).await);
        let tool = fixture.tool();
        assert_eq!(stop(&fixture.data_dir()).await.unwrap(), 2, "{words}");
        assert!(!opencode.is_alive() && !tool.is_alive(), "{words}");
        assert!(!fixture.data_dir().join("managed.json").exists());
        assert_eq!(stop(&fixture.data_dir()).await.unwrap(), 0, "a second stop has nothing to do");
    }
}

#[tokio::test]
async fn stop_fails_when_the_record_is_unreadable() {
    let fixture = Fixture::new();
    let opencode = process(&fixture.start("").await);
    let file = fixture.data_dir().join("managed.json");
    let record = std::fs::read(&file).unwrap();
    for damaged in [&record[..record.len() / 2], b"", b"{\"port\":\"x\"}"] {
        std::fs::write(&file, damaged).unwrap();
        let stopped = stop(&fixture.data_dir()).await;
        let left = std::fs::read(&file);
        // Restored before the assertions, so that a failing test leaves nothing running.
        std::fs::write(&file, &record).unwrap();
        let error = stopped.unwrap_err();
        assert!(error.message().contains("managed.json"), "{error}");
        assert!(!error.message().contains('/'), "the error shows a path: {error}");
        assert_eq!(left.unwrap(), damaged, "the damaged record is kept");
    }
    assert!(opencode.is_alive());
    assert_eq!(stop(&fixture.data_dir()).await.unwrap(), 1);
}

#[tokio::test]
async fn an_opencode_with_a_damaged_record_is_restarted() {
    let fixture = Fixture::new();
    let tasks = Tasks::new();
    let managed = fixture.start("").await;
    let opencode = process(&managed);
    let mut states = managed.supervise(&tasks);
    std::fs::write(fixture.data_dir().join("managed.json"), "{").unwrap();
    opencode.signal(Signal::KILL);
    until(&mut states, |state| matches!(state, State::Down { .. })).await;
    let state = until(&mut states, |state| !matches!(state, State::Down { .. })).await;
    assert!(matches!(state, State::Running { .. }), "{state:?}");
    assert!(fixture.record()["pid"].is_number(), "the record is written again");
    tasks.stop().await;
}

#[tokio::test]
async fn stop_terminates_the_tools_of_an_opencode_that_has_already_ended() {
    let fixture = Fixture::new();
    let managed = fixture.start("tool").await;
    let tool = fixture.tool();
    let opencode = process(&managed);
    opencode.signal(Signal::KILL);
    gone(opencode).await;
    assert!(tool.is_alive());
    assert_eq!(stop(&fixture.data_dir()).await.unwrap(), 1);
    assert!(!tool.is_alive());
}

#[tokio::test]
async fn a_killed_opencode_is_restarted_with_the_same_address() {
    let fixture = Fixture::new();
    // First as a child process, then as an adopted process.
    for is_adopted in [false, true] {
        let managed = fixture.start("tool").await;
        assert_eq!(managed.is_adopted(), is_adopted);
        let (endpoint, first) = (managed.endpoint(), process(&managed));
        let tool = fixture.tool();
        let gateway = Tasks::new();
        let mut states = managed.supervise(&gateway);
        first.signal(Signal::KILL);
        let outage = timeout(PATIENCE, endpoint.base_url.until_down()).await.expect("the address says so");
        assert!(outage.reason.contains("started again"), "{}", outage.reason);
        let state =
            until(&mut states, |state| matches!(state, State::Running { pid, .. } if *pid != first.pid))
                .await;
        assert!(endpoint.base_url.run().is_ok(), "the address says that OpenCode is back");

        let State::Running { pid, version } = state else { unreachable!() };
        assert_eq!(version, "0.0.0-fake");
        assert_eq!(fixture.record()["pid"], pid);
        assert_eq!(fixture.record()["port"], endpoint.base_url.url().port().unwrap());
        assert_eq!(fixture.record()["password"], endpoint.password.unwrap().expose_secret());
        assert!(!tool.is_alive(), "the tool of the killed OpenCode still runs");

        gateway.stop().await;
        assert!(Process::find(pid).is_some(), "the end of the gateway ended OpenCode");
    }
}

#[tokio::test]
async fn a_stopped_opencode_is_not_restarted() {
    let fixture = Fixture::new();
    let tasks = Tasks::new();
    let mut states = fixture.start("").await.supervise(&tasks);
    stop(&fixture.data_dir()).await.unwrap();
    until(&mut states, |state| *state == State::Stopped).await;
    assert!(!fixture.data_dir().join("managed.json").exists());
    timeout(PATIENCE, tasks.stop()).await.expect("the supervisor does not end");
}

#[tokio::test]
async fn a_restart_that_fails_is_tried_again() {
    let fixture = Fixture::new();
    let tasks = Tasks::new();
    let mut managed = fixture.start("").await;
    let opencode = process(&managed);
    let program = std::mem::replace(&mut managed.config.program, fixture.dir.path().join("later"));
    let mut states = managed.supervise(&tasks);
    opencode.signal(Signal::KILL);
    let state =
        until(&mut states, |state| matches!(state, State::Down { restarts, .. } if *restarts > 0)).await;
    let State::Down { reason, .. } = state else { unreachable!() };
    assert!(reason.contains("no executable program `later`"), "{reason}");
    std::os::unix::fs::symlink(program, fixture.dir.path().join("later")).unwrap();
    until(&mut states, |state| matches!(state, State::Running { .. })).await;
    tasks.stop().await;
}

#[tokio::test]
async fn an_opencode_that_does_not_respond_is_terminated_and_restarted() {
    let fixture = Fixture::new();
    let tasks = Tasks::new();
    let mut managed = fixture.start("").await;
    managed.liveness = LivenessCheck {
        every: Duration::from_millis(50),
        timeout: Duration::from_millis(200),
        silence: Duration::from_secs(1),
    };
    let opencode = process(&managed);
    let mut states = managed.supervise(&tasks);
    opencode.signal(Signal::STOP);
    let state = until(&mut states, |state| matches!(state, State::Down { .. })).await;
    let State::Down { reason, .. } = state else { unreachable!() };
    assert!(reason.contains("does not respond"), "{reason}");
    until(&mut states, |state| matches!(state, State::Running { pid, .. } if *pid != opencode.pid)).await;
    assert!(!opencode.is_alive());
    tasks.stop().await;
}

/// The other program keeps the port and gets no requests from the gateway.
#[tokio::test]
async fn an_opencode_whose_port_was_taken_moves_to_another_port() {
    let fixture = Fixture::new();
    let tasks = Tasks::new();
    let mut managed = fixture.start("").await;
    let (opencode, endpoint) = (process(&managed), managed.endpoint());
    let (before, known) = (endpoint.base_url.url(), fixture.record()["password"].clone());
    let program = std::mem::replace(&mut managed.config.program, fixture.dir.path().join("later"));
    let mut states = managed.supervise(&tasks);
    opencode.signal(Signal::KILL);
    until(&mut states, |state| matches!(state, State::Down { restarts, .. } if *restarts > 0)).await;
    let _other = std::net::TcpListener::bind(("127.0.0.1", before.port().unwrap())).unwrap();
    std::os::unix::fs::symlink(program, fixture.dir.path().join("later")).unwrap();
    until(&mut states, |state| matches!(state, State::Running { .. })).await;
    let after = endpoint.base_url.url();
    assert_ne!(after, before);
    assert_eq!(fixture.record()["port"], after.port().unwrap());
    assert_ne!(
        fixture.record()["password"],
        known,
        "the program on the old port may have received the old password"
    );
    let client = crate::client::Client::new(endpoint, PATIENCE, 0, std::sync::Arc::default()).unwrap();
    assert!(client.health().await.is_ok_and(|health| health.healthy), "the client uses the new address");
    tasks.stop().await;
    assert!(fixture.start("").await.is_adopted(), "the next start adopts it at the new address");
}

#[tokio::test]
async fn a_failed_start_reports_what_to_do_and_leaves_nothing_running() {
    let missing = |config: &mut ManagedConfig| config.program = "no-such-opencode".into();
    let no_workspace = |config: &mut ManagedConfig| config.workspace.push("absent");
    let impatient = |config: &mut ManagedConfig| config.start_timeout = Duration::from_millis(700);
    for (words, change, expected) in [
        ("", missing as fn(&mut ManagedConfig), "no executable program `no-such-opencode`"),
        ("", no_workspace, "workspace"),
        ("exit", |_| {}, "ended during its start (exit status: 1)"),
        ("mute", impatient, "did not listen"),
    ] {
        let fixture = Fixture::new();
        let mut config = fixture.config(words);
        change(&mut config);
        let error = Managed::start(config).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AgentUnavailable, "{words}");
        assert!(error.message().contains(expected), "{words}: {error}");
        assert!(!error.message().contains('/'), "the error shows a path: {error}");
        if words == "exit" {
            assert!(error.cause().unwrap().to_string().contains("ServeError"));
        }
        if let Some(record) = Record::read(&fixture.data_dir()) {
            timeout(PATIENCE, async {
                while !process_tree(None, &record.marker).is_empty() {
                    tokio::task::yield_now().await;
                }
            })
            .await
            .expect("a process was left running");
        }
        // The next start succeeds.
        assert!(!fixture.start("").await.is_adopted());
    }
}

#[tokio::test]
async fn dropping_a_start_terminates_the_starting_process() {
    let fixture = Fixture::new();
    let started = async {
        loop {
            if let Some(process) =
                Record::read(&fixture.data_dir()).and_then(|record| record.running_process())
            {
                return process;
            }
            tokio::task::yield_now().await;
        }
    };
    let process = tokio::select! {
        result = Managed::start(fixture.config("mute")) => panic!("it never becomes ready: {result:?}"),
        process = timeout(PATIENCE, started) => process.expect("the process is not started"),
    };
    gone(process).await;
}

#[tokio::test]
async fn the_output_of_the_previous_start_is_kept_once() {
    let fixture = Fixture::new();
    for words in ["exit", "exit", "exit"] {
        Managed::start(fixture.config(words)).await.unwrap_err();
    }
    let mut files: Vec<_> = std::fs::read_dir(fixture.data_dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("opencode"))
        .collect();
    files.sort();
    assert_eq!(files, ["opencode.log", "opencode.log.1"]);
}
