use longshore_model::{AskOption, AskOptions, Json, MessageId, OptionKind, Part, Role, SessionId};

use super::*;

fn ask(id: &str, kind: AskKind, questions: &[(&[&str], bool)]) -> Ask {
    Ask {
        request_id: RequestId::parse(id).unwrap(),
        kind,
        session: SessionId::parse("ses").unwrap(),
        summary: format!("Summary of {id}."),
        details: Json::parse("{}").unwrap(),
        questions: questions
            .iter()
            .map(|(options, multiple)| Question {
                text: "?".to_owned(),
                options: options.iter().map(|&label| label.to_owned()).collect(),
                multiple: *multiple,
                custom: true,
            })
            .collect(),
        call: None,
        permission: None,
        options: AskOptions::words(),
    }
}

fn permission() -> Ask {
    ask("per_1", AskKind::Permission, &[])
}

fn read_parts(parts: Vec<Part>, open: &[&Ask]) -> Result<(String, Answer), String> {
    let message = Message::new(MessageId::parse("m").unwrap(), Role::User, parts);
    read(&message, open, AlwaysScope::Session)
        .map(|(id, answer)| (id.to_string(), answer))
        .map_err(|error| error.violations()[0].field.clone())
}

fn words(text: &str, ask: &Ask) -> Result<Answer, String> {
    read_parts(vec![Part::text(text)], &[ask]).map(|(_, answer)| answer)
}

fn data(json: &str, open: &[&Ask]) -> Result<(String, Answer), String> {
    read_parts(vec![Part::text("ignored"), Part::data(Json::parse(json).unwrap())], open)
}

fn reply(reply: PermissionReply, message: Option<&str>) -> Answer {
    Answer::Permission { reply, message: message.map(str::to_owned) }
}

fn answers(lists: &[&[&str]]) -> Answer {
    let list = |labels: &&[&str]| labels.iter().map(|&label| label.to_owned()).collect();
    Answer::Question { answers: lists.iter().map(list).collect() }
}

#[test]
fn words_answer_a_permission() {
    let cases = [
        ("once", Ok(reply(PermissionReply::Once, None))),
        (" Always\n", Ok(reply(PermissionReply::Always, None))),
        ("REJECT", Ok(reply(PermissionReply::Reject, None))),
        ("reject: use the other file", Ok(reply(PermissionReply::Reject, Some("use the other file")))),
        ("reject, not now", Ok(reply(PermissionReply::Reject, Some("not now")))),
        ("once upon a time", Err("message.parts".to_owned())),
        ("sure", Err("message.parts".to_owned())),
        ("", Err("message.parts".to_owned())),
    ];
    for (text, expected) in cases {
        assert_eq!(words(text, &permission()), expected, "{text:?}");
    }
}

/// A permission request of an agent that has options of its own.
fn with_options() -> Ask {
    let offered = [
        ("proceed_always_project", "Always Allow in project: touch *", OptionKind::AllowAlways),
        ("proceed_always_user", "Always Allow for user: touch *", OptionKind::AllowAlways),
        ("proceed_once", "Allow", OptionKind::AllowOnce),
        ("cancel", "Reject", OptionKind::RejectOnce),
        ("explain", "Reject and explain", OptionKind::Other),
        ("always", "For ever", OptionKind::AllowAlways),
        ("once", "Yes, and stop asking", OptionKind::AllowAlways),
    ];
    let offered =
        offered.map(|(id, name, kind)| AskOption { id: id.to_owned(), name: name.to_owned(), kind });
    Ask { options: AskOptions::new(offered), ..permission() }
}

fn option(id: &str) -> Answer {
    Answer::PermissionOption { option: id.to_owned(), message: None }
}

