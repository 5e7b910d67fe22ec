//! ACP agents that break the rules: each script harms only its own turn, and the next turn works.

use std::time::Duration;

use longshore_engine::port::{Input, NewSession, Prompting, Session, Turn, TurnRequest};
use longshore_model::{AgentEvent, Error, ErrorKind, Outcome, PromptId, PromptOptions, Result, TaskId};
use longshore_testkit::agent_suite::{AgentUnderTest, PATIENCE, Received};
use longshore_testkit::fake_acp::{Action, Options};
use longshore_testkit::fake_opencode::Gate;
use longshore_testkit::gateway::until;
use longshore_testkit::process::ProcessResources;
use serde_json::Value;
use tokio::time::timeout;

use super::acp::OverStdio;

fn text(text: &str) -> Action {
    Action::Text(text.to_owned())
}

fn word(word: &str) -> String {
    word.to_owned()
}

fn ask() -> Action {
    Action::Ask { call: word("late"), command: word("rm x"), skip: 0 }
}

impl OverStdio {
    async fn session(&self) -> Session {
        self.try_session().await.expect("a session")
    }

    async fn try_session(&self) -> Result<Session> {
        let directory =
            self.workspace().canonicalize().expect("a directory").to_str().expect("UTF-8").to_owned();
        timeout(PATIENCE, self.agent().open_session(NewSession { directory, title: None }))
            .await
            .expect("an answer in time")
    }

    async fn try_start(&self, session: &Session, prompt: &str) -> Result<Turn> {
        let agent = self.agent();
        let request = TurnRequest {
            task: TaskId::parse("task-1").expect("an id"),
            session: session.clone(),
            prompt: PromptId::parse("prompt").expect("an id"),
            input: vec![Input::Text(prompt.to_owned())],
            options: PromptOptions::default(),
            order: None,
            is_adopted: false,
            resume: None,
            prompting: Prompting::default(),
            trace: None,
        };
        timeout(PATIENCE, agent.start_turn(request)).await.expect("the turn starts in time")
    }

    /// Waits until an agent that failed with this error is back.
    async fn wait_after(&self, error: &Error) {
        assert_eq!(error.kind(), ErrorKind::AgentUnavailable, "{error}");
        timeout(PATIENCE, self.agent().until_back()).await.expect("the agent comes back");
    }

    /// A turn with this script. An agent that is down is waited for.
    async fn start(&self, session: &Session, script: Vec<Action>) -> Turn {
        self.fake().queue(script);
        loop {
            match self.try_start(session, "go").await {
                Ok(turn) => return turn,
                Err(error) => self.wait_after(&error).await,
            }
        }
    }
}

/// The text and the outcome of a turn.
async fn rest(mut turn: Turn) -> (String, Outcome) {
    let mut said = String::new();
    loop {
        match timeout(PATIENCE, turn.events.recv()).await.expect("the turn goes on") {
            Some(AgentEvent::Text { text, .. }) => said.push_str(&text),
            Some(AgentEvent::Ended(outcome)) => {
                assert_eq!(turn.events.recv().await, None, "something follows the end");
                return (said, outcome);
            }
            Some(_) => {}
            None => panic!("the turn has no end"),
        }
    }
}

fn is_failed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(failure) if failure.message.len() > 10)
}

