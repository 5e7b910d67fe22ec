//! SIGTERM during fifty streams, and a restart.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use longshore_testkit::chaos::ClientProtocol;
use longshore_testkit::fake_opencode::{FakeOpenCode, Gate, PromptRecord, Tool, Turn, TurnEnd};
use longshore_testkit::gateway::until;
use longshore_testkit::raw::Frame;
use rustix::process::Signal;

use crate::restarts::client::{Client, Return, text};
use crate::restarts::installation::{Installation, PATIENCE};
use crate::restarts::protocol::state;

const CLIENTS: usize = 50;

/// The default of `serve.shutdown_grace`. No client here makes the gateway use it up.
const GRACE: Duration = Duration::from_secs(10);

/// What the agent does before, during and after the downtime of the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Asks before, and is answered after.
    Asks,
    /// Writes one long text from before until after.
    Talks,
    /// Ends during the downtime.
    Ends,
    /// Works during the downtime, and continues after.
    Works,
}

/// One of the fifty clients with its turn.
#[derive(Clone, Copy, Debug)]
struct Scenario(usize);

impl Scenario {
    /// Every kind occurs at least twice with every version and binding.
    fn kind(self) -> Kind {
        [Kind::Asks, Kind::Talks, Kind::Ends, Kind::Works, Kind::Talks][self.0 % 5]
    }

    fn speaker(self) -> ClientProtocol {
        ClientProtocol::ALL[self.0 % 4]
    }

    /// Half of the clients send the same message with `Last-Event-ID`, half subscribe. Of two clients that are
    /// otherwise alike one does each.
    fn returns(self) -> Return {
        match ((self.0 / 20 + self.0 % 2) % 2, self.0 / 2 % 2) {
            (0, _) => Return::SendAgain,
            (_, 0) => Return::Subscribe,
            (_, _) => Return::SubscribeFromSnapshot,
        }
    }

    fn message(self) -> String {
        format!("errand {}", self.0)
    }

    fn turn(self, gates: &Gates) -> Turn {
        let says = |words: &str| format!("{} {words}. ", self.message());
        let (begin, middle, end) = (says("begins"), says("goes on"), says("ends"));
        let turn = Turn::new();
        match self.kind() {
            Kind::Asks => {
                turn.text(&begin, 3).guarded_tool(Tool::bash("make harbour", "done\n")).text(&end, 3)
            }
            // 8 s; the gateway is down for about one.
            Kind::Talks => {
                let words: String = (0..100).map(|word| says(&word.to_string())).collect();
                turn.paced("text", &words, 100, Duration::from_millis(80))
            }
            Kind::Ends => turn.text(&begin, 3).hold(&gates.away).text(&middle, 3).text(&end, 3),
            Kind::Works => turn
                .text(&begin, 3)
                .hold(&gates.away)
                .tool(Tool::bash("ls", "README.md\n"))
                .text(&middle, 3)
                .hold(&gates.back)
                .text(&end, 3),
        }
    }

    /// Whether the client has received the beginning.
    fn is_under_way(self, client: &Client) -> bool {
        match self.kind() {
            Kind::Asks => client.state() == "INPUT_REQUIRED",
            Kind::Talks => client.text().contains(&format!("{} 3. ", self.message())),
            Kind::Ends | Kind::Works => client.text().contains("begins. "),
        }
    }

    /// Whether the agent has finished its part of the downtime.
    fn has_gone_on(self, known: &PromptRecord, seen: &str) -> bool {
        match self.kind() {
            Kind::Asks => true,
            Kind::Talks => known.text.len() > seen.len() + 100,
            Kind::Ends => known.turn_end == TurnEnd::Ended,
            Kind::Works => known.text.contains("goes on. "),
        }
    }
}

