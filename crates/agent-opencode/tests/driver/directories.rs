//! The number of directories that OpenCode has open.

use longshore_engine::port::{Admission, Admitted, SessionWatch as _, with_caller};
use longshore_model::{ErrorKind, Principal};
use longshore_testkit::fake_opencode::{Fault, Gate, Turn as Script};

use super::outages::at_once;
use super::*;

fn bench(total: usize, per_principal: usize, idle: Option<Duration>) -> Bench {
    let fake = FakeOpenCode::start();
    for name in ["a", "b", "c", "d"] {
        std::fs::create_dir(fake.workspace().join(name)).expect("a directory can be made");
    }
    let limits = DirectoryLimits { total, per_principal, idle };
    Bench::with(fake, None, PATIENCE, |config| config.directories = limits)
}

impl Bench {
    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.fake.directory())
    }

    async fn admit(&self, caller: &str, name: &str) -> Result<Admitted> {
        let options = PromptOptions::default();
        let admission =
            Admission { directory: Some(name), workspace: None, current: None, options: &options };
        with_caller(Principal::new(caller), self.agent.admit(admission)).await
    }

    /// Starts a turn for a caller.
    async fn turn_in(&self, caller: &str, name: &str, script: Script) -> (Session, Turn) {
        self.admit(caller, name).await.expect("there is room");
        self.fake.queue(script);
        let opened = self.agent.open_session(NewSession { directory: self.path(name), title: None });
        let session = with_caller(Principal::new(caller), opened).await.expect("a session");
        let started = with_caller(Principal::new(caller), self.start(&session, "go")).await;
        (session, started.expect("the turn starts").1)
    }

    /// The directories that the gateway has closed.
    fn closed(&self) -> Vec<String> {
        let log = self.fake.log();
        let closed = log.iter().filter(|request| request.path == "/instance/dispose");
        closed.map(|request| request.directory.clone()).collect()
    }
}

#[tokio::test]
async fn a_caller_with_turns_in_too_many_directories_is_refused_before_another_is_opened() {
    let bench = bench(3, 2, None);
    let gate = Gate::new();
    let mut turns = Vec::new();
    for name in ["a", "b"] {
        turns.push(bench.turn_in("ada", name, Script::new().hold(&gate)).await.1);
        gate.reached().await;
    }
    let refused = bench.admit("ada", "c").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooManyRequests, "{refused:?}");
    let details = |error: &longshore_model::Error| format!("{:?}", error.details());
    assert!(details(&refused).contains("directories_per_principal"), "{refused:?}");
    assert!(refused.retry_after().is_some());
    // The root and a directory that is open already cost nothing.
    bench.admit("ada", ".").await.expect("the root is always open");
    bench.admit("ada", "a").await.expect("it is open");

    turns.push(bench.turn_in("bob", "c", Script::new().hold(&gate)).await.1);
    gate.reached().await;
    let refused = bench.admit("bob", "d").await.unwrap_err();
    assert!(details(&refused).contains(r#""directories""#), "{refused:?}");
    assert!(bench.fake.log().iter().all(|request| request.directory != bench.path("d")));
    assert_eq!(bench.closed(), [""; 0]);
    gate.open();
    for turn in turns {
        assert_eq!(outcome(&all(turn).await), "completed");
    }
    bench.stop().await;
}

#[tokio::test]
async fn an_idle_directory_is_closed_for_another_and_works_again() {
    for (total, per_principal) in [(1, 0), (0, 1)] {
        let bench = bench(total, per_principal, None);
        let (session, turn) = bench.turn_in("ada", "a", Script::new().text("one", 1)).await;
        all(turn).await;
        let (_, turn) = bench.turn_in("ada", "b", Script::new().text("two", 1)).await;
        assert_eq!(text_of(&all(turn).await), "two");
        assert_eq!(bench.closed(), [bench.path("a")]);
        // The session of the closed directory.
        bench.fake.queue(Script::new().text("three", 1));
        let started = with_caller(Principal::new("ada"), bench.start(&session, "go")).await;
        assert_eq!(text_of(&all(started.expect("the turn starts").1).await), "three");
        assert_eq!(bench.closed(), [bench.path("a"), bench.path("b")]);
        bench.stop().await;
    }
}

/// The close would abort that turn.
#[tokio::test]
async fn a_directory_in_which_another_client_works_is_not_closed() {
    let bench = bench(1, 0, None);
    let (session, turn) = bench.turn_in("ada", "a", Script::new().text("one", 1)).await;
    all(turn).await;
    let gate = Gate::new();
    bench.fake.queue(Script::new().hold(&gate));
    bench.fake.other_client(session.id.as_str()).types("go").await;
    gate.reached().await;
    assert_eq!(bench.admit("ada", "b").await.unwrap_err().kind(), ErrorKind::TooManyRequests);
    assert_eq!(bench.closed(), [""; 0]);
    gate.open();
    bench.fake.wait_until_idle().await;
    bench.admit("ada", "b").await.expect("there is room");
    bench.stop().await;
}

#[tokio::test]
async fn a_directory_is_closed_when_it_was_not_used_for_a_while() {
    let bench = bench(0, 0, Some(Duration::from_millis(100)));
    let gate = Gate::new();
    let (_, running) = bench.turn_in("ada", "b", Script::new().hold(&gate)).await;
    gate.reached().await;
    let (_, turn) = bench.turn_in("ada", "a", Script::new().text("one", 1)).await;
    all(turn).await;
    bench.fake.wait_for_request("POST", "/instance/dispose", 1).await;
    assert_eq!(bench.closed(), [bench.path("a")], "a turn runs in the other");
    gate.open();
    assert_eq!(outcome(&all(running).await), "completed");
    bench.fake.wait_for_request("POST", "/instance/dispose", 2).await;
    assert_eq!(bench.closed()[1], bench.path("b"));
    bench.stop().await;
}

/// OpenCode has the request, and will abort whatever starts there.
#[tokio::test]
async fn nobody_enters_a_directory_before_its_close_has_ended_even_if_nobody_waits_for_that() {
    for caller_leaves in [true, false] {
        let bench = bench(1, 0, None);
        let (session, turn) = bench.turn_in("ada", "a", Script::new().text("one", 1)).await;
        all(turn).await;
        let gate = Gate::new();
        bench.fake.fault_once("POST", "/instance/dispose", Fault::Hold(gate.clone()));
        let mut other = Box::pin(bench.admit("ada", "b"));
        tokio::select! {
            admitted = other.as_mut() => panic!("the close is held: {admitted:?}"),
            () = gate.reached() => {}
        }
        if caller_leaves {
            drop(other);
        } else {
            pass(Duration::from_secs(6)).await;
            assert_eq!(other.await.unwrap_err().kind(), ErrorKind::TooManyRequests);
        }
        let mut again = Box::pin(bench.admit("ada", "a"));
        assert!(futures_util::poll!(again.as_mut()).is_pending());
        pass(Duration::from_secs(6)).await;
        assert_eq!(again.await.unwrap_err().kind(), ErrorKind::UpstreamBackpressure);

        bench.fake.queue(Script::new().text("two", 1));
        let started = with_caller(Principal::new("ada"), bench.start(&session, "go"));
        let (started, ()) = tokio::join!(started, async { gate.open() });
        assert_eq!(text_of(&all(started.expect("the turn starts").1).await), "two");
        assert_eq!(bench.closed(), [bench.path("a")]);
        bench.stop().await;
    }
}

/// Lets this time pass at once.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_directory_that_cannot_be_closed_is_still_watched() {
    for is_busy in [true, false] {
        let bench = bench(1, 0, None);
        let mut external_turns = bench.agent.external_turns();
        let (session, turn) = bench.turn_in("ada", "a", Script::new().text("one", 1)).await;
        all(turn).await;
        let gate = Gate::new();
        if is_busy {
            // In a session that the gateway does not know.
            bench.fake.add_session("ses_theirs", &bench.path("a"));
            bench.fake.queue(Script::new().hold(&gate));
            bench.fake.other_client("ses_theirs").types("go").await;
            gate.reached().await;
        } else {
            bench.fake.fault_always("POST", "/instance/dispose", Fault::Status(500));
        }
        bench.admit("ada", "b").await.unwrap_err();
        bench.fake.queue(Script::new().text("two", 1));
        let prompt = bench.fake.other_client(session.id.as_str()).types("go").await;
        let found = at_once("the external turn", external_turns.recv()).await.expect("it is watched");
        assert_eq!(found.prompt.as_str(), prompt);
        gate.open();
        bench.stop().await;
    }
}

