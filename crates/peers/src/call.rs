//! The state of one call, while the call or its turn runs, and the channels between the call, its turn and the tools that wait for
//! it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_model::{AgentEvent, Answer, RequestId, Usage};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::place::Place;
use crate::record::Record;
use crate::tools::CallKey;

/// The most answers that may wait for the job that drives the call. A further answer is refused.
const MAX_ANSWERS: usize = 4;

/// The most reports of calls that may wait for the turn. When the queue is full, the call waits.
pub(crate) const MAX_REPORTS: usize = 64;

/// A message from a call to its turn.
#[derive(Debug)]
pub(crate) enum Report {
    Event(AgentEvent),
    /// The total usage of the call so far.
    Usage {
        call: String,
        usage: Usage,
    },
}

/// An answer to the open ask of a call.
#[derive(Debug)]
pub(crate) struct GivenAnswer {
    /// The ask that is answered. `None`: the ask that is open now.
    pub(crate) ask: Option<RequestId>,
    pub(crate) answer: Answer,
    /// The key of the model's tool call. `None`: a user answers.
    pub(crate) key: Option<CallKey>,
    /// Receives the result: whether the peer has accepted the answer.
    pub(crate) done: oneshot::Sender<Result<(), AnswerError>>,
}

#[derive(Debug)]
pub(crate) enum AnswerError {
    /// The call has no open ask, or another ask is open.
    NotOpen,
    /// The peer refused the answer, or cannot be reached. The ask stays open.
    Refused { reason: String, may_retry: bool },
}

#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) record: Arc<Record>,
    /// The newest line of progress and its number.
    pub(crate) line: (u64, String),
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) place: Place,
    pub(crate) view: watch::Sender<View>,
    /// Cancel this token to cancel the call at the peer.
    pub(crate) cancel: CancellationToken,
    answers: mpsc::Sender<GivenAnswer>,
    /// The channel to the turn that shows the call. `None`: no turn shows it now.
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

    /// Passes an answer to the peer, and waits until the peer has accepted or refused it.
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
        // The job that drives the call drops the sender when the call ends.
        settled.await.unwrap_or(Err(AnswerError::NotOpen))
    }

    /// Sets the turn that shows the call. `None`: no turn shows it.
    pub(crate) fn show_in(&self, turn: Option<mpsc::Sender<Report>>) {
        *self.turn() = turn;
    }

    pub(crate) fn is_shown(&self) -> bool {
        self.turn().is_some()
    }

    /// Sends a report to the turn that shows the call, if there is one.
    pub(crate) async fn report(&self, report: Report) {
        let turn = self.turn().clone();
        if let Some(turn) = turn {
            // The error means that the turn is over, so the report is not needed.
            let _ = turn.send(report).await;
        }
    }

    fn turn(&self) -> MutexGuard<'_, Option<mpsc::Sender<Report>>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
