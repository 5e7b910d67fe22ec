use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn take_for(path: &Path, kind: &str, workspace: &Path) -> anyhow::Result<DataDir> {
    DataDir::take(path)?.check_owner(kind, workspace)
}

pub(super) fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn only_one_process_at_a_time_holds_a_data_directory() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("data");
    let first = DataDir::take(&path).unwrap();
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("lock")), 0o600);
    let refused = DataDir::take(&path).unwrap_err().to_string();
    let expected = format!("a gateway (process {}) already uses the data directory", std::process::id());
    assert!(refused.starts_with(&expected), "{refused}");
    drop(first);
    DataDir::take(&path).unwrap();
}

#[tokio::test]
async fn a_start_waits_for_a_command_that_only_looks_at_the_lock() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("data");
    let looking = DataDir::take(&path).unwrap();
    let (taken, ()) = tokio::join!(DataDir::take_within(&path, Duration::ZERO), async { drop(looking) });
    let serving = taken.unwrap();
    let refused = DataDir::take_within(&path, Duration::ZERO).await.unwrap_err().to_string();
    assert!(refused.contains("already uses the data directory"), "{refused}");
    drop(serving);
}

#[test]
fn two_agents_never_share_a_data_directory() {
    let parent = tempfile::tempdir().unwrap();
    let cases = [
        (DEMO, "own", "was made with --demo; add --demo, or"),
        ("own", DEMO, "was made without --demo; leave --demo out, or"),
        ("own", "acp qwen", "was made for OpenCode; leave --agent out, or"),
        ("acp qwen", "own", "was made for the agent qwen; serve that agent, or"),
        ("acp qwen", "acp vibe", "was made for the agent qwen; serve that agent, or"),
    ];
    for (index, (old, new, expected)) in cases.into_iter().enumerate() {
        let path = parent.path().join(index.to_string());
        drop(take_for(&path, old, Path::new("/a")).unwrap());
        let refused = take_for(&path, new, Path::new("/a")).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
        drop(take_for(&path, old, Path::new("/a")).unwrap());
    }
}

#[test]
fn a_data_directory_serves_only_the_workspace_that_it_was_made_for() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("data");
    let ours = Path::new("/home/ada/ours \n");
    drop(take_for(&path, "own", ours).unwrap());
    for (other, allowed) in [(Path::new("/home/ada/ours"), false), (Path::new("/"), false), (ours, true)] {
        match take_for(&path, "own", other) {
            Ok(_) => assert!(allowed, "{} was accepted", other.display()),
            Err(refused) => {
                let expected =
                    format!("belongs to the workspace {}, not to {};", ours.display(), other.display());
                assert!(!allowed && refused.to_string().contains(&expected), "{refused}");
            }
        }
    }
    assert_eq!(mode(&path.join("workspace")), 0o600);
}

#[test]
fn a_store_does_not_take_the_name_of_another_file_of_the_directory() {
    let parent = tempfile::tempdir().unwrap();
    let data_dir = DataDir::take(&parent.path().join("data")).unwrap();
    for name in ["store", "store.new", "token", "lock", "kind", "workspace", "address", ".gitignore"] {
        let refused = data_dir.check_store(&data_dir.path().join(name)).unwrap_err().to_string();
        assert!(refused.contains("choose another name with --database"), "{name}: {refused}");
    }
    for path in [data_dir.path().join("longshore.db"), parent.path().join("store")] {
        data_dir.check_store(&path).unwrap();
    }
}

#[test]
fn a_refused_start_leaves_the_data_directory_unchanged() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("data");
    drop(DataDir::take(&path).unwrap());
    write_private(&path.join("kind"), DEMO).unwrap();
    take_for(&path, "own", Path::new("/a")).unwrap_err();
    assert!(!path.join("workspace").exists(), "a refused start wrote into the directory");
}

#[test]
fn a_store_that_was_used_and_is_missing_or_empty_is_refused() {
    let parent = tempfile::tempdir().unwrap();
    let data_dir = DataDir::take(&parent.path().join("data")).unwrap();
    let (inside, outside) = (data_dir.path().join("longshore.db"), parent.path().join("tasks.db"));
    for store in [&inside, &outside] {
        data_dir.check_store(store).unwrap();
        // An empty file, as a first start that crashed leaves it.
        std::fs::write(store, "").unwrap();
        data_dir.check_store(store).unwrap();
        data_dir.note_store(store);
        let refused = data_dir.check_store(store).unwrap_err().to_string();
        assert!(refused.contains("is empty, and a gateway has kept tasks in it before"), "{refused}");
        std::fs::remove_file(store).unwrap();
        let refused = data_dir.check_store(store).unwrap_err().to_string();
        assert!(refused.contains("is missing, and a gateway"), "{refused}");
        std::fs::write(store, "something").unwrap();
        data_dir.check_store(store).unwrap();
    }
    // A missing store is allowed if the gateway has last used another one.
    std::fs::remove_file(&inside).unwrap();
    data_dir.check_store(&inside).unwrap();
}
