//! Decides which sends count as the same send.

use longshore_model::{
    Message, MessageId, NativePrompt, Part, PromptOptions, RequestId, SendMessage, SessionId,
};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::port::IdempotencyKey;

impl IdempotencyKey {
    /// The key under which a send is stored as the answer to this ask.
    pub(crate) fn of_answer(&self, request: &RequestId) -> Self {
        self.derived(request.as_str())
    }

    /// The key under which a send is stored as a refused answer.
    pub(crate) fn of_refusal(&self) -> Self {
        // No ask has this id.
        self.derived("\0refused")
    }

    fn derived(&self, what: &str) -> Self {
        let digest = Sha256::new().chain_update(self.digest).chain_update(what).finalize().into();
        Self { digest, valid_since: self.valid_since }
    }
}

/// A digest of the message id, its target and its content. The configuration of the send does not count, because a client that
/// lost the response of a blocking send may try again with a stream.
pub(crate) fn digest(command: &SendMessage) -> [u8; 32] {
    let Message { id, role, parts, context_id, task_id, reference_task_ids, extensions, metadata } =
        &command.message;
    let mut hasher = Sha256::new();
    feed(&mut hasher, id);
    feed(&mut hasher, role);
    feed(&mut hasher, parts);
    feed(&mut hasher, context_id);
    feed(&mut hasher, task_id);
    feed(&mut hasher, reference_task_ids);
    feed(&mut hasher, extensions);
    feed(&mut hasher, metadata);
    // The session that the caller named is part of the metadata.
    feed(&mut hasher, &command.metadata);
    hasher.finalize().into()
}

/// A digest of a native prompt: of the caller's message id and the whole content of the prompt.
pub(crate) fn native_prompt_digest(
    message: &MessageId,
    session: &SessionId,
    order: &NativePrompt,
    content: &[Part],
    options: &PromptOptions,
) -> [u8; 32] {
    let mut hasher = Sha256::new();
    // Keeps this digest apart from the digest of a message, whose first field is its id: a string and not an array.
    feed(&mut hasher, &["order"]);
    feed(&mut hasher, message);
    feed(&mut hasher, session);
    feed(&mut hasher, order);
    feed(&mut hasher, content);
    feed(&mut hasher, options);
    hasher.finalize().into()
}

/// Hashes the length of a field, and then the field as JSON text, so that no two different messages have the same bytes.
fn feed(hasher: &mut Sha256, field: &(impl Serialize + ?Sized)) {
    let field = serde_json::to_vec(field).expect("the model's types serialise to JSON");
    hasher.update((field.len() as u64).to_le_bytes());
    hasher.update(&field);
}
