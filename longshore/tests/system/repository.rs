//! Rules for the repository: which crate may depend on which, how long a file may be, and what no file may contain.

#![expect(clippy::unwrap_used, reason = "a panic is the right answer to a checkout that cannot be read")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_engine::fail_point;
use serde_json::Value;

/// Which crate may depend on which. A new crate needs a row here first.
const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("longshore-model", &[]),
    ("longshore-meter", &[]),
    ("longshore-wire", &["longshore-model"]),
    ("longshore-engine", &["longshore-meter", "longshore-model"]),
    ("longshore-store", &["longshore-engine", "longshore-meter", "longshore-model", "longshore-seal"]),
    ("longshore-processes", &[]),
    ("longshore-outbound", &[]),
    ("longshore-seal", &[]),
    (
        "longshore-agent-opencode",
        &["longshore-engine", "longshore-meter", "longshore-model", "longshore-processes"],
    ),
    (
        "longshore-agent-acp",
        &["longshore-engine", "longshore-meter", "longshore-model", "longshore-processes"],
    ),
    (
        "longshore-push",
        &["longshore-engine", "longshore-meter", "longshore-model", "longshore-outbound", "longshore-wire"],
    ),
    (
        "longshore-peers",
        &[
            "longshore-client",
            "longshore-engine",
            "longshore-meter",
            "longshore-model",
            "longshore-outbound",
            "longshore-wire",
        ],
    ),
    // The only crate that knows MCP.
    ("longshore-mcp", &["longshore-edge", "longshore-engine", "longshore-model", "longshore-peers"]),
    (
        "longshore-calling",
        &["longshore-engine", "longshore-mcp", "longshore-meter", "longshore-model", "longshore-peers"],
    ),
    // The demo model needs only the task tracker of the engine.
    ("longshore-demo-model", &["longshore-engine"]),
    ("longshore-otlp", &["longshore-engine", "longshore-meter", "longshore-model"]),
    ("longshore-client", &["longshore-grpc", "longshore-model", "longshore-outbound", "longshore-wire"]),
    ("longshore-edge", &["longshore-engine", "longshore-meter", "longshore-model", "longshore-wire"]),
    // The only crate that knows protocol buffers.
    ("longshore-grpc", &["longshore-edge", "longshore-model", "longshore-wire"]),
    // The JSON that both fakes of OpenCode write: that of the test kit and that of the bench.
    ("longshore-opencode-shapes", &[]),
    (
        "longshore-testkit",
        &[
            "longshore-engine",
            "longshore-grpc",
            "longshore-model",
            "longshore-opencode-shapes",
            "longshore-wire",
        ],
    ),
    // The bench measures single components, and starts the gateway as a process. Only a test depends on it.
    (
        "longshore-bench",
        &[
            "longshore-agent-acp",
            "longshore-agent-opencode",
            "longshore-engine",
            "longshore-model",
            "longshore-opencode-shapes",
            "longshore-store",
            "longshore-wire",
        ],
    ),
    (
        "longshore",
        &[
            "longshore-agent-acp",
            "longshore-agent-opencode",
            "longshore-calling",
            "longshore-client",
            "longshore-demo-model",
            "longshore-edge",
            "longshore-engine",
            "longshore-grpc",
            "longshore-mcp",
            "longshore-meter",
            "longshore-model",
            "longshore-otlp",
            "longshore-outbound",
            "longshore-peers",
            "longshore-push",
            "longshore-seal",
            "longshore-store",
            "longshore-wire",
        ],
    ),
];

/// Dependencies that a layer must not have: without them it cannot take over the work of another layer.
const BANNED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("longshore-model", &["tokio", "axum", "hyper", "reqwest", "rusqlite"]),
    ("longshore-wire", &["tokio", "axum", "hyper", "reqwest", "rusqlite"]),
    ("longshore-engine", &["axum", "hyper", "http", "reqwest", "rusqlite"]),
    ("longshore-store", &["axum", "hyper", "http", "reqwest"]),
    ("longshore-agent-opencode", &["axum", "hyper", "rusqlite"]),
    ("longshore-agent-acp", &["axum", "hyper", "reqwest", "rusqlite"]),
    ("longshore-edge", &["prost", "reqwest", "rusqlite", "tonic"]),
    ("longshore-client", &["axum", "hyper", "prost", "rusqlite", "tonic"]),
    ("longshore-outbound", &["axum", "reqwest", "rusqlite"]),
    ("longshore-push", &["axum", "hyper", "reqwest", "rusqlite"]),
    ("longshore-seal", &["tokio", "axum", "hyper", "http", "reqwest", "rusqlite"]),
    ("longshore-otlp", &["axum", "hyper", "rusqlite"]),
];

