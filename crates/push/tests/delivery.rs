//! Deliveries under a paused clock to scripted receivers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use longshore_engine::Tasks;
use longshore_engine::port::{
    BoxFuture, Burial, Clock, LeasedPush, NewPushConfig, PushConfigs, PushLease, PushQueue, PushRetry,
    Retention, Store,
};
use longshore_meter::Metrics;
use longshore_model::{
    DeadLetter, PushConfig, PushEvents, PushFormat, PushView, Result as ModelResult, Seq, TaskEvent,
    TaskState, Timestamp,
};
use longshore_outbound::{Answer, ErrorKind, Post, RetryAfter};
use longshore_push::{Delivery, DeliveryParts, DeliveryRules, Failure, Transport};
use longshore_store::MemoryStore;
use longshore_testkit::faulty_store::FaultyStore;
use longshore_testkit::store_suite::make::{
    ada, append, appended, chunk, create, made, owner, status, task_id,
};
use longshore_testkit::store_suite::push;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The reaction of a receiver to a call.
#[derive(Clone, Copy, Debug)]
enum Reply {
    Status(u16),
    Later(u16, u64),
    Fails(ErrorKind),
    Hangs,
}

#[derive(Clone, Debug)]
struct Call {
    url: String,
    headers: HeaderMap,
    body: Value,
    at: Duration,
}

impl Call {
    fn id(&self) -> String {
        self.headers["webhook-id"].to_str().expect("text").to_owned()
    }

    /// The task's state in a body of 1.0.
    fn state(&self) -> String {
        let body = &self.body;
        let status = ["statusUpdate", "task"].iter().find_map(|key| body[key]["status"]["state"].as_str());
        status.map_or_else(|| "artifact".to_owned(), str::to_owned)
    }
}

type Script = Box<dyn FnMut(&Call) -> Reply + Send>;

struct Receivers {
    script: Mutex<Script>,
    calls: Mutex<Vec<Call>>,
    called: Notify,
    started: Instant,
}

impl std::fmt::Debug for Receivers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receivers")
    }
}

impl Transport for Receivers {
    fn post<'a>(&'a self, post: Post<'a>) -> BoxFuture<'a, Result<Answer, Failure>> {
        Box::pin(async move {
            let call = Call {
                url: post.url.to_owned(),
                headers: post.headers,
                body: serde_json::from_slice(&post.body).expect("the body is JSON"),
                at: self.started.elapsed(),
            };
            let reply = (self.script.lock().expect("not poisoned"))(&call);
            self.calls.lock().expect("not poisoned").push(call);
            self.called.notify_waiters();
            let answer = |status, retry_after| {
                Ok(Answer { status: StatusCode::from_u16(status).expect("a status"), retry_after })
            };
            match reply {
                Reply::Status(status) => answer(status, None),
                Reply::Later(status, seconds) => {
                    answer(status, Some(RetryAfter::Wait(Duration::from_secs(seconds))))
                }
                Reply::Fails(kind) => Err(Failure { kind, text: "it failed".to_owned() }),
                Reply::Hangs => {
                    // As long as the time limit of a call.
                    tokio::time::sleep(Duration::from_secs(25)).await;
                    Err(Failure { kind: ErrorKind::Timeout, text: "it hangs".to_owned() })
                }
            }
        })
    }
}

/// A clock that follows the paused clock of the runtime.
#[derive(Debug)]
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_000_000 + i64::try_from(self.0.elapsed().as_millis()).expect("a test is short"))
    }
}

/// A queue whose writes take a while, as on a slow disk.
#[derive(Debug)]
struct Slow {
    store: Arc<MemoryStore>,
    write: Duration,
}

impl Slow {
    fn after<'a, T: 'a>(&'a self, done: BoxFuture<'a, ModelResult<T>>) -> BoxFuture<'a, ModelResult<T>> {
        Box::pin(async move {
            if !self.write.is_zero() {
                tokio::time::sleep(self.write).await;
            }
            done.await
        })
    }
}

