//! The command line: help, version, errors, the token, the data directory, start and end.

mod agents;
mod backup;
mod control;
mod grpc;
mod limits;
mod manual;
mod sandbox;
mod tls;
mod traces;
mod unix_socket;
mod words;

use rustix::process::Signal;
use sandbox::{FinishedRun, Sandbox};

#[test]
fn the_version_names_the_opencode_that_was_tested() {
    let run = Sandbox::new().run(&["--version"]);
    assert_eq!(run.code, Some(0));
    assert_eq!(
        run.stdout,
        format!("longshore {} (tested with OpenCode 1.18.33)\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn the_help_of_serve_is_grouped_and_names_defaults_and_variables() {
    let run = Sandbox::new().run(&["serve", "--help"]);
    assert_eq!(run.code, Some(0));
    insta::assert_snapshot!(run.stdout);
}

#[test]
fn an_unknown_flag_is_refused_with_a_suggestion() {
    let run = Sandbox::new().run(&["serve", "--prot", "1"]);
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("unexpected argument '--prot'"), "{}", run.stderr);
    assert!(run.stderr.contains("'--port'"), "{}", run.stderr);
}

#[test]
fn a_bad_configuration_is_refused_as_a_whole_with_exit_code_2() {
    let sandbox = Sandbox::new().env("A2A_LOG_LEVEL", "loud").env("A2A_PROT", "1");
    sandbox.write("longshore.toml", "[serve]\nprot = 1\n");
    let run = sandbox.run(&["serve", "--config", "longshore.toml", "--port", "80000"]);
    assert_eq!(run.code, Some(2));
    assert_eq!(run.stdout, "");
    assert_eq!(
        run.stderr,
        "error: the configuration cannot be used:\n  \
           longshore.toml line 2 (serve.prot): there is no such setting; did you mean serve.port?\n  \
           --port (serve.port): \"80000\" is not allowed; it takes a whole number from 0 to 65535 (0: any free port), or off\n  \
           A2A_LOG_LEVEL (log.level): \"loud\" is not allowed; it takes one of critical, error, warning, info, debug, trace\n"
    );
}

#[test]
fn an_unsupported_variable_gives_a_warning() {
    let sandbox =
        Sandbox::new().env("A2A_PROT", "1").env("A2A_PROTOCOL_VERSION", "1").env("OPENCODE_CONFIG", "x");
    let run = sandbox.run(&["stop"]);
    assert_eq!(run.code, Some(0));
    assert_eq!(
        run.stderr,
        "warning: A2A_PROT is not known and has no effect; did you mean A2A_PORT?\n\
         warning: A2A_PROTOCOL_VERSION is not supported by this version and has no effect\n"
    );
}

#[test]
fn the_token_is_generated_by_the_first_start_and_is_the_only_output() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["token"]).code, Some(1));
    assert!(!sandbox.data().exists(), "a question makes no directory");
    sandbox.start(&ATTACHED).end(Signal::TERM);
    let first = sandbox.run(&["token"]);
    assert_eq!((first.code, first.stderr.as_str()), (Some(0), ""));
    assert_eq!(first.stdout.trim().len(), 43);
    sandbox.start(&ATTACHED).end(Signal::TERM);
    assert_eq!(sandbox.run(&["token"]).stdout, first.stdout);
}

#[test]
fn stop_without_an_opencode_succeeds() {
    let run = Sandbox::new().run(&["stop"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(
        run.stdout.starts_with("Nothing to stop: no gateway uses the data directory /"),
        "{}",
        run.stdout
    );
}

#[test]
fn a_missing_opencode_is_named_with_a_suggestion() {
    let run = Sandbox::new().run(&["serve", "--port", "0", "--opencode", "no-such-opencode"]);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("no-such-opencode"), "{}", run.stderr);
    assert!(run.stderr.contains("--opencode-url"), "{}", run.stderr);
}

/// No OpenCode listens there. These tests must work without one.
const ATTACHED: [&str; 5] = ["serve", "--port", "0", "--opencode-url", "http://127.0.0.1:9"];

#[test]
fn an_attached_gateway_prints_its_url_serves_its_card_and_ends_on_sigterm() {
    let sandbox = Sandbox::new().env("A2A_TITLE", "A test agent");
    let gateway = sandbox.start(&ATTACHED);
    let url = gateway.value("url");
    let card = sandbox::get(&format!("{url}/.well-known/agent-card.json"), None);
    assert_eq!(card.status, 200);
    assert!(card.body.contains("\"A test agent\""), "{}", card.body);
    assert!(card.body.contains(&format!("\"{url}\"")), "{}", card.body);

    let tasks = format!("{url}/tasks");
    assert_eq!(sandbox::get(&tasks, None).status, 401);
    let token = gateway.token();
    assert_eq!(token, sandbox.run(&["token"]).stdout.trim());
    assert_eq!(sandbox::get(&tasks, Some(&token)).status, 200);
    assert!(!gateway.stdout().contains(&token), "a file or a log would hold the token: {}", gateway.stdout());
    assert!(gateway.stdout().contains("-H \"Authorization: Bearer $('"), "{}", gateway.stdout());

    let ended = gateway.end(Signal::TERM);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stderr.contains(&token), "the log shows the token");
}

