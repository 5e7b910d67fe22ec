//! The memory that stalled readers cost.

use longshore_testkit::gateway::resident_kilobytes;

use crate::client::message;
use crate::frames::{nth_text, task_id};
use crate::harness::{Harness, Played};
use crate::upstream::Agreement;

const STALLED: usize = 50;

/// Four megabytes of text: a copy for each reader would be two hundred.
const CHUNKS: usize = 4_000;
const CHUNK_BYTES: usize = 1_024;

/// What the stalled readers may cost together. One reader costs a batch of events and the buffer of its connection.
const BOUND_KILOBYTES: u64 = 80 * 1_024;

#[tokio::test(flavor = "multi_thread")]
async fn long_stalled_readers_cost_bounded_memory() {
    let harness = Harness::demo().await;
    let resident = || resident_kilobytes(harness.gateway.pid());

    // The first turn shows the cost of the task itself, and warms up the allocator.
    let alone = format!("scn:long n={CHUNKS} size={CHUNK_BYTES} delay=0");
    whole(&harness.play(&alone).await);
    let before = resident();

    let prompt = format!("scn:long n={CHUNKS} size={CHUNK_BYTES} delay=0 out=11");
    let mut stream = harness.client.stream(&message(&prompt)).await;
    let mut frames = stream.until("the first text", nth_text(1)).await;
    let task = task_id(&frames[0]);
    let mut stalled = Vec::new();
    for _ in 0..STALLED {
        stalled.push(harness.client.stall(&task).await);
    }
    frames.extend(stream.rest().await);
    let after = resident();
    whole(&harness.check(&prompt, frames, Agreement::Whole).await);
    let grown = after.saturating_sub(before);
    assert!(
        grown < BOUND_KILOBYTES,
        "{STALLED} stalled readers of {} KB cost {grown} KB (from {before} to {after}), expected less than {BOUND_KILOBYTES}",
        CHUNKS * CHUNK_BYTES / 1_024
    );
    drop(stalled);
}

fn whole(played: &Played) {
    played.ended("COMPLETED", "");
    assert_eq!(played.text().len(), CHUNKS * CHUNK_BYTES, "{}: the text is not whole", played.name);
}
