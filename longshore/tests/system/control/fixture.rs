//! A gateway in front of a fake OpenCode with six callers. Every switch is on unless a test turns it off.

use std::time::Duration;

use longshore_agent_opencode::{PromptRules, UPSTREAM_CALLS};
use longshore_edge::contract::Deployment;
use longshore_edge::{Capability, Credential, Credentials, Rights};
use longshore_engine::{AskConfig, ControlRules, EngineConfig};
use longshore_testkit::fake_opencode::{FakeOpenCode, Turn};
use longshore_testkit::raw::{Answer, RawClient, message};
use longshore_wire::extension::Extension;
use longshore_wire::methods::Method;
use longshore_wire::opencode;
use longshore_wire::surface::ProtocolVersion;
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::common::{Options, TestGateway};

/// Ada has every capability. Bob has every capability but the right to claim unowned sessions. Eve has none.
pub(crate) const ADA_TOKEN: &str = "ada-token-0123456789abcdef";
pub(crate) const BOB_TOKEN: &str = "bob-token-0123456789abcdef";
pub(crate) const EVE_TOKEN: &str = "eve-token-0123456789abcdef";
/// Cal has every capability, as Ada does. Fay may only change workspaces, and Gil may only run shells.
pub(crate) const CAL_TOKEN: &str = "cal-token-0123456789abcdef";
pub(crate) const FAY_TOKEN: &str = "fay-token-0123456789abcdef";
pub(crate) const GIL_TOKEN: &str = "gil-token-0123456789abcdef";

/// The settings that differ between tests.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) session_shell: bool,
    pub(crate) workspace_mutations: bool,
    /// How many calls to OpenCode may be in flight.
    pub(crate) upstream_calls: usize,
    /// How long a call to OpenCode may take.
    pub(crate) control_timeout: Duration,
    /// How many unfinished tasks a caller may have.
    pub(crate) unfinished: usize,
    /// How long a turn waits for a session that another client keeps busy.
    pub(crate) wait_for_others: Option<Duration>,
    /// How long a call may take that makes a program or a model work.
    pub(crate) long_timeout: Option<Duration>,
    /// In how many directories the gateway watches for external turns. With 0, OpenCode gets only the requests that
    /// callers cause.
    pub(crate) watch_directories: usize,
    pub(crate) rules: PromptRules,
    pub(crate) control: ControlRules,
    pub(crate) asks: AskConfig,
    /// Bodies are written to the log.
    pub(crate) payload_log: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            session_shell: true,
            workspace_mutations: true,
            upstream_calls: UPSTREAM_CALLS,
            control_timeout: Duration::from_secs(20),
            unfinished: EngineConfig::default().unfinished_per_principal,
            wait_for_others: EngineConfig::default().wait_for_others,
            long_timeout: None,
            watch_directories: 0,
            rules: PromptRules::default(),
            control: ControlRules::default(),
            asks: AskConfig::default(),
            payload_log: false,
        }
    }
}

/// A running gateway, its fake OpenCode, and three of its callers.
#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) fake: FakeOpenCode,
    pub(crate) url: String,
    pub(crate) ada: RawClient,
    pub(crate) bob: RawClient,
    pub(crate) eve: RawClient,
    gateway: TestGateway,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        Self::start_with(Settings::default()).await
    }

    pub(crate) async fn start_with(settings: Settings) -> Self {
        let fake = FakeOpenCode::start();
        let mut engine =
            EngineConfig { control: settings.control, asks: settings.asks, ..EngineConfig::default() };
        engine.unfinished_per_principal = settings.unfinished;
        engine.wait_for_others = settings.wait_for_others;
        let deployment = Deployment {
            session_shell: settings.session_shell,
            workspace_mutations: settings.workspace_mutations,
            session_share: true,
            session_delete: true,
            ..Deployment::of_opencode()
        };
        let options = Options {
            engine,
            control_timeout: settings.control_timeout,
            long_timeout: settings.long_timeout,
            upstream_calls: settings.upstream_calls,
            watch_directories: settings.watch_directories,
            rules: settings.rules,
            deployment,
            credentials: credentials(),
            payload_log: settings.payload_log,
            ..Options::default()
        };
        let gateway = TestGateway::start_with(&fake, options).await;
        let url = gateway.url.clone();
        let ada = RawClient::new(url.clone(), ADA_TOKEN);
        Self { bob: ada.with_token(BOB_TOKEN), eve: ada.with_token(EVE_TOKEN), ada, fake, url, gateway }
    }

    /// The root of the workspace.
    pub(crate) fn root(&self) -> &str {
        self.fake.directory()
    }

    /// Adds an unowned session in the root.
    pub(crate) fn session(&self, id: &str) {
        self.session_like(id, &json!({}));
    }

    /// The same, with more fields of OpenCode.
    pub(crate) fn session_like(&self, id: &str, more: &Value) {
        let mut info = json!({
            "id": id, "slug": "calm-bay", "projectID": "9b4c0d", "directory": self.root(), "path": "",
            "title": format!("About {id}"), "version": "1.18.33", "time": {"created": 1000, "updated": 2000},
        });
        for (key, value) in more.as_object().expect("an object") {
            info[key] = value.clone();
        }
        self.fake.add_session_info(info);
    }

    /// Adds a message of a user. `info`: further fields of OpenCode.
    pub(crate) async fn message(&self, session: &str, id: &str, info: Value, parts: &[Value]) {
        let mut whole = json!({"id": id, "sessionID": session, "role": "user", "time": {"created": 5}});
        for (key, value) in info.as_object().expect("an object") {
            whole[key] = value.clone();
        }
        self.fake.emit("message.updated", json!({"sessionID": session, "info": whole})).await;
        for (index, part) in parts.iter().enumerate() {
            let mut part = part.clone();
            part["id"] = format!("prt_{}_{index}", id.trim_start_matches("msg_")).into();
            part["messageID"] = id.into();
            part["sessionID"] = session.into();
            self.fake.emit("message.part.updated", json!({"sessionID": session, "part": part})).await;
        }
    }

    /// Claims an unowned session for Ada, by a call that changes nothing else.
    pub(crate) async fn claim(&self, session: &str) {
        let unrevert = opencode::method("opencode.sessions.unrevert").expect("a row of the table");
        let answer = call(&self.ada, ProtocolVersion::V1, unrevert, &json!({"session_id": session})).await;
        answer.result();
    }

    /// A session with one ended turn that a message of this caller created.
    pub(crate) async fn session_of(&self, client: &RawClient, text: &str) -> String {
        let before = self.fake.sessions();
        self.fake.queue(Turn::new().text(&format!("Answer to {text}"), 1).finish("stop"));
        client.rpc("SendMessage", message(&format!("m-{text}"), text)).await.result();
        let mut made = self.fake.sessions();
        made.retain(|id| !before.contains(id));
        let [made] = made.as_slice() else { panic!("one session was made: {made:?}") };
        made.clone()
    }

    /// The method and the target of every request that reached OpenCode since the last time, answered or not.
    pub(crate) fn arrived(&self, seen: &mut usize) -> Vec<String> {
        let all = self.fake.received_targets();
        let new = all[*seen..].to_vec();
        *seen = all.len();
        new
    }

    /// The same, without the directory in the query.
    pub(crate) fn requests_since(&self, seen: &mut usize) -> Vec<String> {
        self.arrived(seen).iter().map(|entry| without_directory(entry)).collect()
    }

    /// Stops as a shutdown does. A task that does not stop fails the test.
    pub(crate) async fn stop(self) {
        self.gateway.stop().await;
    }
}

