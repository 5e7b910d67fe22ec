//! Turns without faults, and turns whose agent fails or sends nonsense.

use longshore_model::{AgentEvent, ToolStatus};

use super::running::End;
use super::{AgentUnderTest, Reply};
use crate::fake_opencode::Gate;

pub(super) async fn a_reply_comes_whole_in_order_and_ends_once(agent: &dyn AgentUnderTest) {
    let words: Vec<String> = (0..300).map(|number| format!("{number} ")).collect();
    agent.reply_with(Reply::new().chunks(words.clone()));
    let session = agent.session().await;
    let finished = agent.run(&session, "count").await;
    finished.completed(&words.concat());
    let texts = finished.events.iter().filter(|event| matches!(event, AgentEvent::Text { .. })).count();
    assert!(texts > 1, "a streamed reply came in one piece");
}

pub(super) async fn a_reply_without_text_ends(agent: &dyn AgentUnderTest) {
    agent.reply_with(Reply::new());
    let session = agent.session().await;
    agent.run(&session, "say nothing").await.completed("");
}

pub(super) async fn text_is_not_changed_on_its_way(agent: &dyn AgentUnderTest) {
    let text = "  \u{2028}ümläut 🚢 \"quoted\" back\\slash {json: [1]}\n\n\tdata: x\r\n```\n<b>&amp;</b> \u{1b}[0m\u{0} end ";
    let letters: Vec<String> = text.chars().map(String::from).collect();
    agent.reply_with(Reply::new().chunks(letters));
    let session = agent.session().await;
    agent.run(&session, "speak in tongues").await.completed(text);
}

pub(super) async fn a_long_chunk_comes_whole(agent: &dyn AgentUnderTest) {
    let long = "0123456789abcdef".repeat(32 * 1024);
    agent.reply_with(Reply::new().text("before ").text(&long).text(" after"));
    let session = agent.session().await;
    let finished = agent.run(&session, "go on and on").await;
    assert!(finished.text() == format!("before {long} after"), "{} bytes came", finished.text().len());
    assert_eq!(finished.end, End::Completed);
}

pub(super) async fn thoughts_and_text_are_different_blocks(agent: &dyn AgentUnderTest) {
    agent.reply_with(Reply::new().thought("hm, ").text("Yes. ").thought("and?").text("No."));
    let session = agent.session().await;
    let finished = agent.run(&session, "think").await;
    finished.completed("Yes. No.");
    assert_eq!(finished.thoughts(), "hm, and?");
}

pub(super) async fn tool_calls_come_between_the_texts_around_them(agent: &dyn AgentUnderTest) {
    agent.reply_with(Reply::new().text("Looking. ").tool("ls", "README.md\n").text("One file."));
    let session = agent.session().await;
    let finished = agent.run(&session, "look").await;
    finished.completed("Looking. One file.");
    let mut order: Vec<&str> = Vec::new();
    for event in &finished.events {
        let (AgentEvent::Text { block, .. } | AgentEvent::Tool { block, .. }) = event else { continue };
        if !order.contains(&block.id.as_str()) {
            order.push(block.id.as_str());
        }
    }
    let kinds: Vec<bool> = order
        .iter()
        .map(|id| {
            let is_tool = |event: &AgentEvent| matches!(event, AgentEvent::Tool { block, .. } if block.id.as_str() == *id);
            finished.events.iter().any(is_tool)
        })
        .collect();
    assert_eq!(kinds, [false, true, false], "text, tool, text: {:?}", finished.events);
    let [call] = finished.tools().try_into().expect("one tool call");
    assert_eq!(call.status, ToolStatus::Completed);
    assert!(call.output.as_deref().is_some_and(|output| output.contains("README.md")), "{call:?}");
}

pub(super) async fn many_tool_calls_keep_their_outputs(agent: &dyn AgentUnderTest) {
    let reply = (0..20).fold(Reply::new(), |reply, number| {
        reply.tool(&format!("echo {number}"), &format!("output {number}.")).text(&format!("{number} "))
    });
    agent.reply_with(reply);
    let session = agent.session().await;
    let finished = agent.run(&session, "work").await;
    finished.completed(&(0..20).map(|number| format!("{number} ")).collect::<Vec<_>>().concat());
    let calls = finished.tools();
    assert_eq!(calls.len(), 20);
    for (number, call) in calls.iter().enumerate() {
        let wanted = format!("output {number}.");
        assert!(call.output.as_deref().is_some_and(|output| output.contains(&wanted)), "{call:?}");
        assert_eq!(call.status, ToolStatus::Completed);
    }
}

pub(super) async fn the_prompt_arrives_once_as_it_was_sent(agent: &dyn AgentUnderTest) {
    let prompt = "Say \"hi\"\nin two\tlines, 🚢\\n ümläut ";
    agent.reply_with(Reply::new().text("hi"));
    let session = agent.session().await;
    assert_eq!(agent.prompts(), [""; 0], "a new session is not prompted");
    agent.run(&session, prompt).await.completed("hi");
    assert_eq!(agent.prompts(), [prompt]);
    assert_eq!(agent.cancels(), 0);
}

pub(super) async fn turns_of_a_session_follow_each_other(agent: &dyn AgentUnderTest) {
    let session = agent.session().await;
    for number in 0..4 {
        agent.reply_with(Reply::new().text(&format!("reply {number}")));
        let prompt = format!("prompt {number}");
        agent.run(&session, &prompt).await.completed(&format!("reply {number}"));
    }
    assert_eq!(agent.prompts(), ["prompt 0", "prompt 1", "prompt 2", "prompt 3"]);
}

pub(super) async fn a_failure_of_the_agent_fails_the_turn_with_its_reason(agent: &dyn AgentUnderTest) {
    let reason = "The model is out of breath, see /home/user/.config/key";
    agent.reply_with(Reply::new().text("I will ").fail(reason));
    let session = agent.session().await;
    let failed = agent.run(&session, "run").await;
    let shown = failed.failed("I will ");
    assert!(shown.contains("out of breath"), "{shown}");
    agent.reply_with(Reply::new().text("better"));
    agent.run(&session, "again").await.completed("better");
}

pub(super) async fn garbage_does_not_change_the_turn(agent: &dyn AgentUnderTest) {
    let reply =
        Reply::new().garbage().text("one ").garbage().tool("ls", "out").garbage().text("two").garbage();
    agent.reply_with(reply);
    let session = agent.session().await;
    let finished = agent.run(&session, "mumble").await;
    finished.completed("one two");
    assert_eq!(finished.tools().len(), 1);
}

/// The engine drops a turn when its task has ended: the agent is not stopped by that.
pub(super) async fn a_turn_that_nobody_reads_any_more_goes_on(agent: &dyn AgentUnderTest) {
    let gate = Gate::new();
    let words: Vec<String> = (0..1_000).map(|number| format!("{number} ")).collect();
    agent.reply_with(Reply::new().text("one").hold(&gate).chunks(words));
    let session = agent.session().await;
    let mut running = agent.start(&session, "first").await;
    running.until_text("one").await;
    gate.reached().await;
    drop(running);
    gate.open();
    agent.reply_with(Reply::new().text("mine"));
    agent.run(&session, "second").await.completed("mine");
    assert_eq!((agent.prompts().len(), agent.cancels()), (2, 0));
}
