//! The user messages that a turn answers: its prompt, and those that joined it.
//!
//! OpenCode takes up a prompt that comes in mid-turn when the running step ends, and drops what was left of the one
//! before. Of several that come at once only the newest gets an answer. So a turn is over when its newest prompt is.

/// What is known of a prompt on its way to OpenCode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delivery {
    /// It may yet be sent: the turn must not end before that is decided.
    Undecided,
    /// OpenCode said that it took it.
    Accepted,
    /// OpenCode may or may not have it.
    Unknown,
    /// Of before a restart of the gateway. If OpenCode does not have it, it was never sent.
    BeforeRestart,
}

#[derive(Debug)]
pub(super) struct Prompts {
    /// The turn's own first, then those that joined. Empty while a sub-agent's is not known.
    all: Vec<Prompt>,
    adopted: Option<Window>,
}

#[derive(Debug)]
struct Prompt {
    id: String,
    /// When OpenCode stored it, if it did.
    created: Option<f64>,
    /// There is an answer to it, so OpenCode has it.
    is_answered: bool,
    /// `None`: the turn's own.
    joined: Option<Delivery>,
}

/// When the user messages of a sub-agent's turn were written: from its call on, up to the next one of its session.
#[derive(Clone, Copy, Debug)]
struct Window {
    since: f64,
    until: Option<f64>,
}

/// A prompt without an answer, in an idle session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unanswered {
    /// The turn's own: OpenCode does not show it, and answered another that joined the turn.
    First,
    /// OpenCode has it.
    Stored,
    /// OpenCode took it and does not show it.
    Accepted,
    /// Nobody knows.
    Unknown,
}

impl Prompt {
    fn new(id: &str, created: Option<f64>, joined: Option<Delivery>) -> Self {
        Self { id: id.to_owned(), created, is_answered: false, joined }
    }
}

impl Prompts {
    pub(super) fn of(prompt: &str) -> Self {
        Self { all: vec![Prompt::new(prompt, None, None)], adopted: None }
    }

    /// Those of a sub-agent that was called at this moment. OpenCode made up the names.
    pub(super) fn from(since: f64) -> Self {
        Self { all: Vec::new(), adopted: Some(Window { since, until: None }) }
    }

    /// The same, when the first of them is known already.
    pub(super) fn starting_with(mut self, prompt: &str) -> Self {
        self.all = Self::of(prompt).all;
        self
    }

    /// The sub-agent was called at this moment.
    pub(super) fn since(&mut self, since: f64) {
        if let Some(window) = &mut self.adopted {
            window.since = since;
        }
    }

    /// The sub-agent was called once more at this moment: what follows is another turn.
    pub(super) fn until(&mut self, until: f64) {
        if let Some(window) = &mut self.adopted {
            window.until = Some(until);
        }
    }

    /// The turn's own.
    pub(super) fn first(&self) -> Option<&str> {
        self.all.first().map(|prompt| prompt.id.as_str())
    }

    pub(super) fn first_created(&self) -> Option<f64> {
        self.all.first().and_then(|prompt| prompt.created)
    }

    /// When OpenCode stored the first of those that it has.
    pub(super) fn began(&self) -> Option<f64> {
        let joined = || self.all.iter().filter_map(|prompt| prompt.created).min_by(f64::total_cmp);
        self.first_created().or_else(joined)
    }

