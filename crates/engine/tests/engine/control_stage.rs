//! An engine with a controllable agent, two callers, and helpers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_engine::port::{Claim, Session};
use longshore_engine::{ControlCaller, ControlRules, EngineConfig, Outcome, SessionGuard};
use longshore_model::{
    AgentMessageId, Control, ControlCommand, ControlQuery, ControlRequest, ControlResult, ErrorKind,
    MessageId, ModelName, NativePrompt, NativePromptPart, NativePromptRequest, NewWorktree, Page, Part,
    Principal, PromptOptions, RequestedLocation, Result, SessionId, ShellCommand, WorkspaceId, WorktreeRef,
};
use longshore_testkit::scripted_control::{self, ScriptedControl};

use crate::harness::{Harness, start_controlled};

pub(crate) struct Stage {
    pub(crate) h: Harness,
    pub(crate) control: Arc<ScriptedControl>,
    /// The outcomes that were reported for the calls.
    pub(crate) outcomes: Arc<Mutex<Vec<Outcome>>>,
}

pub(crate) fn stage(session_guard: SessionGuard) -> Stage {
    let control_rules = ControlRules { session_guard, ..ControlRules::default() };
    let config = EngineConfig { control: control_rules, ..EngineConfig::default() };
    let control = ScriptedControl::new();
    let store = Arc::new(longshore_store::memory());
    let h = start_controlled(store, config, Duration::ZERO, Some(control.clone()));
    Stage { h, control, outcomes: Arc::default() }
}

impl Stage {
    /// The future borrows nothing, so that the test can continue meanwhile.
    pub(crate) fn call(
        &self,
        caller: &ControlCaller,
        control: Control,
    ) -> impl Future<Output = Result<ControlResult>> + use<> {
        self.call_at(caller, control, RequestedLocation::default())
    }

    pub(crate) fn call_at(
        &self,
        caller: &ControlCaller,
        control: Control,
        place: RequestedLocation,
    ) -> impl Future<Output = Result<ControlResult>> + use<> {
        let (engine, caller, outcomes) = (self.h.engine.clone(), caller.clone(), Arc::clone(&self.outcomes));
        let note = move |result: &Result<ControlResult>| {
            outcomes.lock().expect("no test panics with it").push(Outcome::of(result));
        };
        async move { engine.control(&caller, ControlRequest { control, location: place }, note).await }
    }

    /// The kind of the refusal. `None`: the call succeeded.
    pub(crate) async fn refusal(&self, caller: &ControlCaller, control: Control) -> Option<ErrorKind> {
        self.call(caller, control).await.err().map(|error| error.kind())
    }

    /// A session of the agent with an owner.
    pub(crate) async fn owned(&self, owner: &str, id: &str) -> Session {
        let session = self.control.add(id);
        let (owner, at) = (Principal::new(owner), self.h.engine.now());
        self.h.store.claim(Claim { owner, session: session.clone(), at }).await.expect("the store is there");
        session
    }

    pub(crate) async fn owner_of(&self, id: &str) -> Option<String> {
        let owned = self.h.store.owner_of(None, &ses(id)).await.expect("the store is there");
        owned.map(|owned| owned.owner.as_str().to_owned())
    }

    pub(crate) fn outcomes(&self) -> Vec<Outcome> {
        std::mem::take(&mut *self.outcomes.lock().expect("no test panics with it"))
    }
}

/// Alice, who may claim sessions.
pub(crate) fn ada() -> ControlCaller {
    ControlCaller { principal: Principal::new("alice"), may_claim: true, may_run: false }
}

/// Bob, who may too.
pub(crate) fn bob() -> ControlCaller {
    ControlCaller { principal: Principal::new("bob"), may_claim: true, may_run: false }
}

pub(crate) fn without_claim(caller: ControlCaller) -> ControlCaller {
    ControlCaller { may_claim: false, ..caller }
}

pub(crate) fn ses(id: &str) -> SessionId {
    scripted_control::session(id).id
}

