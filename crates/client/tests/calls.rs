//! The client against stub agents with many kinds of behaviour.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use longshore_client::{
    Binding, CardCache, Client, Credential, Discovery, Error, ErrorKind, Event, Guard, Limits, Outgoing,
    Part, Polling, Settings, TaskState, TaskStream,
};
use longshore_model::TraceContext;
use longshore_testkit::stub_agent::{Reply, Request, StubAgent};
use serde_json::{Value, json};

fn message() -> Outgoing {
    Outgoing::new("m-1", vec![Part::text("hi")])
}

fn task(state: &str, text: &str) -> Value {
    let artifacts =
        if text.is_empty() { json!([]) } else { json!([{"artifactId": "a", "parts": [{"text": text}]}]) };
    json!({"id": "t", "contextId": "c", "status": {"state": state}, "artifacts": artifacts})
}

fn chunk(text: &str, append: bool) -> Value {
    json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "append": append,
        "artifact": {"artifactId": "a", "parts": [{"text": text}]}}})
}

fn status(state: &str) -> Value {
    json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": state}}})
}

/// An agent with a JSON-RPC interface and scripted answers. The number counts the calls of the same method.
fn agent(answer: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> StubAgent {
    let (streams, others) = (AtomicUsize::new(0), AtomicUsize::new(0));
    StubAgent::start(move |request, url| {
        if request.method == "GET" {
            return Reply::json(&StubAgent::card(url));
        }
        let count = if request.rpc() == "GetTask" { &others } else { &streams };
        answer(request, count.fetch_add(1, Ordering::SeqCst))
    })
}

async fn connect(agent: &StubAgent, settings: Settings) -> Client {
    Client::connect(&agent.url(), settings).await.unwrap()
}

/// Reads a stream to its end. Returns the text that a person would see, and the last state.
async fn read(mut stream: TaskStream) -> (String, Option<TaskState>) {
    let mut text = String::new();
    while let Some(event) = stream.next().await.unwrap() {
        let artifacts = match event {
            Event::Task(task) => task.artifacts,
            Event::ArtifactUpdate(update) => vec![update.artifact],
            Event::Message(message) => {
                text.push_str(&message.text());
                continue;
            }
            Event::StatusUpdate(_) => continue,
        };
        let parts = artifacts.iter().flat_map(|artifact| &artifact.parts);
        text.extend(parts.filter_map(Part::as_text));
    }
    let state = stream.task().and_then(|task| task.status.state);
    (text, state)
}

#[tokio::test]
async fn a_stream_with_ids_resumes_after_the_last_event() {
    let agent = agent(|request, count| match (request.rpc(), count) {
        ("SendStreamingMessage", 0) => Reply::stream(&[
            (Some("1.9"), json!({"task": task("TASK_STATE_SUBMITTED", "")})),
            (Some("2.9"), chunk("one ", false)),
        ])
        .broken(),
        ("SubscribeToTask", 1) => Reply::stream(&[(Some("3.9"), chunk("two ", true))]).broken(),
        ("SubscribeToTask", 2) => Reply::new(503, "text/plain", "restarting"),
        _ => Reply::stream(&[
            (Some("4.9"), chunk("three", true)),
            (Some("5.9"), status("TASK_STATE_COMPLETED")),
        ]),
    });
    let client = connect(&agent, Settings::default()).await;
    let read = read(client.stream(message()).await.unwrap()).await;
    assert_eq!(read, ("one two three".to_owned(), Some(TaskState::Completed)));
    let cursors: Vec<_> = agent
        .requests()
        .iter()
        .filter(|request| request.rpc() == "SubscribeToTask")
        .map(|request| request.header("last-event-id").unwrap_or_default().to_owned())
        .collect();
    assert_eq!(cursors, ["2.9", "3.9", "3.9"]);
}

#[tokio::test]
async fn a_stream_without_ids_goes_on_from_the_present_task() {
    let agent = agent(|request, count| match (request.rpc(), count) {
        ("SendStreamingMessage", 0) => Reply::stream(&[
            (None, json!({"task": task("TASK_STATE_WORKING", "")})),
            (None, chunk("one ", false)),
        ])
        .broken(),
        ("SubscribeToTask", 1) => Reply::stream(&[
            (None, json!({"task": task("TASK_STATE_WORKING", "one two ")})),
            (None, chunk("three ", true)),
        ])
        .broken(),
        // The task has ended in the meantime.
        ("SubscribeToTask", _) => Reply::error(-32004, "The task has ended."),
        _ => Reply::result(&task("TASK_STATE_COMPLETED", "one two three four")),
    });
    let client = connect(&agent, Settings::default()).await;
    let read = read(client.stream(message()).await.unwrap()).await;
    assert_eq!(read, ("one two three four".to_owned(), Some(TaskState::Completed)));
}

/// Streams of 0.3 need not begin with the task. Then the client cannot know which state their events continue.
#[tokio::test]
async fn a_stream_that_does_not_begin_with_the_task_is_completed_by_looking_at_it() {
    let agent = agent(|request, count| match (request.rpc(), count) {
        ("SendStreamingMessage", 0) => Reply::stream(&[
            (None, json!({"task": task("TASK_STATE_WORKING", "")})),
            (None, chunk("one ", false)),
        ])
        .broken(),
        // "two" came before the client joined the stream. "three" is already in the task that the client reads.
        ("SubscribeToTask", _) => {
            Reply::stream(&[(None, chunk("three", true)), (None, status("TASK_STATE_COMPLETED"))])
        }
        (_, 0) => Reply::result(&task("TASK_STATE_WORKING", "one two three")),
        _ => Reply::result(&task("TASK_STATE_COMPLETED", "one two three")),
    });
    let client = connect(&agent, Settings::default()).await;
    let read = read(client.stream(message()).await.unwrap()).await;
    assert_eq!(read, ("one two three".to_owned(), Some(TaskState::Completed)));
}

/// Without polling, the client would open a stream to such an agent again and again.
#[tokio::test]
async fn an_agent_that_does_not_keep_its_streams_open_is_looked_at() {
    let agent = agent(|request, count| match (request.rpc(), count) {
        ("SendStreamingMessage" | "SubscribeToTask", _) => {
            Reply::stream(&[(None, json!({"task": task("TASK_STATE_WORKING", "one ")}))])
        }
        (_, 0) => Reply::new(503, "text/plain", "busy"),
        (_, 1) => Reply::result(&task("TASK_STATE_WORKING", "one two ")),
        _ => Reply::result(&task("TASK_STATE_COMPLETED", "one two three")),
    });
    let quick = Polling { initial: Duration::from_millis(1), ..Polling::default() };
    let client = connect(&agent, Settings { polling: Some(quick), ..Settings::default() }).await;
    let read = read(client.stream(message()).await.unwrap()).await;
    assert_eq!(read, ("one two three".to_owned(), Some(TaskState::Completed)));
    let joined = agent.requests().iter().filter(|request| request.rpc() == "SubscribeToTask").count();
    assert_eq!(joined, 3);
}

#[tokio::test]
async fn a_task_whose_stream_is_empty_is_looked_at_and_an_answer_that_stays_empty_is_an_error() {
    let ended = agent(|request, _| match request.rpc() {
        "SubscribeToTask" => Reply::stream(&[]),
        _ => Reply::result(&task("TASK_STATE_COMPLETED", "done")),
    });
    let stream = connect(&ended, Settings::default()).await.subscribe("t").await.unwrap();
    assert_eq!(read(stream).await, ("done".to_owned(), Some(TaskState::Completed)));
    // The client does not know which task the message began.
    let empty = agent(|_, _| Reply::stream(&[]));
    let mut stream = connect(&empty, Settings::default()).await.stream(message()).await.unwrap();
    assert_eq!(stream.next().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_message_is_not_sent_twice_unless_the_agent_would_notice() {
    for (resends, sends) in [(false, 1), (true, 2)] {
        let agent = agent(|_, count| match count {
            0 => Reply::stream(&[]).broken(),
            _ => Reply::stream(&[(None, json!({"task": task("TASK_STATE_COMPLETED", "done")}))]),
        });
        let client = connect(&agent, Settings { resends, ..Settings::default() }).await;
        let mut stream = client.stream(message()).await.unwrap();
        let first = stream.next().await;
        if resends {
            assert!(matches!(first, Ok(Some(Event::Task(_)))), "{first:?}");
        } else {
            assert_eq!(first.unwrap_err().kind(), ErrorKind::Lost);
        }
        let sent = agent.requests().iter().filter(|request| request.rpc() == "SendStreamingMessage").count();
        assert_eq!(sent, sends);
    }
}

#[tokio::test]
async fn an_agent_without_streams_is_asked_until_the_task_settles() {
    let stub = StubAgent::start(|request, url| match request.rpc() {
        "" => {
            let mut card = StubAgent::card(url);
            card["capabilities"]["streaming"] = false.into();
            Reply::json(&card)
        }
        "SendMessage" => Reply::result(&json!({"task": task("TASK_STATE_WORKING", "one ")})),
        _ => Reply::result(&task("TASK_STATE_INPUT_REQUIRED", "one two")),
    });
    let quick = Polling { initial: Duration::from_millis(1), ..Polling::default() };
    let client = connect(&stub, Settings { polling: Some(quick), ..Settings::default() }).await;
    let stream = client.stream(message()).await.unwrap();
    assert_eq!(read(stream).await, ("one two".to_owned(), Some(TaskState::InputRequired)));
    // `send` polls only if the settings say so.
    let Event::Task(polled) = client.send(message()).await.unwrap() else { panic!("a task") };
    assert_eq!(polled.status.state, Some(TaskState::InputRequired));
    let client = connect(&stub, Settings::default()).await;
    let Event::Task(unfinished) = client.send(message()).await.unwrap() else { panic!("a task") };
    assert_eq!(unfinished.status.state, Some(TaskState::Working));
    // The time for polling is over before the first poll.
    let none = Polling { timeout: Some(Duration::ZERO), ..quick };
    let client = connect(&stub, Settings { polling: Some(none), ..Settings::default() }).await;
    let mut stream = client.stream(message()).await.unwrap();
    assert!(matches!(stream.next().await, Ok(Some(Event::Task(_)))));
    assert_eq!(stream.next().await.unwrap_err().kind(), ErrorKind::Timeout);
}

/// Looks up the card at these URLs with one cache. Returns each request of the server: its path, or `304` if it had an entity tag.
async fn looked_for(cache: CardCache, paths: &[&str]) -> Vec<String> {
    let stub = StubAgent::start(|request, url| match request.header("if-none-match") {
        Some("\"v1\"") => Reply::new(304, "application/json", ""),
        _ => Reply::json(&StubAgent::card(url)).header("etag", "\"v1\""),
    });
    let mut discovery = Discovery::new();
    let settings = Settings { cache, ..Settings::default() };
    for path in paths {
        let url = format!("{}{path}", stub.url());
        assert_eq!(discovery.find(&url, &settings).await.unwrap().card.name, "Stub");
    }
    let asked = |request: &Request| {
        let tag = request.header("if-none-match").map_or("", |_| " 304");
        format!("{}{tag}", request.target)
    };
    stub.requests().iter().map(asked).collect()
}

#[tokio::test]
async fn a_card_is_kept_for_its_lifetime_and_then_not_sent_again_if_it_has_not_changed() {
    let kept = CardCache::default();
    let stale = CardCache { lifetime: Some(Duration::ZERO), ..kept };
    let for_ever = CardCache { lifetime: None, ..kept };
    let one = CardCache { capacity: 1, ..kept };
    let none = CardCache { capacity: 0, ..kept };
    let (a, b) = ("/a.json", "/b.json");
    for (cache, paths, expected) in [
        (kept, &[a, a][..], &[a][..]),
        (for_ever, &[a, a], &[a]),
        (stale, &[a, a], &[a, "/a.json 304"]),
        (kept, &[a, b, a, b], &[a, b]),
        (one, &[a, b, b, a], &[a, b, a]),
        (none, &[a, a], &[a, a]),
    ] {
        assert_eq!(looked_for(cache, paths).await, expected, "{cache:?}");
    }
}

#[tokio::test]
async fn a_redirect_is_followed_on_the_same_server_only() {
    let other = StubAgent::start(|_, url| Reply::json(&StubAgent::card(url)));
    let elsewhere = format!("{}/card.json", other.url());
    let stub = StubAgent::start(move |request, url| match request.target.as_str() {
        "/here/.well-known/agent-card.json" => Reply::new(302, "", "").header("location", "/card.json"),
        "/card.json" => Reply::json(&StubAgent::card(url)),
        "/loop.json" => Reply::new(302, "", "").header("location", "/loop.json"),
        _ => Reply::new(302, "", "").header("location", &elsewhere),
    });
    let settings = Settings::default();
    let found = Discovery::new().find(&format!("{}/here", stub.url()), &settings).await.unwrap();
    assert_eq!(found.card.name, "Stub");
    for path in ["/there", "/loop.json"] {
        let error = Discovery::new().find(&format!("{}{path}", stub.url()), &settings).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidResponse);
        assert!(error.message().contains("redirects to"), "{error}");
    }
    assert!(other.requests().is_empty(), "the other server was called");
}

#[tokio::test]
async fn a_credential_goes_only_to_the_server_that_the_person_named() {
    let other = StubAgent::start(|_, url| Reply::json(&StubAgent::card(url)));
    let elsewhere = other.url();
    let stub = StubAgent::start(move |_, _| Reply::json(&StubAgent::card(&elsewhere)));
    let bearer = || Some(Credential::Bearer("s3cret".into()));
    let error = Client::connect(&stub.url(), Settings { credential: bearer(), ..Settings::default() }).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
    assert!(!error.message().contains("s3cret") && error.message().contains(&other.url()), "{error}");
    // Without a credential, other servers are allowed: nothing can be leaked.
    Client::connect(&stub.url(), Settings::default()).await.unwrap();
    for request in stub.requests().iter().chain(&other.requests()) {
        assert_eq!(request.header("authorization"), None);
    }
}

#[tokio::test]
async fn credentials_and_version_are_in_every_call_and_the_key_is_in_the_header_of_the_card() {
    let stub = StubAgent::start(|request, url| {
        let mut card = StubAgent::card(url);
        card["securitySchemes"] =
            json!({"k": {"apiKeySecurityScheme": {"location": "header", "name": "X-Own"}}});
        if request.method == "GET" {
            Reply::json(&card)
        } else {
            Reply::result(&task("TASK_STATE_WORKING", ""))
        }
    });
    for (credential, header, value) in [
        (Credential::Bearer("s3cret".into()), "authorization", "Bearer s3cret"),
        (
            Credential::Basic { username: "ada".to_owned(), password: "pw".into() },
            "authorization",
            "Basic YWRhOnB3",
        ),
        (Credential::ApiKey("key".into()), "x-own", "key"),
    ] {
        let settings = Settings {
            credential: Some(credential),
            extensions: vec!["urn:x".to_owned()],
            ..Settings::default()
        };
        connect(&stub, settings).await.get("t").await.unwrap();
        let last = stub.requests().pop().unwrap();
        assert_eq!(last.header(header), Some(value));
        assert_eq!((last.header("a2a-version"), last.header("a2a-extensions")), (Some("1.0"), Some("urn:x")));
    }
}

type Answer = Box<dyn Fn(&str) -> Reply + Send + Sync>;

/// Every server that does not behave like an agent causes an error of the right kind, in bounded time and memory.
#[tokio::test]
async fn bad_servers_are_bounded_and_explained() {
    let card = |change: fn(&mut Value)| {
        move |url: &str| {
            let mut card = StubAgent::card(url);
            change(&mut card);
            Reply::json(&card)
        }
    };
    let future = card(|card| card["supportedInterfaces"][0]["protocolVersion"] = "2.0".into());
    let cards: Vec<(&str, Answer, ErrorKind, &str)> = vec![
        (
            "huge",
            Box::new(|_| Reply::new(200, "application/json", "x".repeat(4096)).endless()),
            ErrorKind::TooLarge,
            "longer than",
        ),
        ("slow", Box::new(|_| Reply::silent()), ErrorKind::Timeout, "within 0.3 s"),
        (
            "page",
            Box::new(|_| Reply::new(200, "text/html", "<p>hi")),
            ErrorKind::InvalidResponse,
            "a web page",
        ),
        ("missing", Box::new(|_| Reply::new(404, "text/html", "no")), ErrorKind::InvalidResponse, "404"),
        ("json", Box::new(|_| Reply::json(&json!({"a": 1}))), ErrorKind::InvalidResponse, "no agent card"),
        ("future", Box::new(future), ErrorKind::NoInterface, "A2A 2.0"),
        ("broken", Box::new(|_| Reply::new(200, "application/json", "{").broken()), ErrorKind::Lost, "broke"),
        ("auth", Box::new(|_| Reply::new(401, "text/plain", "no")), ErrorKind::Unauthenticated, "401"),
    ];
    // Only silent servers get a short timeout.
    let settings = |name: &str| {
        let timeout = Duration::from_millis(if matches!(name, "slow" | "silent") { 300 } else { 30_000 });
        Settings {
            card_timeout: if name == "slow" { timeout } else { Duration::from_secs(30) },
            timeout,
            limits: Limits { card: 100_000, response: 10_000, event: 10_000, task: 10_000 },
            ..Settings::default()
        }
    };
    for (name, answer, kind, words) in cards {
        let stub = StubAgent::start(move |_, url| answer(url));
        let error = Client::connect(&stub.url(), settings(name)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(error.message().contains(words), "{name}: {error}");
    }
    let begun = || (None, json!({"task": task("TASK_STATE_WORKING", "")}));
    let more = chunk(&"x".repeat(100), true);
    let streams: Vec<(&str, Reply, ErrorKind)> = vec![
        ("event", Reply::new(200, "text/event-stream", "data: xxxxxxxx").endless(), ErrorKind::TooLarge),
        ("task", Reply::stream(&[begun(), (None, more)]).endless(), ErrorKind::TooLarge),
        ("text", Reply::new(200, "text/event-stream", "data: hello\n\n"), ErrorKind::InvalidResponse),
        ("page", Reply::new(200, "text/html", "<p>hi"), ErrorKind::InvalidResponse),
        ("big", Reply::new(200, "application/json", "x".repeat(4096)).endless(), ErrorKind::TooLarge),
        ("error", Reply::error(-32602, "No."), ErrorKind::InvalidRequest),
        ("silent", Reply::silent(), ErrorKind::Timeout),
    ];
    for (name, reply, kind) in streams {
        let agent = agent(move |_, _| reply.clone());
        let client = connect(&agent, settings(name)).await;
        let error = match client.stream(message()).await {
            Err(error) => error,
            Ok(mut stream) => loop {
                match stream.next().await {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("{name}: the stream ended well"),
                    Err(error) => break error,
                }
            },
        };
        assert_eq!(error.kind(), kind, "{name}: {error}");
    }
}

/// The same operations over REST, with the names and paths of each version.
#[tokio::test]
async fn rest_uses_the_paths_of_its_version_and_tries_the_other_verb() {
    for (version, prefix, state) in
        [("1.0", "", "TASK_STATE_COMPLETED"), ("0.3", "/v1", "TASK_STATE_COMPLETED")]
    {
        let stub = StubAgent::start(move |request, url| {
            let path = request.target.strip_prefix("/base").unwrap_or(&request.target);
            let path = path.strip_prefix(prefix).unwrap_or(path);
            let event = json!({"task": task(state, "done")});
            match (request.method.as_str(), path) {
                ("POST", "/message:stream" | "/tasks/t%2F1:subscribe") => {
                    Reply::new(200, "text/event-stream", format!("data: {event}\n\n"))
                }
                ("GET", "/tasks/t%2F1:subscribe") => Reply::new(405, "text/plain", "POST only"),
                ("GET", "/tasks/t%2F1") => Reply::json(&task(state, "done")),
                ("POST", "/tasks/t%2F1:cancel") => Reply::new(
                    400,
                    "application/json",
                    r#"{"error": {"code": 400, "message": "Over.", "details":
                        [{"reason": "TASK_NOT_CANCELABLE"}]}}"#,
                ),
                ("GET", path) if path.ends_with("agent-card.json") => {
                    let mut card = StubAgent::card(url);
                    card["supportedInterfaces"] = json!([{"url": format!("{url}/base/"), "protocolBinding": "HTTP+JSON",
                        "protocolVersion": version}]);
                    Reply::json(&card)
                }
                _ => Reply::new(404, "text/plain", "nothing here"),
            }
        });
        let client = connect(&stub, Settings::default()).await;
        assert_eq!(client.interface().binding, Binding::Rest);
        let completed = ("done".to_owned(), Some(TaskState::Completed));
        assert_eq!(read(client.stream(message()).await.unwrap()).await, completed, "{version}");
        assert_eq!(read(client.subscribe("t/1").await.unwrap()).await, completed, "{version}");
        assert_eq!(client.get("t/1").await.unwrap().id, "t");
        assert_eq!(client.cancel("t/1").await.unwrap_err().kind(), ErrorKind::TaskNotCancelable);
    }
}

/// Another program can take over an address, so the guard checks before each request.
#[tokio::test]
async fn no_request_is_sent_that_the_guard_refuses() {
    let stub = agent(|_, count| match count {
        0 => Reply::stream(&[(Some("1.1"), json!({"task": task("TASK_STATE_WORKING", "")}))]).broken(),
        _ => Reply::stream(&[(Some("2.1"), status("TASK_STATE_COMPLETED"))]),
    });
    let allowed = Arc::new(AtomicUsize::new(2));
    let left = Arc::clone(&allowed);
    let guard = Guard::new(move || {
        let take = |left: usize| left.checked_sub(1);
        let taken = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        taken.map(drop).map_err(|_| Error::new(ErrorKind::Forbidden, "Not now."))
    });
    let settings = Settings {
        credential: Some(Credential::Bearer("s3cret".into())),
        guard: Some(guard),
        ..Settings::default()
    };
    // The guard allows two requests: one for the card, and one for the message.
    let client = connect(&stub, settings).await;
    let mut stream = client.stream(message()).await.unwrap();
    assert!(matches!(stream.next().await, Ok(Some(Event::Task(_)))));
    let sent = stub.requests().len();
    // The connection breaks. The guard refuses the request that would resume the stream.
    assert_eq!(stream.next().await.unwrap_err().kind(), ErrorKind::Forbidden);
    assert_eq!(client.get("t").await.unwrap_err().kind(), ErrorKind::Forbidden);
    assert_eq!(stub.requests().len(), sent);
}

/// The limit for the size of a kept task counts the bytes of all its fields.
#[tokio::test]
async fn a_task_cannot_grow_without_content() {
    type Event = fn(usize) -> Value;
    let artifact = |artifact: Value| json!({"artifactUpdate": {"taskId": "t", "contextId": "c", "append": true, "artifact": artifact}});
    let growing: [(&str, Event); 6] = [
        ("metadata", |at| {
            json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"},
                "metadata": {format!("key{at}"): "x".repeat(100)}}})
        }),
        ("messages", |at| {
            let message = json!({"messageId": format!("m{at}"), "role": "ROLE_AGENT", "parts": []});
            json!({"statusUpdate": {"taskId": "t", "contextId": "c",
                "status": {"state": "TASK_STATE_WORKING", "message": message}}})
        }),
        ("artifacts", |at| json!({"artifactId": format!("a{at}"), "parts": []})),
        ("parts", |_| json!({"artifactId": "a", "parts": [{"url": ""}]})),
        ("names", |at| json!({"artifactId": format!("a{at}"), "name": "x".repeat(5000), "parts": []})),
        (
            "metadata of parts",
            |at| json!({"artifactId": "a", "parts": [{"text": "", "metadata": {format!("key{at}"): "x".repeat(100)}}]}),
        ),
    ];
    for (name, event) in growing {
        let agent = agent(move |_, _| {
            let mut events = vec![(None, json!({"task": task("TASK_STATE_WORKING", "")}))];
            events.extend((0..1000).map(|at| {
                let event = event(at);
                (None, if event["artifactId"].is_string() { artifact(event) } else { event })
            }));
            events.push((None, status("TASK_STATE_COMPLETED")));
            Reply::stream(&events)
        });
        let limits = Limits { task: 50_000, ..Limits::default() };
        let client = connect(&agent, Settings { limits, ..Settings::default() }).await;
        let mut stream = client.stream(message()).await.unwrap();
        let error = loop {
            match stream.next().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{name}: the task grew without a limit"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{name}: {error}");
    }
}

