//! Ids and names that contain paths: none reaches another route of OpenCode than that of its method.

use std::collections::BTreeSet;

use longshore_testkit::raw::Answer;
use longshore_wire::methods::{IdKind, Kind, Method};
use longshore_wire::opencode::{self, ids};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::control::calls::{error_code, error_fields};
use crate::control::every_method::ON_THE_WAY;
use crate::control::fixture::{Fixture, client_for, error_reason};
use crate::control::ownership::answer_every_prompt;
use crate::control::params::{Path, Position, complete_params, positions as positions_of};

/// The texts that are tried at every position: alone, and appended to a valid value.
#[derive(Clone, Copy, PartialEq)]
enum Tricks {
    Few,
    All,
}

fn tricks(tricks: Tricks) -> Vec<String> {
    if tricks == Tricks::Few {
        return ["/..", "ses_x/abort?", "%2f", "\r\nx: y"].map(str::to_owned).into();
    }
    let short = [
        "/",
        "..",
        "../..",
        "/..",
        "?",
        "#",
        "%2f",
        "%2F..",
        "%2e%2e",
        "%252f",
        "\\",
        "\u{0}",
        "\n",
        "\r\nx: y",
        "ses_x/abort?",
        "ses_x%2fabort",
        "ses/../../config",
        "x&directory=%2F",
    ];
    short.map(str::to_owned).into_iter().chain([129, 100_000].map(|length| "a".repeat(length))).collect()
}

/// Requests that the gateway makes by itself while a turn of an earlier call runs.
const OF_TURNS: [&str; 7] = [
    "/event",
    "/global/event",
    "/global/health",
    "/session/status",
    "/session/{id}/message",
    "/permission",
    "/question",
];

