//! Events folded into a task.

use longshore_model::Task;

use super::Work;
use super::events::{delta, submitted, task_id};

const DELTAS: u64 = 1000;

/// `so_far`: how many deltas the task has already.
pub(super) fn work(so_far: u64) -> Work {
    let mut task = Task::begin(task_id(0), &submitted(0)).expect("the first event of a task");
    let event = delta();
    for _ in 0..so_far {
        task.apply(&event);
    }
    Work::new(DELTAS, move || {
        for _ in 0..DELTAS {
            task.apply(&event);
        }
        DELTAS
    })
}
