//! What callers give to commands and sub-agents: nothing of it is run, and no file elsewhere is read, unless the caller may.
//!
//! OpenCode itself would run and read it, and asks nobody. Two canaries tell: a file that a shell would make, and a word in a file
//! outside the workspace that the model would be told.

use std::path::Path;

use serde_json::{Value, json};

use crate::control::caller::{CANARY, Caller, Kind};
use crate::control::fixture::{OwnedSession, Fixture};

const COMMAND: &str = "opencode.sessions.command";
const PROMPT: &str = "opencode.sessions.prompt_async";

/// What a shell would say.
const RAN: &str = "it-was-run-in-a-shell";

/// Commands that put what they are given into a shell, and into the name of a file.
fn commands(configuration: &mut Value) {
    configuration["command"]["runs"] = json!({"template": "scn:text n=1 (runs) !`echo $1`"});
    configuration["command"]["reads"] = json!({"template": "scn:text n=1 (reads) @$1"});
}

/// The canaries.
struct Canaries {
    /// What a shell would make in the workspace.
    made: std::path::PathBuf,
    /// Outside of the workspace.
    secret: String,
    _outside: tempfile::TempDir,
}

impl Canaries {
    fn new(fixture: &Fixture) -> Self {
        let outside = tempfile::tempdir().expect("there is a disk");
        let secret = outside.path().canonicalize().expect("it is there").join("secret.txt");
        std::fs::write(&secret, CANARY).expect("it can be written");
        let secret = secret.to_str().expect("a path of a test is text").to_owned();
        Self { made: fixture.harness.gateway.workspace().join("canary"), secret, _outside: outside }
    }

    fn assert_untouched(&self, fixture: &Fixture, about: &str) {
        assert!(!self.made.exists(), "{about}: something was run");
        for asked in fixture.model.journal().entries() {
            let reported = format!("{asked:?}");
            assert!(!reported.contains(CANARY) && !reported.contains(RAN), "{about}: the model was told {reported}");
        }
    }
}

