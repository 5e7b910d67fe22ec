//! Messages that are refused before OpenCode sees them: each case over every way to send a message, with its exact
//! error, without a request to OpenCode, without a task, and without paths or secrets in the answer.

use std::os::unix::fs::symlink;

use longshore_edge::Extension;
use longshore_testkit::fake_opencode::{FakeOpenCode, PROVIDER_KEY};
use longshore_testkit::raw::{Answer, Frames, RawClient, message};
use serde_json::{Value, json};

use crate::common::{OTHER_TOKEN, Options, TOKEN, TestGateway};
use crate::replay::fixture::Fixture;

const BINDING: &str = "urn:opencode-a2a:extension:session-binding:v1";
const MODEL: &str = "urn:opencode-a2a:extension:model-selection:v1";
const HINTS: &str = "urn:opencode-a2a:extension:stream-hints:v1";

const DIRECTORY: &str = "metadata.opencode.directory";
const SESSION: &str = "metadata.shared.session.id";
const PART: &str = "message.parts[0]";

const MIB: usize = 1024 * 1024;

/// An error: the code of JSON-RPC, the status of REST, the reason.
type Row = (i64, u16, &'static str);

const INVALID: Row = (-32602, 400, "INVALID_PARAMS");
const NOT_TAKEN: Row = (-32005, 400, "CONTENT_TYPE_NOT_SUPPORTED");
const NOT_ACTIVATED: Row = (-32004, 400, "EXTENSION_NEGOTIATION_REQUIRED");
const REQUIRED: Row = (-32008, 400, "EXTENSION_SUPPORT_REQUIRED");

/// A message and its expected error.
#[derive(Debug)]
struct Case {
    params: Value,
    error: Row,
    field: String,
}

/// Parameters that are refused as invalid because of this field.
fn invalid(field: &str, params: Value) -> Case {
    Case { params, error: INVALID, field: field.to_owned() }
}

fn with_metadata(metadata: Value) -> Value {
    let mut params = message("message-refused", "go");
    params["metadata"] = metadata;
    params
}

fn parts(parts: Value) -> Value {
    let mut params = message("message-refused", "go");
    params["message"]["parts"] = parts;
    params
}

fn bad_part(part: Value) -> Case {
    invalid(PART, parts(Value::Array(vec![part])))
}

fn wrong_type(part: Value) -> Case {
    Case { params: parts(Value::Array(vec![part])), error: NOT_TAKEN, field: PART.to_owned() }
}

const LISTS: [&str; 3] = ["/experimental/workspace", "/agent", "/config/providers"];

/// A gateway that has answered one message, so that it knows the models and agents of OpenCode, and a directory outside
/// its workspace.
struct GuardedWorkspace {
    fixture: Fixture,
    outside: tempfile::TempDir,
    /// The context of that message.
    context: String,
}

impl GuardedWorkspace {
    async fn new() -> Self {
        Self::with(Options::default()).await
    }

    async fn with(options: Options) -> Self {
        let fake = FakeOpenCode::start();
        let outside = tempfile::tempdir().expect("a test needs a directory");
        fake.project(|project| {
            let directory = fake.directory().to_owned();
            project.workspaces.push(("wrk_known".to_owned(), directory));
        });
        let gateway = TestGateway::start_with(&fake, options).await;
        let fixture = Fixture { fake, gateway };
        let mut params = with_metadata(json!({
            "shared": {"model": {"providerID": "scripted", "modelID": "scripted"}},
            "opencode": {"agent": "build", "workspace": {"id": "wrk_known"}},
        }));
        params["message"]["messageId"] = "message-good".into();
        let good =
            fixture.gateway.client.activating(&[BINDING, MODEL, HINTS]).rpc("SendMessage", params).await;
        let task = &good.result()["task"];
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task:#}");
        let context = task["contextId"].as_str().expect("a task has a context").to_owned();
        fixture.fake.wait_until_idle().await;
        Self { fixture, outside, context }
    }

    fn client(&self) -> RawClient {
        self.fixture.client().activating(&[BINDING, MODEL])
    }

    fn inside(&self, name: &str) -> String {
        format!("{}/{name}", self.fixture.fake.directory())
    }

    fn outside(&self, name: &str) -> String {
        let outside = std::fs::canonicalize(self.outside.path()).expect("the directory was just made");
        outside.join(name).to_str().expect("temporary paths are text").to_owned()
    }

    /// Creates files, directories and links for the cases.
    fn furnish(&self) {
        make(&self.inside("in"));
        make(&self.inside("%41"));
        make(&self.outside("there"));
        make(&format!("{}-sibling", self.fixture.fake.directory()));
        write(&self.inside("notes.txt"), "inside");
        write(&self.outside("there/secret.txt"), "outside");
        link(&self.outside("there"), &self.inside("way-out"));
        link(&self.outside("there/secret.txt"), &self.inside("secret-link"));
        link("/", &self.inside("in/top"));
        link("loop", &self.inside("loop"));
    }

    /// Sends the message in every way, and checks the error and that nothing else happened.
    async fn assert_refused(&self, client: &RawClient, case: &Case) {
        let (tasks, asked) = (self.tasks().await, self.fixture.fake.log().len());
        let shown: String = case.params.to_string().chars().take(400).collect();
        let (rpc, rest) = (|| case.params.clone(), Some(&case.params));
        let answers = [
            ("SendMessage", true, client.rpc("SendMessage", rpc()).await),
            (
                "SendStreamingMessage",
                true,
                no_stream(client.rpc_stream("SendStreamingMessage", rpc(), None).await),
            ),
            ("/message:send", false, client.rest("POST", "/message:send", rest).await),
            (
                "/message:stream",
                false,
                no_stream(client.rest_stream("POST", "/message:stream", rest, None).await),
            ),
        ];
        for (way, is_rpc, answer) in answers {
            let (code, status, reason) = case.error;
            let about = format!("{way} of {shown}: {}", answer.body);
            let error = &answer.body["error"];
            let expected = if is_rpc { (200, code) } else { (status, i64::from(status)) };
            assert_eq!((answer.status, error["code"].as_i64()), (expected.0, Some(expected.1)), "{about}");
            let details = &error[if is_rpc { "data" } else { "details" }];
            assert_eq!(details[0]["reason"], reason, "{about}");
            assert_eq!(field(details), case.field, "{about}");
            self.assert_tells_nothing(&answer, &about);
        }
        // The gateway may read these lists again at any time: for a name that it does not know after seconds.
        let mut log = self.fixture.fake.log().split_off(asked);
        log.retain(|request| !LISTS.contains(&request.path.as_str()));
        assert_eq!(log, [], "OpenCode was asked for {shown}");
        assert_eq!(self.tasks().await, tasks, "a task was made for {shown}");
    }

    /// Fails if the answer contains a path of the machine or a secret.
    fn assert_tells_nothing(&self, answer: &Answer, about: &str) {
        let reported = answer.body.to_string();
        let fake = &self.fixture.fake;
        for secret in [fake.directory(), &self.outside(""), PROVIDER_KEY, TOKEN, OTHER_TOKEN, &fake.url()] {
            assert!(!reported.contains(secret.trim_end_matches('/')), "{secret} in {about}");
        }
    }

    /// How many tasks each principal has.
    async fn tasks(&self) -> [Value; 2] {
        let gateway = &self.fixture.gateway;
        let mut totals = [Value::Null, Value::Null];
        for (total, client) in totals.iter_mut().zip([&gateway.client, &gateway.other_client]) {
            *total = client.rpc("ListTasks", json!({})).await.result()["totalSize"].clone();
        }
        totals
    }

    async fn assert_all_refused(&self, cases: &[Case]) {
        for case in cases {
            self.assert_refused(&self.client(), case).await;
        }
    }
}

impl Drop for GuardedWorkspace {
    fn drop(&mut self) {
        // This directory is beside the workspace, which removes only itself.
        let _ = std::fs::remove_dir(format!("{}-sibling", self.fixture.fake.directory()));
    }
}

/// The answer of a refused stream.
fn no_stream(opened: Result<Frames, Answer>) -> Answer {
    opened.expect_err("what is refused opens no stream")
}

/// The field that the details of an error name; empty: none.
fn field(details: &Value) -> String {
    let info = &details[0]["metadata"];
    let named = details[1]["fieldViolations"][0]["field"].as_str();
    named.or(info["field"].as_str()).or(info["fields"].as_str()).unwrap_or_default().to_owned()
}

fn make(directory: &str) {
    std::fs::create_dir_all(directory).expect("a directory can be made");
}

fn write(file: &str, text: impl AsRef<[u8]>) {
    std::fs::write(file, text).expect("a file can be written");
}

fn link(to: &str, name: &str) {
    symlink(to, name).expect("a link can be made");
}

/// One message for each check before OpenCode. The crates test every case of their own checks: `engine::intake` the parts,
/// `tests/admit` of the driver the directories and names, `wire::read` the metadata and output modes.
#[tokio::test]
async fn each_check_refuses_a_message_in_every_way_to_send_it() {
    let mut options = Options::default();
    options.engine.intake.data_parts = false;
    let workspace = GuardedWorkspace::with(options).await;
    workspace.furnish();
    let directory = |directory: &str| with_metadata(json!({"opencode": {"directory": directory}}));
    // The alias needs no extension, and is checked as well.
    let alias = json!({"iac_code": {"cwd": workspace.outside("there")}});
    let mut alias_in_message = message("message-refused", "go");
    alias_in_message["message"]["metadata"] = alias.clone();
    // A context keeps its first directory.
    let mut elsewhere = directory("in");
    elsewhere["message"]["contextId"] = workspace.context.as_str().into();
    let file = |path: &str| bad_part(json!({"url": format!("file://{path}")}));
    let accepting = |modes: Value| {
        let mut params = message("message-refused", "go");
        params["configuration"] = json!({"acceptedOutputModes": modes});
        params
    };
    let opencode = |options: Value| with_metadata(json!({"opencode": options}));
    let model = |model: Value| with_metadata(json!({"shared": {"model": model}}));
    let cases = [
        invalid(DIRECTORY, directory("..")),
        invalid(DIRECTORY, directory("way-out")),
        invalid(DIRECTORY, directory("nowhere")),
        invalid(DIRECTORY, directory("%2e%2e")),
        invalid(DIRECTORY, directory("in\n")),
        invalid(DIRECTORY, with_metadata(alias)),
        invalid(DIRECTORY, alias_in_message),
        invalid(DIRECTORY, elsewhere),
        file("/etc/hostname"),
        file(&workspace.outside("there/secret.txt")),
        file(&workspace.inside("secret-link")),
        file(&workspace.inside("..%2f..%2fetc%2fhostname")),
        bad_part(json!({"url": "https://example.com/x.png", "mediaType": "image/png"})),
        bad_part(json!({"text": "x".repeat(MIB + 1)})),
        wrong_type(json!({"raw": "QUJD", "mediaType": "video/mp4"})),
        wrong_type(json!({"data": {}})),
        invalid("message.parts", parts((0..101).map(|_| json!({"text": "x"})).collect())),
        invalid("metadata.shared.model", model(json!({"providerID": "scripted", "modelID": "nothing"}))),
        invalid("metadata.shared.model.modelID", model(json!({"providerID": "scripted"}))),
        invalid("metadata.opencode.agent", opencode(json!({"agent": "nobody"}))),
        invalid("metadata.opencode.workspace.id", opencode(json!({"workspace": {"id": "wrk_unknown"}}))),
        invalid("metadata.opencode.format.type", opencode(json!({"format": {"type": "xml"}}))),
        invalid("metadata.shared.delivery", with_metadata(json!({"shared": {"delivery": "now"}}))),
        Case { params: accepting(json!(["image/png"])), error: NOT_TAKEN, field: String::new() },
        invalid("configuration.acceptedOutputModes[0]", accepting(json!(["nonsense"]))),
    ];
    for case in &cases {
        // This call fills the caches of the directory.
        workspace.client().rpc("SendMessage", case.params.clone()).await;
        workspace.assert_refused(&workspace.client(), case).await;
    }
}

#[tokio::test]
async fn sessions_of_other_callers_are_refused() {
    let workspace = GuardedWorkspace::new().await;
    let theirs =
        workspace.fixture.gateway.other_client.rpc("SendMessage", message("message-theirs", "go")).await;
    assert_eq!(theirs.result()["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    workspace.fixture.fake.wait_until_idle().await;
    let sessions = workspace.fixture.fake.sessions();
    let [own, foreign] = sessions.as_slice() else { panic!("two sessions: {sessions:?}") };
    // An unowned session.
    workspace.fixture.fake.add_session("ses_nobodys", workspace.fixture.fake.directory());
    let named = |id: &str| with_metadata(json!({"shared": {"session": {"id": id}}}));
    for id in
        [foreign, "ses_nobodys", "ses_unknown", "abc", "msg_0123456789ab", "status", &format!("{own}/abort?")]
    {
        workspace.assert_all_refused(&[invalid(SESSION, named(id))]).await;
    }
    // A context keeps its session, even if the other session belongs to the caller.
    let mut other = named(own);
    other["message"]["contextId"] = "another".into();
    workspace
        .client()
        .rpc("SendMessage", {
            let mut good = message("message-another", "go");
            good["message"]["contextId"] = "another".into();
            good
        })
        .await
        .result();
    workspace.fixture.fake.wait_until_idle().await;
    workspace.assert_all_refused(&[invalid(SESSION, other)]).await;
}

#[tokio::test]
async fn metadata_of_inactive_extensions_is_refused() {
    let workspace = GuardedWorkspace::new().await;
    workspace.furnish();
    let gated = |fields: &str, metadata: Value| Case {
        params: with_metadata(metadata),
        error: NOT_ACTIVATED,
        field: fields.to_owned(),
    };
    let model = json!({"shared": {"model": {"providerID": "scripted", "modelID": "scripted"}}});
    let model_fields = r#"["metadata.shared.model.providerID","metadata.shared.model.modelID"]"#;
    let cases = [
        gated(r#"["metadata.shared.session.id"]"#, json!({"shared": {"session": {"id": "ses_1"}}})),
        gated(r#"["metadata.opencode.directory"]"#, json!({"opencode": {"directory": "in"}})),
        gated(
            r#"["metadata.opencode.workspace.id"]"#,
            json!({"opencode": {"workspace": {"id": "wrk_known"}}}),
        ),
        gated(model_fields, model.clone()),
    ];
    for case in &cases {
        workspace.assert_refused(workspace.fixture.client(), case).await;
    }
    // Another extension than the required one.
    workspace.assert_refused(&workspace.fixture.client().activating(&[BINDING]), &cases[3]).await;
    workspace.assert_refused(&workspace.fixture.client().activating(&[MODEL, HINTS]), &cases[1]).await;
    let mut in_message = message("message-refused", "go");
    in_message["message"]["metadata"] = model;
    let fields = model_fields.replace("metadata.", "message.metadata.");
    let case = Case { params: in_message, error: NOT_ACTIVATED, field: fields };
    workspace.assert_refused(workspace.fixture.client(), &case).await;
}

#[tokio::test]
async fn messages_without_a_required_extension_are_refused() {
    let mut options = Options::default();
    options.deployment.required_extensions = vec![Extension::StreamHints];
    let fake = FakeOpenCode::start();
    let gateway = TestGateway::start_with(&fake, options).await;
    let outside = tempfile::tempdir().expect("a test needs a directory");
    let reported = gateway.client.activating(&[HINTS]);
    let good = reported.rpc("SendMessage", message("message-good", "go")).await;
    let context = good.result()["task"]["contextId"].as_str().expect("an id").to_owned();
    fake.wait_until_idle().await;
    let before = fake.log().len();
    let workspace = GuardedWorkspace { fixture: Fixture { fake, gateway }, outside, context };
    let params = message("message-refused", "go");
    for client in [workspace.fixture.client().clone(), workspace.client()] {
        let (rpc, rest) = (
            client.rpc("SendMessage", params.clone()).await,
            client.rest("POST", "/message:send", Some(&params)).await,
        );
        for (answer, status, code, details) in
            [(rpc, 200, REQUIRED.0, "data"), (rest, REQUIRED.1, i64::from(REQUIRED.1), "details")]
        {
            let error = &answer.body["error"];
            assert_eq!((answer.status, error["code"].as_i64()), (status, Some(code)), "{}", answer.body);
            assert_eq!(error[details][0]["reason"], REQUIRED.2, "{}", answer.body);
            assert!(answer.body.to_string().contains(HINTS), "the missing one is named: {}", answer.body);
            workspace.assert_tells_nothing(&answer, "without a required extension");
        }
    }
    assert_eq!(workspace.fixture.fake.log()[before..], [], "OpenCode was asked");
    let listed = reported.rpc("ListTasks", json!({})).await;
    assert_eq!(listed.result()["totalSize"], 1);
}
