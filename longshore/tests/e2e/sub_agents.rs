//! Sub-agents: each is a child task with its own stream, usage and end.

use longshore_testkit::raw::{self, Frame};
use serde_json::{Value, json};

use crate::client::{Binding, Stream, message, message_on};
use crate::frames::{self, explanation, id, is_terminal, nth_text, state_of, task_id, tool};
use crate::harness::Harness;
use crate::upstream::{self, Agreement, UpstreamTurn};

const HINTS: [&str; 2] =
    ["urn:opencode-a2a:extension:stream-hints:v1", "urn:opencode-a2a:extension:session-binding:v1"];

/// The text of most sub-agents, written slowly, so that they can be observed.
const ERRAND: &str = "The errand takes its time.  It brings back rope.\n";

/// A root task whose sub-agent has started, and the frames so far.
struct CallingTask {
    prompt: String,
    stream: Stream,
    frames: Vec<Frame>,
    child: String,
}

impl CallingTask {
    async fn begin(harness: &Harness, prompt: String) -> Self {
        let mut stream = harness.client.stream(&message(&prompt)).await;
        let frames = stream.until("a sub-agent that has a task", |frame| child(frame).is_some()).await;
        let child = frames.last().and_then(child).expect("it was just found");
        Self { prompt, stream, frames, child }
    }

    fn task(&self) -> String {
        task_id(&self.frames[0])
    }

    /// Reads the root task to its end, and checks it.
    async fn finish(mut self, harness: &Harness) -> crate::harness::Played {
        self.frames.extend(self.stream.rest().await);
        let played = harness.check(&self.prompt, self.frames, Agreement::Whole).await;
        assert_eq!(played.call("task")["tool"], "task");
        played
    }
}

/// The child task that the frame names.
fn child(frame: &Frame) -> Option<String> {
    Some(tool(frame)?["child_task_id"].as_str()?.to_owned())
}

/// A prompt that starts a sub-agent with this script, and adds a text afterwards.
fn errand(script: &str) -> String {
    format!("scn:task desc=\"an errand\" prompt={} scn:text n=2", Value::from(script))
}

fn slow_errand() -> String {
    errand(&format!("scn:text n=100 delay=40 text={}", Value::from(ERRAND)))
}

/// The task with the metadata of extensions.
async fn with_hints(harness: &Harness, task: &str) -> Value {
    harness.client.activating(&HINTS).get(task).await
}

/// Checks the task of a sub-agent against the messages of its session in OpenCode.
async fn check_child(harness: &Harness, name: &str, task: &Value, said: &str) {
    let sessions = harness.opencode.sessions().await;
    let session = task.pointer("/metadata/shared/session/id").and_then(Value::as_str);
    let session = session.unwrap_or_else(|| panic!("{name}: no session in {task:#}")).to_owned();
    let known = sessions.iter().find(|known| known["id"] == session.as_str());
    assert!(
        known.is_some_and(|known| known["parentID"].is_string()),
        "{name}: {session} is no sub-agent's session: {sessions:#?}"
    );
    let mut answers = harness.opencode.messages(&session).await;
    answers.retain(|message| message["info"]["role"] == "assistant");
    let turn = UpstreamTurn { session, answers };
    let task = raw::plain_text(task);
    upstream::check(name, &task, &turn, Agreement::Whole);
    let blocks = upstream::blocks_of_task(&task);
    let texts = blocks.iter().filter(|block| block.name == "text").filter_map(|block| block.content.as_str());
    assert_eq!(texts.collect::<String>(), said, "{name}: what the sub-agent said");
}

async fn listed(harness: &Harness, params: Value) -> Vec<String> {
    let mut page = harness.client.call("ListTasks", params).await;
    let tasks = page["tasks"].as_array_mut().map(std::mem::take).unwrap_or_default();
    tasks.iter().filter_map(|task| Some(task["id"].as_str()?.to_owned())).collect()
}

fn usage(task: &Value, field: &str) -> u64 {
    let usage = &task["metadata"]["shared"]["usage"];
    usage[field].as_u64().unwrap_or_else(|| panic!("no {field} in {usage:#} of {task:#}"))
}

