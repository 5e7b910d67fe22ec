use super::*;

fn shell(script: &str) -> ProcessConfig {
    let environment = environment(std::env::vars_os(), &BTreeMap::new());
    let arguments = vec!["-c".into(), script.into()];
    let patience = Duration::from_secs(30);
    ProcessConfig { arguments, environment, patience, ..ProcessConfig::new("sh", ".") }
}

async fn first_line(output: &mut ChildStdout) -> String {
    let mut line = Vec::new();
    while let Ok(byte) = output.read_u8().await
        && byte != b'\n'
    {
        line.push(byte);
    }
    String::from_utf8(line).unwrap()
}

/// Waits until a process that is no child of the test has ended. A killed process may stay a zombie until its new parent reaps it.
async fn gone(pid: &str) {
    let is_alive = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    for _ in 0..1500 {
        if !is_alive() {
            return;
        }
        sleep(CHECK_EVERY).await;
    }
    panic!("the process {pid} still runs");
}

#[test]
fn an_agent_gets_only_listed_and_named_variables() {
    let pair = |(name, value): (&str, &str)| (OsString::from(name), OsString::from(value));
    let gateway =
        [("PATH", "/bin"), ("HOME", "/h"), ("A2A_BEARER_TOKEN", "t"), ("OPENAI_API_KEY", "k"), ("path", "x")];
    let named = BTreeMap::from([
        ("OPENAI_API_KEY".to_owned(), "own".to_owned()),
        ("HOME".to_owned(), "/other".to_owned()),
    ]);
    let expected = [("HOME", "/other"), ("OPENAI_API_KEY", "own"), ("PATH", "/bin")];
    assert_eq!(environment(gateway.map(pair), &named), BTreeMap::from(expected.map(pair)));
}

#[tokio::test]
async fn an_agent_that_ends_when_its_input_closes_gets_no_signal() {
    let (process, pipes) = Process::start(&shell("cat; exit 3")).unwrap();
    drop(pipes.input);
    let (ending, status) = process.end().await.unwrap();
    assert_eq!((ending, status.code()), (Ending::ByItself, Some(3)));
}

#[tokio::test]
async fn a_child_that_an_agent_leaves_behind_is_killed_with_its_group() {
    let (process, mut pipes) = Process::start(&shell("sleep 1000 & echo $!; cat")).unwrap();
    let child = first_line(&mut pipes.output).await;
    drop(pipes.input);
    assert_eq!(process.end().await.unwrap().0, Ending::ByItself);
    gone(&child).await;
}

#[tokio::test]
async fn an_agent_that_ignores_everything_is_killed() {
    let config = ProcessConfig {
        patience: Duration::from_millis(50),
        grace: Duration::from_millis(50),
        ..shell("trap '' TERM; echo ready; while :; do sleep 1000; done")
    };
    let (process, mut pipes) = Process::start(&config).unwrap();
    assert_eq!(first_line(&mut pipes.output).await, "ready");
    assert_eq!(process.end().await.unwrap().0, Ending::Killed);

    let config = ProcessConfig { patience: Duration::from_millis(50), ..shell("exec sleep 1000") };
    let (process, _pipes) = Process::start(&config).unwrap();
    assert_eq!(process.end().await.unwrap().0, Ending::Terminated);
}

#[tokio::test]
async fn a_dropped_process_is_killed_with_its_group() {
    let (process, mut pipes) = Process::start(&shell("sleep 1000 & echo $!; wait")).unwrap();
    let child = first_line(&mut pipes.output).await;
    drop(process);
    gone(&child).await;
}

#[tokio::test]
async fn a_child_that_left_the_group_is_killed_too() {
    let (process, mut pipes) = Process::start(&shell("setsid sleep 1000 & echo $!; cat")).unwrap();
    let child = first_line(&mut pipes.output).await;
    drop(pipes.input);
    assert_eq!(process.end().await.unwrap().0, Ending::ByItself);
    gone(&child).await;
}

#[tokio::test]
async fn the_end_of_an_agent_is_noticed_whatever_its_children_do() {
    let (process, mut pipes) = Process::start(&shell("sleep 1000 & echo $!; read -r line; exit 3")).unwrap();
    let child = first_line(&mut pipes.output).await;
    let group = process.group();
    {
        let mut exited = pin!(group.exited());
        assert!(timeout(Duration::ZERO, exited.as_mut()).await.is_err(), "it waits for its input");
        drop(pipes.input);
        timeout(Duration::from_mins(1), exited).await.expect("the end is noticed");
    }
    assert_eq!(process.end().await.unwrap().1.code(), Some(3), "it was not reaped before");
    gone(&child).await;
}

#[tokio::test]
async fn only_the_end_of_the_error_output_is_kept() {
    let config = ProcessConfig { log_bytes: 8, ..shell("seq 100000 >&2; echo the end >&2") };
    let (process, pipes) = Process::start(&config).unwrap();
    let log = process.log().clone();
    log.clone().fill(pipes.errors, process.group()).await;
    assert_eq!(log.text(), "the end");
}

#[tokio::test]
async fn the_log_of_an_agent_holds_no_keys() {
    let said = "cannot read /etc/x: 401 Incorrect API key provided: sk-proj-0123456789abcdef.";
    let (process, pipes) =
        Process::start(&shell(&format!("echo '{said}' >&2; echo 'token=ghp_0123456789abcdef' >&2"))).unwrap();
    let log = process.log().clone();
    log.clone().fill(pipes.errors, process.group()).await;
    assert_eq!(
        log.text(),
        "cannot read /etc/x: 401 Incorrect API key provided: <redacted-key>.\ntoken=<redacted-key>"
    );
}
