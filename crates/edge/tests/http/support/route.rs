//! How a test client reaches the gateway: over TCP, TLS or a unix socket; with requests of HTTP, with messages,
//! or with calls of gRPC.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::grpc::Grpc;
use super::messages::Stdio;
use longshore_edge::{ClientAuthority, Tls, TlsParts};
use longshore_testkit::certificates::{Authority, Identity};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};

#[derive(Clone, Debug)]
pub(crate) enum Route {
    Tcp(SocketAddr),
    Tls(SocketAddr, TlsClient),
    Unix(PathBuf),
    /// A WebSocket on another route, opened for each call.
    WebSocket(Box<Self>),
    /// The standard input and output of the gateway.
    Stdio(Stdio),
    Grpc(Grpc),
}

/// What a TLS client trusts, presents and offers.
#[derive(Clone)]
pub(crate) struct TlsClient(Arc<ClientConfig>);

/// A connection of any kind.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<C: AsyncRead + AsyncWrite + Unpin + Send> Connection for C {}

impl Route {
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Connection>> {
        Ok(match self {
            Self::Tcp(address) => Box::new(TcpStream::connect(address).await?),
            Self::Tls(address, client) => Box::new(client.connect(TcpStream::connect(address).await?).await?),
            Self::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Self::WebSocket(inner) => return Box::pin(inner.connect()).await,
            Self::Grpc(service) => Box::new(TcpStream::connect(service.address).await?),
            Self::Stdio(_) => panic!("there is one connection, and it is open"),
        })
    }

    pub(crate) fn websocket(self) -> Self {
        Self::WebSocket(Box::new(self))
    }
}

impl TlsClient {
    pub(crate) fn trusting(authority: &Authority) -> Self {
        Self::new(authority, None, &[&version::TLS13, &version::TLS12], &[])
    }

    pub(crate) fn presenting(authority: &Authority, identity: &Identity) -> Self {
        Self::new(authority, Some(identity), &[&version::TLS13, &version::TLS12], &[])
    }

    pub(crate) fn new(
        authority: &Authority,
        identity: Option<&Identity>,
        versions: &[&'static SupportedProtocolVersion],
        protocols: &[&str],
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Self(Arc::new(config))
    }

    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::clone(&self.0)).connect(name, stream).await
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient").finish_non_exhaustive()
    }
}

/// The TLS of a gateway with this certificate.
pub(crate) fn tls(server: &Identity) -> Tls {
    Tls::new(&parts(server, &server.key.clone().into())).unwrap()
}

/// The same. Client certificates of `clients` count, and are required if `is_required`.
pub(crate) fn tls_with_clients(server: &Identity, clients: &Authority, is_required: bool) -> Tls {
    let authority = ClientAuthority { certificates: &clients.certificate, is_required };
    let key = server.key.clone().into();
    Tls::new(&TlsParts { clients: Some(authority), ..parts(server, &key) }).unwrap()
}

pub(crate) fn parts<'a>(server: &'a Identity, key: &'a secrecy::SecretString) -> TlsParts<'a> {
    TlsParts { certificate: &server.certificate, key, clients: None }
}
