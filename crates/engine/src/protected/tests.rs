use std::os::unix::fs::symlink;

use super::*;

/// A workspace with a configuration, a data directory whose worktree callers may use, and a file of its owner.
struct Place {
    _holder: tempfile::TempDir,
    root: PathBuf,
    protected: ProtectedPaths,
}

fn place() -> Place {
    let holder = tempfile::tempdir().unwrap();
    let root = holder.path().canonicalize().unwrap();
    for directory in ["data/home/worktree/one", "data/home/state", "src/deep", "database"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    for file in ["data/token", "data/home/state/file", "data/home/worktree/one/file", "real.toml", "src/file"]
    {
        fs::write(root.join(file), "x").unwrap();
    }
    symlink("real.toml", root.join("longshore.toml")).unwrap();
    let protected = ProtectedPaths::new(["longshore.toml", "data", "later"].map(|name| root.join(name)))
        .except([root.join("data/home/worktree")]);
    Place { _holder: holder, root, protected }
}

#[test]
fn a_path_is_judged_by_what_it_leads_to() {
    let Place { root, protected, .. } = &place();
    symlink(root.join("data"), root.join("src/link")).unwrap();
    symlink("link/token", root.join("src/link-to-link")).unwrap();
    symlink("../..", root.join("src/deep/up")).unwrap();
    fs::hard_link(root.join("data/token"), root.join("src/hard")).unwrap();
    fs::hard_link(root.join("data/home/state/file"), root.join("src/hard-deep")).unwrap();
    fs::hard_link(root.join("real.toml"), root.join("src/hard.toml")).unwrap();
    // A file with several names, none of them protected.
    fs::hard_link(root.join("src/file"), root.join("src/own-hard")).unwrap();
    let denied = [
        "data",
        "data/",
        "data/token",
        "data//token",
        "data/./token",
        "./data/token",
        "src/../data/token",
        "src/deep/up/data/token",
        "src/gone/../../data/token",
        "src/gone/../link/token",
        "src/link",
        "src/link/token",
        "src/link-to-link",
        "src/link/gone",
        "src/link/home/state/file",
        "data/gone",
        "data/token/below",
        "data/home",
        "data/home/state/file",
        "data/home/worktree/../state",
        "data/home/worktree/../../token",
        "longshore.toml",
        "real.toml",
        "src/../real.toml",
        "src/hard",
        "src/hard-deep",
        "src/hard.toml",
        "later",
        "later/file",
        "src/../later",
    ];
    for spelling in denied {
        assert!(protected.deny(&root.join(spelling)), "{spelling} is open");
    }
    let absolute = ["/proc/self/environ", "/proc/1/cmdline", "/proc/gone"];
    for spelling in absolute {
        assert!(protected.deny(Path::new(spelling)), "{spelling} is open");
    }
    let through_proc = format!("/proc/self/root{}/data/token", root.display());
    assert!(protected.deny(Path::new(&through_proc)));
    let open = [
        "",
        "src",
        "src/file",
        "src/own-hard",
        "src/gone",
        "src/gone/data/token",
        "database",
        "data.toml",
        "data/home/worktree",
        "data/home/worktree/one/file",
        "data/home/worktree/gone",
        "Data/token",
        "src/later",
    ];
    for spelling in open {
        assert!(!protected.deny(&root.join(spelling)), "{spelling} is denied");
    }
}

#[test]
fn a_link_that_changes_protects_its_new_target() {
    let Place { root, protected, .. } = &place();
    fs::write(root.join("new.toml"), "x").unwrap();
    assert!(!protected.deny(&root.join("new.toml")));
    fs::remove_file(root.join("longshore.toml")).unwrap();
    symlink("new.toml", root.join("longshore.toml")).unwrap();
    assert!(protected.deny(&root.join("new.toml")) && protected.deny(&root.join("real.toml")));
}

#[test]
fn a_directory_above_a_secret_is_known() {
    let Place { root, protected, .. } = &place();
    symlink(root, root.join("src/link")).unwrap();
    let cases = [
        ("", true),
        ("data", true),
        ("src/link", true),
        ("..", true),
        ("src", false),
        ("database", false),
        ("data/home/worktree/one", false),
    ];
    for (directory, expected) in cases {
        assert_eq!(protected.are_within(&root.join(directory)), expected, "{directory}");
    }
}