/// The lookups that a method may make in addition to its own requests.
fn lookups(method: &'static Method) -> BTreeSet<&'static str> {
    let mut all = BTreeSet::from(OF_TURNS);
    let on_the_way =
        ON_THE_WAY.iter().filter(|(key, ..)| *key == method.key).flat_map(|(_, asked, _)| *asked);
    all.extend(on_the_way.filter_map(|asked| asked.strip_prefix("GET ")));
    for Position { at, kind } in
        complete_params(method).iter().flat_map(|complete| positions_of(method, complete))
    {
        let at = at.to_string();
        match kind {
            // The owner of a session that the gateway does not know.
            Kind::Id(ids::SESSION) => all.extend(["/session/{id}"]),
            Kind::Id(ids::WORKSPACE) | Kind::Directory => all.extend(["/experimental/workspace"]),
            _ if at.ends_with("providerID") || at.ends_with("modelID") || at.ends_with("variant") => {
                all.extend(["/config/providers", "/config"]);
            }
            _ if at.ends_with("agent") || at.ends_with("name") => all.extend(["/agent"]),
            _ => {}
        }
    }
    all
}

/// The ids that exist.
const KNOWN: [&str; 3] = ["ses_mine", "msg_mine", "wrk_none"];

/// Valid parameters, complete enough to try each position alone.
fn base(method: &Method) -> Value {
    let model = json!({"providerID": "scripted", "modelID": "scripted"});
    let file = json!({"type": "file", "mime": "text/plain", "url": "data:text/plain;base64,aGk="});
    let mut params = match method.key {
        "get_session_message" => json!({"message_id": "msg_mine"}),
        "prompt_async" => json!({"request": {
            "parts": [
                {"type": "text", "text": "a note"},
                file,
                {"type": "agent", "name": "explore"},
                {"type": "subtask", "prompt": "look", "description": "a look", "agent": "explore", "model": model},
            ],
            "model": model,
            "noReply": true,
        }}),
        "command" => {
            json!({"request": {"command": "review", "arguments": "all", "model": model, "parts": [file]}})
        }
        "summarize" => json!({"request": model}),
        "revert" => json!({"request": {"messageID": "msg_mine"}}),
        "shell" => json!({"request": {"agent": "build", "command": "true", "model": model}}),
        "create_workspace" => json!({"request": {"type": "nonsense"}}),
        "remove_workspace" => json!({"workspace_id": "wrk_none"}),
        "remove_worktree" | "reset_worktree" => json!({"request": {}}),
        "reply_permission" => json!({"request_id": "per_none", "reply": "once"}),
        "reply_question" => json!({"request_id": "que_none", "answers": [["a"]]}),
        "reject_question" => json!({"request_id": "que_none"}),
        "revoke_approval" => json!({"request_id": "per_none"}),
        _ => json!({}),
    };
    if method.params.iter().any(|param| param.name == "session_id") {
        params["session_id"] = "ses_mine".into();
    }
    params
}

/// A valid value for a position. `None`: the position holds no id or name.
fn valid_value(kind: &Kind, at: &Path, root: &str) -> Option<String> {
    Some(match kind {
        Kind::Id(ids::SESSION) => "ses_mine".to_owned(),
        Kind::Id(ids::MESSAGE) => "msg_mine".to_owned(),
        Kind::Id(ids::PART) => "prt_mine_0".to_owned(),
        Kind::Id(ids::WORKSPACE) => "wrk_none".to_owned(),
        Kind::Id(IdKind::REQUEST) => "per_none".to_owned(),
        Kind::Directory => root.to_owned(),
        Kind::Command => "review".to_owned(),
        Kind::Cursor | Kind::FileName { .. } | Kind::Branch | Kind::Word(_) | Kind::Reply => "new".to_owned(),
        Kind::Line { .. } => {
            let name = at.to_string();
            let good = if name.ends_with("agent") || name.ends_with("name") { "explore" } else { "scripted" };
            good.to_owned()
        }
        _ => return None,
    })
}

/// The parameters with this text at the position.
fn with(base: &Value, at: &Path, trick: &str) -> Value {
    at.put(base, trick.into())
}

/// Whether a request to OpenCode is one that the method may make: its path, and the names in its query.
fn is_of_row(
    arrived: &str,
    method: &Method,
    lookups: &BTreeSet<&str>,
    names: &BTreeSet<&str>,
    root: &str,
) -> bool {
    let Some((verb, target)) = arrived.split_once(' ') else { return false };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs: Vec<(&str, &str)> =
        query.split('&').filter(|pair| !pair.is_empty()).filter_map(|pair| pair.split_once('=')).collect();
    // OpenCode decodes this parameter twice; paths of tests contain no percent sign.
    let directory = pairs.iter().find(|(name, _)| *name == "directory").map(|(_, value)| decoded(value));
    let is_here = path.starts_with("/global/") || directory.as_deref() == Some(root);
    let is_alike = |template: &str, known: &[&str]| {
        let (found, wanted): (Vec<&str>, Vec<&str>) =
            (path.split('/').collect(), template.split('/').collect());
        let fits = |(found, wanted): (&&str, &&str)| {
            if wanted.starts_with('{') { names.contains(decoded(found).as_str()) } else { found == wanted }
        };
        found.len() == wanted.len()
            && found.iter().zip(&wanted).all(fits)
            && pairs.iter().all(|(name, _)| *name == "directory" || known.contains(name))
    };
    let of_row = method.upstream.iter().any(|up| up.verb.as_str() == verb && is_alike(up.path, up.query));
    let pages = |template: &str| -> &[&str] {
        if template.ends_with("/message") { &["limit", "before"] } else { &[] }
    };
    let looked_up = verb == "GET" && lookups.iter().any(|template| is_alike(template, pages(template)));
    is_here && (of_row || looked_up)
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escape = tail.get(..2).filter(|_| *first == b'%').and_then(|pair| str::from_utf8(pair).ok());
        if let Some(byte) = escape.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            bytes.push(byte);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The error of the valid parameters themselves: for some methods, truly valid parameters would do damage.
struct BaseFault {
    code: i64,
    fields: Vec<String>,
    /// OpenCode itself refuses them.
    is_asked: bool,
}

async fn own_fault(fixture: &Fixture, version: ProtocolVersion, method: &'static Method) -> BaseFault {
    let mut seen = fixture.fake.received_targets().len();
    let answer = client_for(&fixture.ada, version, method).rpc(method.name, base(method)).await;
    let is_asked = fixture.arrived(&mut seen).iter().any(|entry| !entry.starts_with("GET "));
    BaseFault { code: error_code(&answer), fields: error_fields(&answer), is_asked }
}

struct Counts {
    refused: usize,
    taken: usize,
}

async fn try_row(
    fixture: &Fixture,
    version: ProtocolVersion,
    method: &'static Method,
    which: Tricks,
    counts: &mut Counts,
) {
    let (client, root) = (client_for(&fixture.ada, version, method), fixture.root().to_owned());
    let own = own_fault(fixture, version, method).await;
    let lookups = lookups(method);
    let mut seen = 0;
    fixture.arrived(&mut seen);
    let mut tried = BTreeSet::new();
    for complete in complete_params(method) {
        for Position { at, kind } in positions_of(method, &complete) {
            let Some(good) = valid_value(kind, &at, &root).filter(|_| tried.insert(at.to_string())) else {
                continue;
            };
            // Creating a worktree is slow, so fewer names are tried.
            let makes = method.key == "create_worktree" && matches!(kind, Kind::FileName { .. });
            let is_name = !matches!(kind, Kind::Line { .. });
            let behind = tricks(which).into_iter().filter(|_| is_name && !makes);
            let behind = behind.map(|trick| format!("{good}{trick}"));
            for trick in tricks(which).into_iter().chain(behind) {
                let about =
                    format!("{} {version:?} {at} {:.60}", method.name, trick.escape_debug().to_string());
                let answer = client.rpc(method.name, with(&base(method), &at, &trick)).await;
                let arrived = fixture.arrived(&mut seen);
                let mut names: BTreeSet<&str> = KNOWN.into();
                if longshore_model::id::check_id(&trick).is_ok() {
                    names.insert(&trick);
                }
                for entry in &arrived {
                    assert!(is_of_row(entry, method, &lookups, &names, &root), "{about}: {entry:.300}");
                }
                let is_refused = is_refusal(&answer, version, &at, &own, &about);
                // A refused call changes nothing, unless OpenCode itself refused the valid parameters.
                let is_own =
                    own.is_asked && error_code(&answer) == own.code && error_fields(&answer) == own.fields;
                if answer.body.get("result").is_none() && !is_own {
                    let changes = arrived.iter().find(|entry| !entry.starts_with("GET "));
                    assert_eq!(changes, None, "{about}: {}", answer.body);
                }
                if is_refused {
                    counts.refused += 1;
                } else {
                    counts.taken += 1;
                }
            }
        }
    }
    assert!(!tried.is_empty() || method.params.is_empty(), "{}", method.name);
}

/// Whether the error names the field. Any other error comes from OpenCode, or from another mistake.
fn is_refusal(answer: &Answer, version: ProtocolVersion, at: &Path, own: &BaseFault, about: &str) -> bool {
    assert_eq!(answer.status, 200, "{about}: {:.300}", answer.body.to_string());
    if answer.body.get("result").is_some() {
        return false;
    }
    let (code, fields) = (error_code(answer), error_fields(answer));
    // The error does not repeat a name that is too long.
    assert!(answer.body.to_string().len() < 4096, "{about}");
    if error_reason(answer, version) == "CONTENT_TYPE_NOT_SUPPORTED" {
        return true;
    }
    let known = [-32602, -32001, -32003, -32004, -32007];
    assert!(known.contains(&code), "{about}: {}", answer.body);
    if (code, &fields) == (own.code, &own.fields) && code != 0 {
        return false;
    }
    if code == -32602 {
        // The error may name the object that contains the field.
        let at = at.to_string();
        let names_it =
            matches!(fields.as_slice(), [field] if at == *field || at.starts_with(&format!("{field}.")));
        assert!(names_it, "{about}: {fields:?} {}", answer.body);
        return true;
    }
    false
}

async fn every_name(version: ProtocolVersion, which: Tricks) {
    let fixture = Fixture::start().await;
    fixture.fake.make_repository().await;
    answer_every_prompt(&fixture);
    fixture.session("ses_mine");
    fixture.message("ses_mine", "msg_mine", json!({}), &[json!({"type": "text", "text": "mine"})]).await;
    fixture.claim("ses_mine").await;
    fixture.session("ses_x");
    fixture.message("ses_x", "msg_x", json!({}), &[json!({"type": "text", "text": "not mine"})]).await;
    let before = fixture.fake.messages("ses_x");
    let mut counts = Counts { refused: 0, taken: 0 };
    for method in opencode::methods() {
        try_row(&fixture, version, method, which, &mut counts).await;
        assert_eq!(fixture.fake.removed_directories(), [""; 0], "{}", method.name);
    }
    assert_eq!(fixture.fake.messages("ses_x"), before);
    // Most positions refuse paths, and some accept text that looks like one.
    let (refused, taken) = if which == Tricks::Few { (200, 10) } else { (1000, 50) };
    assert!(counts.refused > refused && counts.taken > taken, "{} {}", counts.refused, counts.taken);
    fixture.stop().await;
}

#[tokio::test]
async fn no_name_reaches_another_route() {
    every_name(ProtocolVersion::V1, Tricks::Few).await;
}

#[tokio::test]
async fn long_no_name_reaches_another_route_with_any_trick_in_1_0() {
    every_name(ProtocolVersion::V1, Tricks::All).await;
}

#[tokio::test]
async fn long_no_name_reaches_another_route_with_any_trick_in_0_3() {
    every_name(ProtocolVersion::V03, Tricks::All).await;
}
