//! Files that a turn wrote.

use std::os::unix::fs::symlink;

use longshore_model::BlockKind;
use longshore_testkit::fake_opencode::{Gate, Play, Tool, Turn as Script};
use serde_json::json;

use super::stage::start_root;
use super::*;

/// The reported files: name, media type and content.
fn files(events: &[AgentEvent]) -> Vec<(String, String, Vec<u8>)> {
    let file = |event: &AgentEvent| match event {
        AgentEvent::File { block, file } => {
            assert_eq!(block.kind, BlockKind::File);
            assert!(
                block.id.as_str().starts_with("written.") && block.id.as_str().len() == 24,
                "{}",
                block.id
            );
            Some((file.name.clone().unwrap_or_default(), file.media_type.clone(), file.bytes.to_vec()))
        }
        _ => None,
    };
    events.iter().filter_map(file).collect()
}

fn bench(written_files: bool) -> Bench {
    let change = |config: &mut OpenCodeConfig| config.written_files = written_files;
    Bench::with(FakeOpenCode::start(), None, Duration::from_secs(5), change)
}

#[tokio::test]
async fn written_files_are_reported_before_the_end_if_that_is_enabled() {
    let notes = ("notes.txt".to_owned(), "text/plain".to_owned(), b"written by a tool\n".to_vec());
    for (enabled, expected) in [(true, vec![notes]), (false, vec![])] {
        let bench = bench(enabled);
        bench.fake.play(&Play::new("tool_write"));
        let session = bench.session().await;
        std::fs::write(bench.fake.workspace().join("notes.txt"), "written by a tool\n").unwrap();
        let (prompt, turn) = bench.start(&session, "go").await.unwrap();
        let events = all(turn).await;
        assert_eq!(files(&events), expected);
        if enabled {
            assert!(matches!(events[events.len() - 2], AgentEvent::File { .. }), "{events:?}");
        }
        // Resumed with the file in the log.
        let artifacts = events.iter().filter_map(|event| match event {
            AgentEvent::File { block, .. } => Some(longshore_model::Artifact {
                id: block.id.clone(),
                kind: block.kind,
                source_message: None,
                name: None,
                description: None,
                parts: vec![longshore_model::Part::text("")],
                extensions: Vec::new(),
                metadata: None,
            }),
            _ => None,
        });
        let past = Resume { artifacts: artifacts.collect(), ..Resume::default() };
        assert_eq!(files(&all(bench.resume(&session, &prompt, past).await).await), []);
        bench.stop().await;
    }
}

#[tokio::test]
async fn paths_that_are_no_file_inside_the_directory_are_left_out() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "not yours").unwrap();
    for what in ["missing", "a directory", "a link to the outside", "too large"] {
        let bench = bench(true);
        bench.fake.play(&Play::new("tool_write"));
        let path = bench.fake.workspace().join("notes.txt");
        match what {
            "a directory" => std::fs::create_dir(&path).unwrap(),
            "a link to the outside" => symlink(&secret, &path).unwrap(),
            "too large" => std::fs::File::create(&path).unwrap().set_len(25 * 1024 * 1024 + 1).unwrap(),
            _ => {}
        }
        let events = bench.run("go").await;
        assert_eq!(files(&events), [], "{what}");
        assert_eq!(outcome(&events), "completed", "{what}");
        bench.stop().await;
    }
}

#[tokio::test]
async fn files_of_the_gateway_are_left_out() {
    for what in ["the file itself", "a hard link", "a link", "another file"] {
        let fake = FakeOpenCode::start();
        let secrets = fake.workspace().join("secrets");
        let path = fake.workspace().join("notes.txt");
        std::fs::create_dir(&secrets).unwrap();
        std::fs::write(secrets.join("token"), "s3cret").unwrap();
        match what {
            "a hard link" => std::fs::hard_link(secrets.join("token"), &path).unwrap(),
            "a link" => symlink("secrets/token", &path).unwrap(),
            _ => std::fs::write(&path, "notes").unwrap(),
        }
        let protected = if what == "the file itself" { path } else { secrets };
        let change = |config: &mut OpenCodeConfig| {
            config.written_files = true;
            config.protected = Arc::new(longshore_engine::ProtectedPaths::new([protected]));
        };
        let bench = Bench::with(fake, None, Duration::from_secs(5), change);
        bench.fake.play(&Play::new("tool_write"));
        let events = bench.run("go").await;
        assert_eq!(files(&events).len(), usize::from(what == "another file"), "{what}");
        bench.stop().await;
    }
}

