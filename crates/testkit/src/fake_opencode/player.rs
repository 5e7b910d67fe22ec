//! Plays a script after a prompt, as fast as its readers take it.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::ids;
use super::request_log::RequestLog;
use super::script::{Prompt, Script, Step};
use super::state::Shared;
use super::truth::Fate;

/// Plays `script` to its end, or until the server dies. Scripts of one session follow each other.
pub(super) async fn play(shared: Arc<Shared>, prompt: Prompt, script: Script) {
    let (life, lane) = shared.change(|state| {
        *state.turns.entry(prompt.session.clone()).or_default() += 1;
        (state.life.clone(), Arc::clone(state.lanes.entry(prompt.session.clone()).or_default()))
    });
    let whole = async {
        let _turn = lane.lock().await;
        shared.lock().streams.begin_turn();
        let steps = script.steps(&prompt, &mut shared.lock().renamed);
        play_steps(&shared, &life, &prompt, steps.into()).await
    };
    let fate = tokio::select! {
        biased;
        () = life.cancelled() => Fate::Killed,
        fate = whole => fate,
    };
    shared.change(|state| {
        state.truth.ended(&prompt.message, fate);
        // Whoever killed it has forgotten what ran, and counts anew.
        if fate == Fate::Killed {
            return;
        }
        if let Some(turns) = state.turns.get_mut(&prompt.session) {
            *turns -= 1;
        }
        state.streams.stop_losing();
    });
}

async fn play_steps(
    shared: &Shared,
    life: &CancellationToken,
    prompt: &Prompt,
    mut steps: VecDeque<Step>,
) -> Fate {
    let abort_path = format!("/session/{}/abort", prompt.session);
    // Where in the log requests begin that no step has taken yet.
    let mut since = prompt.logged_at;
    while let Some(step) = steps.pop_front() {
        // A script that knows of an abort takes it where it stands; any other is cut short by it.
        let expects_abort =
            matches!(step, Step::AwaitAbort) || steps.iter().any(|step| matches!(step, Step::AwaitAbort));
        let is_abort = |path: &str| path == abort_path;
        if !expects_abort && find(&shared.lock().log, since, is_abort).is_some() {
            return abort(shared, life, prompt).await;
        }
        if let Step::Decide { decision, calls } = &step {
            tokio::select! {
                turn = decision.make(prompt) => steps = turn.further_steps(prompt, *calls).into(),
                _ = requested(shared, since, is_abort) => return abort(shared, life, prompt).await,
            }
            continue;
        }
        let waited_from = since;
        let doing = async {
            match &step {
                Step::Emit(event) => shared.emit_in(life, event).await,
                Step::AwaitAbort => since = requested(shared, since, is_abort).await,
                Step::AwaitReply(ask) => {
                    requested(shared, since, |path| path.split('/').nth(2) == Some(ask)).await;
                }
                Step::Hold(gate) => gate.pass().await,
                Step::Pause(duration) => tokio::time::sleep(*duration).await,
                Step::Decide { .. } => {}
            }
        };
        if expects_abort || matches!(step, Step::Emit(_)) {
            doing.await;
            continue;
        }
        tokio::select! {
            () = doing => {}
            _ = requested(shared, waited_from, is_abort) => return abort(shared, life, prompt).await,
        }
    }
    Fate::Ended
}

/// Ends the turn as the real one does when nothing was recorded.
async fn abort(shared: &Shared, life: &CancellationToken, prompt: &Prompt) -> Fate {
    let events = shared.lock().world.abort_events(&prompt.session, ids::now_ms());
    for event in &events {
        shared.emit_in(life, event).await;
    }
    Fate::Aborted
}

/// Waits for a request from `since` on, and gives the place behind it.
async fn requested(shared: &Shared, since: usize, matches: impl Fn(&str) -> bool) -> usize {
    shared.wait_for(|state| find(&state.log, since, &matches)).await
}

fn find(log: &RequestLog, since: usize, matches: impl Fn(&str) -> bool) -> Option<usize> {
    log.find(since, |request| request.method == "POST" && matches(&request.path))
}
