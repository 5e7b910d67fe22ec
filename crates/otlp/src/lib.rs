//! Exports traces of the gateway to a collector: OTLP over HTTP, as JSON, traces only.
//!
//! Spans arrive through [`Spans`], wait in a bounded queue, and are sent in batches by a background task. The code that reports a
//! span never waits: when the queue is full, the span is dropped and counted. No span contains text of a message, or a tool's
//! input or output.

mod encode;
mod headers;
mod send;

use std::sync::Arc;

use longshore_engine::Tasks;
use longshore_engine::port::{Span, SpanPosition, Spans};
use longshore_meter::Metrics;
use longshore_model::TraceContext;
use tokio::sync::mpsc;
use url::Url;

pub use self::headers::Headers;
use self::send::Sender;
pub use self::send::{BATCH, FLUSH};

/// The number of spans that may wait for the collector. Further spans are dropped.
pub const QUEUE: usize = 2048;

/// The configuration of the exporter.
#[derive(Clone, Debug)]
pub struct OtlpConfig {
    /// The base URL: `/v1/traces` is appended.
    pub endpoint: Url,
    pub headers: Headers,
    pub service_name: String,
    pub service_version: String,
    /// The fraction, from 0 to 1, of the traces started by the gateway that is exported. Callers decide about their own traces.
    pub sample_ratio: f64,
    /// The agent of a turn that does not request one.
    pub agent: String,
    /// The model of a turn that does not request one.
    pub model: Option<String>,
}

/// Accepts spans and sends them in the background.
#[derive(Debug)]
pub struct Otlp {
    queue: mpsc::Sender<Span>,
    sample_ratio: f64,
    metrics: Arc<Metrics>,
}

impl Otlp {
    /// Starts the background task that exports spans. When `tasks` is stopped, it sends the queued spans within [`FLUSH`] and ends.
    /// First stop everything that reports spans, then `tasks`, so that the last spans are exported.
    pub fn start(config: OtlpConfig, metrics: &Arc<Metrics>, tasks: &Tasks) -> reqwest::Result<Arc<Self>> {
        let (queue, receiver) = mpsc::channel(QUEUE);
        let sample_ratio = config.sample_ratio;
        let sender = Sender::new(config, receiver, Arc::clone(metrics), tasks.stopping().clone())?;
        tasks.spawn("otlp", sender.run());
        Ok(Arc::new(Self { queue, sample_ratio, metrics: Arc::clone(metrics) }))
    }
}

impl Spans for Otlp {
    fn decided(&self, trace: TraceContext) -> TraceContext {
        let is_left_out = trace.is_new_trace() && !is_chosen(&trace, self.sample_ratio);
        if is_left_out { trace.unsampled() } else { trace }
    }

    fn begin(&self, caller: Option<&TraceContext>) -> Option<SpanPosition> {
        let caller = self.decided(caller.cloned().unwrap_or_else(TraceContext::generate));
        caller.is_sampled().then(|| SpanPosition::for_turn(caller))
    }

    fn ended(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.metrics.spans_dropped.add(1);
        }
    }
}

/// Whether a trace is exported. Only the trace id decides, so that every gateway decides the same.
fn is_chosen(trace: &TraceContext, ratio: f64) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "a probability need not be exact")]
    let chance = (trace.sampling_key() >> 11) as f64 / (1_u64 << 53) as f64;
    chance < ratio
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(low: u64, ratio: f64) -> bool {
        let parent = format!("00-4bf92f3577b34da6{low:016x}-00f067aa0ba902b7-01");
        is_chosen(&TraceContext::parse(&parent).unwrap(), ratio)
    }

    #[test]
    fn the_trace_id_decides_whether_a_trace_is_sampled() {
        for low in [1, 1 << 63, u64::MAX] {
            assert!(chosen(low, 1.0) && !chosen(low, 0.0));
        }
        assert!(chosen((1 << 62) - 1, 0.25));
        assert!(!chosen(1 << 62, 0.25));
    }
}
