//! Options that come with a message in addition to its content.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::control::NativePrompt;
use crate::hops::Hops;
use crate::id::SessionId;
use crate::json::Json;
use crate::named_enum::named_enum;
use crate::push::PushEvents;

/// How and where the sender wants a message to be processed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SendOptions {
    /// The session of the agent in which to continue, instead of the context's session or a new one.
    pub session: Option<SessionId>,
    /// The title of the session, if the message opens a new one.
    pub session_title: Option<String>,
    /// The directory in which to work, as the caller wrote it.
    pub directory: Option<String>,
    /// The agent's workspace in which to work.
    pub workspace: Option<String>,
    pub delivery: Delivery,
    pub prompt: PromptOptions,
    /// The kinds of events that are sent as push notifications. `None`: the operator decides.
    pub push_events: Option<PushEvents>,
}

named_enum! {
    /// How a message to a busy session is delivered.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum Delivery {
        /// The message becomes a separate task, which waits.
        #[default]
        Queue = "queue",
        /// The message is refused.
        Reject = "reject",
        /// The message joins the running turn.
        Steer = "steer",
    }
    fn as_str
}

impl Delivery {
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|delivery| delivery.as_str() == word)
    }
}

/// The options of a task, stored with it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TaskOptions {
    #[serde(default, skip_serializing_if = "OutputModes::is_unrestricted")]
    pub output: OutputModes,
    #[serde(default, skip_serializing_if = "PromptOptions::is_empty")]
    pub prompt: PromptOptions,
    /// The native prompt. `None`: the agent is prompted with the message itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<NativePrompt>,
    /// The session of the native prompt. If this session no longer exists, the prompt is not sent to another session.
    #[serde(rename = "ordered_in", default, skip_serializing_if = "Option::is_none")]
    pub native_prompt_session: Option<SessionId>,
    /// Whether the task follows an external turn, whose prompt another client of the agent sent. A message that a caller sends to
    /// the task after that turn starts a turn of the gateway.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// The title of the session, if the task opens a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_title: Option<String>,
}

impl TaskOptions {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The approximate number of bytes in the options.
    pub fn weight(&self) -> usize {
        let order = self.order.as_ref().map_or(0, |order| Json::from_value(order).get().len());
        let title = self.session_title.as_ref().map_or(0, String::len);
        order + title + self.prompt.weight() + self.output.iter().map(str::len).sum::<usize>()
    }
}

/// The model, the agent and further settings for a prompt. `None` in a field: the configured default, or else the agent's own
/// default.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PromptOptions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    /// The mode of the agent, such as `plan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Values for other options that the agent offers, by the id of the option.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The chain of gateways behind this prompt. Empty: no agent of a gateway sent it.
    #[serde(default, skip_serializing_if = "Hops::is_empty")]
    pub hops: Hops,
    /// Whether the caller may run a shell, so that the agent may run the caller's additions to a command in one. Comes from the
    /// credential of the send, and never from the message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_run: bool,
}

impl PromptOptions {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn weight(&self) -> usize {
        let model = self.model.as_ref().map_or(0, |name| name.provider.len() + name.model.len());
        let texts = [&self.mode, &self.agent, &self.variant, &self.system];
        let config = self.config.iter().map(|(id, value)| id.len() + value.len()).sum::<usize>();
        texts.into_iter().flatten().map(String::len).sum::<usize>() + model + config + self.hops.weight()
    }

    /// These options. Missing values are taken from `defaults`.
    #[must_use]
    pub fn or(&self, defaults: &Self) -> Self {
        let mut config = defaults.config.clone();
        config.extend(self.config.clone());
        Self {
            config,
            model: self.model.clone().or_else(|| defaults.model.clone()),
            mode: self.mode.clone().or_else(|| defaults.mode.clone()),
            agent: self.agent.clone().or_else(|| defaults.agent.clone()),
            variant: self.variant.clone().or_else(|| defaults.variant.clone()),
            system: self.system.clone().or_else(|| defaults.system.clone()),
            hops: if self.hops.is_empty() { defaults.hops.clone() } else { self.hops.clone() },
            may_run: self.may_run,
        }
    }
}

