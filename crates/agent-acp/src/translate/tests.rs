use longshore_model::{ChildEvent, Cost, ToolLocation, ToolStatus, Usage};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::*;
use crate::ignored::MAX_NAMES;
use crate::schema::PromptAnswer;

fn translator() -> Translator {
    let (session, prompt) = (SessionId::parse("s").unwrap(), PromptId::parse("p").unwrap());
    Translator::new(session, &prompt, SessionTotals::of_new_session())
}

fn update(value: &Value) -> Update {
    Update::read(&to_raw_value(value).unwrap())
}

fn ended(reason: &str) -> TurnEnd {
    TurnEnd::Answered(PromptAnswer { stop_reason: Some(reason.to_owned()), usage: None })
}

fn text(text: &str, message: Option<&str>) -> Value {
    json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}, "messageId": message})
}

/// A short form of the events.
fn lines(events: &[AgentEvent]) -> Vec<String> {
    let call = |call: &longshore_model::ToolCall| {
        let mut line = format!("{} {} {}", call.call_id, call.tool, call.status.as_str());
        let optional = [
            ("title", call.title.clone()),
            ("in", call.input.as_ref().map(|input| input.get().to_owned())),
            ("out", call.output.clone()),
            ("error", call.error.clone()),
            ("child", call.child.as_ref().map(ToString::to_string)),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                line = format!("{line} {name}={value:?}");
            }
        }
        line
    };
    let line = |event: &AgentEvent| match event {
        AgentEvent::Text { block, text } => format!("{} {} {text:?}", block.kind.as_str(), block.id),
        AgentEvent::TextEnded { block } => format!("ended {}", block.id),
        AgentEvent::Tool { call: shown, .. } => format!("tool {}", call(shown)),
        AgentEvent::ToolOutput { call: shown, .. } => format!("more {}", call(shown)),
        AgentEvent::Asked(ask) => format!("asked {} {}", ask.request_id, ask.summary),
        AgentEvent::AskClosed { request_id, resolution } => {
            format!("closed {request_id} {}", resolution.as_str())
        }
        AgentEvent::Usage(usage) => {
            format!("usage {} {} {} {}", usage.input, usage.output, usage.total, usage.cost.0)
        }
        AgentEvent::Ended(Outcome::Completed { remark }) => format!("completed {remark:?}"),
        AgentEvent::Child { session, event } => match &**event {
            ChildEvent::Started(start) => {
                format!("child {session} started {:?} {:?}", start.title, start.prompt)
            }
            ChildEvent::Working(prompt) => format!("child {session} works on {prompt}"),
            ChildEvent::Model(model) => format!("child {session} has the model {model}"),
            ChildEvent::Report(event) => {
                format!("child {session}: {}", lines(std::slice::from_ref(event))[0])
            }
        },
        AgentEvent::Session(note) => format!("session {} {:?}", note.id, note.title),
        other => format!("{other:?}"),
    };
    events.iter().map(line).collect()
}

fn translated(updates: &[Value], end: &TurnEnd) -> Vec<String> {
    let mut translator = translator();
    for value in updates {
        translator.update(&update(value));
    }
    translator.end(end);
    assert!(translator.ignored().counts().is_empty(), "{:?}", translator.ignored());
    lines(&translator.take())
}

#[test]
fn a_text_goes_on_until_another_message_or_another_kind_of_output() {
    let thought = json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}});
    let tool =
        json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "bash", "status": "completed"});
    let usage = json!({"sessionUpdate": "usage_update", "used": 1, "size": 2});
    let updates = [
        text("", Some("m1")),
        text("a", Some("m1")),
        usage.clone(),
        text("b", Some("m1")),
        text("c", Some("m2")),
        thought,
        text("d", None),
        text("", None),
        text("e", None),
        tool,
        text("f", None),
    ];
    let expected = [
        "text p.b1 \"ab\"",
        "ended p.b1",
        "text p.b2 \"c\"",
        "ended p.b2",
        "reasoning p.b3 \"hm\"",
        "ended p.b3",
        "text p.b4 \"de\"",
        "ended p.b4",
        "tool c bash completed title=\"bash\"",
        "text p.b6 \"f\"",
        "ended p.b6",
        "completed None",
    ];
    assert_eq!(translated(&updates, &ended("end_turn")), expected);
}

