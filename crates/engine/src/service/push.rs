//! Registers, reads and deletes push configurations for the owner of their task.

use longshore_meter::label::Limit;
use longshore_model::{
    CreatePushConfig, DeletePushConfig, Error, ErrorKind, GetPushConfig, ListPushConfigs, Principal,
    PushConfig, PushConfigId, PushEvents, PushRequest, Result, Seq, TaskEvent, TaskId,
};

use super::{Engine, Sent};
use crate::engine_context::PushParts;
use crate::port::{Head, MAX_PUSH_PAGE, NewPushConfig, PushLimit, PushPut};
use crate::unfinished::LimitReached;

/// How many events before the head are searched for the newest status of a waiting task. Output after that status is rare.
const LOOK_BACK: usize = 64;

/// One page of the configurations of a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PushListing {
    pub configs: Vec<PushConfig>,
    /// The token of the next page. Empty on the last page.
    pub next_page_token: String,
}

impl Engine {
    /// Registers a configuration. Delivery begins with the next event. If the task has ended or waits, delivery begins with the
    /// status that says so, because that status may have come just before this request.
    pub async fn create_push_config(
        &self,
        caller: &Principal,
        command: CreatePushConfig,
    ) -> Result<PushConfig> {
        let CreatePushConfig { task, request } = command;
        self.push_parts()?;
        // The head is read before the check, so that an event during the check is delivered.
        let head = self.head(caller, &task).await?;
        self.check_push(&request).await?;
        let after = self.before_newest_status(caller, &task, &head).await?;
        self.put_push(self.new_push(caller, task, request, None, after)?).await
    }

    pub async fn push_config(&self, caller: &Principal, command: GetPushConfig) -> Result<PushConfig> {
        let GetPushConfig { task, id } = command;
        let configs = &self.push_parts()?.configs;
        self.head(caller, &task).await?;
        let found = configs.get(caller, &task, id.as_ref().unwrap_or(&default_id(&task))).await?;
        let found = match (&found, &id) {
            (None, None) => configs.list(caller, &task, None, 1).await?.pop(),
            _ => found,
        };
        found.ok_or_else(|| {
            let text = format!("Task {task} has no such push configuration; list those that it has.");
            let error = Error::new(ErrorKind::TaskNotFound, text).detail("taskId", task.as_str());
            id.iter().fold(error, |error, id| error.detail("pushNotificationConfigId", id.as_str()))
        })
    }

    pub async fn push_configs(&self, caller: &Principal, command: ListPushConfigs) -> Result<PushListing> {
        let ListPushConfigs { task, page_size, page_token } = command;
        let configs = &self.push_parts()?.configs;
        self.head(caller, &task).await?;
        // The page token is the last id of the page before.
        let after = page_token.map(|token| PushConfigId::parse(&token)).transpose().map_err(|_| {
            Error::invalid("pageToken", "is no token of a previous page; leave it out to begin again")
        })?;
        let size = usize::try_from(page_size).unwrap_or(usize::MAX).clamp(1, MAX_PUSH_PAGE - 1);
        let mut page = configs.list(caller, &task, after.as_ref(), size + 1).await?;
        let has_more = page.len() > size;
        page.truncate(size);
        let last = page.last().filter(|_| has_more);
        let next_page_token = last.map(|config| config.id.to_string()).unwrap_or_default();
        Ok(PushListing { configs: page, next_page_token })
    }

    /// Deletes a configuration. Succeeds if the configuration does not exist.
    pub async fn delete_push_config(&self, caller: &Principal, command: DeletePushConfig) -> Result<()> {
        let DeletePushConfig { task, id } = command;
        let configs = &self.push_parts()?.configs;
        self.head(caller, &task).await?;
        configs.delete(caller, &task, &id).await.map(drop)
    }

    /// Checks the push configuration of a send before anything is done.
    pub(super) async fn check_push_in_send(
        &self,
        caller: &Principal,
        task: Option<&TaskId>,
        request: &PushRequest,
    ) -> Result<()> {
        let PushParts { configs, rules, .. } = self.push_parts()?;
        self.check_push(request).await?;
        let Some(task) = task else { return Ok(()) };
        // For a new task, the store checks the limits when it creates the task. For an existing task, the message is delivered
        // before its configuration is stored, so the limits must be checked here.
        self.head(caller, task).await?;
        let id = request.id.clone().unwrap_or_else(|| default_id(task));
        // Reads only the ids, so that an answer to an ask succeeds even if the key of the secrets is lost.
        let known = configs.ids(caller, task).await?;
        if known.contains(&id) {
            return Ok(());
        }
        let of_task = known.len() as u64;
        let counts = configs.counts(caller).await?;
        let limits = rules.limits;
        for (count, max, limit) in [
            (of_task, limits.per_task, PushLimit::PerTask),
            (counts.of_owner, limits.per_principal, PushLimit::PerPrincipal),
            (counts.in_all, limits.in_all, PushLimit::InAll),
        ] {
            if max > 0 && count >= max {
                return Err(self.push_full(limit));
            }
        }
        Ok(())
    }

