//! Accepts connections on the listeners of the gateway, within the connection limits.

use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;

use super::raw_socket::RawSocket;
use super::socket::SlowClients;
use super::tls::Tls;
use super::{Connections, Protocols};
use crate::Edge;
use crate::dispatch::Dispatcher;
use crate::guard::Bound;
use crate::limits::Places;

/// The pause after a failed accept. The usual reason is a lack of file descriptors, and other connections may close during the
/// pause.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The address under which clients of a unix socket are counted, because they have no address and run on this machine.
const ADDRESS_OF_UNIX_CLIENTS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The sockets on which a gateway serves.
#[derive(Debug, Default)]
pub struct Listeners {
    pub tcp: Option<TcpListener>,
    /// A listener that serves only gRPC.
    pub grpc: Option<TcpListener>,
    /// Encrypts the connections of both TCP listeners.
    pub tls: Option<Tls>,
    pub unix: Option<UnixListener>,
}

impl From<TcpListener> for Listeners {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp: Some(tcp), ..Self::default() }
    }
}

impl Listeners {
    /// The next connection, and the address of its client.
    async fn accept(&self) -> io::Result<Accepted> {
        let on_tcp = async |listener: &Option<TcpListener>, only_grpc| {
            let Some(listener) = listener else { return pending().await };
            let (stream, peer) = listener.accept().await?;
            // On a dual-stack socket an IPv4 client has a mapped IPv6 address.
            Ok(Accepted { socket: RawSocket::Tcp(stream), peer: peer.ip().to_canonical(), only_grpc })
        };
        let unix = async {
            let Some(listener) = &self.unix else { return pending().await };
            let (stream, _) = listener.accept().await?;
            let (socket, peer) = (RawSocket::Unix(stream), ADDRESS_OF_UNIX_CLIENTS);
            Ok(Accepted { socket, peer, only_grpc: false })
        };
        tokio::select! {
            accepted = on_tcp(&self.tcp, false) => accepted,
            accepted = on_tcp(&self.grpc, true) => accepted,
            accepted = unix => accepted,
        }
    }

    fn bound(&self) -> io::Result<Bound> {
        let address = self.tcp.as_ref().or(self.grpc.as_ref()).map(TcpListener::local_addr).transpose()?;
        Ok(Bound { address, has_tls: self.tls.is_some() })
    }
}

/// A connection that was accepted.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) socket: RawSocket,
    pub(super) peer: IpAddr,
    /// Whether the listener serves only gRPC.
    pub(super) only_grpc: bool,
}

pub(crate) async fn run(edge: Edge, listeners: Listeners, shutdown: CancellationToken) -> io::Result<()> {
    let Edge { engine, config, tasks } = edge;
    let places = Places::new(&config.limits, Arc::clone(&config.metrics));
    let cut = CancellationToken::new();
    let clients =
        SlowClients::new(config.write_timeout, config.limits.stream_duration, Arc::clone(&config.metrics));
    let connections = Connections {
        protocols: Protocols::new(&tasks, &cut, config.header_timeout, &clients),
        clients,
        tls: listeners.tls.clone(),
        credentials: config.credentials.clone(),
        idle_timeout: config.header_timeout,
        shutdown: shutdown.clone(),
    };
    let connections = Arc::new(connections);
    let grace = config.shutdown_grace;
    let dispatcher = Dispatcher::new(engine, config, listeners.bound()?, shutdown.clone(), tasks.clone());
    let dispatcher = Arc::new(dispatcher);

    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listeners.accept() => accepted,
        };
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !affects_one_connection_only(&error) {
                    tracing::warn!(%error, "cannot accept connections");
                    let _ = shutdown.run_until_cancelled(tokio::time::sleep(ACCEPT_PAUSE)).await;
                }
                continue;
            }
        };
        let place = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            place = places.take(accepted.peer, &cut) => place,
        };
        let Some(place) = place else { continue };
        let (connections, dispatcher) = (Arc::clone(&connections), Arc::clone(&dispatcher));
        // Boxed, because the spawned task would otherwise hold this large future twice: as an argument, and while it runs.
        let connection = Box::pin(async move {
            connections.serve(accepted, dispatcher, &place.connection).await;
            drop(place);
        });
        tasks.spawn("connection", connection);
    }

    // The listeners are closed first, so that new clients are refused at once.
    drop(listeners);
    if let Err(open) = places.wait_until_empty(grace).await {
        tracing::info!(open, "connections closed at the end of the shutdown grace period");
        cut.cancel();
        // Each connection ends as soon as it sees that its token is canceled.
        places.wait_until_empty(Duration::MAX).await.ok();
    }
    Ok(())
}

/// Whether an accept failed only because the client closed its connection too early. Further accepts are then not affected.
fn affects_one_connection_only(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}
