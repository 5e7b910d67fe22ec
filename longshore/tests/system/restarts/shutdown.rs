//! How a gateway ends: within its grace period, after a second signal, and during its start.

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use longshore_testkit::chaos::ClientProtocol;
use longshore_testkit::fake_opencode::{FakeOpenCode, Gate, Turn, TurnEnd};
use longshore_testkit::gateway::{Record, is_alive};
use rustix::process::{Pid, Signal, kill_process};

use crate::restarts::client::{Client, Return};
use crate::restarts::installation::{Gateway, Installation};

/// More than all buffers between a gateway and a client together.
const PIECES: usize = 400;
const PIECE: usize = 32 * 1024;

/// How long the background tasks of a gateway, and then its process, may take to end.
const REST: Duration = Duration::from_secs(7);

/// A gateway during a turn with two clients: one reads everything, the other nothing.
struct StalledClient {
    fake: FakeOpenCode,
    installation: Installation,
    gateway: Gateway,
    gate: Gate,
    reads: Client,
    stalls: Client,
}

impl StalledClient {
    async fn start(flags: &[&str]) -> Self {
        let (fake, gate) = (FakeOpenCode::start(), Gate::new());
        let pieces = (0..PIECES).map(|piece| format!("[{piece}]{}", "~".repeat(PIECE)));
        fake.queue(Turn::new().deltas(pieces).hold(&gate).text("The end.", 1));
        let installation = Installation::attached(&fake.url(), fake.directory());
        let gateway = installation.start(flags).await;
        // Both send the same message, so they get the same task.
        let [mut reads, mut stalls] = [ClientProtocol::ALL[0], ClientProtocol::ALL[1]]
            .map(|speaker| Client::new(speaker, &installation.url(), "a long text"));
        stalls.send().await;
        reads.send().await;
        let last = format!("[{}]", PIECES - 1);
        reads.read_until("everything was said", |client| client.newest_says(&last)).await;
        Self { fake, installation, gateway, gate, reads, stalls }
    }

