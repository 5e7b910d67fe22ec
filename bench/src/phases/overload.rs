//! Five times more than can be done, for a minute: what is refused is told so, what is taken is done, and afterwards
//! everything is as before.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep, sleep_until};

use super::unary;
use crate::bench::{Bench, until_ns};
use crate::clock;
use crate::drive::{Connection, ProtocolVersion, Reply, Target, call, truth};
use crate::load::kept_sum;
use crate::number::{float, whole};
use crate::proc::Memory;
use crate::results::Overload;
use crate::servers::{Kind, Limits, Server};
use crate::stand_in::Script;

const TIMES: f64 = 5.0;
/// Connections that offer work. Each offers the next piece when it is time and the last one was answered.
const CONNECTIONS: u64 = 2048;
/// How long what was taken may need when no more comes.
const PATIENCE: Duration = Duration::from_secs(90);
/// How many clients have one turn behind the other, before and after.
const CLIENTS: u64 = 8;
/// Of each turn: those that tell the capacity, those that are offered, and those before and after. A short answer has about
/// as many. With shorter ones the clients, which share the machine, could not offer five times the capacity.
const DELTAS: u64 = 100;

/// A turn that was taken: its task, and the key of its prompt.
#[derive(Debug)]
struct Taken {
    task: String,
    key: String,
}

#[derive(Debug, Default)]
struct Book {
    offered: u64,
    accepted: VecDeque<Taken>,
    refused: BTreeMap<String, u64>,
    untyped: BTreeMap<String, u64>,
    without_retry_after: u64,
}

/// What became of what was taken.
#[derive(Debug, Default)]
struct Settled {
    completed: u64,
    equal: u64,
    lost: BTreeMap<String, u64>,
}

pub(super) async fn run(bench: &Bench) -> Result<Overload> {
    let server = bench.server_with(Kind::Longshore, Limits::Default, &[]).await?;
    let measured = measure(bench, &server).await;
    server.stop().await;
    measured
}

async fn measure(bench: &Bench, server: &Server) -> Result<Overload> {
    let capacity = unary::measure(bench, server, (32, DELTAS), bench.seconds(15, 3)).await?.per_second;
    let before = unary::measure(bench, server, (CLIENTS, DELTAS), bench.seconds(15, 3)).await?;
    let memory_before = Memory::of(server.pid())?;
    let (rate, length) = (capacity * TIMES, bench.seconds(60, 4));
    let book = Arc::new(Mutex::new(Book::default()));
    let begin = clock::monotonic_ns();
    let step = whole(1e9 * float(CONNECTIONS) / rate).max(1);
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let (target, book, name) = (server.target(ProtocolVersion::V1), Arc::clone(&book), bench.key());
            let first = begin + number * step / CONNECTIONS;
            let end = begin + unary::nanoseconds(length);
            bench.spawn("client", offer(target, name, first, step, end, book))
        })
        .collect();
    for client in clients {
        // A client that panics has nothing to say.
        let _ = client.await;
    }
    let over = Instant::now();
    let took = float(clock::monotonic_ns() - begin) / 1e9;
    let book = std::mem::take(&mut *book.lock().unwrap_or_else(PoisonError::into_inner));
    let accepted = u64::try_from(book.accepted.len())?;
    let settled = settle(bench, server, book.accepted).await?;
    let settled_s = over.elapsed().as_secs_f64();
    // A minute later, or when the last look at what was taken is done.
    sleep_until(over + bench.seconds(60, 2)).await;
    let later_s = over.elapsed().as_secs_f64();
    let after = unary::measure(bench, server, (CLIENTS, DELTAS), bench.seconds(15, 3)).await?;
    Ok(Overload {
        capacity_per_second: capacity,
        offered_per_second: float(book.offered) / took,
        seconds: took,
        offered: book.offered,
        accepted,
        refused: book.refused,
        without_retry_after: book.without_retry_after,
        untyped: book.untyped,
        completed: settled.completed,
        equal: settled.equal,
        lost: settled.lost,
        settled_s,
        later_s,
        before: before.delays,
        after: after.delays,
        before_per_second: before.per_second,
        after_per_second: after.per_second,
        memory_before,
        memory_after: Memory::of(server.pid())?,
    })
}

/// Offers turns at a rate, and writes down what became of them.
async fn offer(target: Target, name: String, first: u64, step: u64, end: u64, book: Arc<Mutex<Book>>) {
    let (mut due, mut number) = (first, 0_u64);
    let mut connection = None;
    while due < end {
        until_ns(due).await;
        number += 1;
        // What could not be offered in time is not made up for: the server would only be asked later.
        due = (due + step).max(clock::monotonic_ns());
        let key = format!("{name}n{number}");
        let script = Script { key: key.clone(), deltas: DELTAS, ..Script::default() };
        let request = target.send(&format!("m-{key}"), &script.to_string(), false);
        let answered = async {
            let mut open = match connection.take() {
                Some(open) => open,
                None => Connection::open(target.address).await?,
            };
            let reply = call(&mut open, &request).await?;
            connection = Some(open);
            anyhow::Ok(reply)
        };
        let answered = answered.await;
        book.lock().unwrap_or_else(PoisonError::into_inner).write(answered, key);
    }
}

impl Book {
    fn write(&mut self, answered: Result<Reply>, key: String) {
        self.offered += 1;
        let reply = match answered {
            Ok(reply) => reply,
            Err(error) => {
                *self.untyped.entry(format!("{error:#}")).or_default() += 1;
                return;
            }
        };
        match (reply.refusal(), reply.task()) {
            (Some((status, Some(code))), _) => {
                let reason = reply.reason().unwrap_or_default();
                *self
                    .refused
                    .entry(format!("{status} {code} {reason}").trim_end().to_owned())
                    .or_default() += 1;
                self.without_retry_after += u64::from(reply.head.retry_after.is_none());
            }
            (None, Some(task)) => {
                let task = task["id"].as_str().unwrap_or_default().to_owned();
                self.accepted.push_back(Taken { task, key });
            }
            (Some((status, None)), _) => *self.untyped.entry(format!("status {status}")).or_default() += 1,
            (None, None) => *self.untyped.entry("no task".to_owned()).or_default() += 1,
        }
    }
}

/// Waits until all tasks are over, and compares their texts with what the source sent.
async fn settle(bench: &Bench, server: &Server, mut tasks: VecDeque<Taken>) -> Result<Settled> {
    let target = server.target(ProtocolVersion::V1);
    let mut connection = Connection::open(server.address).await?;
    let mut source = Connection::open(bench.stand_in_address()).await?;
    let mut settled = Settled::default();
    let deadline = Instant::now() + PATIENCE;
    while let Some(taken) = tasks.pop_front() {
        let reply = call(&mut connection, &target.get_task(&taken.task)).await?;
        let state = reply.task().map(|task| task["status"]["state"].clone()).unwrap_or_default();
        match state.as_str().unwrap_or("unknown") {
            "TASK_STATE_COMPLETED" => {
                settled.completed += 1;
                let told = truth(&mut source, &taken.key).await?;
                let same =
                    told.is_some_and(|told| told.deltas == DELTAS && told.sum == kept_sum(&reply.body).0);
                settled.equal += u64::from(same);
            }
            "TASK_STATE_SUBMITTED" | "TASK_STATE_WORKING" if Instant::now() < deadline => {
                tasks.push_back(taken);
                sleep(Duration::from_millis(1)).await;
            }
            other => *settled.lost.entry(other.to_owned()).or_default() += 1,
        }
    }
    Ok(settled)
}
