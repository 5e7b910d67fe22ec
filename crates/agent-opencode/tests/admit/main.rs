//! Admission of what callers request, over HTTP, against a fake OpenCode that records its requests.

mod directories;
mod models;
mod sessions;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_agent_opencode::{
    DirectoryLimits, Endpoint, OpenCode, OpenCodeConfig, PromptRules, UPSTREAM_CALLS, WATCH_DIRECTORIES,
    Watchdog,
};
use longshore_engine::port::{Admission, Agent, Session, SessionFinder, SystemClock, UnfollowedTurns};
use longshore_engine::{ProtectedPaths, Tasks};
use longshore_model::{Error, ErrorKind, ModelName, PromptOptions, SessionId};
use longshore_testkit::fake_opencode::{FakeOpenCode, PROVIDER_KEY};

/// A fake OpenCode and a driver that uses it.
struct Fixture {
    fake: FakeOpenCode,
    agent: OpenCode,
    /// A directory outside the fake's workspace.
    outside_dir: tempfile::TempDir,
    tasks: Tasks,
}

impl Fixture {
    fn new() -> Self {
        Self::with(true, PromptOptions::default())
    }

    fn with(allow_directory_override: bool, defaults: PromptOptions) -> Self {
        let (fake, tasks) = (FakeOpenCode::start(), Tasks::new());
        let config = OpenCodeConfig {
            endpoint: Endpoint {
                base_url: fake.url().parse().expect("the fake has an address"),
                username: "opencode".to_owned(),
                password: None,
            },
            directory: PathBuf::from(fake.directory()),
            control_timeout: Duration::from_secs(5),
            long_timeout: None,
            stream_silence: Duration::from_secs(30),
            rules: PromptRules { defaults, ..PromptRules::default() },
            allow_directory_override,
            protected: Arc::new(ProtectedPaths::new([fake.workspace().join("secrets")])),
            watchdog: Watchdog::default(),
            written_files: false,
            upstream_calls: UPSTREAM_CALLS,
            watch_directories: WATCH_DIRECTORIES,
            directories: DirectoryLimits::default(),
            metrics: Arc::default(),
        };
        let agent =
            OpenCode::new(config, Arc::new(SystemClock), tasks.clone()).expect("a good configuration");
        Self { fake, agent, outside_dir: tempfile::tempdir().expect("a test needs a directory"), tasks }
    }

    /// A path below the root.
    fn inside(&self, name: &str) -> String {
        format!("{}/{name}", self.fake.directory())
    }

    /// A path that is not below the root.
    fn outside(&self, name: &str) -> String {
        let outside = std::fs::canonicalize(self.outside_dir.path()).expect("the directory was just made");
        outside.join(name).to_str().expect("temporary paths are text").to_owned()
    }

    /// Creates a worktree of the root's repository, as git does.
    fn make_worktree(&self, directory: &str) {
        let git = self.inside(".git/worktrees/side");
        make(&git);
        make(directory);
        std::fs::write(format!("{directory}/.git"), format!("gitdir: {git}\n")).expect("a writable file");
    }

    async fn admit(
        &self,
        directory: Option<&str>,
        workspace: Option<&str>,
        options: &PromptOptions,
    ) -> Result<String, Error> {
        let admitted = self.agent.admit(Admission { directory, workspace, current: None, options }).await;
        admitted.map(|admitted| admitted.directory)
    }

    async fn in_directory(&self, directory: &str) -> Result<String, Error> {
        self.admit(Some(directory), None, &PromptOptions::default()).await
    }

    async fn with_options(&self, options: &PromptOptions) -> Result<String, Error> {
        self.admit(None, None, options).await
    }

    /// The requested paths since the last call.
    fn asked(&self, seen: &mut usize) -> Vec<String> {
        let log = self.fake.log();
        let new = log[*seen..].iter().map(|request| request.path.clone()).collect();
        *seen = log.len();
        new
    }

    async fn stop(self) {
        tokio::time::timeout(Duration::from_mins(1), self.tasks.stop()).await.expect("all tasks stop");
    }
}

/// The field and the text of a refusal. A refusal never shows a path of the machine or a key.
fn refusal(fixture: &Fixture, refused: Result<String, Error>) -> (String, String) {
    let error = refused.expect_err("this is refused");
    assert_eq!(error.kind(), ErrorKind::InvalidParams, "{error}");
    let shown = format!("{error:?}");
    for secret in [fixture.fake.directory(), &fixture.outside(""), PROVIDER_KEY] {
        assert!(!shown.contains(secret), "{shown}");
    }
    let [violation] = error.violations() else { panic!("one field: {error:?}") };
    (violation.field.clone(), violation.description.clone())
}

fn make(directory: &str) {
    std::fs::create_dir_all(directory).expect("a directory can be created");
}

fn model(name: &str) -> PromptOptions {
    PromptOptions { model: ModelName::parse(name), ..PromptOptions::default() }
}
