//! Starts a turn: attaches to the event stream, waits until the session is idle, and sends the prompt exactly once.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::port::{
    MAX_STEERING, Prompting, Resume, ResumedChildState, Session, Turn, TurnRequest,
};
use longshore_engine::queue;
use longshore_engine::{ProtectedPaths, Tasks, UPSTREAM_STATUS, fail_point, with_retry_hint};
use longshore_model::{AgentEvent, Error, ErrorKind, NativePrompt, Outcome, PromptId, Result};
use tokio::time::{Instant, timeout, timeout_at};

use super::Driver;
use super::invalid_responses::InvalidResponses;
use super::joins::{Joiner, Joins};
use super::member::Member;
use super::missed::MissedEvents;
use super::tree::{ChildState, LiveChild, SessionTree};
use super::unprompted::UnpromptedSessions;
use super::watchdog::{Silence, Watchdog};
use crate::address::Outage;
use crate::api::EventKind;
use crate::api::control::Command;
use crate::catalog::{Catalog, PURPOSE};
use crate::client::{CallError, CallSlot, Client};
use crate::control::references::{Bounds, SentCommand};
use crate::directories::DirectoryUse;
use crate::outcome;
use crate::prompt::{PromptDraft, Prompts};
use crate::reader::{Lease, Readers, Routed};
use crate::reconcile::Depth;
use crate::rules::PromptRules;
use crate::translate::Translator;
use crate::watch::Watch;

/// Maximum number of events that wait for the engine. At the limit the driver of this turn waits, and its own queue fills.
const MAX_WAITING: usize = 256;

/// How long a turn or a new session waits for the event stream: long enough for a managed OpenCode to restart.
pub(crate) const STREAM_TIMEOUT: Duration = Duration::from_secs(30);

/// A busy session is checked at least this often, in case its idle event was missed.
const BUSY_POLL: Duration = Duration::from_millis(500);

/// How long a turn waits while another client works in its session, if the directory of the session is watched. After that the turn
/// releases the session, because external turns are found only in sessions that no turn of the gateway holds. The engine starts the
/// turn again when the other client's work is over.
const WATCHED_BUSY_WAIT: Duration = Duration::from_secs(3);

/// The parts of the driver that are needed to start a turn.
#[derive(Debug)]
pub(crate) struct Starter {
    /// The client for running turns, whose calls wait for a slot as long as necessary.
    pub(crate) client: Client,
    pub(crate) for_starts: Client,
    pub(crate) readers: Arc<Readers>,
    pub(crate) tasks: Tasks,
    pub(crate) prompts: Arc<Prompts>,
    /// The workspace root as an absolute path without links.
    pub(crate) root: String,
    pub(crate) protected: Arc<ProtectedPaths>,
    pub(crate) timeout: Duration,
    pub(crate) watchdog: Watchdog,
    /// Whether the files that a turn wrote are reported.
    pub(crate) written_files: bool,
    pub(crate) unprompted: UnpromptedSessions,
    pub(crate) watch: Arc<Watch>,
}

/// Whether OpenCode accepted the prompt.
pub(super) enum SendResult {
    Accepted,
    /// OpenCode may or may not have received the prompt. Its message list will show that.
    Unknown,
    /// OpenCode refused the prompt. Contains the outcome of the task, and the error for the sender of a native prompt.
    Refused(Outcome, Error),
}

