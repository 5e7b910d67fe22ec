//! Measures the lag of push notifications to 10,000 webhooks. The hosts of 1 % of them are dead.
//!
//! Each task has a hundred webhooks. The one that its send registers is dead, and wants every event, so that it fails from the
//! start of the task on. The others want the end of the task. The tasks end one after the other while all dead hosts are being tried.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, sleep};

use crate::bench::Bench;
use crate::clock;
use crate::drive::{Connection, ProtocolVersion, Target, call, release, totals};
use crate::histogram::Histogram;
use crate::load::script;
use crate::results::{Push, PushRun};
use crate::servers::{Kind, Limits, Server};
use crate::stand_in::Script;

/// Webhooks of each task.
const WEBHOOKS: u64 = 100;
/// Hosts of the receivers that work.
const HOSTS: usize = 20;
/// How many clients register the webhooks at the same time.
const CLIENTS: u64 = 32;
/// The pairs of runs. A single run on a machine that others use too may be off.
const PAIRS: usize = 2;
/// The time between the end of one task and the end of the next.
const STEP: Duration = Duration::from_millis(200);
/// How long the turns may take to begin, once their tasks are sent.
const BEGIN: Duration = Duration::from_mins(1);
/// How long the last notifications may take.
const DRAIN: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

const SETTINGS: &[(&str, &str)] = &[
    ("LONGSHORE_PUSH_ALLOW_HTTP", "true"),
    ("LONGSHORE_PUSH_INTERNAL_NETWORKS", "127.0.0.1/32"),
    ("LONGSHORE_MAX_PUSH_CONFIGS_PER_TASK", "100"),
    ("LONGSHORE_MAX_PUSH_CONFIGS_PER_PRINCIPAL", "20000"),
];

pub(super) async fn run(bench: &Bench, found: &mut Option<Push>) -> Result<()> {
    let found = found.get_or_insert_default();
    for _ in 0..bench.scaled(PAIRS, 1) {
        found.without.push(once(bench, false).await?);
        found.with.push(once(bench, true).await?);
    }
    Ok(())
}

async fn once(bench: &Bench, has_dead: bool) -> Result<PushRun> {
    let server = bench.server_with(Kind::Longshore, Limits::Off, SETTINGS).await?;
    let measured = measure(bench, &server, has_dead).await;
    server.stop().await;
    measured
}

