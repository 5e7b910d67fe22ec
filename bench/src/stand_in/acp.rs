//! The stand-in as an ACP agent: requests come on the standard input, updates and answers leave on the standard output.

use std::collections::HashMap;
use std::sync::Arc;

use longshore_opencode_shapes::VERSION;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

use super::Shared;
use super::world::World;

/// What waits to be written to the client, and the prompts that it waits for.
#[derive(Debug, Default)]
pub(super) struct Client {
    lines: Vec<u8>,
    /// The id of the request, by its session.
    prompts: HashMap<String, Value>,
}

impl Client {
    /// The lines since the last call.
    pub(super) fn take_lines(&mut self) -> Vec<u8> {
        // As much again will come before the next call.
        let room = Vec::with_capacity(self.lines.len());
        std::mem::replace(&mut self.lines, room)
    }

    /// Writes a delta, in the shape of OpenCode's. Deltas contain no character that JSON escapes.
    pub(super) fn delta(&mut self, session: &str, message: &str, delta: &str) {
        for text in [
            r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":""#,
            session,
            r#"","update":{"sessionUpdate":"agent_message_chunk","messageId":""#,
            message,
            r#"","content":{"type":"text","text":""#,
            delta,
            "\"}}}}\n",
        ] {
            self.lines.extend_from_slice(text.as_bytes());
        }
    }

    /// Answers the prompt of a session whose turn has ended.
    pub(super) fn end(&mut self, session: &str, is_aborted: bool) {
        if let Some(id) = self.prompts.remove(session) {
            let reason = if is_aborted { "cancelled" } else { "end_turn" };
            self.write(&json!({"jsonrpc": "2.0", "id": id, "result": {"stopReason": reason}}));
        }
    }

    fn write(&mut self, message: &Value) {
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut self.lines, message);
        self.lines.push(b'\n');
    }
}

/// Takes requests until the input ends.
pub(super) async fn take_requests(shared: Arc<Shared>, input: impl AsyncRead + Unpin) {
    let mut lines = BufReader::new(input).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(request) = serde_json::from_str(&line) {
            take(&mut shared.lock(), &request);
            shared.wake();
        }
    }
}

fn take(world: &mut World, request: &Value) {
    let (id, params) = (&request["id"], &request["params"]);
    let session = params["sessionId"].as_str().unwrap_or_default();
    let result = match request["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": 1,
            "agentCapabilities": {"loadSession": true},
            "agentInfo": {"name": "stand-in", "version": VERSION},
        }),
        "session/new" => {
            let made = world.make_session(params["cwd"].as_str().unwrap_or("/"), None);
            let made: Value = serde_json::from_str(&made).unwrap_or_default();
            json!({"sessionId": made["id"]})
        }
        "session/load" if world.session(session).is_some() => json!({}),
        "session/prompt" if world.session(session).is_some() => {
            let texts = params["prompt"].as_array().into_iter().flatten();
            let texts: Vec<_> = texts.filter_map(|block| block["text"].as_str()).collect();
            if let Some(client) = &mut world.client {
                client.prompts.insert(session.to_owned(), id.clone());
            }
            world.prompt(session, &texts.join("\n"), None);
            return;
        }
        "session/cancel" => return world.abort(session),
        _ => {
            let error = json!({"code": -32601, "message": "The stand-in does not have that."});
            return answer(world, &json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
    };
    answer(world, &json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn answer(world: &mut World, message: &Value) {
    if let Some(client) = &mut world.client {
        client.write(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(world: &mut World) -> Vec<Value> {
        let lines = world.client.as_mut().unwrap().take_lines();
        lines
            .split_inclusive(|byte| *byte == b'\n')
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    fn open(world: &mut World) -> String {
        take(world, &json!({"id": 1, "method": "session/new", "params": {"cwd": "/here"}}));
        let answered = lines(world);
        answered[0]["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    #[test]
    fn a_turn_is_its_deltas_and_then_the_answer_to_its_prompt() {
        let mut world = World::of_acp();
        take(&mut world, &json!({"id": 0, "method": "initialize", "params": {}}));
        assert_eq!(lines(&mut world)[0]["result"]["protocolVersion"], 1);
        let session = open(&mut world);
        let prompt = json!([{"type": "text", "text": "bench key=a n=3"}]);
        let params = json!({"sessionId": session, "prompt": prompt});
        take(&mut world, &json!({"id": 7, "method": "session/prompt", "params": params}));
        while world.running() > 0 {
            world.advance();
        }
        let mut said = lines(&mut world);
        assert_eq!(
            said.pop().unwrap(),
            json!({"jsonrpc": "2.0", "id": 7, "result": {"stopReason": "end_turn"}})
        );
        assert_eq!(said.len(), 3);
        let texts = said.iter().map(|line| {
            assert_eq!(line["params"]["sessionId"], session);
            assert_eq!(line["params"]["update"]["sessionUpdate"], "agent_message_chunk");
            line["params"]["update"]["content"]["text"].as_str().unwrap()
        });
        let text: String = texts.collect();
        let sent = world.sent_text("a").unwrap();
        assert_eq!((sent.deltas, sent.sum), (3, crate::stamp::TextSum::of(text.as_bytes())));
    }

    #[test]
    fn a_cancel_ends_the_turn_and_an_unknown_method_is_an_error() {
        let mut world = World::of_acp();
        let session = open(&mut world);
        let prompt = json!([{"type": "text", "text": "bench n=1000 rate=1"}]);
        let params = json!({"sessionId": session, "prompt": prompt});
        take(&mut world, &json!({"id": 8, "method": "session/prompt", "params": params}));
        world.advance();
        take(&mut world, &json!({"method": "session/cancel", "params": {"sessionId": session}}));
        let answer = lines(&mut world).pop().unwrap();
        assert_eq!((&answer["id"], &answer["result"]["stopReason"]), (&json!(8), &json!("cancelled")));
        take(&mut world, &json!({"id": 9, "method": "session/fork", "params": {}}));
        assert_eq!(lines(&mut world)[0]["error"]["code"], -32601);
    }
}
