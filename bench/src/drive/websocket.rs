//! A client of a WebSocket, written by hand as [`Connection`] is: one request, and the messages of its stream.

use anyhow::{Result, bail, ensure};

use super::connection::Connection;
use super::request::Target;
use super::stream::{End, Follower};
use crate::clock;

const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// The longest message. Longer ones are a defect of the server.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// A frame of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Frame {
    is_last: bool,
    opcode: u8,
    payload: Vec<u8>,
}

/// Sends a JSON-RPC request on a new WebSocket, and follows its stream to the end of the task.
pub(super) async fn follow(target: &Target, request: &str, follower: &mut Follower) -> Result<()> {
    let mut connection = Connection::open(target.address).await?;
    let handshake = format!(
        "GET /ws HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nA2A-Version: 1.0\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
        target.address, target.token
    );
    connection.write(handshake.as_bytes()).await?;
    let head = connection.head().await?;
    if head.status != 101 {
        follower.ended = Some(End::Refused(head.status, None));
        return Ok(());
    }
    connection.write(&frame(TEXT, request.as_bytes())).await?;
    let mut message = Vec::new();
    while follower.ended.is_none() {
        while let Some(frame) = next_frame(connection.unused())? {
            match frame.opcode {
                PING => connection.write(&self::frame(PONG, &frame.payload)).await?,
                PONG => {}
                CLOSE => bail!("the server closed the WebSocket"),
                _ => message.extend(frame.payload),
            }
            if frame.opcode < CLOSE && frame.is_last {
                follower.event(&message, clock::monotonic_ns());
                message.clear();
            }
            ensure!(message.len() < MAX_MESSAGE, "a message is too long");
        }
        if follower.ended.is_none() && connection.more().await?.is_none() {
            bail!("the connection ended before the task");
        }
    }
    connection.write(&frame(CLOSE, &1000_u16.to_be_bytes())).await
}

/// Writes a whole message. Clients must mask what they send; with a mask of zeros the payload stays as it is.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    const MASKED: u8 = 0x80;
    // Marks of a length with two bytes, and of one with eight.
    const TWO: u8 = 0xfe;
    const EIGHT: u8 = 0xff;
    let mut frame = vec![0x80 | opcode];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ ..=125), _) => frame.push(MASKED | length),
        (_, Ok(length)) => {
            frame.push(TWO);
            frame.extend(length.to_be_bytes());
        }
        _ => {
            frame.push(EIGHT);
            frame.extend(u64::try_from(payload.len()).unwrap_or(u64::MAX).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// Takes the first frame out of the received bytes. `None`: it is not complete.
fn next_frame(bytes: &mut Vec<u8>) -> Result<Option<Frame>> {
    let &[first, second, ..] = bytes.as_slice() else { return Ok(None) };
    ensure!(second & 0x80 == 0, "a frame of the server is masked");
    let (begin, length) = match second {
        126 | 127 => {
            let begin = if second == 126 { 4 } else { 10 };
            let Some(digits) = bytes.get(2..begin) else { return Ok(None) };
            (begin, digits.iter().fold(0_u64, |sum, digit| sum << 8 | u64::from(*digit)))
        }
        length => (2, u64::from(length)),
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    ensure!(length <= MAX_MESSAGE, "a frame of {length} bytes is too long");
    if bytes.len() < begin + length {
        return Ok(None);
    }
    let payload = bytes[begin..begin + length].to_vec();
    bytes.drain(..begin + length);
    Ok(Some(Frame { is_last: first & 0x80 != 0, opcode: first & 0x0f, payload }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of a server: the same without the mask.
    fn unmasked(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = frame(opcode, payload);
        bytes[1] &= 0x7f;
        let mask = bytes.len() - payload.len() - 4;
        bytes.drain(mask..mask + 4);
        bytes
    }

    #[test]
    fn frames_of_every_length_are_read_when_they_are_complete() {
        for length in [0, 1, 125, 126, 65_535, 65_536] {
            let payload = vec![b'x'; length];
            let whole = unmasked(TEXT, &payload);
            let mut bytes = whole[..whole.len() - 1].to_vec();
            assert_eq!(next_frame(&mut bytes).unwrap(), None, "{length}");
            bytes = [whole, unmasked(PING, b"p")].concat();
            let read = next_frame(&mut bytes).unwrap().unwrap();
            assert_eq!(read, Frame { is_last: true, opcode: TEXT, payload });
            assert_eq!(next_frame(&mut bytes).unwrap().unwrap().opcode, PING);
            assert!(bytes.is_empty());
        }
        assert!(next_frame(&mut frame(TEXT, b"a")).is_err());
        assert!(next_frame(&mut vec![0x81, 127, 255, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