/// Every query about a session.
pub(crate) fn queries(id: &str) -> Vec<Control> {
    let (session, message) = (ses(id), AgentMessageId::parse("msg_1").expect("an id"));
    let page = Page { limit: 20, before: None };
    let queries = vec![
        ControlQuery::Session(session.clone()),
        ControlQuery::Children(session.clone()),
        ControlQuery::Todos(session.clone()),
        ControlQuery::Diffs { session: session.clone(), message: None },
        ControlQuery::Messages { session: session.clone(), page },
        ControlQuery::Message { session, message },
    ];
    queries.into_iter().map(Control::Query).collect()
}

/// Every command on a session that the session survives.
pub(crate) fn commands(id: &str) -> Vec<Control> {
    let (session, message) = (ses(id), AgentMessageId::parse("msg_1").expect("an id"));
    let commands = vec![
        ControlCommand::Fork { session: session.clone(), before: None },
        ControlCommand::Share(session.clone()),
        ControlCommand::Unshare(session.clone()),
        ControlCommand::Summarize { session: session.clone(), model: ModelName::parse("p/m"), auto: false },
        ControlCommand::Revert { session: session.clone(), message, part: None },
        ControlCommand::Unrevert(session),
        shell_command(id),
    ];
    commands.into_iter().map(Control::Command).collect()
}

pub(crate) fn delete(id: &str) -> Control {
    Control::Command(ControlCommand::Delete(ses(id)))
}

pub(crate) fn shell(id: &str) -> Control {
    Control::Command(shell_command(id))
}

fn shell_command(id: &str) -> ControlCommand {
    let order = ShellCommand { agent: "build".to_owned(), command: "ls".to_owned(), model: None };
    ControlCommand::Shell { session: ses(id), order }
}

pub(crate) fn fork(id: &str) -> Control {
    Control::Command(ControlCommand::Fork { session: ses(id), before: None })
}

pub(crate) fn share(id: &str) -> Control {
    Control::Command(ControlCommand::Share(ses(id)))
}

pub(crate) fn remove_worktree(name: &str) -> Control {
    Control::Command(ControlCommand::RemoveWorktree(WorktreeRef::Name(name.to_owned())))
}

pub(crate) fn remove_workspace(id: &str) -> Control {
    Control::Command(ControlCommand::RemoveWorkspace(WorkspaceId::parse(id).expect("an id")))
}

pub(crate) fn make_worktree() -> Control {
    Control::Command(ControlCommand::CreateWorktree(NewWorktree::default()))
}

fn prompt_request(id: &str, text: &str, message: Option<&str>) -> Box<NativePromptRequest> {
    let withheld = ["bash".to_owned()].into();
    Box::new(NativePromptRequest {
        session: ses(id),
        order: NativePrompt::Prompt {
            parts: vec![NativePromptPart::Content, NativePromptPart::Agent("plan".to_owned())],
            withheld,
        },
        content: vec![Part::text(text)],
        options: PromptOptions::default(),
        message: message.map(|name| MessageId::parse(name).expect("an id")),
    })
}

pub(crate) fn prompt(id: &str, text: &str) -> Control {
    Control::NativePrompt(prompt_request(id, text, None))
}

/// With a message id of the caller.
pub(crate) fn named_prompt(id: &str, text: &str, message: &str) -> Control {
    Control::NativePrompt(prompt_request(id, text, Some(message)))
}

pub(crate) fn note(id: &str, text: &str) -> Control {
    Control::Note(prompt_request(id, text, None))
}

pub(crate) fn command(id: &str, arguments: &str) -> Control {
    Control::NativePrompt(Box::new(NativePromptRequest {
        session: ses(id),
        order: NativePrompt::Command {
            name: "review".to_owned(),
            arguments: arguments.to_owned(),
            may_run: false,
        },
        content: Vec::new(),
        options: PromptOptions::default(),
        message: None,
    }))
}
