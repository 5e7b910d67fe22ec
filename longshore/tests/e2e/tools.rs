//! Tool calls: their input, their output, and their effect on the workspace.

use crate::harness::Harness;

pub(crate) async fn tool_calls_show_their_input_and_output(harness: &Harness) {
    let workspace = harness.gateway.workspace().canonicalize().expect("the workspace exists");
    let read = |file: &str| std::fs::read_to_string(workspace.join(file)).unwrap_or_default();
    let path = |file: &str| workspace.join(file).display().to_string();

    // Each tool, its call, words of its output, and its status.
    let quoted = |text: String| serde_json::Value::from(text).to_string();
    let calls = [
        ("bash", "scn:bash cmd=\"echo hello; pwd\" pre=\"Let me see.\"".to_owned(), "hello", "completed"),
        ("read", format!("scn:read path={}", quoted(path("ships/log.txt"))), "day 2: fair wind", "completed"),
        ("write", format!("scn:write path={} content=\"new\\n\"", quoted(path("new.txt"))), "", "completed"),
        (
            "edit",
            format!("scn:edit path={} old=cook new=baker", quoted(path("ships/crew.txt"))),
            "",
            "completed",
        ),
        ("grep", "scn:grep pattern=becalmed".to_owned(), "day 3", "completed"),
        // A rule of the demo's configuration denies this one.
        ("bash", "scn:bash cmd=\"git push origin\"".to_owned(), "", "error"),
    ];
    for (tool, call, output, status) in calls {
        let played = harness.play(&format!("{call} scn:text n=2")).await;
        played.ended("COMPLETED", "");
        assert_eq!(played.last_text(), "anchor  ballast ", "{call}");
        let call = played.call(tool);
        assert_eq!(call["status"], status, "{}: {call:#}", played.name);
        let key = if status == "error" { "error" } else { "output" };
        let text = call[key].as_str().unwrap_or_else(|| panic!("{}: no {key} in {call:#}", played.name));
        assert!(text.contains(output), "{}: expected {output:?} in {text:?}", played.name);
    }
    assert_eq!(read("new.txt"), "new\n", "the write did not happen");
    // Without `--written-files`, the files that a turn wrote are not part of its task.
    let tasks = harness.client.call("ListTasks", serde_json::json!({"includeArtifacts": true})).await;
    assert!(!tasks.to_string().contains("/artifacts/"), "a written file is offered: {tasks:#}");
    assert_eq!(read("ships/crew.txt"), "captain\nmate\nbaker\n", "the edit did not happen");
}
