//! The settings of push notifications.

use longshore_engine::PushRules;
use longshore_model::{PushEvents, PushWord, TaskState};
use longshore_outbound::{Guard, Rules};

use super::*;

/// A setting, a value other than its default, and the text that the plan then contains.
const ROWS: &[(&str, &str, &str)] = &[
    ("push.enabled", "false", "enabled: false"),
    ("push.events", "failed,artifact", r#"events: {"failed", "artifact"}"#),
    ("push.configs_per_task", "7", "per_task: 7"),
    ("push.configs_per_principal", "7", "per_principal: 7"),
    ("push.configs", "0", "in_all: 0"),
    ("push.max_secret_bytes", "7", "max_secret_bytes: 7"),
    ("push.allow_http", "true", "schemes: [Https, Http]"),
    ("push.ports", "443, 8000-8999", "ports: [443..=443, 8000..=8999]"),
    ("push.hosts", "*.example.com", "hosts: [HostRule"),
    ("push.internal_hosts", "hooks.corp.example", "internal_hosts: [HostRule"),
    ("push.internal_networks", "10.1.2.0/24,127.0.0.1", "internal_networks: [10.1.2.0/24, 127.0.0.1/32]"),
];

#[test]
fn each_setting_is_read_from_flags_and_variables() {
    let shown = |sources: &Sources<'_>| format!("{:?}", sources.plan().push);
    for (key, text, expected) in ROWS {
        let setting = table::by_key(key).unwrap();
        let (flags, variables) = (&[(setting.key, *text)], &[(setting.env.unwrap(), *text)]);
        assert!(!shown(&Sources::default()).contains(expected), "{key}: this is the default");
        for sources in [Sources { flags, ..Sources::default() }, Sources { variables, ..Sources::default() }]
        {
            let shown = shown(&sources);
            assert!(shown.contains(expected), "{key}: {shown}");
        }
    }
}

#[test]
fn the_defaults_are_those_of_the_crates_that_enforce_them() {
    let push = Sources::default().plan().push;
    assert!(push.enabled);
    assert_eq!(push.receivers, Rules::default());
    assert_eq!(format!("{:?}", push.rules), format!("{:?}", PushRules::default()));
    assert_eq!(push.rules.events, PushEvents::default());
    let all = Sources { flags: &[("push.events", "all")], ..Sources::default() };
    assert_eq!(all.plan().push.rules.events, PushEvents::ALL);
    let old = Sources { flags: &[("push.events", "input-required")], ..Sources::default() };
    let word = PushWord::State(TaskState::InputRequired);
    assert_eq!(old.plan().push.rules.events, [word].into_iter().collect::<PushEvents>());
}

#[test]
fn a_wrong_element_of_a_list_is_named() {
    for (key, text, named) in [
        ("push.events", "completed,done", "done"),
        ("push.ports", "0", "0"),
        ("push.ports", "443,9-8", "9-8"),
        ("push.ports", "70000", "70000"),
        ("push.hosts", "https://x", "https://x"),
        ("push.internal_hosts", "a b", "a b"),
        ("push.internal_networks", "10.0.0.0/33", "10.0.0.0/33"),
        ("push.internal_networks", "localhost", "localhost"),
    ] {
        let problems = Sources { flags: &[(key, text)], ..Sources::default() }.problems();
        assert!(problems.len() == 1 && problems[0].contains(&format!("{named:?}")), "{problems:?}");
    }
}

#[test]
fn a_receiver_on_this_machine_is_allowed_by_two_settings() {
    let url = "http://127.0.0.1:8080/hook";
    let flags = [("push.allow_http", "true"), ("push.internal_networks", "127.0.0.1/32")];
    let guard = |flags| Guard::new(Sources { flags, ..Sources::default() }.plan().push.receivers);
    assert!(guard(&flags).read(url).is_ok());
    for alone in [&flags[..1], &flags[1..]] {
        assert!(guard(alone).read(url).is_err(), "{alone:?}");
    }
}
