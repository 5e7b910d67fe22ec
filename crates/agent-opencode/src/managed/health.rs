//! Checks the health of a managed OpenCode.

use std::io;
use std::time::Duration;

use bytes::BytesMut;
use serde::Deserialize;
use tokio::time::Instant;

use super::USERNAME;

/// The timeout of one try. OpenCode responds in milliseconds, or, when its one thread is busy, within a second or two.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The number of tries, each on its own connection, because OpenCode never responds to a request that came just before it was
/// ready.
const TRIES: u32 = 3;

/// How long the tries continue if the process is alive but does not respond. It may be busy, and terminating it would end its
/// turns.
const PATIENCE: Duration = Duration::from_secs(30);

/// The largest body that is read. OpenCode's response is never longer.
const MAX_BODY: usize = 64 * 1024;

#[derive(Deserialize)]
struct Health {
    healthy: bool,
    version: String,
}

#[derive(Debug)]
pub(super) enum HealthError {
    Call(reqwest::Error),
    /// The server responded, but not as OpenCode does to the right password.
    Response(u16),
}

/// OpenCode's version, if it reports that it is healthy.
pub(super) async fn version(
    port: u16,
    password: &str,
    is_alive: impl Fn() -> bool,
) -> Result<String, HealthError> {
    version_within(port, password, is_alive, TIMEOUT, PATIENCE).await
}

/// Whether OpenCode gives any response within this time. An error on the gateway's side counts as a response.
pub(super) async fn responds(port: u16, password: &str, timeout: Duration) -> bool {
    match ask(port, password, timeout).await {
        Err(HealthError::Call(cause)) => !(cause.is_timeout() || is_refusal(&cause)),
        Ok(_) | Err(HealthError::Response(_)) => true,
    }
}

/// Whether the connection was refused or reset, which means that nothing listens on the port or that the listener has ended.
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
) -> Result<String, HealthError> {
    let deadline = Instant::now() + patience;
    let mut tries = 0;
    loop {
        tries += 1;
        match ask(port, password, timeout).await {
            Err(HealthError::Call(_)) if tries < TRIES => {}
            Err(HealthError::Call(cause))
                if cause.is_timeout() && Instant::now() < deadline && is_alive() => {}
            other => return other,
        }
    }
}

async fn ask(port: u16, password: &str, timeout: Duration) -> Result<String, HealthError> {
    // Requests to the loopback address must not go through a proxy.
    let client = reqwest::Client::builder().no_proxy().timeout(timeout).build().map_err(HealthError::Call)?;
    let request =
        client.get(format!("http://127.0.0.1:{port}/global/health")).basic_auth(USERNAME, Some(password));
    let mut response = request.send().await.map_err(HealthError::Call)?;
    let status = response.status().as_u16();
    let mut body = BytesMut::new();
    while let Some(bytes) = response.chunk().await.map_err(HealthError::Call)? {
        body.extend_from_slice(&bytes);
        if body.len() > MAX_BODY {
            return Err(HealthError::Response(status));
        }
    }
    match serde_json::from_slice::<Health>(&body) {
        Ok(health) if status == 200 && health.healthy => Ok(health.version),
        _ => Err(HealthError::Response(status)),
    }
}

impl std::fmt::Display for HealthError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call(_) => f.write_str("OpenCode does not respond"),
            Self::Response(status) => {
                write!(f, "OpenCode does not report that it is healthy (HTTP {status})")
            }
        }
    }
}

impl std::error::Error for HealthError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Call(error) => Some(error),
            Self::Response(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn any_response_counts_and_a_timeout_or_a_closed_port_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let refusing = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            assert_ne!(socket.read(&mut [0; 4096]).await.unwrap(), 0);
            socket.write_all(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        };
        let (answered, ()) = tokio::join!(responds(port, "wrong", Duration::from_secs(30)), refusing);
        assert!(answered);
        assert!(!responds(port, "wrong", Duration::from_millis(100)).await, "the request is never read");
        drop(listener);
        assert!(!responds(port, "wrong", Duration::from_secs(30)).await, "the port is closed");
    }

    #[tokio::test]
    async fn a_busy_process_gets_more_time_only_while_it_lives() {
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
                () = busy => unreachable!("the server never ends"),
            };
            assert_eq!(version.ok().as_deref(), expected, "alive: {is_alive}");
        }
    }
}
