//! Raw JSON-RPC calls of the methods that extensions add, in either protocol version.
//!
//! A [`Caller`] speaks one version, activates exactly the extension that a method belongs to, checks what holds for every
//! answer, and records each outcome, so that a test can find the methods that it has not called.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use longshore_edge::Extension;
use longshore_testkit::gateway::Gateway;
use longshore_testkit::raw::{Answer, RawClient};
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use crate::client::{PATIENCE, within};

/// What no answer may contain: the key of the demo model's provider, and the word that a test hides in OpenCode's configuration.
const SECRETS: [&str; 2] = ["none-needed", CANARY];

/// The word that tests hide where callers must not see it.
pub(crate) const CANARY: &str = "a-word-that-nobody-is-told-4711";

/// A kind of error: its code and its reason, which are the same in both versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind {
    code: i64,
    word: &'static str,
}

impl Kind {
    pub(crate) const NOT_FOUND: Self = Self::new(-32001, "SESSION_NOT_FOUND");
    pub(crate) const HTTP: Self = Self::new(-32003, "UPSTREAM_HTTP_ERROR");
    pub(crate) const PAYLOAD: Self = Self::new(-32005, "UPSTREAM_PAYLOAD_ERROR");
    pub(crate) const FORBIDDEN: Self = Self::new(-32006, "SESSION_FORBIDDEN");
    pub(crate) const UNAUTHORIZED: Self = Self::new(-32007, "AUTHORIZATION_FORBIDDEN");
    pub(crate) const BUSY: Self = Self::new(-31060, "SESSION_BUSY");

    const fn new(code: i64, word: &'static str) -> Self {
        Self { code, word }
    }
}

/// The outcomes of calls: the method, the version, and `ok` or the reason of the error.
pub(crate) type Seen = Arc<Mutex<BTreeSet<(String, ProtocolVersion, String)>>>;

/// One principal that speaks one protocol version.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) version: ProtocolVersion,
    raw: RawClient,
    seen: Seen,
}

/// An error, in either protocol version.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The call that failed, for messages of failed tests.
    call: String,
    version: ProtocolVersion,
    pub(crate) code: i64,
    pub(crate) word: String,
    pub(crate) message: String,
    /// The parameters that are wrong.
    pub(crate) fields: Vec<String>,
    pub(crate) body: Value,
}

impl Caller {
    /// The holder of this token, once for each version. All of them record their outcomes in `seen`.
    pub(crate) fn in_versions(
        gateway: &Gateway,
        token: &str,
        versions: &[ProtocolVersion],
        seen: &Seen,
    ) -> Vec<Self> {
        let raw = RawClient::new(gateway.url(), token);
        let caller = |version: &ProtocolVersion| Self {
            version: *version,
            raw: raw.speaking(version.as_str()),
            seen: Arc::clone(seen),
        };
        versions.iter().map(caller).collect()
    }