fn credentials() -> Credentials {
    let all = Capability::ALL;
    let but_claims = all.into_iter().filter(|capability| *capability != Capability::SessionClaim);
    let bearer = |token, principal: &str, capabilities| {
        let id = Some(format!("{principal}-credential"));
        let rights = Rights { capabilities, exposure: None, credential_id: id };
        Credential::bearer(SecretString::from(token), principal).with_rights(rights)
    };
    Credentials::builder()
        .with(bearer(ADA_TOKEN, "ada", all.into_iter().collect()))
        .with(bearer(BOB_TOKEN, "bob", but_claims.collect()))
        .with(bearer(EVE_TOKEN, "eve", [].into_iter().collect()))
        .with(bearer(CAL_TOKEN, "cal", all.into_iter().collect()))
        .with(bearer(FAY_TOKEN, "fay", [Capability::WorkspaceMutation].into_iter().collect()))
        .with(bearer(GIL_TOKEN, "gil", [Capability::SessionShell].into_iter().collect()))
        .build()
        .expect("tokens of their own are a valid set")
}

/// The methods that are about OpenCode and not about asks.
pub(crate) fn agent_methods() -> impl Iterator<Item = &'static Method> {
    let of_asks = [Extension::InteractiveInterrupt, Extension::InterruptRecovery];
    opencode::methods().filter(move |method| !of_asks.contains(&method.extension))
}

/// Whether a method is about one session.
pub(crate) fn is_about_session(method: &Method) -> bool {
    method.params.iter().any(|param| param.name == "session_id")
}

/// The client in this version, with the extension of the method activated.
pub(crate) fn client_for(client: &RawClient, version: ProtocolVersion, method: &Method) -> RawClient {
    let client = client.speaking(version.as_str());
    if version == ProtocolVersion::V1 { client.activating(&[method.extension.uri()]) } else { client }
}

pub(crate) async fn call(
    client: &RawClient,
    version: ProtocolVersion,
    method: &Method,
    params: &Value,
) -> Answer {
    client_for(client, version, method).rpc(method.name, params.clone()).await
}

/// Sends a notification. The answer must be 204 without a body.
pub(crate) async fn notify(client: &RawClient, version: ProtocolVersion, method: &Method, params: &Value) {
    let body = json!({"jsonrpc": "2.0", "method": method.name, "params": params});
    let client = client_for(client, version, method);
    let answer = client.bytes("POST", "/", "application/json", body.to_string()).await;
    let shown = format!("{} {version:?}: {}", method.name, answer.body);
    assert_eq!((answer.status, answer.body), (204, Value::String(String::new())), "{shown}");
}

/// The reason of an error, such as `SESSION_FORBIDDEN`.
pub(crate) fn error_reason(answer: &Answer, version: ProtocolVersion) -> String {
    let data = &answer.body["error"]["data"];
    let found = match version {
        ProtocolVersion::V1 => {
            data.as_array().and_then(|details| details.iter().find_map(|one| one.get("reason")))
        }
        ProtocolVersion::V03 => data.get("type"),
    };
    found.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A logged request without the directory, which every query has.
pub(crate) fn without_directory(request: &str) -> String {
    let (path, query) = request.split_once('?').unwrap_or((request, ""));
    let rest: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("directory=")).collect();
    if rest.concat().is_empty() { path.to_owned() } else { format!("{path}?{}", rest.join("&")) }
}
