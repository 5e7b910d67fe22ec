//! A gRPC client: one streaming call on a connection of its own.
//!
//! The few fields that matter are written and read by hand, so that the bench needs no code for protocol buffers, and reads the
//! messages independently of the gateway's own types. Their numbers are those of the package `lf.a2a.v1`.

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_TYPE, TE};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::request::Target;
use super::stream::{End, Follower};
use crate::clock;

/// The prefix of a message: a flag for compression, and the length.
const PREFIX: usize = 5;

/// The longest message. Longer ones are a defect of the server.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// `ROLE_USER`.
const USER: u8 = 1;

/// Protocol buffers call it wire type 0, a varint: the field holds a number.
const NUMBER: u64 = 0;
/// Wire type 2: the field holds bytes, after their length.
const SIZED: u64 = 2;

/// What a `StreamResponse` says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct StreamedMessage<'a> {
    pub(super) task: Option<&'a [u8]>,
    /// The texts of an artifact.
    pub(super) texts: Vec<&'a [u8]>,
    /// The number of the task's state.
    pub(super) state: Option<u64>,
}

/// Sends a prompt, and follows the stream to its end.
pub(super) async fn follow(
    target: &Target,
    message: &str,
    text: &str,
    follower: &mut Follower,
) -> Result<()> {
    let socket = TcpStream::connect(target.address).await.context("cannot connect")?;
    socket.set_nodelay(true)?;
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await?;
    let request =
        Request::post(format!("http://{}/lf.a2a.v1.A2AService/SendStreamingMessage", target.address))
            .header(AUTHORIZATION, format!("Bearer {}", target.token))
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .header("a2a-version", "1.0")
            .body(Full::new(Bytes::from(send(message, text))))?;
    let exchange = async {
        let mut response = sender.send_request(request).await.context("the call failed")?;
        // A call that is refused has its status in the head.
        refused(response.headers(), follower);
        let mut received = BytesMut::new();
        while let Some(frame) = response.body_mut().frame().await {
            match frame.context("the stream broke")?.into_data() {
                Ok(data) => received.extend_from_slice(&data),
                Err(frame) => {
                    frame.trailers_ref().into_iter().for_each(|trailers| refused(trailers, follower));
                }
            }
            let now = clock::monotonic_ns();
            while let Some(message) = next_message(&mut received)? {
                follower.message(&StreamedMessage::read(&message)?, now);
            }
        }
        anyhow::Ok(())
    };
    tokio::select! {
        // The last frames and the end of the connection can come together.
        biased;
        done = exchange => done,
        ended = connection => {
            ended.context("the connection broke")?;
            bail!("the connection ended before the call")
        }
    }
}

/// Notes the error of a call, if it has one.
fn refused(headers: &HeaderMap, follower: &mut Follower) {
    let code = headers.get("grpc-status").and_then(|code| code.to_str().ok()?.parse().ok());
    if let Some(code @ 1_i64..) = code {
        follower.ended = Some(End::Refused(200, Some(code)));
    }
}

/// Takes the first message out of the received bytes. `None`: it is not complete.
fn next_message(bytes: &mut BytesMut) -> Result<Option<Bytes>> {
    let Some(prefix) = bytes.first_chunk::<PREFIX>() else { return Ok(None) };
    let [compressed, length @ ..] = *prefix;
    ensure!(compressed == 0, "a message is compressed");
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    ensure!(length <= MAX_MESSAGE, "a message of {length} bytes is too long");
    if bytes.len() < PREFIX + length {
        return Ok(None);
    }
    bytes.advance(PREFIX);
    Ok(Some(bytes.split_to(length).freeze()))
}

/// A `SendMessageRequest` with a text, and its prefix.
fn send(message: &str, text: &str) -> Vec<u8> {
    let part = sized(1, text.as_bytes());
    let role = vec![4 << 3, USER];
    let message = [sized(1, message.as_bytes()), role, sized(5, &part)].concat();
    let request = sized(2, &message);
    let length = u32::try_from(request.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], &request].concat()
}

/// Encodes a field that holds bytes: its number and wire type, the length of the bytes, the bytes.
fn sized(number: u8, value: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut left = value.len();
    while left > 0x7f {
        field.push(u8::try_from(left & 0x7f).unwrap_or_default() | 0x80);
        left >>= 7;
    }
    field.push(u8::try_from(left).unwrap_or_default());
    field.extend(value);
    field
}

/// The value of a field.
enum Value<'a> {
    Number(u64),
    Sized(&'a [u8]),
}

impl<'a> StreamedMessage<'a> {
    pub(super) fn read(message: &'a [u8]) -> Result<Self> {
        let mut read = Self::default();
        each(message, |number, value| match (number, value) {
            (1, Value::Sized(task)) => read.task(task),
            (3, Value::Sized(update)) => read.status_update(update),
            (4, Value::Sized(update)) => read.artifact_update(update),
            _ => Ok(()),
        })?;
        Ok(read)
    }