/// Only tests may depend on these: the test kit, and the official SDK, which serves as an oracle and as an interop client.
const TESTS_ONLY: &[&str] = &[
    "longshore-testkit",
    "longshore-bench",
    "a2a-lf",
    "a2a-pb",
    "a2a-client-lf",
    "a2a-grpc",
    "criterion",
    "insta",
    "rcgen",
    "tempfile",
];

/// Features that only tests may enable.
const TEST_FEATURES: &[&str] = &["simulation", "fail-points"];

/// The maximum length of a source file. A longer one should be split.
const MAX_LINES: usize = 800;

#[test]
fn crates_depend_only_on_allowed_crates() {
    let workspace = Workspace::read();
    let allowed: BTreeMap<&str, BTreeSet<&str>> =
        ALLOWED_DEPENDENCIES.iter().map(|(name, uses)| (*name, uses.iter().copied().collect())).collect();
    for package in &workspace.packages {
        let Some(allowed) = allowed.get(package.name.as_str()) else {
            panic!(
                "{} has no row in ALLOWED_DEPENDENCIES: add the crates that it may depend on",
                package.name
            );
        };
        let own = |name: &&str| name.starts_with("longshore");
        let uses: BTreeSet<&str> = package.normal.iter().map(String::as_str).filter(own).collect();
        let wrong: Vec<_> = uses.difference(allowed).collect();
        assert!(wrong.is_empty(), "{} may not use {wrong:?}", package.name);
    }
    let there: BTreeSet<&str> = workspace.packages.iter().map(|package| package.name.as_str()).collect();
    assert_eq!(
        there,
        allowed.keys().copied().collect(),
        "ALLOWED_DEPENDENCIES has a row for a crate that does not exist"
    );
}

#[test]
fn no_layer_has_a_dependency_that_belongs_to_another_layer() {
    let workspace = Workspace::read();
    for (name, banned) in BANNED_DEPENDENCIES {
        let package = workspace.package(name);
        let found: Vec<_> = banned.iter().filter(|banned| package.normal.contains(**banned)).collect();
        assert!(found.is_empty(), "{name} must not have {found:?}");
    }
}

#[test]
fn test_dependencies_are_dev_dependencies() {
    let workspace = Workspace::read();
    // The test kit itself is for tests.
    for package in workspace.packages.iter().filter(|package| package.name != "longshore-testkit") {
        let found: Vec<_> = TESTS_ONLY.iter().filter(|name| package.normal.contains(**name)).collect();
        assert!(found.is_empty(), "{} has {found:?} outside its dev-dependencies", package.name);
    }
    let used = workspace.packages.iter().any(|package| package.dev.contains("longshore-testkit"));
    assert!(used, "no crate uses the test kit, so this test checks the wrong names");
}

#[test]
fn the_binary_has_no_test_feature() {
    // The package by its name, and the default of `cargo build`.
    for chosen in [&["--package", "longshore"][..], &[]] {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--offline", "--locked", "--edges", "normal,build,features"])
            .args(chosen)
            .current_dir(root())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let used = String::from_utf8(output.stdout).unwrap();
        for feature in TEST_FEATURES {
            assert!(
                !used.contains(&format!("feature \"{feature}\"")),
                "{chosen:?}: the binary has {feature}"
            );
        }
        let own = used.contains("longshore-engine feature \"default\"");
        assert!(
            own,
            "the output of cargo tree has another format, so this test checks the wrong words: {used}"
        );
    }
}

/// `cargo build --release --workspace` enables every feature that any crate of the workspace enables.
#[test]
fn fail_points_need_debug_assertions_as_well() {
    let code = std::fs::read_to_string(root().join("crates/engine/src/fail_point.rs")).unwrap();
    let asks: Vec<_> = code.lines().filter(|line| line.contains("feature = \"fail-points\"")).collect();
    assert!(asks.len() >= 3, "the fail points have moved: {asks:?}");
    for line in asks {
        assert!(line.contains("debug_assertions"), "this checks the feature alone: {line}");
    }
}

#[test]
fn only_dev_dependencies_enable_test_features() {
    for file in committed().into_iter().filter(|file| file.ends_with("Cargo.toml")) {
        let text = std::fs::read_to_string(root().join(&file)).unwrap();
        let normal = text.split("[dev-dependencies]").next().unwrap_or_default();
        let normal = normal.split("[dependencies]").nth(1).unwrap_or_default();
        for feature in ["fail-points", "simulation"] {
            let may = file.ends_with("testkit/Cargo.toml") && feature == "fail-points";
            assert!(may || !normal.contains(feature), "{} asks for {feature}", file.display());
        }
    }
}

