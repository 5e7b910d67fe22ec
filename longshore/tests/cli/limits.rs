//! What is set reaches the part that keeps it: limits, guards, metrics and logs of a gateway as it runs.

use rustix::process::Signal;

use crate::ATTACHED;
use crate::support::{Here, Running, ask, get};

fn start(here: &Here, flags: &[&str]) -> Running {
    here.start(&[&ATTACHED[..], flags].concat())
}

#[test]
fn who_asks_too_often_is_told_when_to_come_back() {
    let here = Here::new();
    let gateway = start(&here, &["--rate-limit", "on", "--rate-requests", "2", "--rate-window", "3600"]);
    let (tasks, token) = (format!("{}/tasks", gateway.value("url")), gateway.value("token"));
    for _ in 0..2 {
        assert_eq!(get(&tasks, Some(&token)).status, 200);
    }
    let refused = get(&tasks, Some(&token));
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(refused.body.contains("\"TOO_MANY_REQUESTS\""), "{}", refused.body);
    let wait: u64 = refused.header("retry-after").and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
    assert!((1..=1800).contains(&wait), "half of the window at most, not {wait} s");
}

#[test]
fn nobody_is_counted_where_only_this_machine_can_call() {
    let here = Here::new();
    let gateway = start(&here, &["--rate-requests", "2"]);
    let (tasks, token) = (format!("{}/tasks", gateway.value("url")), gateway.value("token"));
    for _ in 0..5 {
        assert_eq!(get(&tasks, Some(&token)).status, 200);
    }
    let ended = gateway.end(Signal::TERM);
    assert_eq!(ended.stderr, "", "nothing to warn of");
}

#[test]
fn only_the_hosts_and_sites_that_are_listed_may_be_named() {
    let here = Here::new();
    let lists = ["--allowed-hosts", "Agent.example.com", "--allowed-origins", "https://App.example.com/"];
    let gateway = start(&here, &lists);
    let (tasks, token) = (format!("{}/tasks", gateway.value("url")), gateway.value("token"));
    let agent = ("Host", "agent.example.com");
    for (headers, status) in [
        (&[agent][..], 200),
        (&[("Host", "127.0.0.1")], 403),
        (&[agent, ("Origin", "https://app.example.com")], 200),
        (&[agent, ("Origin", "https://other.example.com")], 403),
    ] {
        assert_eq!(ask(&tasks, headers, Some(&token)).status, status, "{headers:?}");
    }
    let warned = gateway.end(Signal::TERM).stderr;
    assert!(
        warned.starts_with("warning: the allowed hosts do not have the host of the public URL"),
        "{warned}"
    );
}

#[test]
fn metrics_are_served_unless_they_are_off() {
    for (flag, status) in [("--metrics=true", 200), ("--metrics=false", 404)] {
        let here = Here::new();
        let gateway = start(&here, &[flag]);
        let (metrics, token) = (format!("{}/metrics", gateway.value("url")), gateway.value("token"));
        let page = get(&metrics, Some(&token));
        assert_eq!(page.status, status, "{}", page.body);
        let version = format!("longshore_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
        assert_eq!(page.body.contains(&version), status == 200, "{}", page.body);
    }
}

#[test]
fn bodies_are_in_the_log_only_where_that_is_asked_for() {
    let cases: [(&[&str], bool); 4] = [
        (&["--log-payloads", "--log-level", "debug"], true),
        (&["--log-payloads", "--log-level", "debug", "--log-body-limit", "8"], false),
        (&["--log-payloads", "--log-level", "info"], false),
        (&["--log-level", "debug"], false),
    ];
    for (flags, is_written) in cases {
        let here = Here::new();
        let gateway = start(&here, flags);
        let (tasks, token) = (format!("{}/tasks", gateway.value("url")), gateway.value("token"));
        assert_eq!(get(&tasks, Some(&token)).status, 200);
        let log = gateway.end(Signal::TERM).stderr;
        assert_eq!(log.contains("totalSize"), is_written, "{flags:?}: {log}");
        assert!(!log.contains(&token), "{flags:?}: {log}");
    }
}

#[test]
fn a_process_that_may_open_few_files_takes_fewer_connections() {
    let here = Here::new();
    let gateway = here.start_with_files(400, &ATTACHED);
    let card = format!("{}/.well-known/agent-card.json", gateway.value("url"));
    assert_eq!(get(&card, None).status, 200);
    let warned = gateway.end(Signal::TERM).stderr;
    let expected = "warning: at most 144 connections are taken at once, not 8192 (limits.connections): this process may open 400 \
                    files only (ulimit -n), and needs 256 for itself\n";
    assert_eq!(warned, expected);
}
