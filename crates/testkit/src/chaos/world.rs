//! An agent, a gateway, and the proxies before and behind it, all of which can be killed and broken.

use std::net::{Ipv4Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::time::Duration;

use futures_util::FutureExt as _;

use super::checker::Upstream;
use super::left_behind::Mark;
use super::opencode::{Api, OpenCode, Program};
use super::proxy::{ChaosProxy, Counts, Plan as Breaks};
use super::script;
use crate::fake_opencode::{self, FakeOpenCode};
use crate::gateway::{self, Gateway, Record, Setup};

/// The newest requests are enough for the scripts of the fake.
const KEPT_REQUESTS: usize = 2_000;
const PASSWORD: &str = "a-password-for-tests-only";
/// How often, and how long in between, an OpenCode that was just started is asked.
const LOOKS: u32 = 60;
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A gateway with its surroundings.
#[derive(Debug)]
pub struct World {
    agent: Agent,
    to_gateway: ChaosProxy,
    gateway: Gateway,
    /// Whatever the gateway starts has it.
    mark: Mark,
}

#[derive(Debug)]
enum Agent {
    Fake {
        fake: FakeOpenCode,
        proxy: ChaosProxy,
    },
    /// The real one, which the runner starts and kills.
    Attached {
        opencode: Box<OpenCode>,
        proxy: ChaosProxy,
    },
    /// The real one, which the gateway starts, and starts again. Its port is its own, so no proxy is before it.
    Managed,
}

/// Which world.
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
        let proxy = ChaosProxy::start(fake.address(), seed ^ 1).await.map_err(told("a proxy"))?;
        let setup = Setup::attached(binary, &proxy.url());
        Self::start(tempfile::tempdir(), setup, Agent::Fake { fake, proxy }, seed).await
    }

    /// One that is attached to the real one.
    pub async fn with_attached(binary: &Path, program: Program, seed: u64) -> Result<Self, String> {
        let root = tempfile::tempdir().map_err(told("a directory"))?;
        let opencode = Box::new(OpenCode::start(program, root.path(), PASSWORD).await?);
        let proxy = ChaosProxy::start(local(opencode.port), seed ^ 1).await.map_err(told("a proxy"))?;
        let setup = Setup::attached(binary, &proxy.url()).env("OPENCODE_AUTH_PASSWORD", PASSWORD);
        Self::start(Ok(root), setup, Agent::Attached { opencode, proxy }, seed).await
    }

    /// One that runs the real one itself.
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
        let root = root.map_err(told("a directory"))?;
        let mark = Mark::new();
        let (name, value) = mark.variable();
        let gateway = Gateway::try_start_in(root, setup.env(name, value)).await?;
        let to_gateway = ChaosProxy::start(address(&gateway)?, seed).await.map_err(told("a proxy"))?;
        Ok(Self { agent, to_gateway, gateway, mark })
    }

    pub fn kind(&self) -> Kind {
        match self.agent {
            Agent::Fake { .. } => Kind::Fake,
            Agent::Attached { .. } => Kind::Attached,
            Agent::Managed => Kind::Managed,
        }
    }

    /// Where clients go: through the proxy.
    pub(super) fn client_url(&self) -> String {
        self.to_gateway.url()
    }

    /// Where nothing is broken.
    pub(super) fn gateway_url(&self) -> String {
        self.gateway.url().to_owned()
    }

    /// What connections meet from now on. Those that are open end.
    pub(super) fn set_breaks(&self, breaks: &Breaks) {
        for proxy in [Some(&self.to_gateway), self.to_agent()].into_iter().flatten() {
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

    /// What the proxies did: between clients and gateway, and between gateway and agent.
    pub(super) fn counts(&self) -> (Counts, Counts) {
        (self.to_gateway.counts(), self.to_agent().map(ChaosProxy::counts).unwrap_or_default())
    }

    pub(super) fn kill_gateway(&mut self) {
        if !self.gateway.has_ended() {
            self.gateway.kill();
        }
    }

    pub(super) fn gateway_has_ended(&mut self) -> bool {
        self.gateway.has_ended()
    }

    /// `armed`: the fail point at which it dies. False: it died there before it listened.
    pub(super) async fn start_gateway(&mut self, armed: Option<&str>) -> Result<bool, String> {
        let variable = armed.map(|armed| (longshore_engine::fail_point::VARIABLE, armed));
        match (self.gateway.try_restart(variable).await, armed) {
            (Ok(()), _) => {
                self.to_gateway.retarget(address(&self.gateway)?);
                Ok(true)
            }
            (Err(_), Some(_)) => Ok(false),
            (Err(problem), None) => Err(problem),
        }
    }

    /// False: there was none to kill.
    pub(super) async fn kill_agent(&mut self) -> bool {
        match &mut self.agent {
            Agent::Fake { fake, .. } => fake.kill().await,
            Agent::Attached { opencode, .. } => opencode.kill().await,
            Agent::Managed => {
                let record = Record::read(&self.gateway.data_dir());
                let Some(record) = record.filter(|record| gateway::is_alive(record.pid)) else {
                    return false;
                };
                gateway::kill(record.pid);
            }
        }
        true
    }

    /// A managed one is the gateway's to start again.
    pub(super) async fn revive_agent(&mut self) -> Result<(), String> {
        match &mut self.agent {
            Agent::Fake { fake, proxy } => {
                proxy.retarget(fake.come_back_somewhere().map_err(told("the fake"))?);
            }
            Agent::Attached { opencode, proxy } => {
                opencode.revive().await?;
                proxy.retarget(local(opencode.port));
            }
            Agent::Managed => {}
        }
        Ok(())
    }

    /// What the agent knows of the prompts.
    pub(super) async fn upstream(&self) -> Result<Vec<Upstream>, String> {
        let directory = self.gateway.workspace().canonicalize().map_err(told("the workspace"))?;
        match &self.agent {
            Agent::Fake { fake, .. } => Ok(fake.truth().into_iter().map(Upstream::from).collect()),
            Agent::Attached { opencode, .. } => opencode.api(&directory).prompts().await,
            Agent::Managed => {
                let mut problem = String::new();
                for _ in 0..LOOKS {
                    if let Some(record) = Record::read(&self.gateway.data_dir()) {
                        let api =
                            Api { port: record.port, password: &record.password, directory: &directory };
                        match api.prompts().await {
                            Ok(prompts) => return Ok(prompts),
                            Err(other) => problem = other,
                        }
                    }
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                Err(problem)
            }
        }
    }

    /// Ends the gateway in the orderly way, and what it started. Gives what did not go as it must.
    pub(super) async fn end(&mut self) -> Result<Vec<String>, String> {
        let mut problems = Vec::new();
        let is_managed = matches!(self.agent, Agent::Managed);
        let others = self.mark.alive().len();
        if cfg!(target_os = "linux") && others < if is_managed { 2 } else { 1 } {
            return Err(format!("{others} processes have the mark, so it says nothing"));
        }
        let ended = AssertUnwindSafe(self.gateway.terminate()).catch_unwind().await;
        match ended {
            Ok(status) if status.success() => {}
            Ok(status) => problems.push(format!("the gateway ended with {status}")),
            Err(_) => problems.push("the gateway did not end after SIGTERM".to_owned()),
        }
        if is_managed {
            // It outlives its gateway, until somebody says so.
            let stopped = self.gateway.stop_opencode();
            if !stopped.status.success() {
                let said = String::from_utf8_lossy(&stopped.stderr);
                problems.push(format!("`longshore stop` ended with {}: {said}", stopped.status));
            }
        }
        let left = self.mark.left().await;
        problems.extend(left.into_iter().map(|(pid, line)| format!("process {pid} is left: {line}")));
        Ok(problems)
    }

    /// What the gateway wrote down of itself.
    pub fn log(&self) -> String {
        self.gateway.log()
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn address(gateway: &Gateway) -> Result<SocketAddr, String> {
    let url = gateway.url();
    url.trim_start_matches("http://").parse().map_err(|_| format!("{url} is no address"))
}

fn told<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}
