//! Tests from the sources to the plan: priorities, refusals and their texts.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use longshore_agent_opencode::{Pin, WATCH_DIRECTORIES};
use longshore_client::{Binding, CardCache, Credential, Polling, ProtocolVersion};
use longshore_edge::{Capability, Exposure, Rights};
use longshore_engine::{AlwaysScope, SessionGuard};
use secrecy::ExposeSecret;

use super::credentials::Login;
use super::plan::{AgentPlan, ControlPlan, LogLevel, StorePlan};
use super::setting::{Kind, LONGEST};
use super::unsupported::NOT_SUPPORTED;
use super::*;

mod agents;
mod aliases;
mod limits;
mod listeners;
mod peers;
mod push;
mod traces;

/// The sources of one configuration.
#[derive(Default)]
struct Sources<'a> {
    flags: &'a [(&'static str, &'a str)],
    variables: &'a [(&'a str, &'a str)],
    file: &'a str,
}

impl Sources<'_> {
    fn load(&self) -> Result<Checked, Problems> {
        let directory = tempfile::tempdir().unwrap();
        let config = (!self.file.is_empty()).then_some(Path::new(DEFAULT_FILE));
        if let Some(config) = config {
            write(&directory.path().join(config), self.file);
        }
        let home = ("HOME", "/home/ada");
        let environment = self.variables.iter().copied().chain([home]).collect();
        let context = ProcessContext { directory: directory.path().canonicalize().unwrap(), environment };
        let flags = self.flags.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
        load(&flags, config, &context)
    }

    fn plan(&self) -> Plan {
        self.load().unwrap_or_else(|problems| panic!("{problems}")).plan
    }

    fn problems(&self) -> Vec<String> {
        match self.load() {
            Ok(checked) => panic!("accepted: {:?}", checked.plan),
            Err(problems) => problems.0.into_iter().map(|problem| problem.0).collect(),
        }
    }
}

/// Writes a file that only its owner can read.
fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

fn variables(variables: &[(&str, &str)]) -> Vec<String> {
    Sources { variables, ..Sources::default() }.problems()
}

fn file(file: &str) -> Vec<String> {
    Sources { file, ..Sources::default() }.problems()
}

