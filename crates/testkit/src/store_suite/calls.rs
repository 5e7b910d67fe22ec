//! The records of the calls that agents make to other agents.

use std::sync::Arc;

use longshore_engine::port::{CallStore, PAGE_BYTES, PAGE_CALLS, Retention, Store, StoredCall};
use longshore_model::{Json, TaskState, Timestamp};

use super::make::{ada, append, appended, create, made, owner, status, task_id};
use super::retention::retained;

/// The two sides of one store.
#[derive(Clone, Debug)]
pub struct CallStores {
    pub store: Arc<dyn Store>,
    pub calls: Arc<dyn CallStore>,
}

pub fn call(task: &str, id: &str, is_open: bool, record: &str) -> StoredCall {
    StoredCall {
        id: id.to_owned(),
        task: task_id(task),
        owner: ada(),
        is_open,
        at: Timestamp(5),
        record: Json::parse(record).expect("tests write JSON"),
    }
}

/// All pages.
pub async fn open_calls(calls: &Arc<dyn CallStore>) -> Vec<StoredCall> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = calls.open_calls(after.as_deref()).await.expect("a read");
        assert!(page.calls.len() <= PAGE_CALLS);
        all.extend(page.calls);
        match page.next {
            Some(next) => after = Some(next),
            None => return all,
        }
    }
}

/// `reopen`: the same store after a restart.
pub async fn calls_are_kept_and_leave_with_their_task(
    stores: CallStores,
    reopen: impl FnOnce(CallStores) -> CallStores,
) {
    let CallStores { store, calls } = stores;
    for task in ["s", "t"] {
        made(&store, create(task)).await;
    }
    let put = async |call: StoredCall| calls.put_call(call).await.expect("the store takes calls");
    assert!(!put(call("missing", "x", true, "{}")).await, "the task does not exist");
    let foreign = StoredCall { owner: owner("bob"), ..call("t", "x", true, "{}") };
    assert!(!put(foreign).await, "the task is ada's");
    let (first, second) =
        (call("t", "b", true, r#"{"n":12345678901234567890123}"#), call("t", "a", true, "{}"));
    let third = call("s", "c", true, "{}");
    for call in [&first, &second, &third] {
        assert!(put(call.clone()).await);
    }
    let ended = call("t", "a", false, r#"{"end":1}"#);
    assert!(put(ended.clone()).await, "a call is replaced");

    let CallStores { store, calls } = reopen(CallStores { store, calls });
    assert_eq!(calls.calls_of(&task_id("t")).await.expect("a read"), [ended.clone(), first.clone()]);
    assert_eq!(open_calls(&calls).await, [first.clone(), third.clone()]);
    assert_eq!(calls.call("a").await.expect("a read"), Some(ended));
    assert_eq!(calls.call("x").await.expect("a read"), None);

    appended(&store, append("t", 1, vec![status(TaskState::Completed, 10)])).await;
    let before = Some(Timestamp(50));
    let retention =
        Retention { now: Timestamp(50), fold_before: before, drop_before: before, keys_before: Timestamp(0) };
    retained(&store, retention).await;
    assert_eq!(calls.calls_of(&task_id("t")).await.expect("a read"), []);
    assert_eq!(open_calls(&calls).await, [third]);
}

pub async fn open_calls_are_read_in_pages_until_there_are_no_more(stores: CallStores) {
    let CallStores { store, calls } = stores;
    made(&store, create("t")).await;
    let long = format!("\"{}\"", "x".repeat(PAGE_BYTES / 2));
    let mut put = Vec::new();
    for number in 0..2 * PAGE_CALLS + 5 {
        let record = if (11..14).contains(&number) { &long } else { "1" };
        let call = call("t", &format!("c{number:04}"), number % 7 != 3, record);
        assert!(calls.put_call(call.clone()).await.expect("the store takes calls"));
        put.extend(call.is_open.then_some(call));
    }
    let first = calls.open_calls(None).await.expect("a read").calls;
    assert_eq!(first.last().map(|call| call.id.as_str()), Some("c0012"), "the page ends with its bytes");
    assert_eq!(open_calls(&calls).await, put);
}
