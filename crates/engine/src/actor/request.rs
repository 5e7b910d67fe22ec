//! Requests to an actor whose turn does not run.

use longshore_model::RequestId;

use super::{StopReason, log_lost};
use crate::actor_request::ActorRequest;
use crate::simulation::Flaw;
use crate::writer::Writer;
use crate::{asks, lifecycle};

/// Handles a request while no turn runs. A free function, because callers borrow other parts of the actor meanwhile.
pub(super) async fn handle_without_turn(
    writer: &mut Writer,
    open_asks: Vec<RequestId>,
    request: Option<ActorRequest>,
) -> Result<(), StopReason> {
    let (reply, since, trace) = match request {
        Some(ActorRequest::Cancel { reply, since, trace }) => (reply, since, trace),
        Some(ActorRequest::Answer(given)) => {
            // The turn does not run yet. After a restart the task may have open asks from the last run, but the agent is not
            // connected yet and cannot receive an answer.
            let error = asks::not_now(&open_asks, &given.request);
            let _ = given.reply.send(Err(error));
            return Ok(());
        }
        // There is no turn to join. Dropping the request tells its sender so. `None` does not occur, because the registry
        // keeps a sender until the actor has ended.
        Some(ActorRequest::Join(_)) | None => return Ok(()),
    };
    if let Err(error) = writer.load().await {
        let stop = log_lost(writer, &error);
        let _ = reply.send(Err(error));
        return Err(stop);
    }
    let canceled = lifecycle::canceled(writer.now());
    writer.push(canceled);
    match writer.flush(None).await {
        Ok(()) => {
            // The caller may have disconnected; the task is canceled anyway.
            let _ = reply.send(Ok(writer.snapshot()));
            if writer.has(Flaw::NoTerminalGuard) {
                Ok(())
            } else {
                Err(StopReason::Canceled { since, trace })
            }
        }
        Err(error) => {
            let stop = log_lost(writer, &error);
            let _ = reply.send(Err(error));
            Err(stop)
        }
    }
}
