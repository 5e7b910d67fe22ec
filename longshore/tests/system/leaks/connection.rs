//! One raw connection to the gateway. The test controls every byte and how the connection ends.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use longshore_testkit::chaos::{Answering, ClientProtocol, ClientRequest, Transport};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UnixStream};

/// An operation that takes longer hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client that has stopped reading stays connected. The pause is the fault itself.
const STALL: Duration = Duration::from_millis(40);
/// A small receive buffer, so that the gateway notices a stalled client soon.
const RECEIVE_BYTES: u32 = 4 * 1024;

/// The window of a client of HTTP/2 that names none.
const WINDOW: u16 = u16::MAX;

/// The addresses of the gateway, and a token.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// The path of the unix socket.
    pub(crate) socket: PathBuf,
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
    /// The first bytes of a connection: the request in the form of this client.
    pub(crate) fn request(
        &self,
        speaker: ClientProtocol,
        spelled: &ClientRequest,
        cursor: Option<&str>,
    ) -> Vec<u8> {
        match speaker.transport {
            Transport::Http | Transport::UnixSocket => self.http_request(speaker, spelled, cursor),
            Transport::WebSocket => self.websocket_request(speaker, spelled, cursor),
            Transport::Grpc => self.grpc_request(speaker, spelled, cursor, WINDOW),
        }
    }

    fn http_request(
        &self,
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
        let headers = lines(&headers);
        format!("{} {} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n{body}", spelled.verb, spelled.path)
            .into_bytes()
    }

    /// A handshake, and a message after it.
    fn websocket_request(
        &self,
        speaker: ClientProtocol,
        spelled: &ClientRequest,
        cursor: Option<&str>,
    ) -> Vec<u8> {
        let headers = lines(&self.headers(speaker, None));
        let handshake = format!(
            "GET /ws HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        );
        let mut message = spelled.body.clone().expect("JSON-RPC has a body");
        if let Some(cursor) = cursor {
            message["serviceParameters"] = json!({"Last-Event-ID": cursor});
        }
        let message = message.to_string();
        let length = u16::try_from(message.len()).expect("a short message");
        let [high, low] = length.to_be_bytes();
        // A text message with a mask that changes nothing. A length above 125 has two bytes.
        let mut frame = if length < 126 { vec![0x81, 0x80 | low] } else { vec![0x81, 0xfe, high, low] };
        frame.extend([0; 4]);
        [handshake.as_bytes(), &frame, message.as_bytes()].concat()
    }

    /// A call on a connection with this window.
    pub(crate) fn grpc_request(
        &self,
        speaker: ClientProtocol,
        spelled: &ClientRequest,
        cursor: Option<&str>,
        window: u16,
    ) -> Vec<u8> {
        let own = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", spelled.path.as_str()),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ];
        let headers = self.headers(speaker, cursor);
        let headers = headers.iter().map(|(name, value)| (*name, value.as_str()));
        let block = http2_fields(own.into_iter().chain(headers));
        let message = protobuf(speaker.version, spelled.body.as_ref().expect("a call has a message"));
        let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
        let body = [&[0], &length[..], &message].concat();
        let [high, low] = window.to_be_bytes();
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, high, low];
        let frame = |kind: u8, flags: u8, payload: &[u8]| {
            let length = u16::try_from(payload.len()).expect("a short frame").to_be_bytes();
            [&[0, length[0], length[1], kind, flags, 0, 0, 0, 1], payload].concat()
        };
        // HEADERS with END_HEADERS; DATA with END_STREAM.
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, &frame(1, 4, &block), &frame(0, 1, &body)]
            .concat()
    }

    /// A request without a body over HTTP/2. The header block uses literal fields, which every server understands.
    pub(crate) fn http2_request(
        &self,
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

    fn headers(&self, speaker: ClientProtocol, cursor: Option<&str>) -> Vec<(&'static str, String)> {
        let mut headers = speaker.headers(Answering::ByMessage);
        headers.push(("authorization", format!("Bearer {}", self.token)));
        headers.extend(cursor.map(|cursor| ("last-event-id", cursor.to_owned())));
        headers
    }

    pub(crate) async fn open(&self, disconnect: Disconnect) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a test can open a socket");
        if disconnect == Disconnect::Stall {
            socket.set_recv_buffer_size(RECEIVE_BYTES).expect("any size will do");
        }
        socket.connect(self.address).await.expect("the gateway takes connections")
    }

    /// Sends `request`, reads `after` bytes of the answer, and disconnects. Returns the bytes that it read.
    pub(crate) async fn send_and_disconnect(
        &self,
        transport: Transport,
        request: &[u8],
        after: usize,
        disconnect: Disconnect,
    ) -> Vec<u8> {
        if transport == Transport::UnixSocket {
            // There is no reset on a unix socket.
            let connection = UnixStream::connect(&self.socket).await;
            return exchange(&mut connection.expect("the gateway listens"), request, after, disconnect).await;
        }
        let mut connection = self.open(disconnect).await;
        let seen = exchange(&mut connection, request, after, disconnect).await;
        if disconnect == Disconnect::Reset {
            connection.set_zero_linger().expect("a connection can be reset");
        }
        seen
    }

    /// Makes one call and returns the whole answer.
    pub(crate) async fn call(&self, speaker: ClientProtocol, spelled: &ClientRequest) -> String {
        let request = with_connection_close(&self.request(speaker, spelled, None));
        let answer = self.send_and_disconnect(speaker.transport, &request, 0, Disconnect::AfterAnswer).await;
        String::from_utf8(answer).expect("an answer is text")
    }
}

