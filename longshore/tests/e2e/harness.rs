//! A gateway, a client and its OpenCode; and a turn that is played and checked against every rule.

use std::io::Write as _;

use futures_util::future::LocalBoxFuture;
use longshore_demo_model::DemoModel;
use longshore_testkit::gateway::{Gateway, OpenCodeApi, Record, Setup, until};
use longshore_testkit::raw::{self, Frame};
use serde_json::Value;

use crate::client::{Client, PATIENCE, message};
use crate::frames::{self, explanation, state_of, task_id};
use crate::upstream::{self, Agreement, UpstreamTurn};

/// The program under test.
pub(crate) const LONGSHORE: &str = env!("CARGO_BIN_EXE_longshore");

#[derive(Debug)]
pub(crate) struct Harness {
    pub(crate) gateway: Gateway,
    pub(crate) client: Client,
    pub(crate) opencode: OpenCodeApi,
}

/// Runs one of several scenarios that share a gateway. A failed test shows the name of the last scenario in its output.
pub(crate) fn scenario<'a>(name: &'a str, work: impl Future<Output = ()> + 'a) -> LocalBoxFuture<'a, ()> {
    Box::pin(async move {
        let _ = writeln!(std::io::stderr(), "scenario: {name}");
        work.await;
    })
}

/// A turn that was played to its end.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) name: String,
    pub(crate) frames: Vec<Frame>,
    pub(crate) task: Value,
    pub(crate) turn: UpstreamTurn,
}

impl Harness {
    /// `longshore serve --demo`.
    pub(crate) async fn demo() -> Self {
        Self::start(Setup::demo(LONGSHORE)).await
    }

    pub(crate) async fn start(setup: Setup) -> Self {
        let gateway = Gateway::start(setup).await;
        let opencode = gateway.opencode().await;
        Self { client: Client::of(&gateway), gateway, opencode }
    }

    /// `longshore serve` with a demo model that runs in this process, and so outlives the gateway.
    pub(crate) async fn with_own_model() -> (Self, DemoModel) {
        Self::configured(&[], |_| {}).await
    }

    /// Starts the gateway again after its end.
    pub(crate) async fn restart(&mut self) {
        self.gateway.restart().await;
        self.client = Client::of(&self.gateway);
        self.opencode = self.gateway.opencode().await;
    }

    /// Waits until the gateway has replaced the killed OpenCode `old`.
    pub(crate) async fn until_opencode_is_back(&mut self, old: u32) {
        let data = self.gateway.data_dir();
        until(PATIENCE, "the gateway starts OpenCode again", || {
            Record::read(&data).is_some_and(|record| record.pid != old)
        })
        .await;
        until(PATIENCE, "the log says that OpenCode is back", || {
            let log = self.gateway.log();
            log.rfind("OpenCode is down").is_some_and(|down| log[down..].contains("OpenCode is back"))
        })
        .await;
        self.opencode = self.gateway.opencode().await;
    }

    /// Plays a turn that ends by itself.
    pub(crate) async fn play(&self, prompt: &str) -> Played {
        self.play_message(&message(prompt), Agreement::Whole).await
    }

    /// Plays a turn whose task ends before OpenCode has finished it.
    pub(crate) async fn play_stopped(&self, prompt: &str) -> Played {
        self.play_message(&message(prompt), Agreement::Stopped).await
    }

    pub(crate) async fn play_message(&self, message: &Value, agreement: Agreement) -> Played {
        let frames = self.client.stream(message).await.rest().await;
        self.check(prompt_of(message), frames, agreement).await
    }

    /// Checks a finished stream against the stored task and against OpenCode.
    pub(crate) async fn check(&self, prompt: &str, frames: Vec<Frame>, agreement: Agreement) -> Played {
        frames::check_log(prompt, &frames);
        let task = raw::plain_text(&self.client.get(&task_id(&frames[0])).await);
        let (folded, stored) = (raw::without_answers(&raw::fold(&frames)), raw::without_answers(&task));
        assert!(
            folded == stored,
            "{prompt}: the stream folds into\n{folded:#}\nbut the stored task is\n{stored:#}"
        );
        let turn = match agreement {
            Agreement::Whole => upstream::turn(&self.opencode, prompt).await,
            Agreement::Stopped => upstream::settled_turn(&self.opencode, prompt).await,
        };
        upstream::check(prompt, &task, &turn, agreement);
        Played { name: prompt.to_owned(), frames, task, turn }
    }
}

impl Played {
    /// Fails unless the task has this state, with a message that contains `words`.
    pub(crate) fn ended(&self, state: &str, words: &str) -> &Self {
        assert_eq!(state_of(&self.task), state, "{}: {:#}", self.name, self.task);
        let explanation = explanation(&self.task);
        assert!(explanation.contains(words), "{}: expected {words:?} in {explanation:?}", self.name);
        assert_eq!(
            words.is_empty(),
            explanation.is_empty(),
            "{}: an explanation: {explanation:?}",
            self.name
        );
        self
    }

    /// Fails unless these are the blocks of the task: a name with a text, or with the status of a tool call.
    pub(crate) fn has(&self, expected: &[(&str, &str)]) -> &Self {
        let blocks = upstream::blocks_of_task(&self.task);
        let found: Vec<(&str, &str)> = blocks
            .iter()
            .map(|block| {
                let content = block.content.as_str().or_else(|| block.content["status"].as_str());
                (block.name.as_str(), content.unwrap_or_default())
            })
            .collect();
        assert_eq!(found, expected, "{}", self.name);
        self
    }

    /// The only text of the task.
    pub(crate) fn text(&self) -> String {
        let blocks = upstream::blocks_of_task(&self.task);
        let texts: Vec<_> = blocks.iter().filter(|block| block.name == "text").collect();
        let [text] = texts.as_slice() else { panic!("{}: expected one text, got {blocks:#?}", self.name) };
        text.content.as_str().expect("a text is a string").to_owned()
    }

    /// The text at the end of the reply.
    pub(crate) fn last_text(&self) -> String {
        let blocks = upstream::blocks_of_task(&self.task);
        let last = blocks.last().filter(|block| block.name == "text");
        let last = last.unwrap_or_else(|| panic!("{}: expected a text at the end of {blocks:#?}", self.name));
        last.content.as_str().expect("a text is a string").to_owned()
    }

    /// The only call of this tool in the task.
    pub(crate) fn call(&self, tool: &str) -> Value {
        let blocks = upstream::blocks_of_task(&self.task);
        let calls: Vec<_> = blocks.iter().filter(|block| block.name == format!("tool:{tool}")).collect();
        let [call] = calls.as_slice() else { panic!("{}: expected one {tool}, got {blocks:#?}", self.name) };
        call.content.clone()
    }

    /// The error details in the last status.
    pub(crate) fn error_metadata(&self) -> &Value {
        let last = self.frames.last().expect("a log has an end");
        last.json.pointer("/statusUpdate/metadata/opencode/error").unwrap_or(&Value::Null)
    }
}

/// The context of a turn.
pub(crate) fn context(played: &Played) -> String {
    frames::context_id(&played.frames[0])
}

/// Waits until the session is idle in OpenCode, which is some time after the end of the task.
pub(crate) async fn wait_until_idle(harness: &Harness, session: &str) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while harness.opencode.busy().await.iter().any(|busy| busy == session) {
        assert!(tokio::time::Instant::now() < deadline, "the session {session} was left running");
    }
}

pub(crate) fn prompt_of(message: &Value) -> &str {
    message.pointer("/parts/0/text").and_then(Value::as_str).expect("a message of a test has a text")
}