    /// The turn's own first.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|prompt| prompt.id.as_str())
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.all.iter().any(|prompt| prompt.id == id)
    }

    /// Sets what is known of those that join in this life of the gateway.
    pub(super) fn join<'a>(&mut self, joined: impl Iterator<Item = (&'a str, Delivery)> + Clone) {
        self.all.retain(|prompt| {
            let stays = prompt.created.is_some() || matches!(prompt.joined, None | Some(Delivery::BeforeRestart));
            stays || joined.clone().any(|(id, _)| id == prompt.id)
        });
        for (id, fate) in joined {
            match self.all.iter_mut().find(|prompt| prompt.id == id) {
                Some(prompt) => prompt.joined = Some(fate),
                None => {
                    self.all.push(Prompt::new(id, None, Some(fate)));
                }
            }
        }
    }

    /// Notes when OpenCode stored a user message. Says whether it is one of the turn's. A sub-agent's first message is its
    /// prompt.
    pub(super) fn stored(&mut self, id: &str, created: f64) -> bool {
        if let Some(prompt) = self.all.iter_mut().find(|prompt| prompt.id == id) {
            prompt.created = Some(created);
            return true;
        }
        let is_first = self.all.is_empty() && self.takes(created);
        if is_first {
            self.all.push(Prompt::new(id, Some(created), None));
        }
        is_first
    }

    /// Somebody wrote to a sub-agent that runs: it goes on with that. Says whether it is of this turn.
    pub(super) fn written(&mut self, id: &str, created: f64) -> bool {
        let joins = self.takes(created) && self.first_created().is_some_and(|first| first < created);
        if joins {
            self.all.push(Prompt::new(id, Some(created), Some(Delivery::Accepted)));
        }
        joins
    }

    /// Whether one of them may yet be sent.
    pub(super) fn any_undecided(&self) -> bool {
        self.all.iter().any(|prompt| prompt.created.is_none() && prompt.joined == Some(Delivery::Undecided))
    }

    /// Notes that there is an answer to a prompt.
    pub(super) fn answered(&mut self, id: &str) {
        for prompt in self.all.iter_mut().filter(|prompt| prompt.id == id) {
            prompt.is_answered = true;
        }
    }

    /// Whether OpenCode got one, or may get one, that it does not show.
    pub(super) fn any_not_shown(&self) -> bool {
        self.unseen().any(|prompt| prompt.joined != Some(Delivery::BeforeRestart))
    }

    /// Whether there is exactly one that OpenCode took and does not show.
    pub(super) fn exactly_one_lost(&self) -> bool {
        self.lost().count() == 1
    }

    /// The state of the newest prompt, when the newest step answers a message that was written at `answered`.
    pub(super) fn unanswered(&self, answered: Option<f64>) -> Option<Unanswered> {
        let is_own = |prompt: &Prompt| prompt.joined.is_none();
        if answered.is_some() && self.lost().any(is_own) {
            return Some(Unanswered::First);
        }
        let lost = self.lost().find_map(|prompt| match prompt.joined {
            Some(Delivery::Accepted) => Some(Unanswered::Accepted),
            Some(Delivery::Unknown) => Some(Unanswered::Unknown),
            _ => None,
        });
        let joined = self.all.iter().filter(|prompt| !is_own(prompt));
        let newest = joined.filter_map(|prompt| prompt.created).max_by(f64::total_cmp);
        let waits = newest.is_some_and(|newest| answered.is_none_or(|answered| answered < newest));
        lost.or(waits.then_some(Unanswered::Stored))
    }

    /// Whether one of before a restart of the gateway was never sent.
    pub(super) fn any_never_sent(&self) -> bool {
        self.all.iter().any(|prompt| prompt.joined == Some(Delivery::BeforeRestart) && prompt.created.is_none())
    }

    /// Those that OpenCode does not show.
    fn unseen(&self) -> impl Iterator<Item = &Prompt> {
        // A sub-agent's are known because OpenCode shows them.
        let ours = if self.adopted.is_some() { &[] } else { self.all.as_slice() };
        ours.iter().filter(|prompt| prompt.created.is_none() && !prompt.is_answered)
    }

    /// Those of them that were sent.
    fn lost(&self) -> impl Iterator<Item = &Prompt> {
        self.unseen().filter(|prompt| !matches!(prompt.joined, Some(Delivery::Undecided | Delivery::BeforeRestart)))
    }

    fn takes(&self, created: f64) -> bool {
        self.adopted
            .is_some_and(|window| created >= window.since && window.until.is_none_or(|until| created < until))
    }
}
