//! Queries to the stand-in: its totals, and the text that a turn sent.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::call::call;
use super::connection::Connection;
use crate::histogram::Delays;

/// The text that a turn sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct SentText {
    pub deltas: u64,
    pub bytes: u64,
    pub sum: u64,
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// The process. Older results have none.
    #[serde(default)]
    pub pid: u32,
    pub sessions: u64,
    pub running: u64,
    pub readers: u64,
    pub cut_readers: u64,
    pub turns: u64,
    pub ended: u64,
    pub deltas: u64,
    /// How late deltas were written.
    pub lag: Delays,
}

/// `None`: the turn has not ended, or is unknown.
pub async fn sent_text(connection: &mut Connection, key: &str) -> Result<Option<SentText>> {
    let request = format!("GET /bench/turn/{key} HTTP/1.1\r\nHost: stand-in\r\n\r\n");
    let reply = call(connection, request.as_bytes()).await?;
    if reply.head.status == 404 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&reply.body).context("unexpected answer of the stand-in")?))
}

/// The totals since the last call.
pub async fn totals(stand_in: SocketAddr) -> Result<Totals> {
    let mut connection = Connection::open(stand_in).await?;
    let reply = call(&mut connection, b"GET /bench/totals HTTP/1.1\r\nHost: stand-in\r\n\r\n").await?;
    ensure!(reply.head.status == 200, "the stand-in does not answer");
    call(&mut connection, b"POST /bench/reset HTTP/1.1\r\nHost: stand-in\r\nContent-Length: 0\r\n\r\n")
        .await?;
    serde_json::from_slice(&reply.body).context("unexpected answer of the stand-in")
}

/// Lets the held turns go on.
pub async fn release(stand_in: SocketAddr) -> Result<()> {
    let mut connection = Connection::open(stand_in).await?;
    let request = b"POST /bench/release HTTP/1.1\r\nHost: stand-in\r\nContent-Length: 0\r\n\r\n";
    let reply = call(&mut connection, request).await?;
    ensure!(reply.head.status == 200, "the stand-in does not answer");
    Ok(())
}
