//! The spans of turns and tools for a trace collector.

use std::sync::Arc;

use longshore_engine::EngineConfig;
use longshore_engine::port::{Span, SpanKind, SpanPosition, Spans, TurnAttributes, with_caller_trace};
use longshore_model::{
    AgentEvent, BlockKind, BlockRef, ChildEvent, Failure, Json, Metadata, Outcome, SendMessage, TaskState,
    ToolCall, ToolStatus, TraceContext, Usage,
};
use longshore_testkit::scripted_agent::text_block;
use serde_json::json;
use tokio::sync::mpsc;

use crate::harness::{Harness, alice, message, start, start_with};

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The most spans that a test may leave unread.
const MAX_SPANS: usize = 64;

#[derive(Debug)]
struct CollectedSpans(mpsc::Sender<Span>);

impl Spans for CollectedSpans {
    /// Like an exporter, for sampled traces.
    fn begin(&self, caller: Option<&TraceContext>) -> Option<SpanPosition> {
        let caller = caller.cloned().unwrap_or_else(TraceContext::generate);
        caller.is_sampled().then(|| SpanPosition::for_turn(caller))
    }

    fn ended(&self, span: Span) {
        self.0.try_send(span).expect("a test has few spans");
    }
}

/// A sampler that drops every trace that starts here.
#[derive(Debug)]
struct DropsNewTraces;

impl Spans for DropsNewTraces {
    fn decided(&self, trace: TraceContext) -> TraceContext {
        if trace.is_new_trace() { trace.unsampled() } else { trace }
    }

    fn begin(&self, _caller: Option<&TraceContext>) -> Option<SpanPosition> {
        None
    }

    fn ended(&self, _span: Span) {}
}

fn with_spans(mut h: Harness) -> (Harness, mpsc::Receiver<Span>) {
    let (keep, spans) = mpsc::channel(MAX_SPANS);
    h.engine = h.engine.with_spans(Arc::new(CollectedSpans(keep)));
    (h, spans)
}

fn traced(text: &str, traceparent: &str) -> SendMessage {
    SendMessage { trace: TraceContext::parse(traceparent), ..message("c", text) }
}

fn tool(call: &str, status: ToolStatus) -> AgentEvent {
    let words = Some("SECRET WORDS".to_owned());
    let call = Box::new(ToolCall {
        title: words.clone(),
        subtitle: words.clone(),
        input: Some(Json::from_value(&json!({"command": "SECRET WORDS"}))),
        output: words.clone(),
        error: words,
        ..ToolCall::new(call, format!("tool-of-{call}"), status)
    });
    AgentEvent::Tool { block: BlockRef { kind: BlockKind::ToolCall, ..text_block(&call.call_id) }, call }
}

fn facts(span: &Span) -> &TurnAttributes {
    match &span.work {
        SpanKind::Turn(facts) => facts,
        SpanKind::Tool { .. } => panic!("a tool: {span:?}"),
    }
}

fn id(context: &TraceContext) -> String {
    context.span_id().to_string()
}

/// The span's own id and its parent's.
fn ids(span: &Span) -> (String, Option<String>) {
    (id(&span.place.own), span.place.parent.as_ref().map(id))
}

/// The name of the span, the id of the call, and the failure.
fn short(span: &Span) -> String {
    let error = span.error.as_deref().unwrap_or("fine");
    match &span.work {
        SpanKind::Turn(facts) => format!("turn {} {error}", facts.state),
        SpanKind::Tool { name, call } => format!("{name} {call} {error}"),
    }
}

