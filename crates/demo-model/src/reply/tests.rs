use serde_json::json;

use super::*;
use crate::request::{ChatRequest, Session};

fn asked(prompt: &str) -> ParsedRequest {
    let request: ChatRequest = serde_json::from_value(json!({
        "model": "demo", "stream": true, "messages": [{"role": "user", "content": prompt}],
    }))
    .unwrap();
    ParsedRequest::new(&request, Session::default())
}

fn say(prompt: &str, attempt: u64) -> StreamedReply {
    match choose(&asked(prompt), attempt) {
        Reply::Streamed(speech) => speech,
        Reply::Refusal(refusal) => panic!("{prompt} was refused: {refusal:?}"),
    }
}

fn refuse(prompt: &str, attempt: u64) -> Refusal {
    match choose(&asked(prompt), attempt) {
        Reply::Refusal(refusal) => refusal,
        Reply::Streamed(_) => panic!("{prompt} was answered"),
    }
}

fn texts(prompt: &str) -> Vec<String> {
    say(prompt, 1)
        .deltas
        .map(|delta| match delta {
            Delta::Text(text) => text,
            other => panic!("{prompt} says {other:?}"),
        })
        .collect()
}

/// The tool and its arguments, put together from the deltas.
fn called(prompt: &str) -> Vec<(String, Value)> {
    let speech = say(prompt, 1);
    assert_eq!(speech.end, End::Finish("tool_calls".to_owned()), "{prompt}");
    let mut calls: Vec<(String, String)> = Vec::new();
    for delta in speech.deltas {
        match delta {
            Delta::Call { index, tool, .. } => {
                assert_eq!(index, calls.len());
                calls.push((tool, String::new()));
            }
            Delta::Arguments { index, json } => calls[index].1.push_str(&json),
            Delta::Text(_) | Delta::Reasoning(_) => {}
        }
    }
    calls.into_iter().map(|(tool, json)| (tool, serde_json::from_str(&json).unwrap())).collect()
}

#[test]
fn text_has_the_requested_number_of_chunks() {
    let check = |prompt: &str, chunks: usize, characters: usize| {
        let texts = texts(prompt);
        assert_eq!(texts.len(), chunks, "{prompt}");
        assert_eq!(texts.concat().chars().count(), characters, "{prompt}");
    };
    check("scn:text", 5, 40);
    check("scn:text n=3 size=10", 3, 30);
    check("scn:text n=0", 0, 0);
    check("scn:text n=2 size=0", 2, 2);
    check("scn:text n=2 text=ahoy", 2, 4);
    check("scn:long", 2_000, 32_000);
    check("scn:finish n=1", 1, 8);
    check("scn:stall after=4", 4, 32);
    check("scn:cut after=6", 6, 48);
    check("scn:sseerror", 2, 16);
    check("scn:badjson after=1", 1, 8);
    check("scn:empty", 0, 0);
}

