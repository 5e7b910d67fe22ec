//! Every mistake of the method table over HTTP: the error names the field in the format of the version, and OpenCode
//! receives no request.

use std::collections::BTreeSet;

use longshore_testkit::raw::Answer;
use longshore_wire::extension::Activated;
use longshore_wire::methods::{self, Method};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::fixture::{Fixture, client_for, error_reason};
use crate::control::params::{Mistake, complete_params, mistakes};

/// The only field that an error names. None or several fail the test.
fn only_field(answer: &Answer, version: ProtocolVersion, about: &str) -> String {
    let data = &answer.body["error"]["data"];
    let field = match version {
        ProtocolVersion::V1 => {
            let [info, request] = data.as_array().map_or(&[][..], Vec::as_slice) else {
                panic!("{about}: two details are expected: {}", answer.body)
            };
            assert_eq!(info["@type"], "type.googleapis.com/google.rpc.ErrorInfo", "{about}: {info}");
            assert_eq!(request["@type"], "type.googleapis.com/google.rpc.BadRequest", "{about}: {request}");
            match request["fieldViolations"].as_array().map_or(&[][..], Vec::as_slice) {
                [violation] => violation["field"].as_str(),
                others => panic!("{about}: one field is expected: {others:?}"),
            }
        }
        ProtocolVersion::V03 => {
            match (data.get("field"), data["fields"].as_array().map_or(&[][..], Vec::as_slice)) {
                (Some(field), []) | (None, [field]) => field.as_str(),
                _ => panic!("{about}: one field is expected: {data}"),
            }
        }
    };
    field.unwrap_or_default().to_owned()
}

/// `word_of_old`: the reason in 0.3.
fn check(answer: &Answer, version: ProtocolVersion, field: &str, word_of_old: &str, about: &str) {
    let error = &answer.body["error"];
    assert_eq!((answer.status, &error["code"]), (200, &json!(-32602)), "{about}: {}", answer.body);
    assert_eq!(only_field(answer, version, about), field, "{about}: {error}");
    let message = error["message"].as_str().unwrap_or_default();
    assert!(message.starts_with(field), "{about}: {message}");
    let expected = if version == ProtocolVersion::V1 { "INVALID_PARAMS" } else { word_of_old };
    assert_eq!(error_reason(answer, version), expected, "{about}");
}

async fn refuse(
    fixture: &Fixture,
    version: ProtocolVersion,
    method: &'static Method,
) -> BTreeSet<&'static str> {
    let client = client_for(&fixture.ada, version, method);
    let mut kinds = BTreeSet::new();
    for Mistake { params, field, why } in mistakes(method) {
        // Long texts are cut in the message.
        let about = format!("{} {version:?}: {why} at {field}: {:.400}", method.name, params.to_string());
        let answer = client.rpc(method.name, params).await;
        let is_missing = matches!(why, "nothing where something must be" | "null where something must be");
        let word = if is_missing { "MISSING_FIELD" } else { "INVALID_FIELD" };
        check(&answer, version, &field, word, &about);
        kinds.insert(why);
    }
    kinds
}

async fn every_mistake(version: ProtocolVersion) {
    let fixture = Fixture::start().await;
    let mut seen = 0;
    fixture.arrived(&mut seen);
    let mut kinds = BTreeSet::new();
    for method in methods::all() {
        for complete in complete_params(method) {
            let read = method.read(version, &complete.to_string(), Activated::ALL);
            assert!(read.is_ok(), "{}: {complete} is whole: {read:?}", method.name);
        }
        let found = refuse(&fixture, version, method).await;
        assert!(found.contains("a name that is not known"), "{}", method.name);
        assert_eq!(found.contains("another type"), !method.params.is_empty(), "{}", method.name);
        let needs_something = method.params.iter().any(|param| param.required);
        assert!(!needs_something || found.contains("nothing where something must be"), "{}", method.name);
        kinds.extend(found);
        assert_eq!(fixture.arrived(&mut seen), [""; 0], "{}", method.name);
    }
    let all = [
        "a name that is not known",
        "another type",
        "none of several",
        "nothing where something must be",
        "null where something must be",
        "one of two that go together",
        "out of bounds",
        "several where one must be",
    ];
    assert_eq!(kinds, BTreeSet::from(all));
    fixture.stop().await;
}

#[tokio::test]
async fn every_mistake_names_its_field_in_1_0() {
    every_mistake(ProtocolVersion::V1).await;
}

