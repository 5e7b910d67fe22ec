//! Five times more than can be done, for a minute: what is refused is told so, what is taken is done, and afterwards
//! everything is as before.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep};

use super::unary;
use crate::bench::{Bench, until_ns};
use crate::clock;
use crate::drive::{Connection, Line, Target, call};
use crate::number::{float, whole};
use crate::proc::Memory;
use crate::results::Overload;
use crate::servers::{Kind, Limits, Server};
use crate::stand_in::Script;

const TIMES: f64 = 5.0;
/// Connections that offer work. Each offers the next piece when it is time and the last one was answered.
const CONNECTIONS: u64 = 2048;
/// How long what was taken may need when no more comes.
const PATIENCE: Duration = Duration::from_mins(3);
const CLIENTS: u64 = 8;

#[derive(Debug, Default)]
struct Book {
    offered: u64,
    accepted: VecDeque<String>,
    refused: BTreeMap<String, u64>,
    untyped: BTreeMap<String, u64>,
}

pub(super) async fn run(bench: &Bench) -> Result<Overload> {
    let server = bench.server_with(Kind::Longshore, Limits::Default, &[]).await?;
    let measured = measure(bench, &server).await;
    server.stop().await;
    measured
}

async fn measure(bench: &Bench, server: &Server) -> Result<Overload> {
    let capacity = unary::measure(bench, server, 32, bench.seconds(15, 3)).await?.per_second;
    let before = unary::measure(bench, server, CLIENTS, bench.seconds(15, 3)).await?;
    let memory_before = Memory::of(server.pid())?;
    let (rate, length) = (capacity * TIMES, bench.seconds(60, 5));
    let book = Arc::new(Mutex::new(Book::default()));
    let begin = clock::monotonic_ns();
    let step = whole(1e9 * float(CONNECTIONS) / rate).max(1);
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let (target, book, name) = (server.target(Line::V1), Arc::clone(&book), bench.key());
            let first = begin + number * step / CONNECTIONS;
            let end = begin + unary::nanoseconds(length);
            bench.tasks.spawn("client", offer(target, name, first, step, end, book))
        })
        .collect();
    for client in clients {
        // A client that panics has nothing to say.
        let _ = client.await;
    }
    let took = float(clock::monotonic_ns() - begin) / 1e9;
    let book = std::mem::take(&mut *book.lock().unwrap_or_else(PoisonError::into_inner));
    let accepted = u64::try_from(book.accepted.len())?;
    let (completed, lost) = settle(server, book.accepted).await?;
    sleep(bench.seconds(60, 2)).await;
    let after = unary::measure(bench, server, CLIENTS, bench.seconds(15, 3)).await?;
    Ok(Overload {
        capacity_per_second: capacity,
        offered_per_second: float(book.offered) / took,
        seconds: took,
        offered: book.offered,
        accepted,
        refused: book.refused,
        untyped: book.untyped,
        completed,
        lost,
        before: before.delays,
        after: after.delays,
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
        let script = Script { deltas: 5, ..Script::default() };
        let request = target.send(&format!("m-{name}-{number}"), &script.to_string(), false);
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
        let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
        book.offered += 1;
        match answered {
            Err(error) => *book.untyped.entry(format!("{error:#}")).or_default() += 1,
            Ok(reply) => match (reply.refusal(), reply.task()) {
                (Some((status, Some(code))), _) => {
                    *book.refused.entry(format!("{status} {code}")).or_default() += 1;
                }
                (None, Some(task)) => {
                    book.accepted.push_back(task["id"].as_str().unwrap_or_default().to_owned());
                }
                (Some((status, None)), _) => {
                    *book.untyped.entry(format!("status {status}")).or_default() += 1;
                }
                (None, None) => *book.untyped.entry("no task".to_owned()).or_default() += 1,
            },
        }
    }
}

/// Waits until all tasks are over. Gives how many are complete, and how many are anything else.
async fn settle(server: &Server, mut tasks: VecDeque<String>) -> Result<(u64, u64)> {
    let target = server.target(Line::V1);
    let mut connection = Connection::open(server.address).await?;
    let (mut completed, mut lost) = (0, 0);
    let deadline = Instant::now() + PATIENCE;
    while let Some(task) = tasks.pop_front() {
        let reply = call(&mut connection, &target.get_task(&task)).await?;
        let state = reply.task().map(|task| task["status"]["state"].clone()).unwrap_or_default();
        match state.as_str() {
            Some("TASK_STATE_COMPLETED") => completed += 1,
            Some("TASK_STATE_SUBMITTED" | "TASK_STATE_WORKING") if Instant::now() < deadline => {
                tasks.push_back(task);
                sleep(Duration::from_millis(1)).await;
            }
            _ => lost += 1,
        }
    }
    Ok((completed, lost))
}
