//! How a client makes calls and reads frames in each version and binding.

use longshore_testkit::chaos::{ClientProtocol, ClientRequest};
use longshore_testkit::gateway::TOKEN;
use longshore_testkit::raw::{Answer, Frame, Frames, RawClient};
use serde_json::{Value, json};

/// With this extension a stream of 1.0 stays open during an ask.
const INTERRUPT: &str = "urn:opencode-a2a:extension:interactive-interrupt:v1";

fn is_v1(speaker: ClientProtocol) -> bool {
    speaker.version.as_str() == "1.0"
}

pub(crate) fn client(speaker: ClientProtocol, url: &str) -> RawClient {
    let client = RawClient::new(url, TOKEN).speaking(speaker.version.as_str());
    if is_v1(speaker) { client.activating(&[INTERRUPT]) } else { client }
}

/// Makes a call that returns a stream.
pub(crate) async fn stream(client: &RawClient, spelled: &ClientRequest) -> Frames {
    let stream = client.rest_stream(spelled.verb, &spelled.path, spelled.body.as_ref(), None).await;
    stream.unwrap_or_else(|answer| panic!("{spelled:?} was refused: {answer:?}"))
}

/// Makes a call that must succeed.
pub(crate) async fn call(client: &RawClient, spelled: &ClientRequest) -> Value {
    let answer = client.rest(spelled.verb, &spelled.path, spelled.body.as_ref()).await;
    checked(answer)
}

/// Answers the ask of a task with `once`: by the method of the extension in 1.0, by a plain message in 0.3.
pub(crate) async fn permit(speaker: ClientProtocol, client: &RawClient, task: &str, request: &str) {
    if is_v1(speaker) {
        let params = json!({"request_id": request, "reply": "once"});
        checked(client.rpc("a2a.interrupt.permission.reply", params).await);
    } else {
        let message = speaker.message(&format!("{task}-once"), "once", Some(task), None);
        call(client, &speaker.send(&message)).await;
    }
}

fn checked(answer: Answer) -> Value {
    assert!(answer.status == 200 && answer.body["error"].is_null(), "a call failed: {answer:?}");
    if answer.body["result"].is_object() { answer.body["result"].clone() } else { answer.body }
}

/// The content of a frame.
pub(crate) enum Payload<'a> {
    Task(&'a Value),
    Status(&'a Value),
    Artifact(&'a Value),
}

/// 1.0 and REST name the content; JSON-RPC of 0.3 has a field `kind`.
pub(crate) fn payload(frame: &Frame) -> Payload<'_> {
    let json = &frame.json;
    match json["kind"].as_str() {
        Some("task") => Payload::Task(json),
        Some("status-update") => Payload::Status(json),
        Some("artifact-update") => Payload::Artifact(json),
        _ if json["task"].is_object() => Payload::Task(&json["task"]),
        _ if json["statusUpdate"].is_object() => Payload::Status(&json["statusUpdate"]),
        _ if json["artifactUpdate"].is_object() => Payload::Artifact(&json["artifactUpdate"]),
        _ => panic!("no client knows this frame: {json}"),
    }
}

/// The state in one spelling: `COMPLETED`, `INPUT_REQUIRED`.
pub(crate) fn state(task_or_status: &Value) -> String {
    let state = task_or_status["status"]["state"].as_str().unwrap_or_default();
    state.trim_start_matches("TASK_STATE_").to_uppercase().replace('-', "_")
}
