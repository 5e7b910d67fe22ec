//! The agent that is served instead of OpenCode over HTTP.

use longshore_agent_acp::FileAccess;
use longshore_agent_acp::connection::Role;
use longshore_agent_acp::schema::{McpServer, NamedValue, RemoteKind};

use super::*;
use crate::config::agents::{AcpPlan, AgentLimits, holds_secret};

/// A program that exists on every machine.
const PATH: (&str, &str) = ("PATH", "/usr/bin:/bin");

fn agent(plan: &Plan) -> &AcpPlan {
    match &plan.agent {
        AgentPlan::Acp(agent) => agent,
        other => panic!("{other:?}"),
    }
}

fn of_flag(text: &str) -> Plan {
    Sources { flags: &[("agents", text)], variables: &[PATH], ..Sources::default() }.plan()
}

fn variable<'a>(agent: &'a AcpPlan, name: &str) -> Option<&'a OsStr> {
    agent.environment.get(OsStr::new(name)).map(std::ffi::OsString::as_os_str)
}

#[test]
fn a_preset_or_a_command_line_names_the_agent() {
    let cases: [(&str, &str, &str, &[&str]); 5] = [
        ("qwen", "qwen", "qwen", &["--acp"]),
        ("opencode-acp", "opencode-acp", "opencode", &["acp"]),
        // A command line that begins with the command of a preset counts as that preset.
        ("/opt/agents/qwen --acp --debug", "qwen", "/opt/agents/qwen", &["--acp", "--debug"]),
        ("sh -c 'exec \"my agent\"'", "sh", "sh", &["-c", "exec \"my agent\""]),
        ("/bin/sh", "sh", "/bin/sh", &[]),
    ];
    for (text, name, program, arguments) in cases {
        let plan = of_flag(text);
        let agent = agent(&plan);
        assert_eq!((agent.client_files, agent.client_terminals), (FileAccess::Off, false), "{text}");
        assert_eq!((agent.name.as_str(), agent.program.to_str().unwrap()), (name, program), "{text}");
        assert_eq!(agent.arguments, arguments, "{text}");
        assert!(plan.data_dir.to_str().unwrap().ends_with(&format!("-acp-{name}")), "{:?}", plan.data_dir);
    }
    assert_eq!(of_flag("qwen").card.title, "Qwen Code");
    assert_eq!(of_flag("qwen").card.description, "A coding agent (Qwen Code) that works in one directory.");
}

#[test]
fn an_agent_of_opencode_gives_the_hint_to_use_the_other_flag() {
    let problems =
        Sources { flags: &[("agents", "build")], variables: &[PATH], ..Sources::default() }.problems();
    assert_eq!(
        problems,
        [
            "--agent (agents): \"build\" is neither a preset (opencode-acp, qwen, claude, vibe, gemini, codex, goose) nor a \
          program that is found; for an agent of OpenCode's own, use --opencode-agent build"
        ]
    );
    let problems =
        Sources { flags: &[("agents", "no-such --acp")], variables: &[PATH], ..Sources::default() }
            .problems();
    assert!(problems[0].ends_with("nor a program that is found"), "{problems:?}");
    for (text, expected) in [("'qwen", "a single quote is not closed"), ("''", "names no program")] {
        let problems = Sources { flags: &[("agents", text)], ..Sources::default() }.problems();
        assert!(problems[0].contains(expected), "{problems:?}");
    }
}

#[test]
fn an_agent_gets_a_clean_environment_with_the_variables_of_its_preset() {
    let variables: &[_] = &[
        PATH,
        ("OPENAI_API_KEY", "key"),
        ("ANTHROPIC_API_KEY", "other"),
        ("A2A_BEARER_TOKEN", "secret"),
        ("OPENCODE_AUTH_PASSWORD", "secret"),
        ("TERM", "dumb"),
    ];
    let plan = Sources { flags: &[("agents", "qwen")], variables, ..Sources::default() }.plan();
    let names: Vec<&str> = agent(&plan).environment.keys().map(|name| name.to_str().unwrap()).collect();
    assert_eq!(names, ["HOME", "OPENAI_API_KEY", "PATH", "TERM"]);
    let plan = Sources { flags: &[("agents", "opencode-acp")], variables, ..Sources::default() }.plan();
    assert_eq!(variable(agent(&plan), "OPENCODE_AUTH_PASSWORD"), None);
    // Another agent does not get the credential.
    let plan = Sources { flags: &[("agents", "sh")], variables, ..Sources::default() }.plan();
    assert_eq!(variable(agent(&plan), "OPENAI_API_KEY"), None);
}

