//! A point in a turn where code decides how the turn continues, for agents that react to what they receive.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::script::Prompt;
use super::turn::Turn;

type Decide = dyn Fn(TurnContext) -> BoxFuture<'static, Turn> + Send + Sync;

/// The turn at a decision.
#[derive(Clone, Debug)]
pub struct TurnContext {
    pub session: String,
    /// The first text of the prompt.
    pub text: String,
}

/// Returns what the agent does next.
#[derive(Clone)]
pub struct Decision(Arc<Decide>);

impl Decision {
    pub fn new<D>(decide: D) -> Self
    where
        D: Fn(TurnContext) -> BoxFuture<'static, Turn> + Send + Sync + 'static,
    {
        Self(Arc::new(decide))
    }

    pub(super) async fn make(&self, prompt: &Prompt) -> Turn {
        let mut texts =
            prompt.parts.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
        let text = texts.next().unwrap_or_default().to_owned();
        (self.0)(TurnContext { session: prompt.session.clone(), text }).await
    }
}

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decision")
    }
}
