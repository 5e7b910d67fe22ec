//! An agent, a gateway, and the proxies on both sides of the gateway. All of them can be killed or broken.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use futures_util::FutureExt as _;

use super::checker::AgentRecord;
use super::left_behind::Mark;
use super::opencode::{self, Api, OpenCode, Program};
use super::proxy::{ChaosProxy, Counts, Plan as Breaks};
use super::script;
use crate::fake_opencode::{self, FakeOpenCode, PromptRecord};
use crate::gateway::{self, Gateway, Record, Setup};

/// The scripts of the fake need only the newest requests.
const KEPT_REQUESTS: usize = 2_000;
const PASSWORD: &str = "a-password-for-tests-only";
/// How often a newly started OpenCode is queried, and the pause in between.
const MAX_TRIES: u32 = 60;
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// A gateway with its agent and proxies.
#[derive(Debug)]
pub struct World {
    agent: Agent,
    to_gateway: ChaosProxy,
    /// Leads to the unix socket of the gateway.
    to_socket: ChaosProxy,
    gateway: Gateway,
    /// The mark of all processes that the gateway starts.
    mark: Mark,
}

#[derive(Debug)]
enum Agent {
    Fake {
        fake: FakeOpenCode,
        proxy: ChaosProxy,
    },
    /// A real OpenCode that the runner starts and kills.
    Attached {
        opencode: Box<OpenCode>,
        proxy: ChaosProxy,
    },
    /// A real OpenCode that the gateway starts and restarts. It chooses its port itself, so that no proxy is in front of it.
    Managed,
}

/// Which OpenCode the world has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    Fake,
    Attached,
    Managed,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Fake, Self::Attached, Self::Managed];

    pub fn name(self) -> &'static str {
        match self {
            Self::Fake => "fake",
            Self::Attached => "real-attached",
            Self::Managed => "real-managed",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    pub fn is_real(self) -> bool {
        self != Self::Fake
    }
}

impl World {
    /// A gateway that is attached to a fake OpenCode. `binary`: the gateway.
    pub async fn with_fake(binary: &Path, seed: u64) -> Result<Self, String> {
        let setup = fake_opencode::Setup { keep_log: KEPT_REQUESTS, ..fake_opencode::Setup::default() };
        let fake = FakeOpenCode::start_with(setup);
        fake.answering(script::turn);
        let proxy = ChaosProxy::start(fake.address(), seed ^ 1).await.map_err(failed("a proxy"))?;
        let setup = Setup::attached(binary, &proxy.url());
        Self::start(tempfile::tempdir(), setup, Agent::Fake { fake, proxy }, seed).await
    }

    /// A gateway that is attached to a real OpenCode.
    pub async fn with_attached(binary: &Path, program: Program, seed: u64) -> Result<Self, String> {
        let root = tempfile::tempdir().map_err(failed("a directory"))?;
        let opencode = Box::new(OpenCode::start(program, root.path(), PASSWORD).await?);
        let proxy = ChaosProxy::start(local(opencode.port), seed ^ 1).await.map_err(failed("a proxy"))?;
        let setup = Setup::attached(binary, &proxy.url()).env("OPENCODE_AUTH_PASSWORD", PASSWORD);
        Self::start(Ok(root), setup, Agent::Attached { opencode, proxy }, seed).await
    }

    /// A gateway that manages a real OpenCode.
    pub async fn with_managed(binary: &Path, program: Program, seed: u64) -> Result<Self, String> {
        let setup = Setup::managed(binary, program.environment);
        Self::start(tempfile::tempdir(), setup, Agent::Managed, seed).await
    }

    async fn start(
        root: std::io::Result<tempfile::TempDir>,
        setup: Setup,
        agent: Agent,
        seed: u64,
    ) -> Result<Self, String> {
        let root = root.map_err(failed("a directory"))?;
        let mark = Mark::new();
        let (name, value) = mark.variable();
        let setup = setup.env(name, value).env("A2A_BEARER_TOKEN", mark.token());
        let socket = root.path().join("gateway.sock");
        let setup = setup.flag("--unix-socket").flag(&socket);
        let gateway = Gateway::try_start_in(root, setup).await?;
        let to_gateway = ChaosProxy::start(address(&gateway)?, seed).await.map_err(failed("a proxy"))?;
        let to_socket = ChaosProxy::start(socket, seed ^ 2).await.map_err(failed("a proxy"))?;
        Ok(Self { agent, to_gateway, to_socket, gateway, mark })
    }