#[test]
fn the_file_describes_the_agent() {
    let file = r#"
[[agents]]
name = "mine"
kind = "acp"
command = ["sh", "-c", "a b"]
env = { TOKEN = "from the file" }
pass_env = ["TOKEN", "PASSED", "ABSENT"]
workspace = "."
auth_method = "login"
mode = "plan"
model = "m"
pin = ["model", "mode", "config"]
idle_stop = 1.5
client_files = "read-write"
client_terminals = true
start_timeout = 20
cancel_timeout = 5
open_sessions = 3
memory_limit = 512

[[agents.mcp_servers]]
name = "local"
command = "server 'two words'"
env = { KEY = "value" }

[[agents.mcp_servers]]
name = "remote"
type = "sse"
url = "https://example.com/mcp"
headers = { Authorization = "Bearer x" }
"#;
    let variables: &[_] = &[PATH, ("PASSED", "on"), ("TOKEN", "from the environment"), ("OTHER", "x")];
    let plan = Sources { variables, file, ..Sources::default() }.plan();
    let agent = agent(&plan);
    assert_eq!((agent.name.as_str(), agent.program.to_str().unwrap()), ("mine", "sh"));
    assert_eq!(agent.arguments, ["-c", "a b"]);
    assert_eq!(variable(agent, "TOKEN"), Some(OsStr::new("from the file")));
    assert_eq!(variable(agent, "PASSED"), Some(OsStr::new("on")));
    assert_eq!((variable(agent, "ABSENT"), variable(agent, "OTHER")), (None, None));
    let options = (agent.auth_method.as_deref(), agent.mode.as_deref(), agent.model.as_deref());
    assert_eq!(options, (Some("login"), Some("plan"), Some("m")));
    assert_eq!((agent.pinned.as_slice(), agent.pins_config), (&[Role::Model, Role::Mode][..], true));
    assert_eq!((agent.client_files, agent.client_terminals), (FileAccess::ReadWrite, true));
    let expected = AgentLimits {
        idle_stop: Some(Duration::from_millis(1500)),
        open_sessions: 3,
        memory_bytes: Some(512 * 1024 * 1024),
        start_timeout: Duration::from_secs(20),
        cancel_timeout: Duration::from_secs(5),
    };
    assert_eq!(agent.limits, expected);
    let named = |name: &str, value: &str| vec![NamedValue { name: name.to_owned(), value: value.to_owned() }];
    let expected = [
        McpServer::Stdio {
            name: "local".to_owned(),
            command: "server".to_owned(),
            args: vec!["two words".to_owned()],
            env: named("KEY", "value"),
        },
        McpServer::Remote {
            r#type: RemoteKind::Sse,
            name: "remote".to_owned(),
            url: "https://example.com/mcp".to_owned(),
            headers: named("Authorization", "Bearer x"),
        },
    ];
    assert_eq!(agent.mcp_servers, expected);
    assert!(!format!("{plan:?}").contains("Bearer x") && !format!("{plan:?}").contains("from the file"));
}

#[test]
fn a_pin_is_also_one_of_the_other_options_unless_the_file_says_otherwise() {
    let modes = &[Role::Mode][..];
    for (lines, pinned, pins_config) in [
        ("", &[][..], false),
        ("pin = []", &[], false),
        ("pin = [\"mode\"]", modes, true),
        ("pin = [\"mode\"]\npin_config = true", modes, true),
        ("pin = [\"mode\"]\npin_config = false", modes, false),
        ("pin = [\"config\"]", &[], true),
        ("pin_config = true", &[], true),
        ("pin_config = false", &[], false),
    ] {
        let file = format!("[[agents]]\nname = \"a\"\nkind = \"acp\"\ncommand = \"sh\"\n{lines}\n");
        let plan = Sources { variables: &[PATH], file: &file, ..Sources::default() }.plan();
        let agent = agent(&plan);
        assert_eq!((agent.pinned.as_slice(), agent.pins_config), (pinned, pins_config), "{lines}");
    }
}

