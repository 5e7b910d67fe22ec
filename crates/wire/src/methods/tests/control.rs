//! Tests of valid and invalid calls of the methods that query and control the agent.

use std::fmt::Write as _;

use longshore_model::{Error, RequestedLocation};

use super::{all, method};
use crate::extension::Activated;
use crate::methods::{Call, Effect, Method, Need, Switch};
use crate::surface::ProtocolVersion;

/// For each of these methods two sets of valid parameters: as few as possible, and all.
const GOOD: &[(&str, &[&str])] = &[
    (
        "status",
        &[
            "{}",
            r#"{"directory":"services/api","metadata":{"opencode":{"directory":"elsewhere"},"shared":{"x":1}}}"#,
        ],
    ),
    (
        "list",
        &[
            "{}",
            r#"{"limit":"7","directory":"a","roots":"Yes","start":5.0,"search":"plan","metadata":null}"#,
            r#"{"limit":100,"roots":false,"search":" "}"#,
        ],
    ),
    (
        "messages.list",
        &[
            r#"{"session_id":"ses_1"}"#,
            r#"{"session_id":"ses_1","limit":1,"before":"eyJ_-=","metadata":{"opencode":{"directory":"d"}}}"#,
        ],
    ),
    ("get", &[r#"{"session_id":"ses_1"}"#, r#"{"session_id":"ses_1","directory":"a"}"#]),
    ("children", &[r#"{"session_id":"ses_1"}"#]),
    ("todo", &[r#"{"session_id":"ses_1"}"#]),
    ("diff", &[r#"{"session_id":"ses_1"}"#, r#"{"session_id":"ses_1","message_id":"msg_1"}"#]),
    ("messages.get", &[r#"{"session_id":"ses_1","message_id":"msg_1"}"#]),
    (
        "prompt_async",
        &[
            r#"{"session_id":"ses_1","request":{"parts":[]}}"#,
            r#"{"session_id":"ses_1","request":{"noReply":true,"parts":[{"type":"text","text":"so you know"}]}}"#,
            r#"{"session_id":"ses_1","request":{
                "parts":[
                    {"type":"agent","name":"plan"},
                    {"type":"text","text":"a\u0007b"},
                    {"type":"subtask","prompt":"look","description":"A look","agent":"explore","command":"review",
                     "model":{"providerID":"p","modelID":"m/n"}},
                    {"type":"file","mime":"text/plain","url":"file:///a.txt","filename":"a.txt"}],
                "messageID":"msg_mine","model":{"providerID":"p","modelID":"m"},"agent":"build","noReply":"off",
                "tools":{"bash":false,"web":"no","edit":null},"format":{"type":"text"},"system":"Be\nbrief.","variant":"high"},
              "metadata":{"opencode":{"directory":"a","workspace":{"id":"wrk_1"}}}}"#,
        ],
    ),
    (
        "command",
        &[
            r#"{"session_id":"ses_1","request":{"command":"/review","arguments":""}}"#,
            r#"{"session_id":"ses_1","request":{"command":"review","arguments":"a b","messageID":"msg_1","agent":"build",
                "model":{"providerID":"p","modelID":"m"},"variant":"high",
                "parts":[{"type":"file","mime":"text/plain","url":"data:,x"}]}}"#,
            r#"{"session_id":"ses_1","request":{"command":"//x","arguments":"","model":"p/m/n","parts":[]}}"#,
        ],
    ),
    (
        "fork",
        &[
            r#"{"session_id":"ses_1"}"#,
            r#"{"session_id":"ses_1","request":{"messageID":"msg_1"},"directory":"a"}"#,
        ],
    ),
    ("share", &[r#"{"session_id":"ses_1"}"#]),
    ("unshare", &[r#"{"session_id":"ses_1"}"#]),
    (
        "summarize",
        &[
            r#"{"session_id":"ses_1"}"#,
            r#"{"session_id":"ses_1","request":{"providerID":null,"modelID":null,"auto":null}}"#,
            r#"{"session_id":"ses_1","request":{"providerID":"p","modelID":"m","auto":true}}"#,
        ],
    ),
    (
        "revert",
        &[
            r#"{"session_id":"ses_1","request":{"messageID":"msg_1"}}"#,
            r#"{"session_id":"ses_1","request":{"messageID":"msg_1","partID":"prt_1"}}"#,
        ],
    ),
    ("unrevert", &[r#"{"session_id":"ses_1"}"#]),
    (
        "shell",
        &[
            r#"{"session_id":"ses_1","request":{"agent":"build","command":"git status && ls | wc -l"}}"#,
            r#"{"session_id":"ses_1","request":{"agent":"build","command":"ls","model":{"providerID":"p","modelID":"m"}}}"#,
        ],
    ),
    ("delete", &[r#"{"session_id":"ses_1"}"#]),
    ("opencode.providers.list", &["{}", r#"{"metadata":{"opencode":{"workspace":{"id":"wrk_1"}}}}"#]),
    ("opencode.models.list", &["{}", r#"{"provider_id":"openai"}"#]),
    ("opencode.projects.list", &["{}"]),
    ("opencode.projects.current", &[r#"{"metadata":{"opencode":{"directory":" ","workspace":{"id":""}}}}"#]),
    ("opencode.workspaces.list", &["{}"]),
    (
        "opencode.workspaces.create",
        &[
            r#"{"request":{"type":"git"}}"#,
            r#"{"request":{"id":"wrk-api","type":"git","branch":"feature/a-b","extra":{"a": [1.50]}}}"#,
        ],
    ),
    ("opencode.workspaces.remove", &[r#"{"workspace_id":"wrk_1"}"#]),
    ("opencode.worktrees.list", &["{}"]),
    (
        "opencode.worktrees.create",
        &["{}", r#"{"request":{}}"#, r#"{"request":{"name":"feat one","startCommand":"make"}}"#],
    ),
    ("opencode.worktrees.remove", &[r#"{"request":{"directory":"/repo/a"}}"#, r#"{"request":{"name":"a"}}"#]),
    ("opencode.worktrees.reset", &[r#"{"request":{"directory":"/repo/a","name":null}}"#]),
];

fn full_name(name: &str) -> String {
    if name.starts_with("opencode.") { name.to_owned() } else { format!("opencode.sessions.{name}") }
}

#[test]
fn good_calls() {
    let mut transcript = String::new();
    for (name, params) in GOOD {
        let name = full_name(name);
        for params in *params {
            let read = |version| method(&name).read(version, params, Activated::ALL).expect(params);
            assert_eq!(read(ProtocolVersion::V1), read(ProtocolVersion::V03), "{params}");
            let Call::Control(request) = read(ProtocolVersion::V1) else { panic!("{name}") };
            let params: String = params.split_whitespace().collect::<Vec<_>>().join(" ");
            writeln!(transcript, "{name} {params}\n  {:?}", request.control).unwrap();
            if request.location != RequestedLocation::default() {
                writeln!(transcript, "  {:?}", request.location).unwrap();
            }
        }
    }
    insta::assert_snapshot!(transcript);
    let named: Vec<String> = GOOD.iter().map(|(name, _)| full_name(name)).collect();
    // The methods about asks have a separate test.
    let controls = all().filter(|method| method.name.starts_with("opencode.") && !method.upstream.is_empty());
    let controls = controls.map(|method| method.name);
    assert_eq!(controls.collect::<Vec<_>>(), named);
}

#[test]
fn arguments_that_may_run_a_shell_need_the_shell_switch() {
    let command = method("opencode.sessions.command");
    for (arguments, is_run) in [
        ("!`id`", true),
        ("two `pieces` and!", true),
        ("look at `main.rs`", false),
        ("now! and @src/main.rs", false),
        ("", false),
    ] {
        let params = serde_json::json!({"session_id": "ses_1", "request": {"command": "review", "arguments": arguments}});
        for version in [ProtocolVersion::V1, ProtocolVersion::V03] {
            let read = command.read_with_need(version, &params.to_string(), Activated::ALL);
            let field = "request.arguments".to_owned();
            let expected = is_run.then_some(Need { field, switch: Switch::SessionShell });
            assert_eq!(read.unwrap().1, expected, "{arguments}");
        }
    }
}

#[test]
fn an_error_lists_only_some_of_many_unknown_names() {
    let params: serde_json::Map<_, _> = (0..100_000).map(|at| (format!("n{at}"), 0.into())).collect();
    for params in [serde_json::json!(params), serde_json::json!({"metadata": params})] {
        let error =
            method("opencode.sessions.status").read(ProtocolVersion::V1, &params.to_string(), Activated::ALL);
        assert_eq!(error.unwrap_err().violations().len(), 16);
    }
}

/// The limit applies although it is larger than the usual limit of a request.
#[test]
fn the_url_of_a_file_has_a_limit() {
    const MAX: usize = 64 * 1024 * 1024;
    let prompt = method("opencode.sessions.prompt_async");
    let read = |bytes: usize| {
        let url = "a".repeat(bytes);
        let part = format!(r#"{{"type":"file","mime":"text/plain","url":"{url}"}}"#);
        let params = format!(r#"{{"session_id":"ses_1","request":{{"parts":[{part}]}}}}"#);
        prompt.read(ProtocolVersion::V1, &params, Activated::ALL)
    };
    assert!(read(MAX).is_ok());
    assert_eq!(fields(&read(MAX + 1).unwrap_err()), ["request.parts[0].url"]);
}

#[test]
fn the_switches_of_parameters_are_those_of_the_table() {
    let with = r#"{"request":{"startCommand":"make"}}"#;
    let create = method("opencode.worktrees.create");
    let need = |params: &str| create.read_with_need(ProtocolVersion::V1, params, Activated::ALL).unwrap().1;
    let field = "request.startCommand".to_owned();
    assert_eq!(need(with), Some(Need { field, switch: Switch::SessionShell }));
    assert_eq!(need("{}"), None);
    let of_method = |method: &Method| {
        let needs = method.param_switches().into_iter();
        needs.map(|(path, switch)| (method.name, path, switch)).collect::<Vec<_>>()
    };
    let all: Vec<_> = all().flat_map(of_method).collect();
    let shell = |name: &'static str, field: &str| (name, field.to_owned(), Switch::SessionShell);
    assert_eq!(
        all,
        [
            shell("opencode.sessions.command", "request.arguments"),
            shell("opencode.worktrees.create", "request.startCommand")
        ]
    );
}

fn refused(name: &str, version: ProtocolVersion, params: &str) -> Error {
    method(&full_name(name)).read(version, params, Activated::ALL).expect_err(params)
}

fn fields(error: &Error) -> Vec<&str> {
    error.violations().iter().map(|violation| violation.field.as_str()).collect()
}

#[test]
fn bad_parameters_are_named() {
    let long = "a".repeat(129);
    let long_id = format!(r#"{{"session_id":"ses_{long}"}}"#);
    let long_tool =
        format!(r#"{{"session_id":"ses_1","request":{{"parts":[],"tools":{{"{long}":false}}}}}}"#);
    let tool_path = format!("request.tools.{}", &long[..128]);
    let prompt = |request: &str| format!(r#"{{"session_id":"ses_1","request":{request}}}"#);
    let part = |part: &str| prompt(&format!(r#"{{"parts":[{{"type":"text","text":""}},{part}]}}"#));
    for (name, params, field) in [
        ("get", "{}", "session_id"),
        ("get", r#"{"sessionId":"ses_1"}"#, "sessionId"),
        ("get", r#"{"session_id":"ses/../../config"}"#, "session_id"),
        ("get", r#"{"session_id":"ses_x/abort?"}"#, "session_id"),
        ("get", r#"{"session_id":"ses_%2e%2e"}"#, "session_id"),
        ("get", r#"{"session_id":"ses_\u0000"}"#, "session_id"),
        ("get", r#"{"session_id":" ses_1"}"#, "session_id"),
        ("get", r#"{"session_id":"msg_1"}"#, "session_id"),
        ("get", &long_id, "session_id"),
        ("get", r#"{"session_id":"ses_1","directory":""}"#, "directory"),
        ("get", r#"{"session_id":"ses_1","directory":"a\nb"}"#, "directory"),
        ("get", r#"{"session_id":"ses_1","metadata":{"other":1}}"#, "metadata.other"),
        (
            "get",
            r#"{"session_id":"ses_1","metadata":{"opencode":{"directory":7}}}"#,
            "metadata.opencode.directory",
        ),
        (
            "get",
            r#"{"session_id":"ses_1","metadata":{"opencode":{"workspace":7}}}"#,
            "metadata.opencode.workspace",
        ),
        (
            "get",
            r#"{"session_id":"ses_1","metadata":{"opencode":{"workspace":{"id":"wrk/.."}}}}"#,
            "metadata.opencode.workspace.id",
        ),
        (
            "get",
            r#"{"session_id":"ses_1","metadata":{"opencode":{"workspace":{"id":"mine"}}}}"#,
            "metadata.opencode.workspace.id",
        ),
        ("list", r#"{"limit":true}"#, "limit"),
        ("list", r#"{"limit":"many"}"#, "limit"),
        ("list", r#"{"limit":1.5}"#, "limit"),
        ("list", r#"{"start":-1}"#, "start"),
        ("list", r#"{"roots":1}"#, "roots"),
        ("list", r#"{"query":{"limit":1}}"#, "query"),
        ("messages.list", r#"{"session_id":"ses_1","before":"a b"}"#, "before"),
        ("messages.list", r#"{"session_id":"ses_1","before":""}"#, "before"),
        ("diff", r#"{"session_id":"ses_1","message_i_d":"msg_1"}"#, "message_i_d"),
        ("prompt_async", r#"{"session_id":"ses_1"}"#, "request"),
        ("prompt_async", &prompt("[]"), "request"),
        ("prompt_async", &prompt("{}"), "request.parts"),
        ("prompt_async", &prompt(r#"{"parts":[],"message_i_d":"msg_1"}"#), "request.message_i_d"),
        ("prompt_async", &prompt(r#"{"parts":[],"messageID":"ses_1"}"#), "request.messageID"),
        ("prompt_async", &prompt(r#"{"parts":[],"tools":{"bash":true}}"#), "request.tools.bash"),
        ("prompt_async", &long_tool, &tool_path),
        ("prompt_async", &prompt(r#"{"parts":[],"format":{"type":"json_schema"}}"#), "request.format.type"),
        ("prompt_async", &prompt(r#"{"parts":[],"model":{"providerID":"p"}}"#), "request.model.modelID"),
        ("prompt_async", &prompt(r#"{"parts":[],"model":"p/m"}"#), "request.model"),
        ("prompt_async", &part("7"), "request.parts[1]"),
        ("prompt_async", &part("null"), "request.parts[1]"),
        ("prompt_async", &part("{}"), "request.parts[1].type"),
        ("prompt_async", &part(r#"{"type":"image"}"#), "request.parts[1].type"),
        ("prompt_async", &part(r#"{"type":"text"}"#), "request.parts[1].text"),
        ("prompt_async", &part(r#"{"type":"text","text":"x","id":"prt_1"}"#), "request.parts[1].id"),
        (
            "prompt_async",
            &part(r#"{"type":"text","text":"x","synthetic":true}"#),
            "request.parts[1].synthetic",
        ),
        ("command", &prompt(r#"{"command":"/","arguments":""}"#), "request.command"),
        ("command", &prompt(r#"{"command":"x"}"#), "request.arguments"),
        ("command", &prompt(r#"{"command":"x","arguments":"","model":"p"}"#), "request.model"),
        (
            "command",
            &prompt(r#"{"command":"x","arguments":"","parts":[{"type":"text","text":"x"}]}"#),
            "request.parts[0].type",
        ),
        ("summarize", &prompt(r#"{"providerID":"p"}"#), "request.modelID"),
        ("summarize", &prompt(r#"{"modelID":"m"}"#), "request.providerID"),
        ("revert", &prompt(r#"{"messageID":"msg_1","partID":"msg_1"}"#), "request.partID"),
        ("shell", &prompt(r#"{"agent":"a","command":" "}"#), "request.command"),
        ("shell", &prompt(r#"{"agent":"a","command":"a\nb"}"#), "request.command"),
        ("shell", &prompt(r#"{"agent":"a","command":"a\tb"}"#), "request.command"),
        ("opencode.models.list", r#"{"provider_id":" "}"#, "provider_id"),
        ("opencode.workspaces.create", r#"{"request":{"type":"git","branch":"-x"}}"#, "request.branch"),
        ("opencode.workspaces.create", r#"{"request":{"type":"git","branch":"a..b"}}"#, "request.branch"),
        ("opencode.workspaces.create", r#"{"request":{"type":"git","extra":[]}}"#, "request.extra"),
        ("opencode.workspaces.remove", r#"{"workspace_id":"wrk_1/../x"}"#, "workspace_id"),
        ("opencode.worktrees.create", r#"{"request":{"name":"-b"}}"#, "request.name"),
        ("opencode.worktrees.create", r#"{"request":{"name":"../evil"}}"#, "request.name"),
        ("opencode.worktrees.remove", r#"{"request":{}}"#, "request.directory"),
        ("opencode.worktrees.remove", r#"{"request":{"directory":"/a","name":"a"}}"#, "request.name"),
        ("opencode.worktrees.reset", r#"{"request":{"name":"a/b"}}"#, "request.name"),
        // Names are checked before values.
        ("get", r#"{"session_id":7,"other":1}"#, "other"),
        ("revert", r#"{"session_id":"ses_1","request":{"messageID":7},"other":1}"#, "other"),
        ("revert", r#"{"session_id":"ses_1","request":{"messageID":7,"other":1}}"#, "request.other"),
    ] {
        let error = refused(name, ProtocolVersion::V1, params);
        assert_eq!(fields(&error), [field], "{name} {params}");
    }
    let error = refused("get", ProtocolVersion::V1, r#"{"b":1,"a":2}"#);
    assert_eq!(fields(&error), ["a", "b"]);
    assert!(refused("get", ProtocolVersion::V1, "[]").violations().is_empty());
}

#[test]
fn other_ways_of_paging_are_refused() {
    for name in ["cursor", "page", "size"] {
        for (version, params) in [
            (ProtocolVersion::V1, format!(r#"{{"{name}":1,"nonsense":1}}"#)),
            (ProtocolVersion::V03, format!(r#"{{"query":{{"{name}":1}}}}"#)),
        ] {
            let error = refused("list", version, &params);
            let path = if version == ProtocolVersion::V1 { name.to_owned() } else { format!("query.{name}") };
            assert_eq!(fields(&error), [path], "{params}");
        }
    }
    let error = refused("list", ProtocolVersion::V03, r#"{"cursor":"x"}"#);
    let written = crate::v03::error::jsonrpc(&crate::jsonrpc::Id::Null, &error);
    let data = r#""data":{"type":"INVALID_PAGINATION_MODE","field":"cursor","supported":["limit"],"unsupported":["cursor","page","size"]}"#;
    assert!(str::from_utf8(&written).unwrap().contains(data), "{written:?}");
    let error = refused("list", ProtocolVersion::V03, r#"{"limit":101}"#);
    let written = crate::v03::error::jsonrpc(&crate::jsonrpc::Id::Null, &error);
    let data = r#""data":{"type":"INVALID_FIELD","field":"limit","max":100}"#;
    assert!(str::from_utf8(&written).unwrap().contains(data), "{written:?}");
}

#[test]
fn in_0_3_lists_also_read_their_parameters_from_query() {
    let read = |name: &str, params: &str| {
        method(&full_name(name)).read(ProtocolVersion::V03, params, Activated::ALL).unwrap()
    };
    let flat = read("list", r#"{"limit":5,"search":"x","directory":"a"}"#);
    for params in [
        r#"{"query":{"limit":5,"search":"x","directory":"a"}}"#,
        r#"{"query":{"limit":"5","search":"x"},"directory":"a"}"#,
        r#"{"query":{"limit":5,"search":null,"directory":"a"},"limit":null,"search":"x"}"#,
    ] {
        assert_eq!(read("list", params), flat, "{params}");
    }
    assert_eq!(read("list", r#"{"query":null}"#), read("list", "{}"));
    assert_eq!(
        read("messages.list", r#"{"session_id":"ses_1","query":{"before":"a"}}"#),
        read("messages.list", r#"{"session_id":"ses_1","before":"a"}"#)
    );
    for (name, params, field) in [
        ("list", r#"{"query":7}"#, "query"),
        ("list", r#"{"query":{"limit":1},"limit":1}"#, "query.limit"),
        ("list", r#"{"query":{"limit":0}}"#, "query.limit"),
        ("list", r#"{"query":{"nonsense":0}}"#, "query.nonsense"),
        ("get", r#"{"session_id":"ses_1","query":{}}"#, "query"),
    ] {
        assert_eq!(fields(&refused(name, ProtocolVersion::V03, params)), [field], "{params}");
    }
}

#[test]
fn exactly_the_methods_that_only_get_are_reads() {
    for method in all().filter(|method| !method.upstream.is_empty()) {
        let gets = method.upstream.iter().all(|call| call.verb == crate::surface::Verb::Get);
        assert_eq!(method.effect == Effect::Read, gets, "{}", method.name);
    }
}
