//! Delay, processor time and memory over the number of streams.

use std::time::Duration;

use anyhow::Result;

use crate::bench::Bench;
use crate::drive::{Binding, ProtocolVersion};
use crate::load::{StreamLoad, streams};
use crate::results::{Measured, Streams};
use crate::servers::{Kind, Server};

/// The peer's client for OpenCode has a hundred connections, and a stream needs two.
const OF_PEER: &[u64] = &[1, 4, 8, 16, 32];
const OF_LONGSHORE: &[u64] = &[1, 10, 32, 100, 320, 1000];
/// The number of streams at which both servers, and both protocol versions, are compared.
const COMPARED: u64 = 32;

pub(super) async fn run(bench: &Bench, kind: Kind, found: &mut Measured) -> Result<()> {
    let numbers = match kind {
        Kind::Longshore => bench.scaled(OF_LONGSHORE, &[1, 32, 200]),
        Kind::Peer => bench.scaled(OF_PEER, &[4, COMPARED]),
    };
    for number in numbers {
        found.streams.push(once(bench, kind, load(bench, *number, 10, ProtocolVersion::V1)).await?);
    }
    if kind == Kind::Longshore {
        found.v03 = Some(once(bench, kind, load(bench, COMPARED, 10, ProtocolVersion::V03)).await?);
    }
    Ok(())
}

/// 32 streams at 100 deltas/s each.
pub(super) async fn fast(bench: &Bench, kind: Kind) -> Result<Streams> {
    let mut load = load(bench, COMPARED, 100, ProtocolVersion::V1);
    if kind == Kind::Peer {
        // The peer is minutes behind by then, and later deltas are not counted.
        load.drain = bench.seconds(15, 5);
    }
    once(bench, kind, load).await
}

pub(super) fn load(bench: &Bench, streams: u64, rate: u64, version: ProtocolVersion) -> StreamLoad {
    StreamLoad {
        streams,
        rate,
        size: 24,
        version,
        binding: Binding::JsonRpc,
        starts: 50,
        settle: bench.seconds(2, 1),
        window: bench.seconds(15, 4),
        drain: bench.seconds(60, 30),
    }
}

async fn once(bench: &Bench, kind: Kind, load: StreamLoad) -> Result<Streams> {
    let server = bench.server(kind).await?;
    let measured = warmed(bench, &server, &load).await;
    server.stop().await;
    measured
}

/// Streams on a server that has served some before.
pub(super) async fn warmed(bench: &Bench, server: &Server, load: &StreamLoad) -> Result<Streams> {
    // Work that a server does only once, such as opening its database, is not the cost of a stream.
    let warm = StreamLoad { streams: 2, settle: Duration::ZERO, window: Duration::from_secs(1), ..*load };
    streams(bench, server, &warm).await?;
    streams(bench, server, load).await
}