pub(crate) async fn a_sub_agent_is_a_task_with_its_own_stream_usage_and_end(harness: &Harness) {
    let script = format!("scn:text n=100 delay=40 in=200 out=20 text={}", Value::from(ERRAND));
    let prompt = format!(
        "scn:task desc=\"an errand\" in=1000 out=100 prompt={} scn:text n=2 in=3000 out=300",
        Value::from(script)
    );
    let calling = CallingTask::begin(harness, prompt).await;
    let (root, child) = (calling.task(), calling.child.clone());
    let context = frames::context_id(&calling.frames[0]);

    // Its own stream during the turn over both bindings, and its whole log.
    let mut streams = Vec::new();
    for binding in [Binding::JsonRpc, Binding::Rest] {
        streams.push(harness.client.over(binding).subscribe(&child).await);
    }
    let task = harness.client.get(&child).await;
    assert_eq!(state_of(&task), "WORKING", "{task:#}");
    for stream in streams {
        let seen = stream.rest().await;
        let stored = raw::plain_text(&harness.client.get(&child).await);
        assert_eq!(state_of(&stored), "COMPLETED", "{stored:#}");
        assert_eq!(raw::fold(&seen), stored, "the stream folds into another task");
    }
    let log = harness.client.resume(&child, 0).await.rest().await;
    frames::check_log("the sub-agent's log", &log);

    let played = calling.finish(harness).await;
    played.ended("COMPLETED", "").has(&[("tool:task", "completed"), ("text", "anchor  ballast ")]);
    let calls: Vec<String> = played.frames.iter().filter_map(self::child).collect();
    assert!(calls.iter().all(|named| *named == child), "one call names several tasks: {calls:#?}");
    let stored = played.task["artifacts"].as_array().expect("a task has artifacts");
    let call = stored
        .iter()
        .find_map(|artifact| artifact.pointer("/parts/0/data"))
        .expect("the task has a tool call");
    assert_eq!(call["child_task_id"], child.as_str(), "{call:#}");

    let (of_root, of_child) = (with_hints(harness, &root).await, with_hints(harness, &child).await);
    check_child(harness, "the errand", &of_child, ERRAND).await;
    let parent = json!({"task_id": root, "call_id": call["call_id"], "depth": 1});
    assert_eq!(of_child["metadata"]["shared"]["parent"], parent, "{of_child:#}");
    let subagent = json!({"type": "general", "model": "demo/demo"});
    assert_eq!(of_child["metadata"]["shared"]["subagent"], subagent, "{of_child:#}");
    assert_eq!(of_child["contextId"], context.as_str());
    assert!(of_root["metadata"]["shared"].get("parent").is_none(), "{of_root:#}");
    for (field, own, below) in
        [("input_tokens", 4_000, 200), ("output_tokens", 400, 20), ("total_tokens", 4_400, 220)]
    {
        assert_eq!(usage(&of_child, field), below, "{field} of the sub-agent");
        assert_eq!(usage(&of_root, field), own + below, "{field} of the whole");
    }
    let (child_end, root_end) = (&of_child["status"]["timestamp"], &of_root["status"]["timestamp"]);
    assert!(child_end.as_str() <= root_end.as_str(), "the root ended at {root_end}, before {child_end}");

    let all = listed(harness, json!({})).await;
    assert!(all.contains(&root) && !all.contains(&child), "the list of all tasks shows roots only: {all:?}");
    let mut family = listed(harness, json!({ "contextId": context })).await;
    family.sort();
    let mut expected = vec![root, child];
    expected.sort();
    assert_eq!(family, expected, "those of a context show all");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_sub_agents_of_sub_agents_are_tasks_as_well() {
    let (harness, model) = Harness::configured(&[], |configuration| {
        configuration["subagent_depth"] = 2.into();
        configuration["permission"]["task"] = "allow".into();
    })
    .await;
    let deepest = format!("scn:text in=7 out=1 text={}", Value::from(ERRAND));
    let middle = format!(
        "scn:task desc=\"a second errand\" in=20 out=2 prompt={} scn:text n=3 in=30 out=3",
        Value::from(deepest)
    );
    let prompt = format!(
        "scn:task desc=\"an errand\" in=100 out=10 prompt={} scn:text n=2 in=200 out=20",
        Value::from(middle)
    );
    let calling = CallingTask::begin(&harness, prompt).await;
    let (root, child) = (calling.task(), calling.child.clone());
    let log = harness.client.subscribe(&child).await.rest().await;
    let grandchild = raw::fold(&log)["artifacts"]
        .as_array()
        .and_then(|artifacts| {
            artifacts.iter().find_map(|a| a.pointer("/parts/0/data/child_task_id")?.as_str())
        })
        .unwrap_or_else(|| panic!("the sub-agent names no task below it: {log:#?}"))
        .to_owned();
    calling.finish(&harness).await.ended("COMPLETED", "");

    let tasks = [&root, &child, &grandchild];
    let mut shown = Vec::new();
    for task in tasks {
        shown.push(with_hints(&harness, task).await);
    }
    for (task, depth, parent) in [(&shown[1], 1, &root), (&shown[2], 2, &child)] {
        assert_eq!(state_of(task), "COMPLETED", "{task:#}");
        let reported = &task["metadata"]["shared"]["parent"];
        assert_eq!((&reported["depth"], &reported["task_id"]), (&depth.into(), &json!(parent)), "{task:#}");
    }
    check_child(&harness, "the first below", &shown[1], "anchor  ballast buoy ca ").await;
    check_child(&harness, "the second below", &shown[2], ERRAND).await;
    let sums: Vec<u64> = shown.iter().map(|task| usage(task, "input_tokens")).collect();
    assert_eq!(sums, [357, 57, 7], "each is the sum of its own steps and of those below");
    let context = shown[0]["contextId"].clone();
    assert_eq!(listed(&harness, json!({ "contextId": context })).await.len(), 3);
    assert_eq!(model.journal().turns().len(), 5, "the steps of the three");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_a_restarted_gateway_resumes_the_tasks_of_sub_agents() {
    let (mut harness, model) = Harness::with_own_model().await;
    let mut calling = CallingTask::begin(&harness, slow_errand()).await;
    let child = calling.child.clone();
    let mut below = harness.client.subscribe(&child).await;
    let mut seen = below.until("ten texts", nth_text(10)).await;
    harness.gateway.kill();
    seen.extend(below.rest().await);
    while let Some(frame) = calling.stream.next().await {
        calling.frames.push(frame);
    }
    assert!(!calling.frames.iter().chain(&seen).any(is_terminal), "it was over before the crash");
    harness.restart().await;

    let last = seen.last().expect("frames came before the crash");
    seen.extend(harness.client.resume(&child, id(last)).await.rest().await);
    let stored = raw::plain_text(&harness.client.get(&child).await);
    assert_eq!(state_of(&stored), "COMPLETED", "{stored:#}");
    assert_eq!(raw::fold(&seen), stored, "the stream folds into another task");
    frames::check_log("the sub-agent's log", &harness.client.resume(&child, 0).await.rest().await);

    let last = calling.frames.last().expect("frames came before the crash");
    calling.stream = harness.client.resume(&calling.task(), id(last)).await;
    let context = frames::context_id(&calling.frames[0]);
    let played = calling.finish(&harness).await;
    played.ended("COMPLETED", "").has(&[("tool:task", "completed"), ("text", "anchor  ballast ")]);
    check_child(&harness, "the errand", &with_hints(&harness, &child).await, ERRAND).await;
    assert_eq!(model.journal().turns().len(), 3, "a prompt was sent twice");
    assert_eq!(listed(&harness, json!({ "contextId": context })).await.len(), 2, "one more task");
}

pub(crate) async fn an_ask_of_a_sub_agent_is_shown_on_both_tasks_and_answered_on_its_own(harness: &Harness) {
    for (answer, state, root_says) in [("once", "COMPLETED", "anchor  ballast "), ("reject", "FAILED", "")] {
        let script = format!("scn:bash cmd=\"touch {answer}-below\" scn:text n=3");
        let prompt = format!("{} ({answer})", errand(&script));
        let frames = harness.client.stream(&message(&prompt)).await.rest().await;
        let asking = crate::asking::AskingTask::of(&frames);
        let below =
            frames.iter().find_map(child).unwrap_or_else(|| panic!("{answer}: no child: {frames:#?}"));
        for task in [&asking.task, &below] {
            let mut stream = harness.client.subscribe(task).await;
            let asked = |frame: &Frame| frames::state(frame) == Some("INPUT_REQUIRED");
            stream.until("the ask", asked).await;
            let shown = harness.client.get(task).await;
            let reported = explanation(&shown);
            assert!(reported.contains(&format!("touch {answer}-below")), "{answer}: {shown:#}");
        }
        let answered = harness.client.send(&message_on(&below, &json!({"text": answer}))).await;
        assert_eq!((&answered["id"], state_of(&answered)), (&json!(below), state), "{answer}: {answered:#}");
        let played = harness.finished(&prompt, &asking.task).await;
        if root_says.is_empty() {
            continue;
        }
        played.ended("COMPLETED", "");
        assert_eq!(played.last_text(), root_says);
        let made = harness.gateway.workspace().join(format!("{answer}-below")).exists();
        assert!(made, "{answer}: the command that was allowed did not run");
        check_child(harness, answer, &with_hints(harness, &below).await, "anchor  ballast buoy ca ").await;
    }
}