#[test]
fn an_echo_of_the_prompt_is_no_output() {
    let echo = json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "my prompt"}, "messageId": "u"});
    assert_eq!(translated(&[echo], &ended("end_turn")), ["completed None"]);
}

#[test]
fn a_tool_call_that_was_never_announced_is_created_and_merged() {
    let updates = [
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "kind": "execute", "status": "in_progress", "rawInput": {"command": "ls"}}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "running", "content": [{"type": "content", "content": {"type": "text", "text": "a\n"}}]}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "partially_completed", "content": [{"type": "content", "content": {"type": "text", "text": "a\nb\n"}}]}),
        // A status never goes back, and a repeated state changes nothing.
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "pending"}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "title": "list", "status": "completed", "_meta": {"toolName": "shell"}, "rawOutput": {"output": "a\nb\n"}}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "failed"}),
    ];
    let expected = [
        "tool c execute running in=\"{\\\"command\\\":\\\"ls\\\"}\"",
        "more c execute running out=\"a\\n\"",
        "more c execute running out=\"b\\n\"",
        "tool c shell completed title=\"list\" in=\"{\\\"command\\\":\\\"ls\\\"}\" out=\"a\\nb\\n\"",
        "completed None",
    ];
    assert_eq!(translated(&updates, &ended("end_turn")), expected);
}

#[test]
fn the_output_of_a_tool_shows_its_text_its_changes_and_its_terminals() {
    let done = |content: Value, raw: Value| {
        let done = json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "content": content, "rawOutput": raw});
        let mut translator = translator();
        translator.update(&update(&json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "edit", "content": [
            {"type": "diff", "path": "f", "oldText": "a\n", "newText": "b\n"}, {"type": "content", "content": {"type": "text", "text": "what it will do"}}]})));
        translator.update(&update(&done));
        let events = translator.take();
        let Some(AgentEvent::Tool { call, .. }) = events.last() else { panic!("{events:?}") };
        call.output.clone().unwrap_or_default()
    };
    let diff = "--- f\n+++ f\n@@ -1,1 +1,1 @@\n-a\n+b\n";
    assert_eq!(done(Value::Null, "updated".into()), format!("updated\n{diff}"));
    assert_eq!(done(Value::Null, Value::Null), diff);
    assert_eq!(
        done(json!([{"type": "terminal", "terminalId": "t1"}]), Value::Null),
        format!("[terminal t1]\n{diff}")
    );
    assert_eq!(
        done(json!([{"type": "content", "content": {"type": "text", "text": "ok\n"}}]), "raw".into()),
        format!("ok\n{diff}")
    );
    assert_eq!(
        done(Value::Null, json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])),
        format!("a\nb\n{diff}")
    );
}

#[test]
fn a_call_has_its_kind_and_the_places_in_the_directory_of_the_session() {
    let prompt = PromptId::parse("p").unwrap();
    let totals = SessionTotals::of_new_session();
    let translator = Translator::new(SessionId::parse("s").unwrap(), &prompt, totals);
    let mut translator = translator.in_directory("/w".to_owned());
    let change = |members: Value| {
        let mut change =
            json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress"});
        change.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        change
    };
    let output = |text: &str| json!([{"type": "content", "content": {"type": "text", "text": text}}]);
    let places = json!([{"path": "/w/a", "line": 3}, {"path": "/etc/passwd"}]);
    let mut shown = |members: Value| {
        translator.update(&update(&change(members)));
        match translator.take().pop() {
            Some(AgentEvent::Tool { call, .. } | AgentEvent::ToolOutput { call, .. }) => {
                (call.kind, call.locations)
            }
            other => panic!("{other:?}"),
        }
    };
    let read = Some("read".to_owned());
    let place = |path: &str, line| ToolLocation { path: path.to_owned(), line };
    assert_eq!(
        shown(json!({"kind": "read", "locations": places})),
        (read.clone(), vec![place("a", Some(3))])
    );
    assert_eq!(shown(json!({"content": output("x")})), (None, vec![]), "a piece of the output");
    assert_eq!(shown(json!({"locations": [{"path": "b"}]})), (read.clone(), vec![place("b", None)]));
    let end = json!({"kind": "k".repeat(65), "locations": [], "status": "completed"});
    assert_eq!(shown(end), (read, vec![place("b", None)]));
}