    pub fn kind(&self) -> Kind {
        match self.agent {
            Agent::Fake { .. } => Kind::Fake,
            Agent::Attached { .. } => Kind::Attached,
            Agent::Managed => Kind::Managed,
        }
    }

    /// The URL for clients, which leads through the proxy.
    pub(super) fn client_url(&self) -> String {
        self.to_gateway.url()
    }

    /// The same for clients of the unix socket.
    pub(super) fn socket_url(&self) -> String {
        self.to_socket.url()
    }

    /// A token that only this gateway accepts: after its death, another gateway may get its port.
    pub(super) fn token(&self) -> String {
        self.mark.token()
    }

    /// The URL without a proxy.
    pub(super) fn gateway_url(&self) -> String {
        self.gateway.url().to_owned()
    }

    /// Sets the faults of new connections, and ends the open ones.
    pub(super) fn set_breaks(&self, breaks: &Breaks) {
        for proxy in [Some(&self.to_gateway), Some(&self.to_socket), self.to_agent()].into_iter().flatten() {
            proxy.set_plan(breaks.clone());
            proxy.cut_now();
        }
    }

    fn to_agent(&self) -> Option<&ChaosProxy> {
        match &self.agent {
            Agent::Fake { proxy, .. } | Agent::Attached { proxy, .. } => Some(proxy),
            Agent::Managed => None,
        }
    }

    /// The counts of the proxies: between clients and gateway, and between gateway and agent.
    pub(super) fn counts(&self) -> (Counts, Counts) {
        let of_clients = self.to_gateway.counts() + self.to_socket.counts();
        (of_clients, self.to_agent().map(ChaosProxy::counts).unwrap_or_default())
    }

    /// The gateway and the agent, for killers that work independently.
    pub(super) fn sides(&mut self) -> (GatewaySide<'_>, AgentSide<'_>) {
        let data_dir = self.gateway.data_dir();
        let gateway = GatewaySide { gateway: &mut self.gateway, proxy: &self.to_gateway };
        (gateway, AgentSide { agent: &mut self.agent, data_dir })
    }

    /// The agent's records of the prompts.
    pub(super) async fn agent_records(&self) -> Result<Vec<AgentRecord>, String> {
        let directory = self.gateway.workspace().canonicalize().map_err(failed("the workspace"))?;
        match &self.agent {
            Agent::Fake { fake, .. } => Ok(prompts_of_fake(fake)),
            Agent::Attached { opencode, .. } => opencode.api(&directory).prompts().await,
            Agent::Managed => {
                let mut problem = String::new();
                for _ in 0..MAX_TRIES {
                    if let Some(record) = Record::read(&self.gateway.data_dir()) {
                        let api =
                            Api { port: record.port, password: &record.password, directory: &directory };
                        match api.prompts().await {
                            Ok(prompts) => return Ok(prompts),
                            Err(other) => problem = other,
                        }
                    }
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                Err(problem)
            }
        }
    }

    /// Shuts down the gateway and everything that it started. Returns what went wrong.
    pub(super) async fn end(&mut self) -> Result<Vec<String>, String> {
        let mut problems = Vec::new();
        let is_managed = matches!(self.agent, Agent::Managed);
        let others = self.mark.alive().len();
        if cfg!(target_os = "linux") && others < if is_managed { 2 } else { 1 } {
            return Err(format!("only {others} processes have the mark, so the mark does not work"));
        }
        let ended = AssertUnwindSafe(self.gateway.terminate()).catch_unwind().await;
        match ended {
            Ok(status) if status.success() => {}
            Ok(status) => problems.push(format!("the gateway ended with {status}")),
            Err(_) => problems.push("the gateway did not end after SIGTERM".to_owned()),
        }
        if is_managed {
            // A managed OpenCode outlives its gateway until `longshore stop`.
            let stopped = self.gateway.stop_opencode();
            if !stopped.status.success() {
                let error = String::from_utf8_lossy(&stopped.stderr);
                problems.push(format!("`longshore stop` ended with {}: {error}", stopped.status));
            }
        }
        let left = self.mark.left().await;
        problems.extend(left.into_iter().map(|(pid, line)| format!("process {pid} is left: {line}")));
        Ok(problems)
    }

    /// The log of the gateway.
    pub fn log(&self) -> String {
        self.gateway.log()
    }
}

/// The gateway, for the killer.
#[derive(Debug)]
pub(super) struct GatewaySide<'a> {
    gateway: &'a mut Gateway,
    proxy: &'a ChaosProxy,
}

