//! A fake of the tools, and a client that writes and reads lines.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_engine::port::BoxFuture;
use longshore_mcp::{Callers, IncomingCall};
use longshore_model::{Principal, SessionId};
use longshore_peers::{
    AnswerRequest, CallHandle, CallKey, CallReport, CallRequest, CallState, PeerSummary, Progress,
    ToolCaller, ToolError, Tools,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Fake tools that log each request. Every call ends in the same state. A call with the message `hang` or `report progress` waits
/// until [`Self::release`].
#[derive(Clone, Debug)]
pub(crate) struct FakeTools {
    log: Arc<Mutex<Vec<String>>>,
    logged: Arc<Notify>,
    released: Arc<Semaphore>,
    state: CallState,
}

impl FakeTools {
    pub(crate) fn new(state: CallState) -> Self {
        Self { log: Arc::default(), logged: Arc::default(), released: Arc::new(Semaphore::new(0)), state }
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn last(&self) -> String {
        self.log().pop().unwrap()
    }

    /// Waits until `line` is the last line of the log.
    pub(crate) async fn until(&self, line: &str) {
        while self.log().last().is_none_or(|last| last != line) {
            self.logged.notified().await;
        }
    }

    /// Lets one waiting call return.
    pub(crate) fn release(&self) {
        self.released.add_permits(1);
    }

    fn note(&self, line: String) {
        self.log.lock().unwrap().push(line);
        self.logged.notify_one();
    }

    fn report(&self) -> CallReport {
        CallReport {
            handle: CallHandle("c1".to_owned()),
            peer: "b".to_owned(),
            state: self.state.clone(),
            text: "done".to_owned(),
            artifacts: Vec::new(),
        }
    }
}

/// Logs a line if the wait of a call is dropped before its end.
struct NoteDrop<'a>(&'a FakeTools, bool);

impl Drop for NoteDrop<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.note("dropped".to_owned());
        }
    }
}

impl Tools for FakeTools {
    fn discover<'a>(&'a self, _: &'a ToolCaller) -> BoxFuture<'a, Result<Vec<PeerSummary>, ToolError>> {
        self.note("discover".to_owned());
        let summary = PeerSummary {
            name: "b".to_owned(),
            description: "Reviews.".to_owned(),
            skills: vec![("review".to_owned(), "Reads a diff.".to_owned())],
            problem: None,
        };
        Box::pin(async { Ok(vec![summary]) })
    }

    fn call<'a>(
        &'a self,
        _: &'a ToolCaller,
        key: &'a CallKey,
        request: CallRequest,
        progress: Progress,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>> {
        Box::pin(async move {
            let CallRequest { peer, text, continues, wait } = request;
            let continues = continues.map(|call| format!(" continues {}", call.0)).unwrap_or_default();
            self.note(format!("call {} {peer} {text} {wait:?}{continues}", key.0));
            match text.as_str() {
                "panic" => panic!("the test wants it"),
                "refuse" => return Err(ToolError(format!("There is no agent `{peer}`."))),
                "hang" | "report progress" => {
                    let mut dropped = NoteDrop(self, false);
                    if text != "hang" {
                        progress.send(format!("asked {peer}:\n{text}")).await.unwrap();
                    }
                    self.released.acquire().await.unwrap().forget();
                    dropped.1 = true;
                }
                _ => {}
            }
            Ok(self.report())
        })
    }

    fn status<'a>(
        &'a self,
        _: &'a ToolCaller,
        call: &'a CallHandle,
        wait: Duration,
        _: Progress,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>> {
        self.note(format!("status {} {wait:?}", call.0));
        Box::pin(async { Ok(self.report()) })
    }

    fn answer<'a>(
        &'a self,
        _: &'a ToolCaller,
        key: &'a CallKey,
        call: &'a CallHandle,
        AnswerRequest { ask, text, wait }: AnswerRequest,
        _: Progress,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>> {
        self.note(format!("answer {} {} {ask:?} {text} {wait:?}", key.0, call.0));
        Box::pin(async { Ok(self.report()) })
    }