/// A text in many small pieces becomes one part, so it counts no more than its bytes.
#[tokio::test]
async fn a_text_in_many_pieces_stays_below_the_limit() {
    let agent = agent(|_, _| {
        let mut events = vec![(None, json!({"task": task("TASK_STATE_WORKING", "")}))];
        events.extend((0..2000).map(|_| (None, chunk("word ", true))));
        events.push((None, status("TASK_STATE_COMPLETED")));
        Reply::stream(&events)
    });
    let limits = Limits { task: 20_000, ..Limits::default() };
    let client = connect(&agent, Settings { limits, ..Settings::default() }).await;
    let (text, state) = read(client.stream(message()).await.unwrap()).await;
    assert_eq!((text, state), ("word ".repeat(2000), Some(TaskState::Completed)));
}

/// The caller has already checked the addresses of the host name, so the client must not resolve the name again.
#[tokio::test]
async fn only_the_given_addresses_are_connected_to_and_the_trace_is_sent() {
    let agent = StubAgent::start(|request, _| match request.method.as_str() {
        "GET" => Reply::json(&StubAgent::card("/")),
        _ => Reply::stream(&[(None, json!({"task": task("TASK_STATE_COMPLETED", "hi")}))]),
    });
    let address = agent.url().strip_prefix("http://").unwrap().parse().unwrap();
    let trace = TraceContext::generate();
    let traceparent = trace.traceparent();
    let settings = Settings { addresses: Some(vec![address]), trace: Some(trace), ..Settings::default() };
    let client = Client::connect(&agent.url().replace("127.0.0.1", "agent.invalid"), settings).await.unwrap();
    assert_eq!(read(client.stream(message()).await.unwrap()).await.0, "hi");
    assert_eq!(agent.requests()[1].header("traceparent"), Some(traceparent.as_str()));
}
