//! Five times the capacity for a minute: refusals must be typed, accepted turns must complete, and afterwards everything must be
//! as before.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep, sleep_until};

use super::unary;
use crate::bench::{Bench, until_ns};
use crate::clock;
use crate::drive::{Connection, ProtocolVersion, Reply, Target, call, call_reusing, sent_text};
use crate::load::kept_sum;
use crate::number::{float, whole};
use crate::proc::Memory;
use crate::results::Overload;
use crate::servers::{Kind, Limits, Server};
use crate::stand_in::Script;

const TIMES: f64 = 5.0;
/// Connections that offer turns. Each offers the next turn when it is due and the last one was answered.
const CONNECTIONS: u64 = 2048;
/// How long accepted turns may take when no more come.
const PATIENCE: Duration = Duration::from_secs(90);
/// How many clients run turns one after the other, before and after.
const CLIENTS: u64 = 8;
/// The number of deltas in every turn of this phase. The turns that measure the capacity, the offered turns, and those before
/// and after all have the same number. A short answer of a model has about as many deltas. With shorter turns the clients,
/// which share the machine, could not offer five times the capacity.
const DELTAS: u64 = 100;

/// An accepted turn: its task, and the key of its prompt.
#[derive(Debug)]
struct Accepted {
    task: String,
    key: String,
}

#[derive(Debug, Default)]
struct Answers {
    offered: u64,
    accepted: VecDeque<Accepted>,
    refused: BTreeMap<String, u64>,
    untyped: BTreeMap<String, u64>,
    without_retry_after: u64,
}

/// How the accepted turns ended.
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
    let answers = Arc::new(Mutex::new(Answers::default()));
    let begin = clock::monotonic_ns();
    let step = whole(1e9 * float(CONNECTIONS) / rate).max(1);
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let (target, answers, name) =
                (server.target(ProtocolVersion::V1), Arc::clone(&answers), bench.key());
            let first = begin + number * step / CONNECTIONS;
            let end = begin + unary::nanoseconds(length);
            bench.spawn("client", offer(target, name, first, step, end, answers))
        })
        .collect();
    for client in clients {
        // A client that panicked has no result.
        let _ = client.await;
    }
    let over = Instant::now();
    let took = float(clock::monotonic_ns() - begin) / 1e9;
    let answers = std::mem::take(&mut *answers.lock().unwrap_or_else(PoisonError::into_inner));
    let accepted = u64::try_from(answers.accepted.len())?;
    let settled = settle(server, answers.accepted).await?;
    let settled_s = over.elapsed().as_secs_f64();
    // A minute later, or when all accepted turns are checked.
    sleep_until(over + bench.seconds(60, 2)).await;
    let later_s = over.elapsed().as_secs_f64();
    let after = unary::measure(bench, server, (CLIENTS, DELTAS), bench.seconds(15, 3)).await?;
    Ok(Overload {
        capacity_per_second: capacity,
        offered_per_second: float(answers.offered) / took,
        seconds: took,
        offered: answers.offered,
        accepted,
        refused: answers.refused,
        without_retry_after: answers.without_retry_after,
        untyped: answers.untyped,
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

/// Offers turns at a rate, and counts the answers.
async fn offer(target: Target, name: String, first: u64, step: u64, end: u64, answers: Arc<Mutex<Answers>>) {
    let (mut due, mut number) = (first, 0_u64);
    let mut connection = None;
    while due < end {
        until_ns(due).await;
        number += 1;
        // Turns that could not be offered in time are skipped: offering them later would only extend the overload.
        due = (due + step).max(clock::monotonic_ns());
        let key = format!("{name}n{number}");
        let script = Script { key: key.clone(), deltas: DELTAS, ..Script::default() };
        let request = target.send(&format!("m-{key}"), &script.to_string(), false);
        let answered = call_reusing(&mut connection, target.address, &request).await;
        answers.lock().unwrap_or_else(PoisonError::into_inner).add(answered, key);
    }
}

impl Answers {
    fn add(&mut self, answered: Result<Reply>, key: String) {
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
                self.accepted.push_back(Accepted { task, key });
            }
            (Some((status, None)), _) => *self.untyped.entry(format!("status {status}")).or_default() += 1,
            (None, None) => *self.untyped.entry("no task".to_owned()).or_default() += 1,
        }
    }
}

/// Waits until all tasks have ended, and compares their texts with the texts that the stand-in sent.
async fn settle(server: &Server, mut tasks: VecDeque<Accepted>) -> Result<Settled> {
    let target = server.target(ProtocolVersion::V1);
    let mut connection = Connection::open(server.address).await?;
    let mut source = Connection::open(server.stand_in).await?;
    let mut settled = Settled::default();
    let deadline = Instant::now() + PATIENCE;
    while let Some(accepted) = tasks.pop_front() {
        let reply = call(&mut connection, &target.get_task(&accepted.task)).await?;
        let state = reply.task().map(|task| task["status"]["state"].clone()).unwrap_or_default();
        match state.as_str().unwrap_or("unknown") {
            "TASK_STATE_COMPLETED" => {
                settled.completed += 1;
                let sent = sent_text(&mut source, &accepted.key).await?;
                let same =
                    sent.is_some_and(|sent| sent.deltas == DELTAS && sent.sum == kept_sum(&reply.body).0);
                settled.equal += u64::from(same);
            }
            "TASK_STATE_SUBMITTED" | "TASK_STATE_WORKING" if Instant::now() < deadline => {
                tasks.push_back(accepted);
                sleep(Duration::from_millis(1)).await;
            }
            other => *settled.lost.entry(other.to_owned()).or_default() += 1,
        }
    }
    Ok(settled)
}