    fn task(&mut self, task: &'a [u8]) -> Result<()> {
        each(task, |number, value| match (number, value) {
            (4, Value::Sized(artifact)) => self.artifact(artifact),
            (number, value) => self.status_field(number, &value),
        })
    }

    fn status_update(&mut self, update: &'a [u8]) -> Result<()> {
        each(update, |number, value| self.status_field(number, &value))
    }

    /// A task and a status update have the id and the status in the same fields.
    fn status_field(&mut self, number: u64, value: &Value<'a>) -> Result<()> {
        match (number, value) {
            (1, Value::Sized(id)) => {
                self.task = Some(id);
                Ok(())
            }
            (3, Value::Sized(status)) => each(status, |number, value| {
                if let (1, Value::Number(state)) = (number, value) {
                    self.state = Some(state);
                }
                Ok(())
            }),
            _ => Ok(()),
        }
    }

    fn artifact_update(&mut self, update: &'a [u8]) -> Result<()> {
        each(update, |number, value| match (number, value) {
            (1, Value::Sized(id)) => {
                self.task = Some(id);
                Ok(())
            }
            (3, Value::Sized(artifact)) => self.artifact(artifact),
            _ => Ok(()),
        })
    }

    fn artifact(&mut self, artifact: &'a [u8]) -> Result<()> {
        each(artifact, |number, value| match (number, value) {
            (4, Value::Sized(part)) => each(part, |number, value| {
                if let (1, Value::Sized(text)) = (number, value) {
                    self.texts.push(text);
                }
                Ok(())
            }),
            _ => Ok(()),
        })
    }
}

/// Reads the fields of a message.
fn each<'a>(mut message: &'a [u8], mut field: impl FnMut(u64, Value<'a>) -> Result<()>) -> Result<()> {
    while !message.is_empty() {
        let key = varint(&mut message)?;
        let value = match key & 7 {
            NUMBER => Value::Number(varint(&mut message)?),
            SIZED => {
                let length = usize::try_from(varint(&mut message)?)?;
                Value::Sized(message.split_off(..length).context("a field is cut off")?)
            }
            kind => bail!("no field of an event is of the kind {kind}"),
        };
        field(key >> 3, value)?;
    }
    Ok(())
}

fn varint(message: &mut &[u8]) -> Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = message.split_off_first().context("a number is cut off")?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    bail!("a number is too long")
}

/// The end of the task, if this state is one.
pub(super) fn end_of(state: u64) -> Option<End> {
    let other = match state {
        3 => return Some(End::Completed),
        4 => "failed",
        5 => "canceled",
        7 => "rejected",
        8 => "auth_required",
        _ => return None,
    };
    Some(End::Otherwise(other.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_however_they_are_split() {
        let text = "a text that is longer than one byte can say, so that its length has two; ".repeat(3);
        let sent = [send("m", &text), send("m", "x")].concat();
        for cut in [1, 6, sent.len()] {
            let (mut received, mut found) = (BytesMut::new(), Vec::new());
            for piece in sent.chunks(cut) {
                received.extend_from_slice(piece);
                while let Some(message) = next_message(&mut received).unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found.len(), 2, "pieces of {cut}");
            // As the fields of a send have other numbers than those of an event, only the text is looked for.
            assert!(memchr::memmem::find(&found[0], text.as_bytes()).is_some());
        }
        assert!(next_message(&mut BytesMut::from(&[1, 0, 0, 0, 0][..])).is_err());
        assert!(next_message(&mut BytesMut::from(&[0, 255, 0, 0, 0][..])).is_err());
    }

    #[test]
    fn the_text_the_task_and_the_state_of_an_event_are_read() {
        let status = |state: u8| sized(3, &[1 << 3, state]);
        let task = sized(1, &[sized(1, b"t1"), sized(2, b"c1"), status(2)].concat());
        let read = StreamedMessage::read(&task).unwrap();
        assert_eq!((read.task, read.state), (Some(&b"t1"[..]), Some(2)));
        assert_eq!(end_of(2), None);

        // What follows a text must not become a part of it: 0x32 is the key of a field, and the digit `2`.
        let part = |text: &[u8]| sized(4, &[sized(1, text), sized(6, b"name")].concat());
        let artifact = [sized(1, b"a"), part(b"one "), part(b"two"), sized(5, b"metadata")].concat();
        let update = [sized(1, b"t1"), sized(3, &artifact), vec![4 << 3, 1]].concat();
        let event = sized(4, &update);
        let read = StreamedMessage::read(&event).unwrap();
        assert_eq!((read.texts.concat(), read.state), (b"one two".to_vec(), None));

        let end = sized(3, &[sized(1, b"t1"), status(3)].concat());
        assert_eq!(StreamedMessage::read(&end).unwrap().state.and_then(end_of), Some(End::Completed));
        assert!(StreamedMessage::read(&end[..end.len() - 1]).is_err());
        assert!(StreamedMessage::read(&[0xff; 12]).is_err());
    }
}
