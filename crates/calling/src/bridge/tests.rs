use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::net::UnixListener;

use super::*;
use crate::socket::{SOCKET, bind};

/// The agent's or the gateway's end of a connection to the bridge.
struct Side<R, W> {
    lines: Lines<R>,
    writer: W,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Side<R, W> {
    async fn read(&mut self) -> Value {
        serde_json::from_str(&self.lines.next().await.unwrap().expect("a further line")).unwrap()
    }

    async fn write(&mut self, message: &Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }
}

async fn accept(listener: &UnixListener) -> Side<OwnedReadHalf, OwnedWriteHalf> {
    let (reader, writer) = listener.accept().await.unwrap().0.into_split();
    let mut side = Side { lines: Lines::new(reader, LONGEST_MESSAGE), writer };
    assert_eq!(side.read().await, json!({"token": "the token"}));
    side
}

type Agent = Side<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>;

/// Runs a bridge with a test that plays the agent and the gateway. The bridge runs until `play` ends.
async fn with_bridge<F: Future<Output = ()>>(
    play: impl FnOnce(Agent, UnixListener, std::path::PathBuf) -> F,
) {
    let data_dir = tempfile::tempdir().unwrap();
    let socket = data_dir.path().join(SOCKET);
    let listener = bind(data_dir.path()).unwrap();
    let (agent, own) = duplex(1024 * 1024);
    let (input, output) = split(own);
    let (reader, writer) = split(agent);
    let agent = Side { lines: Lines::new(reader, LONGEST_MESSAGE), writer };
    tokio::select! {
        ended = bridge(&socket, "the token", input, output) => panic!("the bridge ended: {ended:?}"),
        () = play(agent, listener, data_dir.path().to_owned()) => {}
    }
}

#[tokio::test]
async fn a_call_goes_on_after_a_restart_of_the_gateway() {
    with_bridge(async |mut agent: Agent, listener, data_dir| {
        let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}});
        agent.write(&initialize).await;
        let mut gateway = accept(&listener).await;
        gateway.write(&json!({"ok": true})).await;
        assert_eq!(gateway.read().await, initialize);
        gateway.write(&json!({"jsonrpc": "2.0", "id": 0, "result": {"serverInfo": {}}})).await;
        assert_eq!(agent.read().await["id"], 0);
        agent.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        assert_eq!(gateway.read().await["method"], "notifications/initialized");
        agent
            .write(
                &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a2a_call"}}),
            )
            .await;
        let call = gateway.read().await;

        drop((gateway, listener));
        let listener = bind(&data_dir).unwrap();
        let mut gateway = accept(&listener).await;
        gateway.write(&json!({"ok": true})).await;
        assert_eq!(gateway.read().await["method"], "initialize");
        assert_eq!(gateway.read().await["method"], "notifications/initialized");
        assert_eq!(gateway.read().await, call, "the same call with the same key");
        gateway.write(&json!({"jsonrpc": "2.0", "id": "longshore-handshake", "result": {}})).await;
        gateway.write(&json!({"jsonrpc": "2.0", "id": 1, "result": {"content": []}})).await;
        assert_eq!(agent.read().await, json!({"jsonrpc": "2.0", "id": 1, "result": {"content": []}}));
    })
    .await;
}

#[tokio::test]
async fn a_result_that_is_too_long_is_answered_with_an_error() {
    with_bridge(async |mut agent: Agent, listener, _| {
        let call = |id: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {}});
        agent.write(&call("long")).await;
        agent.write(&call("short")).await;
        let mut gateway = accept(&listener).await;
        gateway.write(&json!({"ok": true})).await;
        gateway.read().await;
        let other = gateway.read().await;
        let long = json!({"jsonrpc": "2.0", "id": "long", "result": "x".repeat(LONGEST_ANSWER)});
        // The write may fail: the bridge closes the connection before the end of the line.
        let _ = gateway.writer.write_all(format!("{long}\n").as_bytes()).await;
        let answer = agent.read().await;
        assert_eq!((&answer["id"], &answer["result"]["isError"]), (&json!("long"), &json!(true)));

        let mut gateway = accept(&listener).await;
        gateway.write(&json!({"ok": true})).await;
        assert_eq!(gateway.read().await, other, "only the other call is sent again");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_always_hangs_up_is_left_in_peace() {
    with_bridge(async |_, listener, _| {
        let begun = Instant::now();
        for _ in 0..10 {
            accept(&listener).await.write(&json!({"ok": true})).await;
        }
        assert!(begun.elapsed() > LONGEST_PAUSE, "the pauses become longer");
    })
    .await;
}

#[tokio::test]
async fn requests_wait_for_a_gateway_that_does_not_run_yet() {
    with_bridge(async |mut agent: Agent, listener, data_dir| {
        drop(listener);
        agent.write(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}})).await;
        let mut gateway = accept(&bind(&data_dir).unwrap()).await;
        gateway.write(&json!({"ok": true})).await;
        assert_eq!(gateway.read().await["method"], "initialize");
    })
    .await;
}

#[tokio::test]
async fn the_bridge_ends_with_the_agent_and_when_it_is_refused() {
    let data_dir = tempfile::tempdir().unwrap();
    let socket = data_dir.path().join(SOCKET);
    let listener = bind(data_dir.path()).unwrap();
    bridge(&socket, "the token", &b""[..], tokio::io::sink()).await.unwrap();
    let (_agent, input) = duplex(100);
    let refusing = async {
        accept(&listener).await.write(&json!({"error": "no"})).await;
    };
    let (ended, ()) = tokio::join!(bridge(&socket, "the token", input, tokio::io::sink()), refusing);
    assert!(matches!(ended, Err(BridgeError::Refused(why)) if why == "no"));
}