fn lines(headers: &[(&str, String)]) -> String {
    let lines: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    lines.concat()
}

/// The protocol buffer of a call that names a task, or sends a message with a text.
fn protobuf(version: ProtocolVersion, body: &Value) -> Vec<u8> {
    let message = &body["message"];
    if let (Some(id), Some(text)) = (message["messageId"].as_str(), text_of(message)) {
        let part = bytes_field(1, text.as_bytes());
        // The role 1 is that of the user.
        let message = [bytes_field(1, id.as_bytes()), vec![4 << 3, 1], bytes_field(5, &part)].concat();
        return bytes_field(if version == ProtocolVersion::V1 { 2 } else { 1 }, &message);
    }
    let (field, name) = if version == ProtocolVersion::V1 { (2, "id") } else { (1, "name") };
    bytes_field(field, body[name].as_str().expect("a call of a task").as_bytes())
}

fn text_of(message: &Value) -> Option<&str> {
    message.get("parts").or_else(|| message.get("content"))?[0]["text"].as_str()
}

fn bytes_field(number: u8, value: &[u8]) -> Vec<u8> {
    let length =
        u8::try_from(value.len()).ok().filter(|length| *length < 128).expect("a test's fields are short");
    [&[number << 3 | 2, length], value].concat()
}

/// Whether a call of gRPC is refused, as soon as these bytes of the answer tell.
pub(crate) fn is_refused_by_grpc(seen: &[u8]) -> Option<bool> {
    let mut frames = seen;
    while let [long, high, low, kind, flags, _, _, _, stream, rest @ ..] = frames {
        // The head of a refusal is its end, too.
        if (*kind, *stream) == (1, 1) {
            return Some(flags & 1 == 1);
        }
        let length = usize::try_from(u32::from_be_bytes([0, *long, *high, *low])).expect("a short frame");
        frames = rest.get(length..).unwrap_or_default();
    }
    None
}

/// A header block of HTTP/2.
fn http2_fields<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
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

async fn exchange(
    connection: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &[u8],
    after: usize,
    disconnect: Disconnect,
) -> Vec<u8> {
    connection.write_all(request).await.expect("the gateway takes requests");
    let after = if disconnect == Disconnect::AfterAnswer { usize::MAX } else { after };
    let mut seen = read(connection, after).await;
    match disconnect {
        Disconnect::AfterAnswer | Disconnect::Fin | Disconnect::Reset => {}
        Disconnect::HalfClose => {
            // The gateway may have closed the connection already.
            drop(connection.shutdown().await);
            seen.extend(read(connection, usize::MAX).await);
        }
        Disconnect::Stall => tokio::time::sleep(STALL).await,
    }
    seen
}

/// Reads this many bytes, or all until the gateway closes its half.
async fn read(connection: &mut (impl AsyncRead + Unpin), most: usize) -> Vec<u8> {
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
