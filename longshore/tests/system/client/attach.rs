//! `longshore attach`.

use std::os::unix::fs::PermissionsExt as _;

use super::fixture::{command, finish};

#[tokio::test(flavor = "multi_thread")]
async fn the_terminal_interface_gets_the_address_and_the_password_but_not_on_its_command_line() {
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("opencode");
    let script = "#!/bin/sh\necho \"$@\"\necho \"$OPENCODE_SERVER_USERNAME $OPENCODE_SERVER_PASSWORD\"\n";
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut attach = command(home.path(), &["attach"]);
    attach.env("PATH", home.path()).env("OPENCODE_BASE_URL", "http://127.0.0.1:4096");
    attach.env("OPENCODE_AUTH_PASSWORD", "s3cret").env("XDG_DATA_HOME", home.path().join("data"));
    let run = finish(attach).await;
    let workspace = home.path().canonicalize().unwrap();
    let expected = format!("attach http://127.0.0.1:4096 --dir {}\nopencode s3cret\n", workspace.display());
    assert_eq!((run.code, run.stdout), (Some(0), expected), "{}", run.stderr);

    let mut none = command(home.path(), &["attach"]);
    none.env("XDG_DATA_HOME", home.path().join("data"));
    let run = finish(none).await;
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("no OpenCode runs for"), "{}", run.stderr);
}
