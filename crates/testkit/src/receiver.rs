//! A receiver of push notifications on loopback, which behaves as a test says.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// What a receiver does with a call.
#[derive(Clone, Debug)]
pub enum Conduct {
    Answers(u16),
    /// With a further header.
    AnswersWith(u16, &'static str),
    AnswersAfter(Duration, u16),
    /// Never answers.
    Hangs,
    /// Closes the connection without an answer.
    Closes,
}

/// A call, with the names of its headers in lower case.
#[derive(Clone, Debug)]
pub struct Received {
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: Value,
    pub bytes: Vec<u8>,
    pub is_accepted: bool,
}

impl Received {
    pub fn id(&self) -> &str {
        self.headers.get("webhook-id").map_or("", String::as_str)
    }

    /// The state of the task that a body of either version tells, in the spelling of 1.0. `None`: output of the agent.
    pub fn state(&self) -> Option<&str> {
        let place =
            ["statusUpdate", "task"].iter().map(|key| &self.body[key]).find(|place| place.is_object());
        place.unwrap_or(&self.body)["status"]["state"].as_str()
    }
}

type Script = Box<dyn FnMut(&Received) -> Conduct + Send>;

/// Stops when it is dropped.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

struct Shared {
    script: Mutex<Script>,
    received: Mutex<Vec<Received>>,
    changed: Notify,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

impl Receiver {
    pub async fn start(script: impl FnMut(&Received) -> Conduct + Send + 'static) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), script).await
    }

    pub async fn start_at(
        address: SocketAddr,
        script: impl FnMut(&Received) -> Conduct + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.expect("a port of this machine is free");
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(script)),
            received: Mutex::default(),
            changed: Notify::new(),
        });
        let address = listener.local_addr().expect("a listener has an address");
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, shared.clone()));
        Self { address, shared, _serving: serving }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// An address at which nobody listens now.
    pub async fn free_address() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of this machine is free");
        listener.local_addr().expect("a listener has an address")
    }

    /// All calls so far, in the order of their arrival.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.shared.received).clone()
    }

    /// The accepted calls of a path, each `webhook-id` once.
    pub fn accepted(&self, path: &str) -> Vec<Received> {
        let mut seen = BTreeSet::new();
        let accepted = self.received().into_iter().filter(|call| call.is_accepted && call.path == path);
        accepted.filter(|call| seen.insert(call.id().to_owned())).collect()
    }

    /// Waits until something holds, which is checked after each call.
    pub async fn until(&self, limit: Duration, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let waiting = async {
            loop {
                let changed = self.shared.changed.notified();
                if holds(self) {
                    return;
                }
                changed.await;
            }
        };
        let done = tokio::time::timeout(limit, waiting).await;
        assert!(done.is_ok(), "within {limit:?} it did not happen that {what}: {:#?}", self.received());
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        connections.spawn(async move {
            // A caller that goes away in the middle has made no call.
            let _ = answer(stream, &shared).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Answers one call and closes the connection.
async fn answer(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let path = line.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    let body = serde_json::from_slice(&bytes).unwrap_or_default();
    let mut received = Received { path, headers, body, bytes, is_accepted: false };
    let conduct = (lock(&shared.script))(&received);
    let (status, header) = match conduct {
        Conduct::Answers(status) | Conduct::AnswersAfter(_, status) => (status, ""),
        Conduct::AnswersWith(status, header) => (status, header),
        Conduct::Hangs | Conduct::Closes => (0, ""),
    };
    received.is_accepted = (200..300).contains(&status);
    if let Conduct::AnswersAfter(pause, _) = conduct {
        tokio::time::sleep(pause).await;
    }
    lock(&shared.received).push(received);
    shared.changed.notify_waiters();
    match conduct {
        Conduct::Closes => return Ok(()),
        Conduct::Hangs => {
            // Until the caller gives up.
            let _ = stream.read_u8().await;
            return Ok(());
        }
        _ => {}
    }
    let response =
        format!("HTTP/1.1 {status} It is so\r\ncontent-length: 0\r\nconnection: close\r\n{header}\r\n");
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
