//! Counts the states of tasks.

use longshore_meter::{Metrics, label};
use longshore_model::TaskState;

/// Counts a task that has entered this state.
pub(crate) fn count(metrics: &Metrics, state: TaskState) {
    let state = match state {
        TaskState::Submitted => label::TaskState::Submitted,
        TaskState::Working => label::TaskState::Working,
        TaskState::InputRequired => label::TaskState::InputRequired,
        TaskState::AuthRequired => label::TaskState::AuthRequired,
        TaskState::Completed => label::TaskState::Completed,
        TaskState::Failed => label::TaskState::Failed,
        TaskState::Canceled => label::TaskState::Canceled,
        TaskState::Rejected => label::TaskState::Rejected,
    };
    metrics.tasks.of(state).increment();
}
