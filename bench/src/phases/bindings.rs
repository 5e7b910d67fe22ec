//! What a delta costs over each binding of version 1.0.

use anyhow::Result;

use super::streams::{load, warmed};
use crate::bench::Bench;
use crate::drive::{Binding, ProtocolVersion};
use crate::load::StreamLoad;
use crate::results::{Bindings, Streams};
use crate::servers::Kind;

/// The number of streams at which the bindings are compared.
const COMPARED: u64 = 32;
/// The rounds. A single run on a machine that others use too may be off by a third.
const ROUNDS: usize = 3;

pub(super) async fn run(bench: &Bench, found: &mut Option<Bindings>) -> Result<()> {
    let found = found.get_or_insert_default();
    for _ in 0..bench.scaled(ROUNDS, 1) {
        // In turns, so that a change of the machine's speed concerns all.
        found.json_rpc.push(once(bench, Binding::JsonRpc).await?);
        found.rest.push(once(bench, Binding::Rest).await?);
        found.websocket.push(once(bench, Binding::WebSocket).await?);
        found.grpc.push(once(bench, Binding::Grpc).await?);
    }
    Ok(())
}

async fn once(bench: &Bench, binding: Binding) -> Result<Streams> {
    let server = bench.server(Kind::Longshore).await?;
    let load = load(bench, COMPARED, 10, ProtocolVersion::V1);
    let load = StreamLoad { binding, window: bench.seconds(10, 4), ..load };
    let measured = warmed(bench, &server, &load).await;
    server.stop().await;
    measured
}
