//! OpenCode dies during a change. Nobody knows how far the change came, so the error suggests no retry.

use longshore_testkit::gateway::{is_alive, kill, until};
use longshore_wire::surface::ProtocolVersion;
use serde_json::json;

use crate::client::PATIENCE;
use crate::control::caller::Kind;
use crate::control::fixture::Fixture;

const SHELL: &str = "opencode.sessions.shell";

#[tokio::test(flavor = "multi_thread")]
async fn long_a_shell_command_may_have_run_when_opencode_died() {
    let mut fixture = Fixture::start(&ProtocolVersion::ALL, &["--session-shell"]).await;
    for number in 0..ProtocolVersion::ALL.len() {
        let own = fixture.session(&format!("scn:text n=1 (cut off {number})")).await;
        let ada = &fixture.ada()[number];
        // The command ends by itself, though no process waits for it any more.
        let command = format!("touch begun-{number}.txt; sleep 5");
        let params = json!({"session_id": own.session, "request": {"agent": "build", "command": command}});
        let begun = fixture.harness.gateway.workspace().join(format!("begun-{number}.txt"));
        let pid = fixture.harness.opencode.pid();
        let dies = async {
            until(PATIENCE, "the shell runs", || begun.exists()).await;
            kill(pid);
            until(PATIENCE, "OpenCode is gone", || !is_alive(pid)).await;
        };
        let (refusal, ()) = tokio::join!(ada.refused(SHELL, params, Kind::UNREACHABLE), dies);
        refusal.assert_says("may have been done");
        assert!(refusal.detail("retry_after_seconds").is_null(), "{:#}", refusal.body);
        assert_eq!(refusal.detail("session_id"), own.session.as_str(), "{:#}", refusal.body);
        fixture.harness.until_opencode_is_back(pid).await;
    }
}
