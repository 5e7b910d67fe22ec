use longshore_engine::Tasks;
use longshore_model::{AgentEvent, Answer, ErrorKind, Outcome, PromptId, SessionId};
use serde_json::Value;
use tokio::io::{AsyncWriteExt as _, split};

use super::*;
use crate::content::PromptBlock;
use crate::peer::Peer;
use crate::translate::SessionTotals;
use crate::turn::Turn;

fn connect_with(limits: Limits) -> (Connection, Peer, Tasks) {
    connect_counting(limits, Arc::default())
}

fn connect_counting(limits: Limits, metrics: Arc<Metrics>) -> (Connection, Peer, Tasks) {
    let (peer, ours) = Peer::new();
    let (output, input) = split(ours);
    let (connection, driver) = Connection::new(output, input, limits, metrics);
    let tasks = Tasks::new();
    tasks.spawn("connection", driver.run());
    (connection, peer, tasks)
}

fn connect() -> (Connection, Peer, Tasks) {
    connect_with(Limits::default())
}

/// A connection with an open session `s`.
async fn with_session() -> (Connection, Peer, Tasks) {
    let (connection, mut peer, tasks) = connect();
    open(&connection, &mut peer, "s", json!({})).await;
    (connection, peer, tasks)
}

async fn open(connection: &Connection, peer: &mut Peer, id: &str, mut answer: Value) {
    answer["sessionId"] = id.into();
    let (opened, _) = tokio::join!(connection.new_session("/w", &[]), peer.answer("session/new", answer));
    assert_eq!(opened.unwrap().id, id);
}

fn say(text: &str) -> Vec<PromptBlock> {
    vec![PromptBlock::Text { text: text.to_owned() }]
}

fn turn(connection: &Connection, session: &str) -> Turn {
    let prompt = PromptId::parse("p").unwrap();
    Turn::start(connection, SessionId::parse(session).unwrap(), &prompt, &say("hi")).unwrap()
}

/// All events to the end of the turn.
async fn rest(turn: &mut Turn) -> Vec<AgentEvent> {
    let mut events = Vec::new();
    let all = async {
        while let Some(more) = turn.next().await {
            events.extend(more);
        }
    };
    timeout(Duration::from_secs(30), all).await.expect("the turn ends");
    events
}

fn outcome(events: &[AgentEvent]) -> &Outcome {
    match events.last() {
        Some(AgentEvent::Ended(outcome)) => outcome,
        other => panic!("the last event is {other:?}"),
    }
}

fn texts(events: &[AgentEvent]) -> String {
    let text = |event: &AgentEvent| match event {
        AgentEvent::Text { text, .. } => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

#[tokio::test]
async fn the_handshake_offers_no_files_and_no_terminals() {
    let (connection, mut peer, _tasks) = connect();
    let answer = json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true}, "agentInfo": {"name": "a", "version": "2"}});
    let (about, request) = tokio::join!(connection.initialize(), peer.answer("initialize", answer));
    assert_eq!(about.unwrap().agent_info.version, "2");
    let offered = json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false});
    assert_eq!(request["params"]["clientCapabilities"], offered);
    assert!(connection.offers("session/load") && !connection.offers("session/list"));
}