#[tokio::test]
async fn a_turn_and_its_tools_are_spans_of_the_callers_trace_without_content() {
    let (mut h, mut spans) = with_spans(start());
    let sent = h.engine.send(&alice(), traced("SECRET WORDS", CALLER)).await.unwrap();
    let turn = h.turn().await;
    let upstream = turn.request.trace.clone().unwrap();
    assert_eq!(upstream.trace_id().to_string(), &CALLER[3..35]);
    turn.say("text", "SECRET WORDS").await;
    for status in [ToolStatus::Pending, ToolStatus::Running, ToolStatus::Completed] {
        turn.report(tool("one", status)).await;
    }
    for status in [ToolStatus::Running, ToolStatus::Error] {
        turn.report(tool("two", status)).await;
    }
    turn.report(tool("three", ToolStatus::Running)).await;
    for input in [1, 7] {
        turn.report(AgentEvent::Usage(Usage { input, ..Usage::default() })).await;
    }
    turn.complete().await;
    let reported = [spans.recv().await, spans.recv().await, spans.recv().await, spans.recv().await];
    let reported = reported.map(Option::unwrap);
    assert_eq!(
        reported.each_ref().map(short),
        [
            "tool-of-one one fine",
            "tool-of-two two tool_error",
            "tool-of-three three turn_ended",
            "turn completed fine"
        ]
    );
    let [one, _, _, whole] = &reported;
    // The agent is called with the reported span.
    assert_eq!(ids(whole), (id(&upstream), Some(CALLER[36..52].to_owned())));
    for tool in &reported[..3] {
        assert_eq!(ids(tool).1, Some(id(&upstream)));
    }
    assert_ne!(ids(one).0, ids(&reported[1]).0);
    for span in &reported {
        assert_eq!((&span.task, span.ended >= span.began), (&sent.task, true));
        assert_eq!(span.place.own.trace_id().to_string(), &CALLER[3..35]);
        assert!(!format!("{span:?}").contains("SECRET"), "{span:?}");
    }
    let facts = facts(whole);
    assert_eq!((facts.context.as_str(), facts.usage.map(|usage| usage.input)), ("c", Some(7)));
    assert!(spans.try_recv().is_err());
}

#[tokio::test]
async fn the_failure_of_a_turn_is_reported_in_one_word() {
    let of = |kind: &str| {
        Metadata::try_from(Json::from_value(&json!({"opencode": {"error": {"type": kind}}}))).ok()
    };
    let words = || "SECRET WORDS".to_owned();
    let failed = |kind| Outcome::Failed(Failure { metadata: of(kind), ..Failure::new(words()) });
    for (outcome, expected) in [
        (failed("UPSTREAM_QUOTA_EXCEEDED"), "turn failed UPSTREAM_QUOTA_EXCEEDED"),
        (failed("SECRET WORDS"), "turn failed _OTHER"),
        (Outcome::Failed(Failure::new(words())), "turn failed _OTHER"),
        (Outcome::Incomplete(Box::new(failed("X"))), "turn failed X"),
        (
            Outcome::AuthRequired(Failure { metadata: of("UPSTREAM_UNAUTHORIZED"), ..Failure::new(words()) }),
            "turn auth_required UPSTREAM_UNAUTHORIZED",
        ),
        (Outcome::Canceled { reason: words() }, "turn canceled fine"),
    ] {
        let (mut h, mut spans) = with_spans(start());
        h.send("c", "m1").await;
        h.turn().await.report(AgentEvent::Ended(outcome)).await;
        let span = spans.recv().await.unwrap();
        assert_eq!(short(&span), expected);
        assert!(!format!("{span:?}").contains("SECRET"), "{span:?}");
    }
}

