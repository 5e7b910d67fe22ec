//! Asks: without a terminal, with `--approve`, and later.

use longshore_testkit::fake_opencode::{Tool, Turn};

use super::fixture::Fixture;

fn asking() -> Turn {
    Turn::new()
        .text("Before. ", 1)
        .guarded_tool(Tool::bash("touch guarded", "ok"))
        .text("After.", 2)
        .finish("stop")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ask_without_a_terminal_can_be_answered_later_with_the_printed_command() {
    let fixture = Fixture::new().await;
    fixture.fake.answering(|_| asking());
    let call = fixture.run(&["call", "ask"]).await;
    assert_eq!((call.code, call.stdout.as_str()), (Some(3), "Before. \n"), "{call:?}");
    let printed = call.stderr.lines().find_map(|line| line.strip_prefix("To answer later: longshore "));
    let printed = printed.expect("the command is printed").to_owned();
    assert!(printed.contains(" once "), "{printed}");

    let listed = fixture.run(&["asks", "list"]).await;
    assert!(listed.stdout.contains("touch guarded"), "{listed:?}");
    assert!(listed.stdout.contains("answers: once, always, reject"), "{listed:?}");

    let words: Vec<&str> = printed.split(' ').collect();
    assert_eq!(words[4], "--ask", "{printed}");
    let answered = fixture.run(&words[..6]).await;
    assert_eq!(answered.code, Some(0), "{answered:?}");
    assert!(answered.stdout.ends_with("After.\n"), "{answered:?}");
    let again = fixture.run(&words[..4]).await;
    assert_eq!(again.code, Some(2), "{again:?}");
    assert!(again.stderr.contains("asks nothing: it is completed"), "{}", again.stderr);
    let none = fixture.run(&["asks", "list"]).await;
    assert_eq!((none.stdout.as_str(), none.stderr.as_str()), ("", "No task waits for an answer.\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn approve_answers_every_permission_and_the_text_appears_once() {
    let fixture = Fixture::new().await;
    fixture.fake.answering(|_| {
        Turn::new()
            .text("One. ", 1)
            .guarded_tool(Tool::bash("touch a", ""))
            .guarded_tool(Tool::bash("touch b", ""))
            .text("Two.", 2)
            .finish("stop")
    });
    let run = fixture.run(&["call", "--approve", "once", "ask"]).await;
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.stdout.replace('\n', ""), "One. Two.", "{run:?}");
    assert_eq!(run.stderr.matches("asks for permission").count(), 2, "{}", run.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_an_ask_that_is_over_does_not_answer_the_next_one() {
    let fixture = Fixture::new().await;
    fixture.fake.answering(|_| {
        Turn::new()
            .guarded_tool(Tool::bash("npm test", "ok"))
            .guarded_tool(Tool::bash("rm -rf build", "ok"))
            .finish("stop")
    });
    let listed = |run: &super::fixture::Run| {
        let command = run.stdout.lines().find_map(|line| line.split_once("longshore asks answer "));
        let words = command.unwrap_or_else(|| panic!("no command is printed: {run:?}")).1;
        ["asks", "answer"].into_iter().chain(words.split(' ').take(4)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(fixture.run(&["call", "ask"]).await.code, Some(3));
    let first = listed(&fixture.run(&["asks", "list"]).await);
    let first: Vec<&str> = first.iter().map(String::as_str).collect();
    let answered = fixture.run(&first).await;
    assert_eq!(answered.code, Some(3), "{answered:?}");
    // The second ask is open now. The person has seen the first one only.
    let late = fixture.run(&first).await;
    assert_eq!(late.code, Some(3), "{late:?}");
    assert!(late.stderr.contains("is not open any more"), "{late:?}");
    assert!(late.stderr.contains("rm -rf build") && late.stderr.contains("To answer later: "), "{late:?}");
    assert!(fixture.run(&["asks", "list"]).await.stdout.contains("rm -rf build"));

    // Without the id of the ask, the answer counts for what is asked now, which is shown.
    let answered = fixture.run(&["asks", "answer", first[2], "once"]).await;
    assert_eq!(answered.code, Some(0), "{answered:?}");
    assert!(
        answered.stderr.starts_with("The agent asks for permission to run: rm -rf build\n"),
        "{answered:?}"
    );
}
