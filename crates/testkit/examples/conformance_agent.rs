//! An agent that plays the scenarios of the public A2A conformance kits, behind the OpenCode interface.
//!
//! The kits name a scenario in the id of the message that they send. OpenCode never receives that id, so this agent asks the
//! gateway for the task, as any client could: the gateway itself knows nothing of the kits.
//!
//! The program prints `directory` and `url` to standard output, reads the URL of the gateway from standard input, one line, and
//! ends when standard input does. `LONGSHORE_TOKEN` is the credential of the kit.

use std::collections::HashSet;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longshore_testkit::fake_opencode::{Decision, FakeOpenCode, Tool, Turn, TurnContext};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::watch;

/// How long a task must run to which the kits subscribe: twice their default `TCK_STREAMING_TIMEOUT`, and a bit.
const LONG: Duration = Duration::from_secs(5);

/// Long enough for a kit that sends a message without waiting to see the task working.
const AT_WORK: Duration = Duration::from_secs(1);

/// How long the agent waits for the gateway to show a message.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// How the id of a message starts, and what the agent does for it.
type Scenario = (&'static str, fn() -> ScenarioEnd);

/// The first matching prefix counts. Other messages are answered at once.
const SCENARIOS: &[Scenario] = &[
    // The kit for 1.0 documents its scenarios.
    ("tck-complete-task", || ScenarioEnd::End(Turn::new().text("Hello from TCK", 1))),
    ("tck-artifact-text", || ScenarioEnd::End(Turn::new().text("Generated text content", 1))),
    ("tck-artifact-file", || ScenarioEnd::End(file())),
    ("tck-artifact-data", || ScenarioEnd::End(Turn::new().text(r#"{"key": "value", "count": 42}"#, 1))),
    ("tck-message-response", || ScenarioEnd::End(Turn::new().text("Direct message response", 1))),
    ("tck-input-required", || ScenarioEnd::Ask(Turn::new())),
    ("tck-reject-task", || {
        ScenarioEnd::End(Turn::new().error("UnknownError", &json!({"message": "rejected"})))
    }),
    ("tck-stream-artifact-file", || ScenarioEnd::End(file())),
    ("tck-stream-artifact-chunked", || {
        ScenarioEnd::End(Turn::new().deltas(["chunk-1 ".to_owned(), "chunk-2".to_owned()]))
    }),
    ("tck-stream", || ScenarioEnd::End(Turn::new().text("Stream hello from TCK", 2))),
    // Both kits.
    ("test-resubscribe-message-id", || {
        ScenarioEnd::End(Turn::new().text("Still at it. ", 1).pause(LONG).text("Done.", 1))
    }),
    // The kit for 0.3 documents only that one. It expects to find these tasks working, to continue them, or to cancel them.
    ("test-state-message-id", || ScenarioEnd::Ask(Turn::new().pause(AT_WORK))),
    ("test-message-id", || ScenarioEnd::Ask(Turn::new())),
    ("text-message-id", || ScenarioEnd::Ask(Turn::new())),
    ("test-history", || ScenarioEnd::Ask(Turn::new())),
    ("test-update", || ScenarioEnd::Ask(Turn::new())),
    ("test-resilience-message-id", || ScenarioEnd::Ask(Turn::new())),
    ("test-sdk-message-id", || ScenarioEnd::Ask(Turn::new())),
    ("sdk-test-msg", || ScenarioEnd::Ask(Turn::new())),
    ("test-cancel", || ScenarioEnd::Ask(Turn::new())),
    ("cancel-test", || ScenarioEnd::Ask(Turn::new())),
    ("mapping-test", || ScenarioEnd::Ask(Turn::new())),
    ("equivalence", || ScenarioEnd::Ask(Turn::new())),
];

/// How a scenario ends.
#[derive(Debug)]
enum ScenarioEnd {
    /// With the turn.
    End(Turn),
    /// With a question. The message that answers it names the next scenario.
    Ask(Turn),
}

fn file() -> Turn {
    let read = Tool::new("read", json!({"filePath": "output.txt"}), "Read it.");
    Turn::new().tool(read.handing("output.txt", "text/plain", b"Generated file content"))
}

/// The gateway, which this agent asks for tasks.
#[derive(Debug)]
struct Gateway {
    url: watch::Receiver<Option<String>>,
    token: String,
    http: reqwest::Client,
    /// Tasks that were found for a prompt. They belong to no other prompt.
    taken: Mutex<HashSet<String>>,
}

impl Gateway {
    /// The task that a prompt is for: the oldest that is not over and whose message has the prompt's text.
    async fn task_of(&self, context: &TurnContext) -> Option<Value> {
        let found = self.until(|| async {
            let listed = self.get("/tasks?pageSize=100&historyLength=100").await?;
            let tasks = listed["tasks"].as_array()?.iter().rev().filter(|task| !is_over(task));
            let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            let mut free = tasks.filter(|task| !taken.contains(text(&task["id"])));
            let of_prompt = |task: &&Value| {
                let last = messages(task).next_back();
                last.is_some_and(|message| message["parts"][0]["text"] == context.text.as_str())
            };
            let task = free.find(of_prompt)?.clone();
            taken.insert(text(&task["id"]).to_owned());
            Some(task)
        });
        found.await
    }

    /// The task once it has more than `known` messages of its user.
    async fn task_with_more(&self, id: &str, known: usize) -> Option<Value> {
        let path = format!("/tasks/{id}");
        let found = self.until(|| async {
            let task = self.get(&path).await?;
            (messages(&task).count() > known).then_some(task)
        });
        found.await
    }

    async fn until<F: Future<Output = Option<Value>>>(&self, find: impl Fn() -> F) -> Option<Value> {
        let finding = async {
            loop {
                if let Some(found) = find().await {
                    return found;
                }
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(PATIENCE, finding).await.ok()
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let url = self.url.borrow().clone()?;
        let request =
            self.http.get(format!("{url}{path}")).bearer_auth(&self.token).header("A2A-Version", "1.0");
        let answer = request.send().await.ok()?.text().await.ok()?;
        serde_json::from_str(&answer).ok()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn is_over(task: &Value) -> bool {
    let state = text(&task["status"]["state"]);
    ["COMPLETED", "FAILED", "CANCELED", "REJECTED"].iter().any(|over| state.ends_with(over))
}

/// The messages of the user on a task, oldest first.
fn messages(task: &Value) -> impl DoubleEndedIterator<Item = &Value> {
    let history = task["history"].as_array().map(Vec::as_slice).unwrap_or_default();
    history.iter().filter(|message| message["role"] == "ROLE_USER")
}

/// Decides the turn of a prompt.
fn begin(gateway: &Arc<Gateway>) -> Decision {
    let gateway = Arc::clone(gateway);
    Decision::new(move |context| {
        let gateway = Arc::clone(&gateway);
        Box::pin(async move {
            let task = gateway.task_of(&context).await;
            act(&gateway, task)
        })
    })
}

/// Decides the rest of the turn after an answer to its question.
fn go_on(gateway: &Arc<Gateway>, task: String, known: usize) -> Decision {
    let gateway = Arc::clone(gateway);
    Decision::new(move |_| {
        let (gateway, task) = (Arc::clone(&gateway), task.clone());
        Box::pin(async move {
            let task = gateway.task_with_more(&task, known).await;
            act(&gateway, task)
        })
    })
}

/// Plays the scenario that the last message on the task names.
fn act(gateway: &Arc<Gateway>, task: Option<Value>) -> Turn {
    let Some(task) = task else {
        let error = json!({"message": "The gateway shows no task for this prompt."});
        return Turn::new().error("UnknownError", &error);
    };
    let message = messages(&task).next_back().map(|message| text(&message["messageId"])).unwrap_or_default();
    let scenario = SCENARIOS.iter().find(|(prefix, _)| message.starts_with(prefix));
    match scenario.map(|(_, act)| act()) {
        None => Turn::new().text("Done.", 1),
        Some(ScenarioEnd::End(turn)) => turn,
        Some(ScenarioEnd::Ask(turn)) => turn.question("What else is needed?").then(go_on(
            gateway,
            text(&task["id"]).to_owned(),
            messages(&task).count(),
        )),
    }
}

// One thread, as in the tests: an answer to an ask is processed before the turn that waits for it continues.
#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let (tell, url) = watch::channel(None);
    let token = std::env::var("LONGSHORE_TOKEN").unwrap_or_default();
    let gateway = Arc::new(Gateway { url, token, http: reqwest::Client::new(), taken: Mutex::default() });
    let fake = FakeOpenCode::start();
    fake.answer_others_with(vec![Turn::new().then(begin(&gateway))]);
    let mut stdout = std::io::stdout();
    writeln!(stdout, "directory {}", fake.directory())?;
    writeln!(stdout, "url {}", fake.url())?;
    stdout.flush()?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        tell.send_replace(Some(line));
    }
    Ok(())
}