#[test]
fn with_nothing_set_the_plan_is_the_documented_default() {
    let plan = Sources::default().plan();
    assert_eq!((plan.listen.host.as_str(), plan.listen.port), ("127.0.0.1", Some(8000)));
    assert_eq!((plan.listen.max_body_bytes, plan.listen.gzip_minimum), (10_485_760, 8192));
    assert_eq!((plan.listen.shutdown_grace, plan.lock_wait), (Duration::from_secs(10), Duration::ZERO));
    assert_eq!(plan.listen.threads, 0);
    assert!(plan.listen.public_url.is_none());
    assert!(plan.credentials.is_none());
    assert!(matches!(&plan.agent, AgentPlan::Managed { program } if program == Path::new("opencode")));
    assert_eq!(plan.stream_silence, Duration::from_secs(30));
    assert_eq!(plan.turns.control_timeout, Duration::from_mins(2));
    assert_eq!(plan.turns.timeout, Some(Duration::from_mins(15)));
    assert_eq!(plan.turns.wait_for_others, Some(Duration::from_mins(2)));
    assert_eq!(plan.turns.cancel_abort_timeout, Duration::from_secs(2));
    assert_eq!(plan.turns.idempotency_window, Duration::from_mins(10));
    let expected = ControlPlan {
        session_shell: false,
        workspace_mutations: false,
        session_share: false,
        session_delete: false,
        session_guard: SessionGuard::Owner,
        always_scope: AlwaysScope::Session,
        claim_ttl: Duration::from_secs(30),
        watch_directories: WATCH_DIRECTORIES,
    };
    assert_eq!(plan.control, expected);
    assert!(plan.prompt.pinned.is_empty());
    assert_eq!((plan.prompt.allowed_models, plan.prompt.allowed_agents), (None, None));
    let path = plan.data_dir.join("longshore.db");
    assert_eq!(plan.store, StorePlan::Sqlite { path, survives_power_loss: false });
    let kept = (plan.retention.fold_after, plan.retention.keep_tasks);
    assert_eq!(kept, (Some(Duration::from_hours(7 * 24)), Some(Duration::from_hours(90 * 24))));
    assert_eq!(plan.log.level, LogLevel::Info);
    assert_eq!((plan.log.payloads, plan.log.body_limit, plan.metrics), (false, 0, true));
    assert!(plan.listen.allowed_origins.is_empty() && plan.listen.allowed_hosts.is_empty());
    assert_eq!(plan.card.version, env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_control_settings_are_read() {
    let variables: &[_] = &[
        ("A2A_ENABLE_SESSION_SHELL", "true"),
        ("A2A_ENABLE_WORKSPACE_MUTATIONS", "1"),
        ("LONGSHORE_SESSION_SHARE", "on"),
        ("LONGSHORE_SESSION_DELETE", "yes"),
        ("A2A_PENDING_SESSION_CLAIM_TTL_SECONDS", "2.5"),
        ("LONGSHORE_SESSION_GUARD", "shared-reads"),
        ("LONGSHORE_ALWAYS_SCOPE", "opencode"),
        ("LONGSHORE_WATCH_DIRECTORIES", "0"),
    ];
    let expected = ControlPlan {
        session_shell: true,
        workspace_mutations: true,
        session_share: true,
        session_delete: true,
        session_guard: SessionGuard::SharedReads,
        always_scope: AlwaysScope::Agent,
        claim_ttl: Duration::from_millis(2500),
        watch_directories: 0,
    };
    assert_eq!(Sources { variables, ..Sources::default() }.plan().control, expected);
    for (word, scope) in [("session", AlwaysScope::Session), ("agent", AlwaysScope::Agent)] {
        let variables: &[_] = &[("LONGSHORE_ALWAYS_SCOPE", word)];
        assert_eq!(Sources { variables, ..Sources::default() }.plan().control.always_scope, scope);
    }
    for guard in SessionGuard::ALL {
        let variables: &[_] = &[("LONGSHORE_SESSION_GUARD", guard.as_str())];
        assert_eq!(Sources { variables, ..Sources::default() }.plan().control.session_guard, guard);
    }
    let file = "[control]\nclaim_ttl = 0\nwatch_directories = -1\nsession_guard = \"all\"\n";
    assert_eq!(Sources { file, ..Sources::default() }.problems().len(), 3);
}

#[test]
fn pins_and_allow_lists_are_read() {
    let variables: &[_] = &[("LONGSHORE_PIN", "system, agent"), ("LONGSHORE_ALLOWED_AGENTS", "")];
    let file = "[opencode]\nallowed_models = [\"p/*\", \"q/m\"]\n";
    let plan = Sources { variables, file, ..Sources::default() }.plan().prompt;
    assert_eq!(plan.pinned, [Pin::System, Pin::Agent]);
    assert_eq!(plan.allowed_models.unwrap(), ["p/*", "q/m"]);
    assert_eq!(plan.allowed_agents, None, "an empty variable counts as not set");
    let file = "[opencode]\nallowed_agents = []\n";
    let plan = Sources { file, ..Sources::default() }.plan().prompt;
    assert_eq!(plan.allowed_agents, Some(Vec::new()), "callers may name none");
    let file = "[opencode]\npin = [\"tools\"]\n";
    let problems = Sources { file, ..Sources::default() }.problems();
    assert!(problems[0].contains("must be model, agent, variant or system"), "{problems:?}");
}

#[test]
fn a_flag_overrides_a_variable_and_a_variable_overrides_the_file() {
    let flags: &[_] = &[("serve.port", "1")];
    let variables: &[_] = &[("A2A_PORT", "2"), ("A2A_HOST", "0.0.0.0")];
    let file = "[serve]\nport = 3\nhost = \"::1\"\n[card]\ntitle = \"From the file\"\n";
    let plan = Sources { flags, variables, file }.plan();
    assert_eq!(plan.listen.port, Some(1));
    assert_eq!(plan.listen.host, "0.0.0.0");
    assert_eq!(plan.card.title, "From the file");
}

#[test]
fn the_number_of_threads_can_come_from_the_file() {
    let plan = Sources { file: "[serve]\nthreads = 3\n", ..Sources::default() }.plan();
    assert_eq!(plan.listen.threads, 3);
}

#[test]
fn every_setting_is_read_and_every_default_is_allowed() {
    let (flags, environment, file) =
        (Flags::new(), [("HOME", "/home/ada")].into_iter().collect(), file::FileSettings::new());
    let mut reader = read::Reader::new(&flags, &environment, &file, Vec::new());
    let context =
        ProcessContext { directory: std::env::current_dir().unwrap(), environment: environment.clone() };
    assert!(plan::build(&mut reader, &context).is_some());
    let rows: BTreeSet<&str> = table::ALL.iter().map(|setting| setting.key).collect();
    assert_eq!(rows.len(), table::ALL.len(), "two settings have the same key");
    assert_eq!(*reader.read_keys(), rows);
}

#[test]
fn no_name_is_used_twice_and_none_is_both_supported_and_unsupported() {
    let names: Vec<&str> =
        table::ALL.iter().filter_map(|setting| setting.env).chain(NOT_SUPPORTED.iter().copied()).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    let flags: Vec<&str> = table::ALL.iter().filter_map(|setting| setting.flag).collect();
    assert_eq!(flags.iter().collect::<BTreeSet<_>>().len(), flags.len());
}

#[test]
fn a_bad_value_is_refused_with_its_source_its_key_and_the_allowed_values() {
    let cases: [(&[(&str, &str)], &str); 18] = [
        (
            &[("A2A_HTTP_GZIP_MINIMUM_SIZE", "-1")],
            "A2A_HTTP_GZIP_MINIMUM_SIZE (serve.gzip_minimum_bytes): \"-1\" is not allowed; it takes a whole number of bytes (0: always)",
        ),
        (
            &[("LONGSHORE_MISSING_VERSION", "1.0")],
            "LONGSHORE_MISSING_VERSION (protocol.missing_version): \"1.0\" is not allowed; it takes one of by-request, 0.3",
        ),
        (
            &[("A2A_SANDBOX_MODE", "readonly")],
            "A2A_SANDBOX_MODE (environment.sandbox_mode): \"readonly\" is not allowed; it takes one of unknown, read-only, workspace-write, danger-full-access, custom",
        ),
        (
            &[("A2A_SANDBOX_WRITABLE_ROOTS", "out"), ("A2A_WRITE_ACCESS_SCOPE", "none")],
            "A2A_SANDBOX_WRITABLE_ROOTS (environment.writable_roots): cannot be declared when environment.write_scope is none",
        ),
        (
            &[("A2A_SANDBOX_WRITABLE_ROOTS", "out,/srv"), ("A2A_SANDBOX_FILESYSTEM_SCOPE", "workspace_only")],
            "A2A_SANDBOX_WRITABLE_ROOTS (environment.writable_roots): \"/srv\" is not in the workspace, and environment.filesystem_scope is workspace_only",
        ),
        (
            &[("A2A_PORT", "80000")],
            "A2A_PORT (serve.port): \"80000\" is not allowed; it takes a whole number from 0 to 65535 (0: any free port), or off",
        ),
        (
            &[("A2A_HOST", "127.0.0.1:8000")],
            "A2A_HOST (serve.host): \"127.0.0.1:8000\" is not allowed; it takes a host name or an IP address, without a port",
        ),
        (
            &[("OPENCODE_BASE_URL", "localhost:4096")],
            "OPENCODE_BASE_URL (opencode.base_url): \"localhost:4096\" is not allowed; it takes an http or https URL without a user name or password, a query or a fragment",
        ),
        (
            &[("OPENCODE_BASE_URL", "http://127.0.0.1:4096/?directory=x")],
            "OPENCODE_BASE_URL (opencode.base_url): the value is not allowed; it takes an http or https URL without a user name or password, a query or a fragment",
        ),
        (
            &[("A2A_PUBLIC_URL", "https://agent.example.com/#top")],
            "A2A_PUBLIC_URL (serve.public_url): the value is not allowed; it takes an http or https URL without a user name or password, a query or a fragment",
        ),
        (
            &[("OPENCODE_TIMEOUT", "0")],
            "OPENCODE_TIMEOUT (turns.control_timeout): \"0\" is not allowed; it takes a number of seconds above 0, at most 31622400 (366 days)",
        ),
        (
            &[("OPENCODE_TIMEOUT_STREAM", "1e15")],
            "OPENCODE_TIMEOUT_STREAM (turns.timeout): \"1e15\" is not allowed; it takes a number of seconds, at most 31622400 (366 days; 0: no limit)",
        ),
        (
            &[("LONGSHORE_IDEMPOTENCY_WINDOW", "31622401")],
            "LONGSHORE_IDEMPOTENCY_WINDOW (turns.idempotency_window): \"31622401\" is not allowed; it takes a number of seconds, 0 or more, at most 31622400 (366 days)",
        ),
        (
            &[("A2A_CANCEL_ABORT_TIMEOUT_SECONDS", "-1")],
            "A2A_CANCEL_ABORT_TIMEOUT_SECONDS (turns.cancel_abort_timeout): \"-1\" is not allowed; it takes a number of seconds, 0 or more, at most 31622400 (366 days)",
        ),
        (
            &[("A2A_LOG_LEVEL", "loud")],
            "A2A_LOG_LEVEL (log.level): \"loud\" is not allowed; it takes one of critical, error, warning, info, debug, trace",
        ),
        (
            &[("A2A_TASK_STORE_DATABASE_URL", "postgresql://db/tasks")],
            "A2A_TASK_STORE_DATABASE_URL (data.database): \"postgresql://db/tasks\" is not allowed; it takes a path, or an SQLite URL like sqlite:///relative.db or sqlite:////absolute.db",
        ),
        (
            &[("LONGSHORE_DEMO", "perhaps")],
            "LONGSHORE_DEMO (opencode.demo): \"perhaps\" is not allowed; it takes true or false",
        ),
        (
            &[("LONGSHORE_MODEL", "gpt")],
            "LONGSHORE_MODEL (opencode.model): \"gpt\" is not allowed; it takes a model as provider/model",
        ),
    ];
    for (given, expected) in cases {
        assert_eq!(variables(given), [expected]);
    }
}

#[test]
fn all_problems_are_shown_at_once() {
    let problems = Sources {
        flags: &[("serve.port", "none")],
        variables: &[("A2A_LOG_LEVEL", "loud")],
        file: "[serve]\nprot = 1\n",
    }
    .problems();
    assert_eq!(problems.len(), 3, "{problems:?}");
    assert!(problems.iter().any(|problem| problem.starts_with("--port (serve.port): \"none\"")));
}

#[test]
fn the_file_is_refused_with_the_line_and_the_key() {
    let cases = [
        (
            "[serve]\n\nprot = 1\n",
            "longshore.toml line 3 (serve.prot): there is no such setting; did you mean serve.port?",
        ),
        ("[server]\nport = 1\n", "longshore.toml line 1 (server): there is no such setting"),
        ("colour = true\n", "longshore.toml line 1 (colour): there is no such setting"),
        (
            "[serve]\nwrite_timeout = \"30\"\n",
            "longshore.toml line 2 (serve.write_timeout): a string is not allowed here; it takes a number of seconds above 0, at most 31622400 (366 days)",
        ),
        (
            "[serve]\nport = -1\n",
            "longshore.toml line 2 (serve.port): \"-1\" is not allowed; it takes a whole number from 0 to 65535 (0: any free port), or off",
        ),
        ("serve = 1\n", "longshore.toml line 1 (serve): there is no such setting"),
        (
            "[[auth.credentials]]\nscheme = \"bearer\"\ntoken = \"t\"\n",
            "longshore.toml line 1 (auth.credentials[0].principal): is required",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(file(text), [expected], "{text}");
    }
}

/// Directories for a test: a home, and a workspace that is also the current directory.
struct Home(tempfile::TempDir);

impl Home {
    fn new(files: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("work")).unwrap();
        for (name, text) in files {
            write(&home.path().join(name), text);
        }
        Self(home)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().canonicalize().unwrap().join(name).to_str().unwrap().to_owned()
    }

    fn load(
        &self,
        flags: &[(&'static str, &str)],
        config: Option<&str>,
        more: &[(&str, &str)],
    ) -> Result<Checked, Problems> {
        let home = self.path("");
        let environment = more.iter().copied().chain([("HOME", home.as_str())]).collect();
        let context = ProcessContext { directory: self.path("work").into(), environment };
        let flags = flags.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
        load(&flags, config.map(Path::new), &context)
    }
}

#[test]
fn the_configuration_comes_from_the_named_file_or_the_users_own() {
    let title = |name: &str| format!("[card]\ntitle = \"{name}\"\n");
    let files = [
        "work/longshore.toml",
        "work/my.toml",
        ".config/longshore/longshore.toml",
        "xdg/longshore/longshore.toml",
    ];
    let texts = files.map(title);
    let home = Home::new(&std::array::from_fn::<_, 4, _>(|at| (files[at], texts[at].as_str())));
    let xdg = home.path("xdg");
    let xdg: &[_] = &[("XDG_CONFIG_HOME", xdg.as_str())];
    let absolute = home.path("work/my.toml");
    for (config, variables, expected) in [
        (None, &[][..], files[2]),
        (None, &[("XDG_CONFIG_HOME", "relative")], files[2]),
        (None, xdg, files[3]),
        (Some("my.toml"), xdg, files[1]),
        (Some(absolute.as_str()), &[], files[1]),
        (Some("longshore.toml"), &[], files[0]),
    ] {
        let Checked { plan, warnings } = home.load(&[], config, variables).unwrap();
        assert_eq!(plan.card.title, expected);
        assert_eq!(plan.config_file.unwrap().canonicalize().unwrap(), Path::new(&home.path(expected)));
        // A file in the workspace is not read on its own, and a warning says so.
        let is_said = warnings.iter().any(|warning| warning.contains("work/longshore.toml is not read"));
        assert_eq!(is_said, config.is_none(), "{warnings:?}");
    }
    let lonely = Home::new(&[("work/longshore.toml", "[auth]\nbearer_token = \"t\"\n")]);
    let Checked { plan, warnings } = lonely.load(&[], None, &[]).unwrap();
    assert!(plan.credentials.is_none() && plan.config_file.is_none());
    let file = lonely.path("work/longshore.toml");
    let expected = format!(
        "{file} is not read: a file in the workspace could come from anybody; to use it, add --config {file}, or move it to {}",
        lonely.path(".config/longshore/longshore.toml")
    );
    assert_eq!(warnings, [expected]);
}

#[test]
fn a_file_that_others_can_read_or_change_is_refused_also_behind_a_link() {
    let home = Home::new(&[("mount/..data/longshore.toml", "[auth]\nbearer_token = \"t\"\n")]);
    std::os::unix::fs::symlink("..data/longshore.toml", home.path("mount/longshore.toml")).unwrap();
    let config = home.path("mount/longshore.toml");
    for (mode, expected) in [
        (0o600, None),
        (
            0o644,
            Some(
                "holds a secret (auth.bearer_token) and other users can read it (mode 644); run `chmod 600` on it",
            ),
        ),
        (0o666, Some("other users can change it (mode 666); run `chmod go-w` on it")),
    ] {
        let file = home.path("mount/..data/longshore.toml");
        std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        let loaded = home.load(&[], Some(&config), &[]).map(drop).map_err(|problems| problems.0[0].0.clone());
        assert_eq!(loaded.err(), expected.map(|expected| format!("{config}: {expected}")));
    }
}

#[test]
fn data_in_the_workspace_needs_a_switch() {
    type Case<'a> = (&'a [(&'static str, &'a str)], bool, Option<String>);

    let home = Home::new(&[("work/old/workspace", "x"), ("data/x", "x")]);
    std::os::unix::fs::symlink(home.path("work"), home.path("link")).unwrap();
    let (link, outside) = (home.path("link/data"), home.path("data"));
    let inside = home.path("work/data");
    let refused = |path: &str, setting: &str| {
        format!(
            "--{setting}): {path} is in the workspace, where the agent and its snapshots reach it; choose a place outside and \
             move existing data there, or allow this one with --data-dir-in-workspace"
        )
    };
    let directory = "data-dir (data.directory";
    let cases: [Case<'_>; 7] = [
        (&[("data.directory", &outside)], false, None),
        (&[("data.directory", "../data")], false, None),
        (&[("data.directory", "data")], true, Some(refused(&inside, directory))),
        (&[("data.directory", &link)], true, Some(refused(&link, directory))),
        // The same for an existing directory. Only the default directory of an earlier version is used where it is.
        (&[("data.directory", "old")], true, Some(refused(&home.path("work/old"), directory))),
        (&[("data.directory", "data"), ("data.directory_in_workspace", "true")], true, None),
        (
            &[
                ("data.directory", "data"),
                ("data.database", "data/x.db"),
                ("data.directory_in_workspace", "true"),
            ],
            true,
            None,
        ),
    ];
    for (flags, is_inside, expected) in cases {
        let Checked { plan, warnings } = home.load(flags, None, &[]).unwrap();
        assert_eq!(plan.agent_reaches_data_dir, is_inside, "{flags:?}");
        assert_eq!(plan.misplaced.map(|problem| problem.0), expected, "{flags:?}");
        assert_eq!(warnings, Vec::<String>::new());
    }
    // Such a deployment must start, because opencode-a2a documents a database in the workspace.
    let flags = &[("data.directory", outside.as_str()), ("data.database", "x.db")];
    let Checked { plan, warnings } = home.load(flags, None, &[]).unwrap();
    assert!(plan.misplaced.is_none());
    assert!(warnings[0].contains("work/x.db is in the workspace"), "{warnings:?}");
}

/// The database may be in the workspace, outside of the data directory.
#[test]
fn the_gateway_s_own_files_are_protected_and_no_others() {
    let home = Home::new(&[("work/my.toml", "[serve]\n"), ("data/inner/x", "x")]);
    let flags = [("data.directory", "../data"), ("data.database", "store/x.db")];
    let plan = home.load(&flags, Some("my.toml"), &[]).unwrap().plan;
    let database = ["", "-wal", "-shm", "-journal", "-reserve", "-reserve-new"];
    let database = database.map(|end| format!("work/store/x.db{end}"));
    let protected = ["work/my.toml", "data/token", ".local/share/opencode/auth.json"];
    for path in database.iter().map(String::as_str).chain(protected) {
        assert!(plan.protected_paths().deny(home.path(path).as_ref()), "{path} is open");
    }
    let worktree = "data/opencode-home/data/opencode/worktree/one";
    for path in ["work", "work/store", "work/store/x.db.md", ".local/share/opencode", worktree] {
        assert!(!plan.protected_paths().deny(home.path(path).as_ref()), "{path} is denied");
    }
    // A workspace below the data directory.
    let flags = [("data.directory", "../data"), ("opencode.workspace_root", "../data/inner")];
    let protected = home.load(&flags, None, &[]).unwrap().plan.protected_paths();
    for (path, is_protected) in [("data/inner/x", false), ("data/inner", false), ("data/token", true)] {
        assert_eq!(protected.deny(home.path(path).as_ref()), is_protected, "{path}");
    }
}

#[test]
fn data_in_an_allowed_root_needs_the_same_switch() {
    let home = Home::new(&[("roots/a/x", "x"), ("roots/b/x", "x")]);
    let roots = format!("{}:{}", home.path("roots/a"), home.path("roots/b"));
    let (inside, outside) = (home.path("roots/b/data"), home.path("data"));
    let refused = format!(
        "--data-dir (data.directory): {inside} is in an allowed root (opencode.allowed_roots), where the agent and its \
         snapshots reach it; choose a place outside and move existing data there, or allow this one with --data-dir-in-workspace"
    );
    for (data, switch, is_reached, expected) in [
        (&outside, "false", false, None),
        (&inside, "false", true, Some(refused)),
        (&inside, "true", true, None),
    ] {
        let flags: &[_] = &[
            ("opencode.allowed_roots", roots.as_str()),
            ("data.directory", data),
            ("data.directory_in_workspace", switch),
        ];
        let Checked { plan, warnings } = home.load(flags, None, &[]).unwrap();
        assert_eq!(plan.agent_reaches_data_dir, is_reached, "{data} {switch}");
        assert_eq!(plan.misplaced.map(|problem| problem.0), expected, "{data} {switch}");
        assert_eq!(warnings, Vec::<String>::new());
    }
    let database = home.path("roots/a/x.db");
    let flags: &[_] = &[
        ("opencode.allowed_roots", roots.as_str()),
        ("data.directory", outside.as_str()),
        ("data.database", database.as_str()),
    ];
    let warnings = home.load(flags, None, &[]).unwrap().warnings;
    assert!(warnings.iter().any(|it| it.contains("roots/a/x.db is in an allowed root")), "{warnings:?}");
}

#[test]
fn the_default_data_directory_of_an_earlier_version_is_used_even_in_the_workspace() {
    let home = Home::new(&[]);
    let workspace = home.path("");
    let flags: &[_] = &[("opencode.workspace_root", workspace.as_str())];
    let new = home.load(flags, None, &[]).unwrap().plan;
    assert!(new.misplaced.unwrap().0.starts_with("default (data.directory): "));
    write(&new.data_dir.join("workspace"), &workspace);
    let Checked { plan, warnings } = home.load(flags, None, &[]).unwrap();
    assert!(plan.misplaced.is_none() && plan.agent_reaches_data_dir);
    let [warning] = &warnings[..] else { panic!("one warning is expected: {warnings:?}") };
    assert!(
        warning.contains("where an earlier version put it") && warning.contains("--data-dir"),
        "{warning}"
    );
}

#[test]
fn a_named_file_must_exist() {
    let context = ProcessContext {
        directory: std::env::current_dir().unwrap(),
        environment: [("HOME", "/home/ada")].into_iter().collect(),
    };
    let problems = load(&Flags::new(), Some(Path::new("no-such.toml")), &context).unwrap_err();
    assert!(problems.0[0].0.starts_with("no-such.toml: there is no such file ("), "{problems}");
}

#[test]
fn variables_without_effect_cause_a_warning() {
    let given = &[
        ("A2A_PROT", "1"),
        ("A2A_PROTOCOL_VERSION", "9"),
        ("OPENCODE_DISABLE_SHARE", "1"),
        ("LONGSHORE_ZZZ_TOP_SECRET", "1"),
        ("LONGSHORE_MANAGED", "as a tool of a managed OpenCode has it"),
        ("a2a_title", "In small letters"),
    ];
    let checked = Sources { variables: given, ..Sources::default() }.load().unwrap();
    assert_eq!(checked.plan.card.title, "In small letters");
    assert_eq!(
        checked.warnings,
        [
            "A2A_PROT is not known and has no effect; did you mean A2A_PORT?",
            "A2A_PROTOCOL_VERSION is not supported by this version and has no effect",
            "LONGSHORE_ZZZ_TOP_SECRET is not known and has no effect",
        ]
    );
}

#[test]
fn the_client_settings_of_the_python_peer_work() {
    let given = &[
        ("A2A_CLIENT_TIMEOUT_SECONDS", "7"),
        ("A2A_CLIENT_CARD_FETCH_TIMEOUT_SECONDS", "1.5"),
        ("A2A_CLIENT_USE_CLIENT_PREFERENCE", "true"),
        ("A2A_CLIENT_SUPPORTED_TRANSPORTS", "http_json, json-rpc"),
        ("A2A_CLIENT_BASIC_AUTH", "YWRhOnB3"),
        ("A2A_CLIENT_PROTOCOL_VERSION", "0.3"),
        ("A2A_CLIENT_POLLING_FALLBACK_ENABLED", "true"),
        ("A2A_CLIENT_POLLING_FALLBACK_INITIAL_INTERVAL_SECONDS", "1"),
        ("A2A_CLIENT_POLLING_FALLBACK_MAX_INTERVAL_SECONDS", "4"),
        ("A2A_CLIENT_POLLING_FALLBACK_BACKOFF_MULTIPLIER", "1.5"),
        ("A2A_CLIENT_POLLING_FALLBACK_TIMEOUT_SECONDS", "60"),
        ("A2A_CLIENT_CACHE_TTL_SECONDS", "0"),
        ("A2A_CLIENT_CACHE_MAXSIZE", "9"),
    ];
    let client = Sources { variables: given, ..Sources::default() }.plan().client;
    let seconds = Duration::from_secs_f64;
    assert_eq!((client.timeout, client.card_timeout), (seconds(7.0), seconds(1.5)));
    assert_eq!((client.prefers_own_order, client.bindings), (true, vec![Binding::Rest, Binding::JsonRpc]));
    let Some(Credential::Basic { username, .. }) = client.credential else { panic!("no basic credential") };
    assert_eq!((username.as_str(), client.version), ("ada", Some(ProtocolVersion::V03)));
    let polling =
        Polling { initial: seconds(1.0), longest: seconds(4.0), factor: 1.5, timeout: Some(seconds(60.0)) };
    assert_eq!(client.polling, Some(polling));
    assert_eq!(client.cache, CardCache { capacity: 9, lifetime: None });

    let unset = Sources::default().plan().client;
    assert_eq!((unset.polling, unset.version, unset.cache), (None, None, CardCache::default()));
    for (name, text, reason) in [
        ("A2A_CLIENT_POLLING_FALLBACK_MAX_INTERVAL_SECONDS", "0.1", "must not be less than"),
        ("A2A_CLIENT_POLLING_FALLBACK_BACKOFF_MULTIPLIER", "0.5", "a number, 1 or more"),
        ("A2A_CLIENT_SUPPORTED_TRANSPORTS", "carrier-pigeon", "must name"),
        ("A2A_CLIENT_BASIC_AUTH", "no colon", "user:password"),
    ] {
        let problems = Sources { variables: &[(name, text)], ..Sources::default() }.load().unwrap_err();
        assert!(problems.to_string().contains(reason), "{name}: {problems}");
    }
}

#[test]
fn settings_without_effect_beside_another_cause_a_warning() {
    let cases: [(&[(&str, &str)], &str); 4] = [
        (&[("OPENCODE_AUTH_PASSWORD", "p")], "OPENCODE_AUTH_PASSWORD (opencode.auth_password) has no effect"),
        (
            &[("OPENCODE_BASE_URL", "http://127.0.0.1:4096"), ("LONGSHORE_OPENCODE", "opencode")],
            "LONGSHORE_OPENCODE (opencode.program) has no effect",
        ),
        (
            &[("A2A_TASK_STORE_BACKEND", "memory"), ("A2A_TASK_STORE_DATABASE_URL", "sqlite:///x.db")],
            "A2A_TASK_STORE_DATABASE_URL (data.database) has no effect",
        ),
        (
            &[("A2A_TASK_STORE_BACKEND", "memory"), ("LONGSHORE_DURABILITY", "power")],
            "LONGSHORE_DURABILITY (data.durability) has no effect",
        ),
    ];
    for (variables, expected) in cases {
        let warnings = Sources { variables, ..Sources::default() }.load().unwrap().warnings;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with(expected), "{warnings:?}");
    }
}

#[test]
fn no_limit_and_no_time_are_different_things() {
    let off = |text| {
        Sources { variables: &[("OPENCODE_TIMEOUT_STREAM", text)], ..Sources::default() }.plan().turns.timeout
    };
    assert_eq!((off("0"), off(""), off("1.5")), (None, None, Some(Duration::from_millis(1500))));
    let none = Sources { variables: &[("A2A_CANCEL_ABORT_TIMEOUT_SECONDS", "0")], ..Sources::default() };
    assert_eq!(none.plan().turns.cancel_abort_timeout, Duration::ZERO);
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let given = &[("A2A_PORT", ""), ("A2A_BEARER_TOKEN", " "), ("OPENCODE_BASE_URL", "")];
    let plan = Sources { variables: given, ..Sources::default() }.plan();
    assert_eq!(plan.listen.port, Some(8000));
    assert!(plan.credentials.is_none());
    assert!(matches!(plan.agent, AgentPlan::Managed { .. }));
    // This is the only setting for which an empty value has a meaning.
    let times = |sources: Sources<'_>| {
        let plan = sources.plan();
        format!("{:?} {:?} {:?}", plan.limits, plan.turns, plan.retention)
    };
    let expected = times(Sources::default());
    let of_seconds = table::ALL.iter().filter(|setting| setting.kind == Kind::SecondsOrOff);
    for setting in of_seconds.filter(|setting| setting.key != table::TURN_TIMEOUT.key) {
        let empty = Sources { variables: &[(setting.env.unwrap(), "")], ..Sources::default() };
        assert_eq!(times(empty), expected, "{}", setting.key);
    }
}

#[test]
fn the_store_settings_of_the_python_peer_work() {
    let given = &[
        ("A2A_TASK_STORE_BACKEND", "database"),
        ("A2A_TASK_STORE_DATABASE_URL", "sqlite+aiosqlite:////d/x.db"),
    ];
    let plan = Sources { variables: given, ..Sources::default() }.plan();
    assert_eq!(plan.store, StorePlan::Sqlite { path: "/d/x.db".into(), survives_power_loss: false });
}

#[test]
fn retention_is_read() {
    for (keep, expected) in [("86400", Some(Duration::from_hours(24))), ("0", None)] {
        let given = &[("LONGSHORE_FOLD_AFTER", "0"), ("LONGSHORE_KEEP_TASKS", keep)];
        let plan = Sources { variables: given, ..Sources::default() }.plan();
        assert_eq!((plan.retention.fold_after, plan.retention.keep_tasks), (None, expected));
    }
}

#[test]
fn the_demo_has_its_own_data_directory_and_cannot_attach_to_an_opencode() {
    let demo = Sources { flags: &[("opencode.demo", "true")], ..Sources::default() }.plan();
    assert!(matches!(demo.agent, AgentPlan::Demo { .. }));
    assert!(demo.data_dir.display().to_string().ends_with("-demo"));
    let both = Sources {
        flags: &[("opencode.demo", "true")],
        variables: &[("OPENCODE_BASE_URL", "http://127.0.0.1:4096")],
        ..Sources::default()
    };
    let problems = both.problems();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("--demo (opencode.demo): cannot be combined with opencode.base_url"));
}

