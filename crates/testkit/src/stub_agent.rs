//! An HTTP server that answers as the test says: an A2A agent with any behaviour, or something that is no agent at all.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

/// How long a connection may be silent before the server closes it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The largest request body that is read.
const MAX_BODY: usize = 1024 * 1024;

/// A request as the server received it.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    /// The path and the query.
    pub target: String,
    /// By their names in lower case.
    pub headers: HashMap<String, String>,
    /// Null if there is none, or it is not JSON.
    pub body: Value,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The method of a JSON-RPC request.
    pub fn rpc(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }
}

/// What the server answers.
#[derive(Clone, Debug)]
#[must_use = "its methods return a changed copy"]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    end: End,
}

/// How a response ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Complete,
    /// The connection closes before the body is complete.
    Broken,
    /// The body is sent again and again until the client closes the connection.
    Endless,
    /// Nothing is sent, and the connection stays open until the client closes it.
    Silent,
}

impl Reply {
    pub fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self { status, headers, body: body.into(), end: End::Complete }
    }

    pub fn json(body: &Value) -> Self {
        Self::new(200, "application/json", body.to_string())
    }

    /// The result of a JSON-RPC call.
    pub fn result(result: &Value) -> Self {
        Self::json(&json!({"jsonrpc": "2.0", "id": "1", "result": result}))
    }

    /// A JSON-RPC error.
    pub fn error(code: i64, message: &str) -> Self {
        Self::json(&json!({"jsonrpc": "2.0", "id": "1", "error": {"code": code, "message": message}}))
    }

    /// A stream of JSON-RPC results. An event with an id is a pair.
    pub fn stream(events: &[(Option<&str>, Value)]) -> Self {
        let mut body = String::new();
        for (id, event) in events {
            if let Some(id) = id {
                body.extend(["id: ", id, "\n"]);
            }
            let response = json!({"jsonrpc": "2.0", "id": "1", "result": event});
            body.extend(["data: ", &response.to_string(), "\n\n"]);
        }
        Self::new(200, "text/event-stream", body)
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The connection breaks at the end of this body.
    pub fn broken(self) -> Self {
        Self { end: End::Broken, ..self }
    }

    /// The body repeats for ever.
    pub fn endless(self) -> Self {
        Self { end: End::Endless, ..self }
    }

    /// No byte is sent.
    pub fn silent() -> Self {
        Self { end: End::Silent, ..Self::new(200, "", "") }
    }
}

/// A running server. Dropping it stops it; a connection that is open ends with its client.
#[derive(Debug)]
pub struct StubAgent {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    is_over: Arc<AtomicBool>,
}

impl StubAgent {
    /// `answer` gets each request, and the address of the server.
    pub fn start(answer: impl Fn(&Request, &str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let (requests, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (log, stop) = (Arc::clone(&requests), Arc::clone(&is_over));
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(connection) = connection else { continue };
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let url = format!("http://{address}");
                    // A client may close its connection at any time.
                    let _ = converse(connection, &log, |request| answer(request, &url));
                });
            }
        });
        Self { address, requests, is_over }
    }

    /// The URL, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.requests).clone()
    }

    /// A card of 1.0 with JSON-RPC at this URL.
    pub fn card(url: &str) -> Value {
        json!({"name": "Stub", "description": "A test agent.", "version": "1", "skills": [],
            "capabilities": {"streaming": true}, "defaultInputModes": [], "defaultOutputModes": [],
            "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]})
    }
}

impl Drop for StubAgent {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts connections.
        drop(TcpStream::connect(self.address));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers one request. The connection closes after it.
fn converse(
    connection: TcpStream,
    log: &Mutex<Vec<Request>>,
    answer: impl Fn(&Request) -> Reply,
) -> std::io::Result<()> {
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(connection.try_clone()?);
    let Some(request) = read(&mut reader)? else { return Ok(()) };
    lock(log).push(request.clone());
    let reply = answer(&request);
    let mut connection = connection;
    if reply.end == End::Silent {
        // Returns when the client closes the connection.
        let _ = reader.read(&mut [0]);
        return Ok(());
    }
    let mut head = format!("HTTP/1.1 {} Status\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.extend([name.as_str(), ": ", value, "\r\n"]);
    }
    let length = match reply.end {
        End::Complete => Some(reply.body.len()),
        End::Broken => Some(reply.body.len() + 1000),
        End::Endless | End::Silent => None,
    };
    if let Some(length) = length {
        head.extend([
            "content-length: ",
            &length.to_string(),
            "
",
        ]);
    }
    connection.write_all(format!("{head}\r\n").as_bytes())?;
    connection.write_all(&reply.body)?;
    if reply.end == End::Endless {
        // Writing fails when the client closes the connection.
        loop {
            connection.write_all(&reply.body)?;
        }
    }
    connection.flush()
}

fn read(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(None) };
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length: usize =
        headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or_default();
    let mut body = vec![0; length.min(MAX_BODY)];
    reader.read_exact(&mut body)?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Ok(Some(Request { method, target, headers, body }))
}