fn is_completed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Completed { .. })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_breaks_the_rules_harms_only_its_own_turn() {
    type Case = (&'static str, Vec<Action>, &'static str, fn(&Outcome) -> bool);
    let end = || Action::Answer(word("end_turn"));
    let cases: [Case; 6] = [
        ("two answers", vec![text("one"), end(), end()], "one", is_completed),
        ("an ask after the end", vec![text("one"), end(), ask()], "one", is_completed),
        (
            "a tool that never ends",
            vec![Action::BeginTool { call: word("c"), command: word("x") }],
            "",
            is_completed,
        ),
        ("an unknown end", vec![text("one"), Action::Stop(word("bored"))], "one", |_| true),
        ("an early exit", vec![text("one"), Action::Exit(0)], "one", is_failed),
        ("a closed output", vec![text("one"), Action::CloseOutput, ask()], "one", is_failed),
    ];
    for (what, script, said, is_expected) in cases {
        let agent = OverStdio::loading();
        let session = agent.session().await;
        let (heard, outcome) = rest(agent.start(&session, script).await).await;
        assert_eq!(heard, said, "{what}");
        assert!(is_expected(&outcome), "{what}: {outcome:?}");
        let (heard, outcome) = rest(agent.start(&session, vec![text("well")]).await).await;
        assert_eq!(heard, "well", "{what}");
        assert!(is_completed(&outcome), "{what}: {outcome:?}");
        let answers = agent
            .received()
            .into_iter()
            .filter(|received| *received == Received::Answer { is_allowed: true });
        assert_eq!(answers.count(), 0, "{what}: nobody allowed anything");
        timeout(PATIENCE, agent.stop()).await.expect("the agent stops");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_after_the_end_belongs_to_no_turn() {
    let agent = OverStdio::loading();
    let session = agent.session().await;
    let said = Gate::new();
    let script = vec![text("one"), Action::Answer(word("end_turn")), text("late"), agent.fake().hold(&said)];
    let (heard, outcome) = rest(agent.start(&session, script).await).await;
    assert!(heard == "one" && is_completed(&outcome), "{heard}: {outcome:?}");
    said.reached().await;
    // The answer to this request comes after the late text. An update names only its session: while the next turn runs, late text
    // would be taken for its own.
    agent.session().await;
    said.open();
    let (heard, outcome) = rest(agent.start(&session, vec![text("well")]).await).await;
    assert!(heard == "well" && is_completed(&outcome), "{heard}: {outcome:?}");
    timeout(PATIENCE, agent.stop()).await.expect("the agent stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_ignores_a_cancel_is_replaced_and_its_child_is_killed() {
    let agent =
        OverStdio::with_patience(Options { load: true, ..Options::default() }, Duration::from_millis(300));
    let session = agent.session().await;
    let never = Gate::new();
    let script =
        vec![Action::IgnoreCancel, Action::Fork, text("one"), agent.fake().hold(&never), text("two")];
    let turn = agent.start(&session, script).await;
    never.reached().await;
    timeout(PATIENCE, agent.agent().cancel(&session)).await.expect("a cancel ends").expect("a cancel works");
    let (heard, outcome) = rest(turn).await;
    assert_eq!(heard, "one");
    assert!(!is_completed(&outcome), "{outcome:?}");
    let (heard, _) = rest(agent.start(&session, vec![text("well")]).await).await;
    assert_eq!(heard, "well");
    let reports = agent.fake().reports();
    let child = reports.iter().find_map(|report| report["forked"].as_u64()).expect("a child");
    let stat = format!("/proc/{child}/stat");
    // No event announces the end of a process that is not a child of the test.
    let gone = async {
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z")) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("the child of the agent is killed");
    let started = reports.iter().filter(|report| matches!(report["started"], Value::Number(_))).count();
    assert_eq!(started, 2, "one process was replaced");
    timeout(PATIENCE, agent.stop()).await.expect("the agent stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_lives_on_without_input_is_killed_when_the_gateway_stops() {
    let agent = OverStdio::with_patience(
        Options { ignores_end_of_input: true, ..Options::default() },
        Duration::from_millis(300),
    );
    let session = agent.session().await;
    let (heard, _) = rest(agent.start(&session, vec![text("well")]).await).await;
    assert_eq!(heard, "well");
    timeout(PATIENCE, agent.stop()).await.expect("the agent is killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_at_any_request_is_told_and_the_next_process_works() {
    for method in ["initialize", "session/new", "session/load", "session/prompt"] {
        let options = Options { load: true, dies_once_at: Some(method.to_owned()), ..Options::default() };
        let agent = OverStdio::with_patience(options, PATIENCE);
        let mut failures = 0;
        let session = loop {
            match agent.try_session().await {
                Ok(session) => break session,
                Err(error) => agent.wait_after(&error).await,
            }
            failures += 1;
        };
        if method == "session/load" {
            agent.restart_gateway().await;
        }
        agent.fake().queue(vec![text("well")]);
        let turn = loop {
            match agent.try_start(&session, "go").await {
                Ok(turn) => break turn,
                Err(error) => agent.wait_after(&error).await,
            }
            failures += 1;
        };
        let (heard, outcome) = rest(turn).await;
        if method == "session/prompt" {
            assert!(is_failed(&outcome), "{outcome:?}");
            let (heard, outcome) = rest(agent.start(&session, Vec::new()).await).await;
            assert_eq!(heard, "well", "the prompt that died took no script");
            assert!(is_completed(&outcome), "{outcome:?}");
            failures += 1;
        } else {
            assert_eq!(heard, "well", "{method}");
            assert!(is_completed(&outcome), "{method}: {outcome:?}");
        }
        assert_eq!(failures, 1, "{method}: one death, one failure");
        timeout(PATIENCE, agent.stop()).await.expect("the agent stops");
    }
}

/// The rest of what the fake can do: it logs in, has modes and models, and takes a script from the text of a prompt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_a_mode_a_model_and_a_script_in_a_prompt_are_used() {
    let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    let options = Options {
        auth: Some("key".to_owned()),
        modes: names(["ask", "plan"]),
        models: names(["small", "large"]),
        resume: true,
        ..Options::default()
    };
    let agent = OverStdio::with_config(options, PATIENCE, |config| {
        config.auth_method = Some("key".to_owned());
        config.mode = Some("plan".to_owned());
        config.model = Some("large".to_owned());
    });
    let session = agent.session().await;
    let stopped = agent.workspace().join("go on");
    let script =
        [text("in "), Action::HoldForFile(stopped.to_str().expect("UTF-8").to_owned()), text("time")];
    let prompt = serde_json::to_string(&script).expect("JSON");
    let turn = agent.try_start(&session, &prompt).await.expect("the turn starts");
    std::fs::write(&stopped, "").expect("a file");
    assert_eq!(rest(turn).await.0, "in time");
    let called: Vec<String> = agent
        .fake()
        .reports()
        .iter()
        .filter_map(|report| Some(report["called"].as_str()?.to_owned()))
        .collect();
    assert_eq!(
        called,
        [
            "initialize",
            "authenticate",
            "session/new",
            "session/set_model",
            "session/set_mode",
            "session/prompt"
        ]
    );
    timeout(PATIENCE, agent.stop()).await.expect("the agent stops");
}

/// 96 megabytes that nobody reads, and a bound of 32 for all turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_a_flood_that_is_not_read_does_not_fill_the_memory() {
    const CHUNK: usize = 64 * 1024;
    const CHUNKS: usize = 1_500;
    let agent = OverStdio::loading();
    let session = agent.session().await;
    let before = ProcessResources::of(std::process::id()).memory;
    let turn = agent.start(&session, vec![Action::Flood { chunks: CHUNKS, letters: CHUNK }]).await;
    // No event announces that all queues are full.
    let mut most = before;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        most = most.max(ProcessResources::of(std::process::id()).memory);
    }
    let grown = (most - before) / 1024;
    assert!(grown < 80, "the memory grew by {grown} MB");
    assert!(grown > 8, "the flood did not come: the memory grew by {grown} MB");
    let (heard, outcome) = rest(turn).await;
    assert_eq!(heard.len(), CHUNK * CHUNKS);
    assert!(is_completed(&outcome), "{outcome:?}");
    timeout(PATIENCE, agent.stop()).await.expect("the agent stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_sessions_work_at_once_on_one_process() {
    const SESSIONS: usize = 200;
    // Fewer sessions may be open than turns run.
    let options = Options { close: true, load: true, ..Options::default() };
    let agent = OverStdio::with_config(options, PATIENCE, |config| config.limits.open_sessions = 16);
    let gate = Gate::new();
    let mut running = Vec::new();
    for number in 0..SESSIONS {
        let session = agent.session().await;
        let script = vec![text(&format!("{number} ")), agent.fake().hold(&gate), text("done")];
        running.push((agent.start(&session, script).await, session));
    }
    gate.open();
    let (turns, sessions): (Vec<_>, Vec<_>) = running.into_iter().unzip();
    for (number, turn) in turns.into_iter().enumerate() {
        assert_eq!(rest(turn).await, (format!("{number} done"), Outcome::Completed { remark: None }));
    }
    let called = |method: &str| -> Vec<Value> {
        agent.fake().reports().into_iter().filter(|report| report["called"] == method).collect()
    };
    until(PATIENCE, "unused sessions are closed", || called("session/close").len() == SESSIONS - 16).await;
    // The turns end in any order, so any session may be among those that stay open. A closed one works again.
    let closed = called("session/close").remove(0)["session"].clone();
    let closed = sessions.iter().find(|session| session.id.as_str() == closed).expect("a closed session");
    let again = agent.start(closed, vec![text("again")]).await;
    assert_eq!(rest(again).await.0, "again");
    assert_eq!((called("session/prompt").len(), called("session/load").len()), (SESSIONS + 1, 1));
    assert_eq!(called("initialize").len(), 1, "one process");
    agent.stop().await;
}
