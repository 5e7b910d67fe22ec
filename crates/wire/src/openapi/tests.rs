//! Tests that the document is complete, describes what is served, and that all output of the gateway matches its schemas.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::LazyLock;

use longshore_model::{
    Action, Approval, Ask, AskKind, AskOption, AskOptions, ContextId, Entry, Epoch, Error, ErrorKind,
    Interrupt, Json, Offers, OptionKind, OutputModes, Principal, RequestId, Seq, SessionId, Task, TaskEvent,
    TaskId, Timestamp,
};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use super::schema::Dialect;
use super::*;
use crate::agent::AgentSurface;
use crate::contract::{
    self, Base, HealthFacts, Part, card, full_deployment, health, merged_card, plain_deployment,
};
use crate::extension::Activated;
use crate::jsonrpc::{self, Id};
use crate::methods;
use crate::opencode::{self, samples};
use crate::surface::{Endpoint, OPERATIONS, ProtocolVersion, ROUTES};
use crate::testing::arbitrary;
use crate::testing::document::{changes as document_changes, elide, print};
use crate::testing::params::{changes, full as full_params};
use crate::v1::encode::View;
use crate::{v1, v03};

mod check;

/// The whole document. It is built once, because thousands of values are checked against it.
fn whole() -> &'static Value {
    static WHOLE: LazyLock<Value> =
        LazyLock::new(|| value(&Deployment { metrics: true, ..full_deployment() }, Audience::Authenticated));
    &WHOLE
}

/// Checks bytes against a schema of the document, by its name.
fn fits(document: &Value, name: &str, bytes: &[u8]) -> Result<(), String> {
    let value: Value = serde_json::from_slice(bytes).expect("JSON");
    check::check(document, &schema::reference(name), &value).map_err(|why| format!("{name}: {why}"))
}

/// The contracts of extensions, which the snapshots of the cards contain.
fn contracts(deployment: &Deployment) -> Vec<(String, Value)> {
    let mut contracts = Vec::new();
    for audience in [Audience::Anonymous, Audience::Authenticated] {
        for entry in contract::extensions(deployment, ProtocolVersion::V1, audience, Base::Root) {
            let mut contract = entry.params.map_or_else(|| json!({}), |params| params.to_value());
            contract["extension_uri"] = json!(entry.uri);
            contract["required"] = json!(entry.required);
            contracts.push((format!("{audience:?} {}", entry.uri), contract));
        }
    }
    contracts
}

/// The snapshots contain the document of the default deployment in full, and the others as differences to it.
#[test]
fn the_documents() {
    let read = |deployment: &Deployment, audience| -> Value {
        let mut value = serde_json::from_slice(&document(deployment, audience)).unwrap();
        elide(&mut value, &contracts(deployment));
        value
    };
    let default = read(&plain_deployment(), Audience::Authenticated);
    let anonymous = read(&plain_deployment(), Audience::Anonymous);
    insta::assert_snapshot!("default", print(&default));
    insta::assert_snapshot!("anonymous_beside_authenticated", document_changes(&default, &anonymous));
    for (name, default, audience) in
        [("authenticated", default, Audience::Authenticated), ("anonymous", anonymous, Audience::Anonymous)]
    {
        let full = read(&full_deployment(), audience);
        insta::assert_snapshot!(format!("{name}_full_beside_default"), document_changes(&default, &full));
    }
}