impl PushQueue for Slow {
    fn due(
        &self,
        now: Timestamp,
        limit: usize,
        until: Timestamp,
    ) -> BoxFuture<'_, ModelResult<Vec<LeasedPush>>> {
        self.after(self.store.due(now, limit, until))
    }

    fn grown(&self) -> BoxFuture<'_, ()> {
        self.store.grown()
    }

    fn next_due(&self) -> BoxFuture<'_, ModelResult<Option<Timestamp>>> {
        self.store.next_due()
    }

    fn advance<'a>(
        &'a self,
        lease: &'a PushLease,
        cursor: Seq,
        keep: Option<Timestamp>,
        is_accepted: bool,
    ) -> BoxFuture<'a, ModelResult<bool>> {
        self.after(self.store.advance(lease, cursor, keep, is_accepted))
    }

    fn postpone<'a>(&'a self, lease: &'a PushLease, retry: PushRetry) -> BoxFuture<'a, ModelResult<bool>> {
        self.after(self.store.postpone(lease, retry))
    }

    fn bury<'a>(
        &'a self,
        lease: &'a PushLease,
        dead: Burial,
        keep: Option<Timestamp>,
    ) -> BoxFuture<'a, ModelResult<bool>> {
        self.after(self.store.bury(lease, dead, keep))
    }

    fn dead(&self, after: u64, limit: usize) -> BoxFuture<'_, ModelResult<Vec<DeadLetter>>> {
        self.store.dead(after, limit)
    }

    fn replay(&self, number: u64) -> BoxFuture<'_, ModelResult<bool>> {
        self.store.replay(number)
    }

    fn drop_dead(&self, number: u64) -> BoxFuture<'_, ModelResult<bool>> {
        self.store.drop_dead(number)
    }
}

struct Bench {
    store: Arc<MemoryStore>,
    /// How long a write to the queue takes.
    write: Duration,
    /// The store, for the checks that all stores share.
    log: Arc<dyn Store>,
    /// The same store, for the delivery. It counts reads and can fail.
    read: Arc<FaultyStore>,
    receivers: Arc<Receivers>,
    clock: Arc<TokioClock>,
    metrics: Arc<Metrics>,
    rules: DeliveryRules,
    tasks: Tasks,
    configs: Arc<dyn PushConfigs>,
}

impl Bench {
    fn new(rules: DeliveryRules, script: impl FnMut(&Call) -> Reply + Send + 'static) -> Self {
        Self::with_slow_queue(Duration::ZERO, rules, script)
    }

    fn with_slow_queue(
        write: Duration,
        rules: DeliveryRules,
        script: impl FnMut(&Call) -> Reply + Send + 'static,
    ) -> Self {
        let store = Arc::new(longshore_store::memory());
        let started = Instant::now();
        let mut bench = Self {
            log: store.clone(),
            read: FaultyStore::around(store.clone()),
            configs: store.clone(),
            store,
            write,
            receivers: Arc::new(Receivers {
                script: Mutex::new(Box::new(script)),
                calls: Mutex::default(),
                called: Notify::new(),
                started,
            }),
            clock: Arc::new(TokioClock(started)),
            metrics: Arc::new(Metrics::new("0")),
            rules,
            tasks: Tasks::new(),
        };
        bench.start();
        bench
    }

    fn start(&mut self) {
        let delivery = Delivery::new(DeliveryParts {
            store: self.read.clone(),
            configs: self.store.clone(),
            queue: Arc::new(Slow { store: self.store.clone(), write: self.write }),
            transport: self.receivers.clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            rules: self.rules.clone(),
        });
        self.configs = delivery.configs();
        self.tasks = Tasks::new();
        delivery.start(&self.tasks);
    }

    async fn put(&self, config: PushConfig) {
        let new = NewPushConfig { config, ..push::new("t", "a", 1) };
        self.configs.put(new).await.expect("a write");
    }

    async fn append(&self, task: &str, after: u64, events: Vec<TaskEvent>) {
        appended(&self.log, append(task, after, events)).await;
    }

