//! Which directories callers may name: those that the operator and OpenCode allow.

use std::path::Path;

use longshore_wire::methods::{Kind, Method};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::calls::{
    call_ok, error_code, error_fields, method_named, requests_since, session_params,
};

use crate::control::fixture::{Fixture, Settings, agent_methods, call, is_about_session};

/// The ways to name a directory, each with the field that a refusal names.
fn locations(directory: &str) -> [(Value, &'static str); 2] {
    [
        (json!({"directory": directory}), "directory"),
        (json!({"metadata": {"opencode": {"directory": directory}}}), "metadata.opencode.directory"),
    ]
}

fn with(method: &Method, mut params: Value, location: &Value) -> Option<Value> {
    for (name, value) in location.as_object()? {
        method.params.iter().find(|param| param.name == name)?;
        params[name] = value.clone();
    }
    Some(params)
}

/// The methods whose directory or workspace callers may name.
fn routed() -> impl Iterator<Item = &'static Method> {
    agent_methods().filter(|method| {
        method.params.iter().any(|param| matches!(param.kind, Kind::Metadata { routed: true }))
    })
}

/// Without the directory override only the root may be named. Other names are refused before OpenCode is asked.
#[tokio::test]
async fn without_the_directory_override_only_the_root_is_accepted() {
    let fixture = Fixture::start_with(Settings { directory_override: false, ..Settings::default() }).await;
    std::fs::create_dir(Path::new(fixture.root()).join("sub")).expect("a directory can be made");
    fixture.session("ses_mine");
    fixture.claim("ses_mine").await;
    let (mut seen, mut refused) = (0, 0);
    fixture.arrived(&mut seen);
    for method in routed().filter(|method| is_about_session(method) || method.key.starts_with("list_")) {
        let params =
            if is_about_session(method) { session_params(method, "ses_mine", "msg_1") } else { json!({}) };
        let workspace = json!({"metadata": {"opencode": {"workspace": {"id": "wrk_1"}}}});
        let mut cases: Vec<(Value, &str)> = locations("sub").into();
        cases.push((workspace, "metadata.opencode.workspace.id"));
        for (location, field) in cases {
            let Some(params) = with(method, params.clone(), &location) else { continue };
            for version in ProtocolVersion::ALL {
                let answer = call(&fixture.ada, version, method, &params).await;
                let about = format!("{} {version:?} {location}: {}", method.name, answer.body);
                assert_eq!(
                    (error_code(&answer), error_fields(&answer)),
                    (-32602, vec![field.to_owned()]),
                    "{about}"
                );
                let arrived = fixture.arrived(&mut seen);
                assert!(
                    arrived.iter().all(|request| request.starts_with("GET /session/ses_mine")),
                    "{about}"
                );
                refused += 1;
            }
        }
    }
    assert!(refused > 50, "{refused}");
    for (location, _) in locations(fixture.root()) {
        for version in ProtocolVersion::ALL {
            let list = method_named("opencode.sessions.list");
            let params = with(list, json!({}), &location).expect("a list takes both");
            call_ok(&fixture.ada, version, list, &params).await;
        }
    }
    fixture.stop().await;
}

/// A workspace can be named by its directory or by its id, in queries and for sessions.
#[tokio::test]
async fn a_workspace_is_accepted_by_its_directory_and_by_its_id() {
    let fixture = Fixture::start().await;
    let outside = tempfile::tempdir().expect("a test can make a directory");
    let directory = outside.path().canonicalize().expect("it was just made").to_string_lossy().into_owned();
    fixture.fake.project(|project| project.workspaces = vec![("wrk_1".to_owned(), directory.clone())]);
    fixture.session_like("ses_there", &json!({"directory": directory}));
    let (list, get) = (method_named("opencode.sessions.list"), method_named("opencode.sessions.get"));
    let by_name = json!({"metadata": {"opencode": {"workspace": {"id": "wrk_1"}}}});
    let mut seen = 0;
    for version in ProtocolVersion::ALL {
        for location in
            locations(&directory).into_iter().map(|(location, _)| location).chain([by_name.clone()])
        {
            requests_since(&fixture, &mut seen);
            let before = fixture.fake.log().len();
            let params = with(list, json!({}), &location).expect("a list takes both");
            call_ok(&fixture.ada, version, list, &params).await;
            let log = fixture.fake.log().split_off(before);
            let asked = log.iter().find(|request| request.path == "/session").expect("the list is asked for");
            assert!(
                asked.target.contains(&directory.replace('/', "%2F")),
                "{version:?} {location}: {}",
                asked.target
            );
        }
        // A caller that may claim unowned sessions may read them there.
        let reported = call_ok(&fixture.ada, version, get, &json!({"session_id": "ses_there"})).await;
        assert_eq!(reported.result()["item"]["id"], "ses_there", "{}", reported.body);
    }
    fixture.stop().await;
}
