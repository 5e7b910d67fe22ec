//! What the lines leave open, or do differently, and what is done here.

use longshore_model::ErrorKind;
use serde_json::{Value, json};

use super::method;
use crate::surface::Line;

/// How an operation behaves on a task that is over already.
pub fn service_behaviors(line: Line) -> Value {
    let methods = match line {
        Line::V03 => json!({
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
                "terminal_state_behavior": {
                    "behavior": "replay_terminal_task_once_then_close",
                    "delivery": "single_task_snapshot",
                    "closes_stream": true,
                },
            },
        }),
        Line::V1 => json!({
            "CancelTask": {
                "baseline": "core",
                "retention": "stable",
                "idempotency": {
                    "already_canceled": {
                        "behavior": "reject",
                        "returns_current_state": null,
                        "error": method::error(line, ErrorKind::TaskNotCancelable),
                    },
                },
            },
            "SubscribeToTask": {
                "baseline": "core",
                "retention": "stable",
                "terminal_state_behavior": {
                    "behavior": "reject",
                    "error": method::error(line, ErrorKind::UnsupportedOperation),
                    "with_last_event_id": {
                        "behavior": "replay_missed_events_then_close",
                        "delivery": "events_after_last_event_id",
                        "closes_stream": true,
                    },
                },
            },
        }),
    };
    json!({"classification": "service-level-semantic-enhancement", "methods": methods})
}
