//! Plays the script of a prompt, as fast as the readers of its events take them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::ids;
use super::prompt_records::TurnEnd;
use super::request_log::{LoggedRequest, RequestLog};
use super::script::{Prompt, Script, Step};
use super::state::Shared;
use super::turn::Turn;
use super::world::World;

type StepsFromWorld = Box<dyn FnOnce(&World) -> Vec<Step> + Send>;

/// A stage of a turn, and the prompt that it belongs to.
pub(super) enum TurnStage {
    Steps(Prompt, Vec<Step>),
    /// The whole answer, including the message of the prompt.
    Begin(Prompt, Script),
    /// The turn of a prompt whose message exists, in a session that is busy already.
    GoOn(Prompt, Turn),
    /// Steps that depend on the state of the sessions at this point.
    Then(Prompt, StepsFromWorld),
}

impl fmt::Debug for TurnStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TurnStage for {:?}", self.prompt())
    }
}

impl TurnStage {
    fn prompt(&self) -> &Prompt {
        let (Self::Steps(prompt, _) | Self::Begin(prompt, _) | Self::GoOn(prompt, _) | Self::Then(prompt, _)) =
            self;
        prompt
    }

    fn steps(self, shared: &Shared) -> Vec<Step> {
        match self {
            Self::Steps(_, steps) => steps,
            Self::Begin(prompt, script) => script.steps(&prompt, &mut shared.lock().renamed),
            Self::GoOn(prompt, turn) => turn.further_steps(&prompt, 0),
            Self::Then(_, steps) => steps(&shared.lock().world),
        }
    }
}

/// Plays the stages to their end, or until the server is killed. The prompts of one session are played one after the other, and
/// the session counts as busy from now on.
pub(super) fn start(shared: &Arc<Shared>, prompt: Prompt, stages: Vec<TurnStage>) -> JoinHandle<()> {
    let (life, queue) = shared.change(|state| {
        *state.turns.entry(prompt.session.clone()).or_default() += 1;
        (state.life.clone(), Arc::clone(state.session_queues.entry(prompt.session.clone()).or_default()))
    });
    let playing = perform(Arc::clone(shared), life, queue, prompt, stages);
    shared.tasks.spawn("fake opencode turn", playing)
}

async fn perform(
    shared: Arc<Shared>,
    life: CancellationToken,
    queue: Arc<Mutex<()>>,
    prompt: Prompt,
    stages: Vec<TurnStage>,
) {
    let whole = async {
        let _turn = queue.lock().await;
        shared.lock().streams.begin_turn();
        for stage in stages {
            let stage_prompt = stage.prompt().clone();
            let steps = stage.steps(&shared);
            let turn_end = play_steps(&shared, &life, &prompt, &stage_prompt, steps.into()).await;
            if turn_end != TurnEnd::Ended {
                return turn_end;
            }
        }
        TurnEnd::Ended
    };
    let turn_end = tokio::select! {
        biased;
        () = life.cancelled() => TurnEnd::Killed,
        turn_end = whole => turn_end,
    };
    shared.change(|state| {
        state.prompt_records.ended(&prompt.message, turn_end);
        // `kill` has forgotten all running turns and reset the counts.
        if turn_end == TurnEnd::Killed {
            return;
        }
        if let Some(turns) = state.turns.get_mut(&prompt.session) {
            *turns -= 1;
        }
        state.streams.stop_losing();
    });
}

/// Plays steps of `prompt`, which may be the prompt of a sub-agent. An abort of `root` aborts it too.
pub(super) async fn play_steps(
    shared: &Shared,
    life: &CancellationToken,
    root: &Prompt,
    prompt: &Prompt,
    mut steps: VecDeque<Step>,
) -> TurnEnd {
    let abort_paths = [&root.session, &prompt.session].map(|session| format!("/session/{session}/abort"));
    // The position in the log of the first request that no step has taken.
    let mut since = prompt.logged_at;
    while let Some(step) = steps.pop_front() {
        // A script that waits for an abort takes it at that step; an abort cuts any other script short.
        let expects_abort =
            matches!(step, Step::AwaitAbort) || steps.iter().any(|step| matches!(step, Step::AwaitAbort));
        let is_abort = |path: &str| abort_paths.iter().any(|abort| abort == path);
        if !expects_abort && find(&shared.lock().log, since, is_abort).is_some() {
            return abort(shared, life, root, prompt).await;
        }
        if let Step::Decide { decision, calls } = &step {
            tokio::select! {
                turn = decision.make(prompt) => steps = turn.further_steps(prompt, *calls).into(),
                _ = requested(shared, since, is_abort) => return abort(shared, life, root, prompt).await,
            }
            continue;
        }
        if let Step::IfRejected { ask, steps: rejected } = &step {
            let is_rejection = |request: &LoggedRequest| {
                request.path.split('/').nth(2) == Some(ask) && request.body["reply"] == "reject"
            };
            if shared.lock().log.find(since, is_rejection).is_some() {
                steps = rejected.clone().into();
            }
            continue;
        }
        if let Step::Emit(event) = &step {
            // A kill while the script is polled: the remaining events would all be dropped, and the turn would count as ended.
            if !shared.emit_in(life, event).await {
                return TurnEnd::Killed;
            }
            continue;
        }
        let waited_from = since;
        let doing = async {
            match &step {
                Step::AwaitAbort => since = requested(shared, since, is_abort).await,
                Step::AwaitReply(ask) => {
                    requested(shared, since, |path| path.split('/').nth(2) == Some(ask)).await;
                }
                Step::Hold(gate) => gate.pass().await,
                Step::Pause(duration) => tokio::time::sleep(*duration).await,
                Step::Emit(_) | Step::Decide { .. } | Step::IfRejected { .. } => {}
            }
        };
        if expects_abort {
            doing.await;
            continue;
        }
        tokio::select! {
            () = doing => {}
            _ = requested(shared, waited_from, is_abort) => return abort(shared, life, root, prompt).await,
        }
    }
    TurnEnd::Ended
}

/// Ends the turn as the real OpenCode does when the recording shows no abort.
async fn abort(shared: &Shared, life: &CancellationToken, root: &Prompt, prompt: &Prompt) -> TurnEnd {
    let child = (prompt.session != root.session).then_some(&prompt.session);
    for session in child.into_iter().chain([&root.session]) {
        let events = shared.lock().world.abort_events(session, ids::now_ms());
        for event in &events {
            if !shared.emit_in(life, event).await {
                return TurnEnd::Killed;
            }
        }
    }
    TurnEnd::Aborted
}

/// Waits for a matching request from `since` on, and returns the position after it.
async fn requested(shared: &Shared, since: usize, matches: impl Fn(&str) -> bool) -> usize {
    shared.wait_for(|state| find(&state.log, since, &matches)).await
}

fn find(log: &RequestLog, since: usize, matches: impl Fn(&str) -> bool) -> Option<usize> {
    log.find(since, |request| request.method == "POST" && matches(&request.path))
}
