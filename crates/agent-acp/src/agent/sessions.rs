//! Sessions: opens new ones and those of an earlier process, and sets their mode and model.

use longshore_engine::port::{NewSession, Session};
use longshore_model::{Error, ErrorKind, ModelName, Result, SessionId};

use super::AcpAgent;
use super::lease::Lease;
use crate::connection::{CallError, Connection, Role};
use crate::translate::Replay;

const WITHOUT_HISTORY: &str = "The agent opened the session again and showed no history of it, so it may not know what was said before.";

const WENT_ON: &str = "When the agent opened the session again, it first went on with the turn before, which had broken off. What \
                       it did then is not shown here.";

impl AcpAgent {
    pub(super) async fn open(&self, request: NewSession) -> Result<Session> {
        // ACP has no title for a new session: the agent chooses one.
        let NewSession { directory, title: _ } = request;
        self.workspace.check_unchanged(&directory).await?;
        let lease = self.host.lease().await?;
        let connection = lease.connection();
        let opened = connection.new_session(&directory, &lease.servers(&self.config.mcp_servers)).await;
        let opened = opened.map_err(|cause| told(&lease, cause).into_error("open a session"))?;
        let id = SessionId::parse(&opened.id).map_err(|cause| {
            let text = "The agent gave the new session an id that is not valid.";
            Error::new(ErrorKind::InvalidAgentResponse, text).caused_by(cause)
        })?;
        lease.note_session(&opened.id);
        let _using = lease.use_session(id.as_str()).await;
        lease.trim_sessions();
        self.set_up(connection, id.as_str()).await?;
        Ok(Session { id, directory })
    }

    /// Opens a session of an earlier process again. Returns what the caller should know.
    pub(super) async fn reopen(&self, lease: &Lease, session: &Session) -> Result<Option<&'static str>> {
        let (connection, id) = (lease.connection(), session.id.as_str());
        let servers = lease.servers(&self.config.mcp_servers);
        let opened = connection.reopen_session(id, &session.directory, &servers).await;
        let opened = opened.map_err(|cause| match told(lease, cause) {
            // Whatever the agent says about an old session: it does not go on with it. Each agent has another error for a session
            // that it does not know.
            cause @ (CallError::Rpc(_) | CallError::Unsupported(_) | CallError::NoSession) => {
                cause.into_error("open the session again").with_kind(ErrorKind::SessionGone)
            }
            cause => cause.into_error("open the session again"),
        })?;
        lease.note_session(id);
        self.set_up(connection, id).await?;
        let heard = self.turns.take_broken(&session.id);
        Ok(opened.replay.and_then(|replay| remark(&replay, heard.as_deref())))
    }

    /// Sets the configured mode, and the configured model.
    async fn set_up(&self, connection: &Connection, session: &str) -> Result<()> {
        for (role, word) in [(Role::Mode, &self.config.mode), (Role::Model, &self.config.model)] {
            if let Some(word) = word {
                choose(connection, session, role, word).await.map_err(|cause| {
                    let what = format!("use the configured {}", role.as_str());
                    // The operator, not the caller, chose it.
                    let is_wrong =
                        matches!(cause, CallError::NoSuchChoice { .. } | CallError::Unsupported(_));
                    let error = cause.into_error(&what);
                    if is_wrong { error.with_kind(ErrorKind::AgentUnavailable).permanent() } else { error }
                })?;
            }
        }
        Ok(())
    }

    /// Sets the model of the next turn: the requested one, or else the configured one. Without either the session keeps the
    /// model that it has.
    pub(super) async fn set_model(
        &self,
        connection: &Connection,
        session: &str,
        requested: Option<&ModelName>,
    ) -> Result<()> {
        let Some(facts) = connection.facts(session) else { return Ok(()) };
        let word = match (requested, &self.config.model) {
            (Some(requested), _) => model_id(requested, &facts.model_ids()),
            (None, Some(configured)) => configured.clone(),
            (None, None) => return Ok(()),
        };
        let chosen = choose(connection, session, Role::Model, &word).await;
        chosen.map_err(|cause| cause.into_error("use the requested model"))
    }
}

/// The id of the model among the agent's: callers name a provider and a model, and an agent may have one word for both.
pub(super) fn model_id(name: &ModelName, choices: &[&str]) -> String {
    let ModelName { provider, model } = name;
    let both = format!("{provider}/{model}");
    let is_plain =
        provider.is_empty() || !choices.contains(&both.as_str()) && choices.contains(&model.as_str());
    if is_plain { model.clone() } else { both }
}

fn told(lease: &Lease, cause: CallError) -> CallError {
    if matches!(cause, CallError::AuthRequired(_)) {
        lease.note_missing_credentials();
    }
    cause
}

async fn choose(
    connection: &Connection,
    session: &str,
    role: Role,
    word: &str,
) -> std::result::Result<(), CallError> {
    let facts = connection.facts(session).ok_or(CallError::NoSession)?;
    if facts.current(role) == Some(word) {
        return Ok(());
    }
    match role {
        Role::Mode => connection.set_mode(session, word).await,
        Role::Model => connection.set_model(session, word).await,
    }
}

/// `heard`: what the gateway had heard of the last turn, if that broke off.
fn remark(replay: &Replay, heard: Option<&str>) -> Option<&'static str> {
    if replay.prompts == 0 {
        return Some(WITHOUT_HISTORY);
    }
    heard.filter(|heard| replay.last.went_on(heard)).map(|_| WENT_ON)
}
