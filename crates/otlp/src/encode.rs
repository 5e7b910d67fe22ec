//! Encodes spans as OTLP JSON, with the semantic conventions for generative AI (v1.41, in development).

use longshore_engine::port::{Span, SpanKind, TurnAttributes};
use longshore_model::{Timestamp, Usage};
use serde_json::{Value, json};

use crate::OtlpConfig;

const INTERNAL: u8 = 1;
const CLIENT: u8 = 3;
const STATUS_ERROR: u8 = 2;
const SAMPLED: u8 = 1;

/// The longest value of an attribute, in characters. It also limits names that agents choose, which have no other limit.
const MAX_VALUE_CHARS: usize = 256;

/// The body of one request.
pub(crate) fn body(config: &OtlpConfig, spans: &[Span]) -> String {
    let service =
        [text("service.name", &config.service_name), text("service.version", &config.service_version)];
    let spans: Vec<_> = spans.iter().map(|span| encoded(config, span)).collect();
    json!({
        "resourceSpans": [{
            "resource": { "attributes": service },
            "scopeSpans": [{
                "scope": { "name": "longshore", "version": config.service_version },
                "spans": spans,
            }],
        }],
    })
    .to_string()
}

fn encoded(config: &OtlpConfig, span: &Span) -> Value {
    let (name, kind, mut attributes) = match &span.work {
        SpanKind::Turn(facts) => of_turn(config, facts),
        SpanKind::Tool { name, call } => of_tool(name, call),
    };
    attributes.push(text("a2a.task.id", span.task.as_str()));
    let mut encoded = json!({
        "traceId": span.place.own.trace_id().to_string(),
        "spanId": span.place.own.span_id().to_string(),
        "flags": SAMPLED,
        "name": name,
        "kind": kind,
        "startTimeUnixNano": nanoseconds(span.began),
        "endTimeUnixNano": nanoseconds(span.ended),
    });
    if let Some(state) = span.place.own.tracestate() {
        encoded["traceState"] = state.into();
    }
    if let Some(parent) = &span.place.parent {
        encoded["parentSpanId"] = parent.span_id().to_string().into();
    }
    if let Some(error) = &span.error {
        attributes.push(text("error.type", error));
        // The status has no message, because a message could contain text of a caller or an agent.
        encoded["status"] = json!({ "code": STATUS_ERROR });
    }
    encoded["attributes"] = attributes.into();
    encoded
}

fn of_turn(config: &OtlpConfig, facts: &TurnAttributes) -> (String, u8, Vec<Value>) {
    let agent = facts.agent.as_deref().unwrap_or(&config.agent);
    let requested = facts.model.as_ref().map(ToString::to_string);
    let mut attributes = vec![
        text("gen_ai.operation.name", "invoke_agent"),
        text("gen_ai.provider.name", "opencode"),
        text("gen_ai.agent.name", agent),
        text("gen_ai.conversation.id", facts.context.as_str()),
    ];
    if let Some(model) = requested.as_ref().or(config.model.as_ref()) {
        attributes.push(text("gen_ai.request.model", model));
    }
    if let Some(usage) = facts.usage {
        attributes.extend(of_usage(usage));
    }
    attributes.push(text("a2a.task.state", facts.state.as_str()));
    (format!("invoke_agent {}", short(agent)), CLIENT, attributes)
}

fn of_tool(name: &str, call: &str) -> (String, u8, Vec<Value>) {
    let attributes = vec![
        text("gen_ai.operation.name", "execute_tool"),
        text("gen_ai.tool.name", name),
        text("gen_ai.tool.call.id", call),
        text("gen_ai.tool.type", "function"),
    ];
    (format!("execute_tool {}", short(name)).trim_end().to_owned(), INTERNAL, attributes)
}

/// The token counts of a turn. OpenCode counts each token once. The conventions also count cached tokens as input, and reasoning
/// tokens as output.
fn of_usage(usage: Usage) -> [Value; 4] {
    let Usage { input, output, reasoning, cache_read, cache_write, .. } = usage;
    [
        number("gen_ai.usage.input_tokens", input.saturating_add(cache_read).saturating_add(cache_write)),
        number("gen_ai.usage.output_tokens", output.saturating_add(reasoning)),
        number("gen_ai.usage.cache_read.input_tokens", cache_read),
        number("gen_ai.usage.cache_creation.input_tokens", cache_write),
    ]
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": short(value) } })
}

/// A number as an attribute. ProtoJSON writes 64-bit integers as strings.
fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn short(value: &str) -> &str {
    value.char_indices().nth(MAX_VALUE_CHARS).map_or(value, |(end, _)| &value[..end])
}

fn nanoseconds(at: Timestamp) -> String {
    (i128::from(at.0.max(0)) * 1_000_000).to_string()
}