    /// Starts the next gateway, where both clients get the whole stream.
    async fn go_on(mut self) {
        let signaled = self.fake.prompt_records().remove(0);
        assert_eq!((signaled.times, signaled.turn_end), (1, TurnEnd::Runs), "{}", signaled.words);
        let _gateway = self.installation.start(&[]).await;
        self.reads.come_back(Return::Subscribe).await;
        self.stalls.send().await;
        self.gate.open();
        for mut client in [self.reads, self.stalls] {
            client.read_to_end().await;
            assert_eq!(client.state(), "COMPLETED");
            assert!(
                client.text() == format!("{}The end.", signaled.text),
                "{} has another text",
                client.speaker.name()
            );
        }
        assert_eq!(self.fake.prompt_records()[0].times, 1, "prompts");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_client_that_does_not_read_delays_the_shutdown_by_the_grace_period_only() {
    let mut stalled = StalledClient::start(&["--shutdown-grace", "1.5"]).await;
    let signaled = Instant::now();
    stalled.gateway.signal(Signal::TERM);
    stalled.reads.read_to_end().await;
    assert!(
        stalled.reads.retry_after.is_some(),
        "a client that reads gets the time to reconnect nevertheless"
    );
    stalled.gateway.logs("connections closed at the end of the shutdown grace period").await;
    let grace = signaled.elapsed();
    assert!(grace >= Duration::from_millis(1500), "the client was not stuck: {grace:?}");
    let (status, log) = stalled.gateway.ended().await;
    let took = signaled.elapsed();
    assert!(status.success(), "it ended with {status}: {log}");
    assert!(took < Duration::from_millis(1500) + REST, "it took {took:?}: {log}");
    stalled.go_on().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_gateway_at_once_and_keeps_the_turn() {
    let mut stalled = StalledClient::start(&["--shutdown-grace", "3600"]).await;
    stalled.gateway.signal(Signal::TERM);
    stalled.reads.read_to_end().await;
    assert!(stalled.reads.retry_after.is_some());
    assert!(!stalled.gateway.has_ended(), "no client was stalled");
    stalled.gateway.signal(Signal::TERM);
    let signaled = Instant::now();
    let (status, log) = stalled.gateway.ended().await;
    assert!(status.success() && log.contains("second signal"), "it ended with {status}: {log}");
    assert!(signaled.elapsed() < REST, "it took {:?}: {log}", signaled.elapsed());
    stalled.go_on().await;
}

/// When a starting gateway gets the signal.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// This many milliseconds after its launch.
    After(u64),
    /// When it has logged this text.
    Logged(&'static str),
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_stopped_during_its_start_ends_and_loses_nothing() {
    const TASKS: usize = 20;
    let (fake, gate) = (FakeOpenCode::start(), Gate::new());
    fake.answer_others_with(vec![Turn::new().text("Half.", 1).hold(&gate).text(" Whole.", 1)]);
    let installation = Installation::attached(&fake.url(), fake.directory());
    let mut gateway = installation.start(&[]).await;
    let mut clients: Vec<Client> = (0..TASKS)
        .map(|number| {
            Client::new(ClientProtocol::ALL[number % 4], &installation.url(), &format!("message {number}"))
        })
        .collect();
    join_all(clients.iter_mut().map(async |client| {
        client.send().await;
        client.read_until("the first half", |client| client.text() == "Half.").await;
    }))
    .await;
    gateway.signal(Signal::TERM);
    let (status, log) = gateway.ended().await;
    assert!(status.success(), "it ended with {status}: {log}");
    join_all(clients.iter_mut().map(Client::read_to_end)).await;

    let moments = [0, 5, 10, 15, 20, 30, 40, 60, 80].map(Moment::After);
    let logged = ["resuming a task", "resumed unfinished tasks"].map(Moment::Logged);
    for moment in moments.into_iter().chain(logged) {
        let mut gateway = installation.launch(&[]);
        match moment {
            Moment::After(milliseconds) => tokio::time::sleep(Duration::from_millis(milliseconds)).await,
            Moment::Logged(words) => drop(gateway.logs(words).await),
        }
        let signaled = Instant::now();
        gateway.signal(Signal::TERM);
        let (status, log) = gateway.ended().await;
        // The gateway may not have installed its signal handler yet. Then it has done nothing else either.
        let at_once = status.signal() == Some(Signal::TERM.as_raw()) && log.is_empty();
        assert!(status.success() || at_once, "signaled {moment:?} the gateway ended with {status}: {log}");
        assert!(
            signaled.elapsed() < REST,
            "signaled {moment:?} the gateway took {:?}: {log}",
            signaled.elapsed()
        );
    }

    let _gateway = installation.start(&[]).await;
    join_all(clients.iter_mut().map(|client| client.come_back(Return::SendAgain))).await;
    gate.open();
    join_all(clients.iter_mut().map(Client::read_to_end)).await;
    for client in &clients {
        assert_eq!((client.state().as_str(), client.text().as_str()), ("COMPLETED", "Half. Whole."));
        assert_eq!(client.frames, client.uncut().await, "{}", client.message);
    }
    let prompts = fake.prompt_records();
    assert_eq!(prompts.len(), TASKS);
    assert!(
        prompts.iter().all(|prompt| (prompt.times, prompt.turn_end) == (1, TurnEnd::Ended)),
        "{prompts:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_opencode_that_is_still_starting_ends_with_its_gateway() {
    let installation = Installation::managing("mute");
    let mut gateway = installation.launch(&[]);
    gateway.says("Starting OpenCode").await;
    let signaled = Instant::now();
    gateway.signal(Signal::TERM);
    let (status, log) = gateway.ended().await;
    assert!(status.success(), "it ended with {status}: {log}");
    assert!(signaled.elapsed() < REST, "it took {:?}: {log}", signaled.elapsed());
    let stopped = installation.stop();
    assert!(stopped.starts_with("Nothing to stop: "), "{stopped}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_opencode_that_kept_running_is_taken_over_even_after_an_interrupted_start() {
    for (signal, stays) in [(Signal::TERM, true), (Signal::INT, false)] {
        let installation = Installation::managing("");
        let mut gateway = installation.start(&[]).await;
        let opencode = Record::read(&installation.data()).expect("it runs").pid;
        end(&mut gateway, Signal::TERM).await;
        assert!(is_alive(opencode), "it ended with its gateway");

        // While OpenCode is paused, the next gateway cannot tell whether it can take it over.
        send(opencode, Signal::STOP);
        gateway = installation.launch(&[]);
        gateway.says("Starting OpenCode").await;
        let log = end(&mut gateway, signal).await;
        assert_eq!(is_alive(opencode), stays, "after {signal:?}: {log}");
        if stays {
            send(opencode, Signal::CONT);
            gateway = installation.launch(&[]);
            gateway.says("adopted from the last run").await;
            assert_eq!(Record::read(&installation.data()).expect("it runs").pid, opencode);
            let log = end(&mut gateway, Signal::INT).await;
            assert!(!is_alive(opencode), "Ctrl-C left it running: {log}");
        }
    }
}

/// Ends a gateway with a signal. Returns its log.
async fn end(gateway: &mut Gateway, signal: Signal) -> String {
    gateway.signal(signal);
    let (status, log) = gateway.ended().await;
    assert!(status.success(), "it ended with {status}: {log}");
    log
}

fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("it is the id of a process");
    kill_process(pid, signal).expect("the test had the process started");
}