#[tokio::test]
async fn another_version_of_the_protocol_is_an_error_that_lasts() {
    for version in [json!(2), json!(0), Value::Null] {
        let (connection, mut peer, _tasks) = connect();
        let answer = json!({"protocolVersion": version});
        let (about, _) = tokio::join!(connection.initialize(), peer.answer("initialize", answer));
        let error = about.unwrap_err().into_error("start");
        assert!(
            error.is_permanent() && error.message().contains("of ACP, and this gateway speaks version 1"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_login_that_is_missing_is_reported_with_the_agents_methods() {
    let (connection, mut peer, _tasks) = connect();
    let answer = json!({"protocolVersion": 1, "authMethods": [{"id": "opencode-login", "name": "Log in", "description": "Run `opencode auth login`"}]});
    let _ = tokio::join!(connection.initialize(), peer.answer("initialize", answer));
    let (opened, ()) = tokio::join!(
        connection.new_session("/w", &[]),
        peer.fail("session/new", -32000, "Authentication required")
    );
    let error = opened.unwrap_err().into_error("open a session");
    assert_eq!((error.kind(), error.is_permanent()), (ErrorKind::AgentUnavailable, true));
    assert_eq!(
        error.message(),
        "The agent could not open a session: it wants a login first. Method `opencode-login`: Log in (Run `opencode auth login`)."
    );
    let (logged_in, request) =
        tokio::join!(connection.authenticate("opencode-login"), peer.answer("authenticate", Value::Null));
    assert_eq!((logged_in, &request["params"]["methodId"]), (Ok(()), &json!("opencode-login")));
}

#[tokio::test(start_paused = true)]
async fn updates_before_the_answer_that_names_their_session_are_kept_within_bounds() {
    let limits = Limits { start: Duration::from_mins(5), ..Limits::default() };
    let (connection, mut peer, _tasks) = connect_with(limits);
    let unknown = || connection.ignored().get("update of an unknown session").copied().unwrap_or_default();
    let commands =
        || json!({"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "init"}]});
    let playing = async {
        let (first, second) = (peer.get().await, peer.get().await);
        peer.update("s", commands()).await;
        for number in 0..200 {
            peer.update(&format!("other-{number}"), json!({"sessionUpdate": "current_mode_update"})).await;
        }
        peer.say(&json!({"id": first["id"], "result": {"sessionId": "s"}})).await;
        while connection.facts("s").is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(unknown(), 201 - 64, "the number is bounded");
        // The other updates are too old when the second response comes.
        tokio::time::advance(Duration::from_secs(61)).await;
        peer.update("t", commands()).await;
        peer.update("nobody", commands()).await;
        while unknown() < 200 {
            tokio::task::yield_now().await;
        }
        peer.say(&json!({"id": second["id"], "result": {"sessionId": "t"}})).await;
    };
    let (first, second, ()) =
        tokio::join!(connection.new_session("/w", &[]), connection.new_session("/w", &[]), playing);
    assert_eq!((first.unwrap().id.as_str(), second.unwrap().id.as_str()), ("s", "t"));
    for session in ["s", "t"] {
        assert_eq!(connection.facts(session).unwrap().commands.unwrap().entries[0].name, "init");
    }
    assert_eq!(unknown(), 201, "no session is being opened any more");
}

#[tokio::test]
async fn an_advertised_method_that_is_missing_counts_as_absent_and_load_takes_its_place() {
    let (connection, mut peer, _tasks) = connect();
    let answer = json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true, "sessionCapabilities": {"resume": {}}}});
    let _ = tokio::join!(connection.initialize(), peer.answer("initialize", answer));
    let playing = async {
        peer.fail("session/resume", -32601, "Method not found").await;
        let request = peer.get().await;
        assert_eq!(request["method"], "session/load");
        peer.update(
            "s",
            json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "old"}}),
        )
        .await;
        peer.text("s", "reply").await;
        peer.say(&json!({"id": request["id"], "result": null})).await;
    };
    let (opened, ()) = tokio::join!(connection.reopen_session("s", "/w", &[]), playing);
    let replay = opened.unwrap().replay.unwrap();
    assert_eq!((replay.last.prompt.as_str(), replay.last.reply.as_str()), ("old", "reply"));
    assert!(!connection.offers("session/resume"));
    assert_eq!(connection.list_sessions(None, None).await, Err(CallError::Unsupported("a list of sessions")));
}

#[tokio::test(start_paused = true)]
async fn a_load_may_take_long_while_the_agent_goes_on_with_a_turn_that_broke_off() {
    let (connection, mut peer, _tasks) = connect();
    let answer = json!({"protocolVersion": 1, "agentCapabilities": {"loadSession": true}});
    let _ = tokio::join!(connection.initialize(), peer.answer("initialize", answer));
    let playing = async {
        let request = peer.get().await;
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(50)).await;
            peer.text("s", "more").await;
        }
        peer.say(&json!({"id": request["id"], "result": {}})).await;
    };
    let (opened, ()) = tokio::join!(connection.load_session("s", "/w", &[]), playing);
    assert_eq!(opened.unwrap().replay.unwrap().last.reply, "more".repeat(5));

    let silent = connection.load_session("t", "/w", &[]);
    let after = Limits::default().start;
    assert_eq!(silent.await, Err(CallError::TimedOut { method: "session/load", after }));
    assert_eq!(connection.facts("t"), None, "whether the agent opened it is not known");
}