#[test]
fn a_reply_ends_as_the_script_says() {
    let check = |prompt: &str, expected: End| assert_eq!(say(prompt, 1).end, expected, "{prompt}");
    let finish = |reason: &str| End::Finish(reason.to_owned());
    check("hello", finish("stop"));
    check("scn:text", finish("stop"));
    check("scn:empty", finish("stop"));
    check("scn:finish", finish("length"));
    check("scn:finish reason=content_filter", finish("content_filter"));
    check("scn:bash", finish("tool_calls"));
    check("scn:stall", End::Silence);
    check("scn:cut", End::Close);
    check("scn:cut mode=fin", End::Close);
    check("scn:cut mode=rst", End::Reset);
    check("scn:cut mode=noend", End::Unfinished);
    assert!(
        matches!(say("scn:badjson", 1).end, End::Event(data) if serde_json::from_str::<Value>(&data).is_err())
    );
    let End::Event(data) = say(r#"scn:sseerror body="say \"no\"" code=x"#, 1).end else { panic!("no event") };
    let error: Value = serde_json::from_str(&data).unwrap();
    assert_eq!((&error["error"]["message"], &error["error"]["code"]), (&json!("say \"no\""), &json!("x")));
}

#[test]
fn forever_has_no_end() {
    assert_eq!(say("scn:forever", 1).deltas.take(100_000).count(), 100_000);
    assert_eq!(say("scn:forever", 1).pace, Duration::from_millis(20));
}

#[test]
fn every_directive_takes_pace_silence_and_usage() {
    for name in ["text", "long", "reason", "bash", "cut", "forever", "finish", "stall"] {
        let speech = say(&format!("scn:{name} ttft=30 delay=7 in=1000 out=50"), 1);
        assert_eq!(
            (speech.wait, speech.pace),
            (Duration::from_millis(30), Duration::from_millis(7)),
            "{name}"
        );
        assert_eq!((speech.usage.prompt_tokens, speech.usage.completion_tokens), (1000, 50), "{name}");
        assert_eq!(speech.usage.total_tokens, 1050, "{name}");
    }
    assert_eq!(refuse("scn:http ttft=30", 1).wait, Duration::from_millis(30));
    assert_eq!(say("scn:text delay=99999999999", 1).pace, LONGEST_PAUSE);
}

#[test]
fn reasoning_comes_before_the_text() {
    let deltas: Vec<Delta> = say("scn:reason rn=2 n=1 text=yes", 1).deltas.collect();
    assert!(matches!(&deltas[..2], [Delta::Reasoning(_), Delta::Reasoning(_)]));
    assert_eq!(deltas[2..], [Delta::Text("yes".to_owned())]);
    assert!(say("scn:reason", 1).usage.completion_tokens_details.is_some());
}

#[test]
fn each_tool_is_called_with_its_own_arguments() {
    let check = |prompt: &str, tool: &str, arguments: Value| {
        assert_eq!(called(prompt), [(tool.to_owned(), arguments)], "{prompt}");
    };
    check(r#"scn:bash cmd="ls -l" desc=list"#, "bash", json!({"command": "ls -l", "description": "list"}));
    check("scn:read path=a.txt", "read", json!({"filePath": "a.txt"}));
    check("scn:write path=a content=b", "write", json!({"filePath": "a", "content": "b"}));
    check(
        "scn:edit path=a old=b new=c",
        "edit",
        json!({"filePath": "a", "oldString": "b", "newString": "c"}),
    );
    check("scn:glob pattern=*.rs", "glob", json!({"pattern": "*.rs"}));
    check("scn:grep pattern=fn", "grep", json!({"pattern": "fn"}));
    check(
        "scn:webfetch url=http://127.0.0.1/",
        "webfetch",
        json!({"url": "http://127.0.0.1/", "format": "text"}),
    );
    check("scn:plan_exit", "plan_exit", json!({}));
    check(r#"scn:tool name=lsp args={"a": [1]}"#, "lsp", json!({"a": [1]}));
    check(
        r#"scn:task agent=explore desc=d prompt="scn:text" background=1"#,
        "task",
        json!({"description": "d", "prompt": "scn:text", "subagent_type": "explore", "background": true}),
    );
    check(
        "scn:todo items=a|b|c done=1",
        "todowrite",
        json!({"todos": [
            {"content": "a", "status": "completed", "priority": "high"},
            {"content": "b", "status": "in_progress", "priority": "medium"},
            {"content": "c", "status": "pending", "priority": "low"},
        ]}),
    );
    check(
        "scn:question q=Which? header=H options=A|B multiple=1",
        "question",
        json!({"questions": [{
            "question": "Which?",
            "header": "H",
            "options": [{"label": "A", "description": "Take A"}, {"label": "B", "description": "Take B"}],
            "multiple": true,
        }]}),
    );
    assert_eq!(called("scn:question n=3")[0].1["questions"].as_array().unwrap().len(), 3);
}

#[test]
fn two_calls_of_one_reply_have_two_ids() {
    let calls = called("scn:pair a=one b=two");
    assert_eq!(calls.iter().map(|(_, arguments)| &arguments["command"]).collect::<Vec<_>>(), ["one", "two"]);
    let ids: Vec<String> = say("scn:pair", 1)
        .deltas
        .filter_map(|delta| match delta {
            Delta::Call { id, .. } => Some(id),
            _ => None,
        })
        .collect();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn text_may_come_before_a_call_and_arguments_come_in_pieces() {
    let deltas: Vec<Delta> = say("scn:bash cmd=ls pre=wait argchunks=7", 1).deltas.collect();
    let arguments = deltas.iter().filter(|delta| matches!(delta, Delta::Arguments { .. })).count();
    assert!(matches!(deltas[0], Delta::Text(_)));
    assert!((6..=7).contains(&arguments), "{arguments} pieces");
}

#[test]
fn a_refusal_has_a_status_headers_and_a_message() {
    let check = |prompt: &str, status: u16, code: &str| {
        let refusal = refuse(prompt, 1);
        assert_eq!(refusal.status, status, "{prompt}");
        assert_eq!(refusal.body["error"]["code"], code, "{prompt}");
        assert!(refusal.body["error"]["message"].as_str().is_some_and(|text| !text.is_empty()));
    };
    check("scn:http", 500, "500");
    check("scn:http status=400", 400, "400");
    check("scn:http status=429", 429, "429");
    check("scn:http status=200", 500, "500");
    check("scn:auth", 401, "401");
    check("scn:overflow", 400, "context_length_exceeded");
    let refusal = refuse("scn:http status=429 retry_after_ms=20 retry_after=1 body=slow", 1);
    assert_eq!(refusal.headers, [("retry-after", "1".to_owned()), ("retry-after-ms", "20".to_owned())]);
    assert_eq!(refusal.body["error"]["message"], "slow");
}

#[test]
fn a_directive_that_fails_a_number_of_times_succeeds_afterwards() {
    for (prompt, failures) in
        [("scn:http times=2", 2), ("scn:auth times=1", 1), ("scn:overflow", 1), ("scn:overflow times=3", 3)]
    {
        assert!(matches!(choose(&asked(prompt), failures), Reply::Refusal(_)), "{prompt}");
        assert_eq!(say(prompt, failures + 1).end, End::stop(), "{prompt}");
    }
    assert_eq!(say("scn:cut times=1", 1).end, End::Close);
    assert_eq!(say("scn:cut times=1", 2).end, End::stop());
    assert!(matches!(choose(&asked("scn:http"), 1_000_000), Reply::Refusal(_)));
}

#[test]
fn every_listed_directive_is_known() {
    for name in DIRECTIVES {
        if let Reply::Streamed(speech) = choose(&asked(&format!("scn:{name}")), 1) {
            let text: String = speech
                .deltas
                .take(10)
                .map(|delta| if let Delta::Text(text) = delta { text } else { String::new() })
                .collect();
            assert!(!text.contains("does not know"), "scn:{name} is listed but not known");
        }
    }
    assert!(texts("scn:nonsense").concat().contains("does not know scn:nonsense"));
}

#[test]
fn the_greeting_explains_itself_and_its_examples_work() {
    let prompt = format!("Hello there,\n   who {} are you?", "x".repeat(500));
    let greeting = texts(&prompt).concat();
    assert!(greeting.contains("demo model"));
    assert!(greeting.contains("Hello there, who xxx"));
    assert!(!greeting.contains("are you?"), "the echo is bounded");
    assert_eq!(greeting, texts(&prompt).concat(), "the same prompt gets the same answer");
    let examples = crate::script::parse(&texts("hi").concat());
    assert!(examples.len() > 10);
    assert!(examples.iter().all(|directive| DIRECTIVES.contains(&directive.name.as_str())));
}

#[test]
fn titles_and_summaries_are_made_without_running_the_script() {
    let ask = |system: &str, prompt: &str| {
        let request: ChatRequest = serde_json::from_value(json!({"messages": [
            {"role": "system", "content": system}, {"role": "user", "content": prompt},
        ]}))
        .unwrap();
        let Reply::Streamed(speech) = choose(&ParsedRequest::new(&request, Session::default()), 1) else {
            panic!("refused")
        };
        speech
            .deltas
            .map(|delta| if let Delta::Text(text) = delta { text } else { panic!() })
            .collect::<String>()
    };
    let title = "You are a title generator.";
    assert_eq!(ask(title, "scn:http status=500 scn:text"), "Demo: http, text");
    assert_eq!(ask(title, "mend the net before the tide turns again"), "Demo: mend the net before the tide");
    assert_eq!(ask(title, ""), "Demo");
    assert!(ask("You are a context summarization agent.", "scn:http").contains("## Goal"));
}