    fn cancel<'a>(
        &'a self,
        _: &'a ToolCaller,
        call: &'a CallHandle,
    ) -> BoxFuture<'a, Result<CallReport, ToolError>> {
        self.note(format!("cancel {}", call.0));
        Box::pin(async { Ok(self.report()) })
    }
}

/// Takes the caller from the arguments `session` and `who`, like a transport that adds such arguments.
#[derive(Debug)]
struct FakeCallers;

impl Callers for FakeCallers {
    fn identify<'a>(
        &'a self,
        call: &'a mut IncomingCall,
    ) -> BoxFuture<'a, Result<(ToolCaller, CallKey), ToolError>> {
        Box::pin(async {
            if call.arguments.remove("who").is_some() {
                return Err(ToolError("The calling task is not known.".to_owned()));
            }
            let caller = match call.arguments.remove("session") {
                Some(session) => ToolCaller::Session {
                    session: SessionId::parse(session.as_str().unwrap()).unwrap(),
                    tool_call: None,
                },
                None => ToolCaller::Client(Principal::new("ada")),
            };
            Ok((caller, CallKey(format!("key-{}", call.tool))))
        })
    }
}

pub(crate) struct Client {
    pub(crate) tools: FakeTools,
    reader: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    next_id: u64,
    serving: JoinHandle<io::Result<()>>,
    stop: CancellationToken,
}

impl Client {
    /// Connects a client and completes the handshake.
    pub(crate) async fn connect(tools: FakeTools) -> Self {
        let mut client = Self::open(tools);
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let begun = client.request("initialize", params).await;
        assert_eq!(begun["result"]["serverInfo"]["name"], "longshore", "{begun}");
        client.notify("notifications/initialized", json!({})).await;
        client
    }

    /// Connects a client that sends nothing, and returns how the server ends the connection.
    pub(crate) async fn silent(tools: FakeTools) -> io::Result<()> {
        Self::open(tools).serving.await.unwrap()
    }

    #[expect(clippy::disallowed_methods, reason = "a test ends all its tasks with its runtime")]
    fn open(tools: FakeTools) -> Self {
        let (here, there) = tokio::io::duplex(64 * 1024);
        let (reader, writer) = tokio::io::split(there);
        let stop = CancellationToken::new();
        let serving = longshore_mcp::serve(
            reader,
            writer,
            Arc::new(tools.clone()),
            Arc::new(FakeCallers),
            stop.clone(),
        );
        let (reader, writer) = tokio::io::split(here);
        let reader = BufReader::new(reader).lines();
        Self { tools, reader, writer, next_id: 0, serving: tokio::spawn(serving), stop }
    }

    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    pub(crate) async fn write(&mut self, line: &str) {
        self.writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// Sends a request and returns its id.
    pub(crate) async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params});
        self.write(&request.to_string()).await;
        self.next_id
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()).await;
    }

    /// The next message of the server.
    pub(crate) async fn next(&mut self) -> Value {
        let line = self.reader.next_line().await.unwrap().expect("the server closed the connection");
        serde_json::from_str(&line).unwrap()
    }

    /// Sends a request and returns its answer, which must come next.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        let answer = self.next().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }

    /// Reads the remaining messages of the server until it closes the connection.
    pub(crate) async fn rest(mut self) -> Vec<Value> {
        let mut messages = Vec::new();
        while let Some(line) = self.reader.next_line().await.unwrap() {
            messages.push(serde_json::from_str(&line).unwrap());
        }
        messages
    }

    /// Writes requests as long as the server reads them, and reads no answer. Replaces `$` by a number. Returns how many were
    /// written.
    pub(crate) async fn flood(mut self, request: &str, most: usize) -> usize {
        for written in 0..most {
            let line = format!("{}\n", request.replace('$', &(1000 + written).to_string()));
            let writing = self.writer.write_all(line.as_bytes());
            if tokio::time::timeout(Duration::from_secs(1), writing).await.is_err() {
                return written;
            }
        }
        most
    }
}