#[tokio::test]
async fn the_events_of_a_turn_end_with_the_answer_to_its_prompt() {
    let (connection, mut peer, _tasks) = with_session().await;
    let mut turn = turn(&connection, "s");
    assert_eq!(connection.prompt("s", &say("again")).err(), Some(CallError::Busy));
    let request = peer.get().await;
    assert_eq!(request["params"]["prompt"], json!([{"type": "text", "text": "hi"}]));
    peer.text("s", "a").await;
    peer.text("unknown", "x").await;
    peer.text("s", "b").await;
    peer.say(&json!({"id": request["id"], "result": {"stopReason": "end_turn"}})).await;
    // A second response, or updates after the end, change nothing.
    peer.say(&json!({"id": request["id"], "result": {"stopReason": "cancelled"}})).await;
    peer.text("s", "late").await;
    peer.ask("s", json!(0)).await;
    assert_eq!(peer.get().await["result"]["outcome"]["outcome"], "cancelled");
    let events = rest(&mut turn).await;
    assert_eq!((texts(&events).as_str(), outcome(&events)), ("ab", &Outcome::Completed { remark: None }));
    let counted = connection.ignored();
    assert_eq!((counted["answer to no request"], counted["update outside of a turn"]), (1, 1));
    assert_eq!(counted["permission request outside of a turn"], 1);
    assert!(connection.prompt("s", &say("next")).is_ok());
}

#[tokio::test]
async fn what_the_agent_sends_in_vain_is_counted_by_reason_and_harms_no_turn() {
    let metrics = Arc::<Metrics>::default();
    let (connection, mut peer, _tasks) = connect_counting(Limits::default(), Arc::clone(&metrics));
    open(&connection, &mut peer, "s", json!({})).await;
    let telepathy = json!({"sessionUpdate": "telepathy"});
    // The same update outside of a turn, in an unknown session, and in a turn.
    peer.update("s", telepathy.clone()).await;
    peer.update("nobody", telepathy.clone()).await;
    peer.say_raw("no message\n").await;
    let mut turn = turn(&connection, "s");
    let prompt = peer.get().await;
    peer.update("s", telepathy).await;
    peer.update("s", json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "smell"}})).await;
    peer.say(&json!({"method": "session/dream"})).await;
    peer.say(&json!({"id": 99, "result": {}})).await;
    peer.text("s", "well").await;
    peer.end(&prompt, "end_turn").await;
    let events = rest(&mut turn).await;
    assert_eq!((texts(&events).as_str(), outcome(&events)), ("well", &Outcome::Completed { remark: None }));
    let ignored = connection.ignored();
    assert_eq!(
        (ignored["update telepathy"], ignored["content smell"], ignored["notification session/dream"]),
        (3, 1, 1)
    );
    let of = |why| metrics.acp_ignored.of(why).get();
    let counted =
        [WhyIgnored::Unknown, WhyIgnored::Unread, WhyIgnored::Unexpected, WhyIgnored::TooMuch].map(of);
    assert_eq!(counted, [5, 1, 1, 0]);
}

#[tokio::test]
async fn a_permission_request_is_answered_once_with_the_agents_own_option() {
    let (connection, mut peer, _tasks) = with_session().await;
    let mut turn = turn(&connection, "s");
    let prompt = peer.get().await;
    peer.ask("s", json!(0)).await;
    peer.ask("s", json!("a-1")).await;
    let mut asks = Vec::new();
    while asks.len() < 2 {
        let events = turn.next().await.unwrap();
        asks.extend(events.into_iter().filter_map(|event| match event {
            AgentEvent::Asked(ask) => Some(ask.request_id),
            _ => None,
        }));
    }
    let refused = turn.reply(&asks[0], &Answer::permission("perhaps", None)).unwrap_err();
    assert!(refused.message().contains("Name one of: y (Yes), cancel (No)."), "{refused}");
    turn.reply(&asks[1], &Answer::permission("reject", None)).unwrap();
    turn.reply(&asks[0], &Answer::permission("Yes", None)).unwrap();
    let again = turn.reply(&asks[0], &Answer::permission("once", None)).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::InterruptNotFound);
    for (id, option) in [(json!("a-1"), "cancel"), (json!(0), "y")] {
        let answer = peer.get().await;
        assert_eq!(
            answer,
            json!({"jsonrpc": "2.0", "id": id, "result": {"outcome": {"outcome": "selected", "optionId": option}}})
        );
    }
    peer.say(&json!({"id": prompt["id"], "result": {"stopReason": "end_turn"}})).await;
    assert_eq!(outcome(&rest(&mut turn).await), &Outcome::Completed { remark: None });
    // The end of a turn closes only open requests, and none is open: the next message of the gateway is a new request.
    open(&connection, &mut peer, "t", json!({})).await;
}

