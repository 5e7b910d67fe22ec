//! The push configurations as the engine uses them. Replacing or deleting a configuration ends its running delivery.

use std::sync::Arc;

use longshore_engine::port::{BoxFuture, NewPushConfig, PushConfigs, PushCounts, PushPut};
use longshore_model::{Principal, PushConfig, PushConfigId, Result, TaskId};

use crate::in_flight::InFlight;

#[derive(Debug)]
pub struct DeliveredConfigs {
    pub(crate) configs: Arc<dyn PushConfigs>,
    pub(crate) in_flight: Arc<InFlight>,
}

impl PushConfigs for DeliveredConfigs {
    fn put(&self, new: NewPushConfig) -> BoxFuture<'_, Result<PushPut>> {
        Box::pin(async move {
            let key = (new.config.task.clone(), new.config.id.clone());
            self.in_flight.change(&key, self.configs.put(new), |put| matches!(put, Ok(PushPut::Stored))).await
        })
    }

    fn get<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
        id: &'a PushConfigId,
    ) -> BoxFuture<'a, Result<Option<PushConfig>>> {
        self.configs.get(owner, task, id)
    }

    fn list<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
        after: Option<&'a PushConfigId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<PushConfig>>> {
        self.configs.list(owner, task, after, limit)
    }

    fn delete<'a>(
        &'a self,
        owner: &'a Principal,
        task: &'a TaskId,
        id: &'a PushConfigId,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let key = (task.clone(), id.clone());
            // A repeated delete, after a lost response, also waits for the deliveries to end, although it deletes nothing.
            let delete = self.configs.delete(owner, task, id);
            self.in_flight.change(&key, delete, Result::is_ok).await
        })
    }

    fn ids<'a>(&'a self, owner: &'a Principal, task: &'a TaskId) -> BoxFuture<'a, Result<Vec<PushConfigId>>> {
        self.configs.ids(owner, task)
    }

    fn counts<'a>(&'a self, owner: &'a Principal) -> BoxFuture<'a, Result<PushCounts>> {
        self.configs.counts(owner)
    }
}