#[test]
fn a_workspace_must_be_a_directory() {
    let problems = variables(&[("OPENCODE_WORKSPACE_ROOT", "nowhere")]);
    let start = "OPENCODE_WORKSPACE_ROOT (opencode.workspace_root): there is no such directory (/";
    assert!(problems[0].starts_with(start), "{problems:?}");
    assert!(problems[0].ends_with("/nowhere); correct the path, or create the directory"), "{problems:?}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let (file, below) = (file.path().to_str().unwrap(), file.path().join("below"));
    let problems = variables(&[("OPENCODE_WORKSPACE_ROOT", file)]);
    assert!(problems[0].contains(&format!(": this is a file, not a directory ({file});")), "{problems:?}");
    let problems = variables(&[("OPENCODE_WORKSPACE_ROOT", below.to_str().unwrap())]);
    assert!(problems[0].contains(": this directory cannot be opened (/"), "{problems:?}");
}

#[test]
fn a_workspace_whose_path_opencode_cannot_handle_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let check = |name: &OsStr, expected: Option<&str>| {
        let workspace = parent.path().join(name);
        std::fs::create_dir_all(&workspace).unwrap();
        let environment = [("HOME", "/home/ada")].into_iter().collect();
        let loaded = load(&Flags::new(), None, &ProcessContext { directory: workspace, environment });
        match (loaded, expected) {
            (Ok(checked), None) => {
                assert_eq!(checked.plan.workspace.file_name(), Some(name));
            }
            (Err(problems), Some(expected)) => {
                assert!(problems.0[0].0.starts_with("default (opencode.workspace_root): "), "{problems}");
                assert!(problems.0[0].0.contains(expected), "{problems}");
            }
            (loaded, _) => panic!("{}: {loaded:?}", name.display()),
        }
    };
    check(OsStr::new("a b ü %zz 100%"), None);
    check(OsStr::new("a%41"), Some("%41 has a percent sign before two hexadecimal digits"));
    check(OsStr::new("%2f/below"), Some("/below has a percent sign before two hexadecimal digits"));
    check(OsStr::from_bytes(b"\xff"), Some("is not UTF-8"));
}

