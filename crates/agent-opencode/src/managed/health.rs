//! Asks a managed OpenCode whether it is well.

use std::time::Duration;

use bytes::BytesMut;
use serde::Deserialize;

use super::USERNAME;

/// One try. OpenCode answers in milliseconds, or, when its one thread is busy, within a second or two.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Tries, each on a connection of its own: OpenCode never answers a request that came just before it was ready.
const TRIES: u32 = 3;

/// A longer answer is none of OpenCode's.
const MAX_BODY: usize = 64 * 1024;

#[derive(Deserialize)]
struct Health {
    healthy: bool,
    version: String,
}

#[derive(Debug)]
pub(super) enum Unwell {
    Call(reqwest::Error),
    /// It answered, but not as OpenCode does with the right password.
    Answer(u16),
}

/// Its version, if it says that it is healthy.
pub(super) async fn version(port: u16, password: &str) -> Result<String, Unwell> {
    let mut tries = 0;
    loop {
        tries += 1;
        match ask(port, password).await {
            Err(Unwell::Call(_)) if tries < TRIES => {}
            other => return other,
        }
    }
}

async fn ask(port: u16, password: &str) -> Result<String, Unwell> {
    // A proxy has no business between us and loopback.
    let client = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().map_err(Unwell::Call)?;
    let request =
        client.get(format!("http://127.0.0.1:{port}/global/health")).basic_auth(USERNAME, Some(password));
    let mut response = request.send().await.map_err(Unwell::Call)?;
    let status = response.status().as_u16();
    let mut body = BytesMut::new();
    while let Some(bytes) = response.chunk().await.map_err(Unwell::Call)? {
        body.extend_from_slice(&bytes);
        if body.len() > MAX_BODY {
            return Err(Unwell::Answer(status));
        }
    }
    match serde_json::from_slice::<Health>(&body) {
        Ok(health) if status == 200 && health.healthy => Ok(health.version),
        _ => Err(Unwell::Answer(status)),
    }
}

impl std::fmt::Display for Unwell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call(_) => f.write_str("OpenCode does not answer"),
            Self::Answer(status) => write!(f, "OpenCode does not say that it is healthy (HTTP {status})"),
        }
    }
}

impl std::error::Error for Unwell {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Call(error) => Some(error),
            Self::Answer(_) => None,
        }
    }
}
