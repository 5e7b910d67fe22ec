//! Permissions: given once or for always, refused with and without a reason, by each way of answering.

use crate::asking::{Answer, By};
use crate::client::{message, message_on};
use crate::harness::Harness;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn permissions_are_given_and_refused() {
    let harness = Harness::demo().await;
    let made = |file: &str| harness.gateway.workspace().join(file).exists();
    for by in By::ALL {
        // The rules of the demo's configuration ask before `touch`.
        let (once, rejected, instead) =
            (format!("once-{by:?}"), format!("rejected-{by:?}"), format!("not-{by:?}"));
        let touch = |file: &str| format!("scn:bash cmd=\"touch {file}\" scn:text n=2");
        let asks = |file: &str| format!("The agent asks for permission to run: touch {file}");

        let played = harness.play_asking(&touch(&once), by, &[(&asks(&once), Answer::Reply("once"))]).await;
        played.ended("COMPLETED", "").has(&[("tool:bash", "completed"), ("text", "anchor  ballast ")]);
        assert!(made(&once), "{by:?}: the command that was allowed did not run");

        let reject = Answer::Reply("reject");
        let played = harness.play_asking(&touch(&rejected), by, &[(&asks(&rejected), reject)]).await;
        played.ended("FAILED", "rejected permission").has(&[("tool:bash", "error")]);

        let reject = Answer::RejectBecause("list the files instead");
        let played = harness.play_asking(&touch(&instead), by, &[(&asks(&instead), reject)]).await;
        played.ended("COMPLETED", "").has(&[("tool:bash", "error"), ("text", "anchor  ballast ")]);
        let told = played.call("bash")["error"].as_str().unwrap_or_default().to_owned();
        assert!(told.contains("list the files instead"), "{by:?}: the agent was told {told:?}");
        assert!(!made(&rejected) && !made(&instead), "{by:?}: a command ran that was refused");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_asked_for_and_asks_come_in_pairs() {
    let harness = Harness::demo().await;
    let workspace = harness.gateway.workspace().canonicalize().unwrap();
    for by in By::ALL {
        let guarded = format!("guarded-{by:?}.txt");
        let prompt = format!("scn:write path={guarded} content=\"kept\\n\" scn:text n=2");
        let asked = format!("asks for permission to edit: {guarded}");
        let played = harness.play_asking(&prompt, by, &[(&asked, Answer::Reply("once"))]).await;
        played.ended("COMPLETED", "").has(&[("tool:write", "completed"), ("text", "anchor  ballast ")]);
        let written = std::fs::read_to_string(workspace.join(&guarded)).unwrap_or_default();
        assert_eq!(written, "kept\n", "{by:?}: the guarded file");

        let outside = workspace.with_file_name(format!("outside-{by:?}"));
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("log.txt"), "seen from afar\n").unwrap();
        let prompt = format!("scn:read path=\"{}\" scn:text n=2", outside.join("log.txt").display());
        let asked = "asks for permission to work outside its directory";
        let played = harness.play_asking(&prompt, by, &[(asked, Answer::Reply("once"))]).await;
        played.ended("COMPLETED", "").has(&[("tool:read", "completed"), ("text", "anchor  ballast ")]);
        let read = played.call("read")["output"].as_str().unwrap_or_default().to_owned();
        assert!(read.contains("seen from afar"), "{by:?}: {read:?}");
    }
    for by in [By::Method, By::Data] {
        pair(&harness, by).await;
    }
    // One that is refused takes the other with it.
    let prompt = "scn:pair a=\"rm -f one\" b=\"rm -f two\" scn:text n=1";
    let mut asking = harness.until_asked(&message(prompt)).await;
    let requests = harness.open_asks(&asking.task, 2).await;
    harness.answer(&mut asking, &requests[1], By::Data, Answer::Reply("reject")).await;
    let played = harness.finished(prompt, &asking.task).await;
    played.ended("FAILED", "rejected permission").has(&[("tool:bash", "error"), ("tool:bash", "error")]);

    // What is allowed for always is not asked again.
    for (by, command) in [(By::Method, "touch"), (By::Words, "rm -f")] {
        let prompt = format!("scn:bash cmd=\"{command} a\" scn:bash cmd=\"{command} b\" scn:text n=2");
        let asked = format!("run: {command} a");
        let played = harness.play_asking(&prompt, by, &[(&asked, Answer::Reply("always"))]).await;
        played.ended("COMPLETED", "").has(&[
            ("tool:bash", "completed"),
            ("tool:bash", "completed"),
            ("text", "anchor  ballast "),
        ]);
    }
}

/// Two asks at once, answered one by one, the second first.
async fn pair(harness: &Harness, by: By) {
    let prompt = format!("scn:pair a=\"touch port-{by:?}\" b=\"touch starboard-{by:?}\" scn:text n=2");
    let mut asking = harness.until_asked(&message(&prompt)).await;
    let requests = harness.open_asks(&asking.task, 2).await;

    // A word alone does not say which is meant; what is open is listed.
    let unclear = json!({"message": message_on(&asking.task, &json!({"text": "once"}))});
    let refused = harness.client.try_call("SendMessage", unclear).await.expect_err("which is meant?");
    assert_eq!(refused.code, -32602, "{}", refused.body);
    for request in &requests {
        assert!(refused.body.to_string().contains(request), "{request} is not named in {}", refused.body);
    }

    let task = harness.answer(&mut asking, &requests[1], by, Answer::Reply("once")).await;
    let told = crate::frames::explanation(&task);
    assert!(told.contains("touch port"), "{by:?}: the other is still asked for: {told:?}");
    assert_eq!(harness.open_asks(&asking.task, 1).await, requests[..1]);
    harness.answer(&mut asking, &requests[0], by, Answer::Reply("once")).await;
    let played = harness.finished(&prompt, &asking.task).await;
    played.ended("COMPLETED", "").has(&[
        ("tool:bash", "completed"),
        ("tool:bash", "completed"),
        ("text", "anchor  ballast "),
    ]);
}
