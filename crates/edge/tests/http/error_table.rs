//! Every kind of error that can be provoked, in every protocol version and binding.

use std::collections::BTreeSet;
use std::fmt::Write;

use longshore_edge::Extension;
use longshore_model::{Error, ErrorKind};
use longshore_wire::surface::ProtocolVersion;
use longshore_wire::v1::method::Method;
use longshore_wire::v03::Dialect;
use serde_json::{Value, json};

use crate::support::{Call, Gateway, ProtocolClient, shown};

/// Errors that only the agent or the gateway's own parts can cause: a scripted agent returns them when it admits an option.
const FROM_WITHIN: [ErrorKind; 11] = [
    ErrorKind::Internal,
    ErrorKind::InvalidAgentResponse,
    ErrorKind::ExtendedCardNotConfigured,
    ErrorKind::PermissionDenied,
    ErrorKind::TooManyRequests,
    ErrorKind::StreamBudgetExceeded,
    ErrorKind::UpstreamBackpressure,
    ErrorKind::Unavailable,
    ErrorKind::AgentUnavailable,
    ErrorKind::SessionGone,
    ErrorKind::SessionBusy,
];

type Exception = (&'static [ErrorKind], fn(ProtocolClient) -> bool, &'static str);

/// Kinds of errors that a client does not get here, and why. Every client gets all other kinds.
const EXCEPTIONS: [Exception; 6] = [
    (
        &[ErrorKind::InvalidRequest, ErrorKind::MethodNotFound, ErrorKind::InterruptNotFound],
        |client| client.dialect == Dialect::Rest,
        "only JSON-RPC has envelopes and methods",
    ),
    (
        &[ErrorKind::RouteNotFound, ErrorKind::VerbNotAllowed, ErrorKind::WrongBinding],
        |client| client.dialect == Dialect::Rpc,
        "JSON-RPC has one path and one verb",
    ),
    (
        &[ErrorKind::ExtensionRequired],
        |client| client.version == ProtocolVersion::V03,
        "no extension is required on 0.3",
    ),
    (
        &[ErrorKind::ExtensionNotActivated],
        |client| client.version == ProtocolVersion::V03,
        "extensions need no activation in 0.3",
    ),
    (
        &[ErrorKind::InterruptExpired, ErrorKind::InterruptTypeMismatch],
        |_| true,
        "it takes an ask: see `asks` for 1.0 and below for 0.3",
    ),
    (
        &[
            ErrorKind::SessionNotFound,
            ErrorKind::SessionForbidden,
            ErrorKind::UpstreamUnreachable,
            ErrorKind::UpstreamHttpError,
            ErrorKind::UpstreamPayloadError,
            ErrorKind::AuthorizationForbidden,
            ErrorKind::MethodDisabled,
        ],
        |_| true,
        "only the methods that control the agent tell them",
    ),
];

/// Mistakes of a caller, as one client can make them.
fn mistakes(
    gateway: &Gateway,
    strict: &Gateway,
    client: ProtocolClient,
    ended: &str,
) -> Vec<(ErrorKind, Call)> {
    let is_rpc = client.dialect == Dialect::Rpc;
    let message = client.message("m", "hi");
    let send = || client.send(gateway, &message, true);
    let mut on_ended = message.clone();
    on_ended["taskId"] = json!(ended);
    let get = || client.on(gateway, Method::GetTask, "nope");
    let large = client.message("m", &"x".repeat(2000));
    let empty = if is_rpc { json!({"message": {}}) } else { json!({}) };
    let named = |call: Call| call.header("a2a-version", client.version.as_str());
    let mut mistakes = vec![
        (ErrorKind::Parse, named(send().body("{"))),
        (ErrorKind::InvalidParams, client.call(gateway, Method::SendMessage, "", &empty)),
        (ErrorKind::TaskNotFound, get()),
        (ErrorKind::PushNotSupported, client.on(gateway, Method::ListTaskPushNotificationConfigs, "t")),
        (ErrorKind::UnsupportedOperation, client.send(gateway, &on_ended, true)),
        (ErrorKind::TaskNotCancelable, client.on(gateway, Method::CancelTask, ended)),
        (ErrorKind::ContentTypeNotSupported, named(send().header("content-type", "text/plain"))),
        (ErrorKind::VersionNotSupported, get().header("a2a-version", "7.0")),
        (ErrorKind::Unauthenticated, named(get().header("authorization", "Bearer wrong"))),
        (ErrorKind::BodyTooLarge, named(client.send(strict, &large, true))),
    ];
    if is_rpc {
        let rpc = |method: &str, params: Value| named(gateway.rpc(method, &params));
        let with = |call: Call| match client.version {
            ProtocolVersion::V1 => call.header("a2a-extensions", crate::support::INTERRUPT),
            ProtocolVersion::V03 => call,
        };
        let reply = json!({"request_id": "per_9", "reply": "once"});
        mistakes.extend([
            (ErrorKind::InvalidRequest, named(gateway.call("POST", "/").json(&json!([])))),
            (ErrorKind::MethodNotFound, rpc("nonsense", json!({}))),
            (ErrorKind::InterruptNotFound, with(rpc("a2a.interrupt.permission.reply", reply.clone()))),
        ]);
        if client.version == ProtocolVersion::V1 {
            let call = rpc("a2a.interrupt.permission.reply", reply);
            mistakes.push((ErrorKind::ExtensionNotActivated, call));
        }
    } else {
        let prefix = if client.version == ProtocolVersion::V1 { "" } else { "/v1" };
        let envelope = |method| {
            let params = client.send_body(&message, true);
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
            client.call(gateway, method, "", &body)
        };
        let call_on = |verb: &str, id: Value| {
            let body = json!({"jsonrpc": "2.0", "id": id, "method": "CancelTask", "params": {"id": "t"}});
            named(gateway.call("POST", &format!("{prefix}/tasks/t:{verb}")).json(&body))
        };
        mistakes.extend([
            (ErrorKind::RouteNotFound, named(gateway.call("GET", &format!("{prefix}/nope")))),
            (ErrorKind::VerbNotAllowed, named(gateway.call("DELETE", &format!("{prefix}/tasks/t")))),
            (ErrorKind::WrongBinding, envelope(Method::SendMessage)),
            (ErrorKind::WrongBinding, envelope(Method::SendStreamingMessage)),
            (ErrorKind::WrongBinding, call_on("cancel", json!(1))),
            // Its id may equal that of the task by accident.
            (ErrorKind::WrongBinding, call_on("cancel", json!("t"))),
            (ErrorKind::WrongBinding, call_on("subscribe", json!(1))),
        ]);
    }
    if client.version == ProtocolVersion::V1 {
        let call = client.on(strict, Method::GetTask, "t").header("a2a-extensions", "");
        mistakes.push((ErrorKind::ExtensionRequired, call));
        let model = json!({"shared": {"model": {"providerID": "p", "modelID": "m"}}});
        let with_model = json!({"message": message, "metadata": model});
        let call = client.call(gateway, Method::SendMessage, "", &with_model);
        mistakes.push((ErrorKind::ExtensionNotActivated, call));
    }
    mistakes
}