#[tokio::test]
async fn every_mistake_names_its_field_in_0_3() {
    every_mistake(ProtocolVersion::V03).await;
}

#[tokio::test]
async fn parameters_that_are_not_an_object_are_refused() {
    let fixture = Fixture::start().await;
    let mut seen = 0;
    fixture.arrived(&mut seen);
    for method in methods::all() {
        for version in ProtocolVersion::ALL {
            let client = client_for(&fixture.ada, version, method);
            for params in [json!([]), json!(["ses_good"]), json!("nonsense"), json!(7), json!(true)] {
                let answer = client.rpc(method.name, params.clone()).await;
                let about = format!("{} {version:?} {params}", method.name);
                check(&answer, version, "params", "INVALID_FIELD", &about);
            }
        }
    }
    assert_eq!(fixture.arrived(&mut seen), [""; 0]);
    fixture.stop().await;
}

/// In 0.3 the parameters of a list may be in `query`; in 1.0 `query` is an unknown name.
#[tokio::test]
async fn paging_is_by_limit_only_and_a_query_is_accepted_in_0_3_only() {
    let fixture = Fixture::start().await;
    fixture.session("ses_good");
    let mut seen = 0;
    let paged: Vec<&Method> = methods::all().filter(|method| method.paged).collect();
    assert_eq!(paged.len(), 2);
    for method in paged {
        let with = |more: &Value| {
            let mut params = json!({});
            if method.params.iter().any(|param| param.name == "session_id") {
                params["session_id"] = json!("ses_good");
            }
            for (name, value) in more.as_object().expect("an object") {
                params[name] = value.clone();
            }
            params
        };
        fixture.arrived(&mut seen);
        for (more, old, new) in [
            (json!({"query": {"nonsense": 1}}), "query.nonsense", "query"),
            (json!({"query": 7}), "query", "query"),
            (json!({"query": {"limit": 0}}), "query.limit", "query"),
            (json!({"query": {"limit": 101}}), "query.limit", "query"),
            (json!({"query": {"limit": true}}), "query.limit", "query"),
            (json!({"limit": 1, "query": {"limit": 1}}), "query.limit", "query"),
            (json!({"query": {"query": {}}}), "query.query", "query"),
        ] {
            for (version, field) in [(ProtocolVersion::V03, old), (ProtocolVersion::V1, new)] {
                let answer = client_for(&fixture.ada, version, method).rpc(method.name, with(&more)).await;
                let about = format!("{} {version:?} {more}", method.name);
                check(&answer, version, field, "INVALID_FIELD", &about);
            }
        }
        for name in ["cursor", "page", "size"] {
            for version in ProtocolVersion::ALL {
                let answer =
                    client_for(&fixture.ada, version, method).rpc(method.name, with(&json!({name: 1}))).await;
                let about = format!("{} {version:?} {name}", method.name);
                check(&answer, version, name, "INVALID_PAGINATION_MODE", &about);
            }
        }
        assert_eq!(fixture.arrived(&mut seen), [""; 0], "{}", method.name);
        let old = client_for(&fixture.ada, ProtocolVersion::V03, method);
        let listed = old.rpc(method.name, with(&json!({"query": {"limit": 1}}))).await;
        assert!(listed.result()["items"].is_array(), "{}", listed.body);
    }
    fixture.stop().await;
}

/// In 1.0 a method exists only for callers that activate its extension.
#[tokio::test]
async fn every_method_needs_its_extension_in_1_0() {
    let fixture = Fixture::start().await;
    let (mut seen, other) = (0, "urn:opencode-a2a:extension:session-binding:v1");
    fixture.arrived(&mut seen);
    for method in methods::all() {
        for activated in [vec![], vec![other]] {
            let client = fixture.ada.speaking("1.0").activating(&activated);
            let answer = client.rpc(method.name, json!({})).await;
            let error = &answer.body["error"];
            assert_eq!(error["code"], -32004, "{}: {error}", method.name);
            assert_eq!(
                error_reason(&answer, ProtocolVersion::V1),
                "EXTENSION_NEGOTIATION_REQUIRED",
                "{error}"
            );
            let facts = json!({
                "method": method.name,
                "requiredExtensions": json!([method.extension.uri()]).to_string(),
                "requestedExtensions": json!(activated).to_string(),
                "header": "A2A-Extensions",
            });
            assert_eq!(error["data"][0]["metadata"], facts, "{}", method.name);
        }
    }
    assert_eq!(fixture.arrived(&mut seen), [""; 0]);
    fixture.stop().await;
}