#[test]
fn calls_that_get_no_final_update_are_closed_with_the_turn() {
    let request: PermissionRequest = serde_json::from_value::<Value>(json!({"sessionId": "s", "toolCall": {
        "toolCallId": "r", "status": "pending", "title": "touch a", "kind": "execute", "rawInput": {"command": "touch a"}}, "options": []}))
    .map(|value| serde_json::from_str(&value.to_string()).unwrap())
    .unwrap();
    let running =
        json!({"sessionUpdate": "tool_call", "toolCallId": "o", "title": "bash", "status": "in_progress"});
    let errors = |end: &TurnEnd, is_stopped: bool| {
        let mut translator = translator();
        let ask = translator.permission(&request, &AskOptions::words()).unwrap();
        assert!(translator.answered(&ask, true) && !translator.answered(&ask, true));
        translator.update(&update(&running));
        if is_stopped {
            translator.stopped();
        }
        translator.end(end);
        translator.end(end);
        let of_calls = |event: AgentEvent| match event {
            AgentEvent::Tool { call, .. } if call.status == ToolStatus::Error => call.error,
            _ => None,
        };
        translator.take().into_iter().filter_map(of_calls).collect::<Vec<_>>()
    };
    let refused = "The permission for this call was refused.";
    assert_eq!(
        errors(&ended("end_turn"), false),
        [refused, "The turn ended, and the agent did not report how this call ended."]
    );
    assert_eq!(errors(&ended("cancelled"), true), [refused, "The turn was stopped before this call ended."]);
}

#[test]
fn asks_that_are_open_at_the_end_are_dropped_and_later_ones_are_refused() {
    let request: PermissionRequest = serde_json::from_str(
        &json!({"sessionId": "s", "toolCall": {"toolCallId": "c"}, "options": []}).to_string(),
    )
    .unwrap();
    let mut translator = translator();
    assert_eq!(translator.permission(&request, &AskOptions::default()), None, "nothing could allow it");
    assert!(translator.permission(&request, &AskOptions::words()).is_some());
    translator.end(&ended("end_turn"));
    let events = lines(&translator.take());
    assert_eq!(
        events[1..3],
        ["asked p.a2 The agent asks for permission to use: tool", "closed p.a2 dropped"]
    );
    assert_eq!(translator.permission(&request, &AskOptions::words()), None);
    translator.update(&update(&text("late", None)));
    assert!(translator.take().is_empty());
    assert_eq!(translator.ignored().counts().len(), 2);
}

