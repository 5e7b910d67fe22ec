//! Files that a turn wrote.

use std::os::unix::fs::symlink;

use longshore_model::BlockKind;
use longshore_testkit::fake_opencode::{Gate, Play};
use serde_json::json;

use super::stage::on_stage;
use super::*;

/// Files in words.
fn told(events: &[AgentEvent]) -> Vec<(String, String, Vec<u8>)> {
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
async fn the_files_that_a_turn_wrote_come_before_its_end_if_they_are_wanted() {
    let notes = ("notes.txt".to_owned(), "text/plain".to_owned(), b"written by a tool\n".to_vec());
    for (wanted, expected) in [(true, vec![notes]), (false, vec![])] {
        let bench = bench(wanted);
        bench.fake.play(&Play::new("tool_write"));
        let session = bench.session().await;
        std::fs::write(bench.fake.workspace().join("notes.txt"), "written by a tool\n").unwrap();
        let (prompt, turn) = bench.start(&session, "go").await.unwrap();
        let events = all(turn).await;
        assert_eq!(told(&events), expected);
        if wanted {
            assert!(matches!(events[events.len() - 2], AgentEvent::File { .. }), "{events:?}");
        }
        // Taken up again with the file in the log.
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
        let resume = Some(Resume { artifacts: artifacts.collect(), ..Resume::default() });
        let turn = bench.agent.start_turn(request(&session, &prompt, "go", resume)).await.unwrap();
        assert_eq!(told(&all(turn).await), []);
        bench.stop().await;
    }
}

#[tokio::test]
async fn what_is_no_file_of_the_directory_is_left_out() {
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
        assert_eq!(told(&events), [], "{what}");
        assert_eq!(outcome(&events), "completed", "{what}");
        bench.stop().await;
    }
}

/// A tool call of the step that is on, which says that it wrote these.
async fn wrote(bench: &Bench, session: &Session, step: &str, names: &[&str]) {
    let path = |name: &&str| json!({"filePath": bench.fake.workspace().join(name).to_str().expect("UTF-8")});
    let files: Vec<_> = names.iter().map(path).collect();
    let state = json!({"status": "completed", "input": {}, "output": "", "metadata": {"files": files}});
    let part = json!({"id": "prt_w", "messageID": step, "type": "tool", "tool": "apply_patch", "callID": "call_w",
        "state": state});
    bench.fake.emit("message.part.updated", json!({"sessionID": session.id.as_str(), "part": part})).await;
}

/// They may be large, and many.
#[tokio::test]
async fn no_file_is_read_before_the_engine_took_the_one_before() {
    let bench = bench(true);
    let gate = Gate::new();
    let (session, _, mut turn, step) = on_stage(&bench, &gate).await;
    let names = ["a", "b", "c"];
    for name in names {
        std::fs::write(bench.fake.workspace().join(name), "early").unwrap();
    }
    wrote(&bench, &session, &step, &names).await;
    gate.open();
    let mut events = until(&mut turn, |event| matches!(event, AgentEvent::File { .. })).await;
    // Nothing announces that nothing happens.
    tokio::time::sleep(Duration::from_millis(300)).await;
    std::fs::write(bench.fake.workspace().join("c"), "late").unwrap();
    events.extend(all(turn).await);
    let told: Vec<_> = told(&events).into_iter().map(|(name, _, bytes)| (name, bytes)).collect();
    let expected = [("a", "early"), ("b", "early"), ("c", "late")];
    assert_eq!(told, expected.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())));
    bench.stop().await;
}
