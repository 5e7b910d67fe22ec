//! A call that runs, or whose result was asked for: its state, and those who wait for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_model::{AgentEvent, Answer, RequestId, Usage};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::place::Place;
use crate::record::Record;
use crate::tools::CallKey;

/// Answers that may wait for the task of a call. One more is refused.
const MAX_ANSWERS: usize = 4;

/// Reports of calls that may wait for the turn. Further ones wait.
pub(crate) const MAX_REPORTS: usize = 64;

/// What a call tells its turn.
#[derive(Debug)]
pub(crate) enum Report {
    Event(AgentEvent),
    /// All that the call used so far.
    Usage {
        call: String,
        usage: Usage,
    },
}

/// An answer to the ask that is open.
#[derive(Debug)]
pub(crate) struct GivenAnswer {
    /// `None`: whatever the peer asks now.
    pub(crate) ask: Option<RequestId>,
    pub(crate) answer: Answer,
    /// That of the model's tool call. `None`: a user answers.
    pub(crate) key: Option<CallKey>,
    /// Gets whether the peer has accepted the answer.
    pub(crate) done: oneshot::Sender<Result<(), AnswerError>>,
}

#[derive(Debug)]
pub(crate) enum AnswerError {
    /// Nothing, or something else, is asked.
    NotOpen,
    /// The peer refused the answer, or cannot be reached. The ask stays open.
    Refused { reason: String, may_retry: bool },
}

#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) record: Arc<Record>,
    /// The newest line of progress, with its number.
    pub(crate) line: (u64, String),
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) place: Place,
    pub(crate) view: watch::Sender<View>,
    /// Canceled when the call is to be canceled at the peer.
    pub(crate) cancel: CancellationToken,
    answers: mpsc::Sender<GivenAnswer>,
    /// The turn that shows the call. `None`: none does now.
    turn: Mutex<Option<mpsc::Sender<Report>>>,
}

impl Call {
    pub(crate) fn new(record: Record, place: Place) -> (Arc<Self>, mpsc::Receiver<GivenAnswer>) {
        let (answers, given) = mpsc::channel(MAX_ANSWERS);
        let (view, _) = watch::channel(View { record: Arc::new(record), line: (0, String::new()) });
        let (cancel, turn) = (CancellationToken::new(), Mutex::new(None));
        (Arc::new(Self { place, view, cancel, answers, turn }), given)
    }

    pub(crate) fn record(&self) -> Arc<Record> {
        Arc::clone(&self.view.borrow().record)
    }

    pub(crate) fn id(&self) -> String {
        self.view.borrow().record.id.clone()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.view.borrow().record.body.end.is_some()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Record)) {
        self.view.send_modify(|view| change(Arc::make_mut(&mut view.record)));
    }

    pub(crate) fn note(&self, line: String) {
        self.view.send_modify(|view| view.line = (view.line.0 + 1, line));
    }

    /// Passes an answer on, and waits until the peer has accepted or refused it.
    pub(crate) async fn answer(
        &self,
        ask: Option<RequestId>,
        answer: Answer,
        key: Option<CallKey>,
    ) -> Result<(), AnswerError> {
        let (done, settled) = oneshot::channel();
        let given = GivenAnswer { ask, answer, key, done };
        self.answers.try_send(given).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => AnswerError::Refused {
                reason: "Several answers are on their way already.".to_owned(),
                may_retry: true,
            },
            mpsc::error::TrySendError::Closed(_) => AnswerError::NotOpen,
        })?;
        // The task of the call drops the sender when the call ends.
        settled.await.unwrap_or(Err(AnswerError::NotOpen))
    }

    /// Sets the turn that shows the call.
    pub(crate) fn show_in(&self, turn: Option<mpsc::Sender<Report>>) {
        *self.turn() = turn;
    }

    pub(crate) fn is_shown(&self) -> bool {
        self.turn().is_some()
    }

    /// Tells the turn, if one shows the call.
    pub(crate) async fn report(&self, report: Report) {
        let turn = self.turn().clone();
        if let Some(turn) = turn {
            // A turn that is over needs no reports.
            let _ = turn.send(report).await;
        }
    }

    fn turn(&self) -> MutexGuard<'_, Option<mpsc::Sender<Report>>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
