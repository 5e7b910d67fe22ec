//! The calls that agents make to other agents.

use std::collections::BTreeMap;

use longshore_engine::port::{BoxFuture, CallStore, MAX_CALLS, StoredCall};
use longshore_model::{Result, TaskId};

use super::MemoryStore;

/// By their ids.
#[derive(Default)]
pub(super) struct Calls(BTreeMap<String, StoredCall>);

impl Calls {
    pub(super) fn forget_task(&mut self, task: &TaskId) {
        self.0.retain(|_, call| call.task != *task);
    }

    fn list(&self, which: impl Fn(&StoredCall) -> bool) -> Vec<StoredCall> {
        self.0.values().filter(|call| which(call)).take(MAX_CALLS).cloned().collect()
    }
}

impl CallStore for MemoryStore {
    fn put_call(&self, call: StoredCall) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let mut state = self.state();
            let is_there = state.tasks.get(&call.task).is_some_and(|row| row.owner == call.owner);
            if is_there {
                state.calls.0.insert(call.id.clone(), call);
            }
            Ok(is_there)
        })
    }

    fn call<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<StoredCall>>> {
        Box::pin(async move { Ok(self.state().calls.0.get(id).cloned()) })
    }

    fn calls_of<'a>(&'a self, task: &'a TaskId) -> BoxFuture<'a, Result<Vec<StoredCall>>> {
        Box::pin(async move { Ok(self.state().calls.list(|call| call.task == *task)) })
    }

    fn open_calls(&self) -> BoxFuture<'_, Result<Vec<StoredCall>>> {
        Box::pin(async move { Ok(self.state().calls.list(|call| call.is_open)) })
    }
}
