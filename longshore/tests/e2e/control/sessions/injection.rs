//! Arguments of commands and prompts of sub-agents: no part of them runs in a shell, and no file outside the workspace is read, unless
//! the caller has the capability.
//!
//! OpenCode itself would run and read them without a permission request. Two canaries show it: a file that a shell would create, and
//! a word in a file outside the workspace that the model would receive.

use std::path::Path;

use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::caller::{CANARY, Caller, Kind};
use crate::control::fixture::{Fixture, OwnedSession};

const COMMAND: &str = "opencode.sessions.command";
const PROMPT: &str = "opencode.sessions.prompt_async";

/// The output of a shell that must not run.
const RAN: &str = "it-was-run-in-a-shell";

/// Commands whose template puts the argument into a shell, and into the name of a file.
fn commands(configuration: &mut Value) {
    configuration["command"]["runs"] = json!({"template": "scn:text n=1 (runs) !`echo $1`"});
    configuration["command"]["logs"] = json!({"template": "scn:text n=1 (logs) !`git log $ARGUMENTS`"});
    configuration["command"]["reads"] = json!({"template": "scn:text n=1 (reads) @$1"});
}

/// The canaries.
struct Canaries {
    /// The file that a shell would create in the workspace.
    made: std::path::PathBuf,
    /// A file outside of the workspace.
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
            assert!(
                !reported.contains(CANARY) && !reported.contains(RAN),
                "{about}: the model received {reported}"
            );
        }
    }
}

fn ordered(own: &OwnedSession, command: &str, arguments: &str) -> Value {
    json!({"session_id": own.session, "request": {"command": command, "arguments": arguments}})
}

#[tokio::test(flavor = "multi_thread")]
async fn long_arguments_of_commands_run_no_shell_and_read_no_outside_file() {
    let fixture =
        Fixture::prepared(&ProtocolVersion::ALL, |setup| setup.flag("--session-shell"), commands).await;
    let canaries = Canaries::new(&fixture);
    let (eves, bobs) = (
        fixture.session_of_eve("scn:text n=1 (of eve)").await,
        fixture.session_of_bob("scn:text n=1 (of bob)").await,
    );
    for eve in fixture.eve() {
        no_shell_runs_without_the_capability(&fixture, &canaries, &eve, &eves).await;
        no_outside_file_is_read(&fixture, &canaries, &eve, &eves).await;
        marks_in_plain_prompts_have_no_effect(&fixture, &canaries, &eve, &eves).await;
    }
    for bob in fixture.bob() {
        no_outside_file_is_read(&fixture, &canaries, &bob, &bobs).await;
    }
    // This scenario comes last: it sends the canary to the model.
    for bob in fixture.bob() {
        a_shell_runs_with_the_capability(&fixture, &canaries.made, &bob, &bobs).await;
    }
}

/// A model that does not take a file gets a description of it, which becomes part of the arguments.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_files_run_no_shell() {
    let fixture = Fixture::prepared(&[ProtocolVersion::V1], |setup| setup, commands).await;
    let (made, own) =
        (fixture.harness.gateway.workspace().join("pwned"), fixture.session("scn:text n=1").await);
    for name in ["$(touch pwned)", "x; touch pwned; echo"] {
        let file = json!({
            "type": "file", "mime": "application/octet-stream", "url": "data:application/octet-stream;base64,/wA=", "filename": name,
        });
        let request = json!({"command": "logs", "arguments": "", "parts": [file]});
        let params = json!({"session_id": own.session, "request": request});
        for ada in fixture.ada() {
            let refused = ada.call(COMMAND, params.clone()).await;
            assert!(!made.exists(), "{name}: the shell ran it");
            let refused = refused.expect_err(name);
            assert_eq!((refused.code, refused.fields), (-32602, vec!["request.parts".to_owned()]), "{name}");
        }
    }
}

async fn no_shell_runs_without_the_capability(
    fixture: &Fixture,
    canaries: &Canaries,
    eve: &Caller,
    own: &OwnedSession,
) {
    let before = fixture.content(&own.session).await;
    let run = format!("!`touch canary; echo {RAN}`");
    for (command, arguments) in [
        ("review", run.clone()),
        ("review", format!("scn:text n=1 {run} and more")),
        // A template could join the pieces.
        ("review", format!("`touch canary; echo {RAN}` !")),
        ("survey", run.clone()),
        ("runs", run),
    ] {
        let refusal = eve.refused(COMMAND, ordered(own, command, &arguments), Kind::UNAUTHORIZED).await;
        assert_eq!(refusal.detail("capability"), "session_shell", "{:#}", refusal.body);
        canaries.assert_untouched(fixture, &arguments);
    }
    // The template itself runs a shell here, so every argument is refused.
    for arguments in
        [RAN.to_owned(), format!("\"x; touch canary; echo {RAN}\""), "$(touch canary)".to_owned()]
    {
        eve.invalid(COMMAND, ordered(own, "runs", &arguments), "request.arguments").await;
        canaries.assert_untouched(fixture, &arguments);
    }
    assert_eq!(fixture.content(&own.session).await, before, "something was said");
}

async fn no_outside_file_is_read(
    fixture: &Fixture,
    canaries: &Canaries,
    caller: &Caller,
    own: &OwnedSession,
) {
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

/// In a plain prompt, and in the name of a file, these marks have no meaning.
async fn marks_in_plain_prompts_have_no_effect(
    fixture: &Fixture,
    canaries: &Canaries,
    eve: &Caller,
    own: &OwnedSession,
) {
    let marks = format!("!`touch canary` @{}", canaries.secret);
    let text =
        json!({"type": "text", "text": format!("scn:text n=1 (words {}) {marks}", eve.version.as_str())});
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

async fn a_shell_runs_with_the_capability(fixture: &Fixture, made: &Path, bob: &Caller, own: &OwnedSession) {
    let mark = format!("(bob {})", bob.version.as_str());
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
