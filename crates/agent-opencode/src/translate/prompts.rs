//! The user messages that a turn answers: its prompt, and those that joined it.
//!
//! OpenCode takes up a prompt that comes in mid-turn when the running step ends, and drops what was left of the one
//! before. Of several that come at once only the newest gets an answer. So a turn is over when its newest prompt is.

/// What is known of a prompt on its way to OpenCode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It may yet be sent: the turn must not end before that is decided.
    Undecided,
    /// OpenCode said that it took it.
    Accepted,
    /// OpenCode may or may not have it.
    Perhaps,
    /// Of before a restart of the gateway. If OpenCode does not have it, it was never sent.
    Earlier,
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
    /// `None`: the turn's own.
    joined: Option<Fate>,
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
    /// OpenCode has it.
    Stored,
    /// OpenCode took it and does not show it.
    Accepted,
    /// Nobody knows.
    Perhaps,
}

impl Prompts {
    pub(super) fn of(prompt: &str) -> Self {
        Self { all: vec![Prompt { id: prompt.to_owned(), created: None, joined: None }], adopted: None }
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

    pub(super) fn contains(&self, id: &str) -> bool {
        self.all.iter().any(|prompt| prompt.id == id)
    }

    /// Sets what is known of those that join in this life of the gateway.
    pub(super) fn join<'a>(&mut self, joined: impl Iterator<Item = (&'a str, Fate)> + Clone) {
        self.all.retain(|prompt| {
            let stays = prompt.created.is_some() || matches!(prompt.joined, None | Some(Fate::Earlier));
            stays || joined.clone().any(|(id, _)| id == prompt.id)
        });
        for (id, fate) in joined {
            match self.all.iter_mut().find(|prompt| prompt.id == id) {
                Some(prompt) => prompt.joined = Some(fate),
                None => {
                    self.all.push(Prompt { id: id.to_owned(), created: None, joined: Some(fate) });
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
            self.all.push(Prompt { id: id.to_owned(), created: Some(created), joined: None });
        }
        is_first
    }

    /// Somebody wrote to a sub-agent that runs: it goes on with that. Says whether it is of this turn.
    pub(super) fn written(&mut self, id: &str, created: f64) -> bool {
        let joins = self.takes(created) && self.first_created().is_some_and(|first| first < created);
        if joins {
            self.all.push(Prompt { id: id.to_owned(), created: Some(created), joined: Some(Fate::Accepted) });
        }
        joins
    }

    /// Whether one of them may yet be sent.
    pub(super) fn is_undecided(&self) -> bool {
        self.all.iter().any(|prompt| prompt.created.is_none() && prompt.joined == Some(Fate::Undecided))
    }

    /// The state of the newest prompt, when the newest step answers a message that was written at `answered`.
    pub(super) fn unanswered(&self, answered: Option<f64>) -> Option<Unanswered> {
        let joined = self.all.iter().filter(|prompt| prompt.joined.is_some());
        let lost =
            joined.clone().filter(|prompt| prompt.created.is_none()).find_map(|prompt| match prompt.joined {
                Some(Fate::Accepted) => Some(Unanswered::Accepted),
                Some(Fate::Perhaps) => Some(Unanswered::Perhaps),
                _ => None,
            });
        let newest = joined.filter_map(|prompt| prompt.created).max_by(f64::total_cmp);
        let waits = newest.is_some_and(|newest| answered.is_none_or(|answered| answered < newest));
        lost.or(waits.then_some(Unanswered::Stored))
    }

    /// Whether one of before a restart of the gateway was never sent.
    pub(super) fn one_was_never_sent(&self) -> bool {
        self.all.iter().any(|prompt| prompt.joined == Some(Fate::Earlier) && prompt.created.is_none())
    }

    fn takes(&self, created: f64) -> bool {
        self.adopted
            .is_some_and(|window| created >= window.since && window.until.is_none_or(|until| created < until))
    }
}
