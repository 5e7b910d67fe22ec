//! Tells a collector of traces what the gateway did: OTLP over HTTP, as JSON, traces only.
//!
//! Spans come in through [`Spans`], wait in a bounded queue, and leave in batches from a task of their own. Whoever does the
//! work that they tell of never waits: when the queue is full, a span is dropped and counted. No word of a message, of a
//! tool's input or of its output is in any of them.

mod encode;
mod headers;
mod send;

use std::sync::Arc;

use longshore_engine::Tasks;
use longshore_engine::port::{Span, SpanPlace, Spans};
use longshore_meter::Metrics;
use longshore_model::TraceContext;
use tokio::sync::mpsc;
use url::Url;

pub use self::headers::Headers;
use self::send::Sender;
pub use self::send::{BATCH, FLUSH};

/// Spans that may wait for the collector. One more is dropped.
pub const QUEUE: usize = 2048;

/// What is told, and to whom.
#[derive(Clone, Debug)]
pub struct OtlpConfig {
    /// The base address: `/v1/traces` is put behind it.
    pub endpoint: Url,
    pub headers: Headers,
    pub service_name: String,
    pub service_version: String,
    /// The part of the traces that begin here which is told, from 0 to 1. Of the others, their callers decide.
    pub sample_ratio: f64,
    /// What a turn has that does not wish for an agent.
    pub agent: String,
    /// The same for the model.
    pub model: Option<String>,
}

/// Takes spans, and has them sent.
#[derive(Debug)]
pub struct Otlp {
    queue: mpsc::Sender<Span>,
    sample_ratio: f64,
    metrics: Arc<Metrics>,
}

impl Otlp {
    /// Begins to send, until `tasks` are stopped: then what waits is sent, within [`FLUSH`]. Stop them after those that do the
    /// work, so that the last of it is told.
    pub fn start(config: OtlpConfig, metrics: &Arc<Metrics>, tasks: &Tasks) -> reqwest::Result<Arc<Self>> {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let sample_ratio = config.sample_ratio;
        let sender = Sender::new(config, waiting, Arc::clone(metrics), tasks.stopping().clone())?;
        tasks.spawn("otlp", sender.run());
        Ok(Arc::new(Self { queue, sample_ratio, metrics: Arc::clone(metrics) }))
    }
}

impl Spans for Otlp {
    fn decided(&self, trace: TraceContext) -> TraceContext {
        let is_left_out = trace.is_begun_here() && !is_chosen(&trace, self.sample_ratio);
        if is_left_out { trace.unsampled() } else { trace }
    }

    fn begin(&self, caller: Option<&TraceContext>) -> Option<SpanPlace> {
        let caller = self.decided(caller.cloned().unwrap_or_else(TraceContext::generate));
        caller.is_sampled().then(|| SpanPlace::of_turn_for(caller))
    }

    fn ended(&self, span: Span) {
        if self.queue.try_send(span).is_err() {
            self.metrics.spans_dropped.add(1);
        }
    }
}

/// Decided by the id of the trace, so that it comes out the same wherever it is asked.
fn is_chosen(trace: &TraceContext, ratio: f64) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "a chance need not be exact")]
    let chance = (trace.chance() >> 11) as f64 / (1_u64 << 53) as f64;
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
    fn chance_decides_by_the_id_of_the_trace() {
        for low in [1, 1 << 63, u64::MAX] {
            assert!(chosen(low, 1.0) && !chosen(low, 0.0));
        }
        assert!(chosen((1 << 62) - 1, 0.25));
        assert!(!chosen(1 << 62, 0.25));
    }
}
