//! What the sender of a message asks for beside its content.

use serde::{Deserialize, Serialize};

use crate::control::Order;
use crate::id::SessionId;

/// How and where a message is to be worked on. Asked once, with the message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SendOptions {
    /// Go on in this session of the agent, instead of the one that the context is bound to or a new one.
    pub session: Option<SessionId>,
    /// Work in this directory, as the caller wrote it.
    pub directory: Option<String>,
    /// Work in this workspace of the agent.
    pub workspace: Option<String>,
    pub delivery: Delivery,
    pub prompt: PromptOptions,
}

/// What becomes of a message for a session that is busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Delivery {
    /// It waits, as a task of its own.
    #[default]
    Queue,
    /// It is refused.
    Reject,
    /// It joins the task that runs.
    Steer,
}

impl Delivery {
    pub const ALL: [Self; 3] = [Self::Queue, Self::Reject, Self::Steer];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Reject => "reject",
            Self::Steer => "steer",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|delivery| delivery.as_str() == word)
    }
}

/// What a task was asked for, kept with it for as long as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TaskOptions {
    #[serde(default, skip_serializing_if = "OutputModes::is_unrestricted")]
    pub output: OutputModes,
    #[serde(default, skip_serializing_if = "PromptOptions::is_empty")]
    pub prompt: PromptOptions,
    /// What the agent is told to do beside the message, by a caller who speaks its own language. `None`: it is prompted with
    /// the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// The session that the order is for, which is given nowhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered_in: Option<SessionId>,
    /// Somebody else prompted the agent, and the task follows. What its caller says to it when that is over is the caller's own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
}

impl TaskOptions {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Who is to answer a prompt, and how. `None`: as the gateway is configured, else as the agent likes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PromptOptions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
}

impl PromptOptions {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These, and where they are silent, those.
    #[must_use]
    pub fn or(&self, defaults: &Self) -> Self {
        Self {
            model: self.model.clone().or_else(|| defaults.model.clone()),
            agent: self.agent.clone().or_else(|| defaults.agent.clone()),
            variant: self.variant.clone().or_else(|| defaults.variant.clone()),
            system: self.system.clone().or_else(|| defaults.system.clone()),
        }
    }
}

/// A model, written `provider/model`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ModelName {
    pub provider: String,
    pub model: String,
}

impl ModelName {
    /// The model's own name may hold slashes. `None` when either half is missing.
    pub fn parse(text: &str) -> Option<Self> {
        let (provider, model) = text.split_once('/')?;
        let whole = !provider.is_empty() && !model.is_empty();
        whole.then(|| Self { provider: provider.to_owned(), model: model.to_owned() })
    }
}

/// The media types that a caller can make use of: types such as `text/plain`, and ranges such as `image/*`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OutputModes(Vec<String>);

impl OutputModes {
    /// In lower case, without parameters, sorted. A caller that names nothing, or takes anything, restricts nothing.
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
    fn output_modes_take_types_ranges_and_anything() {
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
    fn options_fill_each_others_gaps() {
        let mine = PromptOptions { agent: Some("plan".to_owned()), ..PromptOptions::default() };
        let defaults = PromptOptions {
            agent: Some("build".to_owned()),
            model: ModelName::parse("a/b/c"),
            ..PromptOptions::default()
        };
        let both = mine.or(&defaults);
        assert_eq!(both.agent.as_deref(), Some("plan"));
        assert_eq!(both.model.unwrap().model, "b/c");
        for half in ["", "a", "a/", "/b"] {
            assert_eq!(ModelName::parse(half), None, "{half:?}");
        }
    }

    #[test]
    fn deliveries_read_back() {
        for delivery in Delivery::ALL {
            assert_eq!(Delivery::parse(delivery.as_str()), Some(delivery));
        }
        assert_eq!(Delivery::parse("Queue"), None);
    }
}