    /// Calls a method that must work, and returns its result. A session is busy for a moment after its turn has ended; the
    /// call is then repeated, as the refusal asks.
    pub(crate) async fn result(&self, method: &str, params: Value) -> Value {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let refusal = match self.call(method, params.clone()).await {
                Ok(result) => return result,
                Err(refusal) => refusal,
            };
            let may_wait = refusal.word == Kind::BUSY.word && tokio::time::Instant::now() < deadline;
            assert!(may_wait, "{} was refused: {:#}", refusal.call, refusal.body);
        }
    }

    /// Calls a method that must be refused, and returns the error.
    pub(crate) async fn refused(&self, method: &str, params: Value, kind: Kind) -> Refusal {
        let refusal = self.error(method, params).await;
        refusal.assert_kind(kind);
        refusal
    }

    /// Calls a method with one wrong parameter. The refusal must name this parameter and no other.
    pub(crate) async fn invalid(&self, method: &str, params: Value, field: &str) -> Refusal {
        let refusal = self.error(method, params).await;
        assert_eq!(refusal.code, -32602, "{}: {:#}", refusal.call, refusal.body);
        assert_eq!(refusal.fields, [field], "{}: {:#}", refusal.call, refusal.body);
        refusal
    }

    async fn error(&self, method: &str, params: Value) -> Refusal {
        match self.call(method, params.clone()).await {
            Err(refusal) => refusal,
            Ok(result) => {
                panic!("{method} {params} on {} was not refused: {result:#}", self.version.as_str())
            }
        }
    }

    pub(crate) async fn call(&self, method: &str, params: Value) -> Result<Value, Refusal> {
        let call = format!("{method} {params} on {}", self.version.as_str());
        let raw = self.raw.activating(&self.activated(method));
        let mut answer = within(&call, raw.rpc(method, params)).await;
        self.check(method, &call, &answer);
        let (outcome, result) = match answer.body.get("error") {
            Some(error) => {
                let refusal = Refusal::read(call, self.version, error);
                (refusal.word.clone(), Err(refusal))
            }
            None => ("ok".to_owned(), Ok(answer.body["result"].take())),
        };
        let mut seen = self.seen.lock().expect("nobody panics while it is locked");
        seen.insert((method.to_owned(), self.version, outcome));
        result
    }

    /// Checks what holds for every answer.
    fn check(&self, method: &str, call: &str, answer: &Answer) {
        assert_eq!(answer.status, 200, "{call} answered {answer:#?}");
        assert_eq!(answer.header("a2a-version"), Some(self.version.as_str()), "{call}: {answer:#?}");
        assert_eq!(answer.body["jsonrpc"], "2.0", "{call}: {answer:#?}");
        let is_one = answer.body.get("result").is_some() != answer.body.get("error").is_some();
        assert!(is_one, "{call}: {answer:#?}");
        // Neither the address of OpenCode behind the gateway nor its credentials appear.
        let text = answer.body.to_string();
        for secret in SECRETS {
            assert!(!text.contains(secret), "{call} contains a secret: {text}");
        }
        if let (ProtocolVersion::V1, Some(extension)) = (self.version, extension(method)) {
            assert_eq!(answer.header("a2a-extensions"), Some(extension.uri()), "{call}: {answer:#?}");
        }
    }

    fn activated(&self, method: &str) -> Vec<&'static str> {
        match self.version {
            ProtocolVersion::V1 => extension(method).map(Extension::uri).into_iter().collect(),
            ProtocolVersion::V03 => Vec::new(),
        }
    }

    /// The methods with this prefix that the gateway says it serves.
    pub(crate) async fn served(&self, prefix: &str) -> Vec<String> {
        let raw = within("what is served", self.raw.rpc("no.such.method", json!({}))).await;
        let refusal = Refusal::read("what is served".to_owned(), self.version, &raw.body["error"]);
        assert_eq!(refusal.code, -32601, "{:#}", refusal.body);
        let listed = refusal.detail("supported_methods");
        // In 1.0 every detail is a string.
        let listed = match &listed {
            Value::String(text) => serde_json::from_str(text).expect("a list in JSON"),
            listed => listed.clone(),
        };
        let names = listed.as_array().into_iter().flatten().filter_map(Value::as_str);
        names.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect()
    }

    /// Fails unless `reported` is this session of OpenCode, shown as a task.
    pub(crate) fn assert_is_session(&self, reported: &Value, upstream: &Value) {
        let version = self.version.as_str();
        let id = upstream["id"].as_str().expect("a session has an id");
        let state = if self.version == ProtocolVersion::V1 { "TASK_STATE_COMPLETED" } else { "completed" };
        assert_eq!(reported["id"], id, "{version}: {reported:#}");
        assert_eq!(reported["contextId"], format!("ctx:opencode-session:{id}"), "{version}: {reported:#}");
        assert_eq!(reported["status"]["state"], state, "{version}: {reported:#}");
        assert_eq!(
            reported.get("kind").is_some(),
            self.version == ProtocolVersion::V03,
            "{version}: {reported:#}"
        );
        let session = json!({"id": id, "title": upstream["title"]});
        assert_eq!(reported["metadata"]["shared"]["session"], session, "{version}: {reported:#}");
    }

    /// Fails unless `reported` is this message of OpenCode, in the format of this version.
    pub(crate) fn assert_is_message(&self, reported: &Value, upstream: &Value) {
        let version = self.version.as_str();
        let (id, session) = (&upstream["info"]["id"], upstream["info"]["sessionID"].as_str());
        let session = session.expect("a message is in a session");
        assert_eq!(reported["messageId"], *id, "{version}: {reported:#}");
        assert_eq!(
            reported["contextId"],
            format!("ctx:opencode-session:{session}"),
            "{version}: {reported:#}"
        );
        let role = match (self.version, upstream["info"]["role"] == "user") {
            (ProtocolVersion::V1, true) => "ROLE_USER",
            (ProtocolVersion::V1, false) => "ROLE_AGENT",
            (ProtocolVersion::V03, true) => "user",
            (ProtocolVersion::V03, false) => "agent",
        };
        assert_eq!(reported["role"], role, "{version}: {reported:#}");
        let parts = match self.version {
            ProtocolVersion::V1 => json!([{"text": message_text(upstream)}]),
            ProtocolVersion::V03 => json!([{"kind": "text", "text": message_text(upstream)}]),
        };
        assert_eq!(reported["parts"], parts, "{version}: {reported:#}\nof\n{upstream:#}");
        assert_eq!(reported["metadata"]["shared"]["session"]["id"], session, "{version}: {reported:#}");
    }
}

