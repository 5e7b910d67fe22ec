//! The tokens and the cost of a turn, from the three places in which agents report them.
//!
//! One agent reports the tokens of each model request, one those of the turn at its end, and one those of the whole session. The
//! cost is always that of the whole session.

use longshore_model::{Cost, Usage};

use crate::schema::{TokenUsage, UsageUpdate};

/// The totals of a session over all its turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionTotals {
    /// The tokens of the session so far. `None`: the agent does not report them.
    tokens: Option<Usage>,
    /// The cost of the session so far. `None`: the session is older than this connection, and the agent has not reported its cost
    /// yet.
    cost: Option<Cost>,
}

impl SessionTotals {
    /// The totals of a session that was just created.
    pub fn of_new_session() -> Self {
        Self { tokens: None, cost: Some(Cost(0)) }
    }

    /// The totals of a session that existed before this connection.
    pub fn of_old_session() -> Self {
        Self { tokens: None, cost: None }
    }

    pub fn note(&mut self, update: &UsageUpdate) {
        if let Some(tokens) = session_tokens(update) {
            self.tokens = Some(tokens);
        }
        if let Some(cost) = &update.cost {
            self.cost = Some(Cost::from_float(cost.amount));
        }
    }
}

fn session_tokens(update: &UsageUpdate) -> Option<Usage> {
    Some(Usage {
        input: update.meta.prompt_tokens,
        output: update.meta.completion_tokens,
        total: update.meta.total_tokens?,
        cache_read: update.meta.cached_tokens,
        ..Usage::default()
    })
}

/// The usage of one turn.
#[derive(Debug)]
pub(super) struct TurnUsage {
    /// The totals at the beginning of the turn.
    start: SessionTotals,
    now: SessionTotals,
    /// The sum of the tokens of the turn's model requests.
    requests: Option<Usage>,
    reported: Usage,
}

impl TurnUsage {
    pub(super) fn new(start: SessionTotals) -> Self {
        Self { start, now: start, requests: None, reported: Usage::default() }
    }

    pub(super) fn update(&mut self, update: &UsageUpdate) {
        self.now.note(update);
        // The first report of a session whose totals start at zero.
        if self.start.tokens.is_none() && self.now.tokens.is_some() && self.start.cost == Some(Cost(0)) {
            self.start.tokens = Some(Usage::default());
        }
    }

    /// Adds the tokens of one model request.
    pub(super) fn request(&mut self, tokens: &TokenUsage) {
        self.requests = Some(self.requests.unwrap_or_default().plus(of_tokens(tokens)));
    }

    /// The usage of the turn, if it has changed since the last call. `end`: the tokens that came with the end of the turn.
    pub(super) fn changed(&mut self, end: Option<&TokenUsage>) -> Option<Usage> {
        let of_session = self.now.tokens.zip(self.start.tokens).map(|(now, start)| minus(now, start));
        let mut usage = match (end, self.requests, of_session) {
            // The total of the session takes precedence, because an agent that counts per session also reports it at the end of a
            // turn.
            (_, None, Some(usage)) | (None, Some(usage), _) => usage,
            (Some(end), _, _) => of_tokens(end),
            (None, None, None) => Usage::default(),
        };
        if let (Some(now), Some(start)) = (self.now.cost, self.start.cost) {
            usage.cost = Cost(now.0.saturating_sub(start.0));
        }
        (usage != self.reported).then(|| {
            self.reported = usage;
            usage
        })
    }
}

fn of_tokens(tokens: &TokenUsage) -> Usage {
    let TokenUsage { input_tokens, output_tokens, total_tokens, .. } = *tokens;
    Usage {
        input: input_tokens,
        output: output_tokens,
        total: if total_tokens == 0 { input_tokens.saturating_add(output_tokens) } else { total_tokens },
        reasoning: tokens.thought_tokens,
        cache_read: tokens.cached_read_tokens,
        cache_write: tokens.cached_write_tokens,
        cost: Cost(0),
    }
}

fn minus(now: Usage, start: Usage) -> Usage {
    Usage {
        input: now.input.saturating_sub(start.input),
        output: now.output.saturating_sub(start.output),
        total: now.total.saturating_sub(start.total),
        reasoning: now.reasoning.saturating_sub(start.reasoning),
        cache_read: now.cache_read.saturating_sub(start.cache_read),
        cache_write: now.cache_write.saturating_sub(start.cache_write),
        cost: Cost(0),
    }
}