    fn calls(&self) -> Vec<Call> {
        self.receivers.calls.lock().expect("not poisoned").clone()
    }

    /// Waits until this many calls were made. The paused clock advances by itself.
    async fn until_calls(&self, count: usize) -> Vec<Call> {
        loop {
            let called = self.receivers.called.notified();
            if self.calls().len() >= count {
                return self.calls();
            }
            tokio::time::timeout(Duration::from_secs(100_000), called).await.expect("another call");
        }
    }

    /// Waits until everything that can be delivered has been delivered.
    async fn settle(&self) -> Vec<Call> {
        tokio::time::sleep(Duration::from_hours(3)).await;
        self.calls()
    }
}

fn config(task: &str, name: &str) -> PushConfig {
    push::config(task, name)
}

fn at_host(task: &str, name: &str, host: &str) -> PushConfig {
    PushConfig { url: format!("https://{host}/{name}"), ..config(task, name) }
}

fn ended() -> TaskEvent {
    status(TaskState::Completed, 1_000_000)
}

fn asks() -> TaskEvent {
    status(TaskState::InputRequired, 1_000_000)
}

fn states(calls: &[Call]) -> Vec<String> {
    calls.iter().map(Call::state).collect()
}

#[tokio::test(start_paused = true)]
async fn asks_and_the_end_are_sent_once_and_in_order() {
    let bench = Bench::new(DeliveryRules::default(), |_| Reply::Status(204));
    made(&bench.log, create("t")).await;
    bench.put(config("t", "a")).await;
    bench.append("t", 1, vec![status(TaskState::Working, 2), chunk("x")]).await;
    bench.append("t", 3, vec![asks()]).await;
    bench.until_calls(1).await;
    bench.append("t", 4, vec![status(TaskState::Working, 3), chunk("y"), ended()]).await;
    let calls = bench.settle().await;
    assert_eq!(states(&calls), ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"]);
    assert_ne!(calls[0].id(), calls[1].id());
    assert_eq!(calls[0].headers["authorization"], "Bearer planted-credentials");
    assert_eq!(calls[0].headers["x-a2a-notification-token"], "planted-token");
    assert_eq!(calls[0].body["statusUpdate"]["taskId"], "t");
    assert_eq!((bench.metrics.push_delivered.get(), bench.metrics.push_lag.count()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn all_events_that_the_caller_may_see_are_sent() {
    let bench = Bench::new(DeliveryRules::default(), |_| Reply::Status(200));
    let mut create = create("t");
    let all = PushConfig { events: PushEvents::ALL, ..config("t", "a") };
    create.push = Some(Box::new(NewPushConfig { config: all, ..push::new("t", "a", 0) }));
    made(&bench.log, create).await;
    let mut repeated = status(TaskState::Working, 3);
    if let TaskEvent::Status(update) = &mut repeated {
        update.repeats = true;
    }
    // There are more events than one lease sends.
    for seq in 1..=40 {
        bench.append("t", seq, vec![chunk(&format!("{seq}."))]).await;
    }
    bench.append("t", 41, vec![repeated, ended()]).await;
    let calls = bench.settle().await;
    assert_eq!(calls.len(), 42);
    assert_eq!(calls[0].state(), "TASK_STATE_SUBMITTED");
    let text =
        |call: &Call| call.body["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str().map(str::to_owned);
    let texts: String = calls.iter().filter_map(text).collect();
    let expected: Vec<String> = (1..=40).map(|seq| format!("{seq}.")).collect();
    assert_eq!(texts, expected.concat());
    assert_eq!(calls[41].state(), "TASK_STATE_COMPLETED");
}

#[tokio::test(start_paused = true)]
async fn bodies_of_0_3_are_the_task_as_of_the_event() {
    let bench = Bench::new(DeliveryRules::default(), |_| Reply::Status(200));
    made(&bench.log, create("t")).await;
    let events = [asks(), chunk("x"), ended()];
    bench.append("t", 1, events.to_vec()).await;
    bench.put(PushConfig { format: PushFormat::V03, view: PushView::default(), ..config("t", "a") }).await;
    let calls = bench.settle().await;
    let told: Vec<_> = calls
        .iter()
        .map(|call| (&call.body["kind"], &call.body["id"], &call.body["status"]["state"]))
        .collect();
    assert_eq!(
        told,
        [
            (&Value::from("task"), &Value::from("t"), &Value::from("input-required")),
            (&Value::from("task"), &Value::from("t"), &Value::from("completed")),
        ]
    );
    assert_eq!(calls[0].body["artifacts"].as_array().map_or(0, Vec::len), 0);
    assert!(calls[1].body["artifacts"].to_string().contains("\"x\""), "{}", calls[1].body);
}

/// A receiver that keeps up has one lease for each event, a receiver that is behind has leases of many events, and a receiver that
/// fails has many leases for one event. In none of these cases does each body read the log from its start.
#[tokio::test(start_paused = true)]
async fn bodies_of_0_3_do_not_read_the_log_again_for_each_event() {
    const EVENTS: u64 = 300;
    let (mut tried, mut tried_last) = (0, 0);
    let bench = Bench::new(DeliveryRules::default(), move |call| {
        let is_counted = call.url.ends_with("/fails");
        let is_last = call.body["status"]["state"] == "completed";
        tried += u32::from(is_counted);
        tried_last += u32::from(is_counted && is_last);
        // Twenty failed calls for an event in the middle, and twenty for the last event.
        let fails = is_counted && ((150..170).contains(&tried) || (1..=20).contains(&tried_last));
        if fails { Reply::Status(503) } else { Reply::Status(200) }
    });
    let all = |name: &str| PushConfig {
        format: PushFormat::V03,
        events: PushEvents::ALL,
        ..at_host("t", name, &format!("{name}.example.com"))
    };
    let events = usize::try_from(EVENTS).expect("few");
    made(&bench.log, create("t")).await;
    bench.put(all("keeps-up")).await;
    for seq in 1..=EVENTS {
        let sent = bench.calls().len();
        bench.append("t", seq, vec![chunk(&format!("{seq}."))]).await;
        bench.until_calls(sent + 1).await;
    }
    // Each event is read once. The events of the first body, in the middle of the log, are read twice.
    let read = bench.read.events_read();
    assert!(read <= events + 10, "{read} events read for {EVENTS} bodies");
    let text = |call: &Call| call.body["artifacts"][0]["parts"].to_string().matches('.').count();
    let grown: Vec<_> = bench.calls().iter().map(text).collect();
    assert_eq!(grown, (1..=events).collect::<Vec<_>>());
    bench.append("t", EVENTS + 1, vec![ended()]).await;
    bench.until_calls(events + 1).await;

    for name in ["behind", "fails"] {
        let before = bench.read.events_read();
        let new = NewPushConfig { config: all(name), ..push::new("t", "a", 0) };
        bench.configs.put(new).await.expect("a write");
        let calls = bench.settle().await;
        let bodies = calls.iter().filter(|call| call.url.ends_with(name)).count();
        let read = bench.read.events_read() - before;
        // A lease reads more events than it delivers.
        assert!(bodies > events && read <= bodies * 10, "{name}: {read} events read for {bodies} bodies");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_long_names_the_task_that_has_the_rest() {
    let rules = DeliveryRules { max_body_bytes: 2_000, ..DeliveryRules::default() };
    let bench = Bench::new(rules, |_| Reply::Status(200));
    made(&bench.log, create("t")).await;
    let long = "x".repeat(5_000);
    bench.append("t", 1, vec![chunk(&long), chunk(&long), ended()]).await;
    for (name, format) in [("a", PushFormat::V1), ("b", PushFormat::V03)] {
        bench.put(PushConfig { format, events: PushEvents::ALL, ..config("t", name) }).await;
    }
    for call in bench.settle().await {
        let body = call.body.to_string();
        assert!(body.len() <= 2_000, "{body}");
        let is_cut = body.contains(r#""longshore":{"truncated":true}"#);
        if call.state() == "artifact" && call.body.get("artifactUpdate").is_some() {
            assert!(is_cut && body.contains("Get the task t for the rest"), "{body}");
        }
        assert_eq!(is_cut, call.body.get("statusUpdate").is_none(), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_fails_for_a_while_gets_every_event_once_it_is_well() {
    for failure in [
        Reply::Status(500),
        Reply::Status(408),
        Reply::Status(409),
        Reply::Status(425),
        Reply::Status(429),
        Reply::Fails(ErrorKind::Connect),
        Reply::Fails(ErrorKind::Closed),
        Reply::Hangs,
    ] {
        let mut failures = 0;
        let bench = Bench::new(DeliveryRules::default(), move |call| {
            failures += 1;
            let is_down = call.at < Duration::from_mins(10);
            if is_down || failures % 3 == 0 { failure } else { Reply::Status(200) }
        });
        made(&bench.log, create("t")).await;
        bench.put(PushConfig { events: PushEvents::ALL, ..config("t", "a") }).await;
        bench.append("t", 1, vec![chunk("1"), chunk("2"), asks()]).await;
        bench.append("t", 4, vec![chunk("3"), ended()]).await;
        let calls = bench.settle().await;
        let mut ids: Vec<String> = calls.iter().map(Call::id).collect();
        // Attempts for the same event follow each other: no later event is sent between them.
        ids.dedup();
        assert_eq!(ids.len(), 5, "{failure:?}");
        assert_eq!(states(&calls).last().map(String::as_str), Some("TASK_STATE_COMPLETED"));
        assert_eq!(bench.metrics.push_delivered.get(), 5);
        assert_eq!(bench.metrics.push_retried.get(), calls.len() as u64 - 5);
        // The pauses grow to a minute.
        let first: Vec<Duration> =
            calls.iter().map(|call| call.at).take_while(|at| at.as_secs() < 600).collect();
        assert!((9..=40).contains(&first.len()), "{failure:?}: {first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured() {
    let mut is_first = true;
    let bench = Bench::new(DeliveryRules::default(), move |_| {
        if std::mem::take(&mut is_first) { Reply::Later(429, 300) } else { Reply::Status(200) }
    });
    made(&bench.log, create("t")).await;
    bench.put(config("t", "a")).await;
    bench.append("t", 1, vec![ended()]).await;
    let calls = bench.settle().await;
    let waited = calls[1].at.saturating_sub(calls[0].at);
    assert!(waited >= Duration::from_mins(5) && waited < Duration::from_secs(302), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_delivered_becomes_a_dead_letter_and_the_next_one_is_sent() {
    for (failure, calls_of_first) in [
        (Reply::Status(302), 1),
        (Reply::Status(400), 1),
        (Reply::Status(410), 1),
        (Reply::Fails(ErrorKind::Refused), 1),
        (Reply::Status(500), 4),
    ] {
        let refuses = Arc::new(Mutex::new(true));
        let refusing = refuses.clone();
        let rules = DeliveryRules { attempts: 4, ..DeliveryRules::default() };
        let bench = Bench::new(rules, move |call| {
            let is_refused =
                call.state() == "TASK_STATE_INPUT_REQUIRED" && *refusing.lock().expect("not poisoned");
            if is_refused { failure } else { Reply::Status(200) }
        });
        made(&bench.log, create("t")).await;
        bench.put(config("t", "a")).await;
        bench.append("t", 1, vec![asks()]).await;
        bench.append("t", 2, vec![ended()]).await;
        let calls = bench.settle().await;
        assert_eq!(calls.len(), calls_of_first + 1, "{failure:?}");
        assert_eq!(states(&calls).last().map(String::as_str), Some("TASK_STATE_COMPLETED"));
        let dead = bench.store.dead(0, 9).await.expect("a read");
        assert_eq!((dead.len(), dead[0].event.0, dead[0].attempts as usize), (1, 2, calls_of_first));
        assert_eq!(bench.metrics.push_dead.get(), 1);

        *refuses.lock().expect("not poisoned") = false;
        assert!(bench.store.replay(dead[0].number).await.expect("a write"));
        let replayed = bench.settle().await;
        assert_eq!(replayed.last().map(Call::id), Some(calls[0].id()));
        assert_eq!(
            (bench.store.dead(0, 9).await.expect("a read").len(), replayed.len()),
            (0, calls.len() + 1)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_down_for_too_long_gets_one_attempt_per_event_until_it_is_well() {
    let rules = DeliveryRules { max_age: Duration::from_mins(10), ..DeliveryRules::default() };
    let bench = Bench::new(rules, |call| {
        if call.at < Duration::from_hours(2) { Reply::Status(503) } else { Reply::Status(200) }
    });
    made(&bench.log, create("t")).await;
    bench.put(config("t", "a")).await;
    bench.append("t", 1, vec![asks(), status(TaskState::AuthRequired, 2)]).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    let attempts = |calls: &[Call], state: &str| states(calls).iter().filter(|known| *known == state).count();
    let calls = bench.calls();
    assert!(attempts(&calls, "TASK_STATE_INPUT_REQUIRED") > 10);
    assert_eq!(attempts(&calls, "TASK_STATE_AUTH_REQUIRED"), 1);
    assert_eq!(bench.store.dead(0, 9).await.expect("a read").len(), 2);
    tokio::time::sleep(Duration::from_hours(1)).await;
    bench.append("t", 3, vec![ended()]).await;
    assert_eq!(states(&bench.settle().await).last().map(String::as_str), Some("TASK_STATE_COMPLETED"));
}

#[tokio::test(start_paused = true)]
async fn unwanted_events_do_not_count_as_a_sign_of_life() {
    let rules = DeliveryRules { max_age: Duration::from_mins(10), ..DeliveryRules::default() };
    let bench = Bench::new(rules, |_| Reply::Status(503));
    made(&bench.log, create("t")).await;
    bench.put(config("t", "a")).await;
    bench.append("t", 1, vec![asks(), chunk("x"), status(TaskState::AuthRequired, 2), chunk("y")]).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    let given_up = bench.calls().len();
    bench.append("t", 5, vec![ended()]).await;
    let calls = bench.settle().await;
    let attempts = |state: &str| states(&calls).iter().filter(|known| *known == state).count();
    assert_eq!((attempts("TASK_STATE_AUTH_REQUIRED"), calls.len()), (1, given_up + 1));
}

/// A refusal shows that the receiver can be reached, so the failure time of later events starts again.
#[tokio::test(start_paused = true)]
async fn a_refused_event_does_not_shorten_the_time_of_later_ones() {
    let rules = DeliveryRules { max_age: Duration::from_mins(10), ..DeliveryRules::default() };
    let mut calls = 0;
    let bench = Bench::new(rules, move |_| {
        calls += 1;
        Reply::Status(match calls {
            1 => 404,
            2 => 503,
            _ => 200,
        })
    });
    made(&bench.log, create("t")).await;
    bench.put(config("t", "a")).await;
    bench.append("t", 1, vec![asks()]).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    bench.append("t", 2, vec![ended()]).await;
    assert_eq!(bench.settle().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_busy_host_and_a_slow_store_do_not_stop_the_delivery() {
    const EVENTS: usize = 600;
    let write = Duration::from_millis(20);
    let bench = Bench::with_slow_queue(write, DeliveryRules::default(), |_| Reply::Status(200));
    for number in 0..EVENTS {
        let task = format!("t{number}");
        made(&bench.log, create(&task)).await;
        let config = at_host(&task, "a", "busy.example.com");
        bench.configs.put(NewPushConfig { config, ..push::new(&task, "a", 1) }).await.expect("a write");
    }
    for number in 0..EVENTS {
        bench.append(&format!("t{number}"), 1, vec![ended()]).await;
    }
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(bench.calls().len(), EVENTS);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_receiver_delays_no_other_receiver() {
    let bench =
        Bench::new(DeliveryRules { calls: 8, calls_per_host: 2, ..DeliveryRules::default() }, |call| {
            if call.url.contains("hangs") { Reply::Hangs } else { Reply::Status(200) }
        });
    made(&bench.log, create("t")).await;
    for number in 0..20 {
        bench.put(at_host("t", &format!("h{number}"), "hangs.example.com")).await;
        bench.put(at_host("t", &format!("w{number}"), "well.example.com")).await;
    }
    bench.append("t", 1, vec![ended()]).await;
    // The other receivers get all their events before the first call to the hanging receiver ends.
    let well = |calls: &[Call]| calls.iter().filter(|call| call.url.contains("well")).count();
    while well(&bench.calls()) < 20 {
        bench.until_calls(bench.calls().len() + 1).await;
    }
    let calls = bench.calls();
    assert!(
        calls.iter().all(|call| call.at < Duration::from_secs(25)),
        "{:?}",
        calls.last().map(|call| call.at)
    );
    assert_eq!(bench.metrics.push_delivered.get(), 20);
}

/// A burst uses up the owner's share of calls, sooner if some receivers hang. Further leases wait for a call to end, which takes a
/// moment, instead of being given back for a pause.
#[tokio::test(start_paused = true)]
async fn a_burst_beyond_the_share_of_its_owner_is_not_given_back_to_the_queue() {
    let rules = DeliveryRules { calls: 16, calls_per_host: 2, ..DeliveryRules::default() };
    let bench =
        Bench::new(rules, |call| if call.url.contains("hangs") { Reply::Hangs } else { Reply::Status(200) });
    made(&bench.log, create("t")).await;
    for number in 0..30 {
        bench.put(at_host("t", &format!("w{number}"), &format!("well-{number}.example.com"))).await;
    }
    for number in 0..4 {
        bench.put(at_host("t", &format!("a{number}"), &format!("hangs-{number}.example.com"))).await;
    }
    bench.append("t", 1, vec![ended()]).await;
    bench.until_calls(34).await;
    let calls = bench.settle().await;
    let late: Vec<_> = calls
        .iter()
        .filter(|call| call.url.contains("well") && call.at >= Duration::from_millis(500))
        .map(|call| (&call.url, call.at))
        .collect();
    assert!(late.is_empty(), "{late:?}");
    assert_eq!(bench.metrics.push_delivered.get(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_configuration_gets_nothing_more() {
    let bench = Bench::new(DeliveryRules::default(), |call| {
        if call.url.ends_with("hangs") { Reply::Hangs } else { Reply::Status(500) }
    });
    made(&bench.log, create("t")).await;
    bench.put(at_host("t", "hangs", "a.example.com")).await;
    bench.put(at_host("t", "fails", "b.example.com")).await;
    bench.append("t", 1, vec![asks()]).await;
    bench.until_calls(2).await;
    let before = Instant::now();
    for name in ["hangs", "fails"] {
        let id = config("t", name).id;
        assert!(bench.configs.delete(&ada(), &task_id("t"), &id).await.expect("a write"));
    }
    // The hanging call was aborted.
    assert!(before.elapsed() < Duration::from_secs(2), "{:?}", before.elapsed());
    let calls = bench.calls().len();
    bench.append("t", 2, vec![ended()]).await;
    assert_eq!(bench.settle().await.len(), calls);
}

#[tokio::test(start_paused = true)]
async fn a_replaced_configuration_sends_the_rest_to_its_new_receiver() {
    let bench = Bench::new(DeliveryRules::default(), |call| {
        if call.url.contains("old") && call.state() != "TASK_STATE_INPUT_REQUIRED" {
            Reply::Hangs
        } else {
            Reply::Status(200)
        }
    });
    made(&bench.log, create("t")).await;
    bench.put(at_host("t", "a", "old.example.com")).await;
    bench.append("t", 1, vec![asks()]).await;
    bench.append("t", 2, vec![ended()]).await;
    bench.until_calls(2).await;
    bench.put(at_host("t", "a", "new.example.com")).await;
    let calls = bench.settle().await;
    let told: Vec<_> = calls.iter().map(|call| (call.url.as_str(), call.state())).collect();
    assert_eq!(
        told,
        [
            ("https://old.example.com/a", "TASK_STATE_INPUT_REQUIRED".to_owned()),
            ("https://old.example.com/a", "TASK_STATE_COMPLETED".to_owned()),
            ("https://new.example.com/a", "TASK_STATE_COMPLETED".to_owned()),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_shutdown_cuts_off_is_repeated_with_the_same_id() {
    let mut is_first = true;
    let mut bench = Bench::new(DeliveryRules::default(), move |_| {
        if std::mem::take(&mut is_first) { Reply::Hangs } else { Reply::Status(200) }
    });
    made(&bench.log, create("t")).await;
    bench.put(config("t", "a")).await;
    bench.append("t", 1, vec![ended()]).await;
    bench.until_calls(1).await;
    let before = Instant::now();
    bench.tasks.stop().await;
    assert!(before.elapsed() < Duration::from_secs(5), "{:?}", before.elapsed());
    bench.start();
    let calls = bench.settle().await;
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].id(), calls[1].id());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_retention_removes_is_no_longer_delivered() {
    let bench = Bench::new(DeliveryRules::default(), |_| Reply::Status(500));
    made(&bench.log, create("t")).await;
    bench.put(config("t", "a")).await;
    bench.append("t", 1, vec![ended()]).await;
    bench.until_calls(3).await;
    let before = Some(Timestamp(i64::MAX));
    let retention =
        Retention { now: Timestamp(0), fold_before: before, drop_before: before, keys_before: Timestamp(0) };
    while bench.log.retain(retention).await.expect("retention works").more {}
    let calls = bench.calls().len();
    assert_eq!(bench.settle().await.len(), calls);
}

/// 10,000 configurations on 1,000 hosts, of which 10 hang or are down for ever.
#[tokio::test(start_paused = true)]
async fn dead_hosts_among_ten_thousand_configurations_do_not_slow_the_others() {
    let bench = Bench::new(DeliveryRules::default(), |call| match call.url.as_str() {
        url if url.contains("//dead-0") => Reply::Hangs,
        url if url.contains("//dead-") => Reply::Fails(ErrorKind::Connect),
        _ => Reply::Status(200),
    });
    for number in 0..10_000_u32 {
        let task = format!("t{number}");
        let host = match number % 1_000 {
            dead @ 0..10 => format!("dead-{}-{dead}", dead % 2),
            well => format!("well-{well}"),
        };
        let who = owner(&format!("owner{}", number % 7));
        made(&bench.log, longshore_engine::port::Create { owner: who.clone(), ..create(&task) }).await;
        let config = at_host(&task, "a", &format!("{host}.example.com"));
        let new = NewPushConfig { owner: who, config, ..push::new(&task, "a", 1) };
        bench.configs.put(new).await.expect("a write");
    }
    let mut slowest = Vec::new();
    for round in 0..2_u64 {
        bench.receivers.calls.lock().expect("not poisoned").clear();
        let begin = bench.clock.0.elapsed();
        for number in 0..10_000_u32 {
            let mut next = append(&format!("t{number}"), round + 1, vec![asks()]);
            next.owner = owner(&format!("owner{}", number % 7));
            appended(&bench.log, next).await;
        }
        tokio::time::sleep(Duration::from_mins(2)).await;
        let mut last: HashMap<String, Duration> = HashMap::new();
        for call in bench.calls().into_iter().filter(|call| call.url.contains("//well")) {
            assert!(last.insert(call.id(), call.at.saturating_sub(begin)).is_none(), "{}", call.url);
        }
        assert_eq!(last.len(), 9_900, "round {round}");
        slowest.push(last.values().max().copied().expect("calls"));
    }
    // The lag stays flat although more and more events wait for the dead hosts.
    assert!(slowest.iter().all(|lag| *lag < Duration::from_secs(5)), "{slowest:?}");
}
