//! An agent, a gateway, and the proxies before and behind it, all of which can be killed and broken.

use std::net::SocketAddr;
use std::path::Path;

use super::checker::{Testimony, Upstream};
use super::proxy::{ChaosProxy, Counts, Plan as Breaks};
use super::script;
use crate::fake_opencode::{self, FakeOpenCode};
use crate::gateway::{Gateway, Setup};

/// The newest requests are enough for the scripts of the fake.
const KEPT_REQUESTS: usize = 2_000;

/// A gateway that is attached to a fake OpenCode.
#[derive(Debug)]
pub struct World {
    fake: FakeOpenCode,
    to_agent: ChaosProxy,
    to_gateway: ChaosProxy,
    gateway: Gateway,
}

impl World {
    /// A calm one. `binary`: the gateway.
    pub async fn with_fake(binary: &Path, seed: u64) -> Result<Self, String> {
        let setup = fake_opencode::Setup { keep_log: KEPT_REQUESTS, ..fake_opencode::Setup::default() };
        let fake = FakeOpenCode::start_with(setup);
        fake.answering(script::turn);
        let to_agent = ChaosProxy::start(fake.address(), seed ^ 1).await.map_err(told("a proxy"))?;
        let root = tempfile::tempdir().map_err(told("a directory"))?;
        let setup = Setup::attached(binary, &to_agent.url());
        let gateway = Gateway::try_start_in(root, setup).await?;
        let to_gateway = ChaosProxy::start(address(&gateway)?, seed).await.map_err(told("a proxy"))?;
        Ok(Self { fake, to_agent, to_gateway, gateway })
    }

    pub fn name(&self) -> &'static str {
        "fake OpenCode"
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
        for proxy in [&self.to_agent, &self.to_gateway] {
            proxy.set_plan(breaks.clone());
            proxy.cut_now();
        }
    }

    pub(super) fn counts(&self) -> (Counts, Counts) {
        (self.to_gateway.counts(), self.to_agent.counts())
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

    pub(super) async fn kill_agent(&self) -> Result<(), String> {
        self.fake.kill().await;
        Ok(())
    }

    pub(super) async fn revive_agent(&self) -> Result<(), String> {
        let address = self.fake.come_back_somewhere().map_err(told("the fake"))?;
        self.to_agent.retarget(address);
        Ok(())
    }

    /// What the agent knows of the prompts.
    pub(super) async fn upstream(&self, _testimonies: &[Testimony]) -> Result<Vec<Upstream>, String> {
        Ok(self.fake.truth().into_iter().map(Upstream::from).collect())
    }

    /// Ends the gateway in the orderly way, which must work.
    pub(super) async fn end(&mut self) -> Result<(), String> {
        let status = self.gateway.terminate().await;
        if status.success() { Ok(()) } else { Err(format!("the gateway ended with {status}")) }
    }

    /// What the gateway wrote down of itself.
    pub fn log(&self) -> String {
        self.gateway.log()
    }
}

fn address(gateway: &Gateway) -> Result<SocketAddr, String> {
    let url = gateway.url();
    url.trim_start_matches("http://").parse().map_err(|_| format!("{url} is no address"))
}

fn told<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}