#[test]
fn every_fail_point_exists_in_one_file() {
    let sources = sources();
    for point in fail_point::POINTS.iter().chain(&fail_point::MANAGED_POINTS) {
        let hit = format!("fail_point::hit(\"{point}\")");
        let files = sources.iter().filter(|file| file.text.contains(&hit)).count();
        assert_eq!(files, 1, "files with the fail point {point}");
    }
}

#[test]
fn no_source_file_is_too_long() {
    for file in sources() {
        let tests = file.path.components().any(|part| part.as_os_str() == "tests");
        if tests || file.path.ends_with("tests.rs") || file.is_generated() {
            continue;
        }
        let lines = file.text.lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines, more than {MAX_LINES}", file.path.display());
    }
}

/// The engine and the model serve any agent.
#[test]
fn the_engine_and_the_model_name_no_agent() {
    for file in sources() {
        let path = file.path.strip_prefix(root()).unwrap();
        if !["crates/engine/src", "crates/model/src"].iter().any(|layer| path.starts_with(layer)) {
            continue;
        }
        let named = file.text.lines().position(|line| line.to_lowercase().contains("opencode"));
        assert!(named.is_none(), "{}:{} names OpenCode", path.display(), named.unwrap_or_default() + 1);
    }
}

/// The modules of `wire` and `edge` that belong to OpenCode, or hold the old names that clients of every agent know.
const OF_OPENCODE: [&str; 5] = [
    "crates/wire/src/opencode",
    "crates/wire/src/opencode.rs",
    "crates/wire/src/names.rs",
    "crates/wire/src/extension/uri.rs",
    "crates/edge/src/opencode.rs",
];

/// The lines that connect these modules with the others.
const CONNECTIONS: [&str; 2] = ["pub mod opencode;", "use opencode::message_options as agent_options;"];

/// The rest of `wire` and `edge` serves any agent. Tests may use the names of one.
#[test]
fn the_neutral_parts_of_the_protocol_name_no_agent() {
    for path in OF_OPENCODE {
        assert!(root().join(path).exists(), "{path} has moved");
    }
    for file in sources() {
        let path = file.path.strip_prefix(root()).unwrap();
        let is_layer = ["crates/wire/src", "crates/edge/src"].iter().any(|layer| path.starts_with(layer));
        // Modules with these names are compiled for tests only.
        let names = ["tests", "tests.rs", "testing", "properties.rs"];
        let is_test = path.components().any(|part| names.iter().any(|name| part.as_os_str() == *name));
        if !is_layer || is_test || OF_OPENCODE.iter().any(|own| path.starts_with(own)) {
            continue;
        }
        let code = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let is_named = line.to_lowercase().contains("opencode") && !CONNECTIONS.contains(&line.trim());
            assert!(!is_named, "{}:{} names OpenCode", path.display(), number + 1);
        }
    }
}

#[test]
fn only_the_task_tracker_spawns() {
    // Split, so that this file does not contain the text that it searches for.
    let spawn = ["tokio", "::spawn("].concat();
    let spawn_task = ["tokio", "::task::spawn("].concat();
    for file in sources() {
        if file.path.ends_with("engine/src/tasks.rs") {
            assert!(file.text.contains(&spawn), "the task tracker has moved");
            continue;
        }
        // Clients in tests may spawn.
        if file.path.components().any(|part| part.as_os_str() == "tests") {
            continue;
        }
        let spawns = file.text.contains(&spawn) || file.text.contains(&spawn_task);
        assert!(!spawns, "{} spawns by itself: use Tasks::spawn", file.path.display());
    }
}

#[test]
fn no_file_allows_lints_or_ignores_tests() {
    let allow = ["#[", "allow("].concat();
    let allow_all = ["#![", "allow("].concat();
    let ignore = ["#[", "ignore"].concat();
    for file in sources().into_iter().filter(|file| !file.is_generated()) {
        for banned in [&allow, &allow_all, &ignore] {
            assert!(!file.text.contains(banned.as_str()), "{} has {banned}", file.path.display());
        }
    }
}

/// `make test` leaves out tests whose name starts with `long_` or `campaign_`: a unit test must not get such a name by accident.
#[test]
fn only_tests_of_whole_programs_are_long() {
    for file in sources() {
        let is_allowed = file
            .path
            .components()
            .any(|part| ["system", "e2e", "agent_suite"].iter().any(|name| part.as_os_str() == *name));
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        for pair in lines.windows(2) {
            let is_test = pair[0].starts_with("#[") && pair[0].contains("test");
            let name = pair[1].trim_start_matches("async ");
            let is_long = name.starts_with("fn long_") || name.starts_with("fn campaign_");
            assert!(is_allowed || !is_test || !is_long, "{}: {}", file.path.display(), pair[1]);
        }
    }
}