#[test]
fn a_configured_token_is_used_and_not_printed() {
    let sandbox = Sandbox::new().env("A2A_BEARER_TOKEN", "a-secret-for-this-test");
    let gateway = sandbox.start(&ATTACHED);
    let tasks = format!("{}/tasks", gateway.value("url"));
    assert_eq!(sandbox::get(&tasks, Some("a-secret-for-this-test")).status, 200);
    assert_eq!(sandbox::get(&tasks, Some("another")).status, 401);
    let shown = gateway.stdout();
    assert!(!shown.contains("a-secret-for-this-test"), "{shown}");
    // The printed commands work with the token in its place.
    let (_, commands) = shown.split_once("A first request:").unwrap();
    let commands = commands.replacen("TOKEN=your-token", "TOKEN=a-secret-for-this-test", 1);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &commands.replacen("curl -sS", "curl -sS -o /dev/null -w '%{http_code}' -m 1", 1)]);
    let sent = shell.output().unwrap();
    let status = String::from_utf8(sent.stdout).unwrap();
    assert!(matches!(status.as_str(), "200" | "000"), "{status}: a wrong credential gets 401");
    let ended = gateway.end(Signal::INT);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!ended.stderr.contains("a-secret-for-this-test"));
}

#[test]
fn a_second_gateway_on_the_same_data_directory_is_refused() {
    let sandbox = Sandbox::new();
    let first = sandbox.start(&ATTACHED);
    let FinishedRun { code, stderr, .. } = sandbox.run(&ATTACHED);
    assert_eq!(code, Some(1));
    let expected = format!("error: a gateway (process {}) already uses the data directory", first.pid());
    assert!(stderr.starts_with(&expected), "{stderr}");
    let stop = sandbox.run(&["stop"]);
    assert_eq!(stop.code, Some(1), "an OpenCode in use is not ended: {}", stop.stderr);
    first.end(Signal::TERM);
    assert_eq!(sandbox.run(&["stop"]).code, Some(0));
}

#[test]
fn a_data_directory_of_another_workspace_is_refused() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.workspace().join("other")).unwrap();
    let serve = |workspace: &'static str| {
        let mut arguments = ATTACHED.to_vec();
        arguments.extend(["--data-dir", "../kept", "--workspace", workspace]);
        arguments
    };
    sandbox.start(&serve(".")).end(Signal::TERM);
    let refused = sandbox.run(&serve("other"));
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""));
    let ours = sandbox.workspace().canonicalize().unwrap();
    let expected =
        format!("belongs to the workspace {}, not to {};", ours.display(), ours.join("other").display());
    assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
    sandbox.start(&serve("./other/..")).end(Signal::TERM);
}

#[test]
fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let run = Sandbox::new().run(&["serve", "--port", &port, "--opencode-url", "http://127.0.0.1:9"]);
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr.starts_with(&format!("error: cannot listen on 127.0.0.1 port {port}")),
        "{}",
        run.stderr
    );
}

#[test]
fn everything_in_the_data_directory_is_private() {
    let sandbox = Sandbox::new();
    let gateway = sandbox.start(&ATTACHED);
    let open = sandbox::readable_by_others(&sandbox.data());
    assert_eq!(open, Vec::<std::path::PathBuf>::new());
    gateway.end(Signal::TERM);
}

#[test]
fn an_attached_gateway_serves_its_card_at_once() {
    // This OpenCode accepts connections and never answers. A gateway that waited for it would not serve its card.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let opencode = format!("http://{}", silent.local_addr().unwrap());
    let sandbox = Sandbox::new();
    let gateway = sandbox.start(&["serve", "--port", "0", "--opencode-url", &opencode]);
    let url = gateway.value("url");
    let card = sandbox::get(&format!("{url}/.well-known/agent-card.json"), None);
    assert_eq!(card.status, 200);
    assert!(card.body.contains(&format!("\"{url}\"")), "{}", card.body);
    gateway.end(Signal::TERM);
}

#[test]
fn the_demo_model_runs_by_itself() {
    let model = Sandbox::new().start(&["demo-model", "--port", "0"]);
    let line = model.stdout();
    let url = line.trim().strip_prefix("The demo model listens on ").unwrap().to_owned();
    assert_eq!(sandbox::get(&format!("{url}/models"), None).status, 200);
    assert_eq!(model.end(Signal::TERM).code, Some(0));
}
