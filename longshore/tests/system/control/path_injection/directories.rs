//! Directories that must never be removed or reset, in every spelling: OpenCode deletes any directory that it is given.

use std::path::{Path, PathBuf};
use std::process::Command;

use longshore_testkit::raw::RawClient;
use longshore_wire::methods::Method;
use longshore_wire::surface::ProtocolVersion;
use serde_json::json;
use tempfile::TempDir;

use crate::control::calls::{call_ok, error_code, error_fields, method_named};
use crate::control::fixture::{Fixture, call};

const MARK: &str = "keep.txt";

fn git(at: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.current_dir(at).args(arguments);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for of_a_hook in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(of_a_hook);
    }
    let output = command.output().expect("git is installed");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Directories of all kinds, each with a file that is not committed.
struct ProtectedDirectories {
    fixture: Fixture,
    /// The directories that must still exist afterwards.
    kept: Vec<PathBuf>,
    #[expect(dead_code, reason = "it is held until the directories in it are not needed any more")]
    outside: TempDir,
}

impl ProtectedDirectories {
    async fn prepare() -> Self {
        let fixture = Fixture::start().await;
        fixture.fake.make_repository().await;
        let outside = tempfile::tempdir().expect("a test can make a directory");
        let root = PathBuf::from(fixture.root());
        let base = outside.path().canonicalize().expect("it was just made");
        let [canary, clone, users] = ["canary", "clone", "users"].map(|name| base.join(name));
        let sub = root.join("sub");
        for directory in [&canary, &sub] {
            std::fs::create_dir(directory).expect("a directory can be made");
        }
        git(&base, &["clone", "--quiet", fixture.root(), "clone"]);
        git(&root, &["worktree", "add", "--quiet", "--detach", users.to_str().expect("a text")]);
        let kept = vec![root.clone(), canary, clone, users, sub];
        for directory in &kept {
            std::fs::write(directory.join(MARK), "dear").expect("a file can be written");
        }
        for (name, to) in [("link-out", &kept[1]), ("link-root", &root), ("link-clone", &kept[2])] {
            std::os::unix::fs::symlink(to, root.join(name)).expect("a link can be made");
        }
        // OpenCode lists every directory that it has seen. It has not seen the user's own worktree.
        let above = root.parent().expect("the root is somewhere").to_path_buf();
        let strange = [root.join("link-clone"), kept[1].clone(), kept[2].clone(), root, above];
        fixture.fake.project(|project| {
            project.worktrees.extend(strange.iter().map(|path| path.to_string_lossy().into_owned()));
            project.worktrees.extend(["/", "", ".", "..", "sub"].map(str::to_owned));
        });
        Self { fixture, kept, outside }
    }

    fn root(&self) -> &Path {
        &self.kept[0]
    }

    fn check(&self, about: &str) {
        for directory in &self.kept {
            let mark = std::fs::read_to_string(directory.join(MARK));
            assert_eq!(mark.ok().as_deref(), Some("dear"), "{about}: {}", directory.display());
        }
        assert_eq!(self.fixture.fake.removed_directories(), [""; 0], "{about}");
    }
}

/// Many spellings of one directory.
fn spellings(directory: &Path, root: &Path) -> Vec<String> {
    let path = directory.to_str().expect("a path of a test is text");
    let name = directory.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let up = "../".repeat(root.components().count());
    vec![
        path.to_owned(),
        format!("{path}/"),
        format!("{path}//"),
        format!("{path}/."),
        format!("{path}/./"),
        format!("{path}/../{name}"),
        format!("/.{path}"),
        format!("//{path}"),
        format!(" {path} "),
        format!("{up}{}", path.trim_start_matches('/')),
        format!("{}/sub/{up}{}", root.display(), path.trim_start_matches('/')),
        format!("{path}\n"),
        format!("{path}\u{0}"),
        format!("{path}/*"),
        format!("{path}#"),
        format!("{path}?"),
        format!("file://{path}"),
        path.replace('/', "%2f"),
        path.replace('/', "%2F"),
        path.replace('/', "\\"),
        path.replacen('/', "/%2e%2e/", 1),
    ]
}

/// Fails unless the method refuses the value, names the field, and makes no change in OpenCode.
async fn refused(client: &RawClient, method: &'static Method, field: &str, value: &str, fixture: &Fixture) {
    for version in ProtocolVersion::ALL {
        let about = format!("{} {version:?} {field} {:?}", method.name, value);
        let mut seen = 0;
        fixture.arrived(&mut seen);
        let answer = call(client, version, method, &json!({"request": {field: value}})).await;
        assert_eq!(error_code(&answer), -32602, "{about}: {}", answer.body);
        assert_eq!(error_fields(&answer), [format!("request.{field}")], "{about}: {}", answer.body);
        let arrived = fixture.requests_since(&mut seen);
        assert!(arrived.iter().all(|entry| entry == "GET /experimental/worktree"), "{about}: {arrived:?}");
    }
}

