//! OpenCode over HTTP, with a fake server.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_agent_opencode::{
    Address, DirectoryLimits, Endpoint, OpenCode, OpenCodeConfig, PromptRules, UPSTREAM_CALLS,
    WATCH_DIRECTORIES, Watchdog,
};
use longshore_engine::Tasks;
use longshore_engine::port::{Agent, BoxFuture, SystemClock};
use longshore_testkit::agent_suite::{Abilities, AgentUnderTest, Received, Reply, Step};
use longshore_testkit::fake_opencode::{FakeOpenCode, LoggedRequest, Tool, Turn};
use serde_json::json;

#[derive(Debug)]
pub(crate) struct OverHttp {
    fake: FakeOpenCode,
    driver: Mutex<Driver>,
}

/// The gateway's side, as long as a gateway process runs.
#[derive(Clone, Debug)]
struct Driver {
    agent: Arc<OpenCode>,
    /// The gateway supervises OpenCode, so it notices its end at once.
    address: Address,
    tasks: Tasks,
}

impl OverHttp {
    pub(crate) fn start() -> Self {
        let fake = FakeOpenCode::start();
        let driver = Mutex::new(Driver::start(&fake));
        Self { fake, driver }
    }

    fn current(&self) -> Driver {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Driver {
    fn start(fake: &FakeOpenCode) -> Self {
        let tasks = Tasks::new();
        let address = Address::supervised(fake.url().parse().expect("the fake has an address"));
        let config = OpenCodeConfig {
            endpoint: Endpoint { base_url: address.clone(), username: "opencode".to_owned(), password: None },
            directory: PathBuf::from(fake.directory()),
            control_timeout: Duration::from_secs(5),
            long_timeout: None,
            stream_silence: Duration::from_secs(30),
            rules: PromptRules::default(),
            allow_directory_override: false,
            protected: Arc::default(),
            watchdog: Watchdog::default(),
            written_files: false,
            upstream_calls: UPSTREAM_CALLS,
            watch_directories: WATCH_DIRECTORIES,
            directories: DirectoryLimits::default(),
            metrics: Arc::default(),
        };
        let agent =
            OpenCode::new(config, Arc::new(SystemClock), tasks.clone()).expect("a valid configuration");
        Self { agent: Arc::new(agent), address, tasks }
    }
}

impl AgentUnderTest for OverHttp {
    fn abilities(&self) -> Abilities {
        Abilities {
            steers: true,
            resumes: true,
            keeps_sessions: true,
            checks_sessions: true,
            // OpenCode itself shows them as running for ever.
            closes_tools_of_the_dead: false,
        }
    }

    fn agent(&self) -> Arc<dyn Agent> {
        self.current().agent
    }

    fn reply_with(&self, reply: Reply) {
        self.fake.queue(reply.steps.into_iter().fold(Turn::new(), add));
    }

    fn received(&self) -> Vec<Received> {
        // A prompt to a session that does not exist has no effect.
        let sessions = self.fake.sessions();
        let is_known = |received: &Received| match received {
            Received::Prompt { session, .. } => sessions.contains(session),
            _ => true,
        };
        self.fake.log().iter().filter_map(received).filter(is_known).collect()
    }

    fn kill(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let address = self.current().address;
            self.fake.kill().await;
            address.set_down("OpenCode ended.");
            self.fake.restart();
            address.set_up();
        })
    }

    fn restart_gateway(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.current().tasks.stop().await;
            *self.driver.lock().unwrap_or_else(PoisonError::into_inner) = Driver::start(&self.fake);
        })
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.current().tasks.stop().await })
    }
}

fn add(turn: Turn, step: Step) -> Turn {
    match step {
        Step::Text(chunks) => turn.deltas(chunks),
        Step::Thought(text) => turn.reasoning(&text, 1),
        Step::Tool { command, output, hold: None } => turn.tool(Tool::bash(&command, &output)),
        Step::Tool { command, output, hold: Some(gate) } => {
            turn.tool(Tool::bash(&command, &output).held(&gate))
        }
        Step::GuardedTool { command, output } => {
            turn.guarded_tool(Tool::bash(&command, &output).ending_when_rejected())
        }
        Step::Hold(gate) => turn.hold(&gate),
        Step::Garbage => {
            [json!([]), json!({"type": 7}), json!({"type": "from.the.future", "properties": null})]
                .into_iter()
                .fold(turn, Turn::raw)
        }
        Step::Fail(message) => turn.error("UnknownError", &json!({"message": message})),
    }
}

fn received(request: &LoggedRequest) -> Option<Received> {
    let path: Vec<&str> = request.path.split('/').skip(1).collect();
    match (request.method.as_str(), path.as_slice()) {
        ("POST", ["session", session, "prompt_async"]) => Some(Received::Prompt {
            session: (*session).to_owned(),
            text: request.body["parts"][0]["text"].as_str().unwrap_or_default().to_owned(),
        }),
        ("POST", ["session", session, "abort"]) => Some(Received::Cancel { session: (*session).to_owned() }),
        ("POST", ["permission", _, "reply"]) => {
            Some(Received::Answer { is_allowed: request.body["reply"] != "reject" })
        }
        _ => None,
    }
}
