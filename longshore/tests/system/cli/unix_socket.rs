//! `longshore serve` on a unix socket.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use longshore_testkit::stub_agent::{Reply, StubAgent};
use rustix::process::Signal;

use super::ATTACHED;
use super::sandbox::Sandbox;

/// Relative to the workspace, because the path of a socket must be short.
const SOCKET: &str = "s";

const ON_SOCKET: [&str; 7] =
    ["serve", "--port", "off", "--opencode-url", "http://127.0.0.1:9", "--unix-socket", SOCKET];

/// The status of a GET on the socket. The path of the socket is relative to the workspace.
fn get(sandbox: &Sandbox, path: &str, header: &str) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket", SOCKET]);
    if !header.is_empty() {
        curl.args(["-H", header]);
    }
    let output =
        curl.arg(format!("http://localhost{path}")).current_dir(sandbox.workspace()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_gateway_can_listen_on_a_socket_only() {
    let sandbox = Sandbox::new();
    let gateway = sandbox.start(&ON_SOCKET);
    let socket = sandbox.workspace().join(SOCKET);
    assert_eq!(gateway.value("socket"), socket.canonicalize().unwrap().to_str().unwrap());
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!gateway.stdout().contains("  url "), "{}", gateway.stdout());
    assert!(gateway.stdout().contains("curl -sS --unix-socket "), "{}", gateway.stdout());
    // The card has no field for a path, so its addresses are placeholders.
    for interface in ["JSONRPC (1.0, 0.3) http://localhost", "GRPC (1.0, 0.3) localhost:80"] {
        let line = format!("  interface  {interface}\n");
        assert!(gateway.stdout().contains(&line), "{}", gateway.stdout());
    }
    assert_eq!(get(&sandbox, "/.well-known/agent-card.json", ""), "200");
    let token = format!("Authorization: Bearer {}", gateway.token());
    assert_eq!([get(&sandbox, "/tasks", ""), get(&sandbox, "/tasks", &token)], ["401", "200"]);
    gateway.end(Signal::TERM);
    assert!(!socket.exists(), "the socket is removed at the end");
}

#[test]
fn a_socket_and_a_port_are_served_together_and_the_owner_needs_no_token() {
    let sandbox = Sandbox::new();
    let flags = ["--unix-socket", SOCKET, "--unix-socket-mode", "660", "--unix-socket-principal", "default"];
    let gateway = sandbox.start(&[&ATTACHED[..], &flags].concat());
    let mode = sandbox.workspace().join(SOCKET).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    assert_eq!(get(&sandbox, "/tasks", ""), "200");
    assert_eq!(get(&sandbox, "/tasks", "Authorization: Bearer wrong"), "401");
    let on_port = format!("{}/tasks", gateway.value("url"));
    assert_eq!(super::sandbox::get(&on_port, None).status, 401);
    gateway.end(Signal::TERM);
}

#[test]
fn a_user_in_the_configuration_needs_no_token_on_the_socket() {
    let sandbox = Sandbox::new();
    let user = rustix::process::geteuid().as_raw();
    let credential =
        format!("[[auth.credentials]]\nscheme = \"unix_user\"\nuid = {user}\nprincipal = \"ada\"\n");
    sandbox.write("longshore.toml", &credential);
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(sandbox.workspace().join("longshore.toml"), private).unwrap();
    let with_file = [&ON_SOCKET[..], &["--config", "longshore.toml"]].concat();
    let gateway = sandbox.start(&with_file);
    assert_eq!(get(&sandbox, "/tasks", ""), "200");
    assert_eq!(get(&sandbox, "/tasks", "Authorization: Bearer wrong"), "401");
    let token = format!("Authorization: Bearer {}", gateway.token());
    assert_eq!(get(&sandbox, "/tasks", &token), "200", "a token is generated as well");
    gateway.end(Signal::TERM);
    let refused = sandbox.run(&[&with_file[..], &["--unix-socket-principal", "default"]].concat());
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains(&format!("the user {user} is listed twice")), "{}", refused.stderr);
}

#[test]
fn a_socket_left_behind_is_replaced_and_one_in_use_is_not() {
    let sandbox = Sandbox::new();
    sandbox.start(&ON_SOCKET).end(Signal::KILL);
    assert!(sandbox.workspace().join(SOCKET).exists());
    let gateway = sandbox.start(&ON_SOCKET);
    // With a data directory of its own, so that only the socket is in the way.
    let data = sandbox.data().join("other");
    let second = [&ON_SOCKET[..], &["--data-dir", data.to_str().unwrap()]].concat();
    let refused = sandbox.run(&second);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("another process listens on it"), "{}", refused.stderr);
    assert_eq!(get(&sandbox, "/livez", ""), "200");
    gateway.end(Signal::TERM);

    sandbox.write(SOCKET, "a file");
    let refused = sandbox.run(&ON_SOCKET);
    assert!(refused.stderr.contains("there is another file with this name"), "{}", refused.stderr);
    assert!(sandbox.workspace().join(SOCKET).is_file());
}

#[test]
fn the_commands_do_not_call_the_port_of_an_earlier_run() {
    let sandbox = Sandbox::new();
    let thief = StubAgent::start(|_, url| Reply::json(&StubAgent::card(url)));
    sandbox.start(&ATTACHED).end(Signal::KILL);
    let data = std::fs::read_dir(sandbox.data()).unwrap().next().unwrap().unwrap().path();
    std::fs::write(data.join("address"), thief.url()).unwrap();
    let gateway = sandbox.start(&ON_SOCKET);
    let run = sandbox.run(&["call", "hello"]);
    assert_eq!(run.code, Some(7), "{}", run.stderr);
    assert!(run.stderr.contains("listens on a unix socket only"), "{}", run.stderr);
    let doctor = sandbox.run(&["doctor"]);
    assert!(doctor.stdout.contains("listens on a unix socket only"), "{}", doctor.stdout);
    assert!(thief.requests().is_empty(), "{:?}", thief.requests());
    gateway.end(Signal::TERM);
}
