//! Tracks the user messages that a turn answers: its prompt, and the prompts that joined it.
//!
//! When a prompt arrives during a turn, OpenCode finishes the running step, abandons the rest of its work on the earlier prompt,
//! and answers the new one. Of several prompts that arrive together, only the newest gets an answer. So a turn is over when its
//! newest prompt is answered.

use crate::id::is_prompt;

/// Whether a joining prompt has reached OpenCode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delivery {
    /// The prompt may still be sent. The turn must not end before its delivery is decided.
    Undecided,
    /// OpenCode confirmed that it received the prompt.
    Accepted,
    /// OpenCode may or may not have the prompt.
    Unknown,
    /// The prompt is from before a restart of the gateway. If OpenCode does not have it, it was never sent.
    BeforeRestart,
}

#[derive(Debug, Default)]
pub(super) struct Prompts {
    /// The turn's own prompt, then the prompts that joined. Empty while a sub-agent's prompt is not known.
    all: Vec<Prompt>,
    /// For the turn of a sub-agent: the time in which its messages are created. `None`: a root turn.
    window: Option<Window>,
}

#[derive(Debug)]
struct Prompt {
    /// The engine's id of the prompt, or the id of its message.
    id: String,
    /// When OpenCode stored the prompt. `None`: as far as is known, it did not.
    created: Option<f64>,
    /// Whether a message answers the prompt, which proves that OpenCode has it.
    is_answered: bool,
    /// The delivery of a prompt that joined the turn. `None`: the turn's own prompt.
    joined: Option<Delivery>,
}

/// The time in which the user messages of a sub-agent's turn are created: from its call to the next call of the same sub-agent.
#[derive(Clone, Copy, Debug)]
struct Window {
    since: f64,
    until: Option<f64>,
}

/// A prompt without an answer, in an idle session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unanswered {
    /// The turn's own prompt. OpenCode does not show it, but has answered a prompt that joined the turn.
    First,
    /// OpenCode shows the prompt.
    Stored,
    /// OpenCode accepted the prompt but does not show it.
    Accepted,
    /// OpenCode does not show the prompt and may never have received it.
    Unknown,
}

impl Prompt {
    fn new(id: &str, created: Option<f64>, joined: Option<Delivery>) -> Self {
        Self { id: id.to_owned(), created, is_answered: false, joined }
    }
}

impl Prompts {
    pub(super) fn new(prompt: &str) -> Self {
        Self { all: vec![Prompt::new(prompt, None, None)], window: None }
    }

    /// The prompts of a sub-agent that was called at this time. OpenCode chooses their ids.
    pub(super) fn for_sub_agent(called_at: f64) -> Self {
        Self { all: Vec::new(), window: Some(Window { since: called_at, until: None }) }
    }

    /// Sets the first prompt, whose id is already known.
    pub(super) fn starting_with(mut self, prompt: &str) -> Self {
        self.all = Self::new(prompt).all;
        self
    }

    pub(super) fn set_called_at(&mut self, called_at: f64) {
        if let Some(window) = &mut self.window {
            window.since = called_at;
        }
    }

    /// Called when the sub-agent was called again at this time. Later messages belong to another turn.
    pub(super) fn set_next_call_at(&mut self, next_call_at: f64) {
        if let Some(window) = &mut self.window {
            window.until = Some(next_call_at);
        }
    }

    /// The turn's own prompt.
    pub(super) fn first(&self) -> Option<&str> {
        self.all.first().map(|prompt| prompt.id.as_str())
    }

    pub(super) fn first_created(&self) -> Option<f64> {
        self.all.first().and_then(|prompt| prompt.created)
    }

    /// When OpenCode stored the turn's own prompt. If it did not, when it stored the earliest prompt that joined.
    pub(super) fn started_at(&self) -> Option<f64> {
        let joined = || self.all.iter().filter_map(|prompt| prompt.created).min_by(f64::total_cmp);
        self.first_created().or_else(joined)
    }