#[tokio::test]
async fn a_turn_that_already_runs_is_resumed_beyond_the_limits() {
    let bench = bench(1, 1, None);
    let gate = Gate::new();
    let (_, running) = bench.turn_in("ada", "a", Script::new().hold(&gate)).await;
    gate.reached().await;
    bench.fake.add_session("ses_b", &bench.path("b"));
    let session = Session { id: SessionId::parse("ses_b").unwrap(), directory: bench.path("b") };
    let prompt = new_prompt();
    let resumed = bench.resume(&session, &prompt, Resume::default());
    drop(with_caller(Principal::new("ada"), resumed).await);
    gate.open();
    assert_eq!(outcome(&all(running).await), "completed");
    bench.stop().await;
}

#[tokio::test]
async fn a_shared_directory_counts_for_a_caller_while_its_turn_runs_there() {
    let bench = bench(0, 1, None);
    let gate = Gate::new();
    let (_, running) = bench.turn_in("ada", "a", Script::new().hold(&gate)).await;
    gate.reached().await;
    bench.admit("bob", "a").await.expect("it is open");
    assert_eq!(bench.admit("ada", "b").await.unwrap_err().kind(), ErrorKind::TooManyRequests);
    bench.admit("bob", "b").await.expect("nothing of this caller runs in the first");
    gate.open();
    assert_eq!(outcome(&all(running).await), "completed");
    bench.admit("ada", "c").await.expect("there is room");
    bench.stop().await;
}

/// As after a restart of the gateway: OpenCode has the directory open, and no caller has used it yet.
#[tokio::test]
async fn a_directory_that_is_only_watched_is_counted_and_closed_for_another() {
    let bench = bench(1, 0, None);
    let _external_turns = bench.agent.external_turns();
    bench.fake.add_session("ses_a", &bench.path("a"));
    let session = Session { id: SessionId::parse("ses_a").unwrap(), directory: bench.path("a") };
    bench.agent.watch(vec![session]);
    bench.fake.wait_for_streams(1).await;
    bench.admit("ada", "b").await.expect("there is room");
    assert_eq!(bench.closed(), [bench.path("a")]);
    bench.stop().await;
}
