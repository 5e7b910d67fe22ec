//! Which sessions are busy: OpenCode answers with all of a directory, so those who ask at the same time share an answer.
//!
//! An answer is shared only by those who asked before it was asked for. What was under way already may tell how it was before,
//! and whoever reads idle takes the messages that it reads next for the last ones.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use super::{CallError, Result};
use crate::api::Statuses;

/// At so many directories all are forgotten. Who waits at one goes on waiting there.
const MAX_DIRECTORIES: usize = 100;

/// Nobody waits longer for an answer to somebody else: an OpenCode that starts swallows a request, and answers the next.
const PATIENCE: Duration = Duration::from_secs(1);

type Answer = Result<Arc<Statuses>>;

#[derive(Debug, Default)]
pub(super) struct Desks {
    by_directory: Mutex<HashMap<String, Arc<Desk>>>,
}

/// Where those wait who ask about one directory.
#[derive(Debug, Default)]
struct Desk {
    /// The number of the last question that was asked.
    asked: AtomicU64,
    /// The last answer, and the number of its question. Held by the one who asks.
    answer: tokio::sync::Mutex<Option<(u64, Answer)>>,
}

impl Desks {
    /// Gives the answer to a question that was asked after this was called.
    pub(super) async fn ask<F>(&self, directory: &str, ask: impl Fn() -> F) -> Answer
    where
        F: Future<Output = Result<Statuses>>,
    {
        let desk = self.desk(directory);
        let before = desk.asked.load(Ordering::Acquire);
        let Ok(mut last) = timeout(PATIENCE, desk.answer.lock()).await else {
            return ask().await.map(Arc::new);
        };
        if let Some((number, answer)) = &*last
            && *number > before
        {
            return answer.clone();
        }
        let number = desk.asked.fetch_add(1, Ordering::AcqRel) + 1;
        let answer = ask().await.map(Arc::new);
        // One who would not wait for a place speaks for nobody else.
        if !matches!(answer, Err(CallError::Crowded { .. })) {
            *last = Some((number, answer.clone()));
        }
        answer
    }

    fn desk(&self, directory: &str) -> Arc<Desk> {
        // Nothing that holds the lock can panic half-way through a change.
        let mut desks = self.by_directory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(desk) = desks.get(directory) {
            return Arc::clone(desk);
        }
        if desks.len() >= MAX_DIRECTORIES {
            desks.clear();
        }
        Arc::clone(desks.entry(directory.to_owned()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    /// OpenCode, which answers when it is told to, with the number of the question as the one busy session.
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

    fn number(answer: &Answer) -> String {
        match answer {
            Ok(statuses) => statuses.keys().cloned().collect(),
            Err(cause) => cause.to_string(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_meanwhile_share_the_next_answer_and_not_the_one_under_way() {
        let (slow, desks) = (Slow::new(), Desks::default());
        let ask = || Box::pin(desks.ask("/w", || slow.answer()));
        let mut first = ask();
        assert!(first.as_mut().now_or_never().is_none());
        let mut others: Vec<_> = (0..5).map(|_| ask()).collect();
        for other in &mut others {
            assert!(other.as_mut().now_or_never().is_none());
        }
        let mut elsewhere = Box::pin(desks.ask("/x", || async { Ok(Statuses::new()) }));
        assert!(elsewhere.as_mut().now_or_never().is_some());
        assert_eq!(slow.asked.get(), 1);
        slow.may_answer.add_permits(2);
        assert_eq!(number(&first.await), "1");
        for other in others {
            assert_eq!(number(&other.await), "2");
        }
        assert_eq!(slow.asked.get(), 2);
        // A failure is shared as well: nobody waits for one after the other.
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
    async fn who_leaves_leaves_the_question_to_the_next() {
        let (slow, desks) = (Slow::new(), Desks::default());
        let ask = || Box::pin(desks.ask("/w", || slow.answer()));
        let (mut first, mut second) = (ask(), ask());
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        assert!(second.as_mut().now_or_never().is_none());
        slow.may_answer.add_permits(1);
        assert_eq!(number(&second.await), "2");
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_is_swallowed_holds_nobody_else_up_for_long() {
        let (slow, desks) = (Slow::new(), Desks::default());
        let mut swallowed = Box::pin(desks.ask("/w", std::future::pending));
        assert!(swallowed.as_mut().now_or_never().is_none());
        slow.may_answer.add_permits(1);
        let began = tokio::time::Instant::now();
        assert_eq!(number(&desks.ask("/w", || slow.answer()).await), "1");
        assert_eq!(began.elapsed(), PATIENCE);
    }
}