#[test]
fn a_wrong_agent_in_the_file_is_refused_with_all_its_problems() {
    let entry = "[[agents]]\nname = \"a\"\nkind = \"acp\"\ncommand = \"sh\"\n";
    let cases: [(String, &[&str]); 10] = [
        (
            entry.repeat(2),
            &[
                "longshore.toml line 1 (agents): there are several entries; one gateway serves one agent, and more than one agent \
               comes later",
            ],
        ),
        (
            format!("{entry}pin = [\"mode\", \"modell\"]\n"),
            &["longshore.toml line 1 (agents[0].pin): must be a list of the words mode, model and config"],
        ),
        (
            format!("{entry}pin = [\"config\"]\npin_config = false\n"),
            &[
                "longshore.toml line 1 (agents[0].pin_config): must not be false if pin holds config; leave one of them out",
            ],
        ),
        ("agents = []\n".to_owned(), &["longshore.toml line 1 (agents): must have one entry"]),
        (
            "[agents]\nname = \"a\"\n".to_owned(),
            &[
                "longshore.toml line 1 (agents): a table is not allowed here; it takes a preset or a command line; in the \
               file, one [[agents]] table",
            ],
        ),
        (
            "[[agents]]\n".to_owned(),
            &[
                "longshore.toml line 1 (agents[0].name): is required",
                "longshore.toml line 1 (agents[0].kind): is required",
                "longshore.toml line 1 (agents[0].command): is required",
            ],
        ),
        (
            format!(
                "{entry}kinds = \"acp\"\nidle_stop = -1\nenv = [\"A\"]\nclient_files = \"write\"\nclient_terminals = \"on\"\n"
            ),
            &[
                "longshore.toml line 1 (agents[0].kinds): there is no such field; did you mean kind?",
                "longshore.toml line 1 (agents[0].env): must be a table of names and texts",
                "longshore.toml line 1 (agents[0].idle_stop): must be a number of seconds, at most 366 days (0: never)",
                "longshore.toml line 1 (agents[0].client_files): must be off, read or read-write",
                "longshore.toml line 1 (agents[0].client_terminals): must be true or false",
            ],
        ),
        (
            format!("{entry}[[agents.mcp_servers]]\nurl = \"https://a\"\ncommand = \"b\"\n"),
            &[
                "longshore.toml line 1 (agents[0].mcp_servers[0].name): is required",
                "longshore.toml line 1 (agents[0].mcp_servers[0].command): must not be given together with url",
            ],
        ),
        (
            format!("{entry}workspace = \".\"\n[opencode]\nworkspace_root = \".\"\n"),
            &[
                "longshore.toml line 7 (opencode.workspace_root): the entry in agents has a workspace too; leave one of the \
               two out",
            ],
        ),
        (
            format!("{entry}[opencode]\nbase_url = \"http://127.0.0.1:1\"\ndemo = true\n"),
            &[
                "longshore.toml line 6 (opencode.base_url): cannot be combined with [[agents]]: the gateway serves one agent; \
                 unset one of the two",
                "longshore.toml line 7 (opencode.demo): cannot be combined with [[agents]]: the gateway serves one agent; unset \
                 one of the two",
            ],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(file(&text), expected, "{text}");
    }
}

#[test]
fn settings_of_opencode_over_http_have_no_effect_on_another_agent() {
    let variables: &[_] = &[
        PATH,
        ("OPENCODE_AGENT", "build"),
        ("LONGSHORE_MODEL", "a/b"),
        ("LONGSHORE_TURN_MAX_STEPS", "5"),
        ("LONGSHORE_WRITTEN_FILES", "true"),
        // This variable has an effect on another agent, so it causes no warning.
        ("LONGSHORE_TURN_SILENCE", "60"),
    ];
    let checked = Sources { flags: &[("agents", "qwen")], variables, ..Sources::default() }.load().unwrap();
    assert_eq!(
        checked.warnings,
        [
            "LONGSHORE_MODEL (opencode.model) has no effect: it is for OpenCode over HTTP, and --agent is set",
            "OPENCODE_AGENT (opencode.agent) has no effect: it is for OpenCode over HTTP, and --agent is set",
            "LONGSHORE_TURN_MAX_STEPS (turns.max_steps) has no effect: it is for OpenCode over HTTP, and --agent is set",
            "LONGSHORE_WRITTEN_FILES (output.written_files) has no effect: it is for OpenCode over HTTP, and --agent is set",
        ]
    );
}

#[test]
fn a_file_with_variables_or_headers_of_an_agent_must_be_private() {
    let entry = |more: &str| format!(r#"[{{"name":"a","command":"b"{more}}}]"#);
    for (more, expected) in [
        ("", false),
        (r#","pass_env":["KEY"]"#, false),
        (r#","env":{}"#, false),
        (r#","env":{"KEY":"value"}"#, true),
        (r#","mcp_servers":[{"headers":{"Authorization":"x"}}]"#, true),
        (r#","mcp_servers":[{"url":"https://a"}]"#, false),
        (r#","mcp_servers":[{"command":["m","--token","x"]}]"#, true),
        (r#","mcp_servers":[{"command":"m --verbose"}]"#, false),
    ] {
        assert_eq!(holds_secret(&entry(more)), expected, "{more}");
    }
    for (command, expected) in [
        (r#""a --api-key sk-1""#, true),
        (r#""a --API_KEY='sk 1'""#, true),
        (r#"["env","OPENAI_API_KEY=sk-1","a"]"#, true),
        (r#"["a","--client-secret=x"]"#, true),
        (r#"["a","-password","x"]"#, true),
        (r#"["a","--token-file","x","--acp"]"#, true),
        (r#"["a","--apiKey","x"]"#, true),
        (r#"["a","--clientSecret","x"]"#, true),
        (r#"["a","--api-keys=x"]"#, true),
        (r#"["a","--tokenizer","gpt2"]"#, false),
        (r#"["a","--keymap=x"]"#, false),
        (r#"["a","--max-tokens","4096","--acp"]"#, false),
        (r#"["a","--ask-password","--acp"]"#, false),
        (r#"["a","--ask-password"]"#, false),
        (r#"["a","--api-key="]"#, false),
        (r#"["token","key"]"#, false),
        (r#""qwen --acp""#, false),
        (r#""a 'b""#, false),
    ] {
        let text = format!(r#"[{{"name":"a","command":{command}}}]"#);
        assert_eq!(holds_secret(&text), expected, "{command}");
    }
}

#[test]
fn the_homes_of_the_agent_are_protected_wherever_its_environment_puts_them() {
    let holder = tempfile::tempdir().unwrap();
    let root = holder.path().canonicalize().unwrap();
    let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
    let moved = path("moved");
    let cases: [(&str, &str, &str, &[&str]); 6] = [
        ("claude", "CLAUDE_CONFIG_DIR", &moved, &["moved/.credentials.json", "/home/ada/.claude.json"]),
        ("qwen", "QWEN_HOME", &moved, &["moved/oauth_creds.json", "/home/ada/.qwen/settings.json"]),
        ("qwen", "QWEN_RUNTIME_DIR", "~/run", &["/home/ada/run/tmp"]),
        ("vibe", "VIBE_HOME", "in-workspace", &["work/in-workspace/.env"]),
        (
            "opencode-acp",
            "XDG_CONFIG_HOME",
            &moved,
            &["moved/opencode/opencode.json", "/home/ada/.config/opencode/a"],
        ),
        ("opencode-acp", "OPENCODE_CONFIG", &moved, &["moved"]),
    ];
    std::fs::create_dir(root.join("work")).unwrap();
    for (preset, name, value, secrets) in cases {
        let variables: &[_] = &[PATH, (name, value)];
        let flags: &[_] = &[("agents", preset), ("opencode.workspace_root", &path("work"))];
        let protected = Sources { flags, variables, ..Sources::default() }.plan().protected_paths();
        for secret in secrets {
            assert!(protected.deny(&root.join(secret)), "{name}: {secret}");
        }
        assert!(!protected.deny(&root.join("work/README.md")), "{name}");
        // Without the variable, the same path does not belong to the agent.
        let plain = Sources { flags, variables: &[PATH], ..Sources::default() }.plan();
        assert!(!plain.protected_paths().deny(&root.join(secrets[0])), "{name}");
    }
    // A workspace below a home of the agent is not protected.
    let variables: &[_] = &[PATH, ("VIBE_HOME", root.to_str().unwrap())];
    let flags: &[_] = &[("agents", "vibe"), ("opencode.workspace_root", &path("work"))];
    let protected = Sources { flags, variables, ..Sources::default() }.plan().protected_paths();
    assert!(!protected.deny(&root.join("work/README.md")) && protected.deny(&root.join("config.toml")));
}