#[test]
fn a_sub_agent_is_one_child_task_however_often_its_call_is_updated() {
    let input = json!({"subagent_type": "general", "description": "count", "prompt": "count words"});
    let progress = json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress", "title": "count", "rawInput": input});
    let output = "found\n\n<task_metadata>\nsession_id: ses_old\n</task_metadata>";
    let updates = [
        json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "task", "kind": "other", "status": "pending", "rawInput": {}}),
        progress.clone(),
        progress.clone(),
        progress,
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed", "rawOutput": {"output": output, "metadata": {
            "summary": [{"id": "prt_1", "tool": "read", "state": {"status": "completed", "title": "go.mod"}}],
            "sessionId": "ses_1", "model": {"modelID": "big", "providerID": "oc"}}}}),
    ];
    let translated = translated(&updates, &ended("end_turn"));
    let expected = [
        "tool c task pending title=\"task\"",
        "child p.s2 started Some(\"count\") \"count words\"",
        "child p.s2 works on p.s2",
    ];
    assert_eq!(translated[..3], expected);
    assert!(
        translated[3].starts_with("tool c task running title=\"count\"")
            && translated[3].ends_with("child=\"p.s2\"")
    );
    let expected = [
        "child p.s2 has the model oc/big",
        "child p.s2: session ses_1 Some(\"count\")",
        "child p.s2: tool prt_1 read completed title=\"go.mod\"",
        "child p.s2: text p.b4 \"found\"",
        "child p.s2: ended p.b4",
        "child p.s2: completed Some(\"The steps of this sub-agent are not shown here. Those that the agent reports are in the task that called the sub-agent.\")",
    ];
    assert_eq!(translated[4..10], expected);
    assert_eq!(translated.len(), 12, "{translated:?}");
    let mut translator = translator();
    for value in &updates {
        translator.update(&update(value));
    }
    let found: Vec<_> = translator.sub_agents().collect();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].kind.as_str(), found[0].model.as_deref()), ("general", Some("oc/big")));
    assert_eq!(found[0].session.as_deref(), Some("ses_1"));
}

#[test]
fn a_sub_agent_that_still_works_fails_with_its_turn() {
    // An older OpenCode does not put the facts about the sub-agent into the input.
    let call = json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "title": "task", "status": "in_progress",
        "subagent_type": "explore", "description": "look around"});
    let translated = translated(&[call], &ended("end_turn"));
    assert_eq!(translated[0], "child p.s2 started Some(\"look around\") \"\"");
    let failures = translated.iter().filter(|line| line.contains("Failed("));
    let failures: Vec<_> = failures.collect();
    assert!(
        failures.len() == 1 && failures[0].contains("is in the task that called the sub-agent"),
        "{failures:?}"
    );
}

#[test]
fn usage_is_that_of_the_turn_wherever_the_agent_reports_it() {
    let last = |totals: SessionTotals, updates: &[Value], end: Value| {
        let prompt = PromptId::parse("p").unwrap();
        let mut translator = Translator::new(SessionId::parse("s").unwrap(), &prompt, totals);
        for value in updates {
            translator.update(&update(value));
        }
        translator.end(&TurnEnd::Answered(serde_json::from_str(&end.to_string()).unwrap()));
        let usages = translator.take().into_iter().filter_map(|event| match event {
            AgentEvent::Usage(usage) => Some(usage),
            _ => None,
        });
        usages.last().unwrap_or_default()
    };
    let new = SessionTotals::of_new_session();
    let of = |input, output, cost| Usage {
        input,
        output,
        total: input + output,
        cost: Cost(cost),
        ..Usage::default()
    };

    // An agent that reports the tokens of each model request, together with an empty text.
    let request = |input: u64| {
        json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": ""},
        "_meta": {"usage": {"inputTokens": input, "outputTokens": 10, "totalTokens": input + 10}}})
    };
    assert_eq!(last(new, &[request(104), request(106)], json!({"stopReason": "end_turn"})), of(210, 20, 0));

    // An agent that reports tokens with the end of the turn, and the cost of the session so far.
    let cost = |amount: f64| json!({"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": amount, "currency": "USD"}});
    let end = json!({"stopReason": "end_turn", "usage": {"inputTokens": 106, "outputTokens": 10, "totalTokens": 116}});
    assert_eq!(last(new, &[cost(0.001)], end.clone()), of(106, 10, 1_000_000));
    let mut second = new;
    let Update::Usage(before) = update(&cost(0.001)) else { panic!() };
    second.note(&before);
    assert_eq!(last(second, &[cost(0.0015)], end.clone()), of(106, 10, 500_000));
    // The cost of the session before it was loaded is unknown, so the cost of this turn is unknown too.
    assert_eq!(last(SessionTotals::of_old_session(), &[cost(0.0015)], end), of(106, 10, 0));

    // An agent that reports the tokens of the whole session.
    let total = |input: u64, output: u64| {
        json!({"sessionUpdate": "usage_update", "used": 1, "size": 2,
        "_meta": {"promptTokens": input, "completionTokens": output, "totalTokens": input + output, "cachedTokens": 0}})
    };
    let mut second = new;
    let Update::Usage(before) = update(&total(206, 20)) else { panic!() };
    second.note(&before);
    let end = json!({"stopReason": "end_turn", "usage": {"inputTokens": 312, "outputTokens": 30, "totalTokens": 342}});
    assert_eq!(last(second, &[total(206, 20), total(312, 30)], end.clone()), of(106, 10, 0));
    assert_eq!(last(new, &[total(312, 30)], end), of(312, 30, 0));
}