#[test]
fn a_word_an_id_or_a_name_chooses_an_option() {
    use AlwaysScope::{Agent, Session};
    let ask = with_options();
    let (once, always) = (reply(PermissionReply::Once, None), reply(PermissionReply::Always, None));
    let reject = |reason| reply(PermissionReply::Reject, reason);
    // The last column: the field of the data part that holds the text. `None`: no single field can hold it.
    let cases = [
        ("Once", Session, Ok(once.clone()), Some("reply")),
        ("always", Session, Ok(always.clone()), Some("option")),
        ("reject", Session, Ok(reject(None)), Some("option_id")),
        ("reject: no", Session, Ok(reject(Some("no"))), None),
        ("proceed_once", Session, Ok(option("proceed_once")), Some("option")),
        (" ALLOW ", Session, Ok(option("proceed_once")), Some("reply")),
        ("cancel", Session, Ok(option("cancel")), Some("option_id")),
        // An option name that begins with `reject` is not the word `reject` with a reason.
        ("reject and explain", Agent, Ok(option("explain")), Some("option")),
        // Nobody knows whether the agent would keep this answer for later asks.
        ("reject and explain", Session, Err("might keep the answer explain"), Some("option")),
        // The id of this option is a word of another kind. Sending the word would allow something else.
        ("Yes, and stop asking", Session, Err("control.always_scope"), Some("option")),
        ("Yes, and stop asking", Agent, Ok(option("once")), Some("option")),
        // This option has both the id and the kind of a word, so the word is sent.
        ("For ever", Session, Ok(always.clone()), Some("option")),
        ("proceed_always_user", Session, Err("control.always_scope"), Some("option")),
        ("Always Allow for user: touch *", Session, Err("control.always_scope"), Some("option_id")),
        ("proceed_always_user", Agent, Ok(option("proceed_always_user")), Some("reply")),
        ("Always Allow for user: touch *", Agent, Ok(option("proceed_always_user")), Some("option")),
        // Several options of the agent allow always, so the word alone does not choose one of them.
        ("always", Agent, Err("Name one of: proceed_always_project ("), Some("reply")),
        ("perhaps", Session, Err("proceed_once (Allow), cancel (Reject), explain"), Some("option")),
        ("proceed", Agent, Err("proceed_once (Allow), cancel (Reject), explain"), Some("reply")),
    ];
    for (text, scope, expected, field) in cases {
        let json = |field: &str| Json::from_value(&serde_json::json!({"request_id": "per_1", field: text}));
        let data = field.map(|field| Part::data(json(field)));
        for part in [Some(Part::text(text)), data].into_iter().flatten() {
            let message = Message::new(MessageId::parse("m").unwrap(), Role::User, vec![part]);
            match (read(&message, &[&ask], scope), &expected) {
                (Ok((_, answer)), Ok(expected)) => assert_eq!(answer, *expected, "{text}"),
                (Err(error), Err(words)) => assert!(error.message().contains(words), "{text}: {error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }
}

#[test]
fn a_word_that_the_agent_has_no_option_for_is_refused() {
    let kinds = [("y", OptionKind::AllowAlways), ("x", OptionKind::Other)];
    let offered = kinds.map(|(id, kind)| AskOption { id: id.to_owned(), name: id.to_owned(), kind });
    let ask = Ask { options: AskOptions::new(offered), ..permission() };
    for (text, expected) in [("once", false), ("always", false), ("reject", true), ("x", false)] {
        let fitting = fit(&ask, Answer::permission(text, None), AlwaysScope::Session);
        assert_eq!(fitting.is_ok(), expected, "{text}: {fitting:?}");
    }
}

#[test]
fn words_answer_a_question() {
    let one = ask("que_1", AskKind::Question, &[(&["Red", "Green"], false)]);
    let many = ask("que_1", AskKind::Question, &[(&["Red", "Green", "Blue"], true)]);
    let two = ask("que_1", AskKind::Question, &[(&["A", "B"], false), (&["C"], false)]);
    let odd = ask("que_1", AskKind::Question, &[(&["reject", "accept"], false)]);
    let cases = [
        (&one, "green", Ok(answers(&[&["Green"]]))),
        (&one, "something else, really", Ok(answers(&[&["something else, really"]]))),
        (&one, "Reject", Ok(Answer::RejectQuestion)),
        (&odd, "reject", Ok(answers(&[&["reject"]]))),
        (&many, "red, BLUE", Ok(answers(&[&["Red", "Blue"]]))),
        (&many, "red, purple", Ok(answers(&[&["red, purple"]]))),
        (&two, "b\n\nmy own", Ok(answers(&[&["B"], &["my own"]]))),
        (&two, "b", Err("message.parts".to_owned())),
        (&one, "  ", Err("message.parts".to_owned())),
    ];
    for (ask, text, expected) in cases {
        assert_eq!(words(text, ask), expected, "{text:?}");
    }
}

#[test]
fn a_data_part_names_its_ask() {
    let (permission, question) = (permission(), ask("que_1", AskKind::Question, &[(&["A"], false)]));
    let open = [&permission, &question];
    let named = |id: &str, answer: Answer| Ok((id.to_owned(), answer));
    let field = |field: &str| Err(format!("message.parts[1].data{field}"));
    let cases = [
        (r#"{"request_id":"per_1","reply":"once"}"#, named("per_1", reply(PermissionReply::Once, None))),
        (
            r#"{"request_id":"per_1","reply":"reject","message":"no"}"#,
            named("per_1", reply(PermissionReply::Reject, Some("no"))),
        ),
        (
            r#"{"request_id":"per_1","words":"reject: no"}"#,
            named("per_1", reply(PermissionReply::Reject, Some("no"))),
        ),
        (r#"{"request_id":"que_2","words":"reject: no"}"#, field(".request_id")),
        (r#"{"request_id":"que_1","answers":[["A"]]}"#, named("que_1", answers(&[&["A"]]))),
        (r#"{"request_id":"que_1","reply":"reject"}"#, named("que_1", Answer::RejectQuestion)),
        (r#"{"request_id":"per_2","reply":"once"}"#, field(".request_id")),
        (r#"{"request_id":"per_1","reply":"maybe"}"#, field(".reply")),
        (r#"{"request_id":"per_1","option":"maybe"}"#, field(".option")),
        (r#"{"request_id":"per_1","reply":"once","option":"once"}"#, field(".option")),
        (r#"{"request_id":"per_1","option_id":"once","option":"once"}"#, field("")),
        (
            r#"{"request_id":"per_1","option":"Allow once"}"#,
            named("per_1", reply(PermissionReply::Once, None)),
        ),
        (r#"{"request_id":"per_1","answers":[["A"]]}"#, field(".reply")),
        (r#"{"request_id":"que_1","reply":"once"}"#, field(".answers")),
        (r#"{"reply":"once"}"#, field("")),
        ("[1]", field("")),
    ];
    for (json, expected) in cases {
        assert_eq!(data(json, &open), expected, "{json}");
    }
}

#[test]
fn words_with_several_asks_open_are_refused_with_the_list() {
    let (one, two) = (permission(), ask("per_2", AskKind::Permission, &[]));
    let message = Message::new(MessageId::parse("m").unwrap(), Role::User, vec![Part::text("once")]);
    let error = read(&message, &[&one, &two], AlwaysScope::Session).unwrap_err();
    for id in ["per_1", "per_2"] {
        assert!(error.message().contains(id), "{error}");
    }
}

#[test]
fn the_form_of_an_answer_does_not_depend_on_the_open_asks() {
    let data = |json: &str| Part::data(Json::parse(json).unwrap());
    let named = r#"{"request_id":"per_1","reply":"once"}"#;
    let is = |name: &str| Some(AnswerForm::Named(RequestId::parse(name).unwrap()));
    let cases = [
        (vec![Part::text("approved"), data(named)], is("per_1")),
        (vec![data(r#"{"other":1}"#), data(named)], is("per_1")),
        (vec![data(r#"{"request_id":"que_1","answers":[["A"]]}"#)], is("que_1")),
        (vec![data(r#"{"request_id":"per_1","option_id":"proceed_once"}"#)], is("per_1")),
        (vec![data(r#"{"request_id":"per_1","words":"once"}"#)], is("per_1")),
        (vec![data(r#"{"request_id":"per_1"}"#)], None),
        (vec![data(r#"{"reply":"once"}"#)], None),
        (vec![Part::text(" Once\n")], Some(AnswerForm::Text)),
        (vec![Part::text("reject: use the other file")], Some(AnswerForm::Text)),
        (vec![Part::text("reject"), Part::text("not now")], Some(AnswerForm::Text)),
        (vec![Part::text("Reject\nnot now")], Some(AnswerForm::Text)),
        (vec![Part::text("reject, not now")], Some(AnswerForm::Text)),
        (vec![Part::text("Reject inputs longer than 5 characters: they break the table.")], None),
        (vec![Part::text("once upon a time")], None),
        (vec![Part::text("rejected")], None),
        (vec![Part::text("once"), Part::new(PartContent::Raw(vec![1]))], None),
        (vec![], None),
    ];
    for (parts, expected) in cases {
        let message = Message::new(MessageId::parse("m").unwrap(), Role::User, parts.clone());
        assert_eq!(form(&message), expected, "{parts:?}");
    }
}
