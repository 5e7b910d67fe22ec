//! Tool calls: their input, their output, and their effect on the workspace.

use crate::frames;
use crate::harness::Harness;

pub(crate) async fn tool_calls_show_their_input_and_output(harness: &Harness) {
    let workspace = harness.gateway.workspace().canonicalize().expect("the workspace exists");
    let read = |file: &str| std::fs::read_to_string(workspace.join(file)).unwrap_or_default();
    let path = |file: &str| workspace.join(file).display().to_string();

    // Each tool, its call, words of its output, and its status.
    let quoted = |text: String| serde_json::Value::from(text).to_string();
    let calls = [
        ("bash", "scn:bash cmd=\"echo hello; pwd\" pre=\"Let me see.\"".to_owned(), "hello", "completed"),
        ("bash", "scn:bash cmd=\"echo broken >&2; exit 3\"".to_owned(), "broken", "completed"),
        ("read", format!("scn:read path={}", quoted(path("ships/log.txt"))), "day 2: fair wind", "completed"),
        ("write", format!("scn:write path={} content=\"new\\n\"", quoted(path("new.txt"))), "", "completed"),
        (
            "edit",
            format!("scn:edit path={} old=cook new=baker", quoted(path("ships/crew.txt"))),
            "",
            "completed",
        ),
        ("glob", "scn:glob pattern=\"ships/*.txt\"".to_owned(), "log.txt", "completed"),
        ("grep", "scn:grep pattern=becalmed".to_owned(), "day 3", "completed"),
        ("todowrite", "scn:todo items=\"Cast off|Set sail\" done=1".to_owned(), "Set sail", "completed"),
        // A rule of the demo's configuration denies this one.
        ("bash", "scn:bash cmd=\"git push origin\"".to_owned(), "", "error"),
        ("read", format!("scn:read path={}", quoted(path("no-such-file"))), "", "error"),
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

    let pair = harness.play("scn:pair a=\"echo port\" b=\"echo starboard\" scn:text n=1").await;
    pair.ended("COMPLETED", "").has(&[
        ("tool:bash", "completed"),
        ("tool:bash", "completed"),
        ("text", "anchor  "),
    ]);

    // A slow command is shown while it runs, and its whole output at the end.
    let slow =
        harness.play("scn:bash cmd=\"for i in 1 2 3; do echo tick $i; sleep 0.3; done\" scn:text n=1").await;
    slow.ended("COMPLETED", "");
    assert_eq!(slow.call("bash")["output"], "tick 1\ntick 2\ntick 3\n", "{:#?}", slow.frames);
    let running = slow.frames.iter().filter_map(frames::tool).any(|call| call["status"] == "running");
    assert!(running, "no frame shows the running command: {:#?}", slow.frames);

    let errand =
        harness.play("scn:task agent=general desc=\"an errand\" prompt=\"scn:text n=3\" scn:text n=1").await;
    errand.ended("COMPLETED", "").has(&[("tool:task", "completed"), ("text", "anchor  ")]);
    let output = errand.call("task")["output"].as_str().unwrap_or_default().to_owned();
    assert!(output.contains("anchor  ballast buoy ca "), "the errand brought back {output:?}");
}
