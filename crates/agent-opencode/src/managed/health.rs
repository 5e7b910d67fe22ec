//! Asks a managed OpenCode whether it is well.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use serde::Deserialize;
use tokio::time::Instant;

use super::USERNAME;

/// One try. OpenCode answers in milliseconds, or, when its one thread is busy, within a second or two.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Tries, each on a connection of its own: OpenCode never answers a request that came just before it was ready.
const TRIES: u32 = 3;

/// How long one whose process lives may leave tries without an answer: it is busy, and whoever gives it up ends its
/// turns.
const PATIENCE: Duration = Duration::from_secs(30);

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
pub(super) async fn version(
    port: u16,
    password: &str,
    is_alive: impl Fn() -> bool,
) -> Result<String, Unwell> {
    version_within(port, password, is_alive, TIMEOUT, PATIENCE).await
}

/// Whether it gives any answer at all in this time. What keeps the gateway itself from asking is not held against it.
pub(super) async fn answers(port: u16, password: &str, timeout: Duration) -> bool {
    match ask(port, password, timeout).await {
        Err(Unwell::Call(cause)) => !(cause.is_timeout() || is_refusal(&cause)),
        Ok(_) | Err(Unwell::Answer(_)) => true,
    }
}

/// Nobody listens, or whoever listened is gone.
fn is_refusal(cause: &reqwest::Error) -> bool {
    let causes = std::iter::successors(Some(cause as &dyn std::error::Error), |cause| cause.source());
    causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|cause| {
        matches!(cause.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
    })
}

async fn version_within(
    port: u16,
    password: &str,
    is_alive: impl Fn() -> bool,
    timeout: Duration,
    patience: Duration,
) -> Result<String, Unwell> {
    let deadline = Instant::now() + patience;
    let mut tries = 0;
    loop {
        tries += 1;
        match ask(port, password, timeout).await {
            Err(Unwell::Call(_)) if tries < TRIES => {}
            Err(Unwell::Call(cause)) if cause.is_timeout() && Instant::now() < deadline && is_alive() => {}
            other => return other,
        }
    }
}

async fn ask(port: u16, password: &str, timeout: Duration) -> Result<String, Unwell> {
    // A proxy has no business between us and loopback.
    let client = reqwest::Client::builder().no_proxy().timeout(timeout).build().map_err(Unwell::Call)?;
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn any_answer_is_one_and_none_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let refusing = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            assert_ne!(socket.read(&mut [0; 4096]).await.unwrap(), 0);
            socket.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        };
        let (answered, ()) = tokio::join!(answers(port, "wrong", Duration::from_secs(30)), refusing);
        assert!(answered);
        assert!(!answers(port, "wrong", Duration::from_millis(100)).await, "nobody reads the question");
        drop(listener);
        assert!(!answers(port, "wrong", Duration::from_secs(30)).await, "nobody listens");
    }

    #[tokio::test]
    async fn one_that_lives_and_is_busy_is_waited_for() {
        for (is_alive, expected) in [(true, Some("1.2.3")), (false, None)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let busy = async {
                let mut unanswered = Vec::new();
                for _ in 0..5 {
                    unanswered.push(listener.accept().await.unwrap());
                }
                loop {
                    let (mut socket, _) = listener.accept().await.unwrap();
                    let body = r#"{"healthy":true,"version":"1.2.3"}"#;
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                    assert_ne!(socket.read(&mut [0; 4096]).await.unwrap(), 0);
                    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
                }
            };
            let (timeout, patience) = (Duration::from_millis(300), Duration::from_mins(1));
            let version = tokio::select! {
                version = version_within(port, "secret", || is_alive, timeout, patience) => version,
                () = busy => unreachable!("it goes on for ever"),
            };
            assert_eq!(version.ok().as_deref(), expected, "alive: {is_alive}");
        }
    }
}
