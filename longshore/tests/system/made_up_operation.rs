//! What a new operation costs: the edits that add a made-up one, which is then served by every binding but gRPC.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::repository::{committed, root, sources};

/// A text that is in the file once, and what replaces it.
type Edit = (&'static str, &'static str);

/// Adds `PeekTask`, which reads a task as `GetTask` does. Documents, cards, routes, limits, the log and the metrics follow from the
/// row of the table. A real operation also has messages, which `wire` decodes and encodes and which `tools/grpc` generates.
const EDITS: [(&str, &[Edit]); 8] = [
    // Its name.
    (
        "crates/wire/src/v1/method.rs",
        &[
            ("    CancelTask,\n    Sub", "    PeekTask,\n    CancelTask,\n    Sub"),
            ("[Self; 11]", "[Self; 12]"),
            ("        Self::CancelTask,\n", "        Self::PeekTask,\n        Self::CancelTask,\n"),
            (
                "            Self::CancelTask =>",
                "            Self::PeekTask => \"PeekTask\",\n            Self::CancelTask =>",
            ),
        ],
    ),
    // Its row.
    (
        "crates/wire/src/surface.rs",
        &[
            ("[Operation; 11]", "[Operation; 12]"),
            (
                "    Operation {\n        method: Method::CancelTask,\n",
                r#"    Operation {
        method: Method::PeekTask,
        summary: "Reads a task, too.",
        params: Params::TaskWithHistory,
        streams: false,
        access: Access::Credential,
        needs_extensions: true,
        old_name: "tasks/peek",
        old_grpc: None,
        rest: &[get("/tasks/{id}:peek")],
        old_rest: &[get("/v1/tasks/{id}:peek")],
    },
    Operation {
        method: Method::CancelTask,
"#,
            ),
        ],
    ),
    // Its command.
    (
        "crates/edge/src/command.rs",
        &[("    Cancel(CancelTask),\n", "    Peek(GetTask),\n    Cancel(CancelTask),\n")],
    ),
    // What decodes it: JSON-RPC on every transport, REST, and gRPC.
    (
        "crates/edge/src/jsonrpc.rs",
        &[(
            "            Method::CancelTask =>",
            "            Method::PeekTask => Command::Peek((self.get)(params)?),\n            Method::CancelTask =>",
        )],
    ),
    (
        "crates/edge/src/rest.rs",
        &[(
            "        Name::CancelTask =>",
            "        Name::PeekTask => Command::Peek((decoders.get)(id, &query)?),\n        Name::CancelTask =>",
        )],
    ),
    (
        "crates/grpc/src/convert.rs",
        &[
            (
                "Method::GetTask => json_of::<v1::GetTaskRequest>",
                "Method::GetTask | Method::PeekTask => json_of::<v1::GetTaskRequest>",
            ),
            (
                "Method::GetTask | Method::CancelTask => message_of::<v1::Task>",
                "Method::GetTask | Method::PeekTask | Method::CancelTask => message_of::<v1::Task>",
            ),
            ("Method::GetTask => names::get_task", "Method::GetTask | Method::PeekTask => names::get_task"),
            (
                "Method::GetTask | Method::CancelTask => message_of::<v03::Task>",
                "Method::GetTask | Method::PeekTask | Method::CancelTask => message_of::<v03::Task>",
            ),
        ],
    ),
    // Its work.
    (
        "crates/edge/src/operation.rs",
        &[
            (
                "            Command::Cancel(CancelTask { id }) => {\n",
                r"            Command::Peek(GetTask { id, history_length }) => {
                let found = engine.peek(principal, &id).await?;
                note(line, &found);
                Reply::Task(found.task, View { history_length, ..view })
            }
            Command::Cancel(CancelTask { id }) => {
",
            ),
            (
                "            Command::Get(_)\n",
                "            Command::Get(_)\n            | Command::Peek(_)\n",
            ),
        ],
    ),
    (
        "crates/engine/src/service.rs",
        &[(
            "    /// Ends the task, and then stops the agent's turn.",
            r"    pub async fn peek(&self, caller: &Principal, task: &TaskId) -> Result<Snapshot> {
        self.get(caller, task).await
    }

    /// Ends the task, and then stops the agent's turn.",
        )],
    ),
];

