use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::*;

/// The timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(20);

async fn start() -> (DemoModel, Tasks) {
    let tasks = Tasks::new();
    let model = DemoModel::start(SocketAddr::from(([127, 0, 0, 1], 0)), &tasks).await.unwrap();
    (model, tasks)
}

/// A client that sees the bytes and how the connection ended.
struct Client(TcpStream);

impl Client {
    async fn connect(model: &DemoModel) -> Self {
        Self(TcpStream::connect(model.address()).await.unwrap())
    }

    async fn send(&mut self, method: &str, path: &str, headers: &str, body: &str) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: model\r\ncontent-length: {}\r\n{headers}\r\n{body}",
            body.len()
        );
        self.0.write_all(head.as_bytes()).await.unwrap();
    }

    async fn prompt(&mut self, prompt: &str) {
        let body = json!({
            "model": "demo", "stream": true, "messages": [{"role": "user", "content": prompt}],
        });
        self.send("POST", "/v1/chat/completions", "x-session-id: ses_1\r\n", &body.to_string()).await;
    }

    /// Reads until the text has been received.
    async fn read_until(&mut self, wanted: &str) -> String {
        let mut bytes = Vec::new();
        while !String::from_utf8_lossy(&bytes).contains(wanted) {
            let read = timeout(PATIENCE, self.0.read_buf(&mut bytes)).await.expect("silence").unwrap();
            assert!(read > 0, "ended before {wanted:?}: {}", String::from_utf8_lossy(&bytes));
        }
        String::from_utf8(bytes).unwrap()
    }

    /// Everything up to the end, and how it ended.
    async fn read_all(&mut self) -> (String, io::Result<()>) {
        let mut bytes = Vec::new();
        let end = timeout(PATIENCE, self.0.read_to_end(&mut bytes)).await.expect("silence").map(|_| ());
        (String::from_utf8(bytes).unwrap(), end)
    }
}

/// One request on its own connection; the answer without its framing.
async fn request(model: &DemoModel, method: &str, path: &str, body: &str) -> (u16, String, String) {
    let mut client = Client::connect(model).await;
    client.send(method, path, "connection: close\r\nx-session-id: ses_1\r\n", body).await;
    let (text, end) = client.read_all().await;
    end.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = if head.contains("chunked") { unchunk(body) } else { body.to_owned() };
    (status, head.to_lowercase(), body)
}

/// The content of a complete body in chunked transfer coding.
fn unchunk(mut body: &str) -> String {
    let mut content = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").expect("a chunk size");
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return content;
        }
        content.push_str(&rest[..size]);
        body = rest[size..].strip_prefix("\r\n").expect("the end of a chunk");
    }
}

async fn chat(model: &DemoModel, prompt: &str, stream: bool) -> (u16, String, String) {
    let body = json!({
        "model": "demo", "stream": stream, "messages": [{"role": "user", "content": prompt}],
    });
    request(model, "POST", "/v1/chat/completions", &body.to_string()).await
}

