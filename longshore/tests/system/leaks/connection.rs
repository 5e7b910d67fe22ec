//! One raw connection to the gateway. The test controls every byte and how the connection ends.

use std::net::SocketAddr;
use std::time::Duration;

use longshore_testkit::chaos::{Answering, ClientProtocol, ClientRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// An operation that takes longer hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client that has stopped reading stays connected. The pause is the fault itself.
const STALL: Duration = Duration::from_millis(40);
/// A small receive buffer, so that the gateway notices a stalled client soon.
const RECEIVE_BYTES: u32 = 4 * 1024;

/// The address of the gateway, and a token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) token: &'static str,
}

/// How a client disconnects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Disconnect {
    /// After the whole answer.
    AfterAnswer,
    /// The client closes the connection.
    Fin,
    /// The client resets the connection.
    Reset,
    /// The client closes its own half, and waits until the gateway closes the other.
    HalfClose,
    /// The client stops reading, and closes the connection some time later.
    Stall,
}

impl Target {
    pub(crate) fn request(
        self,
        speaker: ClientProtocol,
        spelled: &ClientRequest,
        cursor: Option<&str>,
    ) -> Vec<u8> {
        let mut headers = self.headers(speaker, cursor);
        let body = spelled.body.as_ref().map(ToString::to_string).unwrap_or_default();
        if spelled.body.is_some() {
            headers.push(("content-type", "application/json".to_owned()));
            headers.push(("content-length", body.len().to_string()));
        }
        let headers: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let headers = headers.concat();
        format!("{} {} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n{body}", spelled.verb, spelled.path)
            .into_bytes()
    }

    /// The same over HTTP/2, for a request without a body. The header block uses literal fields, which every server
    /// understands.
    pub(crate) fn http2_request(
        self,
        speaker: ClientProtocol,
        spelled: &ClientRequest,
        cursor: Option<&str>,
    ) -> Vec<u8> {
        let pseudo = [
            (":method", spelled.verb),
            (":scheme", "http"),
            (":path", spelled.path.as_str()),
            (":authority", "localhost"),
        ];
        let headers = self.headers(speaker, cursor);
        let headers = headers.iter().map(|(name, value)| (*name, value.as_str()));
        let block = http2_fields(pseudo.into_iter().chain(headers));
        let length = u16::try_from(block.len()).expect("a test's headers are short").to_be_bytes();
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        // HEADERS on stream 1, with END_HEADERS and END_STREAM.
        let headers = [0, length[0], length[1], 1, 5, 0, 0, 0, 1];
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &headers, &block].concat()
    }

    fn headers(self, speaker: ClientProtocol, cursor: Option<&str>) -> Vec<(&'static str, String)> {
        let mut headers = speaker.headers(Answering::ByMessage);
        headers.push(("authorization", format!("Bearer {}", self.token)));
        headers.extend(cursor.map(|cursor| ("last-event-id", cursor.to_owned())));
        headers
    }

    pub(crate) async fn open(self, disconnect: Disconnect) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a test can open a socket");
        if disconnect == Disconnect::Stall {
            socket.set_recv_buffer_size(RECEIVE_BYTES).expect("any size will do");
        }
        socket.connect(self.address).await.expect("the gateway takes connections")
    }

    /// Sends `request`, reads `after` bytes of the answer, and disconnects. Returns the bytes that it read.
    pub(crate) async fn send_and_disconnect(
        self,
        request: &[u8],
        after: usize,
        disconnect: Disconnect,
    ) -> Vec<u8> {
        let mut connection = self.open(disconnect).await;
        connection.write_all(request).await.expect("the gateway takes requests");
        let after = if disconnect == Disconnect::AfterAnswer { usize::MAX } else { after };
        let mut seen = read(&mut connection, after).await;
        match disconnect {
            Disconnect::AfterAnswer | Disconnect::Fin => {}
            Disconnect::Reset => connection.set_zero_linger().expect("a connection can be reset"),
            Disconnect::HalfClose => {
                // The gateway may have closed the connection already.
                drop(connection.shutdown().await);
                seen.extend(read(&mut connection, usize::MAX).await);
            }
            Disconnect::Stall => tokio::time::sleep(STALL).await,
        }
        seen
    }

    /// Makes one call and returns the whole answer.
    pub(crate) async fn call(self, speaker: ClientProtocol, spelled: &ClientRequest) -> String {
        let request = with_connection_close(&self.request(speaker, spelled, None));
        let answer = self.send_and_disconnect(&request, 0, Disconnect::AfterAnswer).await;
        String::from_utf8(answer).expect("an answer is text")
    }
}

/// A header block of HTTP/2.
pub(crate) fn http2_fields<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        // A literal field without indexing, with a literal name.
        block.push(0);
        for text in [name, value] {
            // Lengths above 126 continue in the next byte.
            match text.len() {
                few @ ..127 => block.push(u8::try_from(few).expect("it is less than 127")),
                more => block.extend([127, u8::try_from(more - 127).expect("a test's headers are short")]),
            }
            block.extend(text.as_bytes());
        }
    }
    block
}

/// The same request with `connection: close`.
pub(crate) fn with_connection_close(request: &[u8]) -> Vec<u8> {
    let first =
        request.windows(2).position(|window| window == b"\r\n").expect("a request has a first line") + 2;
    [&request[..first], b"connection: close\r\n", &request[first..]].concat()
}

/// Reads this many bytes, or all until the gateway closes its half.
async fn read(connection: &mut TcpStream, most: usize) -> Vec<u8> {
    let (mut seen, mut buffer) = (Vec::new(), [0; 2048]);
    while seen.len() < most {
        let room = buffer.len().min(most - seen.len());
        let next = tokio::time::timeout(PATIENCE, connection.read(&mut buffer[..room])).await;
        match next
            .unwrap_or_else(|_| panic!("nothing comes any more after {:?}", String::from_utf8_lossy(&seen)))
        {
            Ok(read @ 1..) => seen.extend_from_slice(&buffer[..read]),
            Ok(0) | Err(_) => break,
        }
    }
    seen
}
