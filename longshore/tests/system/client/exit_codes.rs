//! The exit code of every end.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

use longshore_testkit::fake_opencode::{Tool, Turn};
use longshore_testkit::stub_agent::{Reply, StubAgent};
use serde_json::json;

use super::fixture::{Fixture, command, finish};

#[tokio::test(flavor = "multi_thread")]
async fn every_end_of_a_call_to_the_gateway_has_its_exit_code() {
    let fixture = Fixture::new().await;
    fixture.fake.answering(|prompt| match prompt {
        "fail" => Turn::new().error("UnknownError", &json!({"message": "The model is broken."})),
        "ask" => Turn::new().guarded_tool(Tool::bash("touch x", "")).text("done", 1).finish("stop"),
        _ => Turn::new().text("done", 1).finish("stop"),
    });
    let home = tempfile::tempdir().unwrap();
    let wrong = home.path().join("wrong-token");
    std::fs::write(&wrong, "not-the-token\n").unwrap();
    let wrong = wrong.to_str().unwrap();
    for (words, code, said) in [
        (&["call", "hello"][..], 0, "completed"),
        (&["call", "fail"], 1, "The model is broken."),
        (&["call", "--no-such-flag", "x"], 2, "unexpected argument"),
        (&["call"], 2, "give the text to send: longshore call"),
        (&["call", "http://127.0.0.1:8000"], 2, "give the text to send, behind the URL"),
        (&["call", "127.0.0.1:8000", "x"], 2, "must begin with http://"),
        (&["call", "several", "words", "more"], 2, "put the text in quotes"),
        (&["call", "--directory", "/no/such/directory", "x"], 2, "--directory: The directory must exist"),
        (&["call", " "], 2, "there is no text to send"),
        (&["call", "--model", "x", "x"], 2, "provider/model"),
        (&["call", "--file", "no-such-file", "x"], 2, "no-such-file cannot be sent"),
        (&["call", "ask"], 3, "To answer later: longshore asks answer "),
        (&["call", "--token-file", wrong, "x"], 6, "--token-file"),
        (&["tasks", "get", "no-such-task"], 1, "no-such-task"),
    ] {
        let run = fixture.run(words).await;
        assert_eq!(run.code, Some(code), "{words:?}: {run:?}");
        assert!(run.stderr.contains(said), "{words:?}: {}", run.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_of_a_call_to_another_agent_has_its_exit_code() {
    let home = tempfile::tempdir().unwrap();
    let stub = StubAgent::start(|request, url| {
        let state = request.body["params"]["message"]["parts"][0]["text"].as_str().unwrap_or_default();
        match state {
            "" => Reply::json(&StubAgent::card(url)),
            "401" => Reply::new(401, "text/plain", "no"),
            "redirect" => Reply::new(307, "", "").header("location", "http://169.254.169.254/latest"),
            state => {
                let message =
                    json!({"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "Because."}]});
                let status = json!({"state": format!("TASK_STATE_{state}"), "message": message});
                Reply::stream(&[(None, json!({"task": {"id": "t", "contextId": "c", "status": status}}))])
            }
        }
    });
    let closed = format!("http://127.0.0.1:{}", free_port());
    let url = stub.url();
    for (url, text, code, said) in [
        (&url, "COMPLETED", 0, "completed"),
        (&url, "FAILED", 1, "Because."),
        (&url, "CANCELED", 4, "Because."),
        (&url, "REJECTED", 5, "Because."),
        (&url, "AUTH_REQUIRED", 6, "Because."),
        (&url, "INPUT_REQUIRED", 3, "longshore asks answer t ANSWER --url http://"),
        (&url, "401", 6, "A2A_CLIENT_BEARER_TOKEN"),
        (&url, "redirect", 1, "not followed"),
        (&closed, "x", 7, "Cannot connect to"),
    ] {
        let run = finish(command(home.path(), &["call", url, text])).await;
        assert_eq!(run.code, Some(code), "{text}: {run:?}");
        assert!(run.stderr.contains(said), "{text}: {}", run.stderr);
    }
    let nowhere = finish(command(home.path(), &["call", "hello"])).await;
    assert_eq!(nowhere.code, Some(7), "{nowhere:?}");
    assert!(nowhere.stderr.contains("Start one with `longshore serve`"), "{}", nowhere.stderr);
}

/// What is no agent is not followed, not waited for and not read without end, and the command says what is wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_server_is_named_with_what_is_wrong() {
    let home = tempfile::tempdir().unwrap();
    let stub = StubAgent::start(|request, url| match request.target.trim_start_matches('/') {
        "huge/card.json" => Reply::new(200, "application/json", "[".repeat(4096)).endless(),
        "slow/card.json" => Reply::silent(),
        "page/card.json" => Reply::new(200, "text/html", "<h1>Welcome"),
        "future/card.json" => {
            let mut card = StubAgent::card(url);
            card["supportedInterfaces"][0]["protocolVersion"] = "2.0".into();
            Reply::json(&card)
        }
        "private/card.json" => Reply::new(302, "", "").header("location", "http://169.254.169.254/latest/"),
        "endless/card.json" => Reply::json(&StubAgent::card(url)),
        // The call itself.
        _ => Reply::new(200, "text/event-stream", "data: x").endless(),
    });
    for (name, code, said) in [
        ("huge", 1, "longer than 1048576 bytes"),
        ("slow", 7, "did not send its card within 0.5 s"),
        ("page", 1, "a web page. Check the URL"),
        ("future", 1, "It offers: JSONRPC of A2A 2.0. Can be used: "),
        (
            "private",
            1,
            "redirects to http://169.254.169.254/latest/, and redirects to other servers are not followed",
        ),
        ("endless", 1, "An event of the agent's stream is longer than"),
    ] {
        let mut call = command(home.path(), &["call", &format!("{}/{name}/card.json", stub.url()), "hello"]);
        // Only the slow server has to be given up soon.
        let patience = if name == "slow" { "0.5" } else { "30" };
        call.env("A2A_CLIENT_CARD_FETCH_TIMEOUT_SECONDS", patience);
        let run = finish(call).await;
        assert_eq!((run.code, run.stdout.as_str()), (Some(code), ""), "{name}: {run:?}");
        assert!(run.stderr.starts_with("error: ") && run.stderr.contains(said), "{name}: {}", run.stderr);
    }
}

/// A port that nothing listens on.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
