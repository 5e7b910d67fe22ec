//! Peculiarities of OpenCode, one test each. The numbers are those of the list of pitfalls in the notes on OpenCode
//! 1.18.33. Pitfalls that need a process, an answered ask or another API are tested elsewhere.

use longshore_testkit::fake_opencode::{Cut, CutKind, Fault, Gate, Play, Tool, Turn};
use longshore_testkit::raw::message;
use serde_json::json;

use crate::replay::fixture::{Fixture, check, open};

/// 2: idle comes before the message is final, and again after it.
#[tokio::test]
async fn idle_twice_and_before_the_message_is_final() {
    let fixture = Fixture::new().await;
    let gate = Gate::new();
    fixture.fake.play(&Play::new("bad_json").hold_after("session.idle", 1, &gate));
    let stream = fixture.open("go").await;
    let late = async {
        gate.reached().await;
        // The gateway checks whether the turn has ended, and OpenCode has not stored its end yet.
        fixture.fake.wait_for_request("GET", "/message", 1).await;
        gate.open();
    };
    let (frames, ()) = tokio::join!(stream.all(), late);
    let seen = check(fixture.client(), frames).await;
    assert_eq!((seen.state(), seen.text().as_str()), ("FAILED", "alpha b bravo c "));
    assert!(seen.reason().contains("JSON parsing failed"), "{}", seen.reason());
}

/// 2: events come after idle, and the next turn does not treat them as its own.
#[tokio::test]
async fn late_events_of_a_turn_do_not_reach_the_next_one() {
    let fixture = Fixture::new().await;
    let gate = Gate::new();
    fixture.fake.play(
        &Play::new("abort_stream").foreign_aborts().hold_after("session.idle", 1, &gate).only_prompts(&[0]),
    );
    let first = fixture.send("go").await;
    assert_eq!(first.state(), "CANCELED");
    let late = async {
        fixture.fake.wait_for_request("POST", "/prompt_async", 2).await;
        gate.open();
    };
    let (second, ()) = tokio::join!(fixture.send_in(Some(first.context()), "message-2", "again"), late);
    assert_eq!((second.state(), second.text().as_str()), ("COMPLETED", "unscripted"), "{}", second.reason());
}

/// 3: the gateway reads the event stream of one directory and fills gaps from the lists; it never uses the global
/// stream, which loses events.
#[tokio::test]
async fn events_are_read_per_directory_and_a_reconnect_reads_all_lists_again() {
    let fixture = Fixture::new().await;
    let gate = Gate::new();
    fixture.fake.queue(Turn::new().text("alpha bravo ", 4).hold(&gate).text("charlie", 2));
    fixture.fake.cut_events(Cut { after: 8, how: CutKind::CleanEnd, lose: 0 });
    let stream = fixture.open("go").await;
    let asked = async {
        gate.reached().await;
        fixture.fake.wait_for_streams(2).await;
        for path in ["/session/status", "/message", "/permission", "/question"] {
            fixture.fake.wait_for_request("GET", path, 1).await;
        }
        gate.open();
    };
    let (frames, ()) = tokio::join!(stream.all(), asked);
    let seen = check(fixture.client(), frames).await;
    assert_eq!((seen.state(), seen.text().as_str()), ("COMPLETED", "alpha bravo charlie"));
    let log = fixture.fake.log();
    assert!(log.iter().all(|request| request.path != "/global/event"));
    assert!(
        log.iter()
            .filter(|request| request.path == "/event")
            .all(|request| request.directory == fixture.fake.directory())
    );
}

/// 4: text that was streamed during a gap can be read only when its part ends; then it is complete and in order.
#[tokio::test]
async fn text_that_was_streamed_during_a_gap_arrives_when_its_part_ends() {
    let fixture = Fixture::new().await;
    fixture.fake.queue(Turn::new().text("alpha bravo charlie delta echo foxtrot", 12));
    // Seven events come before the first delta; three deltas arrive, four are lost, five arrive.
    fixture.fake.cut_events(Cut { after: 10, how: CutKind::Reset, lose: 4 });
    let seen = fixture.send("go").await;
    assert_eq!((seen.state(), seen.text().as_str()), ("COMPLETED", "alpha bravo charlie delta echo foxtrot"));
}

/// 5: the text of a failed attempt stays in the message of OpenCode; the client gets an update that withdraws it.
#[tokio::test]
async fn the_text_of_a_failed_attempt_is_withdrawn() {
    let fixture = Fixture::new().await;
    fixture.fake.queue(Turn::new().abandoned("half an answ", 3).text("a whole answer", 3));
    let seen = fixture.send("go").await;
    assert_eq!((seen.state(), seen.text().as_str()), ("COMPLETED", "a whole answer"));
    let withdrawn =
        seen.frames.iter().map(|frame| &frame.json["artifactUpdate"]).filter(|update| {
            update["append"] != true && update["artifact"]["parts"] == json!([{"text": ""}])
        });
    assert_eq!(withdrawn.count(), 1);
}

