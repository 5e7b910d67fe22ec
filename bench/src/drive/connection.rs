//! HTTP/1.1 written by hand on one socket: as little as a server needs, so that thousands of clients cost almost nothing.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use memchr::memmem;
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::chunked::Chunks;

/// The longest head of a response.
const MAX_HEAD: usize = 64 * 1024;
const READ: usize = 8 * 1024;
/// The longest TCP segment on an Ethernet.
const NETWORK_SEGMENT: u32 = 1448;

#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    /// Received bytes that are not used yet.
    read: Vec<u8>,
    buffer: Box<[u8]>,
}

/// The head of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    pub content_type: String,
    /// Seconds.
    pub retry_after: Option<u64>,
    pub body: BodyKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyKind {
    Length(usize),
    Chunked,
    /// Up to the end of the connection.
    Rest,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> Result<Self> {
        Self::with_buffer(address, None).await
    }

    /// A connection for which the kernel buffers little on either side: its segments are as short as on a network. With the
    /// 64 KB segments of the loopback, the sender's kernel would buffer megabytes.
    pub async fn narrow(address: SocketAddr, bytes: u32) -> Result<Self> {
        Self::with_buffer(address, Some(bytes)).await
    }

    async fn with_buffer(address: SocketAddr, bytes: Option<u32>) -> Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(bytes) = bytes {
            socket.set_recv_buffer_size(bytes)?;
            SockRef::from(&socket).set_tcp_mss(NETWORK_SEGMENT)?;
        }
        let socket = socket.connect(address).await.context("cannot connect")?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, read: Vec::new(), buffer: vec![0; READ].into_boxed_slice() })
    }

    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.socket.write_all(bytes).await.context("cannot write")
    }

    /// Reads the head of the next response.
    pub async fn head(&mut self) -> Result<Head> {
        loop {
            if let Some(end) = memmem::find(&self.read, b"\r\n\r\n") {
                let head = Head::read(&self.read[..end])?;
                self.read.drain(..end + 4);
                return Ok(head);
            }
            ensure!(self.read.len() < MAX_HEAD, "the head of the response is too long");
            ensure!(self.fill().await? > 0, "the connection ended before an answer");
        }
    }

    /// Reads a complete body.
    pub async fn body(&mut self, kind: BodyKind) -> Result<Vec<u8>> {
        match kind {
            BodyKind::Length(length) => {
                while self.read.len() < length {
                    ensure!(self.fill().await? > 0, "the connection ended in a body");
                }
                Ok(self.read.drain(..length).collect())
            }
            BodyKind::Chunked => {
                let (mut chunks, mut body) = (Chunks::default(), Vec::new());
                while self.piece(&mut chunks, &mut body).await? {}
                Ok(body)
            }
            BodyKind::Rest => {
                while self.fill().await? > 0 {}
                Ok(std::mem::take(&mut self.read))
            }
        }
    }

    /// Reads more of a chunked body. `false`: the body is complete.
    pub(super) async fn piece(&mut self, chunks: &mut Chunks, body: &mut Vec<u8>) -> Result<bool> {
        if self.read.is_empty() && !chunks.is_over() {
            ensure!(self.fill().await? > 0, "the connection ended in a body");
        }
        let used = chunks.take(&self.read, body);
        self.read.drain(..used);
        Ok(!chunks.is_over())
    }

    /// Reads more, and returns all bytes that are not used yet: the caller removes those that it uses. `None`: the connection has
    /// ended.
    pub(super) async fn more(&mut self) -> Result<Option<&mut Vec<u8>>> {
        let length = self.fill().await?;
        Ok((length > 0).then_some(&mut self.read))
    }

    /// The bytes after the last response.
    pub(super) fn unused(&mut self) -> &mut Vec<u8> {
        &mut self.read
    }

    async fn fill(&mut self) -> Result<usize> {
        let length = self.socket.read(&mut self.buffer).await.context("cannot read")?;
        self.read.extend_from_slice(&self.buffer[..length]);
        Ok(length)
    }
}

impl Head {
    fn read(bytes: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes).context("the head of the response is not text")?;
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
        let Some(status) = status else { bail!("the response has no status: {text}") };
        let mut head = Self { status, content_type: String::new(), retry_after: None, body: BodyKind::Rest };
        if matches!(status, 204 | 304) {
            head.body = BodyKind::Length(0);
        }
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-type" => value.clone_into(&mut head.content_type),
                "content-length" => {
                    head.body = BodyKind::Length(value.parse().context("invalid content-length")?);
                }
                "transfer-encoding" => head.body = BodyKind::Chunked,
                "retry-after" => head.retry_after = value.parse().ok(),
                _ => {}
            }
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read() {
        let head = Head::read(
            b"HTTP/1.1 429 Too Many\r\nContent-Type: application/json\r\nretry-after: 7\r\ncontent-length:12",
        );
        let expected = Head {
            status: 429,
            content_type: "application/json".to_owned(),
            retry_after: Some(7),
            body: BodyKind::Length(12),
        };
        assert_eq!(head.unwrap(), expected);
        assert_eq!(Head::read(b"HTTP/1.1 204 No Content").unwrap().body, BodyKind::Length(0));
        assert_eq!(
            Head::read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked").unwrap().body,
            BodyKind::Chunked
        );
        assert!(Head::read(b"nonsense").is_err());
    }
}
