//! `longshore call` on a terminal: colours, and answers at the prompt.

use longshore_testkit::fake_opencode::{Tool, Turn};
use longshore_testkit::terminal::Terminal;

use super::fixture::{Fixture, eventful};

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_is_answered_at_the_prompt() {
    let fixture = Fixture::new().await;
    fixture.fake.answering(|_| {
        Turn::new().guarded_tool(Tool::bash("touch guarded", "ok")).text("Done it.", 1).finish("stop")
    });
    let command = fixture.command(&["call", "ask"]);
    let (shown, code) = tokio::task::spawn_blocking(move || {
        let mut terminal = Terminal::start(command);
        terminal.wait_for("> ");
        assert!(terminal.shown().contains("touch guarded"), "{}", terminal.shown());
        assert!(terminal.shown().contains("1. once (allow once)"), "{}", terminal.shown());
        terminal.types("1\n");
        terminal.wait_for("completed");
        terminal.end()
    })
    .await
    .unwrap();
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(shown.matches("Done it.").count(), 1, "{shown}");
    assert!(shown.contains("\x1b[32m✓ bash touch guarded"), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_the_agent_refuses_is_asked_for_again() {
    let fixture = Fixture::new().await;
    fixture.fake.answering(|_| {
        Turn::new().guarded_tool(Tool::bash("touch guarded", "ok")).text("Done it.", 1).finish("stop")
    });
    let command = fixture.command(&["call", "ask"]);
    let (shown, code) = tokio::task::spawn_blocking(move || {
        let mut terminal = Terminal::start(command);
        terminal.wait_for("> ");
        terminal.types("perhaps\n");
        terminal.wait_for("the answer: must be once, always or reject");
        terminal.types("once\n");
        terminal.wait_for("completed");
        terminal.end()
    })
    .await
    .unwrap();
    assert_eq!(code, Some(0), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_is_dimmed_and_diffs_are_coloured_unless_no_color_is_set() {
    let fixture = Fixture::new().await;
    fixture.fake.answering(|_| eventful());
    for no_color in [false, true] {
        let mut command = fixture.command(&["call", "Do it."]);
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let (shown, code) =
            tokio::task::spawn_blocking(move || Terminal::start(command).end()).await.unwrap();
        assert_eq!(code, Some(0), "{shown}");
        for coloured in ["\x1b[2mI think", "\x1b[31m  -two", "\x1b[32m  +three", "\x1b[31m✗ bash"] {
            assert_eq!(shown.contains(coloured), !no_color, "{coloured:?} in {shown:?}");
        }
        for plain in ["I think", "-two", "+three", "The second line."] {
            assert!(shown.contains(plain), "{plain} in {shown:?}");
        }
    }
}
