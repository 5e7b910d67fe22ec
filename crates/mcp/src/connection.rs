//! One MCP session over a reader and a writer: JSON-RPC messages, one a line, as on standard input and output.

use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_peers::Tools;
use rmcp::RoleServer;
use rmcp::model::{ClientNotification, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, ServerInitializeError, ServiceExt as _, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::callers::Callers;
use crate::server::Server;

/// The longest message of a client, in bytes. A longer one is dropped without being parsed.
const MAX_LINE: usize = 4 * 1024 * 1024;

/// The most requests of a client that may be unanswered. The next request is read only after an answer has been written, so the
/// gateway stops reading from a client that does not read its answers.
const MAX_OPEN: usize = 64;

/// How long a client may take to send its first request. Then the gateway closes the connection.
const MAX_HANDSHAKE: Duration = Duration::from_mins(1);

/// Serves one client until its input ends or `stop` is canceled. The calls that the client began go on afterwards.
///
/// After `stop`, no request is answered: the client's bridge repeats the request to the next gateway, which then has the result.
pub async fn serve<R, W>(
    reader: R,
    writer: W,
    tools: Arc<dyn Tools>,
    callers: Arc<dyn Callers>,
    stop: CancellationToken,
) -> io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let lines = AsyncRwTransport::new_server(reader, writer).with_max_line_length(MAX_LINE);
    let transport = BoundedTransport { lines, open: Arc::default(), stop: stop.clone() };
    // The service gets a child token, so that dropping this future ends the service too.
    let beginning = Server::new(tools, callers).serve_with_ct(transport, stop.child_token());
    let begun = tokio::time::timeout(MAX_HANDSHAKE, beginning).await;
    match begun.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))? {
        Ok(running) => running.waiting().await.map(drop).map_err(io::Error::other),
        // The client left, or the gateway stops, before the first request.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => Ok(()),
        // The SDK's error is left out because it contains what the client sent.
        Err(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "the client did not begin an MCP session")),
    }
}

/// Bounds the open requests of a client, because the SDK reads requests without a limit.
struct BoundedTransport<R: AsyncRead, W: AsyncWrite> {
    lines: AsyncRwTransport<RoleServer, R, W>,
    open: Arc<OpenRequests>,
    stop: CancellationToken,
}

#[derive(Default)]
struct OpenRequests {
    ids: Mutex<HashSet<RequestId>>,
    closed: Notify,
}

impl OpenRequests {
    /// Registers a request. Returns false if a request with this id is already open.
    fn begin(&self, id: &RequestId) -> bool {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone())
    }

    fn end(&self, id: &RequestId) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.closed.notify_one();
    }

    /// Waits until one more request may be read. Only the transport calls this, so `notify_one` always wakes the right waiter.
    async fn has_room(&self) {
        while self.ids.lock().unwrap_or_else(PoisonError::into_inner).len() >= MAX_OPEN {
            self.closed.notified().await;
        }
    }
}

impl<R, W> Transport<RoleServer> for BoundedTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let answered = match &message {
            JsonRpcMessage::Response(response) => Some(response.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let (sending, open, stop) = (self.lines.send(message), Arc::clone(&self.open), self.stop.clone());
        async move {
            if answered.is_some() && stop.is_cancelled() {
                return Err(io::Error::other("the gateway stops"));
            }
            let sent = sending.await;
            if let Some(id) = answered {
                open.end(&id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.open.has_room().await;
        let message = self.lines.receive().await?;
        match &message {
            JsonRpcMessage::Request(request) if !self.open.begin(&request.id) => {
                tracing::debug!("an MCP client used the id of an open request again");
                return None;
            }
            // Close the request here, because the SDK does not answer a canceled request.
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(canceled) = &notification.notification
                    && let Some(id) = &canceled.params.request_id
                {
                    self.open.end(id);
                }
            }
            _ => {}
        }
        Some(message)
    }

    async fn close(&mut self) -> io::Result<()> {
        self.lines.close().await
    }
}