#[tokio::test]
async fn cancel_first_answers_the_open_permission_requests() {
    let (connection, mut peer, _tasks) = with_session().await;
    let mut turn = turn(&connection, "s");
    let prompt = peer.get().await;
    peer.ask("s", json!(0)).await;
    turn.next().await.unwrap();
    turn.cancel().unwrap();
    let cancelled = json!({"outcome": {"outcome": "cancelled"}});
    let answer = peer.get().await;
    assert_eq!((&answer["id"], &answer["result"]), (&json!(0), &cancelled));
    let notice = peer.get().await;
    assert_eq!(
        (&notice["method"], &notice["params"], notice.get("id")),
        (&json!("session/cancel"), &json!({"sessionId": "s"}), None)
    );
    // A request that the agent sent before it read the cancel is answered at once.
    peer.ask("s", json!(1)).await;
    let answer = peer.get().await;
    assert_eq!((&answer["id"], &answer["result"]), (&json!(1), &cancelled));
    peer.say(&json!({"id": prompt["id"], "result": {"stopReason": "cancelled"}})).await;
    assert!(
        matches!(outcome(&rest(&mut turn).await), Outcome::Canceled { reason } if reason == "The turn was stopped.")
    );
    connection.cancel("s").unwrap();
    connection.cancel("nobody").unwrap();
}

