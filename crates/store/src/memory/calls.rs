//! The calls that agents make to other agents.

use std::collections::BTreeMap;
use std::ops::Bound;

use longshore_engine::port::{BoxFuture, CallPage, CallStore, MAX_CALLS, PAGE_BYTES, PAGE_CALLS, StoredCall};
use longshore_model::{Result, TaskId};

use super::MemoryStore;
use super::state::State;

/// The calls by their ids.
#[derive(Default)]
pub(super) struct Calls(BTreeMap<String, StoredCall>);

impl Calls {
    pub(super) fn forget_task(&mut self, task: &TaskId) {
        self.0.retain(|_, call| call.task != *task);
    }

    fn list(&self, which: impl Fn(&StoredCall) -> bool) -> Vec<StoredCall> {
        self.0.values().filter(|call| which(call)).take(MAX_CALLS).cloned().collect()
    }

    fn open_page(&self, after: &str) -> CallPage {
        let (mut page, mut bytes) = (CallPage::default(), 0);
        let after = (Bound::Excluded(after), Bound::Unbounded);
        for call in self.0.range::<str, _>(after).map(|(_, call)| call).filter(|call| call.is_open) {
            if page.calls.len() == PAGE_CALLS || bytes >= PAGE_BYTES {
                page.next = page.calls.last().map(|last| last.id.clone());
                break;
            }
            bytes += call.record.get().len();
            page.calls.push(call.clone());
        }
        page
    }
}

impl CallStore for MemoryStore {
    fn put_call(&self, call: StoredCall) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let State { tasks, calls, bytes, .. } = &mut *self.state();
            let Some(row) = tasks.get_mut(&call.task).filter(|row| row.owner == call.owner) else {
                return Ok(false);
            };
            let weight = |call: &StoredCall| call.record.get().len() as u64;
            bytes.add(row, weight(&call));
            if let Some(before) = calls.0.insert(call.id.clone(), call) {
                bytes.subtract(row, weight(&before));
            }
            Ok(true)
        })
    }

    fn call<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<StoredCall>>> {
        Box::pin(async move { Ok(self.state().calls.0.get(id).cloned()) })
    }

    fn calls_of<'a>(&'a self, task: &'a TaskId) -> BoxFuture<'a, Result<Vec<StoredCall>>> {
        Box::pin(async move { Ok(self.state().calls.list(|call| call.task == *task)) })
    }

    fn open_calls<'a>(&'a self, after: Option<&'a str>) -> BoxFuture<'a, Result<CallPage>> {
        Box::pin(async move { Ok(self.state().calls.open_page(after.unwrap_or_default())) })
    }
}
