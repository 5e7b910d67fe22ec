//! Permission requests and questions of OpenCode, as events and lists contain them.

use serde::{Deserialize, Serialize};

#[derive(Deserialize, Debug)]
pub(crate) struct PermissionAsk {
    pub(crate) id: String,
    #[serde(rename = "sessionID")]
    pub(crate) session: String,
    #[serde(default)]
    pub(crate) permission: String,
    #[serde(default)]
    pub(crate) patterns: Vec<String>,
    /// The patterns that the reply `always` would allow in the future.
    #[serde(default)]
    pub(crate) always: Vec<String>,
    /// Details that the tool provides.
    #[serde(default)]
    pub(crate) metadata: serde_json::Value,
    pub(crate) tool: Option<AskedBy>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct QuestionAsk {
    pub(crate) id: String,
    #[serde(rename = "sessionID")]
    pub(crate) session: String,
    #[serde(default)]
    pub(crate) questions: Vec<Question>,
    pub(crate) tool: Option<AskedBy>,
}

#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Question {
    #[serde(default)]
    pub(crate) header: String,
    #[serde(default, rename = "question")]
    pub(crate) text: String,
    #[serde(default)]
    pub(crate) options: Vec<QuestionOption>,
    #[serde(default)]
    pub(crate) multiple: bool,
    /// Whether a free-text answer is allowed in addition to the options. OpenCode's default is yes.
    #[serde(default = "yes")]
    pub(crate) custom: bool,
}

#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct QuestionOption {
    #[serde(default)]
    pub(crate) label: String,
    #[serde(default)]
    pub(crate) description: String,
}

/// The tool call that waits for the answer.
#[derive(Deserialize, Debug)]
pub(crate) struct AskedBy {
    #[serde(rename = "messageID")]
    pub(crate) message: Option<String>,
    #[serde(rename = "callID")]
    pub(crate) call: Option<String>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct AskReplied {
    #[serde(rename = "requestID")]
    pub(crate) request: String,
    /// For a permission request: `once`, `always` or `reject`.
    pub(crate) reply: Option<String>,
}

fn yes() -> bool {
    true
}