/// The text of a message, without the parts that OpenCode adds for the model.
pub(crate) fn message_text(message: &Value) -> String {
    let parts = message["parts"].as_array().into_iter().flatten();
    let said =
        parts.filter(|part| part["type"] == "text" && part["synthetic"] != true && part["ignored"] != true);
    said.filter_map(|part| part["text"].as_str()).collect()
}

/// The extension that a method belongs to.
fn extension(method: &str) -> Option<Extension> {
    let under = |prefixes: &[&str]| prefixes.iter().any(|prefix| method.starts_with(prefix));
    Some(match method {
        _ if under(&["opencode.sessions."]) => Extension::SessionManagement,
        _ if under(&["opencode.providers.", "opencode.models."]) => Extension::ProviderDiscovery,
        _ if under(&["opencode.projects.", "opencode.workspaces.", "opencode.worktrees."]) => {
            Extension::WorkspaceControl
        }
        _ if under(&["opencode.permissions.", "opencode.questions."]) => Extension::InterruptRecovery,
        _ if under(&["a2a.interrupt."]) => Extension::InteractiveInterrupt,
        _ => return None,
    })
}

impl Refusal {
    fn read(call: String, version: ProtocolVersion, error: &Value) -> Self {
        let data = &error["data"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (word, fields) = match version {
            ProtocolVersion::V1 => {
                let violations = data[1]["fieldViolations"].as_array().into_iter().flatten();
                (text(&data[0]["reason"]), violations.map(|violation| text(&violation["field"])).collect())
            }
            ProtocolVersion::V03 => {
                let many = data["fields"].as_array().into_iter().flatten();
                (text(&data["type"]), data.get("field").into_iter().chain(many).map(text).collect())
            }
        };
        let code = error["code"].as_i64().unwrap_or_default();
        Self { call, version, code, word, message: text(&error["message"]), fields, body: error.clone() }
    }

    pub(crate) fn assert_kind(&self, kind: Kind) {
        let found = (self.code, self.word.as_str());
        assert_eq!(found, (kind.code, kind.word), "{}: {:#}", self.call, self.body);
    }

    /// A detail of the error, by the name that it has in 0.3.
    pub(crate) fn detail(&self, name: &str) -> Value {
        match self.version {
            ProtocolVersion::V1 => self.body["data"][0]["metadata"][camel_case(name)].clone(),
            ProtocolVersion::V03 => self.body["data"][name].clone(),
        }
    }

    /// Fails unless the message of the error contains these words.
    pub(crate) fn assert_says(&self, words: &str) -> &Self {
        assert!(self.message.contains(words), "{}: expected {words:?} in {:#}", self.call, self.body);
        self
    }
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_ascii_uppercase() + &word[1..])
}