    /// The ids of all prompts, the turn's own prompt first.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|prompt| prompt.id.as_str())
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.all.iter().any(|prompt| is_prompt(id, &prompt.id))
    }

    /// Sets which prompts join the turn since the gateway started, and their deliveries.
    pub(super) fn join<'a>(&mut self, joined: impl Iterator<Item = (&'a str, Delivery)> + Clone) {
        self.all.retain(|prompt| {
            let stays =
                prompt.created.is_some() || matches!(prompt.joined, None | Some(Delivery::BeforeRestart));
            stays || joined.clone().any(|(id, _)| id == prompt.id)
        });
        for (id, delivery) in joined {
            match self.all.iter_mut().find(|prompt| prompt.id == id) {
                Some(prompt) => prompt.joined = Some(delivery),
                None => self.all.push(Prompt::new(id, None, Some(delivery))),
            }
        }
    }

    /// Records that OpenCode stored a user message. Returns whether the message belongs to the turn. The first message of a
    /// sub-agent is its prompt.
    pub(super) fn note_stored(&mut self, id: &str, created: f64) -> bool {
        if let Some(prompt) = self.all.iter_mut().find(|prompt| is_prompt(id, &prompt.id)) {
            prompt.created = Some(created);
            return true;
        }
        let is_first = self.all.is_empty() && self.window_contains(created);
        if is_first {
            self.all.push(Prompt::new(id, Some(created), None));
        }
        is_first
    }

    /// Records a message that a user wrote to a running sub-agent, which then continues with it. Returns whether the message
    /// belongs to this turn.
    pub(super) fn join_written(&mut self, id: &str, created: f64) -> bool {
        let joins =
            self.window_contains(created) && self.first_created().is_some_and(|first| first < created);
        if joins {
            self.all.push(Prompt::new(id, Some(created), Some(Delivery::Accepted)));
        }
        joins
    }

    /// Whether a prompt may still be sent.
    pub(super) fn any_undecided(&self) -> bool {
        self.all.iter().any(|prompt| prompt.created.is_none() && prompt.joined == Some(Delivery::Undecided))
    }

    /// Records that a prompt has an answer.
    pub(super) fn note_answered(&mut self, id: &str) {
        for prompt in self.all.iter_mut().filter(|prompt| is_prompt(id, &prompt.id)) {
            prompt.is_answered = true;
        }
    }

    /// Whether there is a prompt that OpenCode received, or may still receive, but does not show.
    pub(super) fn any_not_shown(&self) -> bool {
        self.not_shown().any(|prompt| prompt.joined != Some(Delivery::BeforeRestart))
    }

    /// Whether exactly one prompt was sent but is not shown by OpenCode.
    pub(super) fn exactly_one_lost(&self) -> bool {
        self.lost().count() == 1
    }

    /// The unanswered prompt. `None`: all are answered. `answered`: the creation time of the message that the newest step answers.
    pub(super) fn unanswered(&self, answered: Option<f64>) -> Option<Unanswered> {
        let is_first = |prompt: &Prompt| prompt.joined.is_none();
        if answered.is_some() && self.lost().any(is_first) {
            return Some(Unanswered::First);
        }
        let lost = self.lost().find_map(|prompt| match prompt.joined {
            Some(Delivery::Accepted) => Some(Unanswered::Accepted),
            Some(Delivery::Unknown) => Some(Unanswered::Unknown),
            _ => None,
        });
        let joined = self.all.iter().filter(|prompt| !is_first(prompt));
        let newest = joined.filter_map(|prompt| prompt.created).max_by(f64::total_cmp);
        let waits = newest.is_some_and(|newest| answered.is_none_or(|answered| answered < newest));
        lost.or(waits.then_some(Unanswered::Stored))
    }

    /// Whether a prompt from before a restart of the gateway was never sent.
    pub(super) fn any_never_sent(&self) -> bool {
        self.all
            .iter()
            .any(|prompt| prompt.joined == Some(Delivery::BeforeRestart) && prompt.created.is_none())
    }

    /// The prompts that OpenCode does not show and did not answer.
    fn not_shown(&self) -> impl Iterator<Item = &Prompt> {
        // The prompts of a sub-agent are known only from OpenCode, so OpenCode shows all of them.
        let prompts = if self.window.is_some() { &[] } else { self.all.as_slice() };
        prompts.iter().filter(|prompt| prompt.created.is_none() && !prompt.is_answered)
    }

    /// The prompts that were sent but that OpenCode does not show.
    fn lost(&self) -> impl Iterator<Item = &Prompt> {
        self.not_shown()
            .filter(|prompt| !matches!(prompt.joined, Some(Delivery::Undecided | Delivery::BeforeRestart)))
    }

    fn window_contains(&self, created: f64) -> bool {
        self.window
            .is_some_and(|window| created >= window.since && window.until.is_none_or(|until| created < until))
    }
}