/// Starts a turn. `in_use`: the use of the session's directory, which lasts until the turn is over.
pub(crate) async fn start(
    with: &Starter,
    request: TurnRequest,
    in_use: Option<DirectoryUse>,
) -> Result<Turn> {
    let TurnRequest { session, prompt, input, options, order, is_adopted, resume, prompting, trace, .. } =
        request;
    let limits = with.watchdog.limits(is_adopted);
    let for_start = with.for_starts.with_trace(trace.clone());
    let client = with.client.with_trace(trace);
    let (id, name) = (session.id.as_str(), prompt.as_str());
    // The session is removed from the list even if this turn fails, so that the next turn checks whether it is idle.
    let idle_until = with.unprompted.take(&session.id);
    let patience = || {
        let is_watched = with.watch.watches(&session.directory);
        if is_watched { WATCHED_BUSY_WAIT.min(with.timeout) } else { with.timeout }
    };
    let mut lease = if resume.is_some() {
        with.readers.lease_or_wait(&session.directory, id)
    } else {
        with.readers.lease(&session.directory, id, patience()).await.ok_or_else(busy)?
    };
    let connected = lease.connected(STREAM_TIMEOUT.min(with.timeout));
    client.address().unless_down(connected).await.map_err(Outage::into_error)??;
    let mut process = client.address().process();
    let (sent, translator) = if let Some(resume) = &resume {
        let mut translator = Translator::resume(id, name, resume);
        if let Some(fault) = with.watch.why_failed(name).filter(|_| is_adopted) {
            translator.failed(fault);
        }
        (SendResult::Unknown, translator)
    } else {
        // Building the body can take a while, and another client could use the session in that time. So it is done before the check
        // that the session is idle.
        let (order, is_note) = (order.as_ref(), false);
        let saying = PromptDraft { prompt: name, input: &input, options: &options, order, is_note };
        let body = with.prompts.body(&for_start, &session, saying).await?;
        let barred_agents = if order.is_some() {
            let (catalog, rules) = (&with.prompts.catalog, &with.prompts.rules);
            let barred = catalog.barred_agents(&for_start, &session.directory, rules).await;
            barred.map_err(|cause| cause.into_error(PURPOSE))?
        } else {
            Vec::new()
        };
        let slot = slot_while_idle(&for_start, patience(), &session, idle_until, &mut lease).await?;
        if let Some(order) = order {
            // Checked again, because the native prompt may have waited for long and the files that it names may have changed.
            let bounds = Bounds {
                root: &with.root,
                directory: &session.directory,
                protected: &with.protected,
                barred_agents: &barred_agents,
            };
            let client = for_start.with_slot(&slot);
            let sent = body.arguments.as_deref();
            check_native_prompt(&client, bounds, &with.prompts.rules, order, sent).await?;
        }
        let body = body.json;
        // All events that are queued now belong to an earlier turn.
        lease.discard_queued();
        process = client.address().process();
        prompting.mark();
        let call = PromptCall {
            client: &for_start,
            tasks: &with.tasks,
            session: &session,
            prompt: name,
            prompting: &prompting,
        };
        let sent = if let Some(NativePrompt::Command { .. }) = order {
            let sent = Box::pin(call.send_command(body, &mut lease)).await?;
            drop(slot);
            sent
        } else {
            call.send_prompt(slot, body, order.is_some()).await?
        };
        (sent, Translator::new(id, name))
    };
    let (sender, events) = queue::channel(MAX_WAITING);
    let (steering, joining) = queue::channel(MAX_STEERING);
    let accepted = match sent {
        SendResult::Accepted => true,
        SendResult::Unknown => false,
        SendResult::Refused(outcome, refusal) => {
            let ended = sender.try_send(AgentEvent::Ended(outcome));
            debug_assert!(ended.is_ok(), "the queue is new");
            return Ok(Turn { steering: Some(steering), events, refusal: Some(refusal) });
        }
    };
    let mut tree = SessionTree::new(session.id.clone(), Member::new(translator, accepted));
    if let Some(resume) = &resume {
        resume_children(&mut tree, resume, &lease);
    }
    let joins = Joins::new();
    let joiner = Box::new(Joiner {
        client: client.clone(),
        prompts: Arc::clone(&with.prompts),
        session: session.clone(),
        steering: joining,
        joins: Arc::clone(&joins),
    });
    let invalid_alarm = lease.invalid_alarm();
    let driver = Box::new(Driver {
        client,
        session,
        lease,
        tree,
        events: sender,
        joins,
        joins_seen: 0,
        process,
        must_read: (!accepted).then_some(Depth::Everything),
        missed: MissedEvents::default(),
        limits,
        silence: Silence::new(limits.silence()),
        given_up: None,
        invalid_responses: InvalidResponses::default(),
        end_deadline: None,
        patience: STREAM_TIMEOUT.min(with.timeout),
        caught_up_at: Instant::now(),
        is_stopped: false,
        written_files: with.written_files,
        protected: Arc::clone(&with.protected),
        is_catching_up: resume.is_some(),
    });
    // Boxed, because spawning moves the future more than once, and each move would need stack space for it.
    let running = Box::pin(driver.run(joiner, invalid_alarm, with.tasks.stopping().clone(), in_use));
    with.tasks.spawn("opencode-turn", running);
    Ok(Turn { steering: Some(steering), events, refusal: None })
}

