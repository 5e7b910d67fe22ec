//! The life of a managed OpenCode, with a small program in its place.

use std::os::unix::fs::PermissionsExt;

use longshore_engine::Tasks;
use rustix::process::Signal;
use secrecy::ExposeSecret;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::timeout;

use super::process::Process;
use super::vigil::Vigil;
use super::*;

/// Nothing here takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A data directory and a workspace; what runs there is ended with it.
struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("workspace")).unwrap();
        Self { dir }
    }

    fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A configuration whose program behaves as the words say.
    fn config(&self, words: &str) -> ManagedConfig {
        ManagedConfig {
            program: concat!(env!("CARGO_MANIFEST_DIR"), "/src/managed/fake_opencode.py").into(),
            data_dir: self.data_dir(),
            workspace: self.dir.path().join("workspace"),
            env: BTreeMap::from([("FAKE_OPENCODE".into(), words.into())]),
            env_clear: false,
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

/// A test that fails must not leave anything running.
impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(record) = Record::read(&self.data_dir()) {
            for process in process::family(record.living(), &record.marker) {
                process.signal(Signal::KILL);
            }
        }
    }
}

fn process(managed: &Managed) -> Process {
    Process::find(managed.pid().unwrap()).expect("it runs")
}

async fn gone(process: Process) {
    timeout(PATIENCE, async {
        while process.is_alive() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the process runs on");
}

async fn until(states: &mut watch::Receiver<State>, wanted: impl FnMut(&State) -> bool) -> State {
    timeout(PATIENCE, states.wait_for(wanted)).await.expect("the state does not come").unwrap().clone()
}

#[tokio::test]
async fn it_is_started_in_a_group_of_its_own_and_its_files_are_private() {
    let bench = Bench::new();
    let managed = bench.start("").await;
    assert!(!managed.is_adopted());
    assert_eq!(managed.version(), "0.0.0-fake");
    let pid = managed.pid().unwrap();
    let group =
        rustix::process::getpgid(rustix::process::Pid::from_raw(i32::try_from(pid).unwrap())).unwrap();
    assert_eq!(u32::try_from(group.as_raw_nonzero().get()).unwrap(), pid);

    let endpoint = managed.endpoint();
    let record = bench.record();
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
        let mode = bench.data_dir().join(file).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    assert!(bench.output().contains("some words before"));
    assert_eq!(stop(&bench.data_dir()).await.unwrap(), 1);
}

#[tokio::test]
async fn nothing_is_asked_before_it_says_that_it_listens() {
    let bench = Bench::new();
    bench.start("early").await;
    assert!(!bench.output().contains("EARLY"), "{}", bench.output());
}

#[tokio::test]
async fn the_next_start_adopts_it() {
    let bench = Bench::new();
    let first = bench.start("").await;
    let (pid, endpoint) = (first.pid(), first.endpoint());
    drop(first);
    let second = bench.start("exit").await;
    assert!(second.is_adopted());
    assert_eq!(second.pid(), pid);
    assert_eq!(second.version(), "0.0.0-fake");
    assert_eq!(second.endpoint().base_url.url(), endpoint.base_url.url());
    assert_eq!(
        second.endpoint().password.unwrap().expose_secret(),
        endpoint.password.unwrap().expose_secret()
    );
}

#[tokio::test]
async fn one_that_cannot_be_adopted_is_ended_and_replaced() {
    for (what, change) in [
        ("another password", (|record| record["password"] = "other".into()) as fn(&mut serde_json::Value)),
        ("another workspace", |record| record["workspace"] = "/elsewhere".into()),
        ("it never got ready", |record| record["version"] = serde_json::Value::Null),
    ] {
        let bench = Bench::new();
        let old = process(&bench.start("tool").await);
        let tool = bench.tool();
        bench.change_record(change);
        let managed = bench.start("").await;
        assert!(!managed.is_adopted(), "{what}");
        assert_ne!(process(&managed), old, "{what}");
        assert!(!old.is_alive() && !tool.is_alive(), "{what}: the old one runs on");
    }
}

#[tokio::test]
async fn a_process_that_got_the_number_of_an_old_one_is_left_alone() {
    let bench = Bench::new();
    let old = process(&bench.start("").await);
    stop(&bench.data_dir()).await.unwrap();
    gone(old).await;
    let mut stranger = tokio::process::Command::new("sleep").arg("1000").kill_on_drop(true).spawn().unwrap();
    let number = Process::find(stranger.id().unwrap()).unwrap();

    for change in [
        // The number was given to another process.
        (|record, number| record["start_time"] = (number.start_time - 1).into())
            as fn(&mut serde_json::Value, Process),
        // Everything is as it was, but the machine was started anew in between.
        |record, _| record["boot"] = "another".into(),
    ] {
        let managed = bench.start("").await;
        let real = process(&managed);
        bench.change_record(|record| {
            record["pid"] = number.pid.into();
            record["start_time"] = number.start_time.into();
            change(record, number);
        });
        let replacement = bench.start("").await;
        assert!(!replacement.is_adopted());
        assert!(!real.is_alive(), "the marker leads to what was really started");
        assert_eq!(stop(&bench.data_dir()).await.unwrap(), 1);
        assert!(stranger.try_wait().unwrap().is_none(), "a stranger was killed");
    }
    stranger.kill().await.unwrap();
}

#[tokio::test]
async fn stop_ends_it_and_the_tools_that_it_left_running() {
    for words in ["tool", "orphan", "tool stubborn"] {
        let bench = Bench::new();
        let opencode = process(&bench.start(words).await);
        let tool = bench.tool();
        assert_eq!(stop(&bench.data_dir()).await.unwrap(), 2, "{words}");
        assert!(!opencode.is_alive() && !tool.is_alive(), "{words}");
        assert!(!bench.data_dir().join("managed.json").exists());
        assert_eq!(stop(&bench.data_dir()).await.unwrap(), 0, "a second stop has nothing to do");
    }
}

#[tokio::test]
async fn stop_says_when_the_record_is_unreadable() {
    let bench = Bench::new();
    let opencode = process(&bench.start("").await);
    let file = bench.data_dir().join("managed.json");
    let record = std::fs::read(&file).unwrap();
    for damaged in [&record[..record.len() / 2], b"", b"{\"port\":\"x\"}"] {
        std::fs::write(&file, damaged).unwrap();
        let stopped = stop(&bench.data_dir()).await;
        let left = std::fs::read(&file);
        // Now, so that a test that fails leaves nothing running.
        std::fs::write(&file, &record).unwrap();
        let error = stopped.unwrap_err();
        assert!(error.message().contains("managed.json"), "{error}");
        assert!(!error.message().contains('/'), "a path is told: {error}");
        assert_eq!(left.unwrap(), damaged, "what is left of the record is kept");
    }
    assert!(opencode.is_alive());
    assert_eq!(stop(&bench.data_dir()).await.unwrap(), 1);
}

#[tokio::test]
async fn one_whose_record_was_damaged_is_started_again() {
    let bench = Bench::new();
    let tasks = Tasks::new();
    let managed = bench.start("").await;
    let opencode = process(&managed);
    let mut states = managed.supervise(&tasks);
    std::fs::write(bench.data_dir().join("managed.json"), "{").unwrap();
    opencode.signal(Signal::KILL);
    until(&mut states, |state| matches!(state, State::Down { .. })).await;
    let state = until(&mut states, |state| !matches!(state, State::Down { .. })).await;
    assert!(matches!(state, State::Running { .. }), "{state:?}");
    assert!(bench.record()["pid"].is_number(), "the record is written anew");
    tasks.stop().await;
}

#[tokio::test]
async fn stop_ends_the_tools_of_one_that_is_gone_already() {
    let bench = Bench::new();
    let managed = bench.start("tool").await;
    let tool = bench.tool();
    let opencode = process(&managed);
    opencode.signal(Signal::KILL);
    gone(opencode).await;
    assert!(tool.is_alive());
    assert_eq!(stop(&bench.data_dir()).await.unwrap(), 1);
    assert!(!tool.is_alive());
}

#[tokio::test]
async fn one_that_is_killed_is_started_again_in_its_place() {
    let bench = Bench::new();
    // Both as a child and as one that was adopted.
    for is_adopted in [false, true] {
        let managed = bench.start("tool").await;
        assert_eq!(managed.is_adopted(), is_adopted);
        let (endpoint, first) = (managed.endpoint(), process(&managed));
        let tool = bench.tool();
        let gateway = Tasks::new();
        let mut states = managed.supervise(&gateway);
        first.signal(Signal::KILL);
        until(&mut states, |state| matches!(state, State::Down { .. })).await;
        let state = until(&mut states, |state| matches!(state, State::Running { .. })).await;

        let State::Running { pid, version } = state else { unreachable!() };
        assert_ne!(pid, first.pid);
        assert_eq!(version, "0.0.0-fake");
        assert_eq!(bench.record()["pid"], pid);
        assert_eq!(bench.record()["port"], endpoint.base_url.url().port().unwrap());
        assert_eq!(bench.record()["password"], endpoint.password.unwrap().expose_secret());
        assert!(!tool.is_alive(), "the tool of the one that was killed runs on");

        gateway.stop().await;
        assert!(Process::find(pid).is_some(), "the end of the gateway ended OpenCode");
    }
}

#[tokio::test]
async fn one_that_was_stopped_is_not_started_again() {
    let bench = Bench::new();
    let tasks = Tasks::new();
    let mut states = bench.start("").await.supervise(&tasks);
    stop(&bench.data_dir()).await.unwrap();
    until(&mut states, |state| *state == State::Stopped).await;
    assert!(!bench.data_dir().join("managed.json").exists());
    timeout(PATIENCE, tasks.stop()).await.expect("the supervisor does not end");
}

#[tokio::test]
async fn a_restart_that_fails_is_tried_again() {
    let bench = Bench::new();
    let tasks = Tasks::new();
    let mut managed = bench.start("").await;
    let opencode = process(&managed);
    let program = std::mem::replace(&mut managed.config.program, bench.dir.path().join("later"));
    let mut states = managed.supervise(&tasks);
    opencode.signal(Signal::KILL);
    let state =
        until(&mut states, |state| matches!(state, State::Down { restarts, .. } if *restarts > 0)).await;
    let State::Down { reason, .. } = state else { unreachable!() };
    assert!(reason.contains("no program `later`"), "{reason}");
    std::os::unix::fs::symlink(program, bench.dir.path().join("later")).unwrap();
    until(&mut states, |state| matches!(state, State::Running { .. })).await;
    tasks.stop().await;
}

#[tokio::test]
async fn one_that_lives_and_does_not_answer_is_ended_and_started_again() {
    let bench = Bench::new();
    let tasks = Tasks::new();
    let mut managed = bench.start("").await;
    managed.vigil = Vigil {
        every: Duration::from_millis(50),
        timeout: Duration::from_millis(200),
        silence: Duration::from_secs(1),
    };
    let opencode = process(&managed);
    let mut states = managed.supervise(&tasks);
    opencode.signal(Signal::STOP);
    let state = until(&mut states, |state| matches!(state, State::Down { .. })).await;
    let State::Down { reason, .. } = state else { unreachable!() };
    assert!(reason.contains("does not answer"), "{reason}");
    until(&mut states, |state| matches!(state, State::Running { pid, .. } if *pid != opencode.pid)).await;
    assert!(!opencode.is_alive());
    tasks.stop().await;
}

/// Whoever has the port now keeps it, and does not get our requests.
#[tokio::test]
async fn one_whose_port_was_taken_moves_to_another() {
    let bench = Bench::new();
    let tasks = Tasks::new();
    let mut managed = bench.start("").await;
    let (opencode, endpoint) = (process(&managed), managed.endpoint());
    let (before, known) = (endpoint.base_url.url(), bench.record()["password"].clone());
    let program = std::mem::replace(&mut managed.config.program, bench.dir.path().join("later"));
    let mut states = managed.supervise(&tasks);
    opencode.signal(Signal::KILL);
    until(&mut states, |state| matches!(state, State::Down { restarts, .. } if *restarts > 0)).await;
    let _other = std::net::TcpListener::bind(("127.0.0.1", before.port().unwrap())).unwrap();
    std::os::unix::fs::symlink(program, bench.dir.path().join("later")).unwrap();
    until(&mut states, |state| matches!(state, State::Running { .. })).await;
    let after = endpoint.base_url.url();
    assert_ne!(after, before);
    assert_eq!(bench.record()["port"], after.port().unwrap());
    assert_ne!(bench.record()["password"], known, "whoever has the old port may have heard the old password");
    let client = crate::client::Client::new(endpoint, PATIENCE, 0, std::sync::Arc::default()).unwrap();
    assert!(client.is_healthy().await.is_ok_and(|is_healthy| is_healthy), "it is reached with the new one");
    tasks.stop().await;
    assert!(bench.start("").await.is_adopted(), "the next start finds it there");
}

#[tokio::test]
async fn failures_say_what_to_do_and_leave_nothing_behind() {
    let missing = |config: &mut ManagedConfig| config.program = "no-such-opencode".into();
    let no_workspace = |config: &mut ManagedConfig| config.workspace.push("absent");
    let impatient = |config: &mut ManagedConfig| config.start_timeout = Duration::from_millis(700);
    for (words, change, expected) in [
        ("", missing as fn(&mut ManagedConfig), "no program `no-such-opencode`"),
        ("", no_workspace, "workspace"),
        ("exit", |_| {}, "ended while it started (exit status: 1)"),
        ("mute", impatient, "did not listen"),
    ] {
        let bench = Bench::new();
        let mut config = bench.config(words);
        change(&mut config);
        let error = Managed::start(config).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AgentUnavailable, "{words}");
        assert!(error.message().contains(expected), "{words}: {error}");
        assert!(!error.message().contains('/'), "a path is told: {error}");
        if words == "exit" {
            assert!(error.cause().unwrap().to_string().contains("ServeError"));
        }
        if let Some(record) = Record::read(&bench.data_dir()) {
            timeout(PATIENCE, async {
                while !process::family(None, &record.marker).is_empty() {
                    tokio::task::yield_now().await;
                }
            })
            .await
            .expect("something was left running");
        }
        // The next start is not disturbed.
        assert!(!bench.start("").await.is_adopted());
    }
}

#[tokio::test]
async fn giving_up_a_start_ends_what_was_about_to_start() {
    let bench = Bench::new();
    let started = async {
        loop {
            if let Some(process) = Record::read(&bench.data_dir()).and_then(|record| record.living()) {
                return process;
            }
            tokio::task::yield_now().await;
        }
    };
    let process = tokio::select! {
        result = Managed::start(bench.config("mute")) => panic!("it never gets ready: {result:?}"),
        process = timeout(PATIENCE, started) => process.expect("it is not started"),
    };
    gone(process).await;
}

#[tokio::test]
async fn the_output_of_the_start_before_is_kept_once() {
    let bench = Bench::new();
    for words in ["exit", "exit", "exit"] {
        Managed::start(bench.config(words)).await.unwrap_err();
    }
    let mut files: Vec<_> = std::fs::read_dir(bench.data_dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("opencode"))
        .collect();
    files.sort();
    assert_eq!(files, ["opencode.log", "opencode.log.1"]);
}
