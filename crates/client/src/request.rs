//! Writes requests in the format of each version and binding.

use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::card::{Binding, Interface};
use crate::value::{Content, Metadata, Part};

/// A JSON format of messages and tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dialect {
    /// All bindings of 1.0.
    V1,
    V03Rpc,
    /// The JSON of the protocol buffers of 0.3, which REST and gRPC use.
    V03Rest,
}

impl Interface {
    pub(crate) fn dialect(&self) -> Dialect {
        match (self.version, self.binding) {
            (ProtocolVersion::V1, _) => Dialect::V1,
            (ProtocolVersion::V03, Binding::JsonRpc) => Dialect::V03Rpc,
            (ProtocolVersion::V03, Binding::Rest | Binding::Grpc) => Dialect::V03Rest,
        }
    }
}

/// A message to an agent.
#[derive(Clone, PartialEq, Debug)]
pub struct Outgoing {
    /// The id. An agent may treat two messages with the same id as the same message.
    pub message_id: String,
    pub parts: Vec<Part>,
    /// The conversation to continue. `None`: a new one.
    pub context_id: Option<String>,
    /// The task that the message answers or adds to. `None`: the message starts a task.
    pub task_id: Option<String>,
    /// Options for the agent that are no part of the message's text.
    pub metadata: Metadata,
}

impl Outgoing {
    /// `message_id`: see [`new_message_id`] for a new one.
    pub fn new(message_id: impl Into<String>, parts: Vec<Part>) -> Self {
        let (context_id, task_id, metadata) = (None, None, Metadata::new());
        Self { message_id: message_id.into(), parts, context_id, task_id, metadata }
    }

    /// The parameters of the request that sends the message. `waits`: whether the agent answers only when the task settles.
    pub(crate) fn write(&self, dialect: Dialect, waits: bool) -> Value {
        let parts: Vec<Value> = self.parts.iter().map(|part| write_part(part, dialect)).collect();
        let mut message = match dialect {
            Dialect::V1 => json!({"messageId": self.message_id, "role": "ROLE_USER", "parts": parts}),
            Dialect::V03Rpc => {
                json!({"kind": "message", "messageId": self.message_id, "role": "user", "parts": parts})
            }
            Dialect::V03Rest => {
                json!({"messageId": self.message_id, "role": "ROLE_USER", "content": parts})
            }
        };
        for (name, id) in [("contextId", &self.context_id), ("taskId", &self.task_id)] {
            if let Some(id) = id {
                message[name] = id.as_str().into();
            }
        }
        let configuration = match dialect {
            Dialect::V1 => json!({"returnImmediately": !waits}),
            Dialect::V03Rpc | Dialect::V03Rest => json!({"blocking": waits}),
        };
        let mut params = json!({"message": message, "configuration": configuration});
        if !self.metadata.is_empty() {
            params["metadata"] = self.metadata.clone().into();
        }
        params
    }
}

/// A new, unique message id.
pub fn new_message_id() -> String {
    // Event ids and request ids are random too. 128 random bits are enough to avoid collisions.
    format!("{:032x}", rand::random::<u128>())
}

fn write_part(part: &Part, dialect: Dialect) -> Value {
    let mut json = match (dialect, &part.content) {
        (Dialect::V1 | Dialect::V03Rest, Content::Text(text)) => json!({"text": text}),
        (Dialect::V03Rpc, Content::Text(text)) => json!({"kind": "text", "text": text}),
        (Dialect::V1, Content::Raw(bytes)) => json!({"raw": bytes}),
        (Dialect::V1, Content::Url(url)) => json!({"url": url}),
        (Dialect::V1, Content::Data(data)) => json!({"data": data}),
        (Dialect::V03Rpc, Content::Raw(bytes)) => json!({"kind": "file", "file": {"bytes": bytes}}),
        (Dialect::V03Rpc, Content::Url(url)) => json!({"kind": "file", "file": {"uri": url}}),
        (Dialect::V03Rpc, Content::Data(data)) => json!({"kind": "data", "data": data}),
        (Dialect::V03Rest, Content::Raw(bytes)) => json!({"file": {"fileWithBytes": bytes}}),
        (Dialect::V03Rest, Content::Url(url)) => json!({"file": {"fileWithUri": url}}),
        (Dialect::V03Rest, Content::Data(data)) => json!({"data": {"data": data}}),
    };
    let names = if dialect == Dialect::V1 { ["filename", "mediaType"] } else { ["name", "mimeType"] };
    for (name, value) in names.into_iter().zip([&part.filename, &part.media_type]) {
        let Some(value) = value else { continue };
        match (dialect, json.get_mut("file")) {
            (Dialect::V1, _) => json[name] = value.as_str().into(),
            (_, Some(file)) => file[name] = value.as_str().into(),
            // In 0.3, text and data parts have no such fields.
            (_, None) => {}
        }
    }
    if !part.metadata.is_empty() {
        json["metadata"] = part.metadata.clone().into();
    }
    json
}

#[cfg(test)]
mod tests {
    use longshore_wire::{v1, v03};

    use super::*;

    /// The gateway's own decoders read each format to the same message.
    #[test]
    fn every_format_says_the_same() {
        let file = Part {
            filename: Some("a.txt".to_owned()),
            media_type: Some("text/plain".to_owned()),
            ..Part::new(Content::Raw("aGk=".to_owned()))
        };
        let mut outgoing = Outgoing::new("m-1", vec![Part::text("hi"), file, Part::data(json!({"n": 1}))]);
        outgoing.context_id = Some("c-1".to_owned());
        outgoing.task_id = Some("t-1".to_owned());
        outgoing.metadata.insert("k".to_owned(), 1.into());
        let read = |dialect: Dialect, waits: bool| {
            let json = outgoing.write(dialect, waits).to_string();
            match dialect {
                Dialect::V1 => v1::decode::send_message(&json),
                Dialect::V03Rpc => v03::decode::send_message(v03::Dialect::Rpc, &json),
                Dialect::V03Rest => v03::decode::send_message(v03::Dialect::Rest, &json),
            }
            .unwrap()
        };
        for waits in [true, false] {
            let newest = read(Dialect::V1, waits);
            assert_eq!(newest.config.return_immediately, !waits);
            assert_eq!(newest.message.parts.len(), 3);
            for dialect in [Dialect::V03Rpc, Dialect::V03Rest] {
                assert_eq!(read(dialect, waits), newest, "{dialect:?}");
            }
        }
    }
}
