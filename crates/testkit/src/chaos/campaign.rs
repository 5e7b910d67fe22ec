//! Many rounds, and their totals.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore_model::TaskState;

use super::checker::Fault;
use super::proxy::Counts;
use super::round::Report;
use super::speaker::ClientProtocol;
use super::world::Kind;

/// What the clients of one protocol version and binding did and met.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientTotals {
    pub tasks: u64,
    pub asked: u64,
    /// Tasks that a client tried to cancel.
    pub canceling: u64,
    /// Cancels that were sent again because no answer came.
    pub canceled_again: u64,
    /// Messages that were sent during a turn of their context: those that waited as a task, and those that joined the turn.
    pub seconds: u64,
    pub joined: u64,
    pub cuts: u64,
    pub refusals: u64,
    pub sent_again: u64,
    pub subscribed: u64,
    pub from_start: u64,
    pub frames: u64,
}

/// The totals of all rounds.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    pub rounds: BTreeMap<Kind, Vec<u64>>,
    pub kills_at_random: u64,
    pub kills_at_points: BTreeMap<&'static str, u64>,
    /// By kind of world.
    pub agent_kills: BTreeMap<Kind, u64>,
    /// Kills of OpenCode that the same gateway survived until it was connected to OpenCode again.
    pub survived: u64,
    pub client_side: Counts,
    pub agent_side: Counts,
    pub clients: BTreeMap<&'static str, ClientTotals>,
    pub outcomes: BTreeMap<&'static str, u64>,
    /// The same for worlds with a fake, where a turn is shorter than the life of a gateway.
    pub outcomes_of_fake: BTreeMap<&'static str, u64>,
    /// Why tasks failed.
    pub reasons: BTreeMap<&'static str, u64>,
    pub forgotten: u64,
    pub unread: u64,
    pub faults: BTreeMap<Fault, u64>,
    /// The findings, by the seed of their round.
    pub findings: Vec<(u64, String)>,
    pub took: Duration,
}

/// The minimum of breaks that a campaign needs.
#[derive(Clone, Copy, Debug)]
pub struct Targets {
    pub gateway_kills: u64,
    pub agent_kills: u64,
    pub real_agent_kills: u64,
    /// Kills of OpenCode that the same gateway survives.
    pub survived: u64,
    /// Streams that broke while their clients read them, for any reason.
    pub cuts: u64,
    /// Streams that the proxies cut: those of clients, and OpenCode's event streams.
    pub client_streams_cut: u64,
    pub agent_streams_cut: u64,
    /// Of a hundred tasks of the fake that no client canceled, those that complete.
    pub completed_of_100: u64,
    /// Of a hundred tasks, those with an ask.
    pub asking_of_100: u64,
    /// Of a hundred tasks, those that a client tries to cancel.
    pub canceling_of_100: u64,
    /// Messages that are sent during a turn of their context: those that wait, and those that join the turn.
    pub seconds: u64,
    pub joined: u64,
}

impl Targets {
    pub const CAMPAIGN: Self = Self {
        gateway_kills: 1_000,
        agent_kills: 200,
        real_agent_kills: 50,
        survived: 40,
        cuts: 5_000,
        client_streams_cut: 1_000,
        agent_streams_cut: 150,
        completed_of_100: 40,
        asking_of_100: 20,
        canceling_of_100: 10,
        seconds: 50,
        joined: 15,
    };
}

impl Totals {
    pub fn add(&mut self, report: &Report) {
        self.rounds.entry(report.world).or_default().push(report.seed);
        self.kills_at_random += report.gateway.at_random;
        for (point, count) in &report.gateway.at_points {
            *self.kills_at_points.entry(point).or_default() += count;
        }
        *self.agent_kills.entry(report.world).or_default() += report.agent_kills;
        self.survived += report.survived;
        self.client_side = self.client_side + report.client_side;
        self.agent_side = self.agent_side + report.agent_side;
        for record in &report.records {
            let clients = self.clients.entry(record.planned.speaker.name()).or_default();
            clients.tasks += u64::from(!record.joined);
            clients.asked += u64::from(record.asked > 0);
            clients.canceling += u64::from(record.canceling.sends > 0);
            clients.canceled_again += record.canceling.sends.saturating_sub(1);
            clients.seconds += u64::from(record.planned.follows.is_some() && !record.joined);
            clients.joined += u64::from(record.joined);
            clients.cuts += record.cuts;
            clients.refusals += record.refusals;
            clients.sent_again += record.returns.sent_again;
            clients.subscribed += record.returns.subscribed;
            clients.from_start += record.returns.from_start;
            clients.frames += record.frames.len() as u64;
        }
        for (outcome, count) in &report.verdict.outcomes {
            *self.outcomes.entry(outcome).or_default() += count;
            if report.world == Kind::Fake {
                *self.outcomes_of_fake.entry(outcome).or_default() += count;
            }
        }
        for (reason, count) in &report.verdict.reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
        self.forgotten += report.verdict.forgotten;
        self.unread += report.verdict.unread;
        for finding in &report.verdict.findings {
            *self.faults.entry(finding.fault).or_default() += 1;
            self.findings.push((report.seed, finding.to_string()));
        }
    }