/// Checks a native prompt again. It may have waited for long, and the files that it names or the template of its command may have
/// changed.
async fn check_native_prompt(
    client: &Client,
    bounds: Bounds<'_>,
    rules: &PromptRules,
    order: &NativePrompt,
    sent: Option<&str>,
) -> Result<()> {
    match order {
        NativePrompt::Command { name, arguments, may_run } => {
            let command = Catalog::current_command(client, bounds.directory, name).await?;
            let template = &command.as_ref().map(Command::template).unwrap_or_default();
            if let Some(command) = &command {
                rules.check_command(command, "request.command")?;
            }
            let (written, may_run) = (arguments.as_str(), *may_run && rules.shell);
            let sent = sent.unwrap_or(written);
            bounds.check_command(SentCommand { template, written, sent, may_run }).await
        }
        NativePrompt::Prompt { parts, .. } => bounds.check_subtasks(parts).await,
    }
}

/// Restores the sub-agents that the log contains.
fn resume_children(tree: &mut SessionTree, resume: &Resume, lease: &Lease) {
    for known in &resume.children {
        if let Some(call) = &known.call {
            tree.note_call(&known.session, call, true);
        }
        let at = tree.find(known.session.as_str()).unwrap_or_else(|| {
            tree.add(known.session.clone(), None, false);
            tree.children.len() - 1
        });
        let root = tree.session_of(None).clone();
        let child = &mut tree.children[at];
        match &known.state {
            ResumedChildState::Over if child.live().is_some() => {}
            ResumedChildState::Over => child.state = ChildState::Over,
            ResumedChildState::Running { prompt, artifacts } => {
                let prompt = prompt.as_ref().map(PromptId::as_str);
                let session = known.session.as_str();
                let translator = Translator::resume_sub_agent(session, prompt, artifacts, &resume.children);
                // The log does not contain the caller, so the root is used until the caller is known.
                child.registered = lease.add_child(session, root.as_str());
                child.state = ChildState::Live(Box::new(LiveChild {
                    prompt_reported: prompt.is_some(),
                    is_resumed: true,
                    must_read: true,
                    ..LiveChild::new(translator, root, known.call.clone())
                }));
            }
        }
    }
}

/// Acquires a call slot for the prompt at a moment when the session is idle. If this function had to wait for the slot, it checks
/// the session again.
async fn slot_while_idle<'a>(
    client: &'a Client,
    patience: Duration,
    session: &Session,
    idle_until: Option<Instant>,
    lease: &mut Lease,
) -> Result<CallSlot<'a>> {
    let is_surely_idle = || idle_until.is_some_and(|until| Instant::now() < until);
    let mut deadline = Instant::now() + patience;
    loop {
        if !is_surely_idle() {
            wait_until_idle(client, deadline, session, lease).await?;
        }
        if let Some(slot) = client.try_slot() {
            return Ok(slot);
        }
        let begun = Instant::now();
        let slot = client.slot().await.map_err(|cause| cause.into_error("send the prompt"))?;
        // The deadline limits the wait for the busy session, so the wait for a call slot is added to it.
        deadline += begun.elapsed();
        if is_surely_idle() {
            return Ok(slot);
        }
        let statuses = client.with_slot(&slot).unshared_statuses(&session.directory).await;
        if !statuses.map_err(status_error)?.contains_key(session.id.as_str()) {
            return Ok(slot);
        }
    }
}

