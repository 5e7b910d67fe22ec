//! `longshore serve` with each setting of gRPC: the card and the banner name its address, and calls arrive.

#![expect(clippy::unwrap_used, reason = "a test whose surroundings fail has nothing better to say")]

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use super::ATTACHED;
use super::sandbox::{self, Running, Sandbox};

/// A call with its path, its message, whether it has the token, the expected status of gRPC, and a text of the response.
/// No status: the response is not one of gRPC.
type Call = (&'static str, &'static [u8], bool, Option<&'static str>, &'static str);

const LIST: &str = "lf.a2a.v1.A2AService/ListTasks";
const REFLECT: &str = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const CHECK: &str = "grpc.health.v1.Health/Check";

/// A question for the names of all services: the field `list_services`, with an empty text.
const SERVICES: &[u8] = &[0x3a, 0];

/// The address of gRPC in the card.
enum Listed {
    Nowhere,
    /// The address of the other bindings.
    AtUrl,
    /// Another port of the same host.
    AtOwnPort,
    At(&'static str),
}

const CASES: [(&[&str], Listed, &[Call]); 6] = [
    (
        &[],
        Listed::AtUrl,
        &[
            (LIST, b"", true, Some("0"), ""),
            (LIST, b"", false, Some("16"), ""),
            (REFLECT, SERVICES, true, Some("12"), ""),
            (CHECK, b"", true, Some("12"), ""),
        ],
    ),
    (&["--grpc-port", "0"], Listed::AtOwnPort, &[(LIST, b"", true, Some("0"), "")]),
    (
        &["--grpc-public-url", "https://grpc.example.com"],
        Listed::At("grpc.example.com:443"),
        &[(LIST, b"", true, Some("0"), "")],
    ),
    (
        &["--grpc-reflection"],
        Listed::AtUrl,
        &[
            (REFLECT, SERVICES, true, Some("0"), "lf.a2a.v1.A2AService"),
            (REFLECT, SERVICES, false, Some("16"), ""),
        ],
    ),
    (&["--grpc-health"], Listed::AtUrl, &[(CHECK, b"", false, Some("0"), "")]),
    (&["--grpc=false"], Listed::Nowhere, &[(LIST, b"", true, None, "")]),
];

/// The headers and trailers of a call, and then its message.
fn called(sandbox: &Sandbox, address: &str, (path, message, ..): &Call, token: Option<&str>) -> String {
    let length = u8::try_from(message.len()).unwrap();
    let file = |name: &str| sandbox.workspace().join(name);
    std::fs::write(file("call"), [&[0, 0, 0, 0, length], *message].concat()).unwrap();
    std::fs::write(file("message"), "").unwrap();
    let url = format!("http://{address}/{path}");
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--http2-prior-knowledge", "--max-time", "30", "-D", "heads", "-o", "message"]);
    curl.args(["-H", "te: trailers", "-H", "content-type: application/grpc", "--data-binary", "@call"]);
    if let Some(token) = token {
        curl.args(["-H", &format!("authorization: Bearer {token}")]);
    }
    curl.arg(url).current_dir(sandbox.workspace());
    // The gateway refuses some calls before it has read their message. If curl still sends the message then, it ends with code 92 and
    // shows no response, so the call is repeated.
    let output = (0..50).map(|_| curl.output().unwrap()).find(|output| output.status.code() != Some(92));
    let output = output.expect("curl sends a message of a few bytes");
    assert!(output.status.success(), "{output:?}");
    let shown = ["heads", "message"].map(|name| std::fs::read(file(name)).unwrap());
    String::from_utf8_lossy(&shown.concat()).into_owned()
}

/// The interfaces in the card, with their versions, as the banner shows them.
fn listed(gateway: &Running) -> Vec<String> {
    let card = sandbox::get(&format!("{}/.well-known/agent-card.json", gateway.value("url")), None);
    let card: Value = serde_json::from_str(&card.body).unwrap();
    let (mut listed, mut old) = (Vec::new(), Vec::new());
    for interface in card["supportedInterfaces"].as_array().unwrap() {
        let text = |name: &str| interface[name].as_str().unwrap().to_owned();
        let line = format!("  interface  {} (1.0, 0.3) {}", text("protocolBinding"), text("url"));
        if text("protocolVersion") == "1.0" { listed.push(line) } else { old.push(line) }
    }
    old.sort();
    let mut same = listed.clone();
    same.sort();
    assert_eq!(same, old, "both versions have all interfaces");
    listed
}

#[test]
fn each_setting_of_grpc_is_shown_and_served() {
    for (flags, expected, calls) in CASES {
        let sandbox = Sandbox::new();
        let gateway = sandbox.start(&[&ATTACHED[..], flags].concat());
        let said = gateway.stdout();
        let listed = listed(&gateway);
        let printed: Vec<&str> = said.lines().filter(|line| line.starts_with("  interface")).collect();
        assert_eq!(printed, listed, "{flags:?}");

        let address = listed.iter().find_map(|line| line.strip_prefix("  interface  GRPC (1.0, 0.3) "));
        let url = gateway.value("url");
        let own = url.strip_prefix("http://").unwrap();
        let reachable = match expected {
            Listed::Nowhere => (address.is_none(), own),
            Listed::AtUrl => (address == Some(own), own),
            Listed::AtOwnPort => {
                let is_other = address.is_some_and(|it| it.starts_with("127.0.0.1:") && it != own);
                (is_other, address.unwrap_or(own))
            }
            Listed::At(named) => (address == Some(named), own),
        };
        assert!(reachable.0, "{flags:?}: {address:?} beside {own}");
        for call in calls {
            let (path, _, has_token, status, text) = *call;
            let token = has_token.then(|| gateway.token());
            let shown = called(&sandbox, reachable.1, call, token.as_deref());
            let found = shown.lines().find_map(|line| line.strip_prefix("grpc-status: "));
            assert!(found == status && shown.contains(text), "{flags:?} {path} {has_token}: {shown}");
        }
        gateway.end(Signal::TERM);
    }
}
