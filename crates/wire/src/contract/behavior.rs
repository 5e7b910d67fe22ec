//! Describes what this gateway does where the specifications leave the behaviour open or define it differently.

use longshore_model::ErrorKind;
use serde_json::{Value, json};

use super::method;
use crate::surface::{OPERATIONS, ProtocolVersion};
use crate::v1::method::Method;

/// How an operation behaves when it is repeated, after a lost connection, and on a task that is already over.
pub fn service_behaviors(version: ProtocolVersion) -> Value {
    let mut methods = match version {
        ProtocolVersion::V03 => json!({
            "tasks/cancel": {
                "baseline": "core",
                "retention": "stable",
                "idempotency": {
                    "already_canceled": {
                        "behavior": "return_current_terminal_task",
                        "returns_current_state": "canceled",
                        "error": null,
                    },
                },
            },
            "tasks/resubscribe": {
                "baseline": "core",
                "retention": "stable",
                "resume": resume(),
                "terminal_state_behavior": {
                    "behavior": "replay_terminal_task_once_then_close",
                    "delivery": "single_task_snapshot",
                    "closes_stream": true,
                },
            },
        }),
        ProtocolVersion::V1 => json!({
            "CancelTask": {
                "baseline": "core",
                "retention": "stable",
                "idempotency": {
                    "already_canceled": {
                        "behavior": "reject",
                        "returns_current_state": null,
                        "error": method::error(version, ErrorKind::TaskNotCancelable),
                    },
                },
            },
            "SubscribeToTask": {
                "baseline": "core",
                "retention": "stable",
                "resume": resume(),
                "terminal_state_behavior": {
                    "behavior": "reject",
                    "error": method::error(version, ErrorKind::UnsupportedOperation),
                    "with_last_event_id": {
                        "behavior": "replay_missed_events_then_close",
                        "delivery": "events_after_last_event_id",
                        "closes_stream": true,
                    },
                },
            },
        }),
    };
    let is_send = |method| matches!(method, Method::SendMessage | Method::SendStreamingMessage);
    for operation in OPERATIONS.iter().filter(|operation| is_send(operation.method)) {
        methods[operation.jsonrpc(version)] = json!({
            "baseline": "core",
            "retention": "stable",
            "idempotency": {
                "same_message_id": {
                    "behavior": "return_existing_task",
                    "condition": "same_caller_and_equal_message",
                    "window": "turns.idempotency_window",
                },
            },
        });
    }
    json!({"classification": "service-level-semantic-enhancement", "methods": methods})
}

/// How a reader resumes after a lost connection.
fn resume() -> Value {
    json!({"header": "Last-Event-ID", "behavior": "replay_missed_events_then_follow"})
}
