//! Every kind of ask of OpenCode, with its answer and its outcome.

use crate::asking::{Answer, By};
use crate::client::Binding;
use crate::harness::{Harness, Played};
use crate::upstream;

/// A turn that asks. In its texts `{n}` is a unique name, `{outside}` a directory outside the workspace with a file `log.txt`, and
/// `{always}` a command that has not been allowed permanently yet.
struct Scenario {
    /// The name of its recording.
    name: &'static str,
    prompt: &'static str,
    /// The words of each ask, and its answer. All asks are open at the same time.
    asks: &'static [(&'static str, Answer<'static>)],
    state: &'static str,
    explanation: &'static str,
    blocks: &'static [(&'static str, &'static str)],
    /// Words that the result of the call contains, and one that it does not contain.
    reported: &'static [&'static str],
    not_told: &'static str,
    /// The file that exists at the end, and its content. `None`: no file `{n}` exists.
    file: Option<(&'static str, &'static str)>,
}

/// The text of `scn:text n=2`.
const TEXT: (&str, &str) = ("text", "anchor  ballast ");

const COMPLETED: Scenario = Scenario {
    name: "",
    prompt: "",
    asks: &[],
    state: "COMPLETED",
    explanation: "",
    blocks: &[],
    reported: &[],
    not_told: "\0",
    file: None,
};

/// The configuration of the demo asks before `touch`, `rm`, and writing to a file whose name begins with `guarded`.
const SCENARIOS: [Scenario; 11] = [
    Scenario {
        name: "permission_once",
        prompt: "scn:bash cmd=\"touch {n}\" scn:text n=2",
        asks: &[("The agent asks for permission to run: touch {n}", Answer::Reply("once"))],
        blocks: &[("tool:bash", "completed"), TEXT],
        file: Some(("{n}", "")),
        ..COMPLETED
    },
    Scenario {
        name: "permission_reject",
        prompt: "scn:bash cmd=\"touch {n}\" scn:text n=2",
        asks: &[("The agent asks for permission to run: touch {n}", Answer::Reply("reject"))],
        state: "FAILED",
        explanation: "rejected permission",
        blocks: &[("tool:bash", "error")],
        ..COMPLETED
    },
    Scenario {
        name: "permission_reject_message",
        prompt: "scn:bash cmd=\"touch {n}\" scn:text n=2",
        asks: &[(
            "The agent asks for permission to run: touch {n}",
            Answer::RejectBecause("list the files instead"),
        )],
        blocks: &[("tool:bash", "error"), TEXT],
        reported: &["list the files instead"],
        ..COMPLETED
    },
    Scenario {
        name: "permission_edit",
        prompt: "scn:write path=guarded-{n} content=\"kept\\n\" scn:text n=2",
        asks: &[("asks for permission to edit: guarded-{n}", Answer::Reply("once"))],
        blocks: &[("tool:write", "completed"), TEXT],
        file: Some(("guarded-{n}", "kept\n")),
        ..COMPLETED
    },
    Scenario {
        name: "permission_external_directory",
        prompt: "scn:read path=\"{outside}/log.txt\" scn:text n=2",
        asks: &[("asks for permission to work outside its directory", Answer::Reply("once"))],
        blocks: &[("tool:read", "completed"), TEXT],
        reported: &["seen from afar"],
        ..COMPLETED
    },
    Scenario {
        name: "permission_pair",
        prompt: "scn:pair a=\"touch {n}\" b=\"touch {n}-b\" scn:text n=2",
        asks: &[
            ("The agent asks for permission to run: touch {n}", Answer::Reply("once")),
            ("The agent asks for permission to run: touch {n}-b", Answer::Reply("once")),
        ],
        blocks: &[("tool:bash", "completed"), ("tool:bash", "completed"), TEXT],
        file: Some(("{n}", "")),
        ..COMPLETED
    },
    Scenario {
        name: "question_answer",
        prompt: "scn:question q=\"Which way, {n}?\" options=\"Left|Right\" scn:text n=2",
        asks: &[("The agent asks: Which way, {n}? (Left, Right)", Answer::Choose(&[&["Right"]]))],
        blocks: &[("tool:question", "completed"), TEXT],
        reported: &["Right"],
        not_told: "Left",
        ..COMPLETED
    },
    Scenario {
        name: "question_multi",
        prompt: "scn:question q=\"Sails, {n}?\" options=\"Jib|Main|Mizzen\" n=2 multiple=1 scn:text n=2",
        asks: &[(
            "Sails, {n}? 1 (Jib, Main, Mizzen) Sails, {n}? 2",
            Answer::Choose(&[&["Jib", "Mizzen"], &["none of these today"]]),
        )],
        blocks: &[("tool:question", "completed"), TEXT],
        reported: &["Jib, Mizzen", "none of these today"],
        not_told: "Main",
        ..COMPLETED
    },
    Scenario {
        name: "question_reject",
        prompt: "scn:question q=\"May I ask, {n}?\" scn:text n=2",
        asks: &[("May I ask, {n}?", Answer::Dismiss)],
        state: "FAILED",
        explanation: "dismissed this question",
        blocks: &[("tool:question", "error")],
        ..COMPLETED
    },
    // The ask appears on the only task that the client knows.
    Scenario {
        name: "task_permission",
        prompt: "scn:task desc=errand prompt=\"scn:bash cmd=\\\"touch {n}\\\" scn:text n=3\" scn:text n=2",
        asks: &[("A sub-agent asks for permission to run: touch {n}", Answer::Reply("once"))],
        blocks: &[("tool:task", "completed"), TEXT],
        reported: &["anchor  ballast buoy ca "],
        file: Some(("{n}", "")),
        ..COMPLETED
    },
    Scenario {
        name: "permission_always",
        prompt: "scn:bash cmd=\"{always} {n}-a\" scn:bash cmd=\"{always} {n}-b\" scn:text n=2",
        asks: &[("The agent asks for permission to run: {always} {n}-a", Answer::Reply("always"))],
        blocks: &[("tool:bash", "completed"), ("tool:bash", "completed"), TEXT],
        ..COMPLETED
    },
];