#[test]
fn files_links_and_plans_are_reported_once() {
    let chunk = |content: Value| json!({"sessionUpdate": "agent_message_chunk", "content": content});
    let plan = json!({"sessionUpdate": "plan", "entries": [{"content": "a", "status": "pending", "priority": "high"}],
        "_meta": {"effect": 7}});
    let mut translator = translator();
    for value in [
        chunk(json!({"type": "image", "mimeType": "image/png", "data": "cG5n", "uri": "file:///x/a.png"})),
        chunk(json!({"type": "resource", "resource": {"uri": "x:b.txt", "text": "hi"}})),
        chunk(json!({"type": "resource_link", "uri": "file:///x", "name": "x"})),
        plan.clone(),
        plan,
        json!({"sessionUpdate": "session_info_update", "title": "T"}),
        json!({"sessionUpdate": "session_info_update", "title": "T"}),
    ] {
        translator.update(&update(&value));
    }
    let events = translator.take();
    let AgentEvent::File { file, .. } = &events[0] else { panic!("{events:?}") };
    assert_eq!(
        (file.name.as_deref(), file.media_type.as_str(), &*file.bytes),
        (Some("a.png"), "image/png", &b"png"[..])
    );
    let AgentEvent::File { file, .. } = &events[1] else { panic!("{events:?}") };
    assert_eq!(
        (file.name.as_deref(), file.media_type.as_str(), &*file.bytes),
        (Some("x:b.txt"), "text/plain", &b"hi"[..])
    );
    assert_eq!(lines(&events[2..3]), ["text p.b3 \"[x](file:///x)\""]);
    assert!(matches!(&events[3], AgentEvent::Progress(progress) if progress.details.as_ref().unwrap().get()
        == r#"{"type":"todo","todos":[{"content":"a","status":"pending","priority":"high"}],"meta":{"effect":7}}"#));
    assert_eq!(lines(&events[4..]), ["session s Some(\"T\")"]);
}

#[test]
fn files_of_a_call_share_its_paths_and_have_none_if_it_is_not_followed() {
    let image =
        json!({"type": "content", "content": {"type": "image", "mimeType": "image/png", "data": "cG5n"}});
    let call = |id: &str| json!({"sessionUpdate": "tool_call", "toolCallId": id, "rawInput": {"path": "a"}, "content": [image, image]});
    let mut translator = translator().in_directory("/w".to_owned());
    let paths = |translator: &mut Translator, id: &str| {
        translator.update(&update(&call(id)));
        let files = translator.take().into_iter().filter_map(|event| match event {
            AgentEvent::File { block, .. } => Some(block.id),
            _ => None,
        });
        files.collect::<Vec<_>>().iter().map(|file| translator.take_paths(file)).collect::<Vec<_>>()
    };
    let found = paths(&mut translator, "c");
    let [Some(first), Some(second)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(first.iter().collect::<Vec<_>>(), [Path::new("/w/a")]);
    assert!(Arc::ptr_eq(&first.of_call, &second.of_call));
    for number in 0..511 {
        let value = json!({"sessionUpdate": "tool_call", "toolCallId": format!("o{number}")});
        translator.update(&update(&value));
    }
    assert_eq!(paths(&mut translator, "over"), [None, None]);
}

#[test]
fn a_call_that_was_refused_runs_once_it_is_allowed_or_the_agent_says_so() {
    let request: PermissionRequest = serde_json::from_str(
        &json!({"sessionId": "s", "toolCall": {"toolCallId": "c"}, "options": []}).to_string(),
    )
    .unwrap();
    for is_asked_again in [true, false] {
        let mut translator = translator();
        let refused = translator.permission(&request, &AskOptions::words()).unwrap();
        translator.answered(&refused, true);
        assert!(!translator.may_be_silent());
        if is_asked_again {
            let allowed = translator.permission(&request, &AskOptions::words()).unwrap();
            translator.answered(&allowed, false);
        } else {
            let status =
                json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress"});
            translator.update(&update(&status));
        }
        assert!(translator.may_be_silent(), "{is_asked_again}");
    }
}

#[test]
fn thoughts_and_messages_may_hold_images_and_links() {
    for (kind, word) in [("agent_message_chunk", "text"), ("agent_thought_chunk", "reasoning")] {
        let mut translator = translator();
        for content in [
            json!({"type": "image", "mimeType": "image/png", "data": "cG5n"}),
            json!({"type": "resource_link", "uri": "file:///x", "name": "x"}),
            json!({"type": "image", "mimeType": "image/png", "uri": "https://e.org/a.png"}),
        ] {
            translator.update(&update(&json!({"sessionUpdate": kind, "content": content})));
        }
        let events = translator.take();
        assert!(matches!(&events[0], AgentEvent::File { .. }), "{events:?}");
        let link = "[x](file:///x)[https://e.org/a.png](https://e.org/a.png)";
        assert_eq!(lines(&events[1..]), [format!("{word} p.b2 {link:?}")]);
        assert!(translator.ignored().counts().is_empty(), "{:?}", translator.ignored());
    }
}

#[test]
fn what_cannot_be_translated_is_counted_by_name_and_bounded() {
    let mut translator = translator();
    let content =
        json!([{"type": "smell"}, {"type": "terminal", "terminalId": "t"}, {"type": "diff", "path": "p"}]);
    translator.update(&update(
        &json!({"sessionUpdate": "tool_call", "toolCallId": "c", "status": "odd", "content": content}),
    ));
    translator
        .update(&update(&json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "smell"}})));
    let names: Vec<_> = translator.ignored().counts().into_keys().collect();
    assert_eq!(names, ["content smell", "tool content smell", "tool status odd"]);
    for number in 0..1000 {
        let content = json!({"type": format!("kind {number}")});
        translator.update(&update(&json!({"sessionUpdate": "agent_message_chunk", "content": content})));
        let call = json!({"sessionUpdate": "tool_call", "toolCallId": format!("c{number}"), "status": "in_progress"});
        translator.update(&update(&call));
    }
    let counts = translator.ignored().counts();
    assert!(counts.len() == MAX_NAMES + 1 && counts["other"] > 1000 - MAX_NAMES as u64, "{counts:?}");
    let reported = translator.take().iter().filter(|event| matches!(event, AgentEvent::Tool { .. })).count();
    assert_eq!(reported, 512);
}

#[test]
fn a_repeated_history_shows_how_its_last_turn_ended() {
    let user = |text: &str, message: &str| json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": text}, "messageId": message});
    let mut replay = Replay::default();
    for value in [
        user("first", "1"),
        text("one", Some("a")),
        user("sec", "2"),
        user("ond", "2"),
        json!({"sessionUpdate": "tool_call", "toolCallId": "c", "status": "failed"}),
        text("two three", Some("b")),
    ] {
        replay.update(&update(&value));
    }
    assert_eq!(
        (replay.prompts, replay.last.prompt.as_str(), replay.last.reply.as_str()),
        (2, "second", "two three")
    );
    assert_eq!(replay.last.calls["c"], "failed");
    assert!(
        replay.last.went_on("two") && !replay.last.went_on("two three ") && !replay.last.went_on("other")
    );
}