async fn wait_until_idle(
    client: &Client,
    deadline: Instant,
    session: &Session,
    lease: &mut Lease,
) -> Result<()> {
    loop {
        let statuses = client.statuses(&session.directory).await;
        if !statuses.map_err(status_error)?.contains_key(session.id.as_str()) {
            return Ok(());
        }
        let idle = async {
            loop {
                let routed = lease.next().await;
                let is_idle = match &routed {
                    Routed::Event { child: None, event } => event.kind == EventKind::Idle,
                    Routed::Reconnected => true,
                    _ => false,
                };
                lease.discard(routed);
                if is_idle {
                    break;
                }
            }
        };
        if timeout_at(deadline, timeout(BUSY_POLL, idle)).await.is_err() {
            return Err(busy());
        }
    }
}

fn busy() -> Error {
    Error::new(
        ErrorKind::SessionBusy,
        "The agent's session is busy with work of another client. Try again later, or start a new context.",
    )
}

fn status_error(cause: CallError) -> Error {
    cause.into_error("see whether the session is idle")
}

/// The request that starts a turn.
pub(super) struct PromptCall<'a> {
    pub(super) client: &'a Client,
    pub(super) tasks: &'a Tasks,
    pub(super) session: &'a Session,
    pub(super) prompt: &'a str,
    pub(super) prompting: &'a Prompting,
}

impl PromptCall<'_> {
    /// Sends the prompt. `is_native`: after an unclear error, looks up whether OpenCode has the prompt, because the sender of a
    /// native prompt waits for the answer.
    async fn send_prompt(self, slot: CallSlot<'_>, body: String, is_native: bool) -> Result<SendResult> {
        fail_point::hit("prompt.before");
        let (directory, session) = (&self.session.directory, self.session.id.as_str());
        let answered = self.client.prompt(slot, directory, session, body).await;
        fail_point::hit("prompt.after");
        match answered {
            Ok(()) => Ok(SendResult::Accepted),
            Err(CallError::Refused { status, message }) if status < 500 => Ok(refused(status, &message)),
            Err(CallError::Refused { status, message })
                if is_native && !is_proxy_error(status) && self.has_message().await == Some(false) =>
            {
                Ok(refused(status, &message))
            }
            Err(cause) => self.classify_failure(cause),
        }
    }

    /// Whether OpenCode has stored the prompt's message. `None`: OpenCode does not show its messages.
    pub(super) async fn has_message(&self) -> Option<bool> {
        let (directory, session) = (self.session.directory.as_str(), self.session.id.as_str());
        let prompts = [self.prompt.to_owned()];
        let found = self.client.for_cleanup().messages_since(directory, session, &prompts).await;
        found.ok().map(|found| !found.is_empty())
    }

    /// Decides after a failed request whether the prompt may have arrived or certainly did not.
    pub(super) fn classify_failure(&self, cause: CallError) -> Result<SendResult> {
        match cause {
            CallError::Cut(_) | CallError::Ended | CallError::Refused { .. } => {
                let session = &self.session.id;
                tracing::warn!(%session, %cause, "it is unknown whether OpenCode accepted a prompt");
                return Ok(SendResult::Unknown);
            }
            CallError::Garbled(_) => {
                let error = cause.into_error("send the prompt");
                let text = format!(
                    "{error} It may have arrived all the same: look at the session before you send it again."
                );
                return Err(Error::new(error.kind(), text).mark_maybe_applied());
            }
            _ if cause.was_not_sent() => self.prompting.unmark(),
            _ => {}
        }
        Err(cause.into_error("send the prompt"))
    }
}

/// Whether the status comes from a proxy in front of OpenCode (502 to 504). OpenCode may still have received the request then.
pub(super) fn is_proxy_error(status: u16) -> bool {
    (502..=504).contains(&status)
}

pub(super) fn refused(status: u16, message: &str) -> SendResult {
    let refusal = Error::new(
        ErrorKind::UpstreamHttpError,
        format!("OpenCode refused the prompt (status {status}): {message}"),
    )
    .detail(UPSTREAM_STATUS, status.to_string());
    SendResult::Refused(outcome::refused(status, message), with_retry_hint(refusal, status))
}
