use std::process::{Child, Command, Stdio};

use longshore_processes::{MARKER, new_marker};

use super::*;

/// A process in its own group that ends only when it is killed. Dropping it kills and reaps it.
struct Sleeper(Child);

impl Sleeper {
    fn start(marker: Option<&str>) -> Self {
        let mut command = Command::new("sleep");
        command.arg("1000").stdin(Stdio::null());
        if let Some(marker) = marker {
            command.env(MARKER, marker);
        }
        Self(std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn().unwrap())
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_agent_of_a_killed_gateway_is_ended_with_what_it_started() {
    let records = tempfile::tempdir().unwrap();
    end_left_behind(&records.path().join("none")).await.expect("nothing was left");
    // One process has the id in the record. The other has only the marker, like a tool that left the group and lost its parent.
    let mut record = Record::new(records.path(), new_marker());
    let (mut agent, mut tool) = (Sleeper::start(None), Sleeper::start(Some(&record.content.marker)));
    record.note(agent.0.id()).unwrap();
    // A gateway that was killed before it knew the process id left a record with only the marker.
    let other = Record::new(records.path(), new_marker());
    other.write().unwrap();
    let mut unknown = Sleeper::start(Some(&other.content.marker));
    end_left_behind(records.path()).await.unwrap();
    assert!(!agent.is_running() && !tool.is_running() && !unknown.is_running());
    assert_eq!(std::fs::read_dir(records.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_process_that_got_the_same_id_is_left_alone() {
    let records = tempfile::tempdir().unwrap();
    let mut other = Sleeper::start(None);
    let mut record = Record::new(records.path(), new_marker());
    record.note(other.0.id()).unwrap();
    let written: serde_json::Value = serde_json::from_slice(&std::fs::read(&record.file).unwrap()).unwrap();
    for (field, value) in [("start_time", serde_json::json!(1)), ("boot", "another".into())] {
        let mut changed = written.clone();
        changed[field] = value;
        std::fs::write(&record.file, changed.to_string()).unwrap();
        end_left_behind(records.path()).await.unwrap();
        assert!(other.is_running(), "{field}");
    }
}

#[tokio::test]
async fn a_damaged_record_does_not_prevent_the_start() {
    let records = tempfile::tempdir().unwrap();
    std::fs::write(records.path().join("x.new"), "{").unwrap();
    end_left_behind(records.path()).await.unwrap();
    assert_eq!(std::fs::read_dir(records.path()).unwrap().count(), 0);
}
