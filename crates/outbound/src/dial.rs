//! Opens connections to checked addresses.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;

use crate::BoxFuture;

pub trait Dialer: Send + Sync + Debug {
    /// Connects to exactly this address.
    fn dial(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>>;
}

#[derive(Clone, Copy, Debug, Default)]
pub struct TcpDialer;

impl Dialer for TcpDialer {
    fn dial(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            // A request is one small write, so the kernel should not wait for more data.
            stream.set_nodelay(true)?;
            Ok(stream)
        })
    }
}