/// The name of a model, written as `provider/model`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ModelName {
    /// The provider. Empty: the caller named the model only by an id, which not every agent accepts.
    pub provider: String,
    pub model: String,
}

impl ModelName {
    /// Parses `provider/model`. The part after the first slash may contain further slashes. `None`: one of the two parts is
    /// missing.
    pub fn parse(text: &str) -> Option<Self> {
        let (provider, model) = text.split_once('/')?;
        let has_both = !provider.is_empty() && !model.is_empty();
        has_both.then(|| Self { provider: provider.to_owned(), model: model.to_owned() })
    }

    /// A model that is named only by an id.
    pub fn plain(id: impl Into<String>) -> Self {
        Self { provider: String::new(), model: id.into() }
    }
}

impl std::fmt::Display for ModelName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { provider, model } = self;
        if provider.is_empty() { f.write_str(model) } else { write!(f, "{provider}/{model}") }
    }
}

/// The media types that a caller accepts: types such as `text/plain`, and ranges such as `image/*`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OutputModes(Vec<String>);

impl OutputModes {
    /// Normalizes the list: lower case, without parameters, sorted. An empty list, or one with `*/*`, accepts everything.
    pub fn new<'a>(modes: impl IntoIterator<Item = &'a str>) -> Self {
        let mut kept: Vec<String> = modes.into_iter().map(essence).collect();
        if kept.iter().any(|mode| mode == "*/*" || mode == "*") {
            kept.clear();
        }
        kept.sort_unstable();
        kept.dedup();
        Self(kept)
    }

    pub fn is_unrestricted(&self) -> bool {
        self.0.is_empty()
    }

    pub fn accepts(&self, media_type: &str) -> bool {
        if self.is_unrestricted() {
            return true;
        }
        let media_type = essence(media_type);
        let kind = media_type.split('/').next().unwrap_or_default();
        self.0.iter().any(|mode| *mode == media_type || mode.strip_suffix("/*") == Some(kind))
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// A media type without its parameters, in lower case.
fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_modes_match_types_and_ranges() {
        let cases: [(&[&str], &str, bool); 9] = [
            (&[], "image/png", true),
            (&["text/plain"], "text/plain", true),
            (&["TEXT/Plain; charset=utf-8"], "text/plain;charset=ascii", true),
            (&["text/plain"], "application/json", false),
            (&["text/*"], "text/markdown", true),
            (&["text/*"], "texts/markdown", false),
            (&["image/png", "*/*"], "audio/wav", true),
            (&["*"], "audio/wav", true),
            (&["*/plain"], "text/plain", false),
        ];
        for (modes, media_type, expected) in cases {
            let modes = OutputModes::new(modes.iter().copied());
            assert_eq!(modes.accepts(media_type), expected, "{modes:?} {media_type}");
        }
        let listed = OutputModes::new(["text/plain", "application/json", "TEXT/PLAIN"]);
        assert_eq!(listed.iter().collect::<Vec<_>>(), ["application/json", "text/plain"]);
    }

    #[test]
    fn options_are_filled_from_defaults() {
        let mine = PromptOptions { agent: Some("plan".to_owned()), ..PromptOptions::default() };
        let defaults = PromptOptions {
            agent: Some("build".to_owned()),
            model: ModelName::parse("a/b/c"),
            may_run: true,
            ..PromptOptions::default()
        };
        let both = mine.or(&defaults);
        assert!(!both.may_run, "a right is of the send itself");
        assert_eq!(both.agent.as_deref(), Some("plan"));
        assert_eq!(both.model.unwrap().model, "b/c");
        for half in ["", "a", "a/", "/b"] {
            assert_eq!(ModelName::parse(half), None, "{half:?}");
        }
    }

    #[test]
    fn delivery_words_parse_back() {
        for delivery in Delivery::ALL {
            assert_eq!(Delivery::parse(delivery.as_str()), Some(delivery));
        }
        assert_eq!(Delivery::parse("Queue"), None);
    }
}
