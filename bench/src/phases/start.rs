//! How long a server takes to serve its card, and its memory at rest.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use crate::bench::Bench;
use crate::proc::Memory;
use crate::results::Start;
use crate::servers::Kind;

pub(super) async fn run(bench: &Bench, kind: Kind) -> Result<Start> {
    let mut found = Start::default();
    for number in 0..bench.scaled(9, 2) {
        let server = bench.server(kind).await?;
        found.card_ms.push(server.card_ms);
        if number == 0 {
            // Work that the server still does after its first answer belongs to the rest.
            sleep(Duration::from_secs(3)).await;
            found.rest = Memory::of(server.pid())?;
        }
        server.stop().await;
    }
    Ok(found)
}
