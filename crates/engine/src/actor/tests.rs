use longshore_model::{AgentEvent, TaskEvent};

use super::*;
use crate::log_entry::LogEntry;
use crate::port::Steering;

fn size<T, F: Future>(_: impl FnOnce(T) -> F) -> usize {
    size_of::<F>()
}

/// There is one such future for each live task.
#[test]
fn an_actor_future_is_small() {
    let (future, actor) = (size(Actor::run), size_of::<Actor>());
    assert!(future + actor <= 5 * 1024, "{future} and {actor}");
}

/// A tokio channel allocates room for 32 items when it is created, even if its capacity is smaller.
#[test]
fn items_in_the_channels_of_a_turn_are_small() {
    let sizes = [size_of::<AgentEvent>(), size_of::<Box<Steering>>(), size_of::<ActorRequest>()];
    assert!(sizes.iter().all(|size| *size <= 112), "{sizes:?}");
}

/// The tail of a live log holds several entries, and counts about this size for each.
#[test]
fn an_entry_of_a_live_log_is_small() {
    let sizes = (size_of::<LogEntry>(), size_of::<TaskEvent>());
    assert!(sizes.0 <= 400, "{sizes:?}");
}
