//! `longshore call` on a terminal, with the real OpenCode.

use std::process::Command;

use longshore_testkit::gateway::{Gateway, Setup, TOKEN};
use longshore_testkit::terminal::Terminal;

use crate::harness::LONGSHORE;

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_of_the_real_opencode_is_answered_at_the_prompt() {
    let gateway = Gateway::start(Setup::demo(LONGSHORE)).await;
    let mut call = Command::new(LONGSHORE);
    call.args(["call", "scn:bash cmd=\"touch guarded\" scn:text", "--demo", "--data-dir"]);
    call.arg(gateway.data_dir()).arg("--workspace").arg(gateway.workspace());
    call.env_clear().env("HOME", gateway.workspace()).env("A2A_BEARER_TOKEN", TOKEN);
    let (shown, code) = tokio::task::spawn_blocking(move || {
        let mut terminal = Terminal::start(call);
        terminal.wait_for("> ");
        assert!(terminal.shown().contains("touch guarded"), "{}", terminal.shown());
        terminal.types("once\n");
        terminal.wait_for("completed");
        terminal.end()
    })
    .await
    .unwrap();
    assert_eq!(code, Some(0), "{shown}");
    assert!(gateway.workspace().join("guarded").exists(), "{shown}");
}
