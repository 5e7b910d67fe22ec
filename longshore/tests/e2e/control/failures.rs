//! The error of every method in both versions when OpenCode fails: a deleted session, too many calls at once, a wrong password,
//! and an answer that does not belong to OpenCode's API.
//!
//! A second gateway is attached to the OpenCode of the first. It restarts for each failure with one setting changed. It knows
//! its sessions from an earlier run without failures, so that each method reaches its own request and fails there.

use futures_util::future::{Either, join_all, select};
use longshore_testkit::gateway::{Gateway, Paused, Record, Setup, TOKEN};
use longshore_testkit::raw::RawClient;
use longshore_wire::surface::ProtocolVersion;
use serde_json::{Value, json};

use super::caller::{Caller, Kind, Refusal, Seen, extension};
use super::resources;
use super::sessions::every_method::{self, number};
use super::fixture::{SESSION_BINDING, Fixture};
use crate::client::{Client, message, within};
use crate::harness::LONGSHORE;

const PROVIDERS: &str = "opencode.providers.list";

/// How often OpenCode is paused until the call in flight is that of the test and not one of the gateway.
const STOPS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn long_every_method_reports_how_opencode_failed_in_both_versions() {
    let fixture = Fixture::prepared(&ProtocolVersion::ALL, resources::switched_on, |_| {}).await;
    sessions_that_were_deleted(&fixture).await;
    metadata_of_inactive_extensions_is_refused(&fixture).await;

    let mut attached = Attached::to(&fixture).await;
    let before = attached.held_by_opencode().await;
    let asked = fixture.model.journal().turns().len();
    attached.as_many_calls_as_are_allowed(fixture.harness.opencode.pid()).await;
    attached.a_wrong_password().await;
    attached.o10_a_web_page_is_no_answer().await;

    // None of the calls had an effect.
    attached.begin(None).await;
    assert_eq!(attached.held_by_opencode().await, before, "something was done");
    assert_eq!(fixture.model.journal().turns().len(), asked, "somebody was prompted");
}

/// The gateway knows that the session is the caller's, and OpenCode has deleted it. Each method learns that from its own request.
async fn sessions_that_were_deleted(fixture: &Fixture) {
    let own = fixture.session("scn:text n=1 (deleted soon)").await;
    let (user, _) = fixture.last_messages(&own.session).await;
    fixture.harness.opencode.delete(&format!("/session/{}", own.session)).await;
    for ada in fixture.ada() {
        for (method, params) in every_method::rows(&own.session, &user) {
            if params.get("session_id").is_some() {
                let refusal = ada.refused(method, params, Kind::NOT_FOUND).await;
                assert_eq!(refusal.detail("session_id"), own.session.as_str(), "{:#}", refusal.body);
            }
        }
    }
}

/// In 1.0 a method exists only for callers that activate its extension, not for callers that activate none or another.
async fn metadata_of_inactive_extensions_is_refused(fixture: &Fixture) {
    let own = fixture.session("scn:text n=1 (nobody knows the extension)").await;
    let (user, _) = fixture.last_messages(&own.session).await;
    let before = fixture.content(&own.session).await;
    let of_asks = [
        "opencode.permissions.list",
        "opencode.questions.list",
        "a2a.interrupt.permission.reply",
        "a2a.interrupt.question.reply",
        "a2a.interrupt.question.reject",
    ];
    let mut rows = all_rows(&own.session, &user);
    rows.extend(of_asks.map(|method| (method, json!({"request_id": "per_nobody"}))));
    let client = RawClient::new(fixture.harness.gateway.url(), TOKEN).speaking(ProtocolVersion::V1.version());
    for (method, params) in rows {
        let uri = extension(method).unwrap_or_else(|| panic!("{method} has no extension")).uri();
        for activated in [vec![], vec![SESSION_BINDING]] {
            let client = client.activating(&activated);
            let answer = within(method, client.rpc(method, params.clone())).await;
            let error = &answer.body["error"];
            let info = &error["data"][0];
            assert_eq!(
                (&error["code"], &info["reason"]),
                (&json!(-32004), &json!("EXTENSION_NEGOTIATION_REQUIRED")),
                "{method}: {error:#}"
            );
            // In 1.0 every fact is a text.
            let facts = json!({
                "method": method,
                "requiredExtensions": json!([uri]).to_string(),
                "requestedExtensions": json!(activated).to_string(),
                "header": "A2A-Extensions",
            });
            assert_eq!(info["metadata"], facts, "{method}: {error:#}");
        }
    }
    assert_eq!(fixture.content(&own.session).await, before, "something was said");
}

