//! The limits, the allowed callers, log and metrics, each from every source.

use longshore_edge::Extension;

use super::*;
use crate::config::limits::Counts;
use crate::config::setting::{Fallback, Kind, Setting};

/// A setting, a value other than its default, a function that reads it from the plan, and the expected result.
type Row = (&'static Setting, &'static str, fn(&Plan) -> String, &'static str);

const ROWS: &[Row] = &[
    (&table::RATE_LIMIT, "on", |plan| format!("{:?}", plan.limits.counts), "Always"),
    (&table::RATE_REQUESTS, "7", |plan| format!("{:?}", plan.limits.requests), "Some(7)"),
    (&table::RATE_WINDOW, "1.5", |plan| format!("{:?}", plan.limits.window), "1.5s"),
    (&table::FAILED_LOGINS, "7", |plan| format!("{:?}", plan.limits.failed_logins), "Some(7)"),
    (&table::STREAMS, "7", |plan| format!("{:?}", plan.limits.streams), "Some(7)"),
    (
        &table::STREAMS_PER_PRINCIPAL,
        "7",
        |plan| format!("{:?}", plan.limits.streams_per_principal),
        "Some(7)",
    ),
    (&table::STREAM_BYTES, "7", |plan| format!("{:?}", plan.limits.stream_bytes), "Some(7)"),
    (&table::STREAM_DURATION, "1.5", |plan| format!("{:?}", plan.limits.stream_duration), "Some(1.5s)"),
    (&table::STREAM_IDLE, "1.5", |plan| format!("{:?}", plan.limits.stream_idle), "Some(1.5s)"),
    (&table::MAX_TURNS, "7", |plan| format!("{:?}", plan.limits.turns), "Some(7)"),
    (&table::TURNS_PER_PRINCIPAL, "7", |plan| format!("{:?}", plan.limits.turns_per_principal), "Some(7)"),
    (&table::UPSTREAM_CALLS, "7", |plan| format!("{:?}", plan.limits.upstream_calls), "Some(7)"),
    (&table::DIRECTORIES, "7", |plan| format!("{:?}", plan.limits.directories), "Some(7)"),
    (
        &table::DIRECTORIES_PER_PRINCIPAL,
        "7",
        |plan| format!("{:?}", plan.limits.directories_per_principal),
        "Some(7)",
    ),
    (&table::DIRECTORY_IDLE, "1.5", |plan| format!("{:?}", plan.limits.directory_idle), "Some(1.5s)"),
    (&table::UNFINISHED, "7", |plan| format!("{:?}", plan.limits.unfinished), "Some(7)"),
    (
        &table::UNFINISHED_PER_PRINCIPAL,
        "7",
        |plan| format!("{:?}", plan.limits.unfinished_per_principal),
        "Some(7)",
    ),
    (
        &table::UNFINISHED_PER_CONTEXT,
        "7",
        |plan| format!("{:?}", plan.limits.unfinished_per_context),
        "Some(7)",
    ),
    (&table::CONNECTIONS, "7", |plan| format!("{:?}", plan.limits.connections), "Some(7)"),
    (
        &table::CONNECTIONS_PER_ADDRESS,
        "7",
        |plan| format!("{:?}", plan.limits.connections_per_address),
        "Some(7)",
    ),
    (
        &table::REQUESTS_PER_CONNECTION,
        "7",
        |plan| format!("{:?}", plan.limits.requests_per_connection),
        "Some(7)",
    ),
    (&table::WEBSOCKET_IDLE, "1.5", |plan| format!("{:?}", plan.listen.websocket_idle), "Some(1.5s)"),
    (&table::BODY_BYTES, "7", |plan| format!("{:?}", plan.limits.body_bytes), "Some(7)"),
    (&table::UNFINISHED_BYTES, "7", |plan| format!("{:?}", plan.limits.unfinished_bytes), "Some(7)"),
    (
        &table::UNFINISHED_BYTES_PER_PRINCIPAL,
        "7",
        |plan| format!("{:?}", plan.limits.unfinished_bytes_per_principal),
        "Some(7)",
    ),
    (&table::STORED_BYTES, "7", |plan| format!("{:?}", plan.limits.stored_bytes), "Some(7)"),
    (
        &table::STORED_BYTES_PER_PRINCIPAL,
        "7",
        |plan| format!("{:?}", plan.limits.stored_bytes_per_principal),
        "Some(7)",
    ),
    (&table::TASK_BYTES, "7", |plan| plan.limits.task_bytes.to_string(), "7"),
    (&table::MAX_METADATA, "7", |plan| plan.input.max_metadata_bytes.to_string(), "7"),
    (&table::MAX_EXTENSIONS, "7", |plan| format!("{:?}", plan.input.max_extensions), "Some(7)"),
    (&table::MAX_REFERENCES, "7", |plan| format!("{:?}", plan.input.max_references), "Some(7)"),
    (&table::BODY_TIMEOUT, "1.5", |plan| format!("{:?}", plan.listen.body_timeout), "1.5s"),
    (&table::WRITE_TIMEOUT, "1.5", |plan| format!("{:?}", plan.listen.write_timeout), "1.5s"),
    (
        &table::ALLOWED_ORIGINS,
        "HTTPS://App.Example.com/, null",
        |plan| format!("{:?}", plan.listen.allowed_origins),
        r#"["https://app.example.com", "null"]"#,
    ),
    (
        &table::ALLOWED_HOSTS,
        "Example.com:8000, *.Example.com",
        |plan| format!("{:?}", plan.listen.allowed_hosts),
        r#"["example.com:8000", "*.example.com"]"#,
    ),
    (&table::LOG_PAYLOADS, "true", |plan| plan.log.payloads.to_string(), "true"),
    (&table::LOG_BODY_LIMIT, "7", |plan| plan.log.body_limit.to_string(), "7"),
    (&table::METRICS, "false", |plan| plan.metrics.to_string(), "false"),
    (
        &table::OTLP_ENDPOINT,
        "http://127.0.0.1:4318",
        |plan| format!("{:?}", plan.traces.as_ref().map(|traces| traces.endpoint.as_str())),
        r#"Some("http://127.0.0.1:4318/")"#,
    ),
];

#[test]
fn each_setting_is_read_from_every_source() {
    let limits = table::ALL.iter().filter(|setting| setting.group() == setting::Group::Limits);
    for setting in limits {
        assert!(ROWS.iter().any(|row| row.0.key == setting.key), "{} is not tested", setting.key);
    }
    for (setting, text, read, expected) in ROWS {
        assert_ne!(read(&Sources::default().plan()), *expected, "{}: this is the default", setting.key);
        let flags = &[(setting.key, *text)];
        let variables = &[(setting.env.unwrap(), *text)];
        let (section, name) = setting.key.split_once('.').unwrap();
        let is_text = matches!(setting.kind, Kind::List | Kind::Choice(_) | Kind::BaseUrl);
        let value = if is_text { format!("{text:?}") } else { (*text).to_owned() };
        let file = format!("[{section}]\n{name} = {value}\n");
        let layers = [
            Sources { flags, ..Sources::default() },
            Sources { variables, ..Sources::default() },
            Sources { file: &file, ..Sources::default() },
        ];
        for layer in layers {
            assert_eq!(read(&layer.plan()), *expected, "{}", setting.key);
        }
    }
}

#[test]
fn a_limit_of_zero_means_no_limit_and_its_help_says_so() {
    for (setting, _, read, _) in ROWS.iter().filter(|row| row.0.group() == setting::Group::Limits) {
        if matches!(setting.kind, Kind::Count | Kind::Bytes | Kind::SecondsOrOff) {
            let plan = Sources { variables: &[(setting.env.unwrap(), "0")], ..Sources::default() }.plan();
            assert_eq!(read(&plan), "None", "{}", setting.key);
            assert!(setting.kind.allowed().contains("0: no limit"), "{}", setting.key);
        }
    }
}

#[test]
fn the_defaults_are_those_of_the_crates_that_enforce_them() {
    let limits = Sources::default().plan().limits;
    let edge = longshore_edge::Limits::RATE;
    assert_eq!((limits.requests, limits.window), (Some(edge.requests as usize), edge.window));
    let edge = longshore_edge::Limits::FAILED_LOGINS;
    assert_eq!((limits.failed_logins, limits.window), (Some(edge.requests as usize), edge.window));
    let edge = longshore_edge::Limits::default();
    assert_eq!(limits.streams, Some(edge.streams));
    assert_eq!(limits.streams_per_principal, Some(edge.streams_per_principal));
    assert_eq!(limits.stream_bytes.map(|bytes| bytes as u64), Some(edge.stream_bytes));
    assert_eq!((limits.stream_duration, limits.stream_idle), (edge.stream_duration, edge.stream_idle));
    assert_eq!(limits.connections, Some(edge.connections));
    assert_eq!(limits.connections_per_address, Some(edge.connections_per_address));
    assert_eq!(limits.requests_per_connection, Some(edge.requests_per_connection));
    assert_eq!(limits.body_bytes, Some(edge.body_bytes));
    assert_eq!(limits.upstream_calls, Some(longshore_agent_opencode::UPSTREAM_CALLS));
    let directories = longshore_agent_opencode::DirectoryLimits::default();
    assert_eq!(limits.directories, Some(directories.total));
    assert_eq!(limits.directories_per_principal, Some(directories.per_principal));
    assert_eq!(limits.directory_idle, directories.idle);
    let engine = longshore_engine::EngineConfig::default();
    assert_eq!(limits.turns, Some(engine.turns));
    assert_eq!(limits.turns_per_principal, Some(engine.turns_per_principal));
    assert_eq!(limits.unfinished, Some(engine.unfinished));
    assert_eq!(limits.unfinished_per_context, Some(engine.unfinished_per_context));
    assert_eq!(limits.unfinished_per_principal, Some(engine.unfinished_per_principal));
    for (setting, enforced) in [
        (limits.unfinished_bytes, engine.unfinished_bytes),
        (limits.unfinished_bytes_per_principal, engine.unfinished_bytes_per_principal),
        (limits.stored_bytes, engine.stored_bytes),
        (limits.stored_bytes_per_principal, engine.stored_bytes_per_principal),
    ] {
        assert_eq!(setting.map(|bytes| bytes as u64), Some(enforced));
    }
    assert_eq!(limits.task_bytes, engine.task_bytes);
    let (input, engine) = (Sources::default().plan().input, engine.intake);
    assert_eq!(input.max_metadata_bytes, engine.max_metadata_bytes);
    assert_eq!(
        (input.max_extensions, input.max_references),
        (Some(engine.max_extensions), Some(engine.max_references))
    );
}

#[test]
fn counting_depends_on_who_can_call_unless_it_is_configured() {
    let counts = |text| {
        Sources { variables: &[("A2A_RATE_LIMIT_ENABLED", text)], ..Sources::default() }.plan().limits.counts
    };
    for (text, expected, only_here, elsewhere) in [
        ("", Counts::WhenOthersCanCall, false, true),
        ("Auto", Counts::WhenOthersCanCall, false, true),
        ("on", Counts::Always, true, true),
        ("True", Counts::Always, true, true),
        ("1", Counts::Always, true, true),
        ("Yes", Counts::Always, true, true),
        ("off", Counts::Never, false, false),
        ("false", Counts::Never, false, false),
        ("0", Counts::Never, false, false),
        ("no", Counts::Never, false, false),
    ] {
        assert_eq!(counts(text), expected, "{text:?}");
        assert_eq!((expected.applies(true), expected.applies(false)), (only_here, elsewhere));
    }
    for (file, expected) in [("true", Counts::Always), ("false", Counts::Never), ("\"off\"", Counts::Never)] {
        let file = format!("[limits]\nrate_limit = {file}\n");
        assert_eq!(Sources { file: &file, ..Sources::default() }.plan().limits.counts, expected, "{file}");
    }
}

#[test]
fn a_silent_turn_fails_before_its_stream_is_cut() {
    let plan = Sources::default().plan();
    assert!(plan.limits.stream_idle > plan.turns.silence, "the help of limits.stream_idle says so");
}

#[test]
fn a_bad_value_is_refused_with_the_allowed_values() {
    let cases = [
        (
            ("A2A_RATE_LIMIT_ENABLED", "perhaps"),
            "A2A_RATE_LIMIT_ENABLED (limits.rate_limit): \"perhaps\" is not allowed; it takes one of auto, on, off, true, false",
        ),
        (
            ("A2A_RATE_LIMIT_MAX_REQUESTS", "-1"),
            "A2A_RATE_LIMIT_MAX_REQUESTS (limits.rate_requests): \"-1\" is not allowed; it takes a whole number (0: no limit)",
        ),
        (
            ("A2A_RATE_LIMIT_WINDOW_SECONDS", "0"),
            "A2A_RATE_LIMIT_WINDOW_SECONDS (limits.rate_window): \"0\" is not allowed; it takes a number of seconds above 0, at most 31622400 (366 days)",
        ),
        (
            ("A2A_STREAM_MAX_BYTES", "1MB"),
            "A2A_STREAM_MAX_BYTES (limits.stream_bytes): \"1MB\" is not allowed; it takes a whole number of bytes (0: no limit)",
        ),
        (
            // More than SQLite could hold.
            ("LONGSHORE_MAX_TASK_BYTES", "134217729"),
            "LONGSHORE_MAX_TASK_BYTES (limits.task_bytes): \"134217729\" is not allowed; it takes a whole number of bytes from 1 to 134217728",
        ),
        (
            ("A2A_STREAM_IDLE_TIMEOUT_SECONDS", "soon"),
            "A2A_STREAM_IDLE_TIMEOUT_SECONDS (limits.stream_idle): \"soon\" is not allowed; it takes a number of seconds, at most 31622400 (366 days; 0: no limit)",
        ),
        (
            ("OPENCODE_MAX_CONCURRENT_STREAMS", "1.5"),
            "OPENCODE_MAX_CONCURRENT_STREAMS (limits.turns): \"1.5\" is not allowed; it takes a whole number (0: no limit)",
        ),
        (
            ("A2A_ALLOWED_ORIGINS", "https://example.com, *"),
            "A2A_ALLOWED_ORIGINS (serve.allowed_origins): \"*\" is not a site such as https://app.example.com or http://localhost:3000; list each site, without a path",
        ),
        (
            ("A2A_ALLOWED_HOSTS", "https://example.com"),
            "A2A_ALLOWED_HOSTS (serve.allowed_hosts): \"https://example.com\" is not a host such as example.com, example.com:8000, 127.0.0.1 or *.example.com",
        ),
        (
            ("A2A_METRICS_ENABLED", "perhaps"),
            "A2A_METRICS_ENABLED (metrics.enabled): \"perhaps\" is not allowed; it takes true or false",
        ),
        (
            ("A2A_LOG_BODY_LIMIT", "-1"),
            "A2A_LOG_BODY_LIMIT (log.body_limit): \"-1\" is not allowed; it takes a whole number of bytes (0: no limit)",
        ),
    ];
    for (variable, expected) in cases {
        assert_eq!(variables(&[variable]), [expected]);
    }
    assert_eq!(
        file("[limits]\nstreams = \"many\"\n"),
        [
            "longshore.toml line 2 (limits.streams): a string is not allowed here; it takes a whole number (0: no limit)"
        ]
    );
}

/// The example file lists all limits, each with its default.
#[test]
fn the_example_file_shows_every_limit() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../longshore.example.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once("\n[limits]\n").unwrap();
    let (section, _) = section.split_once("\n\n").unwrap();
    for setting in table::ALL.iter().filter(|setting| setting.group() == setting::Group::Limits) {
        let Fallback::Value(value) = setting.fallback else { panic!("{} has no default", setting.key) };
        let name = setting.key.trim_start_matches("limits.");
        let shown = [format!("# {name} = {value}"), format!("# {name} = {value:?}")];
        assert!(section.lines().any(|line| shown.contains(&line.to_owned())), "{shown:?}");
    }
}

/// If an extension for OpenCode were required, clients that know only A2A would be locked out.
#[test]
fn only_extensions_of_the_public_card_can_be_required() {
    for known in Extension::PUBLIC {
        let given = [("LONGSHORE_REQUIRED_EXTENSIONS", known.uri())];
        assert_eq!(Sources { variables: &given, ..Sources::default() }.plan().required_extensions, [known]);
    }
    for special in [
        Extension::SessionManagement,
        Extension::ProviderDiscovery,
        Extension::WorkspaceControl,
        Extension::InterruptRecovery,
    ] {
        let refused = variables(&[("LONGSHORE_REQUIRED_EXTENSIONS", special.uri())]);
        let [refused] = refused.as_slice() else { panic!("{refused:?}") };
        assert!(refused.contains("cannot be required of every caller"), "{refused}");
    }
}