#[tokio::test]
async fn requests_of_the_agent_that_are_not_served_get_an_answer() {
    let (_connection, mut peer, _tasks) = with_session().await;
    peer.say(
        &json!({"id": 5, "method": "fs/read_text_file", "params": {"sessionId": "s", "path": "/etc/passwd"}}),
    )
    .await;
    assert_eq!(peer.get().await["error"]["code"], -32601);
    // Even an unreadable permission request gets no error, because one agent would lose its session.
    peer.say(&json!({"id": 6, "method": "session/request_permission", "params": []})).await;
    assert_eq!(peer.get().await["result"]["outcome"]["outcome"], "cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_fails_after_its_limit_and_a_late_answer_is_dropped() {
    let (connection, mut peer, _tasks) = connect();
    let error = connection.new_session("/w", &[]).await.unwrap_err();
    assert_eq!(error, CallError::TimedOut { method: "session/new", after: Limits::default().start });
    let late = peer.get().await;
    peer.say(&json!({"id": late["id"], "result": {"sessionId": "s"}})).await;
    let (opened, _) = tokio::join!(
        connection.new_session("/w", &[]),
        peer.answer("session/new", json!({"sessionId": "t"}))
    );
    assert_eq!(opened.unwrap().id, "t");
    assert_eq!(connection.ignored()["answer to no request"], 1);
    assert_eq!(connection.facts("s"), None);
}

/// An agent that opens, loads and closes sessions.
async fn connect_with_sessions() -> (Connection, Peer, Tasks) {
    let (connection, mut peer, tasks) = connect();
    let capabilities = json!({"loadSession": true, "sessionCapabilities": {"close": {}}});
    let answer = json!({"protocolVersion": 1, "agentCapabilities": capabilities});
    let (about, _) = tokio::join!(connection.initialize(), peer.answer("initialize", answer));
    about.unwrap();
    (connection, peer, tasks)
}

/// Polls a future once and drops it, as if its task had been canceled.
async fn give_up(future: impl Future) {
    assert!(timeout(Duration::ZERO, future).await.is_err());
}

#[tokio::test]
async fn a_session_that_nobody_waits_for_any_more_is_closed_when_the_agent_has_opened_it() {
    let (connection, mut peer, _tasks) = connect_with_sessions().await;
    give_up(connection.new_session("/w", &[])).await;
    peer.answer("session/new", json!({"sessionId": "unwanted"})).await;
    let close = peer.answer("session/close", json!({})).await;
    assert_eq!(close["params"]["sessionId"], "unwanted");
    give_up(connection.load_session("old", "/w", &[])).await;
    peer.answer("session/load", json!({})).await;
    let close = peer.answer("session/close", json!({})).await;
    assert_eq!(close["params"]["sessionId"], "old");
    // Two kinds of sessions are not closed: one that the agent did not open, and one that another turn loads by then.
    give_up(connection.load_session("gone", "/w", &[])).await;
    peer.fail("session/load", -32002, "no such session").await;
    give_up(connection.load_session("old", "/w", &[])).await;
    let first = peer.get().await;
    let loading = async {
        peer.say(&json!({"id": first["id"], "result": {}})).await;
        peer.answer("session/load", json!({})).await
    };
    let (loaded, _) = tokio::join!(connection.load_session("old", "/w", &[]), loading);
    loaded.unwrap();
    // The next message is the request of this call, and not one that closes another session.
    let (closed, _) = tokio::join!(connection.close_session("old"), peer.answer("session/close", json!({})));
    closed.unwrap();
}

#[tokio::test]
async fn a_connection_that_ends_ends_its_turns_and_requests() {
    let (connection, mut peer, _tasks) = with_session().await;
    let mut turn = turn(&connection, "s");
    peer.get().await;
    peer.text("s", "half").await;
    let playing = async {
        peer.get().await;
        drop(peer);
    };
    let (opened, ()) = tokio::join!(connection.new_session("/w", &[]), playing);
    assert!(matches!(opened, Err(CallError::Closed(_))), "{opened:?}");
    let events = rest(&mut turn).await;
    assert_eq!(texts(&events), "half");
    assert!(
        matches!(outcome(&events), Outcome::Failed(failure) if failure.message.starts_with("The agent ended, or closed its output."))
    );
    assert!(matches!(connection.prompt("s", &say("x")), Err(CallError::Closed(_))));
}

#[tokio::test]
async fn a_line_that_is_too_long_concerns_only_the_request_or_turn_it_belongs_to() {
    let (connection, mut peer, _tasks) = connect_with(Limits { line_bytes: 10_000, ..Limits::default() });
    open(&connection, &mut peer, "s", json!({})).await;
    open(&connection, &mut peer, "t", json!({})).await;
    let (mut first, mut second) = (turn(&connection, "s"), turn(&connection, "t"));
    let (prompt_s, prompt_t) = (peer.get().await, peer.get().await);
    let long = "x".repeat(20_000);
    peer.text("s", &long).await;
    peer.text("s", "short").await;
    peer.say(&json!({"id": prompt_t["id"], "result": {"stopReason": long}})).await;
    let long_request =
        json!({"id": 9, "method": "session/request_permission", "params": {"sessionId": "s", "x": long}});
    peer.say(&long_request).await;
    assert_eq!(peer.get().await["result"]["outcome"]["outcome"], "cancelled");
    peer.say(&json!({"id": prompt_s["id"], "result": {"stopReason": "end_turn"}})).await;
    let events = rest(&mut first).await;
    assert_eq!(texts(&events), "short");
    assert!(matches!(outcome(&events), Outcome::Incomplete(_)), "{events:?}");
    assert_eq!(first.translator().ignored().counts()["update that is too long"], 1);
    let lost = rest(&mut second).await;
    assert!(
        matches!(outcome(&lost), Outcome::Failed(failure) if failure.message.contains("bytes in one line; 10000 are allowed.")),
        "{lost:?}"
    );
    assert_eq!(connection.closed(), None);
    // An overlong update without a visible session is dropped. But a request without a visible id would keep the agent waiting.
    peer.say_raw(&format!("{{\"method\":\"session/update\",\"params\":{{\"x\":\"{long}\"}}}}\n")).await;
    for unanswerable in ["session/request_permission", "fs/write_text_file"] {
        let (requester, mut other, _others) =
            connect_with(Limits { line_bytes: 10_000, ..Limits::default() });
        other
            .say_raw(&format!("{{\"method\":\"{unanswerable}\",\"params\":{{\"x\":\"{long}\"}},\"id\":7}}\n"))
            .await;
        other.closed().await;
        assert!(requester.closed().unwrap().contains("cannot be answered"), "{unanswerable}");
    }
    assert_eq!(connection.closed(), None);
    // An overlong line that may be a response ends the connection.
    peer.say_raw(&format!("{long}\n")).await;
    let (opened, ()) = tokio::join!(connection.new_session("/w", &[]), async {});
    assert!(matches!(opened, Err(CallError::Closed(why)) if why.contains("20000 bytes")), "no reason");
}

/// A connection with a low limit of unread events.
async fn with_little_room() -> (Connection, Peer, Tasks) {
    let (connection, mut peer, tasks) = connect_with(Limits {
        queued_bytes: 256 * 1024,
        stall: Duration::from_secs(10),
        ..Limits::default()
    });
    open(&connection, &mut peer, "s", json!({})).await;
    (connection, peer, tasks)
}

const CHUNK: &str = "some text that takes room in the pipe; ";

#[tokio::test(start_paused = true)]
async fn events_that_nobody_reads_make_the_agent_wait_and_none_is_lost() {
    let (connection, mut peer, _tasks) = with_little_room().await;
    let mut turn = turn(&connection, "s");
    let prompt = peer.get().await;
    let done = std::sync::atomic::AtomicUsize::new(0);
    let flood = async {
        for _ in 0..5000 {
            peer.text("s", CHUNK).await;
            done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
        peer.say(&json!({"id": prompt["id"], "result": {"stopReason": "end_turn"}})).await;
    };
    let reading = async {
        // The paused clock advances only when no task can run. No other session waits, so the agent waits without a limit.
        tokio::time::sleep(Duration::from_hours(1)).await;
        let done = done.load(std::sync::atomic::Ordering::Relaxed);
        assert!(done < 2000, "the agent wrote {done} updates that nobody read");
        rest(&mut turn).await
    };
    let ((), events) = tokio::join!(flood, reading);
    assert_eq!(texts(&events).len(), 5000 * CHUNK.len());
    assert_eq!(*outcome(&events), Outcome::Completed { remark: None });
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_not_read_keeps_the_others_waiting_only_for_a_while_and_says_what_it_lost() {
    let (connection, mut peer, _tasks) = with_little_room().await;
    open(&connection, &mut peer, "t", json!({})).await;
    let (mut slow, mut other) = (turn(&connection, "s"), turn(&connection, "t"));
    let (slow_prompt, other_prompt) = (peer.get().await, peer.get().await);
    let playing = async {
        for _ in 0..5000 {
            peer.text("s", CHUNK).await;
        }
        peer.ask("s", json!(1)).await;
        peer.text("t", "hello").await;
        for prompt in [&slow_prompt, &other_prompt] {
            peer.say(&json!({"id": prompt["id"], "result": {"stopReason": "end_turn"}})).await;
        }
        peer.get().await
    };
    let since = tokio::time::Instant::now();
    let (answer, events) = tokio::join!(playing, rest(&mut other));
    assert_eq!((texts(&events).as_str(), outcome(&events)), ("hello", &Outcome::Completed { remark: None }));
    assert_eq!(since.elapsed().as_secs(), 10, "one wait for the whole flood");
    assert_eq!(
        answer["result"]["outcome"]["outcome"], "cancelled",
        "an ask that cannot be shown is rejected"
    );
    let events = rest(&mut slow).await;
    let said = texts(&events).len() / CHUNK.len();
    assert!((100..2000).contains(&said), "{said}");
    let Outcome::Incomplete(ended) = outcome(&events) else { panic!("nothing is said to be missing") };
    let Outcome::Completed { remark: Some(remark) } = &**ended else { panic!("not completed: {ended:?}") };
    assert!(remark.ends_with("because the gateway could not store it in time."), "{remark}");
}

#[tokio::test(start_paused = true)]
async fn the_close_of_an_unwanted_session_that_is_not_answered_makes_no_turn_lose_events() {
    let (connection, mut peer, _tasks) = with_little_room().await;
    let answer = json!({"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": {"close": {}}}});
    let _ = tokio::join!(connection.initialize(), peer.answer("initialize", answer));
    give_up(connection.new_session("/w", &[])).await;
    peer.answer("session/new", json!({"sessionId": "unwanted"})).await;
    assert_eq!(peer.get().await["method"], "session/close");
    let mut turn = turn(&connection, "s");
    let prompt = peer.get().await;
    let flood = async {
        for _ in 0..5000 {
            peer.text("s", CHUNK).await;
        }
        peer.end(&prompt, "end_turn").await;
    };
    let reading = async {
        tokio::time::sleep(Duration::from_hours(1)).await;
        rest(&mut turn).await
    };
    let ((), events) = tokio::join!(flood, reading);
    assert_eq!(*outcome(&events), Outcome::Completed { remark: None });
}

#[tokio::test]
async fn a_turn_that_nobody_reads_any_more_does_not_stop_the_others() {
    let (connection, mut peer, _tasks) = with_session().await;
    let abandoned = turn(&connection, "s");
    let prompt = peer.get().await;
    drop(abandoned);
    for _ in 0..5000 {
        peer.text("s", "some text that takes room in the pipe; ").await;
    }
    peer.ask("s", json!(3)).await;
    assert_eq!(peer.get().await["result"]["outcome"]["outcome"], "cancelled");
    assert_eq!(connection.prompt("s", &say("x")).err(), Some(CallError::Busy));
    peer.say(&json!({"id": prompt["id"], "result": {"stopReason": "end_turn"}})).await;
    open(&connection, &mut peer, "t", json!({})).await;
    assert!(connection.prompt("s", &say("x")).is_ok());
}

#[tokio::test]
async fn an_agent_that_floods_with_requests_and_reads_no_answers_is_cut_off() {
    let (connection, mut peer, _tasks) = with_session().await;
    let asking = async {
        for id in 0..100_000 {
            let request =
                json!({"id": id, "method": "fs/read_text_file", "params": {"path": "x".repeat(100)}});
            if peer.output.write_all(format!("{request}\n").as_bytes()).await.is_err() {
                break;
            }
        }
    };
    timeout(Duration::from_mins(1), asking).await.expect("the pipe breaks");
    assert_eq!(connection.closed().as_deref(), Some("The agent does not read its input."));
}

#[tokio::test(start_paused = true)]
async fn the_bytes_that_an_agent_does_not_read_are_bounded_and_short_lines_pass() {
    const MIB: usize = 1024 * 1024;
    let limits = Limits { unwritten_bytes: 3 * MIB, ..Limits::default() };
    let (connection, mut peer, _tasks) = connect_with(limits);
    for session in ["s", "t", "u"] {
        open(&connection, &mut peer, session, json!({})).await;
    }
    let prompt = |room: Room, session: &str, bytes: usize| {
        connection.prompt_in(Some(room), session, &say(&"x".repeat(bytes))).unwrap()
    };
    // Longer than the limit, but accepted because no other line waits.
    let _first = prompt(connection.room(5 * MIB).await.unwrap(), "s", 5 * MIB);
    assert_eq!(connection.prompt("t", &say(&"x".repeat(MIB))).err(), Some(CallError::Deaf));
    assert_eq!(connection.room(MIB).await.err(), Some(CallError::Deaf), "after a minute");
    let _short = connection.prompt("t", &say("hi")).unwrap();
    let waiting = connection.room(2 * MIB);
    let (room, read) = tokio::join!(waiting, peer.get());
    assert_eq!(read["params"]["sessionId"], "s");
    assert_eq!(peer.get().await["params"]["sessionId"], "t");
    let _last = prompt(room.unwrap(), "u", 2 * MIB);
    assert_eq!(peer.get().await["params"]["sessionId"], "u");
    assert!(connection.room(9 * MIB).await.is_ok(), "what is written takes no room");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_takes_no_byte_of_its_input_is_ended_and_its_turns_say_why() {
    let (connection, mut peer, _tasks) = with_session().await;
    open(&connection, &mut peer, "t", json!({})).await;
    let mut first = turn(&connection, "s");
    peer.get().await;
    peer.text("s", "half").await;
    let content = say(&"x".repeat(1024 * 1024));
    let session = SessionId::parse("t").unwrap();
    let mut second = Turn::start(&connection, session, &PromptId::parse("q").unwrap(), &content).unwrap();
    // An agent that reads a part of it now and then is only slow.
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(100)).await;
        peer.take_some().await;
        assert!(connection.is_open());
    }
    let why =
        "The agent was ended, because it took no byte of its input for 120 s while a message waited for it.";
    tokio::time::sleep(Duration::from_secs(121)).await;
    assert_eq!(connection.closed().as_deref(), Some(why));
    assert!(matches!(connection.room(1024 * 1024).await, Err(CallError::Closed(_))));
    for turn in [&mut first, &mut second] {
        let events = rest(turn).await;
        assert!(
            matches!(outcome(&events), Outcome::Failed(failure) if failure.message.contains(why)),
            "{events:?}"
        );
    }
    drop(peer);
}

#[tokio::test]
async fn modes_and_models_are_set_in_the_way_that_the_agent_has() {
    let options = json!([
        {"id": "mode", "category": "mode", "currentValue": "build", "options": [{"value": "build"}, {"value": "plan"}]},
        {"id": "llm", "category": "model", "currentValue": "a/b", "options": [{"value": "a/b"}, {"value": "a/c"}]}]);
    // With the method, for an agent that lists its modes.
    let (connection, mut peer, _tasks) = connect();
    let answer = json!({"modes": {"currentModeId": "ask", "availableModes": [{"id": "ask"}, {"id": "auto"}]},
        "models": {"currentModelId": "m", "availableModels": [{"modelId": "m"}, {"modelId": "n"}]}, "configOptions": options});
    open(&connection, &mut peer, "s", answer).await;
    let (set, request) =
        tokio::join!(connection.choose("s", Role::Mode, "auto"), peer.answer("session/set_mode", json!({})));
    assert_eq!((set, &request["params"]), (Ok(()), &json!({"sessionId": "s", "modeId": "auto"})));
    assert_eq!(connection.facts("s").unwrap().modes.unwrap().current_mode_id, "auto");
    // The gateway itself refuses an unknown value, because two agents accept any.
    let error = connection.choose("s", Role::Mode, "yolo").await.unwrap_err();
    assert_eq!(error.to_string(), "there is no mode `yolo`. Choose one of: ask, auto.");
    // With the config option, for an agent without the method.
    open(&connection, &mut peer, "u", json!({"models": {}, "configOptions": options})).await;
    let changed =
        json!({"configOptions": [{"id": "llm", "category": "model", "currentValue": "a/c", "options": []}]});
    let playing = async {
        peer.fail("session/set_model", -32601, "Method not found").await;
        let request = peer.answer("session/set_config_option", changed).await;
        assert_eq!(request["params"], json!({"sessionId": "u", "configId": "llm", "value": "a/c"}));
    };
    let (set, ()) = tokio::join!(connection.choose("u", Role::Model, "a/c"), playing);
    set.unwrap();
    assert_eq!(connection.facts("u").unwrap().option_for(Role::Model).unwrap().current_value, "a/c");
    // For an agent without either.
    open(&connection, &mut peer, "bare", json!({})).await;
    let error = connection.choose("bare", Role::Model, "x").await.unwrap_err().into_error("set the model");
    assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
}

#[tokio::test]
async fn two_sessions_on_one_connection_do_not_mix() {
    let (connection, mut peer, _tasks) = with_session().await;
    open(&connection, &mut peer, "t", json!({})).await;
    let (mut first, mut second) = (turn(&connection, "s"), turn(&connection, "t"));
    let prompts = [peer.get().await, peer.get().await];
    for number in 0..50 {
        peer.text("s", &format!("s{number} ")).await;
        peer.text("t", &format!("t{number} ")).await;
    }
    for prompt in prompts.iter().rev() {
        peer.say(&json!({"id": prompt["id"], "result": {"stopReason": "end_turn"}})).await;
    }
    let expected =
        |letter: &str| (0..50).map(|number| format!("{letter}{number} ")).collect::<Vec<_>>().concat();
    assert_eq!(texts(&rest(&mut second).await), expected("t"));
    assert_eq!(texts(&rest(&mut first).await), expected("s"));
}

fn forks_and(more: &[&str]) -> Value {
    let methods: serde_json::Map<_, _> =
        more.iter().chain(&["fork"]).map(|method| ((*method).to_owned(), json!({}))).collect();
    json!({"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": methods}})
}