#[test]
fn no_committed_file_has_a_machine_path_or_a_todo() {
    let banned = [
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["/ro", "ot/"].concat(),
        ["/work", "/main"].concat(),
        ["/work", "/shared"].concat(),
        ["/work", "/."].concat(),
    ];
    let mut found = Vec::new();
    for path in committed() {
        // Hashes in lock files may contain any text, and recordings are not written by hand.
        let exempt = path.ends_with("Cargo.lock")
            || path.ends_with("package-lock.json")
            || path.components().any(|part| part.as_os_str() == "recordings");
        let Ok(text) = std::fs::read_to_string(root().join(&path)) else { continue };
        for (number, line) in text.lines().enumerate().filter(|_| !exempt) {
            found.extend(
                banned
                    .iter()
                    .filter(|word| line.contains(word.as_str()))
                    .map(|word| format!("{}:{} has {word}", path.display(), number + 1)),
            );
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_pinned_opencode_is_in_the_version_text() {
    let pins = std::fs::read_to_string(root().join("tools/opencode/package.json")).unwrap();
    let pins: Value = serde_json::from_str(&pins).unwrap();
    let pinned = pins["dependencies"]["opencode-ai"].as_str().unwrap();
    assert!(longshore::cli::TESTED_OPENCODE.contains(&pinned), "{pinned} is not in TESTED_OPENCODE");
}

/// `make chaos` writes the page. The committed page must be of a campaign with enough faults and without findings.
#[test]
fn the_committed_chaos_report_has_enough_faults_and_no_finding() {
    let page = std::fs::read_to_string(root().join("docs/reliability.md")).unwrap();
    let number = |cell: &str| cell.parse::<u64>().ok();
    let lost = rows_in(&page, "What was lost");
    assert!(lost.len() >= 5, "the table of faults has moved: {lost:?}");
    for row in lost {
        assert_eq!(number(row[1]), Some(0), "{row:?}");
    }
    let broken = rows_in(&page, "What was broken");
    for (what, least) in [
        ("Gateway killed (SIGKILL)", 1_000),
        ("OpenCode killed", 200),
        ("of these the real one", 50),
        ("Streams of clients that broke, by a cut or with the gateway", 5_000),
    ] {
        let row = broken.iter().find(|row| row[0] == what);
        let row = row.unwrap_or_else(|| panic!("the report has no row: {what}"));
        assert!(number(row[1]) >= Some(least) && number(row[2]) == Some(least), "{row:?}");
    }
    for row in broken {
        assert!(number(row[1]) >= number(row[2]), "too seldom: {row:?}");
    }
    let duration = page.split_once("| Duration | ").and_then(|(_, rest)| rest.split_once(" min")).unwrap();
    assert!(number(duration.0) < Some(30), "{duration:?}");
}

/// The rows of the first table of a section, without the header.
fn rows_in<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let (_, section) = page.split_once(&format!("## {heading}\n")).unwrap();
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let lines = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

struct Package {
    name: String,
    normal: BTreeSet<String>,
    dev: BTreeSet<String>,
}

struct Workspace {
    packages: Vec<Package>,
}

impl Workspace {
    fn read() -> Self {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
        let packages = metadata["packages"].as_array().unwrap().iter().map(package).collect();
        Self { packages }
    }

    fn package(&self, name: &str) -> &Package {
        self.packages.iter().find(|package| package.name == name).unwrap_or_else(|| panic!("no crate {name}"))
    }
}

fn package(value: &Value) -> Package {
    let names = |dev: bool| {
        value["dependencies"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|dependency| (dependency["kind"] == "dev") == dev)
            .map(|dependency| dependency["name"].as_str().unwrap().to_owned())
            .collect()
    };
    Package { name: value["name"].as_str().unwrap().to_owned(), normal: names(false), dev: names(true) }
}

pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Source {
    fn is_generated(&self) -> bool {
        self.text.starts_with("// @generated")
    }
}

/// Every Rust file of the workspace.
pub(crate) fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    for directory in ["bench", "crates", "longshore"] {
        collect(&root().join(directory), &mut found);
    }
    assert!(found.len() > 20, "the sources have moved: only {} files found", found.len());
    found
}

fn collect(directory: &Path, found: &mut Vec<Source>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push(Source { path, text });
        }
    }
}

/// The files that git tracks, if this is a checkout; otherwise the sources.
pub(crate) fn committed() -> Vec<PathBuf> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    match listed {
        Ok(output) if output.status.success() && !output.stdout.is_empty() => {
            let names = String::from_utf8(output.stdout).unwrap();
            names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect()
        }
        _ => sources().into_iter().map(|source| source.path).collect(),
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
