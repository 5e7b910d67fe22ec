//! Plays a script after a prompt, as fast as its readers take it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::ids;
use super::script::{Prompt, Script, Step};
use super::state::Shared;

/// Plays `script` to its end, or until the server dies. Scripts of one session follow each other.
pub(super) async fn play(shared: Arc<Shared>, prompt: Prompt, script: Script) {
    let (life, lane) = shared.change(|state| {
        *state.turns.entry(prompt.session.clone()).or_default() += 1;
        (state.life.clone(), Arc::clone(state.lanes.entry(prompt.session.clone()).or_default()))
    });
    let whole = async {
        let _turn = lane.lock().await;
        let steps = script.steps(&prompt, &mut shared.lock().renamed);
        play_steps(&shared, &prompt, steps.into()).await;
    };
    tokio::select! {
        () = whole => {}
        () = life.cancelled() => {}
    }
    shared.change(|state| {
        if let Some(turns) = state.turns.get_mut(&prompt.session) {
            *turns -= 1;
        }
        state.streams.stop_losing();
    });
}

async fn play_steps(shared: &Shared, prompt: &Prompt, mut steps: VecDeque<Step>) {
    while let Some(step) = steps.pop_front() {
        // A script that knows of an abort takes it where it stands; any other is cut short by it.
        let expects_abort =
            matches!(step, Step::AwaitAbort) || steps.iter().any(|step| matches!(step, Step::AwaitAbort));
        if !expects_abort && is_aborted(shared, prompt) {
            return abort(shared, prompt).await;
        }
        let waiting = async {
            match &step {
                Step::Emit(event) => shared.emit(event).await,
                Step::AwaitAbort => aborted(shared, prompt).await,
                Step::AwaitReply(request) => replied(shared, prompt, request).await,
                Step::Hold(gate) => gate.pass().await,
                Step::Pause(duration) => tokio::time::sleep(*duration).await,
            }
        };
        if expects_abort || matches!(step, Step::Emit(_)) {
            waiting.await;
            continue;
        }
        tokio::select! {
            () = waiting => {}
            () = aborted(shared, prompt) => return abort(shared, prompt).await,
        }
    }
}

/// Ends the turn as the real one does when nothing was recorded.
async fn abort(shared: &Shared, prompt: &Prompt) {
    let events = shared.lock().world.abort_events(&prompt.session, ids::now_ms());
    for event in &events {
        shared.emit(event).await;
    }
}

fn is_aborted(shared: &Shared, prompt: &Prompt) -> bool {
    let path = format!("/session/{}/abort", prompt.session);
    shared.lock().log[prompt.logged_at..].iter().any(|request| request.path == path)
}

async fn aborted(shared: &Shared, prompt: &Prompt) {
    let path = format!("/session/{}/abort", prompt.session);
    requested(shared, prompt, |asked| asked == path).await;
}

async fn replied(shared: &Shared, prompt: &Prompt, request: &str) {
    requested(shared, prompt, |asked| asked.split('/').nth(2) == Some(request)).await;
}

/// Waits for a request that came after the prompt.
async fn requested(shared: &Shared, prompt: &Prompt, matches: impl Fn(&str) -> bool) {
    let since = prompt.logged_at;
    shared
        .wait_for(|state| state.log[since..].iter().any(|request| matches(&request.path)).then_some(()))
        .await;
}