#[tokio::test]
async fn only_worktrees_of_opencode_can_be_removed_or_reset() {
    let protected = ProtectedDirectories::prepare().await;
    let fixture = &protected.fixture;
    let create = method_named("opencode.worktrees.create");
    let made =
        call_ok(&fixture.ada, ProtocolVersion::V03, create, &json!({"request": {"name": "made"}})).await;
    let made = PathBuf::from(made.result()["item"]["directory"].as_str().expect("it is somewhere"));
    std::fs::create_dir(made.join("inner")).expect("a directory can be made");
    let mut targets = protected.kept.clone();
    targets.extend(["link-out", "link-root", "link-clone", ".git"].map(|name| protected.root().join(name)));
    targets.extend(protected.root().parent().map(Path::to_path_buf));
    targets.extend([PathBuf::from("/"), made.join("inner"), made.join(".."), made.join("../..")]);
    let methods = [method_named("opencode.worktrees.remove"), method_named("opencode.worktrees.reset")];
    for method in methods {
        for target in &targets {
            for spelling in spellings(target, protected.root()) {
                refused(&fixture.ada, method, "directory", &spelling, fixture).await;
            }
        }
        for spelling in
            ["", " ", ".", "./", "..", "../", "../..", "/", "~", "*", "sub", "./sub/", "link-root/sub"]
        {
            refused(&fixture.ada, method, "directory", spelling, fixture).await;
        }
        protected.check(method.name);
        let names = targets.iter().filter_map(|target| target.file_name()?.to_str());
        let more = [
            "",
            " ",
            ".",
            "..",
            "../made",
            "made/",
            "./made",
            "made/../made",
            "-rf",
            "*",
            "MADE",
            "made ",
            "ma",
        ];
        for name in names.chain(more) {
            refused(&fixture.ada, method, "name", name, fixture).await;
        }
        protected.check(method.name);
    }
    // Only the created worktree is removed.
    std::fs::write(made.join("README.md"), "changed").expect("a file can be written");
    let by_directory = json!({"request": {"directory": format!("{}/../made/", made.display())}});
    assert_eq!(
        call_ok(&fixture.ada, ProtocolVersion::V1, methods[1], &by_directory).await.result()["ok"],
        true
    );
    assert_eq!(std::fs::read_to_string(made.join("README.md")).ok().as_deref(), Some("# Harbour\n"));
    protected.check("a reset");
    assert_eq!(
        call_ok(&fixture.ada, ProtocolVersion::V1, methods[0], &json!({"request": {"name": "made"}}))
            .await
            .result()["ok"],
        true
    );
    assert!(!made.exists());
    assert_eq!(fixture.fake.removed_directories(), [made.to_string_lossy()]);
    for directory in &protected.kept {
        assert!(directory.join(MARK).exists(), "{}", directory.display());
    }
}

/// A workspace that contains the root cannot be removed, by any spelling of its id.
#[tokio::test]
async fn the_workspace_of_the_gateway_cannot_be_removed() {
    let protected = ProtectedDirectories::prepare().await;
    let fixture = &protected.fixture;
    let root = protected.root().to_string_lossy().into_owned();
    let above = protected.root().parent().expect("the root is somewhere").to_string_lossy().into_owned();
    let holds = [("wrk_root", root.clone()), ("wrk_spelled", format!("{root}/sub/..")), ("wrk_above", above)];
    fixture.fake.project(|project| {
        project.workspaces.extend(holds.iter().map(|(id, path)| ((*id).to_owned(), path.clone())));
    });
    let remove = method_named("opencode.workspaces.remove");
    let mut seen = 0;
    for version in ProtocolVersion::ALL {
        for (id, _) in &holds {
            fixture.arrived(&mut seen);
            let answer = call(&fixture.ada, version, remove, &json!({"workspace_id": id})).await;
            assert_eq!(error_code(&answer), -32602, "{id}: {}", answer.body);
            assert_eq!(error_fields(&answer), ["workspace_id"], "{id}: {}", answer.body);
            assert_eq!(fixture.requests_since(&mut seen), ["GET /experimental/workspace"], "{id}");
        }
        for id in ["wrk_other", "wrk..", "wrk", "wrk_root.", "wrk-root", "wrk_ROOT"] {
            fixture.arrived(&mut seen);
            let answer = call_ok(&fixture.ada, version, remove, &json!({"workspace_id": id})).await;
            assert!(answer.result()["item"].is_null(), "{id}: {}", answer.body);
            assert_eq!(fixture.requests_since(&mut seen), ["GET /experimental/workspace"], "{id}");
        }
    }
    protected.check("workspaces");
}