/// 6: after replies without a finish reason OpenCode asks the model again for ever; the gateway stops it.
#[tokio::test]
async fn a_runaway_loop_is_stopped() {
    let fixture = Fixture::new().await;
    let steps =
        (0..40).fold(Turn::new(), |turn, step| turn.text(&format!("again {step} "), 1).step("unknown"));
    fixture.fake.queue(steps.silence());
    let seen = fixture.send("go").await;
    assert_eq!(seen.state(), "FAILED");
    assert!(seen.reason().contains("without a finish reason again and again"), "{}", seen.reason());
    fixture.fake.wait_for_request("POST", "/abort", 1).await;
}

/// 8: an ask that an abort left in the list of OpenCode is not treated as one of the next turn.
#[tokio::test]
async fn an_ask_that_an_abort_left_behind_is_not_asked_again() {
    let fixture = Fixture::new().await;
    fixture.fake.queue(Turn::new().guarded_tool(Tool::bash("rm x", "")));
    let asked = fixture.send_until_asked("go").await;
    fixture.client().rpc("CancelTask", json!({"id": asked["id"]})).await.result();
    fixture.fake.wait_until_idle().await;
    fixture.fake.queue(Turn::new().text("alpha bravo", 6));
    // The gap makes the gateway read the lists of open asks during the second turn.
    fixture.fake.cut_events(Cut { after: 8, how: CutKind::CleanEnd, lose: 0 });
    let next = fixture.send_in(asked["contextId"].as_str(), "message-2", "again").await;
    assert_eq!((next.state(), next.text().as_str()), ("COMPLETED", "alpha bravo"), "{}", next.reason());
}

/// 10: another client disposes the instance: turns are aborted, `/event` ends, and the next turn works.
#[tokio::test]
async fn a_disposed_instance_cancels_the_turn_and_is_used_again() {
    let fixture = Fixture::new().await;
    let gate = Gate::new();
    fixture.fake.queue(Turn::new().text("alpha ", 1).hold(&gate));
    let stream = fixture.open("go").await;
    let disposing = async {
        gate.reached().await;
        fixture.fake.dispose_instance().await;
    };
    let (frames, ()) = tokio::join!(stream.all(), disposing);
    let seen = check(fixture.client(), frames).await;
    assert_eq!((seen.state(), seen.text().as_str()), ("CANCELED", "alpha "));
    gate.open();
    fixture.fake.wait_until_idle().await;
    let next = fixture.send_in(Some(seen.context()), "message-2", "again").await;
    assert_eq!(next.state(), "COMPLETED", "{}", next.reason());
}

