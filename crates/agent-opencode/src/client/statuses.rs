//! Queries which sessions are busy. OpenCode responds with all busy sessions of a directory, so concurrent callers of
//! [`StatusQueries::query`] share a response.
//!
//! A caller only gets a response whose request was sent after the caller arrived. An earlier response may show an older state and
//! mislead the caller. A caller that reads "idle" then reads the messages of the session and treats them as final.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use super::{CallError, Result};
use crate::api::Statuses;

/// The most directories that are tracked. At this number all are forgotten. Callers that already wait are not affected.
const MAX_DIRECTORIES: usize = 100;

/// How long a caller waits for the response to another caller's request. Then it sends its own request, because an OpenCode that is
/// starting may never respond to one request but respond to the next.
const PATIENCE: Duration = Duration::from_secs(1);

type Response = Result<Arc<Statuses>>;

#[derive(Debug, Default)]
pub(super) struct StatusQueries {
    by_directory: Mutex<HashMap<String, Arc<DirectoryQueries>>>,
}

/// The queries about one directory.
#[derive(Debug, Default)]
struct DirectoryQueries {
    /// The number of the last request that was sent.
    sent: AtomicU64,
    /// The last response and the number of its request. The call of [`StatusQueries::query`] that sends a request holds the lock
    /// until the response is there. Other calls wait for the lock, and then share the response if its request is new enough.
    response: tokio::sync::Mutex<Option<(u64, Response)>>,
}

impl StatusQueries {
    /// Returns the response to a request that was sent after this call began.
    pub(super) async fn query<F>(&self, directory: &str, send: impl Fn() -> F) -> Response
    where
        F: Future<Output = Result<Statuses>>,
    {
        let queries = self.of_directory(directory);
        let before = queries.sent.load(Ordering::Acquire);
        let Ok(mut last) = timeout(PATIENCE, queries.response.lock()).await else {
            return send().await.map(Arc::new);
        };
        if let Some((number, response)) = &*last
            && *number > before
        {
            return response.clone();
        }
        let number = queries.sent.fetch_add(1, Ordering::AcqRel) + 1;
        let response = send().await.map(Arc::new);
        // An error about a missing slot is not shared, because other callers may be allowed to wait longer.
        if !matches!(response, Err(CallError::NoFreeSlot { .. })) {
            *last = Some((number, response.clone()));
        }
        response
    }

    fn of_directory(&self, directory: &str) -> Arc<DirectoryQueries> {
        // The lock can be used after a panic, because no code that holds it panics in the middle of a change.
        let mut directories = self.by_directory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queries) = directories.get(directory) {
            return Arc::clone(queries);
        }
        if directories.len() >= MAX_DIRECTORIES {
            directories.clear();
        }
        Arc::clone(directories.entry(directory.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    /// An OpenCode that responds only when the test allows it. The one busy session in its response is the number of the request.
    struct Slow {
        asked: Cell<u32>,
        may_answer: Semaphore,
    }

    impl Slow {
        fn new() -> Self {
            Self { asked: Cell::new(0), may_answer: Semaphore::new(0) }
        }

        async fn answer(&self) -> Result<Statuses> {
            self.asked.set(self.asked.get() + 1);
            let number = self.asked.get();
            self.may_answer.acquire().await.unwrap().forget();
            if number == 4 {
                return Err(CallError::NoAnswer);
            }
            let busy = serde_json::from_str(r#"{"type": "busy"}"#).unwrap();
            Ok(HashMap::from([(number.to_string(), busy)]))
        }
    }

    fn number(response: &Response) -> String {
        match response {
            Ok(statuses) => statuses.keys().cloned().collect(),
            Err(cause) => cause.to_string(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn callers_that_arrive_meanwhile_share_the_next_response_and_not_the_running_one() {
        let (slow, queries) = (Slow::new(), StatusQueries::default());
        let ask = || Box::pin(queries.query("/w", || slow.answer()));
        let mut first = ask();
        assert!(first.as_mut().now_or_never().is_none());
        let mut others: Vec<_> = (0..5).map(|_| ask()).collect();
        for other in &mut others {
            assert!(other.as_mut().now_or_never().is_none());
        }
        let mut elsewhere = Box::pin(queries.query("/x", || async { Ok(Statuses::new()) }));
        assert!(elsewhere.as_mut().now_or_never().is_some());
        assert_eq!(slow.asked.get(), 1);
        slow.may_answer.add_permits(2);
        assert_eq!(number(&first.await), "1");
        for other in others {
            assert_eq!(number(&other.await), "2");
        }
        assert_eq!(slow.asked.get(), 2);
        // A failure is shared as well, so that callers do not wait for one failure after the other.
        let (mut one, mut two, mut three) = (ask(), ask(), ask());
        for asking in [&mut one, &mut two, &mut three] {
            assert!(asking.as_mut().now_or_never().is_none());
        }
        slow.may_answer.add_permits(2);
        assert_eq!(number(&one.await), "3");
        assert_eq!(number(&two.await), "no answer");
        assert_eq!(number(&three.await), "no answer");
        assert_eq!(slow.asked.get(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_is_dropped_leaves_the_request_to_the_next() {
        let (slow, queries) = (Slow::new(), StatusQueries::default());
        let ask = || Box::pin(queries.query("/w", || slow.answer()));
        let (mut first, mut second) = (ask(), ask());
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        assert!(second.as_mut().now_or_never().is_none());
        slow.may_answer.add_permits(1);
        assert_eq!(number(&second.await), "2");
    }

    #[tokio::test(start_paused = true)]
    async fn a_swallowed_request_delays_other_callers_only_briefly() {
        let (slow, queries) = (Slow::new(), StatusQueries::default());
        let mut swallowed = Box::pin(queries.query("/w", std::future::pending));
        assert!(swallowed.as_mut().now_or_never().is_none());
        slow.may_answer.add_permits(1);
        let began = tokio::time::Instant::now();
        assert_eq!(number(&queries.query("/w", || slow.answer()).await), "1");
        assert_eq!(began.elapsed(), PATIENCE);
    }
}