/// The gates at which turns wait.
#[derive(Clone, Debug, Default)]
struct Gates {
    away: Gate,
    back: Gate,
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_fifty_streams_lose_nothing_when_the_gateway_restarts() {
    let scenarios: Vec<Scenario> = (0..CLIENTS).map(Scenario).collect();
    let gates = Gates::default();
    let fake = FakeOpenCode::start();
    let turns: BTreeMap<String, Turn> =
        scenarios.iter().map(|scenario| (scenario.message(), scenario.turn(&gates))).collect();
    fake.answering(move |words| turns[words].clone());
    let installation = Installation::attached(&fake.url(), fake.directory());
    let mut gateway = installation.start(&[]).await;

    let mut clients: Vec<Client> = scenarios
        .iter()
        .map(|scenario| Client::new(scenario.speaker(), &installation.url(), &scenario.message()))
        .collect();
    // Turns that do not wait at a gate start last.
    for talks in [false, true] {
        let of_kind = |scenario: &Scenario| (scenario.kind() == Kind::Talks) == talks;
        let some = clients.iter_mut().zip(&scenarios).filter(|(_, scenario)| of_kind(scenario));
        join_all(some.map(async |(client, scenario)| {
            client.send().await;
            client.read_until("it is under way", |client| scenario.is_under_way(client)).await;
        }))
        .await;
    }

    let asked = Instant::now();
    gateway.signal(Signal::TERM);
    let ((status, log), _) =
        tokio::join!(gateway.ended(), join_all(clients.iter_mut().map(Client::read_to_end)));
    let took = asked.elapsed();
    assert!(status.success(), "it ended with {status}: {log}");
    assert!(
        took < GRACE && !log.contains("closed at the end of the shutdown grace period"),
        "it took {took:?}: {log}"
    );
    for client in &clients {
        assert_eq!(client.retry_after, Some(Duration::from_secs(1)), "{}", client.message);
        assert_ne!(client.state(), "COMPLETED", "{} was over before the stop", client.message);
    }
    check_prompts(&fake, TurnEnd::Runs);
    assert_eq!(fake.open_asks().len(), CLIENTS / 5, "asks that are open while the gateway is away");

    // The agent continues without the gateway.
    gates.away.open();
    until(PATIENCE, "the agent goes on while the gateway is away", || {
        let known = fake.prompt_records();
        scenarios.iter().zip(&clients).all(|(scenario, client)| {
            let known = known.iter().find(|known| known.words == scenario.message());
            known.is_some_and(|known| scenario.has_gone_on(known, &client.text()))
        })
    })
    .await;

    let mut gateway = installation.start(&[]).await;
    join_all(clients.iter_mut().zip(&scenarios).map(async |(client, scenario)| {
        client.come_back(scenario.returns()).await;
        if scenario.kind() == Kind::Asks {
            assert_eq!(state(&client.stored().await), "INPUT_REQUIRED", "{}", client.message);
            client.permit().await;
        }
    }))
    .await;
    gates.back.open();
    join_all(clients.iter_mut().map(Client::read_to_end)).await;

    check_prompts(&fake, TurnEnd::Ended);
    assert_eq!(fake.open_asks(), [""; 0]);
    let prompt_records: BTreeMap<String, String> =
        fake.prompt_records().into_iter().map(|known| (known.words, known.text)).collect();
    for (client, scenario) in clients.iter().zip(&scenarios) {
        let name = format!(
            "{} of {} ({:?}, {:?})",
            client.message,
            client.speaker.name(),
            scenario.kind(),
            scenario.returns()
        );
        assert_eq!((client.state().as_str(), client.retry_after), ("COMPLETED", None), "{name}");
        assert_eq!(client.text(), prompt_records[&client.message], "{name}");
        let uncut = client.uncut().await;
        assert_eq!(text(&uncut), client.text(), "{name}");
        check_events(client, scenario.returns(), &uncut, &name);
    }
    gateway.signal(Signal::TERM);
    let (status, log) = gateway.ended().await;
    assert!(status.success(), "it ended with {status}: {log}");
}

/// Fails unless each message prompted the agent once, each turn is in this state, and nothing was aborted.
fn check_prompts(agent: &FakeOpenCode, turn_end: TurnEnd) {
    let known = agent.prompt_records();
    assert_eq!(known.len(), CLIENTS, "prompts");
    for known in known {
        assert_eq!((known.times, known.turn_end), (1, turn_end), "{known:?}");
    }
    let aborts = agent.log().into_iter().filter(|request| request.path.ends_with("/abort"));
    assert_eq!(aborts.count(), 0, "aborts");
}

/// Both streams together have every event once, in order. A new subscription gets the missed events as one task.
fn check_events(client: &Client, by: Return, uncut: &[Frame], name: &str) {
    if by != Return::SubscribeFromSnapshot {
        assert_eq!(client.frames, uncut, "{name}");
    }
    let all = numbers(uncut);
    // Events that a reader does not see have no frame.
    assert!(all.is_sorted_by(|one, next| one < next), "{name}: {all:?}");
    let (before, after) = client.frames.split_at(client.before);
    let (before, after) = (numbers(before), numbers(after));
    assert_eq!(before, all[..before.len()], "{name}: before the stop");
    if by == Return::SubscribeFromSnapshot {
        assert!(after[0] >= before[before.len() - 1], "{name}: the task is older than what was seen");
        let rest: Vec<u64> = all.into_iter().filter(|number| *number > after[0]).collect();
        assert_eq!(after[1..], rest, "{name}: after the restart");
    }
}

/// The numbers of the events. The last chunk of the stream artifact of 0.3 is not an event and has no number.
fn numbers(frames: &[Frame]) -> Vec<u64> {
    frames.iter().filter_map(|frame| frame.id).collect()
}