#[test]
fn the_longest_durations_can_be_added_to_now() {
    let longest = LONGEST.as_secs().to_string();
    let variables = [table::TIMEOUT, table::TURN_TIMEOUT, table::CANCEL_TIMEOUT, table::IDEMPOTENCY]
        .map(|setting| (setting.env.expect("a time can be set in the environment"), longest.as_str()));
    let turns = Sources { variables: &variables, ..Sources::default() }.plan().turns;
    for time in
        [turns.control_timeout, turns.timeout.unwrap(), turns.cancel_abort_timeout, turns.idempotency_window]
    {
        assert_eq!(time, LONGEST);
        assert!(std::time::Instant::now().checked_add(time).is_some());
    }
}

#[test]
fn a_link_for_people_may_have_a_query_and_a_fragment() {
    let link = "https://docs.example.com/agent?lang=en#use";
    let plan = Sources { variables: &[("A2A_DOCUMENTATION_URL", link)], ..Sources::default() }.plan();
    assert_eq!(plan.card.documentation_url.unwrap().as_str(), link);
}

/// The scheme, principal and secret of each credential.
fn described(plan: &Plan) -> Vec<(&'static str, &str, &str)> {
    plan.credentials
        .iter()
        .flatten()
        .map(|credential| match &credential.login {
            Login::Bearer { token, principal } => ("bearer", principal.as_str(), token.expose_secret()),
            Login::Basic { username, password } => ("basic", username.as_str(), password.expose_secret()),
            Login::ApiKey { key, principal } => ("api_key", principal.as_str(), key.expose_secret()),
            Login::Certificate { certificate, principal } => {
                ("mtls", principal.as_str(), certificate.parts().1)
            }
        })
        .collect()
}