/// The valid parameters of every method.
fn all_rows(session: &str, user: &str) -> Vec<(&'static str, Value)> {
    let mut rows = every_method::rows(session, user);
    rows.extend(resources::rows());
    // This one makes the gateway listen to the events of OpenCode.
    rows.push(("opencode.workspaces.create", json!({"request": {"type": "worktree"}})));
    rows
}

/// Calls until a call succeeds. Right after its start the gateway makes calls of its own, one after the other. They occupy the
/// only slot, so the slot is free only after them.
async fn answered(ada: &Caller) {
    while let Err(refusal) = ada.call(PROVIDERS, json!({})).await {
        refusal.assert_kind(Kind::BACKPRESSURE);
    }
}

/// A gateway that is attached to the OpenCode of another gateway, and its sessions there.
struct Attached {
    gateway: Gateway,
    seen: Seen,
    /// The address of its OpenCode.
    url: String,
    /// The session that has messages.
    session: String,
    /// The parameters of each method. Each version has its own session, because some methods need a session for themselves.
    calls: Vec<(ProtocolVersion, &'static str, Value)>,
}

impl Attached {
    async fn to(fixture: &Fixture) -> Self {
        let record = Record::read(&fixture.harness.gateway.data_dir()).expect("OpenCode runs");
        let url = format!("http://127.0.0.1:{}", record.port);
        let setup = Setup::attached(LONGSHORE, &url).env("OPENCODE_AUTH_PASSWORD", record.password);
        let gateway = Gateway::start(setup.flag("--session-shell").flag("--workspace-mutations")).await;
        let client = Client::of(&gateway).activating(&[SESSION_BINDING]);
        let task = client.send(&message("scn:text n=1 (said when nothing was wrong)")).await;
        let session = task.pointer("/metadata/shared/session/id").and_then(Value::as_str);
        let session = session.unwrap_or_else(|| panic!("no session: {task:#}")).to_owned();
        let mut attached = Self { gateway, seen: Seen::default(), url, session, calls: Vec::new() };
        attached.calls = attached.prepared_calls().await;
        attached
    }

    async fn prepared_calls(&self) -> Vec<(ProtocolVersion, &'static str, Value)> {
        let mut calls = Vec::new();
        for ada in self.callers() {
            for (method, mut params) in all_rows(&self.session, "msg_that_is_not_looked_for") {
                if params.get("session_id").is_some() {
                    let whole = json!({"session_id": self.session});
                    let copy = ada.result("opencode.sessions.fork", whole).await["item"]["id"].take();
                    assert!(copy.is_string(), "no copy of {}", self.session);
                    params["session_id"] = copy;
                }
                calls.push((ada.version, method, params));
            }
        }
        calls
    }

    fn callers(&self) -> Vec<Caller> {
        Caller::in_versions(&self.gateway, TOKEN, &ProtocolVersion::ALL, &self.seen)
    }

    /// Restarts the gateway. The variable is set for this run only.
    async fn begin(&mut self, variable: Option<(&str, &str)>) {
        self.gateway.terminate().await;
        self.gateway.try_restart(variable).await.expect("the gateway starts again");
    }

