//! Turns that another client of OpenCode starts become tasks, with their streams and their asks.
//!
//! The other client calls the same OpenCode directly, as OpenCode's own interface does. The scenarios of a test run side
//! by side, each in its own session.

mod external_client;
mod ignored;
mod restarts;
mod routes;

use futures_util::future::LocalBoxFuture;
use longshore_testkit::chaos::ClientProtocol;
use longshore_testkit::gateway::Setup;
use serde_json::json;

use self::external_client::{ExternalSession, is_asking, play_all, speaks, state_in};
use crate::asking::{Answer, By};
use crate::client::{message_in, message_on, within};
use crate::frames::{self, explanation, nth_text, state, state_of, task_id};
use crate::harness::{Harness, LONGSHORE, context};
use crate::upstream::Agreement;

#[tokio::test(flavor = "multi_thread")]
async fn turns_of_other_clients_become_tasks_with_their_streams_and_asks() {
    // OpenCode runs many turns at once here, so an abort may take long. An abort that timed out would leave its ask open.
    let setup = Setup::demo(LONGSHORE).env("A2A_CANCEL_ABORT_TIMEOUT_SECONDS", "30");
    let harness = Harness::start(setup).await;
    // The first turn of an OpenCode takes seconds, and blocks every other turn.
    harness.play("scn:text n=1").await;
    let mut scenarios: Vec<LocalBoxFuture<'_, ()>> = Vec::new();
    // One way to speak each protocol version; `long_the_tasks_look_alike_in_every_binding` has the others.
    for speaker in [ClientProtocol::ALL[0], ClientProtocol::ALL[3]] {
        scenarios.push(Box::pin(shown_and_answered(&harness, speaker)));
    }
    scenarios.push(Box::pin(prompt_during_a_turn(&harness)));
    scenarios.push(Box::pin(prompt_during_an_ask(&harness)));
    scenarios.push(Box::pin(canceled(&harness)));
    scenarios.push(Box::pin(cancel_during_an_ask(&harness)));
    scenarios.push(Box::pin(prompt_before_a_message(&harness)));
    scenarios.push(Box::pin(prompt_for_a_sub_agent(&harness)));
    scenarios.push(Box::pin(prompt_for_an_unknown_model(&harness)));
    play_all(scenarios).await;
    harness.assert_no_open_asks("after all scenarios").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_the_tasks_look_alike_in_every_binding() {
    let harness = Harness::demo().await;
    harness.play("scn:text n=1").await;
    play_all(
        ClientProtocol::ALL
            .map(|speaker| Box::pin(shown_and_answered(&harness, speaker)) as LocalBoxFuture<'_, ()>)
            .into(),
    )
    .await;
    harness.assert_no_open_asks("after all scenarios").await;
}

/// From the list of tasks to the stream, the ask and the answer, in one version and binding.
async fn shown_and_answered(harness: &Harness, speaker: ClientProtocol) {
    let name = speaker.name();
    let external = ExternalSession::open(harness, name).await;
    let made = name.replace(' ', "-");
    let prompt = format!(
        "scn:bash cmd=\"touch {made}\" ttft=2500 scn:text n=3 text=\"It is there now.\" (typed for {name})"
    );
    let external_turn = external.type_prompt(&prompt).await;

    // The task is WORKING when it appears, in either version, and belongs to this context.
    let task = external.wait_for_newest_of(2).await;
    assert_eq!(state_of(&task), "WORKING", "{name}: {task:#}");
    let id = task["id"].as_str().expect("a task has an id");
    assert_eq!(task["history"][0]["messageId"], external_turn, "{name}: {task:#}");
    assert_eq!(task["history"][0]["parts"][0]["text"], prompt, "{name}: {task:#}");
    let listed = external.listed_by(speaker).await;
    let found = listed.iter().find(|listed| listed["id"] == id);
    let found = found.unwrap_or_else(|| panic!("{name}: it is not in {listed:#?}"));
    assert_eq!(state_in(found), "WORKING", "{name}: {found:#}");

    let client = speaks(harness, speaker);
    let subscribe = speaker.subscribe(id);
    let stream = client.rest_stream(subscribe.verb, &subscribe.path, subscribe.body.as_ref(), None);
    let mut stream = within(name, stream).await.unwrap_or_else(|refused| panic!("{name}: {refused:?}"));
    let mut reported = Vec::new();
    while reported.last().is_none_or(|reported| !is_asking(reported)) {
        let frame = within(name, stream.next()).await;
        let frame = frame.unwrap_or_else(|| panic!("{name}: the stream ended before the ask: {reported:#?}"));
        reported.push(frame.json);
    }
    let asked = reported.last().expect("a frame was found").to_string();
    assert!(asked.contains(&format!("touch {made}")), "{name}: the ask does not say what is asked: {asked}");
    assert!(
        !harness.gateway.workspace().join(&made).exists(),
        "{name}: the command ran before it was allowed"
    );

    let answer = speaker.message(&format!("answer-{made}"), "once", Some(id), None);
    let answer = speaker.send_and_wait(&answer);
    let answered = client.rest(answer.verb, &answer.path, answer.body.as_ref());
    let answered = within(name, answered).await;
    assert_eq!(answered.status, 200, "{name}: {answered:#?}");
    while let Some(frame) = within(name, stream.next()).await {
        reported.push(frame.json);
    }
    let states: Vec<String> = reported.iter().map(state_in).filter(|state| !state.is_empty()).collect();
    assert_eq!(states.last().map(String::as_str), Some("COMPLETED"), "{name}: {reported:#?}");
    assert!(
        reported.iter().any(|frame| frame.to_string().contains("It is there now.")),
        "{name}: {reported:#?}"
    );
    assert!(harness.gateway.workspace().join(&made).exists(), "{name}: what was allowed did not run");

    let played = external.finished(&prompt, id, Agreement::Whole).await;
    played.ended("COMPLETED", "").has(&[("tool:bash", "completed"), ("text", "It is there now.")]);
    // Progress repeats the same state.
    let mut states: Vec<&str> = played.frames.iter().filter_map(state).collect();
    states.dedup();
    assert_eq!(states, ["SUBMITTED", "WORKING", "INPUT_REQUIRED", "WORKING", "COMPLETED"], "{name}");

    // The next message of the context goes to the same session.
    let next = format!("scn:text n=1 (after {name})");
    let next = harness.play_message(&message_in(&external.context, &next), Agreement::Whole).await;
    next.ended("COMPLETED", "");
    assert_eq!(next.turn.session, external.session, "{name}: the conversation went to another session");
    external.assert_task_count(3).await;
    let by_session =
        external.listed_for(speaker, &format!("ctx:opencode-session:{}", external.session)).await;
    assert_eq!(
        by_session.len(),
        3,
        "{name}: the context id of the session lists other tasks: {by_session:#?}"
    );
}

/// The prompt arrives during a turn of the gateway. OpenCode answers it next, without becoming idle in between.
async fn prompt_during_a_turn(harness: &Harness) {
    let name = "typed in mid-turn";
    let external = ExternalSession::open(harness, name).await;
    let own = "scn:text n=60 delay=30 size=6 (ours, in which somebody types)";
    let mut stream = harness.client.stream(&message_in(&external.context, own)).await;
    let mut frames = stream.until("some texts", nth_text(5)).await;
    let prompt = "scn:bash cmd=\"touch mid-turn\" scn:text n=2 text=\"And now this.\" (typed in mid-turn)";
    external.type_prompt(prompt).await;
    frames.extend(stream.rest().await);
    let own = harness.check(own, frames, Agreement::Whole).await;
    own.ended("COMPLETED", "");
    assert_eq!(own.text().len(), 60 * 6, "{name}: ours has not its own text alone");

    let task = external.wait_for_newest_of(3).await;
    let id = task["id"].as_str().expect("a task has an id");
    assert_ne!(task["id"], own.task["id"], "{name}");
    let request = external.wait_for_ask(id).await;
    let answered = harness.answer_by_method(&request, Answer::Reply("once")).await;
    answered.unwrap_or_else(|error| panic!("{name}: {}", error.body));
    let external_turn = external.finished(prompt, id, Agreement::Whole).await;
    external_turn.ended("COMPLETED", "").has(&[("tool:bash", "completed"), ("text", "And now this.")]);
    external.assert_task_count(3).await;
}

/// An ask of the gateway's own turn stays with that turn.
async fn prompt_during_an_ask(harness: &Harness) {
    let name = "typed while ours asks";
    let external = ExternalSession::open(harness, name).await;
    let own = "scn:bash cmd=\"touch ours-asks\" scn:text n=1 text=\"Ours is done.\" (ours asks)";
    let mut asking = harness.until_asked(&message_in(&external.context, own)).await;
    let prompt = "scn:text n=2 text=\"Theirs is done.\" (typed while ours asks)";
    external.type_prompt(prompt).await;
    let request = external.wait_for_ask(&asking.task).await;
    harness.answer(&mut asking, &request, By::Words, Answer::Reply("once")).await;
    let task = external.wait_for_newest_of(3).await;
    let id = task["id"].as_str().expect("a task has an id").to_owned();
    let external_turn = external.finished(prompt, &id, Agreement::Whole).await;
    external_turn.ended("COMPLETED", "");
    assert_eq!(external_turn.last_text(), "Theirs is done.", "{name}");
    // OpenCode continues with the other prompt and drops the rest of the gateway's turn. The task says so.
    let ended = external.finished(own, &asking.task, Agreement::Whole).await;
    ended.ended("FAILED", "Another prompt in the same session made OpenCode drop the rest of this turn.");
    ended.has(&[("tool:bash", "completed")]);
    external.assert_task_count(3).await;
}

/// A cancel over A2A stops the turn in OpenCode, also if another client started it.
async fn canceled(harness: &Harness) {
    let name = "typed and canceled";
    let external = ExternalSession::open(harness, name).await;
    let prompt = "scn:forever (typed and canceled)";
    external.type_prompt(prompt).await;
    let task = external.wait_for_newest_of(2).await;
    let id = task["id"].as_str().expect("a task has an id");
    let mut stream = harness.client.subscribe(id).await;
    stream.until("some texts", nth_text(3)).await;
    let canceled = harness.client.cancel(id).await;
    let canceled = canceled.unwrap_or_else(|error| panic!("{name}: {}", error.body));
    assert_eq!(state_of(&canceled), "CANCELED", "{name}: {canceled:#}");
    let rest = stream.rest().await;
    assert_eq!(rest.last().and_then(state), Some("CANCELED"), "{name}: {rest:#?}");
    external.stopped(prompt, id).await;
    external.assert_task_count(2).await;
}

async fn cancel_during_an_ask(harness: &Harness) {
    let name = "typed and canceled while it asks";
    let external = ExternalSession::open(harness, name).await;
    let prompt = "scn:bash cmd=\"touch canceled-ask\" scn:text n=1 (typed, asks and is canceled)";
    external.type_prompt(prompt).await;
    let task = external.wait_for_newest_of(2).await;
    let id = task["id"].as_str().expect("a task has an id");
    let request = external.wait_for_ask(id).await;
    let canceled = harness.client.cancel(id).await;
    let canceled = canceled.unwrap_or_else(|error| panic!("{name}: {}", error.body));
    assert_eq!(state_of(&canceled), "CANCELED", "{name}: {canceled:#}");
    external.stopped(prompt, id).await;
    assert!(!harness.gateway.workspace().join("canceled-ask").exists(), "{name}: it ran all the same");
    harness.assert_ask_not_found(name, id, &request, Answer::Reply("once")).await;
    external.assert_task_count(2).await;
}

/// A message over A2A that arrives during an external turn waits for its end, and is answered once.
async fn prompt_before_a_message(harness: &Harness) {
    let name = "typed before a message of ours";
    let external = ExternalSession::open(harness, name).await;
    let prompt = "scn:bash cmd=\"touch theirs-first\" scn:text n=1 text=\"First.\" (typed before ours)";
    external.type_prompt(prompt).await;
    let theirs = external.wait_for_newest_of(2).await;
    let id = theirs["id"].as_str().expect("a task has an id");
    let request = external.wait_for_ask(id).await;
    let own = "scn:text n=1 text=\"Second.\" (ours behind it)";
    let sent = harness.client.submit(&message_in(&external.context, own)).await;
    let sent = sent["id"].as_str().expect("a task has an id");
    let waits = harness.client.get(sent).await;
    assert_eq!(state_of(&waits), "SUBMITTED", "{name}: {waits:#}");
    let answer = json!({"data": {"request_id": request, "reply": "once"}});
    let answered = harness.client.send(&message_on(id, &answer)).await;
    assert_eq!(state_of(&answered), "COMPLETED", "{name}: {answered:#}");
    external.finished(prompt, id, Agreement::Whole).await.ended("COMPLETED", "");
    let own = external.finished(own, sent, Agreement::Whole).await;
    own.ended("COMPLETED", "").has(&[("text", "Second.")]);
    external.assert_task_count(3).await;
}

/// An ask of a sub-agent belongs to the task of the sub-agent, which is a child of the task of the turn.
async fn prompt_for_a_sub_agent(harness: &Harness) {
    let name = "typed for a sub-agent";
    let external = ExternalSession::open(harness, name).await;
    let prompt = "scn:task desc=errand prompt=\"scn:bash cmd=\\\"touch errand\\\" scn:text n=1\" \
                  scn:text n=1 text=\"The errand is done.\" (typed for a sub-agent)";
    external.type_prompt(prompt).await;
    let task = external.wait_for_newest_of(2).await;
    let id = task["id"].as_str().expect("a task has an id").to_owned();
    let mut stream = harness.client.resume(&id, 0).await;
    let frames = stream.until("the ask", |frame| state(frame) == Some("INPUT_REQUIRED")).await;
    let asked = explanation(&frames.last().expect("a frame was found").json["statusUpdate"]).to_owned();
    assert!(asked.contains("touch errand"), "{name}: {asked:?}");
    let listed = harness.listed().await;
    let of_family = |ask: &&serde_json::Value| ask.to_string().contains("touch errand");
    let request = listed.iter().find(of_family).and_then(|ask| ask["request_id"].as_str());
    let request = request.unwrap_or_else(|| panic!("{name}: the ask is not in {listed:#?}"));
    let answered = harness.answer_by_method(request, Answer::Reply("once")).await;
    answered.unwrap_or_else(|error| panic!("{name}: {}", error.body));
    let rest = stream.rest().await;
    assert!(rest.last().is_some_and(frames::is_terminal), "{name}: {rest:#?}");
    assert_eq!(rest.last().map(task_id), Some(id.clone()), "{name}");
    let played = external.finished(prompt, &id, Agreement::Whole).await;
    played.ended("COMPLETED", "");
    assert_eq!(played.last_text(), "The errand is done.", "{name}");
    assert_eq!(context(&played), external.context, "{name}");
    external.wait_until_idle().await;
    external.assert_task_count(2).await;
}

/// OpenCode accepts the prompt and cannot answer it. The task says why.
async fn prompt_for_an_unknown_model(harness: &Harness) {
    let name = "typed for an unknown model";
    let external = ExternalSession::open(harness, name).await;
    let model = json!({"providerID": "demo", "modelID": "no-such-model"});
    let parts = json!([{"type": "text", "text": "scn:text n=1 (for an unknown model)"}]);
    external.post("prompt_async", &json!({"parts": parts, "model": model})).await;
    let task = external.wait_for_newest_of(2).await;
    let id = task["id"].as_str().expect("a task has an id");
    let frames = harness.client.resume(id, 0).await.rest().await;
    frames::check_log(name, &frames);
    let task = harness.client.get(id).await;
    assert_eq!(state_of(&task), "FAILED", "{name}: {task:#}");
    assert!(explanation(&task).contains("no-such-model"), "{name}: {task:#}");
    external.assert_task_count(2).await;
}
