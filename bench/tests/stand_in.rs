//! The stand-in as a process, from the outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot start fails with the error")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use longshore_bench::drive::{Connection, call, sent_text, totals};
use longshore_bench::stand_in::Script;
use serde_json::{Value, json};

struct Running {
    child: Child,
    address: SocketAddr,
}

impl Running {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_longshore-bench"))
            .arg("stand-in")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().parse().unwrap();
        Self { child, address }
    }

    async fn ask(&self, connection: &mut Connection, request: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = format!(
            "{request} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let reply = call(connection, request.as_bytes()).await.unwrap();
        (reply.head.status, serde_json::from_slice(&reply.body).unwrap_or_default())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn prompt(script: &Script) -> Value {
    json!({"parts": [{"type": "text", "text": script.to_string()}]})
}

#[tokio::test]
async fn an_acp_agent_answers_on_its_output_and_ends_with_its_input() {
    let port = longshore_bench::process::free_port().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut child = Command::new(env!("CARGO_BIN_EXE_longshore-bench"))
        .args(["stand-in", "--acp", "--listen", &address.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{}", json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&answer["id"], &answer["result"]["protocolVersion"]), (&json!(1), &json!(1)));
    assert_eq!(totals(address).await.unwrap().pid, child.id());
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[tokio::test]
async fn both_prompt_endpoints_work_and_the_process_ends_with_its_input() {
    let mut running = Running::start();
    let mut connection = Connection::open(running.address).await.unwrap();
    let (status, session) = running.ask(&mut connection, "POST /session?directory=%2Fhere", &json!({})).await;
    assert_eq!((status, &session["directory"]), (200, &json!("/here")));
    let id = session["id"].as_str().unwrap();

    let script = Script { key: "blocking".to_owned(), deltas: 3, ..Script::default() };
    let (status, answer) =
        running.ask(&mut connection, &format!("POST /session/{id}/message"), &prompt(&script)).await;
    let text = answer["parts"][1]["text"].as_str().unwrap().to_owned();
    assert_eq!((status, text.len()), (200, 3 * 24));
    let sent = sent_text(&mut connection, "blocking").await.unwrap().unwrap();
    assert_eq!((sent.deltas, sent.bytes), (3, 72));
    assert_eq!(sent.sum, longshore_bench::stamp::TextSum::of(text.as_bytes()).0);

    let mut events = Connection::open(running.address).await.unwrap();
    events.write(b"GET /event?directory=%2Fhere HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert_eq!(events.head().await.unwrap().content_type, "text/event-stream");
    let script = Script { key: "async".to_owned(), ..script };
    let (status, _) =
        running.ask(&mut connection, &format!("POST /session/{id}/prompt_async"), &prompt(&script)).await;
    assert_eq!(status, 204);
    while sent_text(&mut connection, "async").await.unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    let (_, messages) =
        running.ask(&mut connection, &format!("GET /session/{id}/message?limit=1"), &Value::Null).await;
    assert_eq!(messages.as_array().unwrap().len(), 1);
    let (status, _) = running.ask(&mut connection, "GET /session/ses_unknown", &Value::Null).await;
    assert_eq!(status, 404);
    let counted = totals(running.address).await.unwrap();
    assert_eq!((counted.turns, counted.ended, counted.deltas, counted.running), (2, 2, 6, 0));
    assert_eq!(totals(running.address).await.unwrap().turns, 0, "the totals start again");

    drop(running.child.stdin.take());
    let mut status = None;
    while status.is_none() {
        status = running.child.try_wait().unwrap();
        tokio::task::yield_now().await;
    }
    assert!(status.unwrap().success());
}
