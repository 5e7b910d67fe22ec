//! Describes the behaviour of this gateway where the specifications leave it open or define it differently.

use longshore_model::ErrorKind;
use serde_json::{Value, json};

use super::method;
use crate::names::OUTPUT_MODES_FIELD;
use crate::surface::{OPERATIONS, Params, ProtocolVersion};
use crate::v1;

/// Describes how an operation behaves when it is repeated, after a lost connection, and on a finished task. Also describes what is
/// stored with a task, and which requests are refused for their size.
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
    for operation in OPERATIONS.iter().filter(|operation| is_send(operation.params)) {
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
    json!({
        "classification": "service-level-semantic-enhancement",
        "methods": methods,
        "task_persistence": task_persistence(version),
        "request_body": {
            "retention": "stable",
            "oversized": {
                "behavior": "reject_before_processing",
                "limit": "serve.max_request_body_bytes",
                "http_status": v1::error::row(ErrorKind::BodyTooLarge).http,
                "error": method::error(version, ErrorKind::BodyTooLarge),
            },
        },
    })
}

/// Describes what the gateway stores with a task, and which of it never changes.
fn task_persistence(version: ProtocolVersion) -> Value {
    let names = |is_named: fn(Params) -> bool| -> Vec<&str> {
        let operations = OPERATIONS.iter().filter(|operation| is_named(operation.params));
        operations.map(|operation| operation.jsonrpc(version)).collect()
    };
    json!({
        "retention": "stable",
        "terminal_state": {"behavior": "first_terminal_state_wins", "later_updates": "dropped"},
        "accepted_output_modes": {
            "behavior": "stored_with_the_task_at_its_creation",
            "set_by": names(is_send),
            "applies_to": names(returns_tasks),
            "later_messages_of_the_task": "do_not_change_the_modes",
            "metadata_field": OUTPUT_MODES_FIELD,
        },
    })
}

fn is_send(params: Params) -> bool {
    params == Params::Message
}

fn returns_tasks(params: Params) -> bool {
    matches!(params, Params::Message | Params::Task | Params::TaskWithHistory | Params::List)
}

/// Describes how a reader resumes after a lost connection.
fn resume() -> Value {
    json!({"header": "Last-Event-ID", "behavior": "replay_missed_events_then_follow"})
}
