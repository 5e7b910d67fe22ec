//! OpenCode dies in the middle of a change: nobody knows how far it came, and the caller is not told to do it again.

use longshore_testkit::gateway::{is_alive, kill, until};
use serde_json::json;

use crate::client::PATIENCE;
use crate::control::caller::{Kind, ProtocolVersion};
use crate::control::fixture::Fixture;

const SHELL: &str = "opencode.sessions.shell";

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_that_opencode_did_not_survive_may_have_run() {
    let mut fixture = Fixture::start(&["--session-shell"]).await;
    for number in 0..ProtocolVersion::ALL.len() {
        let own = fixture.session(&format!("scn:text n=1 (cut off {number})")).await;
        let ada = &fixture.ada()[number];
        // It ends by itself, though nobody is left to wait for it.
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
