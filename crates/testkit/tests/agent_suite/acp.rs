//! An ACP agent: a process that speaks ACP over its standard input and output.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_agent_acp::process::{ProcessConfig, environment};
use longshore_agent_acp::{AcpAgent, AcpConfig};
use longshore_engine::Tasks;
use longshore_engine::port::{Agent, BoxFuture};
use longshore_testkit::agent_suite::{Abilities, AgentUnderTest, PATIENCE, Received, Reply, Step};
use longshore_testkit::fake_acp::{Action, FakeAcp, Options};
use serde_json::Value;
use tempfile::TempDir;

/// How often the gateway's side is asked whether it has noticed the end of its process.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct OverStdio {
    fake: FakeAcp,
    options: Options,
    workspace: TempDir,
    config: AcpConfig,
    driver: Mutex<(Arc<AcpAgent>, Tasks)>,
}

impl OverStdio {
    /// An agent that can open sessions of an earlier process.
    pub(crate) fn loading() -> Self {
        Self::with(Options { load: true, echoes_prompts: true, early_updates: true, ..Options::default() })
    }

    /// An agent whose sessions end with its process, and that says otherwise.
    pub(crate) fn forgetful() -> Self {
        Self::with(Options { false_resume: true, ..Options::default() })
    }

    fn with(options: Options) -> Self {
        Self::with_patience(options, PATIENCE)
    }

    /// `patience`: how long the agent may take to stop a turn, or to end.
    pub(crate) fn with_patience(options: Options, patience: Duration) -> Self {
        Self::with_config(options, patience, |_| {})
    }

    pub(crate) fn with_config(options: Options, patience: Duration, change: fn(&mut AcpConfig)) -> Self {
        let (fake, workspace) = (FakeAcp::start(), tempfile::tempdir().expect("a directory"));
        let process = ProcessConfig {
            environment: environment(std::env::vars_os(), &fake.environment(&options)),
            patience,
            ..ProcessConfig::new(env!("CARGO_BIN_EXE_fake-acp"), workspace.path())
        };
        let mut config =
            AcpConfig { cancel_patience: patience, ..AcpConfig::new("fake", process, workspace.path()) };
        change(&mut config);
        let driver = Mutex::new(driver(&config));
        Self { fake, options, workspace, config, driver }
    }

    pub(crate) fn fake(&self) -> &FakeAcp {
        &self.fake
    }

    pub(crate) fn workspace(&self) -> &Path {
        self.workspace.path()
    }

    fn current(&self) -> (Arc<AcpAgent>, Tasks) {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn driver(config: &AcpConfig) -> (Arc<AcpAgent>, Tasks) {
    let tasks = Tasks::new();
    (AcpAgent::new(config.clone(), &tasks), tasks)
}

impl AgentUnderTest for OverStdio {
    fn abilities(&self) -> Abilities {
        Abilities {
            steers: false,
            resumes: false,
            keeps_sessions: self.options.load,
            checks_sessions: true,
            closes_tools_of_the_dead: true,
        }
    }

    fn agent(&self) -> Arc<dyn Agent> {
        self.current().0
    }

    fn reply_with(&self, reply: Reply) {
        let mut script = Vec::new();
        for (number, step) in reply.steps.into_iter().enumerate() {
            let call = format!("call_{number}");
            match step {
                Step::Text(chunks) => script.extend(chunks.into_iter().map(Action::Text)),
                Step::Thought(text) => script.push(Action::Thought(text)),
                Step::Tool { command, output, hold } => {
                    script.push(Action::BeginTool { call: call.clone(), command });
                    script.extend(hold.map(|gate| self.fake.hold(&gate)));
                    script.push(Action::EndTool { call, output, is_failed: false });
                }
                Step::GuardedTool { command, output } => {
                    script.push(Action::Ask { call: call.clone(), command: command.clone(), skip: 2 });
                    script.push(Action::BeginTool { call: call.clone(), command });
                    script.push(Action::EndTool { call, output, is_failed: false });
                }
                Step::Hold(gate) => script.push(self.fake.hold(&gate)),
                Step::Garbage => script.extend(GARBAGE.map(|line| Action::Line(line.to_owned()))),
                Step::Fail(message) => script.push(Action::Fail { code: -32_603, message }),
            }
        }
        self.fake.queue(script);
    }

    fn received(&self) -> Vec<Received> {
        self.fake.reports().iter().filter_map(received).collect()
    }

    fn kill(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if self.fake.kill().await {
                let agent = self.agent();
                while agent.check().await.is_ok() {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
        })
    }

    fn restart_gateway(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.stop_driver().await;
            let next = driver(&self.config);
            *self.driver.lock().unwrap_or_else(PoisonError::into_inner) = next;
        })
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.stop_driver().await;
            self.fake.stop().await;
        })
    }
}

impl OverStdio {
    async fn stop_driver(&self) {
        let (agent, tasks) = self.current();
        agent.stop().await;
        tasks.stop().await;
        self.fake.wait_until_dead().await;
    }
}

const GARBAGE: [&str; 10] = [
    "warning: something is deprecated",
    "",
    "{\"half\":",
    "[]",
    "{}",
    "{\"jsonrpc\":\"2.0\",\"id\":99999,\"result\":{}}",
    "{\"jsonrpc\":\"2.0\",\"id\":\"3\",\"result\":{\"stopReason\":\"cancelled\"}}",
    "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":7}",
    "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"nobody\",\"update\":{\"sessionUpdate\":\
     \"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"to nobody\"}}}}",
    "{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"telepathy/read\",\"params\":{}}",
];

fn received(report: &Value) -> Option<Received> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let prompt @ Value::Object(_) = &report["prompt"] {
        return Some(Received::Prompt { session: text(&prompt["session"]), text: text(&prompt["text"]) });
    }
    if let Value::String(session) = &report["cancel"] {
        return Some(Received::Cancel { session: session.clone() });
    }
    let outcome = report["answer"]["outcome"].as_object()?;
    let is_allowed =
        outcome.get("optionId").and_then(Value::as_str).is_some_and(|option| option.starts_with("allow"));
    Some(Received::Answer { is_allowed })
}