fn ordered(own: &OwnedSession, command: &str, arguments: &str) -> Value {
    json!({"session_id": own.session, "request": {"command": command, "arguments": arguments}})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_callers_give_to_commands_is_neither_run_nor_read_from_elsewhere() {
    let fixture = Fixture::prepared(|setup| setup.flag("--session-shell"), commands).await;
    let canaries = Canaries::new(&fixture);
    let (eves, bobs) = (
        fixture.session_of_eve("scn:text n=1 (of eve)").await,
        fixture.session_of_bob("scn:text n=1 (of bob)").await,
    );
    for eve in fixture.eve() {
        nothing_is_run_for_one_who_may_not(&fixture, &canaries, &eve, &eves).await;
        nothing_elsewhere_is_read(&fixture, &canaries, &eve, &eves).await;
        words_are_only_words(&fixture, &canaries, &eve, &eves).await;
    }
    for bob in fixture.bob() {
        nothing_elsewhere_is_read(&fixture, &canaries, &bob, &bobs).await;
    }
    // The last, for from here on the model has been told.
    for bob in fixture.bob() {
        one_who_may_has_it_as_opencode_has_it(&fixture, &canaries.made, &bob, &bobs).await;
    }
}

async fn nothing_is_run_for_one_who_may_not(fixture: &Fixture, canaries: &Canaries, eve: &Caller, own: &OwnedSession) {
    let before = fixture.content(&own.session).await;
    let run = format!("!`touch canary; echo {RAN}`");
    for (command, arguments) in [
        ("review", run.clone()),
        ("review", format!("scn:text n=1 {run} and more")),
        // A template could put the pieces together.
        ("review", format!("`touch canary; echo {RAN}` !")),
        ("survey", run.clone()),
        ("runs", run),
    ] {
        let refusal = eve.refused(COMMAND, ordered(own, command, &arguments), Kind::UNAUTHORIZED).await;
        assert_eq!(refusal.detail("capability"), "session_shell", "{:#}", refusal.body);
        canaries.assert_untouched(fixture, &arguments);
    }
    // Here the template brings the shell, and the arguments need no mark.
    for arguments in
        [RAN.to_owned(), format!("\"x; touch canary; echo {RAN}\""), "$(touch canary)".to_owned()]
    {
        eve.invalid(COMMAND, ordered(own, "runs", &arguments), "request.arguments").await;
        canaries.assert_untouched(fixture, &arguments);
    }
    assert_eq!(fixture.content(&own.session).await, before, "something was said");
}

async fn nothing_elsewhere_is_read(fixture: &Fixture, canaries: &Canaries, caller: &Caller, own: &OwnedSession) {
    let before = fixture.content(&own.session).await;
    let secret = canaries.secret.as_str();
    for (command, arguments) in [
        ("review", format!("scn:text n=1 @{secret}")),
        ("review", format!("(@{secret}).")),
        ("survey", format!("scn:text n=1 @{secret}")),
        ("reads", secret.to_owned()),
        ("reads", format!("'{secret}'")),
        ("reads", "../../../../../../etc/hostname".to_owned()),
        ("reads", "~/.profile".to_owned()),
    ] {
        caller.invalid(COMMAND, ordered(own, command, &arguments), "request.arguments").await;
        canaries.assert_untouched(fixture, &arguments);
    }
    let errand = json!({"type": "subtask", "prompt": format!("scn:text n=1 @{secret}"), "description": "d", "agent": "general"});
    let file = json!({"type": "file", "mime": "text/plain", "url": format!("file://{secret}")});
    for (part, field) in [(errand, "request.parts[0].prompt"), (file, "request.parts[0]")] {
        let params = json!({"session_id": own.session, "request": {"parts": [part]}});
        caller.invalid(PROMPT, params, field).await;
    }
    canaries.assert_untouched(fixture, "a prompt");
    assert_eq!(fixture.content(&own.session).await, before, "something was said");
}

/// In a plain prompt, and in the name of a file, nothing is a mark.
async fn words_are_only_words(fixture: &Fixture, canaries: &Canaries, eve: &Caller, own: &OwnedSession) {
    let marks = format!("!`touch canary` @{}", canaries.secret);
    let text =
        json!({"type": "text", "text": format!("scn:text n=1 (words {}) {marks}", eve.line.version())});
    let file = json!({"type": "file", "mime": "text/plain", "url": "data:text/plain;base64,cm9wZQo=", "filename": marks});
    let errand = json!({
        "type": "subtask", "prompt": "scn:text n=1 !`touch canary`", "description": "an errand", "agent": "general",
    });
    for part in [text, file, errand] {
        let params = json!({"session_id": own.session, "request": {"parts": [part]}});
        let begun = eve.result(PROMPT, params).await;
        let task = begun["task_id"].as_str().unwrap_or_else(|| panic!("no task: {begun:#}"));
        fixture.client_of_eve().resume(task, 0).await.rest().await;
        fixture.idle().await;
        canaries.assert_untouched(fixture, &part.to_string());
    }
}

async fn one_who_may_has_it_as_opencode_has_it(fixture: &Fixture, made: &Path, bob: &Caller, own: &OwnedSession) {
    let mark = format!("(bob {})", bob.line.version());
    let run = format!("scn:text text=\"Reviewed.\" {mark} !`touch canary; echo {RAN}`");
    let reported = bob.result(COMMAND, ordered(own, "review", &run)).await;
    assert_eq!(reported["item"]["parts"][0]["text"], "Reviewed.", "{reported:#}");
    assert!(made.exists(), "nothing was run");
    std::fs::remove_file(made).expect("it is there");
    let turns = fixture.model.journal().turns();
    let asked = turns.iter().rfind(|asked| asked.prompt.contains(&mark)).expect("the model was asked");
    assert!(asked.prompt.contains(RAN) && !asked.prompt.contains("touch"), "{}", asked.prompt);

    bob.result(COMMAND, ordered(own, "runs", RAN)).await;
    let turns = fixture.model.journal().turns();
    let asked = turns.iter().rfind(|asked| asked.prompt.contains("(runs)")).expect("the model was asked");
    assert!(asked.prompt.contains(RAN) && !asked.prompt.contains("echo"), "{}", asked.prompt);
}