#[tokio::test]
async fn a_canceled_or_interrupted_turn_is_reported_too() {
    let (mut h, mut spans) = with_spans(start());
    let sent = h.send("c", "m1").await;
    let _turn = h.turn().await;
    h.engine.cancel(&alice(), &sent.task).await.unwrap();
    assert_eq!(short(&spans.recv().await.unwrap()), "turn canceled fine");
    h.engine.send(&alice(), traced("m2", CALLER)).await.unwrap();
    let _turn = h.turn().await;
    let store = h.stop().await;
    let left = spans.recv().await.unwrap();
    assert_eq!((short(&left), left.place.parent.is_some()), ("turn working fine".to_owned(), true));
    // A resumed turn starts a new trace.
    let (mut h, mut spans) = with_spans(start_with(store, EngineConfig::default()));
    h.engine.recover().await.unwrap();
    let turn = h.turn().await;
    let upstream = turn.request.trace.clone().unwrap();
    // A tool whose start was not seen is not reported.
    turn.report(tool("missed", ToolStatus::Completed)).await;
    turn.catch_up().await;
    turn.complete().await;
    let whole = spans.recv().await.unwrap();
    assert_eq!((short(&whole), ids(&whole)), ("turn completed fine".to_owned(), (id(&upstream), None)));
}

#[tokio::test]
async fn a_sub_agents_spans_are_children_of_the_call_that_started_it() {
    let (mut h, mut spans) = with_spans(start());
    let sent = h.send("c", "m1").await;
    let turn = h.turn().await;
    turn.report(tool("task", ToolStatus::Running)).await;
    turn.call_child("ses_child", "task", "SECRET WORDS").await;
    for status in [ToolStatus::Running, ToolStatus::Completed] {
        turn.child("ses_child", ChildEvent::Report(tool("read", status))).await;
    }
    turn.report(tool("task", ToolStatus::Completed)).await;
    turn.complete().await;
    let (read, task, whole) =
        (spans.recv().await.unwrap(), spans.recv().await.unwrap(), spans.recv().await.unwrap());
    assert_eq!(short(&read), "tool-of-read read fine");
    assert_eq!((ids(&read).1, ids(&task).1), (Some(ids(&task).0), Some(ids(&whole).0)));
    assert_eq!((&task.task, &whole.task), (&sent.task, &sent.task));
    assert_ne!(read.task, sent.task);
    assert_eq!(facts(&whole).state, TaskState::Completed);
}

#[tokio::test]
async fn an_unsampled_turn_passes_its_callers_trace_on() {
    let (mut h, mut spans) = with_spans(start());
    let unsampled = CALLER.replace("-01", "-00");
    h.engine.send(&alice(), traced("m1", &unsampled)).await.unwrap();
    let turn = h.turn().await;
    assert_eq!(turn.request.trace, TraceContext::parse(&unsampled));
    turn.report(tool("one", ToolStatus::Running)).await;
    turn.complete().await;
    h.engine.send(&alice(), traced("m2", CALLER)).await.unwrap();
    h.turn().await.complete().await;
    assert_eq!(spans.recv().await.unwrap().place.parent, TraceContext::parse(CALLER));
}

/// An agent that samples by the caller's flag would otherwise keep a trace without its start.
#[tokio::test]
async fn a_trace_dropped_here_is_passed_on_as_unsampled() {
    let mut h = start();
    h.engine = h.engine.with_spans(Arc::new(DropsNewTraces));
    let (fresh, callers) = (TraceContext::generate(), TraceContext::parse(CALLER).unwrap());
    let decided = [(fresh.clone(), fresh.unsampled()), (callers.clone(), callers)];
    for (count, (trace, expected)) in decided.into_iter().enumerate() {
        let command = SendMessage { trace: Some(trace.clone()), ..message(&format!("c{count}"), "go") };
        let sent = h.engine.send(&alice(), command).await.unwrap();
        let turn = h.turn().await;
        assert_eq!(turn.request.trace.as_ref(), Some(&expected));
        with_caller_trace(Some(trace), h.engine.cancel(&alice(), &sent.task)).await.unwrap();
        while h.agent.log().aborted.len() <= count {
            tokio::task::yield_now().await;
        }
        let calls = h.agent.log().called_for;
        let of_this = &calls[calls.len() - 3..];
        let expected = ["admit", "open_session", "abort"].map(|call| (call, Some(expected.clone())));
        assert_eq!(of_this, expected);
    }
}