#[test]
fn credentials_come_from_the_token_and_the_list() {
    let list = r#"[
        {"scheme": "bearer", "token": " t1 ", "principal": "ci"},
        {"scheme": "basic", "username": "ada", "password": "p:w", "enabled": true},
        {"scheme": "bearer", "token": "t2", "principal": "old", "enabled": false},
        {"scheme": "api_key", "key": "k1", "principal": "bot", "token": null}
    ]"#;
    let given = &[("A2A_BEARER_TOKEN", "t0"), ("A2A_STATIC_AUTH_CREDENTIALS", list)];
    let plan = Sources { variables: given, ..Sources::default() }.plan();
    assert_eq!(
        described(&plan),
        [
            ("bearer", "default", "t0"),
            ("bearer", "ci", "t1"),
            ("basic", "ada", "p:w"),
            ("api_key", "bot", "k1")
        ]
    );
    let file = "[[auth.credentials]]\nscheme = \"api_key\"\nkey = \"k\"\nprincipal = \"bot\"\n";
    assert_eq!(described(&Sources { file, ..Sources::default() }.plan()), [("api_key", "bot", "k")]);
}

#[test]
fn a_credential_has_its_own_rights_or_those_of_its_scheme() {
    use Capability::{Operator, SessionClaim, SessionShell, WorkspaceMutation};

    let rights = |capabilities: &[Capability], exposure: Option<(bool, bool)>, id: Option<&str>| Rights {
        capabilities: capabilities.iter().copied().collect(),
        exposure: exposure.map(|(raw_thinking, tool_trace)| Exposure { raw_thinking, tool_trace }),
        credential_id: id.map(str::to_owned),
    };
    let cases = [
        (r#""scheme": "bearer", "token": "t", "principal": "p""#, rights(&[], None, None)),
        (r#""scheme": "api_key", "key": "k", "principal": "p""#, rights(&[], None, None)),
        (
            r#""scheme": "basic", "username": "u", "password": "p""#,
            rights(&[SessionShell, WorkspaceMutation], None, None),
        ),
        (
            r#""scheme": "basic", "username": "u", "password": "p", "capabilities": []"#,
            rights(&[], None, None),
        ),
        (
            r#""scheme": "basic", "username": "u", "password": "p", "capabilities": ["session_claim"]"#,
            rights(&[SessionClaim], None, None),
        ),
        (
            r#""scheme": "bearer", "token": "t", "principal": "p", "credential_id": " ci-1 ",
               "capabilities": ["operator", "operator"], "thinking_exposure": ["raw_thinking"]"#,
            rights(&[Operator], Some((true, false)), Some("ci-1")),
        ),
        (
            r#""scheme": "bearer", "token": "t", "principal": "p", "thinking_exposure": "none""#,
            rights(&[], Some((false, false)), None),
        ),
        (
            r#""scheme": "bearer", "token": "t", "principal": "p", "thinking_exposure": ["Raw-Thinking", "tool_trace"]"#,
            rights(&[], Some((true, true)), None),
        ),
        (
            r#""scheme": "bearer", "token": "t", "principal": "p", "thinking_exposure": ["all"]"#,
            rights(&[], Some((true, true)), None),
        ),
    ];
    for (fields, expected) in cases {
        let list = format!("[{{{fields}}}]");
        let plan =
            Sources { variables: &[("A2A_STATIC_AUTH_CREDENTIALS", &list)], ..Sources::default() }.plan();
        assert_eq!(plan.credentials.unwrap()[0].rights, expected, "{fields}");
    }
    let file = "[[auth.credentials]]\nscheme = \"bearer\"\ntoken = \"t\"\nprincipal = \"p\"\n\
                capabilities = [\"session_claim\"]\nthinking_exposure = [\"tool_trace\"]\ncredential_id = \"x\"\n";
    let plan = Sources { file, ..Sources::default() }.plan();
    assert_eq!(plan.credentials.unwrap()[0].rights, rights(&[SessionClaim], Some((false, true)), Some("x")));
    let owner = Sources { variables: &[("A2A_BEARER_TOKEN", "t0")], ..Sources::default() }.plan();
    assert_eq!(owner.credentials.unwrap()[0].rights, rights(&Capability::ALL, None, None));
}

#[test]
fn a_wrong_credential_is_refused_without_showing_its_secret() {
    let cases = [
        ("{}", "(auth.credentials): must be a list with at least one entry"),
        ("[]", "(auth.credentials): must be a list with at least one entry"),
        ("[{\"s3cret\"", "(auth.credentials): is not JSON (line 1, column 10)"),
        ("[\"s3cret\"]", "(auth.credentials[0]): must be a table of fields"),
        (r#"[{"token": "s3cret"}]"#, "(auth.credentials[0].scheme): is required"),
        (
            r#"[{"scheme": "s3cret"}]"#,
            "(auth.credentials[0].scheme): must be bearer, basic, api_key, mtls or unix_user",
        ),
        (r#"[{"scheme": "bearer", "token": "s3cret"}]"#, "(auth.credentials[0].principal): is required"),
        (
            r#"[{"scheme": "bearer", "token": 7, "principal": "p"}]"#,
            "(auth.credentials[0].token): must be a text",
        ),
        (
            r#"[{"scheme": "bearer", "token": "s3cret", "principal": "p", "password": "s3cret"}]"#,
            "(auth.credentials[0].password): must not be given for bearer",
        ),
        (
            r#"[{"scheme": "basic", "username": "u", "password": "s3cret", "principal": "p"}]"#,
            "(auth.credentials[0].principal): must not be given for basic: it is the username",
        ),
        (
            r#"[{"scheme": "bearer", "tokne": "s3cret", "token": "s3cret", "principal": "p"}]"#,
            "(auth.credentials[0].tokne): is not a field of a credential; the fields are scheme, token, key, username, \
             password, fingerprint, san, uid, principal, credential_id, capabilities, thinking_exposure, enabled",
        ),
        (
            r#"[{"scheme": "bearer", "token": "s3cret", "principal": "p", "enabled": false}]"#,
            "(auth.credentials): every entry is disabled; enable one, or remove the list to have a token generated",
        ),
        (
            r#"[{"scheme": "bearer", "token": "s3cret", "principal": "p"},
                {"scheme": "bearer", "token": "s3cret", "principal": "q"}]"#,
            "(auth.credentials): two principals have the same bearer token; each needs its own",
        ),
        (
            r#"[{"scheme": "bearer", "token": "s3cret", "principal": "p"},
                {"scheme": "bearer", "token": "s3cret", "principal": "p", "capabilities": ["operator"]}]"#,
            "(auth.credentials): two entries have the same bearer token but different rights; keep one of them",
        ),
        (
            r#"[{"scheme": "bearer", "token": "s3cret", "principal": "p"},
                {"scheme": "api_key", "key": "k", "principal": "p", "capabilities": ["operator", "s3cret"]}]"#,
            "(auth.credentials[1].capabilities): must be a list of session_shell, workspace_mutation, \
             session_claim, session_share, session_delete, operator",
        ),
        (
            r#"[{"scheme": "bearer", "token": "t", "principal": "p", "capabilities": [7]}]"#,
            "(auth.credentials[0].capabilities): must be a list of words",
        ),
        (
            r#"[{"scheme": "bearer", "token": "t", "principal": "p", "thinking_exposure": ["all", "tool_trace"]}]"#,
            "(auth.credentials[0].thinking_exposure): must be none, all, or a list of raw_thinking, tool_trace",
        ),
        (
            r#"[{"scheme": "bearer", "token": "t", "principal": "p", "credential_id": 7}]"#,
            "(auth.credentials[0].credential_id): must be a text",
        ),
    ];
    for (list, expected) in cases {
        let expected = format!("A2A_STATIC_AUTH_CREDENTIALS {expected}");
        let problems = variables(&[("A2A_STATIC_AUTH_CREDENTIALS", list)]);
        assert_eq!(problems, [expected], "{list}");
        assert!(!problems[0].contains("s3cret"));
    }
}

#[test]
fn no_secret_can_be_printed() {
    let given = &[
        ("A2A_BEARER_TOKEN", "s3cret"),
        ("OPENCODE_BASE_URL", "http://127.0.0.1:1"),
        ("OPENCODE_AUTH_PASSWORD", "s3cret"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=s3cret"),
    ];
    let checked = Sources { variables: given, ..Sources::default() }.load().unwrap();
    assert!(!format!("{checked:?}").contains("s3cret"));
    let environment: Environment = given.iter().copied().collect();
    for name in ["OPENCODE_BASE_URL", "A2A_TASK_STORE_DATABASE_URL"] {
        let problems = variables(&[(name, "postgresql://ada:s3cret@db/tasks")]);
        assert!(problems[0].contains("the value is not allowed; it takes"), "{problems:?}");
        assert!(!problems[0].contains("s3cret"));
    }
    assert!(!format!("{environment:?}").contains("s3cret"));
}

#[test]
fn the_reference_page_is_up_to_date() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let committed = std::fs::read_to_string(page).unwrap_or_default();
    assert!(committed == reference::markdown(), "docs/configuration.md is outdated: run `make docs`");
}

#[test]
fn the_example_file_is_accepted() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../longshore.example.toml");
    let text = std::fs::read_to_string(path).unwrap();
    // Each commented-out line is a setting too, so its key must be known.
    let all: String = text
        .lines()
        .map(|line| {
            line.strip_prefix("# ")
                .filter(|rest| rest.contains(" = ") || rest.starts_with('['))
                .unwrap_or(line)
        })
        .fold(String::new(), |all, line| all + line + "\n");
    for text in [text, all] {
        let mut problems = Vec::new();
        file::parse("longshore.example.toml", &text, &mut problems);
        assert_eq!(problems, []);
    }
}
