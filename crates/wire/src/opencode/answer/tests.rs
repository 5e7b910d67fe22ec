//! Tests of the results of all methods in both versions.

use std::fmt::Write as _;

use a2a_pb::protojson;
use longshore_model::Role;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;
use crate::methods::item::{APPROVAL, INTERRUPT};
use crate::names::CONTEXT_PREFIX;
use crate::opencode::{method as find, methods as all};
use crate::testing::document::{changes, print};

pub(crate) mod sample;

use sample::{full, sparse};

fn answer(name: &str, result: &ControlResult, version: ProtocolVersion) -> Value {
    serde_json::from_slice(&find(name).unwrap().answer(result, version).unwrap()).unwrap()
}

#[test]
fn every_result_in_both_versions() {
    let mut text = String::new();
    for method in all() {
        for result in [full(method), sparse(method)].into_iter().flatten() {
            let [new, old] = ProtocolVersion::ALL.map(|version| answer(method.name, &result, version));
            writeln!(text, "{} {}", method.name, print(&new)).unwrap();
            if old != new {
                writeln!(text, "0.3: {}", changes(&new, &old)).unwrap();
            }
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn only_methods_about_asks_write_their_results_elsewhere() {
    for method in all() {
        let is_about_asks = matches!(method.result, Answer::Answered | Answer::Items(INTERRUPT | APPROVAL));
        assert_eq!(full(method).is_none(), is_about_asks, "{}", method.name);
    }
}

#[test]
fn a_result_of_another_method_is_an_internal_error() {
    let other = ControlResult::Worktrees(Vec::new());
    for method in all().filter(|method| method.result != Answer::Items(items::WORKTREE)) {
        let error = method.answer(&other, ProtocolVersion::V1).unwrap_err();
        assert_eq!(error.kind(), longshore_model::ErrorKind::Internal, "{}", method.name);
    }
    // After its creation a workspace exists, so a result without a workspace is wrong.
    find("opencode.workspaces.create")
        .unwrap()
        .answer(&ControlResult::Workspace(None), ProtocolVersion::V1)
        .unwrap_err();
}

#[test]
fn the_official_types_agree_on_sessions_and_messages() {
    for method in all() {
        let (Answer::Items(item) | Answer::Page(item) | Answer::Item(item) | Answer::ItemOfTask(item)) =
            method.result
        else {
            continue;
        };
        for result in [full(method), sparse(method)].into_iter().flatten() {
            let result = answer(method.name, &result, ProtocolVersion::V1);
            let items = result["items"].as_array().cloned().unwrap_or_else(|| vec![result["item"].clone()]);
            for value in items {
                match item {
                    items::TASK => through::<protojson::Task>(&value),
                    items::MESSAGE => through::<protojson::Message>(&value),
                    _ => {}
                }
            }
        }
    }
}

fn through<T: Serialize + DeserializeOwned>(ours: &Value) {
    let theirs: T = serde_json::from_value(ours.clone()).unwrap();
    // The official types write the time zone differently.
    let theirs = serde_json::to_string(&theirs).unwrap().replace("+00:00", "Z");
    assert_eq!(&serde_json::from_str::<Value>(&theirs).unwrap(), ours);
}

#[test]
fn an_empty_message_has_a_part() {
    let Some(ControlResult::Message(mut result)) = full(find("opencode.sessions.messages.get").unwrap())
    else {
        unreachable!()
    };
    result.text = String::new();
    result.role = Role::User;
    let result = ControlResult::Message(result);
    let new = answer("opencode.sessions.messages.get", &result, ProtocolVersion::V1);
    assert_eq!((&new["item"]["parts"], &new["item"]["role"]), (&json!([{"text": ""}]), &json!("ROLE_USER")));
    let old = answer("opencode.sessions.messages.get", &result, ProtocolVersion::V03);
    let part = json!([{"kind": "text", "text": ""}]);
    assert_eq!((&old["item"]["parts"], &old["item"]["role"]), (&part, &json!("user")));
}

#[test]
fn a_session_with_the_longest_id_has_a_context() {
    let longest = "s".repeat(longshore_model::id::MAX_ID_LENGTH);
    let mut result = sample::session("ses_1");
    result.id = longshore_model::SessionId::parse(&longest).unwrap();
    let value = answer("opencode.sessions.get", &ControlResult::Session(result), ProtocolVersion::V1);
    assert_eq!(value["item"]["contextId"], format!("{CONTEXT_PREFIX}{longest}"));
}

#[test]
fn statuses_are_sorted_by_id() {
    let status = |session: &str| {
        let Some(ControlResult::Statuses(mut all)) = full(find("opencode.sessions.status").unwrap()) else {
            unreachable!()
        };
        let mut status = all.remove(0);
        status.session = longshore_model::SessionId::parse(session).unwrap();
        status
    };
    let result = ControlResult::Statuses(vec![status("ses_b"), status("ses_a"), status("ses_c")]);
    let value = answer("opencode.sessions.status", &result, ProtocolVersion::V03);
    let ids: Vec<&Value> =
        value["items"].as_array().unwrap().iter().map(|item| &item["session_id"]).collect();
    assert_eq!(ids, ["ses_a", "ses_b", "ses_c"]);
}