    /// A round that could not be played to its end is a finding too.
    pub fn add_unplayed(&mut self, world: Kind, seed: u64, problem: &str) {
        self.rounds.entry(world).or_default().push(seed);
        *self.faults.entry(Fault::Surprise).or_default() += 1;
        self.findings.push((seed, format!("the {} world could not be played: {problem}", world.name())));
    }

    /// How many tasks of the fake completed, and how many of its tasks no client canceled.
    pub fn completed_of_fake(&self) -> (u64, u64) {
        let count = |state: TaskState| self.outcomes_of_fake.get(state.as_str()).copied().unwrap_or_default();
        let all: u64 = self.outcomes_of_fake.values().sum();
        (count(TaskState::Completed), all - count(TaskState::Canceled))
    }

    pub fn gateway_kills(&self) -> u64 {
        self.kills_at_random + self.kills_at_points.values().sum::<u64>()
    }

    pub fn all_agent_kills(&self) -> u64 {
        self.agent_kills.values().sum()
    }

    pub fn real_agent_kills(&self) -> u64 {
        self.agent_kills.iter().filter(|(world, _)| world.is_real()).map(|(_, kills)| kills).sum()
    }

    pub fn all_clients(&self) -> ClientTotals {
        self.clients.values().fold(ClientTotals::default(), |sum, clients| ClientTotals {
            tasks: sum.tasks + clients.tasks,
            asked: sum.asked + clients.asked,
            canceling: sum.canceling + clients.canceling,
            canceled_again: sum.canceled_again + clients.canceled_again,
            seconds: sum.seconds + clients.seconds,
            joined: sum.joined + clients.joined,
            cuts: sum.cuts + clients.cuts,
            refusals: sum.refusals + clients.refusals,
            sent_again: sum.sent_again + clients.sent_again,
            subscribed: sum.subscribed + clients.subscribed,
            from_start: sum.from_start + clients.from_start,
            frames: sum.frames + clients.frames,
        })
    }

    /// The targets that were missed, as text.
    pub fn missed(&self, targets: &Targets, points: &[&'static str]) -> Vec<String> {
        let clients = self.all_clients();
        let (completed, uncanceled) = self.completed_of_fake();
        let mut missed = Vec::new();
        for (what, got, wanted) in [
            ("gateway kills", self.gateway_kills(), targets.gateway_kills),
            ("kills of OpenCode", self.all_agent_kills(), targets.agent_kills),
            ("kills of the real OpenCode", self.real_agent_kills(), targets.real_agent_kills),
            ("kills of OpenCode that the gateway survived", self.survived, targets.survived),
            ("cut streams", clients.cuts, targets.cuts),
            ("streams of clients cut by the proxy", self.client_side.streams_cut, targets.client_streams_cut),
            ("streams of OpenCode cut by the proxy", self.agent_side.streams_cut, targets.agent_streams_cut),
            ("tasks that complete, in hundredths", completed * 100, targets.completed_of_100 * uncanceled),
            ("tasks that ask", clients.asked * 100, targets.asking_of_100 * clients.tasks),
            ("cancels", clients.canceling * 100, targets.canceling_of_100 * clients.tasks),
            ("second turns of a context", clients.seconds, targets.seconds),
            ("messages that join a turn", clients.joined, targets.joined),
        ] {
            if got < wanted {
                missed.push(format!("{what}: {got} of {wanted}"));
            }
        }
        for speaker in ClientProtocol::EVERY {
            // Each protocol version and binding needs at least half of its share.
            let cuts = self.clients.get(speaker.name()).map(|clients| clients.cuts).unwrap_or_default();
            if cuts * 2 * (ClientProtocol::EVERY.len() as u64) < targets.cuts {
                missed.push(format!("cut streams of {}: {cuts}", speaker.name()));
            }
        }
        let unhit = points.iter().filter(|point| !self.kills_at_points.contains_key(**point));
        missed.extend(unhit.map(|point| format!("no gateway died at {point}")));
        missed
    }
}
