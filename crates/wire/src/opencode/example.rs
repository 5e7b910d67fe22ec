//! Example calls for the `OpenAPI` document.

use serde_json::{Value, json};

/// Example parameters for one method of each kind.
pub(super) fn calls() -> Vec<(&'static str, Value)> {
    let prompt = json!({
        "parts": [{"type": "text", "text": "Run the tests."}],
        "model": {"providerID": "openai", "modelID": "gpt-5"},
    });
    vec![
        ("opencode.sessions.list", json!({"limit": 10, "roots": true})),
        ("opencode.sessions.messages.list", json!({"session_id": "ses_1", "limit": 20})),
        ("opencode.sessions.prompt_async", json!({"session_id": "ses_1", "request": prompt})),
        (
            "opencode.sessions.command",
            json!({"session_id": "ses_1", "request": {"command": "review", "arguments": "src"}}),
        ),
        (
            "opencode.sessions.shell",
            json!({"session_id": "ses_1", "request": {"agent": "build", "command": "git status --short"}}),
        ),
        ("opencode.models.list", json!({"provider_id": "openai"})),
        ("opencode.worktrees.remove", json!({"request": {"name": "feature"}})),
    ]
}