/// 11: OpenCode answers only the last of several prompts, so the gateway sends one at a time, in order.
#[tokio::test]
async fn two_messages_in_one_context_are_two_turns_one_after_the_other() {
    let fixture = Fixture::new().await;
    let gate = Gate::new();
    fixture.fake.queue(Turn::new().text("first", 1).hold(&gate));
    fixture.fake.queue(Turn::new().text("second", 1));
    let mut first = fixture.open("one").await;
    let task = first.next().await.expect("the task");
    gate.reached().await;
    let mut params = message("message-2", "two");
    params["message"]["contextId"] = task.json["task"]["contextId"].clone();
    let mut second = open(fixture.client(), &params).await;
    let waiting = second.next().await.expect("the task");
    assert_eq!(waiting.json["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
    assert_eq!(fixture.fake.prompts().len(), 1, "the second message waits");
    gate.open();
    let first = [vec![task], first.all().await].concat();
    let second = [vec![waiting], second.all().await].concat();
    assert_eq!(check(fixture.client(), first).await.text(), "first");
    assert_eq!(check(fixture.client(), second).await.text(), "second");
    let prompts = fixture.fake.prompts();
    let texts: Vec<_> = prompts.iter().map(|prompt| prompt.body["parts"][0]["text"].as_str()).collect();
    assert_eq!(texts, [Some("one"), Some("two")]);
    assert!(prompts.iter().all(|prompt| !prompt.while_busy), "a prompt came during a turn");
}

/// 11: a turn of another client in the same session is not treated as a turn of the gateway.
#[tokio::test]
async fn replies_to_a_prompt_of_another_client_are_ignored() {
    let fixture = Fixture::new().await;
    let gate = Gate::new();
    fixture.fake.queue(Turn::new().text("ours", 1).hold(&gate));
    let stream = fixture.open("go").await;
    let meddling = async {
        gate.reached().await;
        let session = fixture.fake.sessions()[0].clone();
        let stranger = json!({"id": "msg_ffffffffffff00000000000001", "sessionID": session, "role": "user", "time": {"created": 1}});
        fixture.fake.emit("message.updated", json!({"sessionID": session, "info": stranger})).await;
        let reply = json!({
            "id": "msg_ffffffffffff00000000000002", "sessionID": session, "role": "assistant",
            "parentID": "msg_ffffffffffff00000000000001", "time": {"created": 2},
        });
        fixture.fake.emit("message.updated", json!({"sessionID": session, "info": reply})).await;
        let part = json!({
            "id": "prt_ffffffffffff00000000000003", "sessionID": session, "messageID": reply["id"], "type": "text",
            "text": "theirs", "time": {"start": 1, "end": 2},
        });
        fixture.fake.emit("message.part.updated", json!({"sessionID": session, "part": part})).await;
        gate.open();
    };
    let (frames, ()) = tokio::join!(stream.all(), meddling);
    let seen = check(fixture.client(), frames).await;
    assert_eq!(seen.text(), "ours");
}

/// 13: errors of OpenCode contain the address, headers and body of the provider; the gateway removes them.
#[tokio::test]
async fn secrets_in_provider_errors_are_removed() {
    let fixture = Fixture::new().await;
    let data = json!({
        "message": "no credit for key sk-proj-4242424242424242424242 at https://provider.example/v1/chat?key=hunter2 \
                    (from /home/user/.config/opencode/auth.json)",
        "statusCode": 402, "isRetryable": false, "responseHeaders": {"set-cookie": "session=cookie-secret"},
        "responseBody": "{\"detail\":\"body-secret\"}", "metadata": {"url": "https://provider.example/v1"},
    });
    fixture.fake.queue(Turn::new().error("APIError", &data));
    let seen = fixture.send("go").await;
    assert_eq!(seen.state(), "FAILED");
    let reported = seen.task.to_string();
    for secret in ["sk-proj-42", "hunter2", "provider.example", "cookie-secret", "body-secret", "/home/user"]
    {
        assert!(!reported.contains(secret), "{secret} in {reported}");
    }
    assert!(seen.reason().contains("402"), "{}", seen.reason());
}

/// 14: the gateway reads the stream even while no client reads, so the memory of OpenCode does not grow.
#[tokio::test]
async fn the_event_stream_is_drained_while_the_client_does_not_read() {
    let fixture = Fixture::new().await;
    let text: Vec<String> = (0..4_000).map(|word| format!("word {word} of many ").repeat(5)).collect();
    fixture.fake.queue(Turn::new().deltas(text.clone()));
    // This client opens a stream and does not read it.
    let stalled = fixture.open("go").await;
    fixture.fake.wait_for_request("POST", "/prompt_async", 1).await;
    fixture.fake.wait_until_idle().await;
    let seen = check(fixture.client(), stalled.all().await).await;
    assert_eq!((seen.state(), seen.text()), ("COMPLETED", text.concat()));
}

/// 15: a prompt for JSON breaks the message list of its session for good; turns there still work and end.
#[tokio::test]
async fn a_session_without_a_readable_message_list_still_works() {
    let fixture = Fixture::new().await;
    fixture.fake.fault_always("GET", "/message", Fault::Status(400));
    fixture.fake.queue(Turn::new().text("alpha bravo charlie", 6));
    let whole = fixture.send("go").await;
    assert_eq!((whole.state(), whole.text().as_str()), ("COMPLETED", "alpha bravo charlie"));
    fixture.fake.queue(Turn::new().text("alpha bravo charlie", 6));
    fixture.fake.cut_events(Cut { after: 10, how: CutKind::Reset, lose: usize::MAX });
    let lost = fixture.send_in(Some(whole.context()), "message-2", "go").await;
    assert_eq!(lost.state(), "FAILED");
    assert!(lost.reason().contains("it is not known how the turn ended"), "{}", lost.reason());
}

/// 17: only ids in the format of OpenCode are put into a path, so a wrong one never causes a 500 of OpenCode.
#[tokio::test]
async fn an_invalid_session_id_never_reaches_opencode() {
    let fixture = Fixture::new().await;
    for (number, id) in ["abc", "msg_0123456789ab", "ses/../x", "status"].into_iter().enumerate() {
        let mut params = message(&format!("message-{number}"), "go");
        params["metadata"] = json!({"shared": {"session": {"id": id}}});
        let answer = fixture.client_with_extensions().rpc("SendMessage", params).await;
        assert_eq!(answer.body["error"]["code"], -32602, "{id}: {}", answer.body);
    }
    assert_eq!(fixture.fake.log(), [], "OpenCode is not asked");
}

/// 18: a directory without a repository has no snapshots and no diffs, and a turn needs none.
#[tokio::test]
async fn a_turn_works_outside_a_git_repository() {
    let fixture = Fixture::new().await;
    assert!(fixture.fake.workspace().ancestors().all(|directory| !directory.join(".git").exists()));
    fixture.fake.queue(Turn::new().tool(Tool::bash("ls", "x\n")).text("alpha", 1));
    let seen = fixture.send("go").await;
    assert_eq!((seen.state(), seen.text().as_str()), ("COMPLETED", "alpha"), "{}", seen.reason());
}