/// A tool that reads a picture returns its content.
#[tokio::test]
async fn a_tool_hands_over_no_file_of_the_gateway() {
    for (path, is_withheld) in [
        ("secrets/token.png", true),
        ("./deeper/../secrets/token.png", true),
        ("a_link.png", true),
        ("a_hard_link.png", true),
        ("picture.png", false),
    ] {
        let fake = FakeOpenCode::start();
        let (workspace, secrets) = (fake.workspace().to_owned(), fake.workspace().join("secrets"));
        std::fs::create_dir(&secrets).unwrap();
        std::fs::create_dir(workspace.join("deeper")).unwrap();
        std::fs::write(secrets.join("token.png"), "s3cret").unwrap();
        std::fs::write(workspace.join("picture.png"), "a picture").unwrap();
        symlink("secrets/token.png", workspace.join("a_link.png")).unwrap();
        std::fs::hard_link(secrets.join("token.png"), workspace.join("a_hard_link.png")).unwrap();
        let change = |config: &mut OpenCodeConfig| {
            config.protected = Arc::new(longshore_engine::ProtectedPaths::new([secrets]));
        };
        let bench = Bench::with(fake, None, Duration::from_secs(5), change);
        for path in [path.to_owned(), workspace.join(path).to_str().expect("UTF-8").to_owned()] {
            let tool = Tool::new("read", json!({"filePath": path}), "Image read successfully");
            let tool = tool.handing("x.png", "image/png", b"s3cret");
            bench.fake.queue(Script::new().tool(tool).text("done", 1));
            let events = bench.run("go").await;
            let has = |found: fn(&AgentEvent) -> bool| events.iter().any(found);
            let withheld = has(|event| matches!(event, AgentEvent::WithheldFile { .. }));
            let handed_over = has(|event| matches!(event, AgentEvent::File { .. }));
            assert_eq!((withheld, handed_over), (is_withheld, !is_withheld), "{path}: {events:?}");
        }
        bench.stop().await;
    }
}

/// Emits a tool call of the current step that reports these paths as written.
async fn write_files(bench: &Bench, session: &Session, step: &str, names: &[&str]) {
    let path = |name: &&str| json!({"filePath": bench.fake.workspace().join(name).to_str().expect("UTF-8")});
    let files: Vec<_> = names.iter().map(path).collect();
    let state = json!({"status": "completed", "input": {}, "output": "", "metadata": {"files": files}});
    let part = json!({"id": "prt_w", "messageID": step, "type": "tool", "tool": "apply_patch", "callID": "call_w",
        "state": state});
    bench.fake.emit("message.part.updated", json!({"sessionID": session.id.as_str(), "part": part})).await;
}

/// Files may be large and many.
#[tokio::test]
async fn a_file_is_read_only_after_the_engine_took_the_one_before() {
    let bench = bench(true);
    let gate = Gate::new();
    let (session, _, mut turn, step) = start_root(&bench, &gate).await;
    let names = ["a", "b", "c"];
    for name in names {
        std::fs::write(bench.fake.workspace().join(name), "early").unwrap();
    }
    write_files(&bench, &session, &step, &names).await;
    gate.open();
    let mut events = until(&mut turn, |event| matches!(event, AgentEvent::File { .. })).await;
    // There is no event to wait for when nothing happens.
    tokio::time::sleep(Duration::from_millis(300)).await;
    std::fs::write(bench.fake.workspace().join("c"), "late").unwrap();
    events.extend(all(turn).await);
    let found: Vec<_> = files(&events).into_iter().map(|(name, _, bytes)| (name, bytes)).collect();
    let expected = [("a", "early"), ("b", "early"), ("c", "late")];
    assert_eq!(found, expected.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())));
    bench.stop().await;
}