/// Each scenario in one of the ways to answer.
#[tokio::test(flavor = "multi_thread")]
async fn every_ask_is_answered() {
    let ways = [
        (Binding::JsonRpc, By::Method),
        (Binding::Rest, By::Data),
        (Binding::JsonRpc, By::Words),
        (Binding::Rest, By::Method),
    ];
    let mut harness = Harness::demo().await;
    for (scenario, (binding, by)) in SCENARIOS.iter().zip(ways.into_iter().cycle()) {
        harness.client = harness.client.over(binding);
        play(&harness, scenario, by, "touch").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_every_ask_is_answered_in_every_way_over_json_rpc() {
    play_all(Binding::JsonRpc, [(By::Method, "touch"), (By::Words, "rm -f")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_every_ask_is_answered_in_every_way_over_rest() {
    play_all(Binding::Rest, [(By::Method, "touch"), (By::Data, "rm -f")]).await;
}

async fn play_all(binding: Binding, ways: [(By, &str); 2]) {
    let mut harness = Harness::demo().await;
    harness.client = harness.client.over(binding);
    for scenario in &SCENARIOS {
        for (by, always) in ways {
            play(&harness, scenario, by, always).await;
        }
    }
}

async fn play(harness: &Harness, scenario: &Scenario, by: By, always: &str) {
    let name = format!("{}-{by:?}", scenario.name);
    let workspace = harness.gateway.workspace().canonicalize().expect("the workspace exists");
    let outside = workspace.with_file_name(format!("outside-{name}"));
    std::fs::create_dir(&outside).expect("a test can make a directory");
    std::fs::write(outside.join("log.txt"), "seen from afar\n").expect("a test can write a file");
    let filled = |text: &str| {
        let text = text.replace("{n}", &name).replace("{always}", always);
        text.replace("{outside}", outside.to_str().expect("the path of a test is UTF-8"))
    };

    let asks: Vec<(String, Answer<'_>)> =
        scenario.asks.iter().map(|(words, answer)| (filled(words), *answer)).collect();
    let asks: Vec<(&str, Answer<'_>)> =
        asks.iter().map(|(words, answer)| (words.as_str(), *answer)).collect();
    let played = harness.play_asking(&filled(scenario.prompt), by, &asks).await;
    played.ended(scenario.state, scenario.explanation).has(scenario.blocks);

    let result = result(&played);
    for words in scenario.reported {
        assert!(result.contains(words), "{name}: expected {words:?} in {result:?}");
    }
    assert!(!result.contains(scenario.not_told), "{name}: {result:?}");
    let (file, content) = match scenario.file {
        Some((file, content)) => (filled(file), Some(content)),
        None => (name.clone(), None),
    };
    let found = std::fs::read_to_string(workspace.join(&file)).ok();
    assert_eq!(found.as_deref(), content, "{name}: the file {file}");
}

/// The result of the tool call that asked.
fn result(played: &Played) -> String {
    let blocks = upstream::blocks_of_task(&played.task);
    let call = blocks.iter().find(|block| block.name.starts_with("tool:"));
    let call = &call.unwrap_or_else(|| panic!("{}: no call in {blocks:#?}", played.name)).content;
    call["output"].as_str().or_else(|| call["error"].as_str()).unwrap_or_default().to_owned()
}