#[tokio::test]
async fn every_kind_of_error_has_the_format_of_its_version_and_binding() {
    let mut gateway = Gateway::manual().await;
    let strict = Gateway::manual_with(|config| {
        config.max_body_bytes = 1000;
        config.deployment.required_extensions = vec![Extension::StreamHints];
    })
    .await;
    let (ended, turn) = gateway.working_task("m0").await;
    let mut events = gateway.call("GET", &format!("/tasks/{ended}:subscribe")).stream().await;
    turn.complete().await;
    events.rest().await;

    let mut transcript = String::new();
    for client in ProtocolClient::ALL {
        let mut provoked = BTreeSet::new();
        writeln!(transcript, "# {}", client.name()).unwrap();
        let mut calls: Vec<(ErrorKind, Call)> = mistakes(&gateway, &strict, client, &ended);
        for kind in FROM_WITHIN {
            let unique = format!("{kind:?}-{}", client.name().replace(' ', "-"));
            calls.push((kind, client.send(&gateway, &client.message(&unique, "hi"), true)));
        }
        for (kind, call) in calls {
            if FROM_WITHIN.contains(&kind) {
                gateway
                    .agent
                    .refuse_next_admission(Error::new(kind, "The agent said so.").detail("sessionId", "s"));
            }
            let answer = call.send().await;
            let expected = match client.version {
                ProtocolVersion::V1 => longshore_wire::v1::error::row(kind).reason,
                ProtocolVersion::V03 => longshore_wire::v03::error::row(kind).word,
            };
            let reason = client.reason(&answer);
            let is_field = kind == ErrorKind::InvalidParams && reason.ends_with("_FIELD");
            assert!(reason == expected || is_field, "{kind:?} {} {reason}", client.name());
            assert_eq!(answer.header("a2a-version"), client.version.as_str(), "{kind:?}");
            provoked.insert(kind.label());
            writeln!(transcript, "{kind:?} {}", shown(&answer)).unwrap();
        }
        for kind in ErrorKind::ALL {
            let excuse = EXCEPTIONS.iter().find(|(kinds, of, _)| kinds.contains(&kind) && of(client));
            let is_one = provoked.contains(kind.label()) != excuse.is_some();
            assert!(is_one, "{kind:?} by {}: excuse {:?}", client.name(), excuse.map(|(.., why)| why));
        }
    }
    insta::assert_snapshot!(transcript);
    strict.stop().await;
    gateway.stop().await;
}

#[tokio::test]
async fn errors_of_closed_and_mismatched_asks_in_0_3() {
    let mut patient = Gateway::manual().await;
    let mut impatient = Gateway::impatient().await;
    let mut transcript = String::new();
    for (gateway, method, params) in [
        (&mut patient, "a2a.interrupt.question.reject", json!({"request_id": "per_1"})),
        (&mut impatient, "a2a.interrupt.permission.reply", json!({"request_id": "per_1", "reply": "once"})),
    ] {
        let (task, turn) = gateway.working_task("m").await;
        let mut events = gateway.call("GET", &format!("/tasks/{task}:subscribe")).stream().await;
        turn.ask("per_1").await;
        while !events.next().await.unwrap().raw.contains("TASK_STATE_INPUT_REQUIRED") {}
        if method.contains("permission") {
            // The ask expires by itself; the task then works again, or has ended.
            while events.next().await.unwrap().raw.contains("TASK_STATE_INPUT_REQUIRED") {}
        }
        writeln!(transcript, "{}", shown(&gateway.rpc(method, &params).send().await)).unwrap();
        drop(turn);
    }
    insta::assert_snapshot!(transcript);
    patient.stop().await;
    impatient.stop().await;
}
