//! What makes two sends the same send.

use longshore_model::{Message, RequestId, SendMessage};
use sha2::{Digest, Sha256};

use crate::port::IdempotencyKey;

impl IdempotencyKey {
    /// Under which the same send is known as the answer to this ask.
    pub(crate) fn of_answer(&self, request: &RequestId) -> Self {
        self.of(request.as_str())
    }

    /// Under which the same send is known as an answer that was not taken.
    pub(crate) fn of_refusal(&self) -> Self {
        // No ask has this name.
        self.of("\0refused")
    }

    fn of(&self, what: &str) -> Self {
        let digest = Sha256::new().chain_update(self.digest).chain_update(what).finalize().into();
        Self { digest, valid_since: self.valid_since }
    }
}

/// A digest of the message id, its target and its content. Configuration does not count: a client that lost the
/// answer of a blocking send may ask again with a stream.
pub(crate) fn digest(command: &SendMessage) -> [u8; 32] {
    let Message { id, role, parts, context_id, task_id, reference_task_ids, extensions, metadata } =
        &command.message;
    let mut hasher = Sha256::new();
    // Each field is a JSON text of its own behind its length, so that no two different messages run together.
    let mut feed = |field: Result<Vec<u8>, serde_json::Error>| {
        let field = field.expect("the model's types serialise to JSON");
        hasher.update((field.len() as u64).to_le_bytes());
        hasher.update(&field);
    };
    feed(serde_json::to_vec(id));
    feed(serde_json::to_vec(role));
    feed(serde_json::to_vec(parts));
    feed(serde_json::to_vec(context_id));
    feed(serde_json::to_vec(task_id));
    feed(serde_json::to_vec(reference_task_ids));
    feed(serde_json::to_vec(extensions));
    feed(serde_json::to_vec(metadata));
    // The session that the caller named is part of the metadata.
    feed(serde_json::to_vec(&command.metadata));
    hasher.finalize().into()
}