async fn start(connection: &Connection, peer: &mut Peer, about: Value) {
    let (started, _) = tokio::join!(connection.initialize(), peer.answer("initialize", about));
    started.unwrap();
}

#[tokio::test]
async fn what_a_session_used_is_not_counted_again_in_its_copy() {
    let (connection, mut peer, _tasks) = connect();
    start(&connection, &mut peer, forks_and(&[])).await;
    open(&connection, &mut peer, "s", json!({})).await;
    let (copied, _) = tokio::join!(
        connection.fork_session("s", "/w", &[]),
        peer.answer("session/fork", json!({"sessionId": "copy"}))
    );
    copied.unwrap();
    let totals = |session: &str| connection.facts(session).unwrap().totals;
    assert_eq!(totals("s"), SessionTotals::of_new_session());
    assert_eq!(totals("copy"), SessionTotals::of_old_session());
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_comes_too_late_is_deleted_or_else_closed() {
    for (methods, expected) in
        [(&["delete", "close"][..], Some("session/delete")), (&["close"], Some("session/close")), (&[], None)]
    {
        let (connection, mut peer, _tasks) = connect();
        start(&connection, &mut peer, forks_and(methods)).await;
        open(&connection, &mut peer, "s", json!({})).await;
        let (copied, asked) = tokio::join!(connection.fork_session("s", "/w", &[]), peer.get());
        assert!(matches!(copied, Err(CallError::TimedOut { .. })), "{copied:?}");
        peer.say(&json!({"id": asked["id"], "result": {"sessionId": "copy"}})).await;
        while connection.ignored().is_empty() {
            tokio::task::yield_now().await;
        }
        // The first message after this one shows whether a request was sent before.
        let prompting = turn(&connection, "s");
        let next = peer.get().await;
        match expected {
            Some(method) => {
                assert_eq!((&next["method"], &next["params"]["sessionId"]), (&json!(method), &json!("copy")));
            }
            None => assert_eq!(next["method"], "session/prompt"),
        }
        drop(prompting);
    }
}
