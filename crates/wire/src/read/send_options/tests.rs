//! Tests of each option in both metadata objects, and of the exact error of each invalid value.

use longshore_model::{
    Delivery, ErrorKind, ModelName, PushEvents, PushWord, Result, SendMessage, SendOptions, TaskState,
};

use crate::v1::decode::send_message;

fn sent(request: &str, message: &str) -> Result<SendMessage> {
    send_message(&format!(
        r#"{{"metadata":{request},"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"x"}}],"metadata":{message}}}}}"#
    ))
}

/// Reads the value of a field from the options.
type Get = fn(&SendOptions) -> Option<String>;

/// The fields: for each its path, an object in which `@` stands for its value, and a function that reads the value back.
const FIELDS: [(&str, &str, Get); 13] = [
    ("shared.session.id", r#"{"shared":{"session":{"id":@}}}"#, |w| {
        w.session.as_ref().map(ToString::to_string)
    }),
    ("shared.session.title", r#"{"shared":{"session":{"title":@}}}"#, |w| w.session_title.clone()),
    ("opencode.directory", r#"{"opencode":{"directory":@}}"#, |w| w.directory.clone()),
    ("iac_code.cwd", r#"{"iac_code":{"cwd":@}}"#, |w| w.directory.clone()),
    ("opencode.workspace.id", r#"{"opencode":{"workspace":{"id":@}}}"#, |w| w.workspace.clone()),
    ("opencode.agent", r#"{"opencode":{"agent":@}}"#, |w| w.prompt.agent.clone()),
    ("opencode.variant", r#"{"opencode":{"variant":@}}"#, |w| w.prompt.variant.clone()),
    ("opencode.system", r#"{"opencode":{"system":@}}"#, |w| w.prompt.system.clone()),
    ("shared.model.providerID", r#"{"shared":{"model":{"providerID":@,"modelID":"wrk"}}}"#, |w| {
        w.prompt.model.as_ref().map(|model| model.provider.clone())
    }),
    ("shared.model.modelID", r#"{"shared":{"model":{"providerID":"wrk","modelID":@}}}"#, |w| {
        w.prompt.model.as_ref().map(|model| model.model.clone())
    }),
    ("shared.model", r#"{"shared":{"model":@}}"#, |w| w.prompt.model.as_ref().map(ToString::to_string)),
    ("shared.mode", r#"{"shared":{"mode":@}}"#, |w| w.prompt.mode.clone()),
    ("shared.config.effort", r#"{"shared":{"config":{"effort":@}}}"#, |w| {
        w.prompt.config.get("effort").cloned()
    }),
];

#[test]
fn each_field_is_read_from_the_request_or_else_from_the_message() {
    for (field, shape, get) in FIELDS {
        let of = |value: &str| shape.replace('@', value);
        let read = |request: &str, message: &str| get(&sent(request, message).expect(field).options);
        let (one, two) = (of(r#""wrk_1""#), of(r#""wrk_2""#));
        let first = Some("wrk_1".to_owned());
        assert_eq!(read(&one, "null"), first, "{field}");
        assert_eq!(read("null", &one), first, "{field}");
        assert_eq!(read(&one, &two), first, "{field}");
        assert_eq!(read(r#"{"other":1,"shared":null,"opencode":{},"iac_code":{}}"#, &one), first, "{field}");
        assert_eq!(read("{}", "{}"), None, "{field}");
        for blank in [r#""""#, r#"" \n\t""#, "null"] {
            if field == "shared.model.providerID" {
                assert_eq!(read(&of(blank), &one).as_deref(), Some(""), "{field}: {blank} counts as absent");
            } else if field == "shared.model.modelID" {
                let error = sent(&of(blank), &one).expect_err(field);
                assert_eq!(error.violations()[0].field, format!("metadata.{field}"));
                assert!(error.message().contains("is required together with"), "{error}");
            } else {
                assert_eq!(read(&of(blank), &one), first, "{field}: {blank} counts as absent");
                assert_eq!(read(&of(blank), "null"), None, "{field}: {blank} counts as absent");
            }
        }
    }
}

#[track_caller]
fn refused(request: &str, message: &str, path: &str) -> String {
    let error = sent(request, message).expect_err(path);
    assert_eq!((error.kind(), error.violations()[0].field.as_str()), (ErrorKind::InvalidParams, path));
    error.violations()[0].description.clone()
}

#[test]
fn a_field_of_the_wrong_type_is_refused_in_either_object() {
    let good = r#"{"shared":{"session":{"id":"s"},"model":{"providerID":"p","modelID":"m"}},"opencode":{"directory":"d","workspace":{"id":"wrk"},"agent":"a","variant":"v","system":"s"}}"#;
    for (field, shape, _) in FIELDS {
        for value in ["7", "true", "[]", "{}", r#"["x"]"#] {
            let json = shape.replace('@', value);
            // A model may also be an object.
            if field == "shared.model" {
                assert!(value == "{}" || sent(&json, "null").is_err(), "{json}");
                continue;
            }
            assert_eq!(refused(&json, "null", &format!("metadata.{field}")), "must be a string", "{json}");
            // The error is reported even if the other object overrides the field.
            refused(good, &json, &format!("message.metadata.{field}"));
        }
    }
    for (json, path) in [
        (r#"{"shared":[]}"#, "metadata.shared"),
        (r#"{"shared":{"session":"ses_1"}}"#, "metadata.shared.session"),
        (r#"{"shared":{"model":["p/m"]}}"#, "metadata.shared.model"),
        (r#"{"shared":{"delivery":{}}}"#, "metadata.shared.delivery"),
        (r#"{"opencode":"x"}"#, "metadata.opencode"),
        (r#"{"opencode":{"workspace":"wrk_1"}}"#, "metadata.opencode.workspace"),
        (r#"{"opencode":{"format":"text"}}"#, "metadata.opencode.format"),
        (r#"{"iac_code":7}"#, "metadata.iac_code"),
    ] {
        refused(json, "null", path);
        refused("null", json, &format!("message.{path}"));
    }
}

#[test]
fn text_has_a_maximal_length_and_no_control_characters() {
    for (field, shape, _) in FIELDS {
        let (is_id, is_system) =
            (field.ends_with("session.id") || field.ends_with("workspace.id"), field == "opencode.system");
        let of = |text: &str| shape.replace('@', &serde_json::to_string(text).unwrap());
        let path = format!("metadata.{field}");
        let limit = if is_system { 64 * 1024 } else { 1024 };
        // The limit is in bytes, not in characters.
        let (longest, longer) = ("é".repeat(limit / 2), format!("a{}", "é".repeat(limit / 2)));
        if !is_id {
            assert!(sent(&of(&longest), "null").is_ok(), "{field}");
        }
        assert_eq!(refused(&of(&longer), "null", &path), format!("must have at most {limit} bytes"));
        for control in ["wrk\0x", "wrk\u{1b}[2J", "wrk\u{7f}", "wrk\u{85}x"] {
            assert_eq!(
                refused(&of(control), "null", &path),
                "must not hold control characters",
                "{control:?}"
            );
        }
        for layout in ["wrk\nx", "wrk\r\nx", "wrk\tx"] {
            let is_taken = is_system || field == "shared.session.title";
            assert_eq!(sent(&of(layout), "null").is_ok(), is_taken, "{field} {layout:?}");
        }
    }
}

#[test]
fn ids_must_be_valid() {
    for (field, shape, prefix) in [
        ("shared.session.id", r#"{"shared":{"session":{"id":"@"}}}"#, "ses"),
        ("opencode.workspace.id", r#"{"opencode":{"workspace":{"id":"@"}}}"#, "wrk"),
    ] {
        for rest in ["/abort?", "..%2fconfig", " x", "é", "#", &"a".repeat(129)] {
            refused(&shape.replace('@', &format!("{prefix}{rest}")), "null", &format!("metadata.{field}"));
        }
    }
    for id in ["x", "ses_1", "WRK_1", "_wrk"] {
        let json = format!(r#"{{"opencode":{{"workspace":{{"id":"{id}"}}}}}}"#);
        assert!(refused(&json, "null", "metadata.opencode.workspace.id").contains("wrk"));
    }
}

/// Clients may send the object back as they received it, whatever title it contains.
#[test]
fn the_title_of_a_session_that_exists_is_not_read() {
    for title in [r#""A title""#, r#""two\nlines""#, "7"] {
        let json = format!(r#"{{"shared":{{"session":{{"id":"ses_1","title":{title}}}}}}}"#);
        let options = sent(&json, "null").expect(title).options;
        assert_eq!((options.session.is_some(), options.session_title), (true, None), "{title}");
    }
}

#[test]
fn the_title_of_a_new_session_becomes_one_line() {
    for title in [r#""A\nB""#, r#""\r\n A \t\n\nB\n""#] {
        let json = format!(r#"{{"shared":{{"session":{{"title":{title}}}}}}}"#);
        assert_eq!(sent(&json, "null").unwrap().options.session_title.as_deref(), Some("A B"), "{title}");
    }
}

#[test]
fn a_provider_needs_a_model_and_a_model_may_be_named_alone() {
    let model = |json: &str| format!(r#"{{"shared":{{"model":{json}}}}}"#);
    let other = model(r#"{"providerID":"q","modelID":"n"}"#);
    for json in [r#"{"providerID":"p"}"#, r#"{"providerID":"p","modelID":null}"#] {
        refused(&model(json), "null", "metadata.shared.model.modelID");
        refused(&model(json), &other, "metadata.shared.model.modelID");
    }
    for json in [r#""m""#, r#"{"modelID":"m","providerID":" "}"#, r#"{"modelID":"m"}"#] {
        // Parts from the two objects are not combined.
        for message in ["null", other.as_str()] {
            let options = sent(&model(json), message).unwrap().options;
            assert_eq!(options.prompt.model, Some(ModelName::plain("m")), "{json}");
        }
    }
    assert_eq!(
        sent(&model("{}"), &model(r#"{"providerID":"","modelID":""}"#)).unwrap().options,
        SendOptions::default()
    );
    // The name of a model may contain any character.
    let options = sent(&model(r#"{"providerID":"p","modelID":"a/b:c é"}"#), "null").unwrap().options;
    assert_eq!(options.prompt.model.unwrap().model, "a/b:c é");
}

#[test]
fn a_directory_has_two_names() {
    let metadata = |directory: &str, cwd: &str| {
        format!(r#"{{"opencode":{{"directory":"{directory}"}},"iac_code":{{"cwd":"{cwd}"}}}}"#)
    };
    for (request, message, expected) in [
        (metadata("/a", "/a"), "null".to_owned(), "/a"),
        (metadata("/a", ""), metadata("", "/b"), "/a"),
        (metadata("", "/a"), metadata("/b", ""), "/a"),
        (metadata("", ""), metadata("/b", " "), "/b"),
        (metadata("", " "), metadata("", "/b"), "/b"),
    ] {
        let options = sent(&request, &message).unwrap().options;
        assert_eq!(options.directory.as_deref(), Some(expected), "{request} {message}");
    }
    refused(&metadata("/a", "/b"), "null", "metadata.iac_code.cwd");
    refused(&metadata("/a", "/a"), &metadata("/a", "/a/"), "message.metadata.iac_code.cwd");
}

#[test]
fn a_delivery_is_one_of_three_words() {
    let delivery = |word: &str| format!(r#"{{"shared":{{"delivery":"{word}"}}}}"#);
    for expected in Delivery::ALL {
        let read = sent(&delivery(expected.as_str()), &delivery("queue")).unwrap();
        assert_eq!(read.options.delivery, expected);
    }
    assert_eq!(sent(&delivery(" "), &delivery("steer")).unwrap().options.delivery, Delivery::Steer);
    assert_eq!(sent("null", "null").unwrap().options.delivery, Delivery::Queue);
    for word in ["Queue", "queue ", "now"] {
        let text = refused(&delivery(word), "null", "metadata.shared.delivery");
        assert_eq!(text, "must be one of queue, reject, steer");
    }
}

#[test]
fn the_only_format_is_text() {
    let format = |json: &str| format!(r#"{{"opencode":{{"format":{json}}}}}"#);
    for json in ["null", r#"{"type":"text"}"#, r#"{"type":"text","more":1}"#] {
        assert_eq!(sent(&format(json), "null").unwrap().options, SendOptions::default(), "{json}");
    }
    let schema = format(r#"{"type":"json_schema","schema":{"type":"object"}}"#);
    assert!(refused(&schema, "null", "metadata.opencode.format.type").contains("json_schema"));
    refused("null", &schema, "message.metadata.opencode.format.type");
    for json in ["{}", r#"{"type":null}"#, r#"{"type":"xml"}"#, r#"{"type":7}"#] {
        refused(&format(json), "null", "metadata.opencode.format.type");
    }
}

#[test]
fn push_events_are_all_or_a_list_of_states_in_any_spelling() {
    let events = |value: &str| format!(r#"{{"shared":{{"push":{{"events":{value}}}}}}}"#);
    let of = |words: &[PushWord]| Some(words.iter().copied().collect::<PushEvents>());
    let both = of(&[PushWord::State(TaskState::InputRequired), PushWord::State(TaskState::Canceled)]);
    for (value, expected) in [
        (r#""all""#, Some(PushEvents::ALL)),
        (r#"["input_required","canceled"]"#, both),
        (r#"["input-required","cancelled"]"#, both),
        (r#"["TASK_STATE_INPUT_REQUIRED","TASK_STATE_CANCELLED"]"#, both),
        (r#"["artifact"]"#, of(&[PushWord::Artifact])),
        ("null", None),
    ] {
        assert_eq!(sent(&events(value), "null").unwrap().options.push_events, expected, "{value}");
        assert_eq!(sent("null", &events(value)).unwrap().options.push_events, expected, "{value}");
    }
    let field = "metadata.shared.push.events";
    for (value, path) in [
        (r#""completed""#, field.to_owned()),
        ("[]", field.to_owned()),
        (r#"["completed","done"]"#, format!("{field}[1]")),
        ("[1]", format!("{field}[0]")),
    ] {
        refused(&events(value), "null", &path);
    }
}

#[test]
fn options_of_the_agent_are_bounded_and_those_of_the_request_win() {
    let config = |request: &str, message: &str| sent(request, message).map(|sent| sent.options.prompt.config);
    let both = config(
        r#"{"shared":{"config":{"effort":"max"}}}"#,
        r#"{"shared":{"config":{"effort":"low","tone":"dry"}}}"#,
    );
    let expected = [("effort", "max"), ("tone", "dry")];
    assert_eq!(both.unwrap(), expected.map(|(id, value)| (id.to_owned(), value.to_owned())).into());
    let many: Vec<_> = (0..=super::MAX_CONFIG).map(|number| format!(r#""o{number}":"x""#)).collect();
    for (config, field) in [
        (format!("{{{}}}", many.join(",")), "metadata.shared.config"),
        (r#"["effort"]"#.to_owned(), "metadata.shared.config"),
        (r#"{"effort":1}"#.to_owned(), "metadata.shared.config.effort"),
        (r#"{"\u0007":"x"}"#.to_owned(), "metadata.shared.config"),
    ] {
        let error = sent(&format!(r#"{{"shared":{{"config":{config}}}}}"#), "null").unwrap_err();
        assert_eq!(error.violations()[0].field, field);
    }
}

#[test]
fn the_chain_of_gateways_is_read_in_bounds() {
    let hops = |list: &str| format!(r#"{{"shared":{{"hops":{list}}}}}"#);
    let one = r#"{"gateway":"a","signature":"s"}"#;
    let read = |request: &str, message: &str| sent(request, message).unwrap().options.prompt.hops.0;
    let list = hops(&format!("[{one}]"));
    for found in [read(&list, "null"), read("null", &list), read(&list, &hops("[]"))] {
        assert_eq!((found.len(), found[0].gateway.as_str(), found[0].signature.as_str()), (1, "a", "s"));
    }
    let many = hops(&format!("[{}]", vec![one; 33].join(",")));
    assert!(refused(&many, "null", "metadata.shared.hops").contains("at most 32"));
    let field = "message.metadata.shared.hops[0].signature";
    assert!(refused("null", &hops(r#"[{"gateway":"a"}]"#), field).contains("is required"));
    let steering = format!(r#"{{"shared":{{"delivery":"steer","hops":[{one}]}}}}"#);
    assert!(refused(&steering, "null", "metadata.shared.delivery").contains("cannot join a turn"));
}