    /// Calls every method in both versions at once. Each must be refused with this error, which names the method and the session.
    async fn all_are_refused(&self, kind: Kind) -> Vec<Refusal> {
        let callers = self.callers();
        let calls = self.calls.iter().map(|(version, method, params)| {
            let caller = callers.iter().find(|caller| caller.version == *version).expect("there is one of each");
            caller.refused(method, params.clone(), kind)
        });
        let refusals = join_all(calls).await;
        for (refusal, (_, method, params)) in refusals.iter().zip(&self.calls) {
            assert_eq!(refusal.detail("method"), *method, "{:#}", refusal.body);
            assert_eq!(refusal.detail("session_id"), params["session_id"], "{method}: {:#}", refusal.body);
        }
        refusals
    }

    /// What OpenCode holds for this gateway: the sessions with their messages, the workspaces and the worktrees.
    async fn held_by_opencode(&self) -> Value {
        let ada = self.callers().remove(0);
        let mut held = json!({});
        for method in ["sessions.list", "workspaces.list", "worktrees.list"] {
            let reported = ada.result(&format!("opencode.{method}"), json!({})).await;
            let ids = reported["items"].as_array().unwrap_or_else(|| panic!("no items in {reported:#}"));
            held[method] = ids.iter().map(|item| item["id"].clone()).collect();
        }
        let sessions = self.calls.iter().filter_map(|(.., params)| params.get("session_id"));
        for session in sessions.chain([&json!(self.session)]) {
            let said = ada.result("opencode.sessions.messages.list", json!({"session_id": session})).await;
            held[session.as_str().expect("an id")] = said["items"].clone();
        }
        held
    }

    /// OpenCode is paused while one call to it is in flight: all other calls are refused before they are sent.
    async fn as_many_calls_as_are_allowed(&mut self, opencode: u32) {
        self.begin(Some(("OPENCODE_MAX_CONCURRENT_REQUESTS", "1"))).await;
        let ada = self.callers().remove(0);
        for _ in 0..STOPS {
            within("a call while the gateway has none of its own", answered(&ada)).await;
            let paused = Paused::new(opencode);
            let [first, second] = [(); 2].map(|()| Box::pin(ada.call(PROVIDERS, json!({}))));
            let (refused, held) = match select(first, second).await {
                Either::Left((refused, held)) | Either::Right((refused, held)) => (refused, held),
            };
            refused.expect_err("OpenCode stands still").assert_kind(Kind::BACKPRESSURE);
            for refusal in self.all_are_refused(Kind::BACKPRESSURE).await {
                assert!(number(&refusal.detail("retry_after_seconds")).is_some(), "{:#}", refusal.body);
            }
            drop(paused);
            match held.await {
                Ok(_) => return,
                Err(refusal) => refusal.assert_kind(Kind::BACKPRESSURE),
            }
        }
        panic!("the one call that is allowed was never this one");
    }

    /// OpenCode answers 401. Its operator has to act, so the error suggests no retry.
    async fn a_wrong_password(&mut self) {
        self.begin(Some(("OPENCODE_AUTH_PASSWORD", "another-word-than-opencode-was-given"))).await;
        for refusal in self.all_are_refused(Kind::HTTP).await {
            assert_eq!(number(&refusal.detail("upstream_status")), Some(401), "{:#}", refusal.body);
            assert!(refusal.detail("retry_after_seconds").is_null(), "{:#}", refusal.body);
            refusal.assert_says("user name or password");
        }
    }

    /// OpenCode serves a web page under every path that is not part of its API.
    async fn o10_a_web_page_is_no_answer(&mut self) {
        let page = format!("{}/not/the/api", self.url);
        self.begin(Some(("OPENCODE_BASE_URL", &page))).await;
        for refusal in self.all_are_refused(Kind::PAYLOAD).await {
            assert!(refusal.detail("detail").is_string(), "it is not said what came: {:#}", refusal.body);
        }
    }
}
