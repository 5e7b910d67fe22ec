//! The start of a turn: attach, wait for the session to be idle, prompt exactly once.

use std::sync::Arc;
use std::time::Duration;

use longshore_engine::Tasks;
use longshore_engine::port::{Session, Turn, TurnRequest};
use longshore_model::{AgentEvent, Error, ErrorKind, Outcome, Result};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::Driver;
use crate::api::EventKind;
use crate::client::{CallError, Client};
use crate::outcome;
use crate::reader::{Lease, Readers, Routed};
use crate::translate::Translator;
use crate::{Defaults, prompt};

/// Events that wait for the engine. At the bound the driver of this turn waits, and its own queue fills.
const MAX_WAITING: usize = 256;

/// How long a turn, or a new session, waits for the event stream: long enough for a managed OpenCode to be started again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A busy session is asked again at least this often, in case its idle event was missed.
const BUSY_POLL: Duration = Duration::from_millis(500);

/// What starting a turn needs.
#[derive(Debug)]
pub(crate) struct Starter {
    pub(crate) client: Client,
    pub(crate) readers: Arc<Readers>,
    pub(crate) tasks: Tasks,
    pub(crate) defaults: Defaults,
    pub(crate) timeout: Duration,
}

/// What is known of the prompt when the driver starts.
enum Sent {
    Accepted,
    /// It may or may not have arrived: OpenCode's messages tell.
    Perhaps,
    Refused(Outcome),
}

pub(crate) async fn start(with: &Starter, request: TurnRequest) -> Result<Turn> {
    let TurnRequest { session, prompt, parts, resume, prompting, .. } = request;
    let mut lease = with.readers.lease(&session.directory, session.id.as_str());
    lease.connected(PATIENCE.min(with.timeout)).await?;
    let (id, name) = (session.id.as_str(), prompt.as_str());
    let (sent, translator) = if let Some(resume) = &resume {
        (Sent::Perhaps, Translator::resume(id, name, &resume.artifacts, &resume.open_asks))
    } else {
        wait_until_idle(with, &session, &mut lease).await?;
        // Whatever came until now belongs to an earlier turn.
        lease.forget_the_past();
        let body = prompt::body(name, &parts, &with.defaults);
        prompting.mark();
        (send(with, &session, body).await?, Translator::new(id, name))
    };
    let (sender, events) = mpsc::channel(MAX_WAITING);
    let accepted = match sent {
        Sent::Accepted => true,
        Sent::Perhaps => false,
        Sent::Refused(outcome) => {
            let ended = sender.try_send(AgentEvent::Ended(outcome));
            debug_assert!(ended.is_ok(), "the queue is new");
            return Ok(Turn { events });
        }
    };
    let driver = Driver {
        client: with.client.clone(),
        session,
        prompt: prompt.as_str().to_owned(),
        lease,
        translator,
        events: sender,
        accepted,
        settling: None,
    };
    with.tasks.spawn("opencode-turn", driver.run(with.tasks.stopping().clone()));
    Ok(Turn { events })
}

async fn wait_until_idle(with: &Starter, session: &Session, lease: &mut Lease) -> Result<()> {
    let deadline = Instant::now() + with.timeout;
    loop {
        let statuses = with.client.statuses(&session.directory).await;
        let statuses = statuses.map_err(|cause| cause.into_error("see whether the session is idle"))?;
        if !statuses.contains_key(session.id.as_str()) {
            return Ok(());
        }
        let idle = async {
            while !matches!(
                lease.next().await,
                Routed::Event { kind: EventKind::Idle, .. } | Routed::Reconnected
            ) {}
        };
        if timeout_at(deadline, timeout(BUSY_POLL, idle)).await.is_err() {
            return Err(Error::new(
                ErrorKind::SessionBusy,
                "The agent's session is busy with work of somebody else. Try again later, or start a new context.",
            ));
        }
    }
}

async fn send(with: &Starter, session: &Session, body: String) -> Result<Sent> {
    match with.client.prompt(&session.directory, session.id.as_str(), body).await {
        Ok(()) => Ok(Sent::Accepted),
        Err(CallError::Refused { status, message }) if status < 500 => {
            Ok(Sent::Refused(outcome::refused(status, &message)))
        }
        Err(cause @ (CallError::Cut(_) | CallError::Refused { .. })) => {
            tracing::warn!(session = %session.id, %cause, "it is not known whether OpenCode took a prompt");
            Ok(Sent::Perhaps)
        }
        Err(cause) => Err(cause.into_error("send the prompt")),
    }
}