async fn measure(bench: &Bench, server: &Server, has_dead: bool) -> Result<PushRun> {
    let tasks = bench.scaled(100, 5);
    let heard = Arc::new(Mutex::new(Heard::default()));
    let receivers = Arc::new(receivers(bench, &heard).await?);
    let dead = if has_dead { DeadHosts::new(tasks)? } else { DeadHosts::default() };
    let settle = bench.seconds(3, 1);
    let dead_urls = Arc::new(dead.urls());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let target = server.target(ProtocolVersion::V1);
            let (receivers, dead_urls) = (Arc::clone(&receivers), Arc::clone(&dead_urls));
            let mine = (client..tasks).step_by(usize::try_from(CLIENTS).unwrap_or(1));
            let mine: Vec<_> = mine.map(|task| (task, script(bench, server))).collect();
            bench.spawn("client", async move {
                for (task, script) in mine {
                    let first = usize::try_from(task).ok().and_then(|task| dead_urls.get(task));
                    let ramp = settle + STEP * u32::try_from(task)?;
                    let script = Script { ramp_ms: ramp.as_millis().try_into()?, is_held: true, ..script };
                    register(&target, &script, first, &receivers).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for client in clients {
        client.await.context("a client has panicked")??;
    }
    let deadline = Instant::now() + BEGIN;
    loop {
        let running = totals(server.stand_in).await?.running;
        if running >= tasks {
            break;
        }
        ensure!(Instant::now() < deadline, "{running} of {tasks} turns began");
        sleep(LOOK_AGAIN).await;
    }
    release(server.stand_in).await?;
    sleep(settle).await;
    let before = bench.meter(server)?;
    sleep(STEP * u32::try_from(tasks)?).await;
    let costs = bench.meter(server)?.since(&before);
    let expected = tasks * (WEBHOOKS - 1);
    let deadline = Instant::now() + DRAIN;
    while lock(&heard).lag.count() < expected && Instant::now() < deadline {
        sleep(LOOK_AGAIN).await;
    }
    let retried = counter(server, "longshore_push_retried_total").await?;
    let heard = lock(&heard);
    Ok(PushRun {
        tasks,
        webhooks: tasks * WEBHOOKS,
        dead: u64::try_from(dead_urls.len())?,
        expected,
        delivered: heard.lag.count(),
        repeated: heard.repeated,
        retried,
        lag: heard.lag.delays(),
        costs,
    })
}

/// Starts a task, and registers its webhooks. `dead`: the URL of the first one.
async fn register(
    target: &Target,
    script: &Script,
    dead: Option<&String>,
    receivers: &[SocketAddr],
) -> Result<()> {
    let mut connection = Connection::open(target.address).await?;
    let receiver = |number: u64, path: &str| {
        let place = usize::try_from(number).unwrap_or_default() % receivers.len();
        format!("http://{}/{path}", receivers[place])
    };
    let url = dead.cloned().unwrap_or_else(|| receiver(0, "first"));
    let request = target.send_with_webhook(&format!("m-{}", script.key), &script.to_string(), &url);
    let reply = call(&mut connection, &request).await?;
    let task = reply.task().with_context(|| format!("no task: {}", String::from_utf8_lossy(&reply.body)))?;
    let task = task["id"].as_str().unwrap_or_default();
    for number in 1..WEBHOOKS {
        let request = target.add_webhook(task, &format!("w{number}"), &receiver(number, ENDS));
        let reply = call(&mut connection, &request).await?;
        let answer = String::from_utf8_lossy(&reply.body);
        ensure!(reply.refusal().is_none(), "a webhook was refused: {answer}");
    }
    Ok(())
}

/// The URL path of the working webhooks. The lag is measured at these.
const ENDS: &str = "ends";

/// Hosts that no notification reaches.
#[derive(Default)]
struct DeadHosts {
    /// Ports without a listener, which refuse connections as long as they are held.
    refusing: Vec<TcpSocket>,
    /// The kernel accepts connections, and nothing reads them.
    silent: Vec<TcpListener>,
}

impl DeadHosts {
    fn new(count: u64) -> Result<Self> {
        let mut dead = Self::default();
        for number in 0..count {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
            if number % 2 == 0 {
                dead.refusing.push(socket);
            } else {
                dead.silent.push(socket.listen(1024)?);
            }
        }
        Ok(dead)
    }

    fn urls(&self) -> Vec<String> {
        let refusing = self.refusing.iter().filter_map(|socket| socket.local_addr().ok());
        let silent = self.silent.iter().filter_map(|listener| listener.local_addr().ok());
        refusing.chain(silent).map(|address| format!("http://{address}/dead")).collect()
    }
}

/// What the receivers got.
#[derive(Debug, Default)]
struct Heard {
    ids: HashSet<Vec<u8>>,
    repeated: u64,
    lag: Histogram,
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the receivers, which run until the end of the phase.
async fn receivers(bench: &Bench, heard: &Arc<Mutex<Heard>>) -> Result<Vec<SocketAddr>> {
    let mut addresses = Vec::new();
    for _ in 0..HOSTS {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        addresses.push(listener.local_addr()?);
        bench.spawn("receiver", receive(listener, Arc::clone(heard)));
    }
    Ok(addresses)
}

async fn receive(listener: TcpListener, heard: Arc<Mutex<Heard>>) {
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            Ok((socket, _)) = listener.accept() => connections.push(converse(socket, &heard)),
            Some(()) = connections.next(), if !connections.is_empty() => {}
            else => sleep(LOOK_AGAIN).await,
        }
    }
}

/// Accepts every request of a connection.
async fn converse(mut socket: TcpStream, heard: &Mutex<Heard>) {
    let mut received = Vec::new();
    loop {
        while let Some(length) = request_length(&received) {
            note(&received[..length], heard);
            received.drain(..length);
            if socket.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.is_err() {
                return;
            }
        }
        match socket.read_buf(&mut received).await {
            Ok(read) if read > 0 => {}
            _ => return,
        }
    }
}

/// The length of the first request. `None`: it is not complete.
fn request_length(received: &[u8]) -> Option<usize> {
    let head = memmem::find(received, b"\r\n\r\n")? + 4;
    let body = header(&received[..head], "content-length")?.parse::<usize>().ok()?;
    (received.len() >= head + body).then_some(head + body)
}

fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let lines = std::str::from_utf8(head).ok()?.lines();
    let mut values = lines.filter_map(|line| line.split_once(':'));
    values.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// Counts the notification of an end.
fn note(request: &[u8], heard: &Mutex<Heard>) {
    let now_ms = clock::wall_ms();
    if !request.starts_with(format!("POST /{ENDS} ").as_bytes()) {
        return;
    }
    let Some(lag_ms) = lag_ms(request, now_ms) else { return };
    let body = memmem::find(request, b"\r\n\r\n").unwrap_or(request.len());
    let id = header(&request[..body], "webhook-id").unwrap_or_default();
    let mut heard = lock(heard);
    if heard.ids.insert(id.as_bytes().to_vec()) {
        heard.lag.record(lag_ms * 1_000_000);
    } else {
        heard.repeated += 1;
    }
}

/// How long ago the task ended, if the notification says that it did. Only the time of day is read, because no lag takes a day.
fn lag_ms(request: &[u8], now_ms: u64) -> Option<u64> {
    const DAY_MS: u64 = 86_400_000;
    memmem::find(request, b"TASK_STATE_COMPLETED")?;
    // Such as 2026-08-18T09:30:00.125Z.
    let name = b"\"timestamp\":\"";
    let from = memmem::find(request, name)? + name.len();
    let time = std::str::from_utf8(request.get(from + 11..from + 23)?).ok()?;
    let number = |from, to| time.get(from..to)?.parse::<u64>().ok();
    let seconds = (number(0, 2)? * 60 + number(3, 5)?) * 60 + number(6, 8)?;
    let ended_ms = seconds * 1_000 + number(9, 12)?;
    Some((now_ms % DAY_MS + DAY_MS - ended_ms) % DAY_MS)
}

/// A counter of the server's metrics.
async fn counter(server: &Server, name: &str) -> Result<u64> {
    let mut connection = Connection::open(server.address).await?;
    let reply = call(&mut connection, &server.target(ProtocolVersion::V1).get("/metrics")).await?;
    let text = String::from_utf8_lossy(&reply.body);
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.with_context(|| format!("/metrics has no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: &str, state: &str) -> Vec<u8> {
        let body = format!(
            "{{\"statusUpdate\":{{\"status\":{{\"state\":\"{state}\",\"timestamp\":\"2026-08-18T23:59:59.900Z\"}}}}}}"
        );
        format!("POST /ends HTTP/1.1\r\nWebhook-Id: {id}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            .into_bytes()
    }

    #[test]
    fn the_lag_is_that_of_the_end_also_at_midnight() {
        let end = request("a", "TASK_STATE_COMPLETED");
        assert_eq!(lag_ms(&end, 86_400_000 * 3 + 50), Some(150));
        assert_eq!(lag_ms(&end, 86_399_900), Some(0));
        assert_eq!(lag_ms(&request("a", "TASK_STATE_WORKING"), 50), None);
    }

    #[test]
    fn each_notification_counts_once_and_only_when_it_is_complete() {
        let whole = request("a", "TASK_STATE_COMPLETED");
        assert_eq!(request_length(&whole[..whole.len() - 1]), None);
        let two = [whole.clone(), whole.clone()].concat();
        assert_eq!(request_length(&two), Some(whole.len()));
        let heard = Mutex::new(Heard::default());
        for request in
            [&whole, &whole, &request("b", "TASK_STATE_COMPLETED"), &request("c", "TASK_STATE_WORKING")]
        {
            note(request, &heard);
        }
        let heard = heard.into_inner().unwrap();
        assert_eq!((heard.lag.count(), heard.repeated), (2, 1));
    }

    #[tokio::test]
    async fn dead_hosts_refuse_or_never_answer() {
        let dead = DeadHosts::new(2).unwrap();
        let address =
            |url: &str| url["http://".len()..].trim_end_matches("/dead").parse::<SocketAddr>().unwrap();
        let urls = dead.urls();
        TcpStream::connect(address(&urls[0])).await.unwrap_err();
        TcpStream::connect(address(&urls[1])).await.unwrap();
    }
}