async fn get_json(model: &DemoModel, path: &str) -> Value {
    let (status, _, body) = request(model, "GET", path, "").await;
    assert_eq!(status, 200);
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn streams_have_the_shape_of_openai() {
    let (model, _tasks) = start().await;
    for (name, prompt) in [
        ("text", "scn:text n=2 size=8"),
        ("reason", "scn:reason rn=1 n=1 text=yes out=3"),
        ("tool", "scn:bash cmd=ls desc=list pre=Look argchunks=2"),
        ("pair", "scn:pair a=ls b=pwd argchunks=1"),
        ("finish", "scn:finish reason=content_filter n=1"),
        ("empty", "scn:empty in=1 out=0"),
        ("sseerror", "scn:sseerror after=1"),
        ("badjson", "scn:badjson after=1"),
        ("noend", "scn:cut mode=noend after=1"),
    ] {
        let (status, head, body) = chat(&model, prompt, true).await;
        assert_eq!(status, 200, "{name}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        insta::assert_snapshot!(name, body);
    }
}

#[tokio::test]
async fn an_unstreamed_reply_has_the_content_of_the_stream() {
    let (model, _tasks) = start().await;
    let mut replies = Vec::new();
    for prompt in ["scn:text n=2", "scn:reason rn=1 n=1", "scn:bash cmd=ls desc=list", "scn:badjson"] {
        let (status, _, body) = chat(&model, prompt, false).await;
        replies.push(json!({"status": status, "body": serde_json::from_str::<Value>(&body).unwrap()}));
    }
    insta::assert_json_snapshot!("whole", replies);
}

#[tokio::test]
async fn the_same_prompt_gets_the_same_bytes() {
    let (model, _tasks) = start().await;
    for prompt in ["hello", "scn:text n=20", "scn:bash cmd=ls", "scn:question n=2"] {
        let first = chat(&model, prompt, true).await;
        let again = chat(&model, prompt, true).await;
        assert_eq!(first.2, again.2, "{prompt}");
    }
}

#[tokio::test]
async fn cut_fin_closes_the_connection_in_the_middle_of_the_body() {
    let (model, _tasks) = start().await;
    let mut client = Client::connect(&model).await;
    client.prompt("scn:cut after=3 mode=fin").await;
    let (text, end) = client.read_all().await;
    end.unwrap();
    assert_eq!(text.matches("\"content\":").count(), 4, "the opening and three chunks: {text}");
    assert!(!text.ends_with("0\r\n\r\n"), "the body has a clean end");
    assert!(!text.contains("[DONE]"));
}

#[tokio::test]
async fn cut_rst_resets_the_connection() {
    let (model, _tasks) = start().await;
    let mut client = Client::connect(&model).await;
    client.prompt("scn:cut after=2 mode=rst delay=5").await;
    let (text, end) = client.read_all().await;
    assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert!(text.contains("200 OK"), "{text}");
    assert!(!text.contains("[DONE]"));
}

#[tokio::test]
async fn cut_noend_ends_cleanly_and_keeps_the_connection() {
    let (model, _tasks) = start().await;
    let mut client = Client::connect(&model).await;
    client.prompt("scn:cut after=1 mode=noend").await;
    let text = client.read_until("\r\n0\r\n\r\n").await;
    assert!(!text.contains("\"finish_reason\":\""), "{text}");
    client.prompt("scn:text n=1").await;
    client.read_until("[DONE]").await;
}

#[tokio::test]
async fn a_cut_also_breaks_an_unstreamed_reply() {
    let (model, _tasks) = start().await;
    for (mode, reset) in [("fin", false), ("rst", true)] {
        let mut client = Client::connect(&model).await;
        let body = json!({"messages": [{"role": "user", "content": format!("scn:cut mode={mode}")}]});
        client.send("POST", "/v1/chat/completions", "", &body.to_string()).await;
        let (text, end) = client.read_all().await;
        assert!(!text.ends_with("0\r\n\r\n"), "{text}");
        assert_eq!(end.is_err(), reset, "{mode}");
    }
}

#[tokio::test]
async fn failures_are_counted_per_directive_and_recover() {
    let (model, _tasks) = start().await;
    let prompt = "scn:http status=429 times=2 retry_after_ms=15";
    let (first, head, body) = chat(&model, prompt, true).await;
    assert_eq!(first, 429);
    assert!(head.contains("retry-after-ms: 15"), "{head}");
    assert!(body.contains("\"error\""));
    assert_eq!(chat(&model, prompt, true).await.0, 429);
    assert_eq!(
        chat(&model, "scn:http status=500 times=1", true).await.0,
        500,
        "another directive counts apart"
    );
    assert_eq!(chat(&model, prompt, true).await.0, 200);
    assert_eq!(model.journal().attempts().values().copied().collect::<Vec<_>>().iter().sum::<u64>(), 4);

    let (status, _, _) = request(&model, "POST", "/_reset", "").await;
    assert_eq!((status, model.journal().attempts().len()), (200, 0));
    assert_eq!(chat(&model, prompt, true).await.0, 429, "after a reset the count starts again");
}

#[tokio::test]
async fn a_refused_key_is_tried_again_by_the_next_prompt() {
    let (model, _tasks) = start().await;
    let mut messages = Vec::new();
    for expected in [401, 401, 200] {
        messages.push(json!({"role": "user", "content": "scn:auth times=2"}));
        let body = json!({"model": "demo", "stream": true, "messages": messages}).to_string();
        assert_eq!(request(&model, "POST", "/v1/chat/completions", &body).await.0, expected, "{body}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_reply() {
    let (model, _tasks) = start().await;
    for prompt in
        ["scn:forever delay=60000", "scn:forever delay=1", "scn:stall after=0", "scn:text ttft=60000"]
    {
        let mut client = Client::connect(&model).await;
        client.prompt(prompt).await;
        timeout(PATIENCE, model.journal().wait_for(|counts| counts.active == 1)).await.expect(prompt);
        drop(client);
        timeout(PATIENCE, model.journal().wait_for(|counts| counts.active == 0)).await.expect(prompt);
    }
}

#[tokio::test]
async fn chunks_keep_their_pace() {
    let (model, _tasks) = start().await;
    let started = tokio::time::Instant::now();
    chat(&model, "scn:text n=4 delay=20 ttft=40", true).await;
    // Three pauses between four chunks, one before the end, and the silence at the beginning.
    assert!(started.elapsed() >= Duration::from_millis(120), "{:?}", started.elapsed());
}

#[tokio::test]
async fn the_log_contains_the_requests() {
    let (model, _tasks) = start().await;
    chat(&model, "scn:cut times=1 after=1 mode=noend", true).await;
    chat(&model, "hello", false).await;
    let log = get_json(&model, "/_log").await;
    insta::assert_json_snapshot!("log", log);
    let entries = model.journal().entries();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0].session, "ses_1");
    let health = get_json(&model, "/_health").await;
    assert_eq!(health, json!({"ok": true, "requests": 2, "active": 0}));
}

#[tokio::test]
async fn models_are_listed_and_other_paths_are_not_found() {
    let (model, _tasks) = start().await;
    let models = get_json(&model, "/v1/models").await;
    let ids: Vec<_> = models["data"].as_array().unwrap().iter().map(|model| model["id"].clone()).collect();
    assert_eq!(ids, MODELS);
    assert_eq!(request(&model, "GET", "/", "").await.0, 404);
    assert_eq!(request(&model, "POST", "/v1/responses", "{}").await.0, 404);
    assert_eq!(request(&model, "GET", "/v1/chat/completions", "").await.0, 404);
}

#[tokio::test]
async fn a_body_that_is_no_chat_request_is_refused() {
    let (model, _tasks) = start().await;
    for body in ["", "{", "[]", r#"{"messages": 3}"#, "\"text\""] {
        let (status, _, answer) = request(&model, "POST", "/v1/chat/completions", body).await;
        assert_eq!(status, 400, "{body:?}: {answer}");
    }
    let mut client = Client::connect(&model).await;
    let head =
        format!("POST /v1/chat/completions HTTP/1.1\r\nhost: m\r\ncontent-length: {}\r\n\r\n", MAX_BODY + 1);
    client.0.write_all(head.as_bytes()).await.unwrap();
    assert!(client.read_until("\r\n\r\n").await.contains(" 413 "));
}

#[tokio::test]
async fn only_loopback_is_served_and_stopping_ends_open_replies() {
    let tasks = Tasks::new();
    let refused = DemoModel::start("0.0.0.0:0".parse().unwrap(), &tasks).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);

    let (model, tasks) = start().await;
    let mut client = Client::connect(&model).await;
    client.prompt("scn:stall after=1").await;
    client.read_until("\"content\":\"anchor").await;
    timeout(PATIENCE, tasks.stop()).await.expect("the server did not stop");
    assert_eq!(tasks.running(), 0);
}