/// Beside the table of all bindings. The published packages have no such call, so no client of gRPC can make it.
const TEST: &str = r#"
#[tokio::test]
async fn the_made_up_operation_is_served_by_every_binding_but_grpc() {
    let (mut gateway, bindings, _directory) = gateway(|_| {}).await;
    let (task, turn) = gateway.working_task("m1").await;
    for binding in bindings.iter().filter(|binding| !binding.is_grpc()) {
        let peek = async |who| binding.json(who, binding.client.on(&gateway, Method::PeekTask, &task)).await;
        assert_eq!(peek(ADA).await.unwrap()["id"], json!(task), "{}", binding.name);
        if !binding.is_owner {
            assert_eq!(peek(BOB).await.unwrap_err(), "TASK_NOT_FOUND", "{}", binding.name);
        }
    }
    turn.complete().await;
    gateway.stop().await;
}
"#;

/// Where the table is.
const TABLE: &str = "crates/edge/tests/http";

#[test]
fn the_edits_for_a_made_up_operation_fit() {
    for (file, edits) in EDITS {
        edited(file, edits);
    }
}

/// A file that contains one of these handles cancel by name.
const OF_ONE_OPERATION: [&str; 6] = [
    "Method::CancelTask",
    "Name::CancelTask",
    "Self::CancelTask",
    "\"CancelTask\"",
    " Cancel(",
    "Command::Cancel(",
];

/// Cancel stands for every operation that takes and returns a task. Other operations are named in more files. The engine has work for
/// each, and does not know their names.
#[test]
fn no_other_file_knows_an_operation_that_takes_and_returns_a_task_by_its_name() {
    let mut found = Vec::new();
    for file in sources() {
        let path = file.path.strip_prefix(root()).unwrap().to_path_buf();
        let layers = ["crates/wire/src", "crates/edge/src", "crates/grpc/src"];
        let is_layer = layers.iter().any(|layer| path.starts_with(layer));
        // The client calls the agents of others.
        let others = ["tests", "tests.rs", "testing", "properties.rs", "generated", "client.rs"];
        let is_other = others.iter().any(|name| path.components().any(|part| part.as_os_str() == *name));
        let code = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        if is_layer && !is_other && OF_ONE_OPERATION.iter().any(|name| code.contains(name)) {
            found.push(path);
        }
    }
    let mut expected: Vec<_> = EDITS.iter().map(|(file, _)| PathBuf::from(file)).collect();
    expected.retain(|file| !file.starts_with("crates/engine"));
    // It documents what is special about a cancel.
    expected.push(PathBuf::from("crates/wire/src/contract/behavior.rs"));
    // Its tools use a few operations, and a new operation is no tool.
    expected.push(PathBuf::from("crates/edge/src/mcp.rs"));
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

/// Compiles a copy of the repository with the edits, so `make test` leaves it out.
#[test]
fn long_a_made_up_operation_is_served_by_every_binding_but_grpc() {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("made-up-operation");
    let tree = place.join("tree");
    if tree.exists() {
        std::fs::remove_dir_all(&tree).unwrap();
    }
    for file in committed() {
        let (from, to) = (root().join(&file), tree.join(&file));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
    }
    for (file, edits) in EDITS {
        std::fs::write(tree.join(file), edited(file, edits)).unwrap();
    }
    let table = std::fs::read_to_string(root().join(TABLE).join("bindings.rs")).unwrap() + TEST;
    std::fs::write(tree.join(TABLE).join("bindings.rs"), table).unwrap();
    // Other tests have a case for each operation.
    std::fs::write(tree.join(TABLE).join("main.rs"), "mod bindings;\nmod support;\n").unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["test", "--offline", "--locked", "--package", "longshore-edge", "--test", "http"])
        .args(["--", "bindings::the_made_up_operation"])
        .env("CARGO_TARGET_DIR", place.join("target"))
        // Half the disk space: nobody edits the copy.
        .env("CARGO_INCREMENTAL", "0")
        .current_dir(&tree)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("test result: ok. 1 passed"), "{said}");
}

fn edited(file: &str, edits: &[Edit]) -> String {
    let mut text = std::fs::read_to_string(root().join(file)).expect("the file is there");
    for (before, after) in edits {
        assert_eq!(text.matches(before).count(), 1, "{file} has another form; adapt the edit of {before:?}");
        text = text.replace(before, after);
    }
    text
}
