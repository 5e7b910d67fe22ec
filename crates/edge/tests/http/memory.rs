//! The memory of a waiting stream.
#![cfg(target_os = "linux")]

use longshore_testkit::gateway::resident_kilobytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{ADA, Gateway};

/// The number of streams that warm the allocator up, and the number that is measured.
const WARM: usize = 100;
const MORE: usize = 400;

/// Includes the client's end of the connection, which lives in this process too, in a build without optimisation.
const BOUND_BYTES: usize = 12 * 1024;

#[tokio::test]
async fn a_waiting_stream_needs_little_memory() {
    let mut gateway = Gateway::manual().await;
    let (task, turn) = gateway.working_task("m1").await;
    let mut open = Vec::with_capacity(WARM + MORE);
    let mut before = 0;
    for number in 0..WARM + MORE {
        if number == WARM {
            before = resident_kilobytes(std::process::id());
        }
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        let request = format!(
            "GET /tasks/{task}:subscribe HTTP/1.1\r\nhost: {}\r\nauthorization: {ADA}\r\n\r\n",
            gateway.address
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        // The head of the response has arrived, so its body exists.
        stream.read_exact(&mut [0; 15]).await.unwrap();
        open.push(stream);
    }
    // Each stream has sent an event and waits again.
    turn.say("b1", "Hello.").await;
    for stream in &mut open {
        let (mut text, mut buffer) = (String::new(), [0; 1024]);
        while !text.contains("Hello.") {
            let read = stream.read(&mut buffer).await.unwrap();
            assert!(read > 0, "{text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    }
    let after = resident_kilobytes(std::process::id());
    let each = usize::try_from(after.saturating_sub(before)).unwrap() * 1024 / MORE;
    println!("{each} bytes for each stream");
    assert!(each < BOUND_BYTES, "{each} bytes for each stream, from {before} to {after} KB");
    drop(open);
    gateway.stop().await;
}