/// Words with the name of OpenCode remain only where clients of every agent know them.
#[test]
fn the_documents_of_another_agent_name_nothing_of_opencode() {
    let deployment = Deployment {
        title: "Qwen Code".to_owned(),
        description: "A coding agent (Qwen Code).".to_owned(),
        agent_name: "Qwen Code".to_owned(),
        surface: &AgentSurface::PLAIN,
        control: false,
        metrics: true,
        ..full_deployment()
    };
    let mut documents = vec![value(&deployment, Audience::Authenticated).to_string()];
    assert!(documents[0].contains("Values for other options"), "the options that OpenCode does not have");
    for version in ProtocolVersion::ALL {
        for base in [Base::Root, Base::Versioned] {
            let card = contract::extended_card(&deployment, version, base, &Offers::default());
            documents.push(format!("{card:?}"));
            documents.push(contract::compatibility_profile(&deployment, version, base).to_string());
            documents.push(contract::wire_contract(&deployment, version, base).to_string());
        }
        let facts = HealthFacts { agent: Part::Up, store: Part::Up, stopping: false };
        documents.push(String::from_utf8(health(&deployment, version, &facts).into()).unwrap());
    }
    let documents = documents.join(" ");
    assert!(documents.contains("The agent itself chooses the titles of its sessions."));
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || "._-:/#".contains(c);
    let words =
        documents.split(|c: char| !is_of_word(c)).filter(|word| word.to_lowercase().contains("opencode"));
    let words: BTreeSet<&str> = words.map(|word| word.trim_end_matches('.')).collect();
    let is_uri =
        |word: &&str| word.starts_with("urn:opencode-a2a:extension:") || word.starts_with("https://");
    let others: Vec<&str> = words.into_iter().filter(|word| !is_uri(word)).collect();
    let expected = [
        "metadata.opencode.directory",
        "metadata.opencode.output_negotiation.accepted_output_modes",
        // The name of the metadata object that contains these two fields.
        "opencode",
        "opencode-a2a-single-tenant-coding-v1",
        "opencode.chat",
        "opencode.directory",
        "opencode.interrupt.callback",
        "opencode.interrupt.recovery",
        "opencode.permissions.approvals.list",
        "opencode.permissions.approvals.revoke",
        "opencode.permissions.list",
        "opencode.questions.list",
    ];
    assert_eq!(others, expected);
}

