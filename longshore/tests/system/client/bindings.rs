//! The commands against the gateway as any other agent, over each binding and version that its card offers.

use longshore_testkit::fake_opencode::{Tool, Turn};

use super::fixture::{Fixture, Run, command, finish};

#[tokio::test(flavor = "multi_thread")]
async fn every_command_works_over_every_binding_and_version_of_the_gateway() {
    let fixture = Fixture::new().await;
    fixture.fake.answering(|prompt| match prompt {
        "ask" => Turn::new().guarded_tool(Tool::bash("touch x", "ok")).text("Done.", 1).finish("stop"),
        _ => Turn::new().text("The answer.", 4).finish("stop"),
    });
    let home = tempfile::tempdir().unwrap();
    let token = fixture.run(&["token"]).await.stdout;
    let url = fixture.gateway.url();
    let bindings = ["JSONRPC", "HTTP+JSON", "GRPC"];
    for (binding, version) in bindings.iter().flat_map(|binding| [(*binding, "1.0"), (*binding, "0.3")]) {
        let run = async |words: &[&str]| -> Run {
            let mut command = command(home.path(), words);
            command.args(["--url", url]).env("A2A_CLIENT_BEARER_TOKEN", token.trim());
            command.env("A2A_CLIENT_SUPPORTED_TRANSPORTS", binding);
            command.env("A2A_CLIENT_PROTOCOL_VERSION", version);
            finish(command).await
        };
        let case = format!("{binding} {version}");
        let called = run(&["call", "hello"]).await;
        assert_eq!((called.code, called.stdout.as_str()), (Some(0), "The answer.\n"), "{case}: {called:?}");
        let asked = run(&["call", "ask"]).await;
        assert_eq!(asked.code, Some(3), "{case}: {asked:?}");
        let printed = asked.stderr.lines().find_map(|line| line.strip_prefix("To answer later: longshore "));
        let words: Vec<&str> = printed.unwrap().split(' ').collect();
        // 0.3 has no list over gRPC.
        let lists = case != "GRPC 0.3";
        let listed = run(&["asks", "list"]).await;
        assert!(
            listed.code == Some(i32::from(!lists)) && listed.stdout.contains(words[2]) == lists,
            "{case}: {listed:?}"
        );
        let answered = run(&words[..4]).await;
        assert_eq!((answered.code, answered.stdout.as_str()), (Some(0), "Done.\n"), "{case}: {answered:?}");
        for words in [["tasks", "get", words[2]], ["tasks", "watch", words[2]]] {
            let shown = run(&words).await;
            assert_eq!((shown.code, shown.stdout.as_str()), (Some(0), "Done.\n"), "{case}: {shown:?}");
        }
        let listed = run(&["tasks", "list"]).await;
        assert!(
            listed.code == Some(i32::from(!lists)) && listed.stdout.contains(words[2]) == lists,
            "{case}: {listed:?}"
        );
        let extended = run(&["card", "--extended"]).await;
        assert!(extended.code == Some(0) && extended.stdout.contains("interface"), "{case}: {extended:?}");
        let late = run(&["tasks", "cancel", words[2]]).await;
        assert!(late.code == Some(1) && late.stderr.starts_with("error: "), "{case}: {late:?}");
    }
}