    /// Registers the push configuration of a send to an existing task. Delivery begins where the sender's own reader begins.
    pub(super) async fn put_push_of_send(
        &self,
        caller: &Principal,
        sent: &Sent,
        request: PushRequest,
        events: Option<PushEvents>,
    ) -> Result<()> {
        let new = self.new_push(caller, sent.task.clone(), request, events, sent.reader.cursor())?;
        let put = self.put_push(new).await.map(drop);
        put.map_err(|error| {
            error.with_advice("The message itself was taken; send it again to try once more.")
        })
    }

    pub(super) fn new_push(
        &self,
        owner: &Principal,
        task: TaskId,
        request: PushRequest,
        events: Option<PushEvents>,
        after: Seq,
    ) -> Result<NewPushConfig> {
        let rules = &self.push_parts()?.rules;
        let PushRequest { id, url, token, authentication, format, view, place: _ } = request;
        let config = PushConfig {
            // The id is not random, so that a repeated request, whose response was lost, does not register a second
            // configuration.
            id: id.unwrap_or_else(|| default_id(&task)),
            task,
            url,
            token,
            authentication,
            format,
            events: events.unwrap_or(rules.events),
            view,
            created: self.now(),
        };
        Ok(NewPushConfig { owner: owner.clone(), config, after, limits: rules.limits })
    }

    /// The error for a push limit that is reached.
    pub(super) fn push_full(&self, limit: PushLimit) -> Error {
        let limits = self.ctx.ports.push.as_ref().map(|push| push.rules.limits).unwrap_or_default();
        let (limit, max) = match limit {
            PushLimit::PerTask => (Limit::PushConfigsPerTask, limits.per_task),
            PushLimit::PerPrincipal => (Limit::PushConfigsPerPrincipal, limits.per_principal),
            PushLimit::InAll => (Limit::PushConfigs, limits.in_all),
        };
        LimitReached { limit, max }.refusal(&self.ctx.metrics)
    }

    fn push_parts(&self) -> Result<&PushParts> {
        self.ctx.ports.push.as_deref().ok_or_else(|| {
            let text = "Push notifications are not supported; stream, subscribe or get the task instead.";
            Error::new(ErrorKind::PushNotSupported, text)
        })
    }

    async fn check_push(&self, request: &PushRequest) -> Result<()> {
        let PushParts { receivers, rules, .. } = self.push_parts()?;
        let credentials = request.authentication.as_ref().and_then(|given| given.credentials.as_ref());
        for (secret, name) in [(request.token.as_ref(), "token"), (credentials, "authentication.credentials")]
        {
            if secret.is_some_and(|secret| secret.expose().len() > rules.max_secret_bytes) {
                let text = format!("must have at most {} bytes", rules.max_secret_bytes);
                return Err(Error::invalid(request.field(name), text));
            }
        }
        let refused = receivers.check(request).await.err();
        refused.map_or(Ok(()), |wrong| Err(Error::invalid(request.field(&wrong.field), wrong.description)))
    }

    async fn put_push(&self, new: NewPushConfig) -> Result<PushConfig> {
        let config = new.config.clone();
        match self.push_parts()?.configs.put(new).await? {
            PushPut::Stored => Ok(config),
            PushPut::NoTask => Err(Error::task_not_found(&config.task)),
            PushPut::Full(limit) => Err(self.push_full(limit)),
        }
    }

    /// The cursor before the newest status, if the task has ended or waits. Otherwise the head of the log.
    async fn before_newest_status(&self, caller: &Principal, task: &TaskId, head: &Head) -> Result<Seq> {
        if !head.state.is_settled() {
            return Ok(head.seq);
        }
        let after = Seq(head.seq.0.saturating_sub(LOOK_BACK as u64));
        let entries = self.ctx.ports.store.read(caller, task, after, LOOK_BACK).await?;
        let is_newest = |event: &TaskEvent| event.status().is_some_and(|status| status.state == head.state);
        let newest = entries.iter().rev().find(|entry| entry.seq <= head.seq && is_newest(&entry.event));
        Ok(newest.map_or(head.seq, |entry| Seq(entry.seq.0 - 1)))
    }
}

/// The id of a configuration for which the caller gave none. The official A2A servers use the same id.
fn default_id(task: &TaskId) -> PushConfigId {
    PushConfigId::parse(task.as_str()).expect("all ids have the same rule")
}
