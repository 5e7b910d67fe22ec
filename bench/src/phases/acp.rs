//! What an ACP agent costs, compared with OpenCode over HTTP, and many sessions on one process.

use anyhow::{Result, ensure};

use super::streams::{load, warmed};
use crate::bench::Bench;
use crate::drive::ProtocolVersion;
use crate::load::StreamLoad;
use crate::results::{Acp, Streams};
use crate::servers::AgentProtocol;

/// The number of streams at which both are compared.
const COMPARED: u64 = 32;
/// Sessions on one process.
const SESSIONS: u64 = 200;
/// The pairs of runs. A single run on a machine that others use too may be off by a third.
const PAIRS: usize = 3;

pub(super) async fn run(bench: &Bench) -> Result<Acp> {
    let mut found = Acp::default();
    for _ in 0..bench.scaled(PAIRS, 1) {
        // One after the other in turns, so that a change of the machine's speed concerns both.
        found.http.push(once(bench, AgentProtocol::OpenCode, COMPARED).await?);
        found.acp.push(once(bench, AgentProtocol::Acp, COMPARED).await?);
    }
    found.sessions = Some(once(bench, AgentProtocol::Acp, SESSIONS).await?);
    Ok(found)
}

async fn once(bench: &Bench, agent: AgentProtocol, streams: u64) -> Result<Streams> {
    let server = bench.server_before(agent).await?;
    let load = load(bench, streams, 10, ProtocolVersion::V1);
    let measured = warmed(bench, &server, &StreamLoad { window: bench.seconds(10, 4), ..load }).await;
    server.stop().await;
    measured.and_then(|point| {
        // A process that ended and was started again would have lost some.
        let sessions = point.source.sessions;
        ensure!(sessions >= streams, "the agent's process has {sessions} of {streams} sessions");
        Ok(point)
    })
}