#[test]
fn the_paths_are_exactly_the_endpoints() {
    let mut expected: HashSet<String> = HashSet::new();
    for version in ProtocolVersion::ALL {
        expected
            .extend(OPERATIONS.iter().flat_map(|operation| operation.rest(version)).map(ToString::to_string));
    }
    for route in &ROUTES {
        let endpoints = route.verbs.iter().map(|verb| Endpoint { verb: *verb, path: route.path });
        expected.extend(endpoints.map(|endpoint| endpoint.to_string()));
    }
    let document = whole();
    let mut found = HashSet::new();
    let mut ids = HashSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (verb, operation) in item.as_object().unwrap() {
            if !matches!(verb.as_str(), "parameters" | "servers") {
                found.insert(format!("{} {path}", verb.to_ascii_uppercase()));
                assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{operation}");
            }
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn every_reference_is_defined_and_every_component_is_used() {
    for deployment in [plain_deployment(), full_deployment()] {
        for audience in [Audience::Anonymous, Audience::Authenticated] {
            let document = value(&deployment, audience);
            for kind in ["schemas", "responses", "headers"] {
                let mut names = Vec::new();
                references(&document, &format!("#/components/{kind}/"), &mut names);
                let names: BTreeSet<String> = names.into_iter().collect();
                let defined = document["components"][kind].as_object();
                let defined: BTreeSet<String> =
                    defined.into_iter().flatten().map(|(name, _)| name.clone()).collect();
                assert_eq!(names, defined, "{kind} {audience:?}");
            }
        }
    }
}

#[test]
fn anonymous_readers_see_only_what_the_public_card_shows() {
    let document = value(&full_deployment(), Audience::Anonymous);
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    assert_eq!(paths, ["/.well-known/agent-card.json", "/.well-known/agent.json", "/openapi.json", "/livez"]);
    let schemes: Vec<&String> =
        document["components"]["securitySchemes"].as_object().unwrap().keys().collect();
    assert_eq!(schemes, ["bearerAuth", "basicAuth", "apiKeyAuth"]);
    let contracts = document["x-a2a-extension-contracts"].as_object().unwrap();
    let public =
        contract::extensions(&full_deployment(), ProtocolVersion::V1, Audience::Anonymous, Base::Root);
    assert_eq!(contracts.len(), public.len());
    for word in ["/tasks", "/message", "harbour\"", "/srv", "health", "JsonRpc"] {
        assert!(!document.to_string().contains(word), "{word}");
    }
}

#[test]
fn only_paths_with_a_rate_limit_have_429() {
    let paths = whole()["paths"].as_object().unwrap();
    for (path, item) in paths {
        let is_free = path.starts_with("/.well-known/") || path == "/livez";
        for (verb, operation) in item.as_object().unwrap() {
            let Some(responses) = operation.get("responses") else { continue };
            assert_eq!(responses.get("429").is_none(), is_free, "{verb} {path}");
            assert!(responses.get("403").is_some(), "{verb} {path}");
        }
    }
}

#[test]
fn examples_are_valid_requests() {
    let document = whole();
    let values = |path: &str| -> Vec<String> {
        let content = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"];
        let examples = content["examples"].as_object().unwrap().values();
        let values: Vec<Value> = examples.map(|example| example["value"].clone()).collect();
        for value in &values {
            check::check(document, &content["schema"], value).unwrap();
        }
        values.iter().map(ToString::to_string).collect()
    };
    for body in values("/message:send") {
        v1::decode::send_message(&body).unwrap();
    }
    for body in values("/v1/message:send") {
        v03::decode::send_message(v03::Dialect::Rest, &body).unwrap();
    }
    for body in values("/") {
        let call = jsonrpc::parse(body.as_bytes()).unwrap();
        let params = call.params.unwrap().get();
        if let Some(method) = crate::opencode::method(&call.method) {
            method.read(ProtocolVersion::V1, params, [method.extension].into_iter().collect()).unwrap();
        } else if v1::method::Method::parse(&call.method)
            .is_some_and(|method| method == v1::method::Method::SendMessage)
        {
            v1::decode::send_message(params).unwrap();
        } else if call.method == "message/send" {
            v03::decode::send_message(v03::Dialect::Rpc, params).unwrap();
        }
    }
}

#[test]
fn every_error_fits_its_schema() {
    let document = whole();
    for kind in ErrorKind::ALL {
        let plain = Error::new(kind, "Why.").detail("taskId", "t").detail("supportedMethods", "[\"a\"]");
        for error in [plain, Error::invalid("pageSize", "must be from 1 to 100")] {
            for (name, bytes) in [
                ("RestError", v1::error::rest_body(&error)),
                ("V03RestError", v03::error::rest_body(&error)),
                ("JsonRpcResponse", jsonrpc::error(&Id::Number("1".to_owned()), &error)),
                ("JsonRpcResponse", v03::error::jsonrpc(&Id::Null, &error)),
            ] {
                fits(document, name, &bytes).unwrap();
            }
        }
    }
}

#[test]
fn cards_and_health_fit_their_schemas() {
    let document = whole();
    for deployment in [plain_deployment(), full_deployment()] {
        for audience in [Audience::Anonymous, Audience::Authenticated] {
            let new = card(&deployment, ProtocolVersion::V1, audience, Base::Root);
            let old = card(&deployment, ProtocolVersion::V03, audience, Base::Root);
            let merged = merged_card(&deployment, audience);
            for (name, bytes) in [
                ("AgentCard", v1::card::encode(&new)),
                ("AgentCard", v03::card::merged(&merged)),
                ("V03AgentCard", v03::card::encode(&old, v03::Dialect::Rpc)),
                ("V03AgentCard", v03::card::encode(&old, v03::Dialect::Rest)),
            ] {
                fits(document, name, &bytes).unwrap();
            }
        }
        for opencode in [Part::Up, Part::Down("Gone.".to_owned())] {
            let facts = HealthFacts { agent: opencode, store: Part::Up, stopping: false };
            fits(document, "Health", &health(&deployment, ProtocolVersion::V1, &facts)).unwrap();
        }
    }
}

#[test]
fn responses_about_asks_fit_their_schemas() {
    let document = whole();
    let answered = v1::extension::answered(&RequestId::parse("per_1").unwrap());
    fits(document, "InterruptAnswered", &answered).unwrap();
    let interrupt = |kind, expires_at| Interrupt {
        ask: Ask {
            request_id: RequestId::parse("per_1").unwrap(),
            kind,
            session: SessionId::parse("ses_1").unwrap(),
            summary: "May I?".to_owned(),
            details: Json::parse(r#"{"permission":"bash"}"#).unwrap(),
            questions: Vec::new(),
            call: None,
            permission: None,
            options: AskOptions::new([AskOption {
                id: "a".to_owned(),
                name: "Allow".to_owned(),
                kind: OptionKind::AllowOnce,
            }]),
        },
        owner: Principal::new("ada"),
        task: TaskId::parse("t").unwrap(),
        context: ContextId::parse("c").unwrap(),
        asked_at: Timestamp(0),
        expires_at,
        closed: None,
    };
    let some = [interrupt(AskKind::Permission, Some(Timestamp(1_500))), interrupt(AskKind::Question, None)];
    for asks in [&some[..], &[]] {
        let list = v1::extension::asks(asks);
        fits(document, "InterruptList", &list).unwrap();
        fits(document, "JsonRpcResponse", &jsonrpc::result(&Id::Null, &list)).unwrap();
    }
}

#[test]
fn a_list_of_approvals_fits_its_schema() {
    let plain = Approval {
        request_id: RequestId::parse("per_1").unwrap(),
        owner: Principal::new("ada"),
        session: SessionId::parse("ses_1").unwrap(),
        context: ContextId::parse("c").unwrap(),
        permission: "bash".to_owned(),
        patterns: vec!["rm *".to_owned()],
        action: Action::default(),
        at: Timestamp(1_500),
    };
    let action = Action {
        tool: Some("bash".to_owned()),
        kind: Some("execute".to_owned()),
        command: Some("x".repeat(16_000)),
        paths: vec!["/x".to_owned()],
    };
    let told = Approval { action, ..plain.clone() };
    for approvals in [&[plain, told][..], &[]] {
        let list = v1::extension::approvals(approvals);
        fits(whole(), "ApprovalList", &list).unwrap();
        assert!(list.len() < 2048, "a long command is cut");
    }
}

#[test]
fn every_result_fits_its_schema() {
    let document = whole();
    for method in opencode::methods() {
        let call = &document["components"]["schemas"][format!("{}Call", methods::pascal_case(method.key))];
        assert_eq!(call["properties"]["method"]["const"], method.name);
        for sample in [samples::full(method), samples::sparse(method)].into_iter().flatten() {
            for version in ProtocolVersion::ALL {
                let result = method.answer(&sample, version).unwrap();
                let value: Value = serde_json::from_slice(&result).unwrap();
                let schema = &call["x-a2a-result"][version.as_str()];
                check::check(document, schema, &value).unwrap_or_else(|why| panic!("{}: {why}", method.name));
                fits(document, "JsonRpcResponse", &jsonrpc::result(&Id::Null, &result)).unwrap();
                // The card must name the same fields.
                let named: HashSet<&str> = method.result.fields().iter().copied().collect();
                assert!(value.as_object().unwrap().keys().all(|key| named.contains(key.as_str())), "{value}");
            }
        }
    }
}

/// The full samples contain every field, so this test finds a field that is declared but never written.
#[test]
fn every_field_of_an_item_is_written() {
    for method in opencode::methods() {
        let (Some(sample), Some(item)) = (samples::full(method), method.result.item()) else { continue };
        for version in ProtocolVersion::ALL {
            let value: Value = serde_json::from_slice(&method.answer(&sample, version).unwrap()).unwrap();
            let Some(written) = value.get("item").unwrap_or(&value["items"][0]).as_object() else { continue };
            for field in item.fields_of(version) {
                assert!(written.contains_key(field.name), "{} {} {version:?}", method.name, field.name);
            }
        }
    }
}

/// Whether a schema cannot decide if the value is valid: it cannot recognize invalid short names, paths and cursors, and cannot
/// count the bytes of an object.
fn is_beyond_schemas(put: &Value) -> bool {
    match put {
        Value::String(text) => text.len() < 64,
        Value::Object(fields) => {
            fields.values().any(|value| value.as_str().is_some_and(|text| text.len() > 1024))
        }
        _ => false,
    }
}

#[test]
fn the_parameter_schemas_agree_with_the_reader() {
    let document = whole();
    for method in opencode::methods() {
        let call = &document["components"]["schemas"][format!("{}Call", methods::pascal_case(method.key))];
        let fits = |params: &Value| check::check(document, &call["properties"]["params"], params);
        let config = ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let checked = Cell::new(0_usize);
        let outcome = TestRunner::new_with_rng(config, rng).run(&full_params(method.params), |params| {
            // Alternative spellings are not in the schema, and a few cases are enough.
            if checked.get() >= 3 || fits(&params).is_err() {
                return Ok(());
            }
            checked.set(checked.get() + 1);
            for change in changes(method.params, &params) {
                let changed = change.apply(&params);
                let is_decidable =
                    !change.put.as_ref().is_some_and(|put| put.is_null() || is_beyond_schemas(put));
                // A schema cannot decide which short names of tools are invalid either.
                let is_name = change.put == Some(json!(false))
                    && change
                        .breaks
                        .as_ref()
                        .is_some_and(|path| path.starts_with("request.tools.") && path.len() < 64);
                let fits = fits(&changed);
                if is_decidable && !is_name {
                    prop_assert_eq!(
                        fits.is_ok(),
                        change.breaks.is_none(),
                        "{:?} {:.300} {:?}",
                        change.breaks,
                        format!("{:?}", change.put),
                        fits
                    );
                }
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{}: {error}", method.name));
        assert!(checked.get() > 0, "{}", method.name);
    }
}

#[test]
fn a_method_that_is_switched_off_is_not_in_the_document() {
    let document = value(&plain_deployment(), Audience::Authenticated);
    let calls = &document["components"]["schemas"];
    for method in opencode::methods() {
        let call = format!("{}Call", methods::pascal_case(method.key));
        assert_eq!(calls.get(&call).is_none(), method.switch.is_some(), "{call}");
    }
    assert!(!document.to_string().contains("startCommand"));
    assert!(whole().to_string().contains("startCommand"));
}

/// The responses and frames of a task in one dialect, each with the name of its schema.
fn written(task: &Task, entry: &Entry, dialect: Dialect, view: View) -> Vec<(&'static str, Bytes)> {
    let output = OutputModes::default();
    let page = std::slice::from_ref(task);
    let old = match dialect {
        Dialect::V1 => {
            let frame = v1::encode::stream_entry(&task.id, &task.context_id, entry, view, &output);
            return vec![
                ("Task", v1::encode::task(task, view)),
                ("SendMessageResponse", v1::encode::send_response(task, view)),
                ("TaskPage", v1::encode::list_response(page, view, "", 1, 1)),
                ("StreamResponse", frame.unwrap_or_else(|| v1::encode::stream_task(task, view, None))),
            ];
        }
        Dialect::V03Rpc => v03::Dialect::Rpc,
        Dialect::V03Rest => v03::Dialect::Rest,
    };
    let mut stream = v03::encode::Stream::from_start(view, old);
    let frame = match stream.step(&entry.event, &output) {
        v03::encode::Step::Frame(frame) => frame.encode(&task.id, &task.context_id, entry, &output),
        _ => v03::encode::stream_task(task, view, old, None),
    };
    vec![
        ("Task", v03::encode::task(task, view, old)),
        (
            if old == v03::Dialect::Rpc { "Task" } else { "SendMessageResponse" },
            v03::encode::send_response(task, view, old),
        ),
        ("TaskPage", v03::encode::list_response(page, view, old, "", 1, 1)),
        ("StreamResponse", frame),
    ]
}

proptest! {
    // Few cases, because each one is checked against a dozen nested schemas.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn everything_written_fits_its_schema(
        (_, task) in arbitrary::noted_task(), (_, entry) in arbitrary::noted_entry(), is_activated in any::<bool>(),
    ) {
        let document = whole();
        let activated = if is_activated { Activated::ALL } else { Activated::NONE };
        let view = View { activated, ..View::default() };
        for dialect in Dialect::ALL {
            for (name, bytes) in written(&task, &entry, dialect, view) {
                let checked = fits(document, &dialect.named(name), &bytes);
                prop_assert!(checked.is_ok(), "{}", checked.unwrap_err());
            }
            if dialect != Dialect::V03Rest {
                let result = written(&task, &entry, dialect, view).remove(1).1;
                let answer = jsonrpc::result(&Id::String("a".to_owned()), &result);
                let checked = fits(document, "JsonRpcResponse", &answer);
                prop_assert!(checked.is_ok(), "{}", checked.unwrap_err());
            }
        }
    }

    #[test]
    fn exactly_the_messages_that_fit_the_schema_are_read(message in arbitrary::message(), task in arbitrary::task()) {
        let task = Task { history: vec![message], ..task };
        for dialect in Dialect::ALL {
            let bytes = written(&task, &submitted(&task), dialect, View::default()).remove(0).1;
            let value: Value = serde_json::from_slice(&bytes).unwrap();
            let body = json!({"message": value["history"][0]});
            let schema = schema::reference(&dialect.named("SendMessageRequest"));
            let fits = check::check(whole(), &schema, &body).is_ok();
            let body = body.to_string();
            let read = match dialect {
                Dialect::V1 => v1::decode::send_message(&body),
                Dialect::V03Rpc => v03::decode::send_message(v03::Dialect::Rpc, &body),
                Dialect::V03Rest => v03::decode::send_message(v03::Dialect::Rest, &body),
            };
            prop_assert_eq!(fits, read.is_ok(), "{:?} {}", dialect, body);
        }
    }
}

/// The first event of a task.
fn submitted(task: &Task) -> Entry {
    let event = TaskEvent::submitted(task.context_id.clone(), task.history[0].clone(), Timestamp(0));
    Entry { seq: Seq(1), epoch: Epoch(1), event }
}