/// The result of a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Started {
    Listens,
    /// The gateway died at its fail point before it listened.
    Died,
}

impl GatewaySide<'_> {
    pub(super) fn kill(&mut self) {
        self.proxy.lead_nowhere();
        self.gateway.kill();
    }

    /// The exit status, if the gateway ended by itself.
    pub(super) fn end(&mut self) -> Option<ExitStatus> {
        let has_ended = self.gateway.has_ended();
        if has_ended {
            self.proxy.lead_nowhere();
        }
        has_ended.then(|| self.gateway.end()).flatten()
    }

    /// `armed`: the fail point at which the gateway dies. `Err`: the gateway did not listen, for another reason.
    pub(super) async fn start(&mut self, armed: Option<&str>) -> Result<Started, String> {
        let variable = armed.map(|armed| (longshore_engine::fail_point::VARIABLE, armed));
        match self.gateway.try_restart(variable).await {
            Ok(()) => {
                self.proxy.retarget(address(self.gateway)?);
                Ok(Started::Listens)
            }
            Err(_) if armed.is_some() && self.gateway.end().is_some_and(is_killed) => Ok(Started::Died),
            Err(problem) => Err(problem),
        }
    }

    /// Kills the OpenCode that the gateway started. False: there was none.
    pub(super) fn kill_managed(&self) -> bool {
        kill_managed(&self.gateway.data_dir())
    }
}

/// Whether the process was killed, and did not exit or panic.
pub(super) fn is_killed(status: ExitStatus) -> bool {
    const KILL: i32 = 9;
    status.signal() == Some(KILL)
}

fn kill_managed(data_dir: &Path) -> bool {
    let record = Record::read(data_dir).filter(|record| gateway::is_alive(record.pid));
    if let Some(record) = &record {
        gateway::kill(record.pid);
    }
    record.is_some()
}

/// The agent, for the killer.
#[derive(Debug)]
pub(super) struct AgentSide<'a> {
    agent: &'a mut Agent,
    data_dir: PathBuf,
}

impl AgentSide<'_> {
    /// False: there was none to kill.
    pub(super) async fn kill(&mut self) -> bool {
        match &mut self.agent {
            Agent::Fake { fake, proxy } => {
                proxy.lead_nowhere();
                fake.kill().await;
            }
            Agent::Attached { opencode, proxy } => {
                proxy.lead_nowhere();
                opencode.kill().await;
            }
            Agent::Managed => return kill_managed(&self.data_dir),
        }
        true
    }

    /// Starts the agent again. The gateway itself restarts a managed one.
    pub(super) async fn revive(&mut self) -> Result<(), String> {
        match &mut self.agent {
            Agent::Fake { fake, proxy } => {
                fake.restart();
                proxy.retarget(fake.address());
            }
            Agent::Attached { opencode, proxy } => {
                opencode.revive().await?;
                proxy.retarget(local(opencode.port));
            }
            Agent::Managed => {}
        }
        Ok(())
    }
}

/// What the fake streamed, and what it shows now.
fn prompts_of_fake(fake: &FakeOpenCode) -> Vec<AgentRecord> {
    let shown = |prompt: &PromptRecord| {
        let messages = opencode::of_session(&fake.messages(&prompt.session));
        let same = messages.into_iter().find(|message| message.words == prompt.words);
        same.map(|message| message.kept).unwrap_or_default()
    };
    let known = fake.prompt_records().into_iter().map(|prompt| (shown(&prompt), prompt));
    known.map(|(kept, prompt)| AgentRecord::of_fake(prompt, kept)).collect()
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn address(gateway: &Gateway) -> Result<SocketAddr, String> {
    let url = gateway.url();
    url.trim_start_matches("http://").parse().map_err(|_| format!("{url} is not an address"))
}

fn failed<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}
