//! Plays what a prompt sets going, as fast as its readers take it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::ids;
use super::request_log::RequestLog;
use super::script::{Prompt, Script, Step};
use super::state::Shared;
use super::truth::Fate;
use super::turn::Turn;
use super::world::World;

type FromWorld = Box<dyn FnOnce(&World) -> Vec<Step> + Send>;

/// A piece of what happens, and the prompt that it answers.
pub(super) enum ControlCommand {
    Steps(Prompt, Vec<Step>),
    /// The whole answer, with the message of the prompt.
    Begin(Prompt, Script),
    /// The prompt is there and the session busy: the turn goes on from here.
    GoOn(Prompt, Turn),
    /// What happens follows from what has.
    Then(Prompt, FromWorld),
}

impl fmt::Debug for ControlCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ControlCommand for {:?}", self.prompt())
    }
}

impl ControlCommand {
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

/// Plays the acts to their end, or until the server dies. What the prompts of one session set going comes one after the other, and
/// the session counts as busy from now on.
pub(super) fn start(shared: &Arc<Shared>, prompt: Prompt, acts: Vec<ControlCommand>) -> JoinHandle<()> {
    let (life, lane) = shared.change(|state| {
        *state.turns.entry(prompt.session.clone()).or_default() += 1;
        (state.life.clone(), Arc::clone(state.lanes.entry(prompt.session.clone()).or_default()))
    });
    let playing = perform(Arc::clone(shared), life, lane, prompt, acts);
    shared.tasks.spawn("fake opencode turn", playing)
}

async fn perform(
    shared: Arc<Shared>,
    life: CancellationToken,
    lane: Arc<Mutex<()>>,
    prompt: Prompt,
    acts: Vec<ControlCommand>,
) {
    let whole = async {
        let _turn = lane.lock().await;
        shared.lock().streams.begin_turn();
        for act in acts {
            let of = act.prompt().clone();
            let steps = act.steps(&shared);
            let fate = play_steps(&shared, &life, &prompt, &of, steps.into()).await;
            if fate != Fate::Ended {
                return fate;
            }
        }
        Fate::Ended
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

/// Plays steps of `prompt`, which may be of a sub-agent; whoever aborts `root` aborts it too.
async fn play_steps(
    shared: &Shared,
    life: &CancellationToken,
    root: &Prompt,
    prompt: &Prompt,
    mut steps: VecDeque<Step>,
) -> Fate {
    let abort_paths = [&root.session, &prompt.session].map(|session| format!("/session/{session}/abort"));
    // Where in the log requests begin that no step has taken yet.
    let mut since = prompt.logged_at;
    while let Some(step) = steps.pop_front() {
        // A script that knows of an abort takes it where it stands; any other is cut short by it.
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
            _ = requested(shared, waited_from, is_abort) => return abort(shared, life, root, prompt).await,
        }
    }
    Fate::Ended
}

/// Ends the turn as the real one does when nothing was recorded.
async fn abort(shared: &Shared, life: &CancellationToken, root: &Prompt, prompt: &Prompt) -> Fate {
    let of_child = (prompt.session != root.session).then_some(&prompt.session);
    for session in of_child.into_iter().chain([&root.session]) {
        let events = shared.lock().world.abort_events(session, ids::now_ms());
        for event in &events {
            shared.emit_in(life, event).await;
        }
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
