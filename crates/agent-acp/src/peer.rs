//! The agent's side of a connection, for tests: the test plays the agent.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf, split,
};
use tokio::time::timeout;

pub(crate) struct Peer {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    pub(crate) output: WriteHalf<DuplexStream>,
}

impl Peer {
    /// Creates an agent, and the gateway's end of the pipe to it.
    pub(crate) fn new() -> (Self, DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (read, write) = split(theirs);
        (Self { lines: BufReader::new(read).lines(), output: write }, ours)
    }

    /// The next message from the gateway.
    pub(crate) async fn get(&mut self) -> Value {
        let line = timeout(Duration::from_secs(30), self.lines.next_line()).await.expect("a message comes");
        serde_json::from_str(&line.unwrap().expect("the client writes")).unwrap()
    }

    /// Reads some of the gateway's output and ignores it.
    pub(crate) async fn take_some(&mut self) {
        let read = self.lines.get_mut().fill_buf().await.unwrap().len();
        self.lines.get_mut().consume(read);
    }

    /// Waits until the gateway closes the pipe.
    pub(crate) async fn closed(&mut self) {
        assert_eq!(self.lines.next_line().await.unwrap(), None);
    }

    pub(crate) async fn say(&mut self, message: &Value) {
        self.say_raw(&format!("{message}\n")).await;
    }

    pub(crate) async fn say_raw(&mut self, text: &str) {
        self.output.write_all(text.as_bytes()).await.unwrap();
    }

    /// Responds to the next request, which must have this method.
    pub(crate) async fn answer(&mut self, method: &str, result: Value) -> Value {
        let request = self.get().await;
        assert_eq!(request["method"], method);
        self.say(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
        request
    }

    pub(crate) async fn fail(&mut self, method: &str, code: i64, message: &str) {
        let request = self.get().await;
        assert_eq!(request["method"], method);
        self.say(&json!({"id": request["id"], "error": {"code": code, "message": message}})).await;
    }

    pub(crate) async fn update(&mut self, session: &str, update: Value) {
        self.say(&json!({"method": "session/update", "params": {"sessionId": session, "update": update}}))
            .await;
    }

    pub(crate) async fn text(&mut self, session: &str, text: &str) {
        self.update(
            session,
            json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}),
        )
        .await;
    }

    /// Ends the turn of this prompt with a response.
    pub(crate) async fn end(&mut self, prompt: &Value, reason: &str) {
        self.say(&json!({"id": prompt["id"], "result": {"stopReason": reason}})).await;
    }

    pub(crate) async fn ask(&mut self, session: &str, id: Value) {
        self.say(&json!({"id": id, "method": "session/request_permission", "params": {"sessionId": session,
            "toolCall": {"toolCallId": format!("call-{id}")}, "options": [{"optionId": "y", "name": "Yes", "kind": "allow_once"},
            {"optionId": "cancel", "name": "No", "kind": "reject_once"}]}}))
            .await;
    }
}
