//! How long a server takes to show its card, and what it holds when nothing has happened yet.

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
            // What it still does after its first answer is part of the rest.
            sleep(Duration::from_secs(3)).await;
            found.rest = Memory::of(server.pid())?;
        }
        server.stop().await;
    }
    Ok(found)
}
